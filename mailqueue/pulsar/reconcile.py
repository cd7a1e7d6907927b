"""Reads what the topics of a queue hold, without taking any of it, and takes out the mails that a caller names.

Delayed mails are read before those that wait, so that none slips past on its way to these. Traffic goes on: what seems
to have lost its bytes is looked for once more, as a mail that is done loses them on purpose.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from mailmend.mailqueue.comparison import BadMessage, LiveMail, Mended, TablesSide
from mailmend.mailqueue.pulsar.broker.topics import StoredMessage, Topics
from mailmend.mailqueue.pulsar.deletions import Deletions
from mailmend.mailqueue.pulsar.parts import dead_letters, is_deleted, place_of, read_mails
from mailmend.mailqueue.queue import IDS_MAX, MailQueue, refuse_too_many
from mailmend.mailqueue.rabbitmq.reconcile import missing_among
from mailmend.mailqueue.rules.filters import MailFilter
from mailmend.mailqueue.rules.mails import Listed, Whereabouts
from mailmend.model.blobs import Blobs
from mailmend.model.errors import BadPayload, BrokerUnreachable
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.ports import Clock

DEAD: Final = "it is a dead letter: redrive it, then it can be"
"""Why a mail is not taken out."""


@dataclass(frozen=True, slots=True)
class TopicsLook:
    """What the topics of one queue held.

    Attributes:
        mails: those that wait, and those that are delayed as far as they are named.
    """

    side: TablesSide
    mails: Mapping[EnqueueId, LiveMail]


@dataclass(frozen=True, slots=True)
class QueueTopics:
    """The topics of one queue, to be read."""

    queue: QueueName
    topics: Topics
    clock: Clock

    async def look(self, ids_max: int = IDS_MAX) -> TopicsLook:
        """All of them; too many mails that wait are refused, delayed ones beyond the limit are only counted.

        Raises:
            UnsafeRequest: there are too many.
            BrokerUnreachable: a partition is not there.
        """
        mails: dict[Whereabouts, dict[EnqueueId, LiveMail]] = {whereabouts: {} for whereabouts in Whereabouts}
        marked = set[EnqueueId]()
        bad = list[BadMessage]()
        beyond = 0
        async with aclosing(self._messages(bad.append)) as messages:
            async for listed, deleted in messages:
                one = listed.queued.enqueue_id
                some = mails[listed.whereabouts]
                if deleted:
                    marked.add(one)
                elif listed.whereabouts is Whereabouts.DELAYED and len(some) >= ids_max:
                    beyond += 1
                else:
                    some[one] = LiveMail.of(listed)
                    refuse_too_many(len(some), f"mails that wait in {self.queue}", ids_max)
        live = mails[Whereabouts.WAITING]
        delayed = mails[Whereabouts.DELAYED]
        side = TablesSide(live, frozenset(marked), frozenset(delayed.keys() - live.keys()), beyond, bad=tuple(bad))
        return TopicsLook(side, delayed | live)

    async def missing_among(self, blobs: Blobs, mails: Mapping[EnqueueId, LiveMail]) -> frozenset[EnqueueId]:
        """The mails that are in the queue and have lost their bytes."""
        if not (lacking := await missing_among(blobs, mails)):
            return lacking
        still = set[EnqueueId]()
        async with aclosing(self._messages(lambda _: None)) as messages:
            async for listed, deleted in messages:
                if not deleted and listed.queued.enqueue_id in lacking:
                    still.add(listed.queued.enqueue_id)
        return frozenset(still)

    async def marked(
        self, opened: MailQueue, mark: frozenset[EnqueueId], keep: Callable[[Listed], Awaitable[None]], *, dry_run: bool
    ) -> Mended:
        """Delete mails, each kept first. One that was deleted before is kept already; a dead letter stays."""
        met = set[EnqueueId]()

        async def kept(one: Listed) -> None:
            if not dry_run:
                await keep(one)
            met.add(one.queued.enqueue_id)

        await opened.delete(MailFilter(enqueue_ids=mark), dry_run=dry_run, on_removed=kept)
        unmet = mark - met
        if unmet:
            unmet = unmet.difference((await Deletions(self.topics, self.queue, self.clock).look()).mails)
        dead = await self._dead_among(unmet)
        failed = tuple(f"{enqueue_id} could not be marked: {DEAD}" for enqueue_id in sorted(dead))
        return Mended(marked=mark - dead, unkept=unmet - dead, failed=failed)

    async def _messages(self, on_bad: Callable[[BadMessage], None]) -> AsyncGenerator[tuple[Listed, bool]]:
        """Each mail that lies there, and whether it is deleted."""
        known = await Deletions(self.topics, self.queue, self.clock).look()
        for whereabouts in (Whereabouts.DELAYED, Whereabouts.WAITING):
            topic, subscription = place_of(whereabouts, self.queue)
            there = await self.topics.backlog(topic, subscription)
            if there and there.missing:
                raise BrokerUnreachable(
                    f"the topic {topic} lacks its partition {there.missing[0]}",
                    mend="Its mails are lost if it was deleted. pulsar-admin topics create-missed-partitions "
                    f"{self.topics.namespace}/{topic} makes an empty one.",
                )

            def unreadable(message: StoredMessage, error: BadPayload, topic: str = topic) -> None:
                on_bad(BadMessage(topic, str(message.place), error.what))

            place = topic, subscription
            async with aclosing(read_mails(self.topics, place, whereabouts, on_unreadable=unreadable)) as mails:
                async for mail in mails:
                    yield mail.listed, is_deleted(self.queue, mail.message, mail.listed, known)

    async def _dead_among(self, mails: frozenset[EnqueueId]) -> frozenset[EnqueueId]:
        if not mails:
            return mails
        async with aclosing(dead_letters(self.topics, self.queue)) as letters:
            dead = {letter.listed.queued.enqueue_id async for letter in letters}
        return mails & dead
