"""The findings that the record of a check keeps: a bounded sample, with a fair part of each kind.

A kind is a table with a verdict. The findings of a kind that stay have small hashes of their keys,
so that two checks of the same rows keep mostly the same rows.
"""

from dataclasses import dataclass, field, replace
from heapq import heappop, heappush, heappushpop
from typing import Final

from mailmend.model.projections.findings import Finding
from mailmend.repair.decisions.left_sample import hash_of

FINDINGS_KEPT: Final = 1_000
"""The default of `--record-findings`: how many findings a recorded check keeps."""

FINDINGS_KEPT_MAX: Final = 10_000
"""The largest `--record-findings`: the sample is in memory while the check runs."""

DriftKind = tuple[str, str]
"""A projection and a verdict."""


@dataclass(slots=True)
class FindingSample:
    """At most `limit` findings.

    A kind with few findings keeps all of them. The other kinds share the rest equally.

    Attributes:
        heaps: by kind; each entry has the negated hash of the key, a number that is its own, and
            the finding. The largest hash leaves first.
    """

    limit: int = FINDINGS_KEPT
    heaps: dict[DriftKind, list[tuple[int, int, Finding]]] = field(default_factory=dict)
    size: int = 0
    added: int = 0

    def add(self, finding: Finding) -> None:
        suspect = finding.suspect
        kind = (suspect.projection, finding.verdict.value)
        kept = replace(finding, writes=(), condition=None, beside=())
        entry = (-hash_of(suspect.projection, suspect.key), self.added, kept)
        self.added += 1
        heap = self.heaps.setdefault(kind, [])
        if self.size < self.limit:
            heappush(heap, entry)
            self.size += 1
            return
        largest = max(self.heaps.values(), key=len)
        if len(heap) + 1 < len(largest):
            heappop(largest)
            heappush(heap, entry)
        elif heap:
            heappushpop(heap, entry)

    @property
    def findings(self) -> list[Finding]:
        """The findings kept, kind by kind."""
        found = []
        for kind in sorted(self.heaps):
            found += [finding for _, _, finding in sorted(self.heaps[kind], reverse=True)]
        return found
