"""What the operations of one queue share, and what the queue holds.

A queue's mails are read from its topics, from the first message on that is not acknowledged; no
blob is read.

A comparison reads what the topics hold without taking any of it, and takes out the mails that a
caller names. Delayed mails are read before those that wait, so that none slips past on its way to
these. Traffic goes on: what seems to have lost its bytes is looked for once more, as a mail that is
done loses them on purpose.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from mailmend.mailqueue.comparison import BadMessage, LiveMail, Mended, TablesSide
from mailmend.mailqueue.every_queue import QueueParts, missing_among
from mailmend.mailqueue.pulsar.deletions import Deletions
from mailmend.mailqueue.pulsar.settings import (
    DEAD_SUBSCRIPTION,
    PulsarForm,
    dead_topic,
    out_subscription,
    out_topic,
    scheduled_subscription,
    scheduled_topic,
)
from mailmend.mailqueue.pulsar.topics import (
    StoredMessage,
    Topics,
    first_place,
    form_of,
    listed_of,
    origin_of,
    redriven_from,
)
from mailmend.mailqueue.queue import IDS_MAX, MailQueue, refuse_too_many
from mailmend.mailqueue.rules.deletions import KnownDeletions
from mailmend.mailqueue.rules.mails import EVERYTHING, Listed, ListingPosition, MailFilter, Whereabouts
from mailmend.mailqueue.rules.places import Backlog, MessagePlace
from mailmend.model.blobs import Blobs
from mailmend.model.errors import BadPayload, BrokerUnreachable
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.ports import Clock

_LOOKED_AT_MAX: Final = 20
"""How many mails are looked at to tell which James wrote them."""


@dataclass(frozen=True, slots=True)
class PulsarParts(QueueParts):
    """One queue's topics, blobs and clock, and what is built of them.

    Attributes:
        form: tells which James is to read what is published.
    """

    topics: Topics
    form: Callable[[], Awaitable[PulsarForm]]
    deletions: Deletions


class FormOfQueue:
    """Which James is to read what is published: the one that is named, or the one that wrote what lies there.

    That is looked for once, before the first mail is published; where nothing tells, it is James 3.9.
    """

    def __init__(self, topics: Topics, queue: QueueName, named: PulsarForm | None) -> None:
        self._topics = topics
        self._queue = queue
        self._form = named

    async def __call__(self) -> PulsarForm:
        if self._form is None:
            self._form = await self._given() or PulsarForm.JAMES_3_9
        return self._form

    async def _given(self) -> PulsarForm | None:
        for topic, subscription in (
            (out_topic(self._queue), out_subscription(self._queue)),
            (scheduled_topic(self._queue), scheduled_subscription(self._queue)),
        ):
            looked_at = 0
            async with aclosing(self._topics.unacked(topic, subscription)) as messages:
                async for message in messages:
                    looked_at += 1
                    try:
                        found = form_of(message.payload)
                    except BadPayload:
                        found = None
                    if found or looked_at == _LOOKED_AT_MAX:
                        return found
        return None


@dataclass(frozen=True, slots=True)
class FoundMail:
    """A message of a queue, and its mail."""

    message: StoredMessage
    listed: Listed


OnUnreadable = Callable[[StoredMessage, BadPayload], None]


def ignored(_message: StoredMessage, _error: BadPayload) -> None:
    """Do nothing about a message that no mail can be made of."""


def place_of(where: Whereabouts, queue: QueueName) -> tuple[str, str]:
    """Topic and subscription of the waiting or of the delayed mails."""
    if where is Whereabouts.WAITING:
        return out_topic(queue), out_subscription(queue)
    return scheduled_topic(queue), scheduled_subscription(queue)


async def backlog_of(parts: PulsarParts, whereabouts: Whereabouts) -> Backlog:
    return await parts.topics.backlog(*place_of(whereabouts, parts.queue)) or Backlog()


async def read_mails(
    topics: Topics,
    place: tuple[str, str],
    whereabouts: Whereabouts,
    after: MessagePlace | None = None,
    on_unreadable: OnUnreadable = ignored,
) -> AsyncGenerator[FoundMail]:
    """The mails that a subscription of a topic has not acknowledged, in the topic's order."""
    async with aclosing(topics.unacked(*place, after)) as messages:
        async for message in messages:
            try:
                yield FoundMail(message, listed_of(message, whereabouts))
            except BadPayload as error:
                on_unreadable(message, error)


async def found(
    parts: PulsarParts,
    whereabouts: Whereabouts,
    where: MailFilter = EVERYTHING,
    after: MessagePlace | None = None,
    on_unreadable: OnUnreadable = ignored,
    *,
    known: KnownDeletions | None,
) -> AsyncGenerator[FoundMail]:
    """The matching mails of one topic, in its order; without those that are `known` to be deleted."""
    if where.whereabouts not in {None, whereabouts}:
        return
    place = place_of(whereabouts, parts.queue)
    async with aclosing(read_mails(parts.topics, place, whereabouts, after, on_unreadable)) as mails:
        async for mail in mails:
            if where.matches(mail.listed) and not (known and is_deleted(parts.queue, mail.message, mail.listed, known)):
                yield mail


def dead_letters(topics: Topics, queue: QueueName) -> AsyncGenerator[FoundMail]:
    """The mails among the dead letters."""
    return read_mails(topics, (dead_topic(queue), DEAD_SUBSCRIPTION), Whereabouts.WAITING)


def is_deleted(queue: QueueName, message: StoredMessage, listed: Listed, known: KnownDeletions) -> bool:
    return known.hold(listed, first_place(queue, message, listed.whereabouts))


async def acknowledged(parts: PulsarParts, some: Sequence[FoundMail]) -> None:
    """Acknowledge deleted mails, before them the dead letters whose place they took, and delete their bytes."""
    letters = []
    for mail in some:
        letter = redriven_from(mail.message)
        if letter:
            letters.append(letter)
    await parts.topics.acknowledge(dead_topic(parts.queue), DEAD_SUBSCRIPTION, letters)
    for whereabouts in {mail.listed.whereabouts for mail in some}:
        topic, subscription = place_of(whereabouts, parts.queue)
        places = [mail.message.place for mail in some if mail.listed.whereabouts is whereabouts]
        await parts.topics.acknowledge(topic, subscription, places)
    for mail in some:
        await parts.blob_cleanup.add(mail.listed.queued.blobs, dequeued=False)


async def browse(parts: PulsarParts, where: MailFilter, after: ListingPosition | None) -> AsyncGenerator[Listed]:
    """The matching mails: those that wait, then the delayed ones; each in the order of its topic.

    A delayed mail whose move to the others was interrupted is listed among these alone.
    """
    moved = set[MessagePlace]()
    behind = None
    if after:
        behind = after.place
    known = await parts.deletions.look()
    if after is None or after.whereabouts is Whereabouts.WAITING:
        async with aclosing(found(parts, Whereabouts.WAITING, where, behind, known=known)) as waiting:
            async for mail in waiting:
                if origin := origin_of(mail.message):
                    moved.add(origin)
                yield mail.listed
        behind = None
    async with aclosing(found(parts, Whereabouts.DELAYED, where, behind, known=known)) as delayed:
        async for mail in delayed:
            if mail.message.place not in moved:
                yield mail.listed


DEAD: Final = "it is a dead letter: redrive it, then it can be"
"""Why a mail is not taken out."""


@dataclass(frozen=True, slots=True)
class QueueTopics:
    """The topics of one queue, to be read."""

    queue: QueueName
    topics: Topics
    clock: Clock

    async def look(self, ids_max: int = IDS_MAX) -> tuple[TablesSide, Mapping[EnqueueId, LiveMail]]:
        """What the topics hold, and the mails that wait or are delayed, as far as they are named.

        Too many mails that wait are refused; delayed mails beyond the limit are only counted.

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
        return side, delayed | live

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
