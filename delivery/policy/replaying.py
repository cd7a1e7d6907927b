"""Recorded attempts again, under other policies: what would have begun when, and which limits would have held it back.

Where no attempt of one tenant ever waits for another tenant's, a record falls apart into groups that may be replayed
one by one, on as many machines as there are.

It is the engine of the servers that picks, with a clock that jumps from event to event. Arrivals and durations are as
they were recorded; a temporary refusal under other policies makes no further attempt.

Source: docs/design.md, "Pickup" (14).
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from heapq import heappop, heappush
from typing import Final

from mailmend.delivery.policy.engine import Picked, PickupEngine
from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.policy.policy import (
    CounterKey,
    CounterPolicy,
    FieldGroup,
    PickupField,
    Threshold,
    recorded_values,
)
from mailmend.delivery.policy.rates import LONG_AGO
from mailmend.delivery.policy.sub_queues import (
    ANY_SOURCE,
    UNKNOWN,
    ActiveMail,
    CounterEntry,
    SubQueue,
)
from mailmend.model.errors import WrongUse

MILLI: Final = 1_000_000
"""Nanoseconds."""

_TEXTS_KEPT: Final = 65_536


@dataclass(frozen=True, slots=True)
class RecordedAttempt:
    """One attempt of a record; times are in milliseconds since 1970, as the table has them.

    Attributes:
        mail: as the policies count it; its id is unique in the record.
        ready_at: from when it might have been picked.
        ended_at: None: unknown.
    """

    mail: ActiveMail
    ready_at: int
    started_at: int
    ended_at: int | None = None

    @property
    def order(self) -> tuple[int, int, str]:
        """The order of a record, for each reader."""
        return self.ready_at, self.started_at, self.mail.id

    @property
    def lasted(self) -> int | None:
        if self.ended_at is None:
            return None
        return max(0, self.ended_at - self.started_at)


@lru_cache(_TEXTS_KEPT)
def values_of(text: str | None) -> Mapping[PickupField, str]:
    """The values of a mail in a row's column `fields`, without the address that it was sent from."""
    found: Mapping[str, str] = json.loads(text or "{}")
    values = recorded_values(found)
    values.pop(PickupField.LOCAL_IP, None)
    return values


@lru_cache(_TEXTS_KEPT)
def sources_of(text: str | None) -> tuple[str, ...]:
    """The addresses in a row's column `sources`; none is any."""
    return tuple(json.loads(text or "[]")) or ANY_SOURCE


def groups_of(said: PickupPolicies, *, several_sources: bool) -> CounterPolicy:
    """What of a record is to be replayed together: all attempts of one key of this policy; without fields the whole.

    Tenants take turns wherever any of their mails wait, and one tenant's turn anywhere lets others be woken. So all
    attempts of a tenant stay together, and tenants are apart where every policy tells them apart. Mails that may be
    sent from several addresses influence each other by whose turn it is, too, where anything tells addresses apart.

    Args:
        said: the policies.
        several_sources: whether any attempt of the record might be made from more than one address.
    """
    tenant = PickupField.TENANT_ID
    kinds = set[tuple[FieldGroup, ...]]()
    for policy in said.policies:
        groups = policy.groups.get(tenant)
        if groups:
            kinds.add(groups)
    is_shared = all(tenant in policy.fields for policy in said.policies) and len(kinds) <= 1
    if not is_shared or (several_sources and tells_sources(said)):
        return CounterPolicy(groups={})
    if not kinds:
        return CounterPolicy((tenant,), {})
    return CounterPolicy((tenant,), {tenant: kinds.pop()})


def tells_sources(said: PickupPolicies) -> bool:
    """Whether any policy or suspension tells source addresses apart."""
    named = [*(policy.fields for policy in said.policies), *(suspension.patterns for suspension in said.suspensions)]
    return any(PickupField.LOCAL_IP in fields for fields in named)


def with_concurrency(said: PickupPolicies, most: int | None) -> PickupPolicies:
    """The same policies behind one more, the first, that limits the number of simultaneous deliveries."""
    if most is None:
        return said
    all_together = CounterPolicy(groups={}, default=Threshold(concurrency=most))
    return replace(said, policies=(all_together, *said.policies))


WAITING_MAX: Final = 1_000_000
"""How many attempts may wait at once in one replay; each takes about a kilobyte."""


class LimitKind(Enum):
    """What of a counter refused a mail; the value is its name in a policy file."""

    CONCURRENCY = "concurrency"
    RATE = "rate"
    CONNECT_INTERVAL = "connectinterval"


@dataclass(frozen=True, slots=True)
class BegunAttempt:
    """An attempt that begins in a replay.

    Attributes:
        at: in nanoseconds since 1970.
        ends_at: the same for the end.
        source: the address that it is made from.
    """

    recorded: RecordedAttempt
    at: int
    ends_at: int
    source: str


@dataclass(slots=True)
class CounterUse:
    """What became of the limits of one counter, or of one suspension.

    Attributes:
        place: the number of its policy, and its key; of a suspension -1, and its id.
        refusals: how often a sub-queue's turn was refused, by the limit that was reached then; of a suspension none.
        held: how many attempts waited for it.
        never: how many of them still do when nothing happens any more.
        refused_for: for how long some waited for it that began then, in nanoseconds; of a suspension 0.
        most: deliveries at once.
    """

    place: tuple[int, CounterKey]
    refusals: Counter[LimitKind] = field(default_factory=Counter)
    held: int = 0
    never: int = 0
    refused_for: int = 0
    most: int = 0
    _waiting: int = field(default=0, compare=False)
    _since: int = field(default=0, compare=False)

    def wait(self, now: int) -> None:
        if not self._waiting:
            self._since = now
        self._waiting += 1

    def go_on(self, now: int) -> None:
        self._waiting -= 1
        if not self._waiting and self.place[0] >= 0:
            self.refused_for += now - self._since

    def add(self, other: "CounterUse") -> None:
        """Count what became of the same one elsewhere too."""
        self.refusals.update(other.refusals)
        self.held += other.held
        self.never += other.never
        self.refused_for += other.refused_for
        self.most = max(self.most, other.most)


@dataclass(slots=True)
class _Waiting:
    """The counters that a sub-queue waits on, since when; and until when it waited on each of all others."""

    on: tuple[CounterUse, ...] = ()
    since: int = 0
    until: dict[tuple[int, CounterKey], int] = field(default_factory=dict)


@dataclass(slots=True)
class AttemptReplay:
    """One replay, to be used once.

    Attributes:
        said: the policies; suspensions hold from the beginning to the end.
        lasting: the duration, in milliseconds, of attempts that have none.
        uses: of each counter that has limits, by its place.
        left: attempts that never begin.
    """

    said: PickupPolicies
    lasting: int = 0
    waiting_max: int = WAITING_MAX
    uses: dict[tuple[int, CounterKey], CounterUse] = field(default_factory=dict)
    left: list[RecordedAttempt] = field(default_factory=list)
    _ready: dict[str, RecordedAttempt] = field(default_factory=dict)
    _waiting: dict[SubQueue, _Waiting] = field(default_factory=dict)

    def begun(self, attempts: Iterable[RecordedAttempt]) -> Iterator[BegunAttempt]:
        """What begins, in its order; the attempts come sorted by their `order`, and are read as they are needed.

        Raises:
            WrongUse: more wait at once than `waiting_max`.
        """
        engine = PickupEngine(self.said.policies, self.said.algorithm, seen=self._seen)
        engine.weigh(self.said.weights)
        for suspension in self.said.suspensions:
            engine.suspend(suspension, LONG_AGO)
        coming = iter(attempts)
        following = next(coming, None)
        ends = list[tuple[int, int, Picked]]()
        number = 0
        while (now := _soonest(following, ends, engine)) < UNKNOWN:
            while ends and ends[0][0] <= now:
                engine.end(heappop(ends)[2], now)
            while following and following.ready_at * MILLI <= now:
                self._arrive(engine, following)
                following = next(coming, None)
            while picked := engine.pick(now):
                recorded = self._ready.pop(picked.mail.id)
                lasts = recorded.lasted
                if lasts is None:
                    lasts = self.lasting
                begun = BegunAttempt(recorded, now, now + lasts * MILLI, picked.source)
                number += 1
                heappush(ends, (begun.ends_at, number, picked))
                yield begun
        self._close()

    def _arrive(self, engine: PickupEngine, attempt: RecordedAttempt) -> None:
        if len(self._ready) >= self.waiting_max:
            raise WrongUse(
                f"more than {self.waiting_max:,} attempts would wait at once for each other",
                mend="Replay less of the record, with --since and --until.",
            )
        self._ready[attempt.mail.id] = attempt
        engine.add(attempt.mail)

    def _seen(self, queue: SubQueue, picked: Picked | None, now: int) -> None:
        waiting = self._waiting.get(queue)
        if waiting is None:
            waiting = self._waiting[queue] = _Waiting()
        self._went_on(waiting, now)
        if picked is None:
            waiting.on = tuple(self._refused(wait, now) for wait in queue.waits_on)
            waiting.since = now
            return
        self._count_held(waiting, self._ready[picked.mail.id])
        for entry in queue.counters[picked.source]:
            if entry.rates or entry.threshold.concurrency is not None:
                use = self._use(entry)
                use.most = max(use.most, entry.delivering)
        if queue.empty:
            del self._waiting[queue]

    def _went_on(self, waiting: _Waiting, now: int) -> None:
        for use in waiting.on:
            use.go_on(now)
            if now > waiting.since:
                waiting.until[use.place] = now
        waiting.on = ()

    def _refused(self, entry: CounterEntry, now: int) -> CounterUse:
        use = self._use(entry)
        if entry.place[0] >= 0:
            use.refusals[_refusing(entry)] += 1
        use.wait(now)
        return use

    def _count_held(self, waiting: _Waiting, recorded: RecordedAttempt) -> None:
        for place, until in waiting.until.items():
            if until > recorded.ready_at * MILLI:
                self.uses[place].held += 1

    def _use(self, entry: CounterEntry) -> CounterUse:
        found = self.uses.get(entry.place)
        if found is None:
            found = self.uses[entry.place] = CounterUse(entry.place)
        return found

    def _close(self) -> None:
        """What waits still when nothing happens any more waits for ever."""
        for queue, waiting in self._waiting.items():
            mails = (*queue.urgent, *queue.normal)
            for use in waiting.on:
                use.never += len(mails)
                waiting.until[use.place] = UNKNOWN
            for mail in mails:
                self._count_held(waiting, self._ready[mail.id])
        self._waiting.clear()
        self.left = list(self._ready.values())


def _soonest(following: RecordedAttempt | None, ends: list[tuple[int, int, Picked]], engine: PickupEngine) -> int:
    """When the next thing happens; UNKNOWN: nothing does."""
    soonest = UNKNOWN
    if following:
        soonest = following.ready_at * MILLI
    if ends:
        soonest = min(soonest, ends[0][0])
    timer = engine.next_at()
    if timer is not None:
        soonest = min(soonest, timer)
    return soonest


def _refusing(entry: CounterEntry) -> LimitKind:
    """Which limit of a counter that refuses is reached: its count before its rates, and of these the later one."""
    most = entry.threshold.concurrency
    if most is not None and entry.delivering >= most:
        return LimitKind.CONCURRENCY
    first_is_longest = entry.rates[0].next_at() >= entry.clear_at()
    if entry.threshold.rate and first_is_longest:
        return LimitKind.RATE
    return LimitKind.CONNECT_INTERVAL


def most_refusing(uses: Mapping[tuple[int, CounterKey], CounterUse], top: int) -> list[CounterUse]:
    """Those that held back most attempts, then those that counted most deliveries at once; suspensions all of them."""
    ordered = sorted(uses.values(), key=lambda one: (-one.held, -one.refused_for, -one.most, one.place))
    suspensions = list[CounterUse]()
    counters = list[CounterUse]()
    for use in ordered:
        if use.place[0] < 0:
            suspensions.append(use)
        else:
            counters.append(use)
    return suspensions + counters[:top]
