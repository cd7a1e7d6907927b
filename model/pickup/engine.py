"""Which mail is picked up next, and what the others wait for.

Mails that every policy counts alike form a sub-queue, so limits are tested once for all of them. A sub-queue that is
refused waits on one refusing counter for each of its source addresses, and leaves the ring of those that are ready;
a counter that clears wakes one of those that wait on it, and that one's turn wakes the next. So a pick costs the same
however many wait. All counters are tested before any of them counts: none is spent in vain.
Source: seed mta-queue-subsystem 2.3, facts/mta.md 4.4 to 4.8 (rules 15, 16, 18, 22 to 24, 27, 28, 31).
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Final

from model.pickup.policy import CounterKey, CounterPolicy, PickupField, Threshold
from model.pickup.rates import LONG_AGO, DeliveryRate, RateAlgorithm, RateState

UNKNOWN: Final = 2**63
"""An instant that nobody knows: a counter clears when one of its deliveries ends."""

URGENT_IN_A_ROW: Final = 9
"""After so many urgent mails of a sub-queue one that is not urgent has its turn."""

ANY_SOURCE: Final = ("",)


@dataclass(frozen=True, slots=True)
class ActiveMail:
    """A mail for one recipient that may be delivered now.

    Attributes:
        values: of the fields that policies count by, in their normal form, without the source address.
        sources: the addresses that it may be sent from; one that is named twice is taken twice as often.
    """

    id: str
    values: Mapping[PickupField, str]
    sources: tuple[str, ...] = ANY_SOURCE
    urgent: bool = False


@dataclass(slots=True, eq=False)
class CounterEntry:
    """What is counted together under one key: its deliveries, its rates, and the sub-queues that wait on it."""

    place: tuple[int, CounterKey]
    threshold: Threshold
    rates: tuple[RateState, ...]
    delivering: int = 0
    users: int = 0
    waiting: dict["SubQueue", None] = field(default_factory=dict)
    waking: bool = False
    timer_at: int = UNKNOWN

    def clear_at(self) -> int:
        """From when it lets one more delivery begin; UNKNOWN where one must end first."""
        most = self.threshold.concurrency
        if most is not None and self.delivering >= most:
            return UNKNOWN
        return max((one.next_at() for one in self.rates), default=LONG_AGO)

    def begin(self, now: int) -> None:
        self.delivering += 1
        for one in self.rates:
            one.begin(now)

    def forgotten_at(self) -> int:
        """From when it is as good as a new one; UNKNOWN while it is used."""
        if self.users or self.delivering:
            return UNKNOWN
        return max((one.forgotten_at() for one in self.rates), default=LONG_AGO)


@dataclass(slots=True, eq=False)
class SubQueue:
    """Mails that all policies count alike.

    Attributes:
        counters: by source address, all that count a mail which is sent from there.
        waits_on: empty while it is in the ring.
        woken_by: the counter that put it into the ring, until its turn.
    """

    place: tuple[object, ...]
    counters: Mapping[str, tuple[CounterEntry, ...]]
    urgent: deque[ActiveMail] = field(default_factory=deque)
    normal: deque[ActiveMail] = field(default_factory=deque)
    waits_on: tuple[CounterEntry, ...] = ()
    woken_by: CounterEntry | None = None
    urgent_in_a_row: int = 0

    @property
    def empty(self) -> bool:
        return not self.urgent and not self.normal

    def add(self, mail: ActiveMail) -> None:
        (self.urgent if mail.urgent else self.normal).append(mail)

    def take(self) -> ActiveMail:
        if self.urgent and not (self.normal and self.urgent_in_a_row >= URGENT_IN_A_ROW):
            self.urgent_in_a_row += 1
            return self.urgent.popleft()
        self.urgent_in_a_row = 0
        return self.normal.popleft()

    def remove(self, mail: ActiveMail) -> None:
        (self.urgent if mail.urgent else self.normal).remove(mail)

    def refusing(self, now: int) -> dict[str, CounterEntry]:
        """By source address, the counter that refuses it for longest; a source that may be used is not there."""
        found = {}
        for source, counters in self.counters.items():
            last = max(counters, key=CounterEntry.clear_at, default=None)
            if last is not None and last.clear_at() > now:
                found[source] = last
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Picked:
    """A mail whose delivery begins, from which address; the counters are those that count it until its end."""

    mail: ActiveMail
    source: str
    counters: tuple[CounterEntry, ...]


class SourcePool:
    """Takes source addresses in turn, by weight, those of little weight evenly among the others."""

    def __init__(self, sources: Iterable[str]) -> None:
        self._weights = Counter(sources)
        self._credit = dict.fromkeys(self._weights, 0)

    def choose(self, usable: Sequence[str]) -> str:
        for one in usable:
            self._credit[one] += self._weights[one]
        chosen = max(usable, key=self._credit.__getitem__)
        self._credit[chosen] -= sum(self._weights[one] for one in usable)
        return chosen


class PickupEngine:
    """The mails that may be delivered now, and the counters of what is being delivered; one thread uses it."""

    def __init__(
        self, policies: Sequence[CounterPolicy], algorithm: RateAlgorithm = RateAlgorithm.TOKEN_BUCKET
    ) -> None:
        self._policies = tuple(policies)
        self._algorithm = algorithm
        self._ring = deque[SubQueue]()
        self._sub_queues: dict[tuple[object, ...], SubQueue] = {}
        self._entries: dict[tuple[int, CounterKey], CounterEntry] = {}
        self._pools: dict[tuple[str, ...], SourcePool] = {}
        self._timers: list[tuple[int, int, CounterEntry]] = []
        self._numbers = count()

    def add(self, mail: ActiveMail) -> None:
        """A mail may be delivered from now on."""
        place = self._place(mail)
        queue = self._sub_queues.get(place)
        if queue is None:
            queue = self._sub_queues[place] = self._new_queue(mail)
            self._ring.append(queue)
        queue.add(mail)

    def pick(self, now: int) -> Picked | None:
        """The next mail to deliver, counted as being delivered; None where each is refused, or none is there."""
        self._wake_due(now)
        while self._ring:
            queue = self._ring.popleft()
            waker, queue.woken_by = queue.woken_by, None
            picked = self._turn(queue, now)
            if waker is not None:
                waker.waking = False
                self._wake_next(waker, now)
            if picked is not None:
                return picked
        return None

    def end(self, picked: Picked, now: int) -> None:
        """A delivery has ended, however it did: the counters that counted its begin count it no longer."""
        for entry in picked.counters:
            entry.delivering -= 1
            self._wake_next(entry, now)
            self._forget(entry, now)

    def admit(self, mail: ActiveMail, now: int) -> Picked | None:
        """Begin the delivery of a mail that waits nowhere; None where it would have to wait."""
        queue = self._new_queue(mail)
        usable = [source for source in queue.counters if source not in queue.refusing(now)]
        picked = self._begin(queue, mail, usable, now) if usable else None
        self._release(queue, now)
        return picked

    def remove(self, mail: ActiveMail, now: int) -> None:
        """A mail that waits is not to be picked any more."""
        queue = self._sub_queues[self._place(mail)]
        queue.remove(mail)
        if not queue.empty:
            return
        for entry in queue.waits_on:
            del entry.waiting[queue]
        if not queue.waits_on:
            self._ring.remove(queue)
        waker = queue.woken_by
        self._drop(queue, now)
        if waker is not None:
            waker.waking = False
            self._wake_next(waker, now)

    def next_at(self) -> int | None:
        """When a pick may find more than now, unless a mail is added or a delivery ends before; None: never."""
        return self._timers[0][0] if self._timers else None

    def _place(self, mail: ActiveMail) -> tuple[object, ...]:
        return (mail.sources, *(self._keys(mail, source) for source in dict.fromkeys(mail.sources)))

    def _new_queue(self, mail: ActiveMail) -> SubQueue:
        place = self._place(mail)
        counters = {source: tuple(self._counted(self._keys(mail, source))) for source in dict.fromkeys(mail.sources)}
        self._pools.setdefault(mail.sources, SourcePool(mail.sources))
        return SubQueue(place, counters)

    def _keys(self, mail: ActiveMail, source: str) -> tuple[tuple[int, CounterKey], ...]:
        values = {**mail.values, PickupField.LOCAL_IP: source}
        return tuple((number, policy.key(values)) for number, policy in enumerate(self._policies))

    def _counted(self, keys: Iterable[tuple[int, CounterKey]]) -> Iterable[CounterEntry]:
        for place in keys:
            entry = self._entries.get(place) or self._new_entry(place)
            entry.users += 1
            yield entry
            if entry.threshold.stop:
                return

    def _new_entry(self, place: tuple[int, CounterKey]) -> CounterEntry:
        number, key = place
        threshold = self._policies[number].threshold(key) or Threshold()
        rates = [self._algorithm.state(threshold.rate)] if threshold.rate else []
        if threshold.connect_interval:
            rates.append(RateAlgorithm.TOKEN_BUCKET.state(DeliveryRate(1, threshold.connect_interval)))
        entry = self._entries[place] = CounterEntry(place, threshold, tuple(rates))
        return entry

    def _turn(self, queue: SubQueue, now: int) -> Picked | None:
        refusing = queue.refusing(now)
        usable = [source for source in queue.counters if source not in refusing]
        if not usable:
            queue.waits_on = tuple(dict.fromkeys(refusing.values()))
            for entry in queue.waits_on:
                entry.waiting[queue] = None
                self._set_timer(entry, entry.clear_at())
            return None
        picked = self._begin(queue, queue.take(), usable, now)
        if queue.empty:
            self._drop(queue, now)
        else:
            self._ring.append(queue)
        return picked

    def _begin(self, queue: SubQueue, mail: ActiveMail, usable: Sequence[str], now: int) -> Picked:
        source = self._pools[mail.sources].choose(usable)
        for entry in queue.counters[source]:
            entry.begin(now)
        return Picked(mail, source, queue.counters[source])

    def _wake_next(self, entry: CounterEntry, now: int) -> None:
        """Wake one of those that wait on a clear counter, unless one that it woke has not had its turn yet."""
        if not entry.waiting or entry.waking:
            return
        at = entry.clear_at()
        if at > now:
            self._set_timer(entry, at)
            return
        queue = next(iter(entry.waiting))
        for one in queue.waits_on:
            del one.waiting[queue]
        queue.waits_on, queue.woken_by, entry.waking = (), entry, True
        self._ring.append(queue)

    def _wake_due(self, now: int) -> None:
        while self._timers and self._timers[0][0] <= now:
            at, _, entry = heappop(self._timers)
            if at == entry.timer_at:
                entry.timer_at = UNKNOWN
                self._wake_next(entry, now)
                self._forget(entry, now)

    def _set_timer(self, entry: CounterEntry, at: int) -> None:
        if at < entry.timer_at:
            entry.timer_at = at
            heappush(self._timers, (at, next(self._numbers), entry))

    def _drop(self, queue: SubQueue, now: int) -> None:
        del self._sub_queues[queue.place]
        self._release(queue, now)

    def _release(self, queue: SubQueue, now: int) -> None:
        for counters in queue.counters.values():
            for entry in counters:
                entry.users -= 1
                self._forget(entry, now)

    def _forget(self, entry: CounterEntry, now: int) -> None:
        at = entry.forgotten_at()
        if at > now:
            self._set_timer(entry, at)
        elif self._entries.get(entry.place) is entry:  # else it was forgotten before, and another has its place
            del self._entries[entry.place]
