"""What the messages of a broker refer to: queues of RabbitMQ, and topics of Pulsar.

A message's mail has a row, which refers to the same blobs, unless that row is lost, or James runs
without them (`cassandra.view.enabled`, which its own checklist advises). Messages that wait cannot
be searched while consumers run, and counts cannot tell: a lost row and a lost message cancel out.
So either the queues are empty, or a person knows how old the oldest message may be: younger blobs
stay. Dead letters may be of any age, and are read.

Every topic of the namespace that may hold mails is read, by what was not acknowledged at one
moment: first all topics are asked what is acknowledged, then all of them how far they go, then
their messages are read. A mail is published at its new place before it is acknowledged at its old
one, so at that moment each was in some topic, and is read there wherever it goes meanwhile. What
the broker has deleted by then is noticed by the number of messages, and all is read anew. The
references lie in a file: there may be more mails than fit in memory.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from mailmend.mailqueue.broker import Broker, Depth
from mailmend.mailqueue.collection.references import KnownReferences, Reference
from mailmend.mailqueue.collection.scan import BlobLines
from mailmend.mailqueue.comparison import DRAIN_MAX, refuse_burying
from mailmend.mailqueue.concurrency import in_order
from mailmend.mailqueue.every_queue import BLOBS_AT_ONCE, is_missing
from mailmend.mailqueue.pulsar.deletions import Deletions
from mailmend.mailqueue.pulsar.parts import is_deleted
from mailmend.mailqueue.pulsar.settings import MailTopic, mail_topics
from mailmend.mailqueue.pulsar.topics import StoredMessage, Topics, listed_of, pulsar_queued_of
from mailmend.mailqueue.rabbitmq.reconcile import dead_letters_named
from mailmend.mailqueue.rules.deletions import KnownDeletions
from mailmend.mailqueue.rules.mails import QueuedMail
from mailmend.mailqueue.rules.places import Backlog, MessagePlace
from mailmend.model.blobs import Blobs
from mailmend.model.errors import BadPayload, SourceUnread
from mailmend.model.ids import QueueName
from mailmend.model.ports import Clock

NAME = "messages at the broker"
_OLDEST = "Name an age that no message there has reached (--oldest-message 7d), and what is younger stays."


async def broker_references(
    broker: Broker, clock: Clock, queues: Iterable[QueueName], *, age_known: bool
) -> KnownReferences:
    """The references of the queues' dead letters.

    Args:
        broker: where the dead letters are.
        clock: limits how long a message is waited for.
        queues: all queues that may refer to the store.
        age_known: whether a person has said how old messages may be; then those that wait need not be read.

    Raises:
        SourceUnread: messages that were not read may refer to any blob.
        UnsafeRequest: looking at dead letters would lose them.
    """
    found = list[Reference]()
    for queue in queues:
        depth = await broker.depth(queue)
        if not age_known and (why := _why_unknown(queue, depth)):
            raise SourceUnread(NAME, why, mend=_OLDEST)
        if not depth.dead:
            continue
        if depth.dead > DRAIN_MAX:
            why = f"{queue} has {depth.dead:,} dead letters, and {DRAIN_MAX:,} can be read"
            raise SourceUnread(NAME, why, mend=f"Publish them again, or drop them: mailmend queue redrive {queue}")
        refuse_burying(queue, depth, "Publish them again, or drop them, first: mailmend queue redrive.")
        letters = await dead_letters_named(broker, clock, queue, depth.dead)
        if letters.bad or letters.taken < depth.dead:
            why = f"of {depth.dead:,} dead letters of {queue}, {letters.taken - letters.bad:,} could be read"
            raise SourceUnread(NAME, why, mend=f"Look at them: mailmend queue redrive {queue} --dry-run")
        for blob in sorted(letters.blobs):
            found.append(Reference(blob, f"dead letter of {queue}"))
    return KnownReferences(NAME, found)


def _why_unknown(queue: QueueName, depth: Depth) -> str | None:
    if depth.in_hands is None:
        return f"the broker does not tell how many messages of {queue} are in consumers' hands (--broker-management)"
    if depth.ready or depth.in_hands:
        return f"{depth.ready:,} messages of {queue} wait and {depth.in_hands:,} are unacked, and may refer to blobs"
    return None


TRIES: Final = 3
"""How often all is read where topics change meanwhile."""

Cut = Sequence[tuple[MailTopic, Backlog]]
"""Every topic of mails, and what of it was not acknowledged at one moment, the same for all."""


@dataclass(frozen=True, slots=True)
class TopicReferences:
    """References that were read of topics; a `ReferenceSource`.

    Attributes:
        lines: in a file that is there as long as its folder.
        after: what was not acknowledged when all had been read: a mail that is done by then needs no blobs.
    """

    lines: BlobLines
    after: Sequence[Backlog]
    name: str = NAME

    def references(self) -> Iterator[Reference]:
        for header, body, referrer, number, place, may_need in self.lines:
            needed = may_need and self.after[number].holds(MessagePlace(*place))
            yield Reference(header, referrer, needed)
            yield Reference(body, referrer, needed)


async def topic_references(
    topics: Topics, clock: Clock, folder: Path, named: Collection[QueueName] = ()
) -> TopicReferences:
    """The references of all mails of the namespace, in a file in the folder.

    Args:
        topics: the namespace.
        clock: tells how old a look at deletions is.
        folder: where the references are written.
        named: queues that have to be there.

    Raises:
        SourceUnread: some mail may not have been seen.
    """
    why = ""
    for _ in range(TRIES):
        cut = await cut_of(topics, named)
        with closing(BlobLines(folder / "topics")) as lines:
            if why := await _short_of(topics, clock, cut, lines):
                continue
        after = []
        for topic, _ in cut:
            after.append(await topics.backlog(topic.topic, topic.subscription) or Backlog())
        return TopicReferences(lines, after)
    raise _unread(why, "Run it again; if it says the same: pulsar-admin topics stats-internal TOPIC")


async def without_blobs(
    look: Callable[[], Awaitable[TopicReferences]], blobs: Blobs, pause: Callable[[], Awaitable[object]]
) -> tuple[int, list[str]]:
    """How many mails there are, and those whose bytes are gone, by their referrers: at two looks.

    A blob that is gone before the second look, in which its mail needs it still, did not go with its mail.

    Raises:
        SourceUnread: some mail may not have been seen.
    """
    first = await look()
    gone = await _gone(blobs, (reference.blob_id for reference in first.references() if reference.needed))
    if not gone:
        return first.lines.count, []
    await pause()
    second = await look()
    doubtful = [reference for reference in second.references() if reference.needed and reference.blob_id in gone]
    still = await _gone(blobs, (reference.blob_id for reference in doubtful))
    referrers: dict[str, None] = {}
    for reference in doubtful:
        if reference.blob_id in still:
            referrers[reference.referrer] = None
    return second.lines.count, list(referrers)


async def _gone(blobs: Blobs, ids: Iterable[str]) -> set[str]:
    """Those that the store lacks."""
    async with aclosing(in_order(ids, partial(is_missing, blobs), BLOBS_AT_ONCE)) as found:
        return {blob_id async for blob_id, is_gone in found if is_gone}


async def cut_of(topics: Topics, named: Collection[QueueName] = ()) -> Cut:
    """What of all topics is not acknowledged at one moment of this call.

    Raises:
        SourceUnread: a topic, or a partition of one, is not there.
    """
    why = ""
    for _ in range(TRIES):
        before = await _backlogs(topics)
        after = await _backlogs(topics)
        if why := _why_not(before, after):
            continue
        if lacking := sorted(set(named) - {topic.queue for topic in before}):
            raise _unread(f"no topic of the queue {lacking[0]} is in the namespace {topics.namespace}", "Is it named?")
        if not before:
            raise _unread(
                f"no mail queue is in the namespace {topics.namespace}",
                "Name James's own: --broker pulsar://host:6650/tenant/namespace; or say --no-broker where none ever "
                "held a mail of this store.",
            )
        cut = []
        for topic, backlog in before.items():
            if backlog:
                cut.append((topic, backlog.until(after[topic] or Backlog())))
        return cut
    raise _unread(why, "Look at them: pulsar-admin topics stats-internal TOPIC; topics create-missed-partitions TOPIC")


async def _backlogs(topics: Topics) -> Mapping[MailTopic, Backlog | None]:
    backlogs = {}
    for topic in mail_topics(await topics.names()):
        backlogs[topic] = await topics.backlog(topic.topic, topic.subscription)
    return backlogs


def _why_not(before: Mapping[MailTopic, Backlog | None], after: Mapping[MailTopic, Backlog | None]) -> str:
    """Why there is no moment at which all of it was so; empty where there is one."""
    if changed := before.keys() ^ after.keys():
        return f"the topic {min(topic.topic for topic in changed)} came or went"
    for topic, backlog in (*before.items(), *after.items()):
        if backlog is None:
            return f"the topic {topic.topic} is listed, and not there"
        if backlog.missing:
            return f"the topic {topic.topic} lacks its partition {backlog.missing[0]}"
    for topic, backlog in before.items():
        if backlog and (later := after[topic]) and backlog.partitions.keys() != later.partitions.keys():
            return f"the partitions of the topic {topic.topic} changed"
    return ""


async def _short_of(topics: Topics, clock: Clock, cut: Cut, lines: BlobLines) -> str:
    """Write the references of all; say of which topic there were too few messages; empty where of none."""
    deletions = dict[QueueName, KnownDeletions]()
    for number, (topic, backlog) in enumerate(cut):
        reading = _Reading(lines, number, topic, deletions)
        await reading.read(topics, clock, backlog)
        least = sum(partition.count_at_least for partition in backlog.partitions.values())
        if reading.count < least:
            return f"of {least:,} messages of the topic {topic.topic}, {reading.count:,} could be read"
    return ""


@dataclass(slots=True)
class _Reading:
    """Of one topic.

    Attributes:
        deletions: of queues whose topics were read before.
        count: how many of its messages were read.
    """

    lines: BlobLines
    number: int
    where: MailTopic
    deletions: dict[QueueName, KnownDeletions]
    count: int = 0

    async def read(self, topics: Topics, clock: Clock, backlog: Backlog) -> None:
        if self.where.queue not in self.deletions:
            self.deletions[self.where.queue] = await Deletions(topics, self.where.queue, clock).look()
        async with aclosing(topics.held(self.where.topic, backlog)) as messages:
            async for message in messages:
                self.count += 1
                self._write(message)

    def _write(self, message: StoredMessage) -> None:
        place = message.place
        try:
            queued, needed = self._mail_of(message)
        except BadPayload as error:
            ledger, entry = place.position
            raise _unread(
                f"the message {place} of {self.where.topic} is no mail: {error.what}",
                f"Look at it: pulsar-admin topics get-message-by-id -l {ledger} -e {entry} {self.where.topic}; what is "
                "no mail is a dead letter once it is consumed.",
            ) from error
        referrer = f"{self.where.topic} {place} {queued.enqueue_id}"
        blobs = queued.blobs
        self.lines.add(
            blobs.header, blobs.body, referrer, self.number, (place.partition, place.ledger, place.entry), needed
        )

    def _mail_of(self, message: StoredMessage) -> tuple[QueuedMail, bool]:
        """The mail, and whether it needs its blobs: a dead letter and a deleted mail may have lost them."""
        if self.where.whereabouts is None:
            return pulsar_queued_of(message.payload), False
        listed = listed_of(message, self.where.whereabouts)
        return listed.queued, not is_deleted(self.where.queue, message, listed, self.deletions[self.where.queue])


def _unread(why: str, mend: str) -> SourceUnread:
    return SourceUnread(NAME, why, mend=mend)
