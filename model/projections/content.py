"""Contents: rows that each row of the truth needs, and which are removed when no row names them."""

from dataclasses import dataclass
from typing import ClassVar

from mailmend.model.operations import Conditional, Seen
from mailmend.model.projections.ages import is_old, last_sign, why_kept
from mailmend.model.projections.findings import Finding, MovedVerdict, RepairPolicy
from mailmend.model.projections.look import Look
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.verdicts import (
    CONTENT_VERDICTS,
    ContentSymptoms,
    Reason,
    Verdict,
    Why,
    born_at,
)
from mailmend.model.table import Key, Row


@dataclass(frozen=True, slots=True)
class Content(Projection):
    """A table of contents: each truth row needs one row of it, which several may share.

    A row that no truth row names is a LEAK.
    """

    verdicts: ClassVar = CONTENT_VERDICTS
    needs_content: ClassVar[bool] = False

    def lead_row(self, look: Look) -> Row:
        """Its key is the truth's own."""
        return self.truth_part(look.key)

    def verdict(self, look: Look) -> Verdict:
        return self.verdicts[ContentSymptoms(bool(look.truths), look.projected is not None)]

    def asks_for(self, verdict: Verdict, policy: RepairPolicy) -> bool:
        return verdict is Verdict.LEAK and policy.leaks == "collect"

    def old_enough(self, look: Look, verdict: Verdict, now: int) -> bool:
        """Whether content may be removed: both its birth and its last write are more than a day ago."""
        return verdict is not Verdict.LEAK or is_old(self._since(look.key, look.projected), now)

    def _since(self, key: Key, projected: Seen | None) -> int | None:
        """When the content was made or written last, in microseconds; None: unknown."""
        if projected is None:
            return born_at(key)
        return last_sign(self.table, key, projected)

    def why_left(self, finding: Finding, policy: RepairPolicy, now: int) -> Reason:
        if finding.verdict is not Verdict.LEAK:
            return Projection.why_left(self, finding, policy, now)
        if policy.leaks == "report":
            return Reason(Why.NEEDS_LEAKS)
        return why_kept(self._since(finding.suspect.key, finding.projected), now)

    def fix(self, finding: Finding, look: Look, policy: RepairPolicy, at: int) -> Finding | None:  # noqa: ARG002 - a mirror asks both
        return self.key_row(finding, at)

    def truth_back(
        self,
        image: Finding,
        look: Look,
        origin: Finding | None,  # noqa: ARG002 - a mirror asks for it
    ) -> Conditional | MovedVerdict | None:
        """Content goes back also where a truth row names it, and goes only while none does."""
        if image.projected is None and look.truths:
            return Verdict.MOVED
        return None
