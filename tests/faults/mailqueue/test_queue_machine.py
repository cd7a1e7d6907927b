"""A queue of many processes, wrong clocks, deaths, failing servers and a James beside, held to a small model.

Hypothesis makes up the stories and shortens those that go wrong. At the end of each everything is healed: what was
acknowledged and not ended must then be delivered; what was acked, deleted or refused must never have come since.
"""

from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from mailmend.mailqueue.cleanup.cleaning import CleanupSettings, PlannedCleanup, planned_of
from mailmend.mailqueue.cleanup.scan import Mark
from mailmend.mailqueue.cleanup.writes import MENDED
from mailmend.mailqueue.queue import OnRemoved
from mailmend.mailqueue.rabbitmq.unacked import UnackedMail
from mailmend.mailqueue.rules.blob_ids import BlobNaming, BlobsMode
from mailmend.mailqueue.rules.cleanup import MarksRule, QueuePlace
from mailmend.mailqueue.rules.mails import Listed, MailFilter
from mailmend.mailqueue.rules.size import SizeKind
from mailmend.mailqueue.rules.slices import EPOCH, Slicing
from mailmend.model.catalog.mail_queue import ENQUEUED_MAILS, OwnTables
from mailmend.model.errors import MailmendError
from mailmend.model.ids import EnqueueId
from mailmend.model.projections.verdicts import OVER_VERDICTS
from mailmend.repair.ledger.before_images import image_digest
from tests.support.memory_broker import Fate
from tests.support.queue_machine import SKEWS, ManyProcesses
from tests.support.queue_model import Standing
from tests.support.queue_wires import Side, StepFault
from tests.support.queue_world import Died, QueueMishap, Worker, taken
from tests.support.queues import EXPIRING, QUEUE, listed, mail
from tests.support.thorough import run_stories

FAR: Final = (timedelta(hours=-3), timedelta(hours=3), timedelta(minutes=10), timedelta(minutes=-10))
"""One more clock, further from the others than the grace."""

SENDERS: Final = ("ada@example.org", "eve@example.org")
WORKERS: Final = st.integers(0, len(SKEWS))
DELAYS: Final = st.sampled_from(
    (None, None, None, timedelta(seconds=30), timedelta(minutes=5), timedelta(hours=3), timedelta(days=2))
)
PRIORITIES: Final = st.sampled_from((None, None, 0, 9))
WAITS: Final = st.sampled_from((None, timedelta(0), timedelta(minutes=1), timedelta(hours=2)))

MISHAPS: Final = st.just(()) | st.lists(
    st.builds(
        QueueMishap,
        st.sampled_from(StepFault),
        st.integers(0, 12),
        st.sampled_from((1, 1, 7, 40)),
        st.sampled_from((None, *Side)),
    ),
    min_size=1,
    max_size=2,
)
"""Seven in a row outlast the retries of one request."""

LOSSES: Final = (Fate.REFUSED, Fate.UNCONFIRMED_KEPT, Fate.UNCONFIRMED_LOST, Fate.UNCONFIRMED_LATE, Fate.TWICE)

LONG_WAITS_MAX: Final = 2
HALF_A_DAY: Final = 43_200

FOR_EVER: Final = OwnTables()
"""Nothing is renewed, as in tables of James, where nothing expires. The twin's rows do, so nobody waits for days."""


class QueueMachine(ManyProcesses):
    """The stories, on twins, under a clock that is turned by hand."""

    @initialize(
        far=st.sampled_from(FAR),
        minutes=st.sampled_from((60, 60, 20)),
        buckets=st.integers(1, 2),
        mode=st.sampled_from(BlobsMode),
        james=st.booleans(),
        own=st.sampled_from((EXPIRING, EXPIRING, FOR_EVER)),
        seed=st.integers(0, 3),
        backlogs=st.booleans(),
        mails=st.lists(st.tuples(WORKERS, st.integers(0, 1), DELAYS), max_size=5),
    )
    def begin(  # noqa: PLR0917 - drawn by name
        self,
        far: timedelta,
        minutes: int,
        buckets: int,
        mode: BlobsMode,
        james: bool,
        own: OwnTables,
        seed: int,
        mails: Sequence[tuple[int, int, timedelta | None]] = (),
        backlogs: bool = False,
    ) -> None:
        if james:
            far = -abs(far)  # what a James enqueues before a browse start that is ahead of it, it loses sight of itself
        at = datetime(2026, 8, 29, 12, tzinfo=EPOCH.tzinfo) + timedelta(minutes=17 * seed)
        slicing = Slicing(timedelta(minutes=minutes), buckets)
        self.long_waits = 0
        self.planned: CleanupSettings | None = None
        self.checked: list[UnackedMail] = []
        naming = BlobNaming(mode)
        self.open(james=james, own=own, naming=naming, slicing=slicing, at=at, far=far, backlogs=backlogs)
        self.twin.broker.out_of_order = bool(seed % 2)
        if james:  # a queue that a clock ahead of James's begins, begins after what James enqueues at that moment
            self.james_works("enqueue", 0)
        for number, sender, delay in mails:
            self.enqueue(number, sender, delay, None, (), ())

    @rule(
        number=WORKERS,
        sender=st.integers(0, 1),
        delay=DELAYS,
        priority=PRIORITIES,
        mishaps=MISHAPS,
        fates=st.lists(st.sampled_from(LOSSES), max_size=1),
    )
    def enqueue(  # noqa: PLR0917 - drawn by name
        self,
        number: int,
        sender: int,
        delay: timedelta | None,
        priority: int | None,
        mishaps: Sequence[QueueMishap],
        fates: Sequence[Fate],
    ) -> None:
        promised, there = self.new_mail(), self.twin.blobs.ids.copy()
        self.twin.broker.will(*fates)

        async def put(worker: Worker) -> EnqueueId:
            envelope = mail(promised.name, sender=SENDERS[sender])
            return await worker.queue.enqueue(envelope, promised.content, delay=delay, priority=priority)

        try:
            promised.enqueue_id = self.by(number, put, mishaps)
            promised.standing = Standing.OWED
        except Died:
            promised.blobs_named = True
        except MailmendError as error:
            promised.blobs_named = "not undone in full" in error.mend or Side.BLOBS in self.befell
            if "may still be listed" not in error.mend:
                self.promises.over(promised.name, self.twin.clock.now)
        self.twin.broker.fates.clear()
        promised.blobs = frozenset(self.twin.blobs.ids - there)

    @rule(number=WORKERS, most=st.integers(1, 3), mishaps=MISHAPS)
    def take(self, number: int, most: int, mishaps: Sequence[QueueMishap]) -> None:
        with suppress(MailmendError, Died):
            self.by(number, lambda worker: taken(worker, most), mishaps)
        consumer = self.workers[number].consumer
        for one in consumer.held if consumer else ():
            if one not in self.checked:
                self.checked.append(one)
                excused = number in self.promises.named(one.mail.name).in_hand and Side.READS in self.befell
                self.came(one, excused=excused)

    @rule(number=WORKERS, mishaps=MISHAPS)
    def let_time_pass(self, number: int, mishaps: Sequence[QueueMishap]) -> None:
        """A consumer works for some seconds with nobody asking: it sets aside, anchors, fetches and takes over."""
        with suppress(Died):
            self.by(number, lambda _: self.twin.clock.pause(3), mishaps)

    @rule(number=WORKERS, most=st.integers(1, 3))
    def work(self, number: int, most: int) -> None:
        self.take(number, most, ())
        while (consumer := self.workers[number].consumer) and consumer.held:
            self.ack(number, 0, ())

    @rule(number=WORKERS, which=st.integers(0, 5), mishaps=MISHAPS)
    def ack(self, number: int, which: int, mishaps: Sequence[QueueMishap]) -> None:
        one = self.of_hand(number, which)
        if one is None:
            return
        name = one.mail.name
        try:
            self.by(number, lambda _: one.ack(), mishaps)
        except (MailmendError, Died):
            self.promises.doubtful(name)
        else:
            self.promises.over(name, self.twin.clock.now, self.who_has(name))

    @rule(number=WORKERS, which=st.integers(0, 5), delay=WAITS, mishaps=MISHAPS)
    def retry(self, number: int, which: int, delay: timedelta | None, mishaps: Sequence[QueueMishap]) -> None:
        one = self.of_hand(number, which)
        if one is not None:
            with suppress(MailmendError, Died):
                self.by(number, lambda _: one.retry(delay, "try later"), mishaps)

    @rule(number=WORKERS, which=st.integers(0, 5), mishaps=MISHAPS)
    def reject(self, number: int, which: int, mishaps: Sequence[QueueMishap]) -> None:
        one = self.of_hand(number, which)
        if one is None:
            return
        try:
            self.by(number, lambda _: one.reject(), mishaps)
        except (MailmendError, Died):
            self.promises.dead_letter(one.mail.name, sure=False)
        else:
            self.promises.dead_letter(one.mail.name, sure=True)

    @rule(number=WORKERS)
    def leave(self, number: int) -> None:
        self.by(number, lambda worker: worker.leave())

    @rule(number=WORKERS, mishaps=MISHAPS)
    def browse(self, number: int, mishaps: Sequence[QueueMishap]) -> None:
        async def shown(worker: Worker) -> list[Listed]:
            return await listed(worker.queue)

        found: list[Listed] = []
        with suppress(MailmendError, Died):
            found = self.by(number, shown, mishaps)
        for one in found:
            promised = self.promises.named(one.queued.mail.name)
            assert promised.standing is not Standing.OVER or self.is_excused(promised), f"{promised} is listed"

    @rule(number=WORKERS)
    def size(self, number: int) -> None:
        """What is said to be exact is: as many rows without a mark in slices from the browse start on."""

        async def reported(worker: Worker) -> Any:
            return await worker.queue.size()

        found = self.by(number, reported)
        if found.kind is SizeKind.EXACT and self.james is None and number == 0:
            assert found.mails == self.waiting_up_to(found.slices_read), f"{found} is not exact"
        if found.kind is SizeKind.EXACT:
            assert found.delayed == self.delayed(), f"{found} is not exact"

    @rule(
        number=WORKERS,
        sender=st.sampled_from((*SENDERS, None)),
        mishaps=MISHAPS,
    )
    def delete(self, number: int, sender: str | None, mishaps: Sequence[QueueMishap]) -> None:
        reported: dict[EnqueueId, str] = {}

        async def keep(one: Listed) -> None:
            reported[one.queued.enqueue_id] = one.queued.mail.name

        def remove(worker: Worker) -> Coroutine[Any, Any, Any]:
            on_removed: OnRemoved = keep
            if sender is None:
                return worker.queue.purge(on_removed=on_removed)
            return worker.queue.delete(MailFilter(sender=sender), on_removed=on_removed)

        failed: set[EnqueueId] | None = None
        with suppress(MailmendError, Died):
            failed = {one.enqueue_id for one in self.by(number, remove, mishaps).failed}
        for enqueue_id, name in reported.items():
            self.promises.named(name).blobs_named |= Side.BLOBS in self.befell or failed is None
            if failed is None or enqueue_id in failed:
                self.promises.doubtful(name)
            else:
                self.promises.over(name, self.twin.clock.now, self.who_has(name))

    @rule(number=WORKERS, mishaps=MISHAPS)
    def flush(self, number: int, mishaps: Sequence[QueueMishap]) -> None:
        with suppress(MailmendError, Died):
            self.by(number, lambda worker: worker.queue.flush(), mishaps)

    @rule(number=WORKERS, mishaps=MISHAPS)
    def move_due(self, number: int, mishaps: Sequence[QueueMishap]) -> None:
        with suppress(MailmendError, Died):
            self.by(number, lambda worker: worker.queue.move_due(), mishaps)

    @rule(number=WORKERS, hours=st.sampled_from((0, 1)), mishaps=MISHAPS)
    def republish(self, number: int, hours: int, mishaps: Sequence[QueueMishap]) -> None:
        with suppress(MailmendError, Died):
            self.by(number, lambda worker: worker.queue.republish(timedelta(hours=hours)), mishaps)

    @rule(number=WORKERS, mishaps=MISHAPS)
    def return_backlogs(self, number: int, mishaps: Sequence[QueueMishap]) -> None:
        with suppress(MailmendError, Died):
            self.by(number, lambda worker: worker.queue.return_backlogs(), mishaps)

    @rule(number=WORKERS, mishaps=MISHAPS)
    def move_start(self, number: int, mishaps: Sequence[QueueMishap]) -> None:
        with suppress(MailmendError, Died):
            self.by(number, lambda worker: worker.queue.move_browse_start(), mishaps)

    @rule(number=WORKERS, mishaps=MISHAPS)
    def sweep(self, number: int, mishaps: Sequence[QueueMishap]) -> None:
        self.swept(number, mishaps)

    @rule(number=WORKERS, marks=st.sampled_from((MarksRule.KEEP, MarksRule.EMPTY)), mishaps=MISHAPS)
    def clean(self, number: int, marks: MarksRule, mishaps: Sequence[QueueMishap]) -> None:
        """A process cleans all queues, as of hours ago: what was published before then has arrived at the broker."""
        self.cleaned(number, self.cleanup_of(marks), mishaps)

    @rule(number=WORKERS, marks=st.sampled_from((MarksRule.KEEP, MarksRule.EMPTY)), mishaps=MISHAPS)
    def plan(self, number: int, marks: MarksRule, mishaps: Sequence[QueueMishap]) -> None:
        """A cleanup is written down, whole or not at all; whoever applies it does so once, twice or never."""
        settings, named = self.cleanup_of(marks), list[Mark]()
        if (found := self.cleaned(number, settings, mishaps, on_mark=named.append)) is not None:
            due = [(planned_of(one, queue.judged), image_digest(one)) for queue in found for one in queue.are(*MENDED)]
            suspects = {QueuePlace(one.verdict, one.key): replace(one, planned=digest) for one, digest in due}
            self.planned = replace(settings, planned=PlannedCleanup(suspects, lambda: iter(named)))

    @precondition(lambda self: self.planned is not None)
    @rule(number=WORKERS, mishaps=MISHAPS)
    def apply(self, number: int, mishaps: Sequence[QueueMishap]) -> None:
        assert self.planned is not None
        assert self.planned.planned is not None
        rows, marks = self.twin.rows(ENQUEUED_MAILS), self.twin.marked
        self.cleaned(number, self.planned, mishaps)
        approved = {key for verdict, key in self.planned.planned.suspects if verdict in OVER_VERDICTS}
        gone = [row for row in rows if row not in self.twin.rows(ENQUEUED_MAILS)]
        assert {(row["queuename"], row["timerangestart"], row["bucketid"]) for row in gone} <= approved
        assert marks - self.twin.marked <= {mail for _, mail in self.planned.planned.marks()}

    @rule(minutes=st.sampled_from((1, 11, 16, 61, 190)))
    def wait(self, minutes: int) -> None:
        self.twin.clock.advance(minutes * 60)

    @rule(number=st.integers(0, len(SKEWS) - 1), ahead=st.sampled_from(SKEWS))
    def clock_is_set(self, number: int, ahead: timedelta) -> None:
        """A time service sets the clock of a process, forwards or back."""
        self.workers[number].clock.ahead = ahead

    @precondition(lambda self: self.long_waits < LONG_WAITS_MAX and self.twin.own != FOR_EVER)
    @rule(days=st.sampled_from((1, 4, 12)))
    def wait_long(self, days: int) -> None:
        """Days pass, in which no consumer sits still, and the queue is swept now and then, as it must be."""
        self.long_waits += 1
        for number in range(len(self.workers)):
            self.leave(number)
        for _ in range(2 * days):
            self.twin.clock.advance(HALF_A_DAY)
            self.by(0, lambda worker: worker.queue.sweep())
        self.nothing_is_hidden()

    @rule(what=st.sampled_from(("drop", "duplicate", "late", "away", "back", "back", "wipe")))
    def broker_has_a_bad_day(self, what: str) -> None:
        broker = self.twin.broker
        match what:
            case "drop":
                broker.drop_connections()
            case "duplicate" if len(broker.ready(QUEUE)) < 40:
                broker.duplicate(QUEUE)
            case "late":
                broker.let_arrive()
            case "away":
                broker.go_away()
            case "back" if broker.away:
                broker.come_back()
            case "wipe":
                for one in self.promises.standing(Standing.REJECTED):
                    one.standing = Standing.OPEN
                broker.wipe()
            case _:
                pass

    @rule(number=WORKERS)
    def restart(self, number: int) -> None:
        async def anew(worker: Worker) -> None:
            await worker.close()
            await worker.start()

        self.by(number, anew)

    @precondition(lambda self: self.james and not self.twin.broker.away)
    @rule(what=st.sampled_from(("enqueue", "enqueue", "dequeue", "move", "look", "write")), sender=st.integers(0, 1))
    def james_works(self, what: str, sender: int) -> None:
        """James does something beside us; what it found it writes at once, or so late that it goes back."""
        james = self.james
        assert james is not None
        match what:
            case "enqueue":
                promised = self.new_mail(ours=False)
                queued = self.run(james.enqueue(mail(promised.name, sender=SENDERS[sender]), promised.content))
                promised.enqueue_id, promised.standing = queued.enqueue_id, Standing.OWED
                promised.blobs = frozenset({queued.blobs.header, queued.blobs.body})
            case "dequeue":
                for queued in self.run(james.dequeue()):
                    name = queued.mail.name
                    assert self.promises.named(name).standing is not Standing.OVER or self.is_excused_of_james(name)
                    self.promises.over(name, self.twin.clock.now, self.who_has(name))
            case "look":
                james.look()
            case "write" if james.would_go_back:
                james.move()
            case "move":
                james.look()
                james.move()
            case _:
                pass
        self.start_seen = self.twin.browse_start

    def of_hand(self, number: int, which: int) -> Any:
        consumer = self.workers[number].consumer
        if consumer is None or not consumer.held:
            self.take(number, 1, ())
        consumer = self.workers[number].consumer
        return consumer.held.pop(which % len(consumer.held)) if consumer and consumer.held else None


def test_stories_of_a_queue(story_seed: int) -> None:
    run_stories(QueueMachine, story_seed, stories=25, steps=25)
