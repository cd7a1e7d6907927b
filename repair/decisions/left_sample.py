"""How long findings have been left: every run keeps a sample of what it left, for the next one to know it again.

Of each verdict the sample holds the smallest hashes of keys: the same rows in every run, at a size that is bounded.
Where no more are left than it holds, it is all of them, and the oldest in it is the oldest that is left.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import heappush, heapreplace
from typing import Final

LEFT_SAMPLE: Final = "left_sample"
"""Its name among a run's sums, in the ledger and in the result; `--json` leaves it out."""

SAMPLED: Final = 200
"""Findings of each verdict that are known again."""

LeftKeys = Mapping[str, Iterable[str]]
"""By verdict, the hashes of keys (16 hexadecimal digits) of findings that one run left."""

FirstSeen = Mapping[str, Mapping[str, float]]
"""By verdict and hash, the begin (seconds since 1970) of the first of the runs that have left the finding until now."""

_ANY: Final = ""
"""Represents all findings of a verdict, where a run gives the number that it left and not the rows."""


@dataclass(slots=True)
class LeftSample:
    """Of each verdict, the smallest hashes of what was added; equal for the same findings in any order."""

    heaps: dict[str, list[int]] = field(default_factory=dict)  # of negated hashes: the largest hash goes first

    def add(self, verdict: str, projection: str, key: object) -> None:
        self._keep(verdict, -hash_of(projection, key))

    def merged(self, other: "LeftSample") -> "LeftSample":
        """The sample of all findings of both."""
        found = LeftSample({verdict: list(heap) for verdict, heap in self.heaps.items()})
        for verdict, heap in other.heaps.items():
            for number in heap:
                found._keep(verdict, number)
        return found

    @property
    def keys(self) -> dict[str, list[str]]:
        keys = {}
        for verdict, heap in self.heaps.items():
            keys[verdict] = [f"{-number:016x}" for number in sorted(heap, reverse=True)]
        return keys

    def _keep(self, verdict: str, negated: int) -> None:
        heap = self.heaps.setdefault(verdict, [])
        if len(heap) < SAMPLED:
            if negated not in heap:
                heappush(heap, negated)
        elif negated > heap[0] and negated not in heap:
            heapreplace(heap, negated)


def hash_of(projection: str, key: object) -> int:
    """A hash of 64 bits by which runs know a finding again."""
    digest = blake2b(f"{projection} {key!r}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def first_seen(left: Iterable[str], keys: LeftKeys, before: FirstSeen, began: float) -> FirstSeen:
    """Since when each finding has been left.

    Args:
        left: the verdicts of which this run left any.
        keys: its sample; a verdict that it does not hold counts as one finding.
        before: what was known after the run before it.
        began: when this run began, in seconds since 1970.
    """
    seen = {}
    for verdict in left:
        known = before.get(verdict, {})
        seen[verdict] = {key: known.get(key, began) for key in keys.get(verdict) or (_ANY,)}
    return seen


def oldest(seen: FirstSeen) -> dict[str, float]:
    """By verdict, since when the oldest of its findings has been left."""
    return {verdict: min(times.values()) for verdict, times in seen.items()}
