"""Sub-queues of mails that are counted alike, and the counters that they wait on.

Source: docs/design.md, "Pickup" (6).
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from mailmend.delivery.policy.policy import CounterKey, PickupField, Threshold
from mailmend.delivery.policy.rates import LONG_AGO, DeliveryRate, RateAlgorithm, RateState
from mailmend.delivery.policy.remembered import CounterMemory
from mailmend.delivery.policy.turns import TenantTurns

UNKNOWN: Final = 2**63
"""An unknown instant: a counter clears when one of its deliveries ends."""

URGENT_IN_A_ROW: Final = 9
"""The number of urgent mails of a sub-queue after which one that is not urgent has its turn."""

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
    """What is counted together under one key: its deliveries, its rates, and the sub-queues that wait on it.

    Attributes:
        place: the number of its policy, and its key; of a suspension -1, and its id.
        closed_until: of a suspension, its end.
        waiting: by tenant, None while none ever did; a tenant's turn here goes on until the sub-queue woken by it has
            had its own.
        waking: it woke a sub-queue whose tenant has had no turn since.
        shared: the servers of a queue share its limits.
        elsewhere: this server has no part of them, others have.
        memory: how much of its rate is kept over a restart; None: it is not.
        changed_at: when a delivery began last, or its limits changed: one that refuses has refused
            since then.
    """

    place: tuple[int, CounterKey]
    threshold: Threshold = field(default_factory=Threshold)
    rates: tuple[RateState, ...] = ()
    closed_until: int = LONG_AGO
    shared: bool = False
    elsewhere: bool = False
    memory: CounterMemory | None = None
    delivering: int = 0
    users: int = 0
    waiting: TenantTurns["SubQueue"] | None = None
    waking: bool = False
    timer_at: int = UNKNOWN
    changed_at: int = LONG_AGO

    def clear_at(self) -> int:
        """From when it lets one more delivery begin; UNKNOWN where one must end first."""
        most = self.threshold.concurrency
        if most is not None and self.delivering >= most:
            return UNKNOWN
        if self.memory is not None and not self.memory.ahead:
            return UNKNOWN
        return max((rate.next_at() for rate in self.rates), default=self.closed_until)

    def wait(self, queue: "SubQueue") -> None:
        if self.waiting is None:
            self.waiting = TenantTurns()
        self.waiting.add(queue.tenant, queue)

    def leave(self, queue: "SubQueue") -> None:
        if self.waiting is not None:
            self.waiting.discard(queue.tenant, queue)

    def limit(self, threshold: Threshold, algorithm: RateAlgorithm, now: int, *, gain_spent: bool = False) -> None:
        """Set its limits; what has begun under earlier ones counts against them.

        With `gain_spent` what a rate allows more than before counts as begun now.
        """
        known = iter(self.rates)
        rate = None
        if self.threshold.rate:
            rate = next(known)
        gap = next(known, None)
        states = (
            _continued(rate, threshold.rate, algorithm, now, gain_spent=gain_spent),
            _continued(gap, threshold.connects, RateAlgorithm.TOKEN_BUCKET, now, gain_spent=gain_spent),
        )
        if threshold != self.threshold:
            self.changed_at = now
        self.threshold = threshold
        self.rates = tuple(state for state in states if state is not None)

    def take_up(self, state: RateState, algorithm: RateAlgorithm, now: int) -> None:
        """Have this state of its rate; what the rate allows more than the state's own counts as begun then."""
        rate = _continued(state, self.threshold.rate, algorithm, now, gain_spent=True)
        self.rates = (rate or state, *self.rates[1:])

    def begin(self, now: int) -> None:
        self.delivering += 1
        self.changed_at = now
        if self.memory is not None:
            self.memory.begin()
        for rate in self.rates:
            rate.begin(now)

    def forgotten_at(self) -> int:
        """From when it is as good as a new one; UNKNOWN while it is used."""
        if self.users or self.delivering:
            return UNKNOWN
        return max((rate.forgotten_at() for rate in self.rates), default=LONG_AGO)


def _continued(
    state: RateState | None, rate: DeliveryRate | None, algorithm: RateAlgorithm, now: int, *, gain_spent: bool
) -> RateState | None:
    if rate is None:
        return None
    gained = rate.count
    if state is None:
        state = algorithm.state(rate)
    else:
        gained -= state.rate.count
        state.change(rate, now)
    if gain_spent and gained > 0:
        state.spend(gained, now)
    return state


@dataclass(slots=True, eq=False)
class SubQueue:
    """Mails of one tenant that all policies count alike, and that the same suspensions hold back.

    Attributes:
        tenant: "" for mails without one.
        counters: by source address, all that count a mail which is sent from there, and its suspensions.
        waits_on: empty while it is in the ring.
        woken_by: the counter that put it into the ring, until its turn.
    """

    place: tuple[object, ...]
    tenant: str
    counters: Mapping[str, tuple[CounterEntry, ...]]
    urgent: deque[ActiveMail] = field(default_factory=deque)
    normal: deque[ActiveMail] = field(default_factory=deque)
    waits_on: tuple[CounterEntry, ...] = ()
    woken_by: CounterEntry | None = None
    urgent_in_a_row: int = 0

    @property
    def empty(self) -> bool:
        return not self.urgent and not self.normal

    @property
    def all_counters(self) -> Iterator[CounterEntry]:
        return chain.from_iterable(self.counters.values())

    def add(self, mail: ActiveMail) -> None:
        self._mails_like(mail).append(mail)

    def take(self) -> ActiveMail:
        if self.urgent and not (self.normal and self.urgent_in_a_row >= URGENT_IN_A_ROW):
            self.urgent_in_a_row += 1
            return self.urgent.popleft()
        self.urgent_in_a_row = 0
        return self.normal.popleft()

    def remove(self, mail: ActiveMail) -> None:
        self._mails_like(mail).remove(mail)

    def _mails_like(self, mail: ActiveMail) -> deque[ActiveMail]:
        if mail.urgent:
            return self.urgent
        return self.normal

    def ahead_of(self, mail: ActiveMail) -> int:
        """How many mails come before one that is here, if no urgent one comes meanwhile."""
        if mail.urgent:
            return self.urgent.index(mail)
        return len(self.urgent) + self.normal.index(mail)

    def refusing(self, now: int) -> dict[str, CounterEntry]:
        """By source address, the counter that refuses it for longest; a source that may be used is not there."""
        found = {}
        for source, counters in self.counters.items():
            last = max(counters, key=CounterEntry.clear_at, default=None)
            if last is not None and last.clear_at() > now:
                found[source] = last
        return found


@dataclass(frozen=True, slots=True)
class PickupFigures:
    """What an engine has done since it began, and its present state.

    Attributes:
        picks: deliveries begun for mails that waited.
        refusals: turns of sub-queues that found all of their source addresses refused.
        wakes: sub-queues that waited, and were made ready as a counter cleared.
        ready: sub-queues that may have their turn.
        blocked: sub-queues that wait on counters.
        clear: counters that would let one more delivery begin, suspensions left out.
        refusing: counters that would not.
    """

    picks: int
    refusals: int
    wakes: int
    ready: int
    blocked: int
    clear: int
    refusing: int
