"""A filter: a row made of a key alone for each truth row that satisfies a condition."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from mailmend.model.operations import Conditional, Put, Read, Remove, Seen, Write
from mailmend.model.projections.projection import Condition, MovedVerdict, Projection
from mailmend.model.projections.verdicts import Verdict, table_of
from mailmend.model.table import Key, Row

if TYPE_CHECKING:
    from mailmend.model.projections.family import Family
    from mailmend.model.projections.findings import Finding, Look, RepairPolicy


class FilterSymptoms(NamedTuple):
    """What a scan sees at one key of a filter. The order of the fields is the order of the bits, lowest first."""

    in_truth: bool
    clash: bool
    in_projection: bool
    wanted: bool  # the truth row satisfies the filter's condition
    has_content: bool
    whole: bool


def _judge(seen: FilterSymptoms) -> Verdict:
    """The mirror reports clashing, torn or empty truths: their filters are left as they are."""
    if not seen.in_truth:
        wanted = False
    elif seen.clash or not seen.has_content or not seen.whole:
        wanted = seen.in_projection
    else:
        wanted = seen.wanted
    if wanted == seen.in_projection:
        return Verdict.AGREE
    return Verdict.PROJECT if wanted else Verdict.WITHDRAW


@dataclass(frozen=True, slots=True)
class Filter(Projection):
    """A row made of a key alone for each truth row that satisfies a condition."""

    when: Condition

    verdicts: ClassVar = table_of(FilterSymptoms, _judge)
    compared: ClassVar[None] = None
    """A row is its key: nothing in it is compared."""

    @property
    def truth_columns(self) -> frozenset[str]:
        return frozenset((self.when.column, *(column for _, column in self.key)))

    def near_reads(self, family: "Family", key: Key) -> list[Read]:
        """Reads of the filter's row, and of the mirror's row at the same place, which leads to the truth."""
        mirror = family.mirror
        truth = {column: part for (_, column), part in zip(self.key, key, strict=True)}
        return [Read(self.table, key, times=True), Read(mirror.table, mirror.key_of(truth), times=True)]

    def looked_at(self, look: "Look", rows: Sequence[Seen], *, accept_torn: bool) -> "Look":
        """The look with its truth rows, and with the expiry of the filter's own row."""
        seen = Projection.looked_at(self, look, rows, accept_torn=accept_torn)
        if seen.projected is None:
            return seen
        beside = seen.truths[0] if seen.truths else seen.mirrored
        return replace(seen, projected=self.lasting_with(seen.projected, beside))

    def lasting_with(self, seen: Seen, beside: Seen | None) -> Seen:
        """The filter's row, which shows no TTL itself, with the expiry of the truth's row or of the mirror's."""
        ends_at = beside.ends_at if beside else None
        if ends_at is None:
            return seen
        return replace(seen, expires_at=dict.fromkeys((column.name for column in self.table.key), ends_at))

    def verdict(self, look: "Look") -> Verdict:
        symptoms = FilterSymptoms(
            in_truth=bool(look.truths),
            clash=len(look.truths) > 1,
            in_projection=look.projected is not None,
            wanted=bool(look.truths) and self.when.holds(look.truths[0].row),
            has_content=look.has_content,
            whole=look.whole,
        )
        return self.verdicts[symptoms]

    def write_for(self, before: Row | None, after: Row | None, stamp: int) -> Write | None:
        was = before is not None and self.when.holds(before)
        wanted = after is not None and self.when.holds(after)
        if wanted and not was and after is not None:
            return Put(self.table, self.table.key_row(self.key_of(after)), at=stamp)
        if was and not wanted and before is not None:
            return Remove(self.table, self.key_of(before), at=stamp)
        return None

    def truth_rows(self, finding: "Finding") -> tuple[Seen, ...]:
        """The truth rows, reduced to the place and the column that decides whether a filter row must exist."""
        asked = self.when.column
        return tuple(
            Seen(
                {own: seen.row.get(theirs) for own, theirs in self.key} | {asked: seen.row.get(asked)},
                {name: at for name, at in seen.written_at.items() if name == asked},
            )
            for seen in finding.truths
        )

    def differing(self, truth: Row, other: Row) -> frozenset[str]:
        """The column of the condition: a filter row claims that it holds."""
        asked = self.when.column
        demanded = asked not in other or self.when.holds(other)
        return frozenset() if self.when.holds(truth) is demanded else frozenset({asked})

    def fix(self, finding: "Finding", look: "Look", policy: "RepairPolicy", at: int) -> "Finding | None":  # noqa: ARG002 - a mirror asks both
        return self.key_row(finding, at, self._ends_at(look.truths[0]) if look.truths else None)

    def _ends_at(self, truth: Seen) -> int | None:
        """When the filter's row is no longer demanded, in seconds since 1970: with the truth, or with its condition."""
        asked = self.when.column
        decides = truth.expires_at.get(asked) if truth.row.get(asked) else None
        instants = [instant for instant in (truth.ends_at, decides) if instant is not None]
        return min(instants, default=None)

    def truth_back(self, image: "Finding", look: "Look", origin: "Finding | None") -> Conditional | MovedVerdict | None:
        """Restoring a row that was removed with a quarantined truth depends on that truth's own before-image."""
        if image.verdict is Verdict.LOST_CONTENT:
            return None
        return Projection.truth_back(self, image, look, origin)
