"""The projection kind `Content`: each truth row refers to one content row; several may share it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from mailmend.model.projections.ages import DAY_MICROS, older_than_a_day, why_kept
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.reasons import Reason, Why
from mailmend.model.projections.verdicts import Verdict, table_of
from mailmend.model.table import Row

if TYPE_CHECKING:
    from mailmend.model.projections.findings import Finding, Look, RepairPolicy


class ContentSymptoms(NamedTuple):
    """What is seen at one row of shared content. The order of the fields is the order of the bits, lowest first."""

    in_truth: bool
    in_projection: bool


def _judge(seen: ContentSymptoms) -> Verdict:
    """The mirror reports a truth without content, per place; here only content that no truth names is found."""
    return Verdict.LEAK if seen.in_projection and not seen.in_truth else Verdict.AGREE


@dataclass(frozen=True, slots=True)
class Content(Projection):
    """A table of contents: each truth row needs one row of it; several may share it. One that none names is a LEAK."""

    verdicts: ClassVar = table_of(ContentSymptoms, _judge)
    needs_content: ClassVar[bool] = False

    def lead_row(self, look: "Look") -> Row:
        """Its key is the truth's own."""
        return {column: part for (_, column), part in zip(self.key, look.key, strict=True)}

    def verdict(self, look: "Look") -> Verdict:
        return self.verdicts[ContentSymptoms(bool(look.truths), look.projected is not None)]

    def asks_for(self, verdict: Verdict, policy: "RepairPolicy") -> bool:
        return verdict is Verdict.LEAK and policy.leaks == "collect"

    def old_enough(self, look: "Look", verdict: Verdict, now: int) -> bool:
        """Whether content may be removed: both its birth and its last write are more than a day ago."""
        recent = look.newest is not None and look.newest > now - DAY_MICROS
        return verdict is not Verdict.LEAK or (older_than_a_day(look.key, now) and not recent)

    def why_left(self, finding: "Finding", policy: "RepairPolicy", now: int) -> Reason:
        if finding.verdict is not Verdict.LEAK:
            return Projection.why_left(self, finding, policy, now)
        if policy.leaks == "report":
            return Reason(Why.NEEDS_LEAKS)
        return why_kept(finding.suspect.key, finding.newest, now)

    def fix(self, finding: "Finding", look: "Look", policy: "RepairPolicy", at: int) -> "Finding | None":  # noqa: ARG002 - a mirror asks both
        return self.key_row(finding, at)
