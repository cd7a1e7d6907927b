"""Content: what every truth row must have beside it; rows may share it; one that no truth names is a LEAK."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from model.projections.projection import Projection
from model.projections.verdicts import Verdict, table_of
from model.schema.table import Row

if TYPE_CHECKING:
    from model.projections.findings import Finding, Look, RepairPolicy


class ContentSymptoms(NamedTuple):
    """What is seen at one row of shared content. The order of the fields is the order of the bits, lowest first."""

    in_truth: bool
    in_projection: bool


def _judge(seen: ContentSymptoms) -> Verdict:
    """The mirror reports a truth without content, per place; here only content that no truth names is found."""
    return Verdict.LEAK if seen.in_projection and not seen.in_truth else Verdict.AGREE


@dataclass(frozen=True, slots=True)
class Content(Projection):
    """What every truth row must have beside it; rows may share it; one that no truth names is a LEAK."""

    verdicts: ClassVar = table_of(ContentSymptoms, _judge)
    needs_content: ClassVar[bool] = False

    def lead_row(self, look: "Look") -> Row:
        """Its key is the truth's own."""
        return {column: part for (_, column), part in zip(self.key, look.key, strict=True)}

    def verdict(self, look: "Look") -> Verdict:
        return self.verdicts[ContentSymptoms(bool(look.truths), look.projected is not None)]

    def asks_for(self, verdict: Verdict, policy: "RepairPolicy") -> bool:
        return verdict is Verdict.LEAK and policy.leaks == "collect"

    def fix(self, finding: "Finding", look: "Look", policy: "RepairPolicy", at: int) -> "Finding | None":  # noqa: ARG002 - a mirror asks both
        return self.key_row(finding, at)
