"""What one process knows of the deletions of a queue, and how it tells the others of its own.

Deletions lie on James's topics of filters. Each process that takes or moves mails reads all of them
before its first mail, and after that never acts on what it knew longer ago than `FRESH`: before it
hands a mail out it asks the broker whether there is more. So a deletion holds everywhere `FRESH`
after it was published, and the process that deletes waits that long before it reports it. A process
that cannot ask hands nothing out.

The payload of such a message is a filter that James can read and that holds for no mail: James
bounds filters by a number that each of its producers counts anew, so one that it applied would drop
mails that come later. Filters, deletions and checkpoints are written and read to the byte.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from mailmend.mailqueue.concurrency import finished
from mailmend.mailqueue.pulsar.settings import OWN_SUBSCRIPTION, PulsarForm, filter_scheduled_topic, filter_topic
from mailmend.mailqueue.pulsar.topics import Following, StoredMessage, TopicMessage, Topics, form_text
from mailmend.mailqueue.rules.deletions import (
    Checkpoint,
    DeletedMail,
    Deletion,
    FilterKind,
    JamesDeletion,
    KnownDeletions,
    Notice,
    Reach,
    TopicProgress,
)
from mailmend.mailqueue.rules.james_json import json_text, mapping_of, object_in, refuse, text_of
from mailmend.mailqueue.rules.places import EntryPosition, MessagePlace, TopicPlace, position_of
from mailmend.model.errors import BadPayload
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.ports import Clock

FRESH: Final = timedelta(seconds=0.5)
"""For how long a process acts on what it knows."""

SLACK: Final = timedelta(seconds=0.1)
"""How much longer a process that deletes waits: the time between a process's last look at what it knows and its act."""

DELETED: Final = "mailmend-deleted"
"""The property that names deleted mails."""

CHECKPOINT: Final = "mailmend-checkpoint"
"""The property that says how far all was."""

HEARD_MAX: Final = 5_000
"""The number of new notices after which a process forgets all and reads the stored ones again: others have expired.

Those that lay there when it read them do not count: where they are more, it would do nothing but read them again.
"""

_LOG: Final = logging.getLogger("mailmend.queue")


class Deletions:
    """The deletions of one queue, as one process knows them."""

    def __init__(self, topics: Topics, queue: QueueName, clock: Clock) -> None:
        self._topics = topics
        self._queue = queue
        self._clock = clock
        self._following: list[tuple[str, Following]] = []
        self._refreshing: asyncio.Task[None] | None = None
        self._asked_at = float("-inf")
        self._published_at = float("-inf")
        self._heard = 0
        self._hearing = self.last_known = KnownDeletions()
        self.in_hand: set[EnqueueId] = set()
        """Mails that this process has out: a deletion of one of them is remembered for as long."""

    @property
    def is_fresh(self) -> bool:
        """Whether `last_known` may be acted on."""
        return self._clock.monotonic() - self._asked_at <= FRESH.total_seconds()

    async def known(self) -> KnownDeletions:
        """All that was published until `FRESH` ago, at least.

        Raises:
            CannotReach: that cannot be known.
        """
        if self.is_fresh:
            return self.last_known
        return await self._after_a_refresh()

    async def known_now(self) -> KnownDeletions:
        """All that was published before this was called, at least.

        Raises:
            CannotReach: that cannot be known.
        """
        if self._refreshing is not None:
            await asyncio.wait((self._refreshing,))
        return await self._after_a_refresh()

    async def look(self) -> KnownDeletions:
        """What is known, for who only looks: creates nothing."""
        if self._following:
            return await self.known_now()
        found = KnownDeletions()
        for notice in await notices(self._topics, self._queue):
            found.hear(notice)
        return found

    async def publish(self, form: PulsarForm, mails: Sequence[DeletedMail]) -> None:
        """From now on the mails are deleted: to be published before anything of them is acknowledged."""
        topic = filter_topic(self._queue)
        await self._topics.create(topic, OWN_SUBSCRIPTION)
        await self._topics.publish(topic, TopicMessage(filter_text(FOR_NO_MAIL, form), {DELETED: deleted_text(mails)}))
        self._published_at = self._clock.monotonic()

    async def are_heard(self) -> None:
        """Wait until every process knows of what was published here, or knows that it knows too little."""
        until = self._published_at + (FRESH + SLACK).total_seconds()
        if (left := until - self._clock.monotonic()) > 0:
            await self._clock.pause(left)

    async def close(self) -> None:
        if self._refreshing is not None:
            await asyncio.gather(self._refreshing, return_exceptions=True)
        await self._let_go()

    async def _after_a_refresh(self) -> KnownDeletions:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.ensure_future(self._refreshed())
            self._refreshing.add_done_callback(_looked_at)
        await asyncio.shield(self._refreshing)
        return self.last_known

    async def _refreshed(self) -> None:
        asked_at = self._clock.monotonic()
        if self._heard > HEARD_MAX:
            await self._let_go()
        is_first = not self._following
        if is_first:
            await self._begun()
        for topic, following in self._following:
            for message in await following.news():
                self._heard += 1
                self._hearing.hear(notice_of(topic, message))
        if is_first:
            self._heard = 0
        self.last_known = self._hearing
        self._asked_at = asked_at

    async def _begun(self) -> None:
        """Follow the topics from what is not expired on, and forget the rest."""
        topics = filter_topics(self._queue)
        following = list[tuple[str, Following]]()
        try:
            for topic in topics:
                following.append((topic, await self._topics.follow(topic, OWN_SUBSCRIPTION)))
        except BaseException:
            for _, reader in following:
                await finished(reader.close())
            raise
        before = self.last_known.mails
        kept = {enqueue_id: before[enqueue_id] for enqueue_id in self.in_hand if enqueue_id in before}
        self._hearing = KnownDeletions(kept)
        self._following = following
        self._heard = 0

    async def _let_go(self) -> None:
        following = self._following
        self._following = []
        for _, reader in following:
            await finished(reader.close())


def _looked_at(task: asyncio.Task[None]) -> None:
    """Take its error, which may have no waiting caller by now: the next caller begins anew."""
    if not task.cancelled():
        task.exception()


def filter_topics(queue: QueueName) -> tuple[str, str]:
    """Both topics of deletions. Ours lie on the first; James's on both, and each is about the whole queue."""
    return filter_topic(queue), filter_scheduled_topic(queue)


async def notices(topics: Topics, queue: QueueName) -> list[Notice]:
    """All that lies there."""
    found = list[Notice]()
    for topic in filter_topics(queue):
        async with aclosing(topics.unacked(topic, OWN_SUBSCRIPTION)) as messages:
            async for message in messages:
                found.append(notice_of(topic, message))
    return found


def checkpoint_message(progress: TopicProgress, form: PulsarForm) -> TopicMessage:
    return TopicMessage(filter_text(FOR_NO_MAIL, form), {CHECKPOINT: progress_text(progress)})


def notice_of(topic: str, message: StoredMessage) -> Notice:
    """The content of a message; an unreadable message deletes nothing."""
    where = TopicPlace(topic, message.place)
    at = message.published_at
    properties = message.properties
    try:
        if text := properties.get(DELETED):
            return Deletion(where, at, deleted_in(text))
        if text := properties.get(CHECKPOINT):
            return Checkpoint(where, at, progress_in(text))
        found = filter_of(message.payload)
        return JamesDeletion(where, at, found.kind, found.value)
    except BadPayload as error:
        _LOG.warning("a deletion cannot be read", extra={"place": str(where), "error": error.what})
        return Deletion(where, at)


@dataclass(frozen=True, slots=True)
class JamesFilter:
    """A deletion as James publishes it: every mail of that name, sender or recipient, up to a number of its sender's.

    Attributes:
        last_sequence_id: of the last message of the topic, by its producer's own counting: it means nothing for
            messages of another producer.
    """

    kind: FilterKind
    value: str
    last_sequence_id: int


def filter_text(one: JamesFilter, form: PulsarForm = PulsarForm.JAMES_3_9) -> str:
    last: Any = one.last_sequence_id
    if form is PulsarForm.JAMES_3_8:
        last = {"value": last}
    return form_text({one.kind.word: {one.kind.field: one.value, "lastSequenceId": last}}, form)


def filter_of(payload: bytes) -> JamesFilter:
    """A filter that any James wrote.

    Raises:
        BadPayload: the payload is not valid.
    """
    fields = object_in(payload, "the filter")
    kind = next((filter_kind for filter_kind in FilterKind if filter_kind.word in fields), None)
    if kind is None:
        refuse("the filter", "is of no known kind")
    inner = mapping_of(fields[kind.word], kind.word)
    last = inner.get("lastSequenceId")
    if isinstance(last, Mapping):
        last = last.get("value")
    if isinstance(last, bool) or not isinstance(last, int):
        refuse("lastSequenceId", "is not a whole number")
    return JamesFilter(kind, text_of(inner.get(kind.field), kind.field), last)


FOR_NO_MAIL: Final = JamesFilter(FilterKind.NAME, "", -1)


def deleted_text(mails: Sequence[DeletedMail]) -> str:
    """By topic: the ids of mails and the places of their messages."""
    found: dict[str, list[list[str]]] = {}
    for mail in mails:
        found.setdefault(mail.where.topic, []).append([mail.enqueue_id.hex, str(mail.where.place)])
    return json_text(found)


def deleted_in(text: str) -> tuple[DeletedMail, ...]:
    """Read what `deleted_text` writes.

    Raises:
        BadPayload: it is something else.
    """
    mails: list[DeletedMail] = []
    for topic, pairs in object_in(text, "the deletion").items():
        mails += [_deleted_mail(topic, pair) for pair in _list(pairs, "the deletion")]
    return tuple(mails)


def progress_text(progress: TopicProgress) -> str:
    return json_text(
        {"heard": _reach_text(progress.heard), "last": _reach_text(progress.last), "acked": _reach_text(progress.acked)}
    )


def progress_in(text: str) -> TopicProgress:
    """Read what `progress_text` writes.

    Raises:
        BadPayload: it is something else.
    """
    fields = object_in(text, "the checkpoint")
    heard = _reach(fields.get("heard"), "heard")
    last = _reach(fields.get("last"), "last")
    acked = _reach(fields.get("acked"), "acked")
    return TopicProgress(heard, last, acked)


def _deleted_mail(topic: str, pair: Any) -> DeletedMail:
    try:
        enqueue_id, place = (text_of(part, "a deleted mail") for part in _list(pair, "a deleted mail"))
        return DeletedMail(EnqueueId(UUID(hex=enqueue_id)), TopicPlace(topic, MessagePlace.parse(place)))
    except ValueError:
        refuse("a deleted mail", "is not an id and a place")


def _reach_text(reach: Reach) -> Mapping[str, Mapping[str, str]]:
    texts: dict[str, dict[str, str]] = {}
    for topic, partitions in reach.items():
        of_topic = texts.setdefault(topic, {})
        for number, (ledger, entry) in partitions.items():
            of_topic[str(number)] = f"{ledger}:{entry}"
    return texts


def _reach(found: Any, name: str) -> Reach:
    reach: dict[str, dict[int, EntryPosition]] = {}
    for topic, partitions in mapping_of(found, name).items():
        of_topic = reach.setdefault(topic, {})
        for number, text in mapping_of(partitions, name).items():
            partition, position = _position(number, text_of(text, name))
            of_topic[partition] = position
    return reach


def _position(number: str, text: str) -> tuple[int, EntryPosition]:
    try:
        return int(number), position_of(text)
    except ValueError:
        refuse("a position", "is not a position")


def _list(found: Any, name: str) -> list[Any]:
    if not isinstance(found, list):
        refuse(name, "is not a list")
    return found
