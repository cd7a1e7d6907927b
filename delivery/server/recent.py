"""How a server's attempts of the last minute ended, and the last reply of each sub-queue. Pure."""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Self

from mailmend.delivery.mail.entries import EndedEntry, EntryEnd
from mailmend.delivery.policy.policy import PickupField
from mailmend.delivery.policy.rates import SECOND
from mailmend.model.texts import noted

COUNTED_BY: Final = (
    PickupField.RECIPIENT_DOMAIN,
    PickupField.TENANT_ID,
    PickupField.LOCAL_IP,
    PickupField.TRANSPORT_ID,
    PickupField.JOB_ID,
    PickupField.GROUPING,
)
"""The fields of a sub-queue as people look at it."""

_DOMAIN: Final = COUNTED_BY.index(PickupField.RECIPIENT_DOMAIN)

COUNTED_FOR: Final = timedelta(minutes=1)
"""How long an end of an attempt is counted."""

SUB_QUEUES_MAX: Final = 2_000
"""The largest number of sub-queues that are remembered: the ones that were tried last."""

_SLOT: Final = 5 * SECOND
_SLOTS: Final = int(COUNTED_FOR.total_seconds()) * SECOND // _SLOT
_REPLY_BYTES_MAX: Final = 300

SubQueueKey = tuple[str, ...]
"""The values of `COUNTED_BY`, in that order."""


def key_of(values: Mapping[PickupField, str], source: str = "") -> SubQueueKey:
    """The key of a mail with these values; `source` is our address, where it is known."""
    known = {**values, PickupField.LOCAL_IP: source}
    return tuple(known.get(named, "") for named in COUNTED_BY)


@dataclass(frozen=True, slots=True)
class LastReply:
    """How the last attempt of a sub-queue ended.

    Attributes:
        status: an enhanced status code, or "".
        text: the reply of the server, else our own sentence; one line of at most 300 bytes.
        again_at: when its mail is tried again; None: not again.
    """

    at: datetime
    end: EntryEnd
    status: str
    text: str
    host: str
    again_at: datetime | None = None


class EndCounts(NamedTuple):
    """How many attempts ended in each way that the other server decides."""

    delivered: int = 0
    refused: int = 0
    failed: int = 0

    def plus(self, others: Self) -> "EndCounts":
        """The sums of both."""
        return EndCounts(*map(sum, zip(self, others, strict=True)))


_PLACES: Final = {EntryEnd.DELIVERED: 0, EntryEnd.REFUSED: 1, EntryEnd.FAILED: 2}
"""The place of an end among `EndCounts`."""


@dataclass(slots=True)
class RecentEnds:
    """The ends of one sub-queue's attempts.

    Attributes:
        last: None: no attempt had a reply.
        slots: counts by the number of their stretch of time.
    """

    last: LastReply | None = None
    slots: dict[int, list[int]] = field(default_factory=dict)

    def add(self, end: EntryEnd, slot: int) -> None:
        """Count an end, and forget the ones that are too old."""
        place = _PLACES.get(end)
        if place is None:
            return
        counts = self.slots.get(slot)
        if counts is None:
            for number in [number for number in self.slots if number <= slot - _SLOTS]:
                del self.slots[number]
            counts = self.slots[slot] = [0] * len(_PLACES)
        counts[place] += 1

    def counts(self, slot: int) -> EndCounts:
        """How the attempts of the last minute ended."""
        recent = [counts for number, counts in self.slots.items() if number > slot - _SLOTS]
        if not recent:
            return EndCounts()
        return EndCounts(*map(sum, zip(*recent, strict=True)))


@dataclass(slots=True)
class RecentAttempts:
    """The ends of a server's attempts; it remembers `SUB_QUEUES_MAX` sub-queues."""

    _ends: OrderedDict[SubQueueKey, RecentEnds] = field(default_factory=OrderedDict)

    def note(
        self,
        key: SubQueueKey,
        ended: EndedEntry,
        again_at: datetime | None,
        nanos: int,
    ) -> None:
        """Count the end of an attempt; `nanos` is of the clock that never goes back."""
        recent = self._ends.get(key)
        if recent is None:
            recent = self._ends[key] = RecentEnds()
        self._ends.move_to_end(key)
        recent.add(ended.end, nanos // _SLOT)
        text = noted(ended.entry.reply or ended.why, _REPLY_BYTES_MAX)
        if text:
            host = ended.entry.host
            recent.last = LastReply(ended.at, ended.end, ended.status, text, host, again_at)
        if len(self._ends) > SUB_QUEUES_MAX:
            self._ends.popitem(last=False)

    def counted(self, nanos: int) -> Iterator[tuple[SubQueueKey, EndCounts, LastReply | None]]:
        """Of each sub-queue: how its attempts of the last minute ended, and its last reply."""
        slot = nanos // _SLOT
        for key, recent in self._ends.items():
            yield key, recent.counts(slot), recent.last

    def most_refused(self, nanos: int, at_most: int) -> Iterator[tuple[str, int, LastReply | None]]:
        """The domains with most refusals of the last minute: number and last refusal's reply."""
        refused = Counter[str]()
        replies = dict[str, LastReply]()
        for key, counts, last in self.counted(nanos):
            domain = key[_DOMAIN]
            if not domain or not counts.refused:
                continue
            refused[domain] += counts.refused
            if last is None or last.end is not EntryEnd.REFUSED:
                continue
            known = replies.get(domain)
            if known is None or known.at <= last.at:
                replies[domain] = last
        for domain, count in refused.most_common(at_most):
            yield domain, count, replies.get(domain)
