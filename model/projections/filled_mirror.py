"""A mirror whose truth may lack columns that the truth's content has: they are filled from it.

James wrote rows without these columns before it had them. A row of a message that was deleted lacks
them as well, where a change of flags came after the delete. The mirror tells both apart: a row that
was inserted whole has a mirror row which names its message, and what a late change of flags leaves
behind has none. So only a truth that its mirror row names is filled (docs/adr/0067).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mailmend.model.operations import ChangeIf, Conditional, RemoveIf, Seen, cells_of
from mailmend.model.projections.ages import is_old, why_kept
from mailmend.model.projections.claims import partition_parts
from mailmend.model.projections.findings import (
    Finding,
    MovedVerdict,
    RepairPolicy,
    Suspect,
    exactly,
    row_writes,
)
from mailmend.model.projections.look import Look
from mailmend.model.projections.projection import Mirror
from mailmend.model.projections.verdicts import Reason, Verdict, born_at
from mailmend.model.table import Row
from mailmend.model.values import same_value


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledMirror(Mirror):
    """A mirror that can fill a TORN truth row.

    Attributes:
        fills: (truth column, content column): what the content has of a truth row.
    """

    fills: tuple[tuple[str, str], ...] = ()

    def content_columns(self, suspect: Suspect) -> tuple[str, ...]:
        if suspect.verdict is not Verdict.TORN:
            return ()
        return tuple(theirs for _, theirs in self.fills)

    def asks_for(self, verdict: Verdict, policy: RepairPolicy) -> bool:
        if verdict is Verdict.TORN:
            return policy.fill_torn
        return Mirror.asks_for(self, verdict, policy)

    def old_enough(self, look: Look, verdict: Verdict, now: int) -> bool:
        """Whether the writer of a torn row cannot be at work any more."""
        if verdict is Verdict.TORN:
            return is_old(self.since(look.truths), now)
        return Mirror.old_enough(self, look, verdict, now)

    def why_left(self, finding: Finding, policy: RepairPolicy, now: int) -> Reason:
        is_removed = finding.verdict is Verdict.LOST_CONTENT and policy.orphans == "quarantine"
        if is_removed or (finding.verdict is Verdict.TORN and policy.fill_torn):
            return why_kept(self.since(finding.truths) or born_at(finding.suspect.truth_parts), now)
        return Mirror.why_left(self, finding, policy, now)

    def since(self, truths: Sequence[Seen]) -> int | None:
        """When the contents of truth rows were made, which James gives their ids with."""
        return born_at(partition_parts(self.truth, truths))

    def removal(self, truth: Row) -> RemoveIf:
        """The removal of a truth row while it is unchanged: its modseq tells of its sets."""
        return exactly(self.truth, truth)

    def fix(self, finding: Finding, look: Look, policy: RepairPolicy, at: int) -> Finding | None:
        if finding.verdict is Verdict.TORN:
            return self._filled(finding, look, at)
        return Mirror.fix(self, finding, look, policy, at)

    def _filled(self, finding: Finding, look: Look, at: int) -> Finding | None:
        """The truth with what its content has, and its mirror row; None where it is not whole."""
        truth = look.truths[0]
        cells = self._cells(look, truth)
        whole = {**truth.row, **cells}
        if not cells or not self.whole(whole) or truth.expires_at or not self._is_named(look):
            return None
        change = self._guarded(truth.row, cells)
        return replace(
            finding,
            condition=change,
            writes=row_writes(self.table, self.row_of(whole), {}, at),
        )

    def _cells(self, look: Look, truth: Seen) -> dict[str, Any]:
        """The cells that the truth lacks, as its content has them."""
        content = look.contents.get(self.truth.partition_of(truth.row), {})
        cells = {}
        for own, theirs in self.fills:
            if truth.row.get(own) is None and content.get(theirs) is not None:
                cells[own] = content[theirs]
        return cells

    def _is_named(self, look: Look) -> bool:
        """Whether the mirror row names this truth row."""
        restored = self.restored(cells_of(look.projected))
        return self.truth.key_of(restored) == self.truth.key_of(look.truths[0].row)

    def _guarded(self, standing: Row, cells: Mapping[str, Any]) -> ChangeIf:
        """The change of a truth row while it is unchanged; one of its cells is never null."""
        expected = exactly(self.truth, standing).expected
        return ChangeIf(self.truth, self.truth.key_of(standing), expected, cells)

    def truth_back(
        self,
        image: Finding,
        look: Look,
        origin: Finding | None,
    ) -> Conditional | MovedVerdict | None:
        if image.verdict is not Verdict.TORN:
            return Mirror.truth_back(self, image, look, origin)
        return self._emptied(image.truths, look.truths)

    def _emptied(
        self,
        recorded: Sequence[Seen],
        standing: Sequence[Seen],
    ) -> Conditional | MovedVerdict | None:
        """What takes back the fill, or fills again; MOVED where more than that was changed."""
        match recorded, standing:
            case (before,), (now,):
                cells = self._differing_cells(before.row, now.row)
            case _:
                return Verdict.MOVED
        if cells is None:
            return Verdict.MOVED
        if not cells:
            return None
        return self._guarded(now.row, cells)

    def _differing_cells(self, before: Row, now: Row) -> dict[str, Any] | None:
        """The cells that one row lacks, as they were before; None where other cells differ too."""
        fillable = {own for own, _ in self.fills}
        cells = {}
        for name in self.truth.names:
            was = before.get(name)
            is_now = now.get(name)
            if same_value(was, is_now):
                continue
            if name not in fillable or (was is not None and is_now is not None):
                return None
            cells[name] = was
        return cells
