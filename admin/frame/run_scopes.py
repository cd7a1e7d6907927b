"""What a run looks at: the families of its projections, and how the next command names them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mailmend.model.catalog.mail import FAMILIES, MESSAGES, PATHS
from mailmend.model.projections.family import Family, projections_of
from mailmend.model.projections.projection import Mirror, Projection
from mailmend.model.projections.verdicts import Reason, Verdict, Why


@dataclass(frozen=True, slots=True)
class RunScope:
    """The families of a run, and the words with which a person names them.

    Attributes:
        families: as they are bound to the keyspace, or as they are declared.
        is_mail: whether they are James's: then findings have mailboxes, owners and message ids.
        checked: what follows `mailmend check`.
        repair: what follows `mailmend` in a command that mends them; "" where a file comes first.
        before_repair: what a person does first in that case, in lines.
    """

    families: tuple[Family, ...] = FAMILIES
    is_mail: bool = True
    checked: str = "messages"
    repair: str = "repair messages"
    before_repair: Sequence[str] = ()
    projections: Mapping[str, Projection] = field(init=False, repr=False, compare=False)
    """By their names in findings."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "projections", projections_of(self.families))

    @property
    def has_lags(self) -> bool:
        """Whether `repair lags` mends rows of it."""
        return MESSAGES.mirror.name in self.projections

    def text_of(self, why: Why) -> str:
        """A reason in words; groups are named by their key, where all counters have one key."""
        keys: set[tuple[str, ...]] = set()
        for family in self.families:
            keys.update(counts.group_key for counts in family.counts)
        if why is not Why.GROUP_DIFFERS or len(keys) != 1:
            return why.value
        return Reason(why, columns=keys.pop()).text

    def repair_of(self, projection: str) -> str:
        """What follows `mailmend` in the command that mends rows of one projection."""
        if self.is_mail and projection == PATHS.mirror.name:
            return MAILBOXES.repair
        return self.repair

    def is_only_reported(self, projection: str, verdict: Verdict) -> bool:
        """Whether a repair leaves findings of this verdict."""
        found = self.projections.get(projection)
        return isinstance(found, Mirror) and verdict in dict(found.kept)


MAIL: Final = RunScope()
"""James's families, as the catalog declares them."""

MAILBOXES: Final = RunScope((PATHS,), checked="all", repair="repair mailboxes")
"""The rows of mailboxes, which have a repair of their own."""
