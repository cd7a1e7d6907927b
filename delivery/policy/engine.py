"""Which mail is picked up next, and what the others wait for.

Mails that every policy counts alike form a sub-queue, so limits are tested once for all of them. A
sub-queue that is refused waits on one refusing counter for each of its source addresses, and leaves
the ring of ready sub-queues; a counter that clears wakes one sub-queue that waits on it, and the
next turn of its tenant wakes the next. So a pick costs the same however many wait. All counters are
tested before any of them counts: none is spent in vain.

Tenants take turns by weight, among those that are ready as before each counter, and the sub-queues
of a tenant take turns among themselves: neither ten thousand sub-queues nor their mails give a
tenant more than one. A refused turn does not count as a turn. Where a tenant has many turns to take
before the turn of the sub-queue that a counter woke, the counter wakes a sub-queue of another
tenant meanwhile. Mails of two tenants are never in one sub-queue, even where no policy tells them
apart: a tenant has at most as many sub-queues more as it has mails.

Urgent mails go first within their sub-queue only. What a server holds is bounded, and the broker hands urgent mails
over apart from others, so that a round of a tenant's sub-queues is short; and an order between them would have to hold
before each counter too.
Source: docs/design.md, "Pickup" (3 to 7).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from mailmend.delivery.policy.counters import PickupCounters, PolicyChanges
from mailmend.delivery.policy.orders import Suspension
from mailmend.delivery.policy.policy import CounterPolicy, PickupField
from mailmend.delivery.policy.rates import RateAlgorithm
from mailmend.delivery.policy.remembered import CounterMemory, CounterName, SavedRate
from mailmend.delivery.policy.shares import LimitShare, ServerShare, ShareChanges
from mailmend.delivery.policy.sub_queues import UNKNOWN, ActiveMail, CounterEntry, PickupFigures, SubQueue
from mailmend.delivery.policy.turns import NO_WEIGHTS, WHOLE_TURN, SourcePool, TenantTurns


@dataclass(frozen=True, slots=True, eq=False)
class Picked:
    """A mail whose delivery begins, from which address."""

    mail: ActiveMail
    source: str


TurnSeen = Callable[[SubQueue, Picked | None, int], None]
"""Called after each turn of a sub-queue, with what was picked; None: it was refused, and waits. Then the time."""


class PickupEngine:
    """The mails that may be delivered now, and the counters of what is being delivered; one thread uses it.

    Args:
        policies: in the order of their file.
        algorithm: of the rates.
        seen: is told of each turn; None: no observer.
    """

    def __init__(
        self,
        policies: Sequence[CounterPolicy],
        algorithm: RateAlgorithm = RateAlgorithm.TOKEN_BUCKET,
        seen: TurnSeen | None = None,
        share: ServerShare | None = None,
    ) -> None:
        self._counters = PickupCounters(policies, algorithm, share)
        self._share = share
        self._seen = seen
        self._ready = TenantTurns[SubQueue]()
        self._weights: Mapping[str, int] = NO_WEIGHTS
        self._waking: dict[str, list[CounterEntry]] = {}
        self._picks = self._refusals = self._wakes = 0
        self._sub_queues: dict[tuple[object, ...], SubQueue] = {}
        self._delivering: dict[Picked, tuple[CounterEntry, ...]] = {}
        self._pools: dict[tuple[str, ...], SourcePool] = {}
        self._timers: list[tuple[int, int, CounterEntry]] = []
        self._numbers = count()

    @property
    def policies(self) -> tuple[CounterPolicy, ...]:
        return self._counters.policies

    @property
    def algorithm(self) -> RateAlgorithm:
        return self._counters.algorithm

    def add(self, mail: ActiveMail) -> None:
        """A mail may be delivered from now on."""
        place = self._place(mail)
        queue = self._sub_queues.get(place)
        if queue is None:
            queue = self._sub_queues[place] = self._new_queue(mail)
            self._ready.add(queue.tenant, queue)
        queue.add(mail)

    def pick(self, now: int) -> Picked | None:
        """The next mail to deliver, counted as being delivered; None where each is refused, or none is there."""
        self._wake_due(now)
        if self._share:
            self._share.check(now)
        while (turn := self._ready.begin()) is not None:
            tenant = turn.tenant
            picked = None
            while turn.things and picked is None:
                queue, _ = turn.things.popitem(last=False)
                picked = self._turn(queue, now)
                if self._seen is not None:
                    self._seen(queue, picked, now)
                if queue.woken_by or tenant in self._waking:
                    self._hand_on(queue, now)
            if picked is not None:
                self._ready.end(turn, self._span(tenant))
                self._picks += 1
                return picked
            self._ready.end(turn)
        return None

    def end(self, picked: Picked, now: int) -> None:
        """A delivery has ended, however it did: the counters that counted its begin count it no longer."""
        for entry in self._delivering.pop(picked):
            entry.delivering -= 1
            self._wake_next(entry, now)
            self._forget(entry, now)

    def admit(self, mail: ActiveMail, now: int) -> Picked | None:
        """Begin the delivery of a mail that waits nowhere; None where it would have to wait."""
        if self._share:
            self._share.check(now)
        queue = self._new_queue(mail)
        refusing = queue.refusing(now)
        usable = [source for source in queue.counters if source not in refusing]
        picked = None
        if usable:
            picked = self._begin(queue, mail, usable, now)
        self._release(queue, now)
        return picked

    def remove(self, mail: ActiveMail, now: int) -> None:
        """A mail that waits is not to be picked any more."""
        queue = self._sub_queues[self._place(mail)]
        queue.remove(mail)
        if not queue.empty:
            return
        for entry in queue.waits_on:
            entry.leave(queue)
        if not queue.waits_on:
            self._ready.discard(queue.tenant, queue)
        self._drop(queue, now)
        self._hand_on(queue, now)

    def suspend(self, suspension: Suspension, now: int) -> None:
        """Let no mail be picked that it holds; deliveries that have begun go on. Another of the same id is replaced."""
        self._counters.suspend(suspension)
        self._place_again(now)

    def lift(self, suspension_id: str, now: int) -> bool:
        """End a suspension; whether there was one."""
        found = self._counters.lift(suspension_id)
        self._place_again(now)
        return found

    def weigh(self, weights: Mapping[str, int]) -> None:
        """Give these tenants these weights from now on, 1 to 100, and all others weight 1."""
        self._weights = dict(weights)

    def reload(self, policies: Sequence[CounterPolicy], now: int) -> PolicyChanges:
        """Let other policies hold from now on.

        What has the same fields and groups goes on counting, rates too: no limit is given anew. What is new counts
        the deliveries that go on.
        """
        changes = self._counters.replace(policies, now)
        known = self._counters.entries
        for picked, counters in self._delivering.items():
            keys = self._counters.keys(picked.mail, picked.source)
            added = [self._counters.entry(keys[number]) for number in changes.new]
            for entry in added:
                entry.delivering += 1
            going_on = [entry for entry in counters if entry is known.get(entry.place)]
            for entry in added:
                if entry not in going_on:
                    going_on.append(entry)
            self._delivering[picked] = tuple(going_on)
        self._place_again(now)
        return changes

    def have(self, share: LimitShare, now: int, *, spent: bool = True) -> None:
        """Have this share of the limits from now on; what it gains of rates counts as spent now, unless told otherwise.

        What is being delivered goes on. Only for an engine that was made with a share.
        """
        assert self._share is not None
        if share == self._share.now:
            return
        self._share.change(share, now, spent=spent)
        for entry in self._counters.share_out(now, spent=spent):
            self._wake_next(entry, now)

    def hold_until(self, at: int, now: int) -> None:
        """Begin nothing more under limits that are shared, from that instant on, until this is called again."""
        assert self._share is not None
        self._share.hold_until(at, now)
        self._wake_next(self._share.gate, now)

    @property
    def share(self) -> ServerShare:
        """Only for an engine that was made with one."""
        assert self._share is not None
        return self._share

    def resume(self, changes: ShareChanges, number: int, saved: Mapping[CounterName, SavedRate], now: int) -> None:
        """Count on where an earlier process of this server was, as `ServerShare.resume` has it."""
        self.share.resume(changes, number, saved, now)
        for entry in self._counters.limit_anew():
            self._wake_next(entry, now)

    def is_saved(self, memory: CounterMemory, now: int) -> None:
        """More may begin under a counter, as what is kept of it over a restart allows for that."""
        if entry := self._counters.written(memory):
            self._wake_next(entry, now)

    def fits(self, share: LimitShare) -> bool:
        """Whether what is being delivered under shared limits is within this share of them."""
        counted = dict[int, CounterEntry]()
        for counters in self._delivering.values():
            for entry in counters:
                if entry.shared:
                    counted[id(entry)] = entry
        return self._counters.fit(counted.values(), share)

    def is_shared(self, picked: Picked) -> bool:
        """Whether a delivery that is under way counts against a limit that servers share."""
        return any(entry.shared for entry in self._delivering.get(picked, ()))

    def elsewhere(self) -> Sequence[ActiveMail]:
        """The mails that wait, and that only other servers may send: from each address, a limit has no part for us."""
        found = list[ActiveMail]()
        for queue in self._sub_queues.values():
            if all(any(entry.elsewhere for entry in counters) for counters in queue.counters.values()):
                found += queue.urgent
                found += queue.normal
        return found

    def next_at(self) -> int | None:
        """When a pick may find more than now, unless a mail is added or a delivery ends before; None: never."""
        if not self._timers:
            return None
        return self._timers[0][0]

    def figures(self, now: int) -> PickupFigures:
        """For monitoring: it looks at each counter."""
        ready = sum(count for _, count in self._ready)
        counters = self._counters.entries.values()
        refusing = sum(entry.clear_at() > now for entry in counters)
        blocked = len(self._sub_queues) - ready
        clear = len(counters) - refusing
        return PickupFigures(self._picks, self._refusals, self._wakes, ready, blocked, clear, refusing)

    def sub_queue(self, mail: ActiveMail, now: int) -> SubQueue:
        """As the one that this mail would wait in, with all that counts it or holds it back; the mail is not added."""
        queue = self._new_queue(mail)
        self._release(queue, now)
        return queue

    # Looked at, and nothing is changed

    def place_of(self, mail: ActiveMail) -> SubQueue | None:
        """Where a mail waits; None where it does not."""
        queue = self._sub_queues.get(self._place(mail))
        if queue is None or (mail not in queue.urgent and mail not in queue.normal):
            return None
        return queue

    @property
    def under_way(self) -> Collection[Picked]:
        """The deliveries that go on."""
        return self._delivering.keys()

    def delivering(self, mail_id: str) -> Picked | None:
        """The delivery of a mail that goes on; None where none does."""
        for picked in self._delivering:
            if picked.mail.id == mail_id:
                return picked
        return None

    @property
    def counters(self) -> Iterable[CounterEntry]:
        """The counters of the policies; suspensions are left out."""
        return self._counters.entries.values()

    def waiting_on(self, refusing: Iterable[CounterEntry]) -> Mapping[CounterEntry, int]:
        """By counter, for these: how many mails that it counts wait here."""
        meant = frozenset(refusing)
        found = dict[CounterEntry, int]()
        for queue in self._sub_queues.values():
            mails = len(queue.urgent) + len(queue.normal)
            for entry in meant.intersection(queue.all_counters):
                found[entry] = found.get(entry, 0) + mails
        return found

    def next_source(self, mail: ActiveMail, usable: Sequence[str]) -> str | None:
        """From where a mail would be sent now; None where no address is usable."""
        if not usable:
            return None
        pool = self._pools.get(mail.sources) or SourcePool(mail.sources)
        return pool.next_of(usable)

    def _place(self, mail: ActiveMail) -> tuple[object, ...]:
        return (mail.values.get(PickupField.TENANT_ID, ""), *self._counters.place(mail))

    def _new_queue(self, mail: ActiveMail) -> SubQueue:
        place = self._place(mail)
        self._pools.setdefault(mail.sources, SourcePool(mail.sources))
        queue = SubQueue(place, mail.values.get(PickupField.TENANT_ID, ""), self._counters.of(mail))
        for entry in queue.all_counters:
            entry.users += 1
        return queue

    def _place_again(self, now: int) -> None:
        """Sort all mails that wait into sub-queues anew: the cost of a change, which no pick has to bear then."""
        self._counters.drop_ended(now)
        waiting = list[ActiveMail]()
        counters = dict[int, CounterEntry]()
        for queue in self._sub_queues.values():
            waiting += queue.urgent
            waiting += queue.normal
            for entry in queue.all_counters:
                counters[id(entry)] = entry
        for entry in counters.values():
            entry.users = 0
            entry.waking = False
            if entry.waiting:
                entry.waiting.clear()
        self._ready.clear()
        self._waking.clear()
        self._sub_queues.clear()
        for mail in waiting:
            self.add(mail)
        for entry in list(self._counters.entries.values()):
            self._forget(entry, now)

    def _turn(self, queue: SubQueue, now: int) -> Picked | None:
        refusing = queue.refusing(now)
        usable = [source for source in queue.counters if source not in refusing]
        if not usable:
            queue.waits_on = tuple(dict.fromkeys(refusing.values()))
            self._refusals += 1
            for entry in queue.waits_on:
                entry.wait(queue)
                self._set_timer(entry, entry.clear_at())
            return None
        picked = self._begin(queue, queue.take(), usable, now)
        if queue.empty:
            self._drop(queue, now)
        else:
            self._ready.add(queue.tenant, queue)
        return picked

    def _begin(self, queue: SubQueue, mail: ActiveMail, usable: Sequence[str], now: int) -> Picked:
        source = self._pools[mail.sources].choose(usable)
        picked = Picked(mail, source)
        self._delivering[picked] = counters = queue.counters[source]
        for entry in counters:
            entry.begin(now)
            if entry.waiting is not None:
                alone = not entry.waking and not entry.waiting.any_due()
                entry.waiting.spend(queue.tenant, self._span(queue.tenant), alone=alone)
        return picked

    def _span(self, tenant: str) -> int:
        return WHOLE_TURN // self._weights.get(tenant, 1)

    def _hand_on(self, queue: SubQueue, now: int) -> None:
        """After a turn of a tenant, let the counters that woke something of it wake others."""
        waker = queue.woken_by
        queue.woken_by = None
        if waker is not None and waker.waiting is not None:
            waker.waiting.end_of(queue.tenant)
        for entry in self._waking.pop(queue.tenant, ()):
            entry.waking = False
            self._wake_next(entry, now)
        if waker is not None:
            self._wake_next(waker, now)

    def _wake_next(self, entry: CounterEntry, now: int) -> None:
        """Wake one sub-queue that waits on a clear counter, unless a woken one's tenant has had no turn since."""
        if entry.waking or entry.waiting is None or not entry.waiting.any_due():
            return
        at = entry.clear_at()
        if at > now:
            self._set_timer(entry, at)
            return
        turn = entry.waiting.begin()
        assert turn is not None
        queue = next(iter(turn.things))
        for wait in queue.waits_on:
            wait.leave(queue)
        queue.waits_on = ()
        queue.woken_by = entry
        entry.waking = True
        self._waking.setdefault(queue.tenant, []).append(entry)
        self._wakes += 1
        self._ready.add(queue.tenant, queue)

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
        for entry in queue.all_counters:
            entry.users -= 1
            self._forget(entry, now)

    def _forget(self, entry: CounterEntry, now: int) -> None:
        at = entry.forgotten_at()
        if at > now:
            self._set_timer(entry, at)
        else:
            self._counters.forget(entry)
