"""A suspect with both sides, as a second look reads them again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mailmend.model.operations import Seen
from mailmend.model.projections.findings import Suspect, newest_of
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row

if TYPE_CHECKING:
    from mailmend.model.projections.projection import Mirror, Projection


@dataclass(frozen=True, slots=True)
class Look:
    """A suspect with both sides as they are read again; completed read by read.

    Attributes:
        mirror: the mirror of the truth, which leads to it.
        content: the projection of contents; None for a truth without contents.
        projected: the projection's row, or None.
        mirrored: the mirror's row at the same place, which may lead to the truth.
        contents: by the partition keys of the truth, the rows of contents that exist.
        truths: every truth row that claims the key, as far as known keys lead to them.
        has_content: whether the content of the truth exists (or, without a truth, the content of
            the projection).
        whole: whether the truth row has every column that an insert writes (or is accepted without).
        uncertain: for counters: truth rows without content or torn, which may be counted or not.
        last_trace: the content exists and the message has no truth row: only the projection may still lead to it.
        blind: the scan saw a truth that no known key leads to: its verdict is kept.
        companions: other rows that follow from the truth row alone, read when it may be removed.
    """

    suspect: Suspect
    mirror: "Mirror"
    content: "Projection | None"
    projection: "Projection"
    projected: Seen | None = None
    mirrored: Seen | None = None
    contents: Mapping[Key, Row] = field(default_factory=dict)
    truths: tuple[Seen, ...] = ()
    has_content: bool = True
    whole: bool = True
    uncertain: tuple[Seen, ...] = ()
    last_trace: bool = False
    blind: bool = False
    companions: tuple[tuple["Projection", Seen], ...] = ()

    @property
    def key(self) -> Key:
        return self.suspect.key

    @property
    def verdict(self) -> Verdict:
        return self.projection.verdict(self)

    @property
    def newest(self) -> int | None:
        """The latest visible write of the pair in microseconds; None where no time can be read."""
        return newest_of(self.truths, self.projected)

    @property
    def soonest(self) -> int | None:
        """When the first visible cell of the pair expires, in seconds since 1970; None where none does."""
        instants: list[int] = []
        for seen in self.truths:
            instants.extend(seen.expires_at.values())
        if self.projected:
            instants.extend(self.projected.expires_at.values())
        return min(instants, default=None)

    @property
    def named(self) -> tuple[Key, ...]:
        """Partition keys of the truth that the latest reads name; a half-written row names none."""
        row = self.projection.lead_row(self)
        lead = self.mirror.truth.partition_named_by(row)
        if lead is None:
            return ()
        return (lead,)

    @property
    def leads(self) -> tuple[Key, ...]:
        """Every known partition key of the truth: those that the scan saw, and those named since."""
        return tuple(dict.fromkeys((*self.suspect.truth_keys, *self.named)))

    def content_stands(self, truths: tuple[Seen, ...]) -> bool:
        """Whether the content of the truth exists; without a truth, the content that the projection names."""
        if self.content is None:
            return True
        if not truths:
            return not self.contents.keys().isdisjoint(self.named)
        return self.mirror.truth.partition_of(truths[0].row) in self.contents
