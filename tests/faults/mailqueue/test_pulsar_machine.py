"""A queue over topics of many processes, deaths, a broker that forgets, and a James beside, held to a small model.

Whatever happens: what was deleted never comes after its delete was answered; what was acknowledged and not ended comes
in the end, and so does what was rejected and put back, unless James deleted a copy of it that waited. What was acked
does not come again, unless the broker forgot that, a retry was cut short, or two processes had it when the broker died.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from mailmend.mailqueue.pulsar.deletions import JamesFilter, filter_text
from mailmend.mailqueue.pulsar.dequeue import PulsarUnacked
from mailmend.mailqueue.pulsar.settings import (
    DEAD_SUBSCRIPTION,
    dead_topic,
    filter_scheduled_topic,
    filter_topic,
    out_subscription,
    out_topic,
)
from mailmend.mailqueue.pulsar.topics import TopicMessage, listed_of
from mailmend.mailqueue.queue import ChangedMail
from mailmend.mailqueue.rules.deletions import FilterKind
from mailmend.mailqueue.rules.mails import Listed, MailFilter, Whereabouts
from mailmend.mailqueue.rules.slices import EPOCH
from mailmend.model.errors import MailmendError
from tests.support.clock import VirtualClock
from tests.support.memory_blobs import MemoryBlobs
from tests.support.memory_topics import MemoryTopics
from tests.support.queue_wires import Side, StepFault
from tests.support.queue_world import Died, QueueMishap
from tests.support.queues import QUEUE, listed, mail
from tests.support.skewed import SkewedClock
from tests.support.thorough import run_stories
from tests.support.topic_wires import TopicWorker

T = TypeVar("T")

SKEWS: Final = (timedelta(0), timedelta(minutes=7), timedelta(minutes=-7))
SENDERS: Final = ("ada@example.org", "eve@example.org")
WORKERS: Final = st.integers(0, len(SKEWS) - 1)
DELAYS: Final = st.sampled_from((None, None, timedelta(seconds=30), timedelta(minutes=5), timedelta(days=2)))
MISHAPS: Final = st.just(()) | st.lists(
    st.builds(
        QueueMishap,
        st.sampled_from(StepFault),
        st.integers(0, 9),
        st.just(1),
        st.sampled_from((None, Side.BROKER, Side.READS)),
    ),
    min_size=1,
    max_size=2,
)
STEP_SECONDS: Final = 0.05
"""Between two steps: far less than for how long a process acts on what it knows."""


class TopicQueueMachine(RuleBasedStateMachine):
    """The stories, on twins, under a clock that is turned by hand.

    Attributes:
        owed: mails that must come, or be listed.
        deleted: mails that must not come any more.
        perhaps_deleted: mails whose removal was cut short: whether their deletion is published is not known here. Where
            it is, a dead letter of such a mail is not put back either.
        done: mails that were acked or rejected.
        doubtful: those that may come again, as no queue promises more than delivery at least once.
        james_was_at: when James deleted last, by sender.
        deleted_by_james: mails that waited then. The bytes go with them, and a dead letter of the mail has the same.
        unwritten: what was done since the broker wrote what was acknowledged.
    """

    @initialize(
        partitions=st.sampled_from((0, 0, 2)),
        mails=st.lists(st.tuples(WORKERS, st.sampled_from(SENDERS), DELAYS), max_size=6),
    )
    def begin(self, partitions: int, mails: Sequence[tuple[int, str, timedelta | None]]) -> None:
        self.runner, self.clock = asyncio.Runner(), VirtualClock()
        self.topics, self.blobs = MemoryTopics(self.clock, partitions), MemoryBlobs(self.clock)
        self.workers = [TopicWorker(QUEUE, self.topics, self.blobs, SkewedClock(self.clock, ahead)) for ahead in SKEWS]
        self.crowd = 0
        self.owed, self.deleted, self.done = set[str](), set[str](), set[str]()
        self.perhaps_deleted = set[str]()
        self.doubtful, self.unwritten = set[str](), set[str]()
        self.james_was_at: dict[str, datetime] = {}
        self.deleted_by_james = set[str]()
        for worker in self.workers:
            self.runner.run(worker.start())
        for number, sender, delay in mails:
            self.enqueue(number, sender, delay)

    @rule(number=WORKERS, sender=st.sampled_from(SENDERS), delay=DELAYS, mishaps=MISHAPS)
    def enqueue(self, number: int, sender: str, delay: timedelta | None, mishaps: Sequence[QueueMishap] = ()) -> None:
        self.crowd += 1
        name = f"mail-{self.crowd}"
        envelope = mail(name, sender=sender)
        with suppress(MailmendError, Died):
            self.by(number, lambda one: one.queue.enqueue(envelope, name.encode(), delay=delay), mishaps)
            if self.james_was_at.get(sender, EPOCH) < self.clock.now + SKEWS[number]:
                self.owed.add(name)

    @rule(number=WORKERS, most=st.integers(1, 3), prefetch=st.integers(1, 4), mishaps=MISHAPS)
    def take(self, number: int, most: int, prefetch: int = 4, mishaps: Sequence[QueueMishap] = ()) -> None:
        with suppress(MailmendError, Died):
            for one in self.by(number, lambda worker: worker.taken(most, prefetch), mishaps):
                self.came(one)

    @rule(number=WORKERS, mishaps=MISHAPS)
    def ack(self, number: int, mishaps: Sequence[QueueMishap]) -> None:
        if one := self.of_hand(number):
            self.settled(one, number, lambda _: one.ack(), mishaps)

    @rule(number=WORKERS, mishaps=MISHAPS)
    def reject(self, number: int, mishaps: Sequence[QueueMishap]) -> None:
        if one := self.of_hand(number):
            self.settled(one, number, lambda _: one.reject(), mishaps)

    @rule(number=WORKERS, delay=st.sampled_from((timedelta(0), timedelta(minutes=1), None)), mishaps=MISHAPS)
    def retry(self, number: int, delay: timedelta | None, mishaps: Sequence[QueueMishap]) -> None:
        if one := self.of_hand(number):
            self.unwritten.add(one.mail.name)
            try:
                self.by(number, lambda _: one.retry(delay), mishaps)
            except (MailmendError, Died):
                self.doubtful.add(one.mail.name)

    @rule(number=WORKERS)
    def leave(self, number: int) -> None:
        self.by(number, lambda worker: worker.leave())

    @rule(number=WORKERS, sender=st.sampled_from((*SENDERS, None)), mishaps=MISHAPS)
    def delete(self, number: int, sender: str | None, mishaps: Sequence[QueueMishap]) -> None:
        self.delete_at_once((number,), sender, mishaps)

    @rule(sender=st.sampled_from((*SENDERS, None)))
    def two_delete_at_once(self, sender: str | None) -> None:
        self.delete_at_once((0, 1), sender, ())

    @rule(number=WORKERS, mishaps=MISHAPS)
    def purge(self, number: int, mishaps: Sequence[QueueMishap]) -> None:
        """Every mail and every dead letter."""
        letters = {one.queued.mail.name for one in self.letters()}
        kept = set[str]()

        async def keep(one: Listed) -> None:
            kept.add(one.queued.mail.name)

        try:
            self.by(number, lambda worker: worker.queue.purge(on_removed=keep), mishaps)
        except (MailmendError, Died):
            self.doubtful |= kept
            self.perhaps_deleted |= kept
        else:
            self.deleted |= kept
            assert not self.letters(), f"left of {letters}"
        self.owed -= kept

    @rule(number=WORKERS, mishaps=MISHAPS)
    def redrive(self, number: int, mishaps: Sequence[QueueMishap] = ()) -> None:
        """What was rejected is owed again, as if enqueued now; not what was acked, came again, and has no bytes."""
        letters = [one for one in self.letters() if one.queued.mail.name not in self.deleted]
        back = {one.queued.mail.name for one in letters}
        self.unwritten |= back
        self.doubtful |= back if mishaps else set()
        with suppress(MailmendError, Died):
            self.by(number, lambda worker: worker.queue.redrive(), mishaps)
            # A consumer may have taken a mail without bytes at once, which made it a dead letter again.
            assert not [one for one in self.letters() if self.has_bytes(one)]
            self.done -= back
            now = self.clock.now + SKEWS[number]
            for letter in letters:
                name = letter.queued.mail.name
                deleted_at = self.james_was_at.get(letter.queued.mail.sender or "", EPOCH)
                gone = self.deleted_by_james | self.perhaps_deleted
                if deleted_at < now and name not in gone and self.has_bytes(letter):
                    self.owed.add(name)

    def has_bytes(self, letter: Listed) -> bool:
        return {letter.queued.blobs.header, letter.queued.blobs.body} <= set(self.blobs.store.ids)

    def letters(self) -> list[Listed]:
        async def found() -> list[Listed]:
            async with aclosing(self.topics.unacked(dead_topic(QUEUE), DEAD_SUBSCRIPTION)) as messages:
                return [listed_of(one, Whereabouts.WAITING) async for one in messages]

        return self.run(found())

    def delete_at_once(self, numbers: Sequence[int], sender: str | None, mishaps: Sequence[QueueMishap]) -> None:
        kept = set[str]()

        async def keep(one: Listed) -> None:
            assert one.queued.mail.name not in self.deleted, "it was deleted before"
            kept.add(one.queued.mail.name)

        async def removed(_: TopicWorker) -> int:
            others = [self.workers[one].queue.delete(MailFilter(sender=sender), on_removed=keep) for one in numbers]
            return sum([one.count for one in await asyncio.gather(*others)])

        try:
            count = self.by(numbers[0], removed, mishaps)
        except (MailmendError, Died):
            self.owed -= kept
            self.doubtful |= kept
            self.perhaps_deleted |= kept
        else:
            assert len(kept) <= count <= len(kept) * len(numbers)
            self.deleted |= kept
            self.owed -= kept

    @rule(sender=st.sampled_from(SENDERS))
    def james_deletes(self, sender: str) -> None:
        """By the clock of everybody who is right; what is published later by one that is behind may be gone too."""
        there = self.run(listed(self.workers[0].queue, MailFilter(sender=sender)))
        text = filter_text(JamesFilter(FilterKind.SENDER, sender, 3))
        for topic in (filter_topic(QUEUE), filter_scheduled_topic(QUEUE)):
            self.run(self.topics.create(topic, "james"))
            self.run(self.topics.publish(topic, TopicMessage(text)))
        self.clock.advance(1)
        self.deleted_by_james |= {one.queued.mail.name for one in there}
        self.owed -= self.deleted_by_james
        self.james_was_at[sender] = self.clock.now

    @rule(number=WORKERS, mishaps=MISHAPS)
    def flush(self, number: int, mishaps: Sequence[QueueMishap]) -> None:
        with suppress(MailmendError, Died):
            self.by(number, lambda worker: worker.queue.flush(), mishaps)

    @rule(number=WORKERS, mishaps=MISHAPS)
    def move_due(self, number: int, mishaps: Sequence[QueueMishap]) -> None:
        with suppress(MailmendError, Died):
            self.by(number, lambda worker: worker.queue.move_due(), mishaps)

    @rule(number=WORKERS, mishaps=MISHAPS)
    def change(self, number: int, mishaps: Sequence[QueueMishap]) -> None:
        """Delayed mails are put off by an hour, each in its place."""

        def put_off(one: Listed) -> ChangedMail:
            assert one.due_at is not None
            return ChangedMail(replace(one.queued.mail, state="put off"), one.due_at + timedelta(hours=1))

        with suppress(MailmendError, Died):
            self.by(number, lambda worker: worker.queue.change(put_off), mishaps)

    @rule(number=WORKERS, mishaps=MISHAPS)
    def tend(self, number: int, mishaps: Sequence[QueueMishap]) -> None:
        with suppress(MailmendError, Died):
            self.by(number, lambda worker: worker.queue.keep_up(), mishaps)

    @rule(minutes=st.sampled_from((1, 10, 30, 60, 60 * 24)))
    def time_goes_by(self, minutes: int) -> None:
        """The broker writes each minute what was acknowledged."""
        self.clock.advance(60 * minutes)
        self.topics.write_acks()
        self.unwritten.clear()

    @rule()
    def the_broker_dies(self) -> None:
        """It forgets what it has not written, and gives what a process has in hand to another one too."""
        for message in self.topics.in_hand(out_topic(QUEUE), out_subscription(QUEUE)):
            self.doubtful.add(listed_of(message, Whereabouts.WAITING).queued.mail.name)
        self.topics.die()
        self.doubtful |= self.unwritten

    @rule(number=WORKERS)
    def browse(self, number: int) -> None:
        found = self.by(number, lambda worker: listed(worker.queue))
        assert not self.deleted & {one.queued.mail.name for one in found}

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            try:
                self.all_ends_well()
            finally:
                self.run(self.closed())
                self.runner.close()

    def all_ends_well(self) -> None:
        """What is owed comes; then no deletion is left, once time has passed."""
        for worker in self.workers:
            self.run(worker.leave())
        self.redrive(0)
        self.by(0, lambda worker: worker.queue.flush())
        for _ in range(2):
            while mails := self.by(0, lambda worker: worker.taken(1, 3)):
                self.came(mails[0])
                self.owed.discard(mails[0].mail.name)
                self.done.add(mails[0].mail.name)
                self.by(0, lambda _, one=mails[0]: one.ack())
            self.by(0, lambda worker: worker.queue.flush())
        assert not self.owed, f"lost: {self.owed}"
        for _ in range(3):
            self.time_goes_by(60)
            self.by(0, lambda worker: worker.queue.keep_up())
        assert self.by(0, lambda worker: worker.queue.keep_up()).left == 0
        assert self.by(0, lambda worker: listed(worker.queue)) == []

    # How it is done

    def came(self, one: PulsarUnacked) -> None:
        name = one.mail.name
        assert name not in self.deleted, f"{name} came although it was deleted"
        assert name not in self.done or name in self.doubtful, f"{name} came although it was done"
        assert one.content == name.encode()

    def settled(self, one: PulsarUnacked, number: int, settle: Any, mishaps: Sequence[QueueMishap]) -> None:
        name = one.mail.name
        self.owed.discard(name)
        self.done.add(name)
        self.unwritten.add(name)
        try:
            self.by(number, settle, mishaps)
        except (MailmendError, Died):
            self.doubtful.add(name)

    def of_hand(self, number: int) -> PulsarUnacked | None:
        if not self.workers[number].held:
            self.take(number, 1)
        held = self.workers[number].held
        return held.pop() if held else None

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(story)

    def by(self, number: int, act: Any, mishaps: Sequence[QueueMishap] = ()) -> Any:
        """One process does something while something may befall it; if it dies of that, it is replaced."""
        worker = self.workers[number]

        async def story() -> Any:
            worker.fortune.arm(*mishaps)
            try:
                return await act(worker)
            except asyncio.CancelledError:
                if not worker.fortune.dead:
                    raise
                raise Died from None  # whoever waits for something that died is cancelled
            finally:
                worker.fortune.arm()
                if worker.fortune.dead:
                    await worker.restart()

        self.clock.advance(STEP_SECONDS)
        return self.run(story())

    async def closed(self) -> None:
        for worker in self.workers:
            await worker.leave()
            with suppress(Died, MailmendError):
                await worker.queue.close()


def test_stories_of_a_queue_over_topics(story_seed: int) -> None:
    run_stories(TopicQueueMachine, story_seed, stories=40, steps=25)
