"""The server of deliveries: it takes mails from a queue, picks who is delivered when, tries, and settles each mail.

A mail stays unacked until all of its recipients have ended. Then its sender is told what is due,
recipients that were refused for now are put off as a mail of their own, and only then it is acked:
whatever kills the server, each mail comes again, and what the journal of attempts knows is not done
again. Where the queue keeps no backlogs, what waits for a policy for long goes back to the queue,
so that it neither holds up others nor outlasts the broker's patience; that counts as no retry.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Final

from mailmend.delivery.ledger.attempts import LedgerAttempts
from mailmend.delivery.ledger.orders import LedgerOrders
from mailmend.delivery.ledger.servers import LedgerServers
from mailmend.delivery.mail.attempts import MailRelay, NextHops
from mailmend.delivery.mail.entries import (
    DeliveryEntry,
    EndedEntry,
    EntryChange,
    EntryEnd,
    EntryStage,
)
from mailmend.delivery.mail.envelopes import outgoing_of, sub_queue_of
from mailmend.delivery.mail.hooks import AttemptState
from mailmend.delivery.mail.settling import settlement_of, without_attempt
from mailmend.delivery.metrics import (
    delivery_samples,
    order_samples,
    pickup_samples,
    report_samples,
    share_samples,
)
from mailmend.delivery.policy.counters import PolicyChanges
from mailmend.delivery.policy.engine import PickupEngine
from mailmend.delivery.policy.orders import Suspension
from mailmend.delivery.policy.policy import CounterPolicy, PickupField
from mailmend.delivery.policy.shares import ServerName
from mailmend.delivery.policy.sub_queues import UNKNOWN
from mailmend.delivery.policy.turns import NO_WEIGHTS
from mailmend.delivery.server.attempting import EntryAttempts
from mailmend.delivery.server.given_back import left_over, misplaced, unpicked
from mailmend.delivery.server.held_mails import (
    HeldMail,
    MailDepartures,
    RecipientTurns,
    as_intended,
    ends_of_waiting,
    log_ended,
)
from mailmend.delivery.server.hooks import DeliveryHooks
from mailmend.delivery.server.in_hand import EntriesInHand
from mailmend.delivery.server.journalling import AttemptJournal
from mailmend.delivery.server.ready_entries import ReadyEntry
from mailmend.delivery.server.tasks import ServerTasks
from mailmend.delivery.settings import DeliverySettings, TransportsInForce
from mailmend.delivery.shared.orders import SharedOrders
from mailmend.delivery.shared.sharing import SharedLimits
from mailmend.delivery.transports import Transports
from mailmend.mailqueue.concurrency import cancelled, paused
from mailmend.mailqueue.queue import Dequeued, MailQueue
from mailmend.model.ids import EnqueueId
from mailmend.model.instants import nanos_in, span_of
from mailmend.model.metrics import MetricSample
from mailmend.model.ports import Clock

_LOOK_EVERY: Final = timedelta(minutes=1)
_ELSEWHERE_AFTER: Final = timedelta(seconds=3)
"""How long a recipient waits here for a limit that only other servers have a part of."""

_PREPARING_MAX: Final = 100
"""The largest number of recipients that are prepared at once: each may ask a hook, the journal and DNS."""

_COPY_AGAIN: Final = timedelta(minutes=5)
"""When a second copy of a mail that is held comes again: an enqueue that was repeated after a crash may leave one."""

_LOG: Final = logging.getLogger("mailmend.delivery")


@dataclass(slots=True, kw_only=True, eq=False)
class DeliveryServer:
    """Delivers the mails of one queue until it is asked to stop; one event loop uses it.

    Attributes:
        name: of this process, among those that serve the queue.
        ended: how often the active time of an entry has ended in each way.
        is_ready: whether it takes mails: it knows what is ordered, and was not asked to stop.
        ledger: where what people order is; None: the policies alone hold.
        journal: where attempts are written down; None: nowhere.
        servers: where servers share limits; None: this one has all of them. The engine was made
            with a share then.
    """

    name: str
    queue: MailQueue
    next_hops: NextHops
    relay: MailRelay
    engine: PickupEngine
    clock: Clock
    settings: DeliverySettings
    ended: Counter[EntryEnd] = field(default_factory=Counter)
    hooks: DeliveryHooks | None = None
    ledger: LedgerOrders | None = None
    journal: LedgerAttempts | None = None
    servers: LedgerServers | None = None
    is_ready: bool = False
    transports: TransportsInForce = field(init=False)
    orders: SharedOrders | None = field(default=None, init=False)
    _limits: SharedLimits | None = None
    _work: EntryAttempts = field(init=False)
    _departures: MailDepartures = field(init=False)
    _held: dict[EnqueueId, HeldMail] = field(default_factory=dict)
    _bytes_held: int = 0
    _ready: dict[str, ReadyEntry] = field(default_factory=dict)
    _check_at: int = UNKNOWN
    _unprepared: RecipientTurns = field(default_factory=RecipientTurns)
    _suspended: tuple[Suspension, ...] = ()
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: ServerTasks = field(init=False)

    def __post_init__(self) -> None:
        self._tasks = ServerTasks(clock=self.clock, woken=self._woken)
        self._departures = MailDepartures(self.queue, self.clock, self.settings.reporter, self.settings.postmaster)
        self.hooks = hooks = self.hooks or DeliveryHooks(clock=self.clock)
        self.transports = TransportsInForce(self.settings.sending)
        if self.ledger:
            self.orders = SharedOrders(
                queue=self.queue.name,
                server=self.name,
                ledger=self.ledger,
                engine=self.engine,
                clock=self.clock,
                every=self.settings.suspensions_every,
                wake=self._woken.set,
                obey=self._obey,
            )
            hooks = replace(hooks, heed=self.orders.apply_hook_orders)
        self._work = EntryAttempts(
            next_hops=self.next_hops,
            relay=self.relay,
            engine=self.engine,
            clock=self.clock,
            settings=self.settings,
            hooks=hooks,
            orders=self.orders,
            journal=AttemptJournal(self.queue.name, self.journal, self.settings.uncertain, self.clock, self.name),
            wake=self._woken.set,
            transports=self.transports,
        )
        if self.servers:
            self._limits = SharedLimits(
                queue=self.queue.name,
                ledger=self.servers,
                engine=self.engine,
                clock=self.clock,
                name=ServerName(self.settings.server_name),
                insists=self.settings.insists_on_name,
                owner=self.name,
                wake=self._woken.set,
                break_off=self._work.break_off,
            )

    async def serve(self, stop: asyncio.Event) -> None:
        """Work until asked to stop; attempts that run then have some time to end.

        Raises:
            CannotReach: nothing can be taken from the queue any more, or what is ordered cannot be
                read at the start.
            ServerNameTaken: another live server has the name.
        """
        watching = set[asyncio.Task[None]]()
        if self.orders:
            await self.orders.read()
            watching.add(asyncio.ensure_future(self.orders.keep_current(stop)))
        if self._limits:
            watching.add(asyncio.ensure_future(self._limits.keep_current(stop)))
        try:
            await self._serve(stop, watching)
        finally:
            ended = [task for task in watching if task.done()]
            await cancelled(watching)
            if self.orders:
                await self.orders.leave()
            if self._limits:
                await self._limits.end()
        for task in ended:
            task.result()

    async def _serve(self, stop: asyncio.Event, watching: Collection[asyncio.Task[None]]) -> None:
        held = self.settings.bytes_at_once_max
        prefetch = self.settings.prefetch
        taken = self.queue.dequeue(prefetch, bytes_max=held, sub_queue_of=sub_queue_of)
        async with taken as mails:
            taking = asyncio.ensure_future(self._take_all(mails))
            for task in (taking, *watching):
                task.add_done_callback(lambda _: self._woken.set())
            self.is_ready = True
            try:
                while not stop.is_set() and not any(task.done() for task in (taking, *watching)):
                    self._woken.clear()
                    self._look()
                    await paused(self.clock, self._rest(), stop, self._woken)
            finally:
                self.is_ready = False
                taking.cancel()
                await self._close()
                with suppress(asyncio.CancelledError):
                    await taking

    def samples(self) -> Iterable[MetricSample]:
        """What monitoring is told of the present moment."""
        stages = self.in_hand.stages
        now = self.clock.micros()
        yield from delivery_samples(self.queue.name, self.ended, stages, len(self._held), now)
        yield from pickup_samples(self.queue.name, self.engine.figures(self._work.nanos()))
        yield from self._work.journal.samples()
        yield from report_samples(self.queue.name, self._departures.lost_reports)
        if self.orders and self.orders.read_micros is not None:
            in_force = self.orders.in_force
            yield from order_samples(self.queue.name, in_force.suspensions, in_force.placed, self.orders.read_micros)
        if self._limits:
            yield from share_samples(self.queue.name, self._limits.servers, self._limits.state)

    @property
    def in_hand(self) -> EntriesInHand:
        """What this server has, to be looked at."""
        return EntriesInHand(self._held.values(), self._ready, self._work, self.queue.backlog_sizes)

    @property
    def is_full(self) -> bool:
        """Whether as many attempts go on as may at once."""
        return len(self._tasks.attempts) >= self.settings.concurrency

    def returns_at(self, held: HeldMail) -> int | None:
        """When a mail that is not picked goes back to its queue, in nanoseconds; None: it stays."""
        if self.queue.keeps_backlogs:
            return None
        return held.taken_at + nanos_in(self.settings.waiting_max)

    @property
    def stuck(self) -> int:
        """How many mails cannot leave the queue for now, as something behind it does not answer."""
        return len(self._departures.stuck)

    def limit(
        self,
        policies: Sequence[CounterPolicy],
        suspensions: Sequence[Suspension],
        weights: Mapping[str, int] = NO_WEIGHTS,
        custom: Collection[PickupField] = (),
    ) -> PolicyChanges:
        """Let these policies, suspensions and tenants' weights of a file hold from now on, in place of those before."""
        now = self._work.nanos()
        self._work.declare(custom, self._ready.values())
        if self.orders:
            changes = self.orders.in_force.limit(policies)
        else:
            changes = self.engine.reload(policies, now)
        for suspension in self._suspended:
            self.engine.lift(suspension.id, now)
        for suspension in suspensions:
            self.engine.suspend(suspension, now)
        self._suspended = tuple(suspensions)
        self.engine.weigh(weights)
        self._woken.set()
        return changes

    def send_by(self, transports: Transports) -> None:
        """Send mails as these transports say from now on; one that goes another way comes again."""
        self.transports.said = transports
        for ready in list(self._ready.values()):
            if outdated := self._work.outdated(ready):
                self._unready(ready.held, ready.entry.id.number, self._work.nanos())
                self._follow(ready.held, outdated, AttemptState.REROUTED)

    # Mails come in

    async def _take_all(self, mails: AsyncIterator[Dequeued]) -> None:
        async for dequeued in mails:
            try:
                self._take(dequeued)
            except Exception:  # noqa: BLE001 - no single mail ends the server
                _LOG.exception("a mail cannot be understood", extra={"mail": str(dequeued.enqueue_id)})
                self._let_go(dequeued)
                self._tasks.begin(self._tasks.settling, dequeued.retry())

    def _take(self, dequeued: Dequeued) -> None:
        if dequeued.enqueue_id in self._departures.unacked:
            self._tasks.begin(self._tasks.settling, self._departures.ack(dequeued))
            return
        if dequeued.enqueue_id in self._held:
            self._tasks.begin(self._tasks.settling, dequeued.retry(_COPY_AGAIN, "the same mail is being worked on"))
            return
        mail, entries = outgoing_of(dequeued, self._work.now())
        expires_at = self.settings.schedule(mail.transport).expires_at(mail.first_seen_at, mail.expires_at)
        now = self._work.nanos()
        active = {delivery_entry.id.number: delivery_entry for delivery_entry in entries}
        held = HeldMail(dequeued, mail, active, now, now + nanos_in(expires_at - self._work.now()))
        self._held[dequeued.enqueue_id] = held
        self._bytes_held += len(dequeued.content)
        self._check_at = min(self._check_at, held.expires_at)
        if self._is_crowded:
            self._check_at = min(self._check_at, now + nanos_in(self.settings.crowded_max))
        elif not self.queue.keeps_backlogs:
            self._check_at = min(self._check_at, now + nanos_in(self.settings.waiting_max))
        if not entries:
            self._tasks.begin(self._tasks.settling, self._settled(held))
        to_try = list[DeliveryEntry]()
        at = self._work.now()
        for entry in entries:
            if ended := without_attempt(entry, at, expires_at):
                self._end(held, ended)
            else:
                to_try.append(entry)
        self._unprepared.add(held, to_try)
        self._woken.set()

    def _prepare(self) -> None:
        """Begin to prepare recipients, a bounded number at once."""
        preparing = self._tasks.preparing
        while len(preparing) < _PREPARING_MAX and (turn := self._unprepared.next()):
            held, entry = turn
            work = partial(self._prepared, held, entry)
            self._tasks.begin(preparing, self._until_ended(held, entry.id.number, work))

    def _let_go(self, dequeued: Dequeued) -> None:
        if self._held.pop(dequeued.enqueue_id, None):
            self._bytes_held -= len(dequeued.content)

    async def _prepared(self, held: HeldMail, entry: DeliveryEntry) -> EndedEntry | None:
        """Let an entry be picked from now on; or how it has ended."""
        found = await self._work.prepared(held, entry)
        if not isinstance(found, ReadyEntry):
            return found
        if held.is_unpicked(entry.id.number):
            if outdated := self._work.outdated(found):
                return await self._work.after(held, outdated, None, AttemptState.REROUTED)
            held.move(entry.id.number, EntryStage.WAITING)
            self._ready[held.name_of(entry.id.number)] = found
            self._work.count(found)
            self._woken.set()
        return None

    # Who is next

    def _look(self) -> None:
        """End what has waited for too long, and begin every attempt that may begin now.

        What is picked counts as attempted at once: no order ends it before its task runs.
        """
        now = self._work.nanos()
        self._prepare()
        if self._check_at <= now:
            self._check_waiting(now)
        if self._limits:
            self._give_to_others(self._limits, now)
        while not self.is_full and (picked := self.engine.pick(now)):
            ready = self._ready.pop(picked.mail.id)
            ready.held.move(ready.entry.id.number, EntryStage.DELIVERING)
            work = partial(self._work.ended, ready, picked)
            self._tasks.begin(self._tasks.attempts, self._until_ended(ready.held, ready.entry.id.number, work))
        if self._limits:
            self._limits.rates.look()

    @property
    def _is_crowded(self) -> bool:
        """Whether mails that only wait leave no room: by their bytes alone where backlogs are kept."""
        settings = self.settings
        if 2 * self._bytes_held >= settings.bytes_at_once_max:
            return True
        return len(self._held) >= settings.prefetch and not self.queue.keeps_backlogs

    def _check_waiting(self, now: int) -> None:
        """End what has expired, and give back what has waited for too long, or leaves no room for others."""
        longest = UNKNOWN
        if not self.queue.keeps_backlogs:
            longest = nanos_in(self.settings.waiting_max)
        crowded = None
        if self._is_crowded:
            crowded = nanos_in(self.settings.crowded_max)
        ends, self._check_at = ends_of_waiting(self._held.values(), now, longest, crowded)
        for held, entry, end in ends:
            self._unready(held, entry.id.number, now)
            self._follow(held, *unpicked(self._work, held, entry, end))

    def _unready(self, held: HeldMail, number: int, now: int) -> None:
        """Let an entry be picked no more."""
        if (ready := self._ready.pop(held.name_of(number), None)) and ready.counted:
            self.engine.remove(ready.counted, now)

    def _follow(self, held: HeldMail, ended: EndedEntry, state: AttemptState) -> None:
        """End an entry without an attempt, as the hook behind delivery decides where there is one."""
        if self._work.hooks.post is None:
            self._end(held, ended)
            return
        number = ended.entry.id.number
        held.follow(number)
        work = partial(self._work.after, held, ended, None, state)
        self._tasks.begin(self._tasks.following, self._until_ended(held, number, work))

    async def _obey(self) -> None:
        """Carry out what is ordered of entries that wait here."""
        assert self.orders
        mails = list(dict.fromkeys(held.mail.id for held in self._held.values()))
        intents = await self.orders.found_intents(mails)
        ended, answers = as_intended(list(self._held.values()), intents, self._work.now())
        for held, entry in ended:
            self._unready(held, entry.entry.id.number, self._work.nanos())
            self._end(held, entry)
        await self.orders.answer_intents(answers)

    def _give_to_others(self, limits: SharedLimits, now: int) -> None:
        """Give back what waits for a limit that only other servers have a part of."""
        for mail in limits.misplaced():
            ready = self._ready[mail.id]
            if ready.held.taken_at + nanos_in(_ELSEWHERE_AFTER) <= now:
                self._unready(ready.held, ready.entry.id.number, now)
                self._follow(ready.held, *misplaced(self._work, ready))

    def _rest(self) -> timedelta:
        """How long nothing can happen unless the server is woken."""
        soonest = self._check_at
        picks_at = self.engine.next_at()
        if picks_at is not None:
            soonest = min(soonest, picks_at)
        return min(_LOOK_EVERY, span_of(max(0, soonest - self._work.nanos())))

    # Mails go out

    async def _until_ended(self, held: HeldMail, number: int, work: Callable[[], Awaitable[EndedEntry | None]]) -> None:
        """Do some work on an entry; where it fails by an error of ours, that counts as a refusal for now."""
        try:
            ended = await work()
        except Exception:  # noqa: BLE001 - no single mail ends the server
            _LOG.exception("an attempt failed by itself", extra={"mail": held.name_of(number)})
            ended = await self._work.failed(held, number)
        if ended and number in held.active:
            self._end(held, ended)

    def _end(self, held: HeldMail, ended: EndedEntry) -> None:
        self.ended[ended.end] += 1
        log_ended(ended)
        if held.end(ended):
            self._tasks.begin(self._tasks.settling, self._settled(held))

    async def _settled(self, held: HeldMail) -> None:
        schedule = self.settings.schedule(held.mail.transport)
        shared = self.orders
        changes: Mapping[int, EntryChange] = {}
        if shared:
            changes = await shared.intents_after(held.mail.id, held.ended)
        now = self._work.now()
        held.heed(changes, schedule, now)
        await self._departures.leave(held, settlement_of(held.mail, held.ended, schedule, now), now)
        if shared and changes:
            await shared.close_intents(held.mail.id, held.ended, changes.keys())
        self._let_go(held.dequeued)

    async def _close(self) -> None:
        """Let attempts end for a while; then put off what is left of mails that others have had already."""
        grace = nanos_in(self.settings.grace)
        until = self._work.nanos() + grace
        tasks = self._tasks
        self._unprepared.clear()
        await cancelled(tasks.preparing)
        await tasks.end(tasks.attempts, until)
        await tasks.end(tasks.following, until)
        left = list(left_over(self._work, list(self._held.values())))
        for held, ended, state in left:
            self._unready(held, ended.entry.id.number, self._work.nanos())
            if state:
                self._follow(held, ended, state)
        await tasks.end(tasks.following, until + grace // 2)
        for held, ended, _ in left:
            if ended.entry.id.number in held.active:
                self._end(held, ended)
        await tasks.end(tasks.settling, until + grace)
