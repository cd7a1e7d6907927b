"""Groups: projections with a row for several truth rows, which demand values of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from mailmend.model.projections.findings import Finding, RepairPolicy
from mailmend.model.projections.look import Look
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.verdicts import GROUP_VERDICTS, GroupSymptoms, Reason, Verdict, Why
from mailmend.model.table import Row

_OF_A_MAILBOX: Final = ("mailboxid",)


@dataclass(frozen=True, slots=True)
class Group(Projection):
    """A row for each group of truth rows.

    Truth rows demand values of it by name: each element of a union, each counter. A scan adds up
    the demands of one name in any order (`together`), and then compares them with the group's row
    (`lacking`).
    """

    verdicts: ClassVar = GROUP_VERDICTS

    @property
    def group_key(self) -> tuple[str, ...]:
        """The columns that the rows of a group have in common, as they are spelled."""
        return tuple(column.spelling for column in self.table.key)

    def why_left(self, finding: Finding, policy: RepairPolicy, now: int) -> Reason:
        reason = Projection.why_left(self, finding, policy, now)
        if reason.why is not Why.ROWS_DIFFER or self.table.key_names == _OF_A_MAILBOX:
            return reason
        return Reason(Why.GROUP_DIFFERS, columns=self.group_key)

    def verdict(self, look: Look) -> Verdict:
        return self.verdicts[GroupSymptoms(look.projected is not None, self.covered(look))]

    def covered(self, look: Look) -> bool:
        """Whether the group's row has all that its truths require."""
        raise NotImplementedError

    def held(self, row: Row) -> tuple[Any, ...]:
        """The aggregated values in the group's own row."""
        raise NotImplementedError

    def together(self, one: Any, other: Any) -> Any:
        """Combine two demands of the same name into one."""
        raise NotImplementedError

    def demand_of(self, element: Any, truth: Any) -> tuple[Any, Any]:
        """What an element of a truth row demands, by name; `truth` is the row's key."""
        raise NotImplementedError

    def lacking(self, demands: Mapping[str, Any], held: tuple[Any, ...]) -> "Shortfall | None":
        """What a row with these gathered values lacks; None where it has everything."""
        raise NotImplementedError


class Shortfall(NamedTuple):
    """What a group's row lacks: `Suspect.wanted`, and the truth rows that demand it, if known."""

    wanted: Mapping[str, Any]
    truths: tuple[Any, ...] = ()
