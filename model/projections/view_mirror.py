"""Materialised views: mirrors whose rows the server writes, whenever a row of the base is written.

No statement writes a row of a view. So a row of the base is written once more as it is ("touched"):
the server then derives the row of the view anew. A row of a view without a row of the base cannot
be mended that way (docs/adr/0070).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from mailmend.model.operations import Change, Put, Seen, Write
from mailmend.model.projections.findings import Finding, RepairPolicy
from mailmend.model.projections.look import Look
from mailmend.model.projections.projection import Mirror
from mailmend.model.projections.verdicts import Reason, Verdict, Why
from mailmend.model.table import Row, Table

TOUCHED = frozenset({Verdict.PROJECT, Verdict.AMEND})
"""What a touched row of the base may mend."""


@dataclass(frozen=True, slots=True)
class ViewMirror(Mirror):
    """A materialised view.

    Attributes:
        fed_by: the base's columns outside its key that the view holds.
    """

    fed_by: tuple[str, ...] = field(init=False, repr=False, compare=False)

    hidden_by: ClassVar[Why] = Why.HIDDEN_IN_VIEW

    def __post_init__(self) -> None:
        Mirror.__post_init__(self)
        held = {source for _, source in self.sources}
        fed_by = tuple(column.name for column in self.truth.regular if column.name in held)
        object.__setattr__(self, "fed_by", fed_by)

    def writes_for(self, before: Row | None, after: Row | None, stamp: int) -> tuple[Write, ...]:
        """None: the server writes what follows."""
        del before, after, stamp
        return ()

    def asks_for(self, verdict: Verdict, policy: RepairPolicy) -> bool:
        return policy.touch_base and verdict in TOUCHED & policy.only

    def why_left(self, finding: Finding, policy: RepairPolicy, now: int) -> Reason:
        if finding.verdict not in TOUCHED:
            return Reason(Why.NEEDS_NEW_VIEW)
        if finding.verdict not in policy.only:
            return Mirror.why_left(self, finding, policy, now)
        if not policy.touch_base:
            return Reason(Why.NEEDS_TOUCH_BASE)
        return Reason(Why.CANNOT_BE_TOUCHED)

    def fix(self, finding: Finding, look: Look, policy: RepairPolicy, at: int) -> Finding | None:
        """The finding with writes of the base's own cells, and the row of the view that follows."""
        del policy, at
        truth = look.truths[0]
        touches = touching(self.truth, truth, self.fed_by)
        wanted = self.row_of(truth.row)
        if not touches or self._keeps_more(look, wanted):
            return None
        return replace(finding, writes=touches, derived=(Put(self.table, wanted),))

    def _keeps_more(self, look: Look, wanted: Row) -> bool:
        """Whether the view's row has a cell that the base lacks: there is no cell to be touched."""
        if look.projected is None:
            return False
        there = look.projected.row
        return any(there.get(name) is not None and cell is None for name, cell in wanted.items())

    def take_back(self, image: Finding, look: Look, at: int, origin: Finding | None) -> Finding:
        """The finding without writes: a touched row of the base has the cells that it had."""
        del at, origin
        now = replace(image, truths=look.truths, projected=look.projected, result=None, error=None)
        return replace(now, verdict=Verdict.AGREE)


def touching(table: Table, seen: Seen, columns: Iterable[str]) -> tuple[Change, ...]:
    """The writes of a row's own cells, each a microsecond later, with the TTL that it has left.

    Args:
        table: the base.
        seen: its row.
        columns: what is written again; null cells are not.

    Returns:
        One write for each write time and expiry. None where a cell cannot be written as it is: a
        collection that is not frozen has many times, and a row of keys alone shows no time.
    """
    together: dict[tuple[int, int | None], dict[str, Any]] = {}
    for name in columns:
        cell = seen.row.get(name)
        in_parts = table.column(name).is_collection
        if cell is None or (in_parts and not cell):
            continue
        if in_parts or name not in seen.written_at:
            return ()
        moment = (seen.written_at[name] + 1, seen.expires_at.get(name))
        together.setdefault(moment, {})[name] = cell
    key = table.key_of(seen.row)
    changes = []
    for (at, expires_at), cells in together.items():
        changes.append(Change(table, key, cells, at=at, expires_at=expires_at))
    return tuple(changes)
