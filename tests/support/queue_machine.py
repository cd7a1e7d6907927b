"""A queue of many processes on twins, and what must hold of it whatever they do: the ground of the queue's stories."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from hypothesis.stateful import RuleBasedStateMachine, invariant

from mailmend.mailqueue.cleanup.cleaning import CleanupSettings, QueueCleanup
from mailmend.mailqueue.cleanup.scan import LocalQueueScanner, Mark
from mailmend.mailqueue.cleanup.writes import CleanedQueue
from mailmend.mailqueue.codec import queued_of
from mailmend.mailqueue.rabbitmq.sweep import Sweeper
from mailmend.mailqueue.rabbitmq.unacked import UnackedMail
from mailmend.mailqueue.rules.backlogs import SubQueueName
from mailmend.mailqueue.rules.blob_ids import BlobNaming, BlobsMode
from mailmend.mailqueue.rules.cleanup import MarksRule
from mailmend.mailqueue.rules.configuration import QueueConfiguration
from mailmend.mailqueue.rules.mails import QueuedMail
from mailmend.mailqueue.rules.size import SizeKind
from mailmend.mailqueue.rules.slices import EPOCH, Slicing, slice_of
from mailmend.model.catalog.mail_queue import (
    BACKLOG_MAILS,
    BACKLOGS,
    DELETED_MAILS,
    DUE_MAILS,
    ENQUEUED_MAILS,
    LIVES,
    OwnTables,
)
from mailmend.model.errors import MailmendError
from mailmend.model.table import Row
from tests.support.james_beside import James
from tests.support.progress import SilentProgress
from tests.support.queue_model import Promised, Promises, Standing
from tests.support.queue_wires import Side, WiredBlobs, WiredBroker
from tests.support.queue_world import Died, QueueMishap, Worker, dead, named, taken
from tests.support.queues import QUEUE, TwinQueue, listed
from tests.support.skewed import SkewedClock

T = TypeVar("T")

SKEWS: Final = (timedelta(0), timedelta(minutes=7), timedelta(minutes=-7))
"""The clocks of the processes: any two within the grace of 15 minutes."""

SECONDS_EACH: Final = 2.0
"""Between two steps, so that what was prefetched is looked up again before it is handed over."""

TOO_FAR: Final = timedelta(hours=4)
LOOKS_MAX: Final = 50
"""How many looks in vain end a drain, though the broker still has messages."""

MARKS_LIVE: Final = timedelta(seconds=LIVES.mark_ttl_seconds) - timedelta(hours=4)


def of_sender(queued: QueuedMail) -> SubQueueName:
    """The mails of each sender are a sub-queue."""
    return SubQueueName("", queued.mail.sender or "")


class ManyProcesses(RuleBasedStateMachine):
    """The queue, its processes, each with a clock of its own, and what was promised of each mail.

    At the end everything is healed: what was acknowledged and not ended must then be delivered; what was acked, deleted
    or refused must never have come since.
    """

    def open(
        self,
        *,
        james: bool,
        own: OwnTables,
        naming: BlobNaming,
        slicing: Slicing,
        at: datetime,
        far: timedelta,
        backlogs: bool = False,
    ) -> None:
        self.runner = asyncio.Runner()
        configuration = QueueConfiguration(slicing, pace=1_000_000)
        self.twin = TwinQueue(configuration=configuration, own=own, naming=naming)
        self.twin.clock.turn_to(at)
        self.james = James(self.twin) if james else None
        self.promises = Promises()
        self.workers = [Worker(self.twin, SkewedClock(self.twin.clock, ahead)) for ahead in (*SKEWS, far)]
        self.dedup = naming.mode is BlobsMode.DEDUPLICATED
        self.start_seen: datetime | None = None
        self.greatest = EPOCH
        self.crowd = 0
        self.befell: frozenset[Side] = frozenset()
        self.steps: tuple[str, ...] = ()
        for worker in self.workers:
            if backlogs:
                worker.sub_queue_of = of_sender
            self.run(worker.start())

    # What must hold

    @invariant()
    def all_is_well(self) -> None:
        if hasattr(self, "runner"):
            self.starts_are_in_order()
            self.bytes_stay_while_they_are_needed()
            self.dead_letters_were_rejected()

    def starts_are_in_order(self) -> None:
        """The content start is no later than the browse start, which only grows, and is no later than any clock."""
        content, browse = self.twin.content_start, self.twin.browse_start
        self.greatest = max(self.greatest, self.twin.clock.now + max(worker.clock.ahead for worker in self.workers))
        if browse is None:
            return
        assert content is not None
        assert browse <= slice_of(self.greatest, self.window)
        assert self.start_seen is None or browse >= self.start_seen, "the browse start went back"
        assert content <= browse or (self.james and self.james.put_back)
        self.start_seen = browse

    def bytes_stay_while_they_are_needed(self) -> None:
        for one in self.promises.standing(Standing.OWED):
            assert one.blobs <= self.twin.blobs.ids, f"the bytes of {one.name} are gone"

    def dead_letters_were_rejected(self) -> None:
        buried = self.james.buried if self.james else []
        for name in dead(self.twin):
            promised = self.promises.named(name)
            old = promised.standing is Standing.OVER and self.twin.clock.now - promised.over_at > MARKS_LIVE
            assert promised.rejected or name in buried or old, f"{name} is a dead letter"

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            try:
                self.all_ends_well()
            finally:
                self.end()

    def end(self) -> None:
        self.run(self.closed())
        self.runner.close()

    def all_ends_well(self) -> None:
        broker, worker = self.twin.broker, self.workers[0]
        self.run(self.closed())
        broker.come_back()
        broker.let_arrive()
        self.twin.clock.advance(TOO_FAR.total_seconds())
        worker.sub_queue_of = None
        self.run(worker.start())
        self.by(0, lambda _: worker.queue.return_backlogs())
        self.swept(0)
        self.by(0, lambda _: worker.queue.flush())
        self.by(0, lambda _: worker.queue.republish(timedelta(0)))
        owed = {one.name for one in self.promises.standing(Standing.OWED)}
        came = self.run(self.drained(worker))
        assert owed <= set(came), f"lost: {owed - set(came)}"
        self.dead_letters_were_rejected()
        self.nothing_is_left(worker)

    async def drained(self, worker: Worker) -> list[str]:
        """What comes until the broker has nothing left.

        A look gives up after some turns of the loop; a process that reads weeks of slices beside it takes more.
        """
        came = list[str]()
        broker = self.twin.broker
        looks = LOOKS_MAX
        while looks:
            mails = await taken(worker, 1)
            if not mails:
                if not (broker.ready(QUEUE) or broker.unacked(QUEUE)):
                    break
                looks -= 1
                continue
            one = mails[0]
            came.append(one.mail.name)
            self.came(one)
            await one.ack()
            self.promises.over(one.mail.name, self.twin.clock.now)
            self.twin.clock.advance(SECONDS_EACH)
        return came

    def nothing_is_left(self, worker: Worker) -> None:
        self.twin.clock.advance(TOO_FAR.total_seconds())
        assert self.run(listed(worker.queue)) == []
        self.swept(0)
        assert self.run(worker.queue.size()).mails == 0
        self.run(worker.queue.view.recount(QUEUE))
        size = self.run(worker.queue.size())
        assert size.mails == size.delayed == 0
        if self.dedup:
            return
        kept = {blob for one in self.promises.mails.values() if one.rejected or one.blobs_named for blob in one.blobs}
        left = {one.name for one in self.promises.mails.values() if one.blobs & (self.twin.blobs.ids - kept)}
        assert not left, f"blobs are left of {left}"

    # How it is done

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(story)

    def by(self, number: int, act: "Any", mishaps: Sequence[QueueMishap] = ()) -> Any:
        """One process does something while something may befall it; if it dies of that, it is replaced."""
        worker = self.workers[number]

        async def story() -> Any:
            worker.fortune.arm(*mishaps)
            try:
                answer = await act(worker)
                await worker.settled()
            except asyncio.CancelledError:
                if not worker.fortune.dead:
                    raise
                raise Died from None  # whoever waits for something that died is cancelled
            else:
                return answer
            finally:
                self.befell, self.steps = frozenset(worker.fortune.befell), tuple(worker.fortune.steps)
                worker.fortune.arm()
                if worker.fortune.dead:
                    await worker.restart()

        self.twin.clock.advance(SECONDS_EACH)
        return self.run(story())

    def swept(self, number: int, mishaps: Sequence[QueueMishap] = ()) -> None:
        """A process sweeps: when it is through, nothing without a mark lies before the browse start."""
        try:
            self.by(number, lambda worker: worker.queue.sweep(), mishaps)
        except (MailmendError, Died):
            return
        self.nothing_is_hidden()

    def cleanup_of(self, marks: MarksRule) -> CleanupSettings:
        self.twin.broker.let_arrive()
        as_of = self.twin.clock.micros() - TOO_FAR // timedelta(microseconds=1)
        return CleanupSettings(as_of, delay_seconds=60, marks=marks)

    def cleaned(
        self,
        number: int,
        settings: CleanupSettings,
        mishaps: Sequence[QueueMishap],
        on_mark: Callable[[Mark], None] | None = None,
    ) -> list[CleanedQueue] | None:
        """What it found; None where it died. With `on_mark` nothing is written."""

        async def cleaned(worker: Worker) -> list[CleanedQueue]:
            view, fortune = worker.queue.view, worker.fortune
            blobs, broker = WiredBlobs(self.twin.blobs, fortune), WiredBroker(self.twin.broker, fortune)
            scanner = LocalQueueScanner(self.twin.memory, self.twin.clock)
            sweeper = None if on_mark else Sweeper(view, blobs, broker)
            cleanup = QueueCleanup(view, scanner, SilentProgress(), blobs, broker, on_mark=on_mark)
            return await cleanup.run(settings, sweeper)

        with suppress(MailmendError, Died):
            found: list[CleanedQueue] = self.by(number, cleaned, mishaps)
            return found
        return None

    def new_mail(self, *, ours: bool = True) -> Promised:
        self.crowd += 1
        name = f"mail-{self.crowd}"
        return self.promises.new(name, f"Subject: {name}\r\n\r\nThe body of {name}.\r\n".encode(), ours=ours)

    def came(self, one: UnackedMail, *, excused: bool = False) -> None:
        promised = self.promises.named(one.mail.name)
        assert promised.enqueue_id in {None, one.enqueue_id}
        excused = excused or self.is_excused(promised) or self.has_outlived_its_mark(promised, one)
        self.promises.may_come(one.mail.name, one.content, excused=excused)

    def has_outlived_its_mark(self, promised: Promised, one: UnackedMail) -> bool:
        """Whether the broker kept it for longer than marks live, and an older mail held the browse start."""
        start = self.twin.browse_start
        is_swept = one.slice_start is not None and start is not None and one.slice_start < start
        return not is_swept and self.twin.clock.now - promised.over_at > MARKS_LIVE

    def is_excused(self, promised: Promised) -> bool:
        """Whether James has removed its mark and it is James's own, or James has put the browse start back besides."""
        james = self.james
        return james is not None and promised.enqueue_id in james.unmarked and (not promised.ours or james.put_back)

    def is_excused_of_james(self, name: str) -> bool:
        return self.james is not None and self.promises.named(name).enqueue_id in self.james.unmarked

    def who_has(self, name: str) -> list[int]:
        unacked = name in named(self.twin.broker.unacked(QUEUE)) or name in self.in_backlogs()
        return [number for number, worker in enumerate(self.workers) if unacked and worker.consumer]

    def in_backlogs(self) -> list[str]:
        """The mails that whoever takes the listed stretches over will read."""
        gone_to = {row["stretch"]: row["goneto"] or 0 for row in self.twin.rows(BACKLOGS) if row["subqueue"]}
        rows = [
            row for row in self.twin.rows(BACKLOG_MAILS) if row["place"] > gone_to.get(row["stretch"], row["place"])
        ]
        return [queued_of(row["body"]).mail.name for row in rows]

    def each_has_its_message(self) -> None:
        """What is owed is with the broker, in a backlog or delayed, where the broker has lost nothing."""
        broker = self.twin.broker
        there = {*named(broker.ready(QUEUE)), *named(broker.unacked(QUEUE)), *self.in_backlogs()}
        there.update(row["name"] for row in self.twin.rows(DUE_MAILS) if row["dueslice"] != EPOCH)
        owed = {one.name for one in self.promises.standing(Standing.OWED)}
        assert owed <= there, f"{owed - there} have no message"

    def nothing_is_hidden(self) -> None:
        start = self.twin.browse_start
        out = [row["name"] for row in self.unmarked() if start and row["timerangestart"] < start]
        assert not out, f"{out} lie before the browse start"

    def unmarked(self) -> list[Row]:
        marked = {row["enqueueid"] for row in self.twin.rows(DELETED_MAILS)}
        return [row for row in self.twin.rows(ENQUEUED_MAILS) if row["enqueueid"] not in marked]

    def waiting_up_to(self, slices: int) -> int:
        start = self.twin.browse_start
        if start is None:
            return 0
        first = slice_of(start, self.window)
        return sum(first <= row["timerangestart"] < first + slices * self.window for row in self.unmarked())

    def delayed(self) -> int:
        marks = {row["enqueueid"] for row in self.twin.rows(DELETED_MAILS)}
        return sum(row["dueslice"] != EPOCH and row["enqueueid"] not in marks for row in self.twin.rows(DUE_MAILS))

    def a_size_is_honest(self) -> None:
        async def asked() -> Any:
            async with await self.twin.process() as queue:
                return await queue.size()

        found = self.run(asked())
        assert found.kind is SizeKind.ESTIMATE or found.delayed == self.delayed(), f"{found} is not exact"

    @property
    def window(self) -> timedelta:
        return self.twin.configuration.slicing.window

    async def closed(self) -> None:
        for worker in self.workers:
            with suppress(Died):
                await worker.close()
