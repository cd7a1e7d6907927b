"""Mails that come into a queue, mails that are taken out of it, and dead letters that are put back into it.

*Enqueueing*: the mail's blobs, then its message, confirmed; after a failure its blobs go again.
Where a confirmation does not come, the mail may be there all the same: then its blobs stay, and the
error says so.

*Restoring and moving in*: each mail comes once. The id of the new passage follows from the id of
the old one. A topic of ours keeps the ids of restored mails, because nothing else tells whether one
has left again. A subscription of the move's own, without consumers, keeps the broker from deleting
what is published after the move began. So a move that goes on reads there which of its mails came,
though consumers, James's too, may have acknowledged them since.

*Removing*: the deletion of the mails is published, then each is acknowledged where it is. A process
that dies in between has deleted them all the same: a consumer that meets a mail whose deletion is
published drops it. The caller has kept each by then, and waits at the end until every process
knows.

*Redriving*: each dead letter goes back under its id and as its message was, however often that is
begun. A copy is published first, which says whose place it takes, then the dead letter is
acknowledged. A process that dies in between leaves both: the next redrive finds the mail in its
queue, and publishes it no more; the consumer that settles, deletes or retries the copy acknowledges
the dead letter before that (`mailqueue.pulsar.dequeue`). A consumer of James's does not. One
process at a time redrives a queue, for it holds the lease.
"""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from mailmend.mailqueue.admission import admissible, admitted
from mailmend.mailqueue.blobs.stores import forget, put_content
from mailmend.mailqueue.comparison import Redriven
from mailmend.mailqueue.concurrency import all_of, finished, in_batches
from mailmend.mailqueue.every_queue import counted_enqueue, with_restored
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.pulsar.parts import (
    FoundMail,
    PulsarParts,
    acknowledged,
    dead_letters,
    found,
    is_deleted,
    place_of,
    read_mails,
)
from mailmend.mailqueue.pulsar.settings import (
    DEAD_SUBSCRIPTION,
    OWN_SUBSCRIPTION,
    arrivals_subscription,
    dead_topic,
    out_subscription,
    out_topic,
    redrive_lease,
    restored_topic,
    scheduled_subscription,
    scheduled_topic,
)
from mailmend.mailqueue.pulsar.topics import (
    TopicMessage,
    delayed_message,
    listed_of,
    redriven_message,
    story_of,
    waiting_message,
)
from mailmend.mailqueue.queue import AffectedMails, LackingMail, OnRemoved, RemovedMail, RestoreResult, refuse_too_many
from mailmend.mailqueue.rules.deletions import DeletedMail
from mailmend.mailqueue.rules.mails import (
    EVERYTHING,
    LOOKS,
    Listed,
    Mail,
    MailBlobs,
    MailFilter,
    QueuedMail,
    Whereabouts,
)
from mailmend.mailqueue.rules.places import TopicPlace
from mailmend.model.errors import BadPayload, LeaseHeld, MailmendError, PublishFailed
from mailmend.model.ids import EnqueueId, restored_id


async def enqueue(
    parts: PulsarParts,
    mail: Mail,
    content: bytes,
    due_at: datetime | None,
    priority: int | None,
    *,
    known_as: EnqueueId | None = None,
    was_queued: bool = False,
) -> EnqueueId:
    mail = admitted(mail, priority, was_queued=was_queued)
    enqueue_id = known_as or EnqueueId(parts.clock.random_uuid())
    with counted_enqueue(parts):
        await put(parts, enqueue_id, mail, content, due_at)
    return enqueue_id


async def put(parts: PulsarParts, enqueue_id: EnqueueId, mail: Mail, content: bytes, due_at: datetime | None) -> None:
    """Put a mail under an id that was chosen."""
    queued = QueuedMail(enqueue_id, mail, await put_content(parts.blobs, content))
    listed = Listed.entering(queued, parts.now, due_at)
    try:
        await finished(_published(parts, listed))
    except PublishFailed as error:
        if error.doubtful:
            error.mend = f"The mail {enqueue_id} may be in the queue all the same: mailmend queue browse {parts.queue}"
            raise
        await finished(_forgotten(parts, queued, error))
        raise
    except MailmendError as error:
        await finished(_forgotten(parts, queued, error))
        raise


async def _published(parts: PulsarParts, listed: Listed) -> None:
    queue = parts.queue
    delayed = listed.whereabouts is Whereabouts.DELAYED
    if delayed:
        await parts.topics.create(scheduled_topic(queue), scheduled_subscription(queue))
    await parts.topics.create(out_topic(queue), out_subscription(queue))  # only that makes it a queue among all
    if delayed:
        await parts.topics.publish(scheduled_topic(queue), delayed_message(listed, await parts.form()))
    else:
        await parts.topics.publish(out_topic(queue), waiting_message(listed, await parts.form()))


async def _forgotten(parts: PulsarParts, queued: QueuedMail, error: MailmendError) -> None:
    try:
        await forget(parts.blobs, queued.blobs)
    except MailmendError as failure:
        error.mend = f"Blobs of the mail {queued.enqueue_id} are left without a reference ({failure.what})."


_HEX: Final = 32


@dataclass(slots=True)
class PulsarRestoring:
    """Implements `mailqueue.queue.Restoring`.

    Attributes:
        listed: which of the mails the queue holds, under old and new ids.
        back: which came back before, under new ids.
    """

    parts: PulsarParts
    listed: frozenset[EnqueueId]
    back: set[EnqueueId]

    async def restore(self, removed: RemovedMail) -> RestoreResult:
        new = restored_id(removed.was, self.parts.queue)
        if new in self.back or new in self.listed:
            return RestoreResult.NOTHING
        if removed.was in self.listed:
            return RestoreResult.STAYS
        await put(self.parts, new, admissible(removed.mail), removed.content, removed.due_at)
        await self._noted(new)
        self.parts.counts.add(QueueCount.ENQUEUED, self.parts.queue)
        return RestoreResult.PUT

    async def _noted(self, new: EnqueueId) -> None:
        topic = restored_topic(self.parts.queue)
        await self.parts.topics.create(topic, OWN_SUBSCRIPTION)
        await self.parts.topics.publish(topic, TopicMessage(new.hex))
        self.back.add(new)


async def restoring(parts: PulsarParts, removed: Collection[EnqueueId]) -> PulsarRestoring:
    """Look for the mails before they are put back: one listing for all."""
    wanted = with_restored(removed, parts.queue)
    listed = set[EnqueueId]()
    back = set[EnqueueId]()
    known = await parts.deletions.look()
    if wanted:
        for whereabouts in LOOKS:
            async with aclosing(found(parts, whereabouts, MailFilter(enqueue_ids=wanted), known=known)) as mails:
                async for mail in mails:
                    listed.add(mail.listed.queued.enqueue_id)
    async with aclosing(parts.topics.unacked(restored_topic(parts.queue), OWN_SUBSCRIPTION)) as notes:
        async for note in notes:
            if len(note.payload) == _HEX:
                back.add(EnqueueId(UUID(hex=note.payload.decode(errors="replace"))))
    return PulsarRestoring(parts, frozenset(listed), back)


@dataclass(frozen=True, slots=True)
class PulsarArrivals:
    """Implements `mailqueue.queue.Arrivals`.

    Attributes:
        subscription: of this move, on both topics.
        came: which of the doubtful mails were published.
    """

    parts: PulsarParts
    subscription: str
    came: frozenset[EnqueueId]

    async def had(self, ids: Collection[EnqueueId]) -> frozenset[EnqueueId]:
        known = await self.parts.deletions.known()
        return frozenset(enqueue_id for enqueue_id in ids if enqueue_id in known.mails)

    async def keep(self, content: bytes) -> MailBlobs:
        return await put_content(self.parts.blobs, content)

    async def put(self, listed: Listed, *, again: bool = False) -> None:
        if again and listed.queued.enqueue_id in self.came:
            return
        await finished(self._published(listed))
        self.parts.counts.add(QueueCount.ENQUEUED, self.parts.queue)

    async def end(self) -> None:
        for whereabouts in Whereabouts:
            await self.parts.topics.unsubscribe(place_of(whereabouts, self.parts.queue)[0], self.subscription)

    async def _published(self, listed: Listed) -> None:
        form = await self.parts.form()
        if listed.whereabouts is Whereabouts.WAITING:
            message = waiting_message(listed, form, story_of(listed))
        else:
            message = delayed_message(listed, form, story_of(listed))
        await self.parts.topics.publish(place_of(listed.whereabouts, self.parts.queue)[0], message)


async def arrivals(parts: PulsarParts, move: str, doubtful: Collection[EnqueueId]) -> PulsarArrivals:
    """Keep what is published from now on; then see which doubtful mails had come before."""
    subscription = arrivals_subscription(move)
    came = set[EnqueueId]()
    for whereabouts in Whereabouts:
        topic, of_james = place_of(whereabouts, parts.queue)
        await parts.topics.create(topic, of_james)
        await parts.topics.create(topic, subscription)
        if doubtful:
            async with aclosing(read_mails(parts.topics, (topic, subscription), whereabouts)) as mails:
                async for mail in mails:
                    came.add(mail.listed.queued.enqueue_id)
    return PulsarArrivals(parts, subscription, frozenset(came.intersection(doubtful)))


AT_ONCE: Final = 500
"""The number of mails that are removed together."""


async def remove(
    parts: PulsarParts, where: MailFilter, on_removed: OnRemoved | None, *, dry_run: bool
) -> AffectedMails:
    return await _ended(parts, await _remove(parts, where, on_removed, dry_run=dry_run), dry_run=dry_run)


async def purge(parts: PulsarParts, on_removed: OnRemoved | None, *, dry_run: bool) -> AffectedMails:
    """Remove every mail, and every dead letter that a mail can be made of; the others stay: they could not be kept.

    What James filters is left: it is about no later mail, and expires.
    """
    gone = await _remove(parts, EVERYTHING, on_removed, dry_run=dry_run)
    known = await parts.deletions.look()
    letters = dead_letters(parts.topics, parts.queue)
    async with aclosing(letters), aclosing(in_batches(letters, AT_ONCE)) as batches:
        async for batch in batches:
            new: dict[EnqueueId, FoundMail] = {}
            for mail in batch:
                enqueue_id = mail.listed.queued.enqueue_id
                if enqueue_id not in gone and enqueue_id not in known.mails:
                    new[enqueue_id] = mail
            for mail in new.values():
                if on_removed is not None:
                    await on_removed(mail.listed)
            if not dry_run:
                await _letters_removed(parts, new, batch)
            gone.update(new)
    return await _ended(parts, gone, dry_run=dry_run)


async def _ended(parts: PulsarParts, gone: Collection[EnqueueId], *, dry_run: bool) -> AffectedMails:
    if gone and not dry_run:
        await parts.deletions.are_heard()
        parts.counts.add(QueueCount.REMOVED, parts.queue, len(gone))
    return AffectedMails(len(gone))


async def _letters_removed(parts: PulsarParts, new: Mapping[EnqueueId, FoundMail], some: Sequence[FoundMail]) -> None:
    """Delete the new ones, so that no copy of a concurrent redrive comes; acknowledge all, and delete their bytes."""
    topic = dead_topic(parts.queue)
    if new:
        deleted = []
        for enqueue_id, found_mail in new.items():
            deleted.append(DeletedMail(enqueue_id, TopicPlace(topic, found_mail.message.place)))
        await parts.deletions.publish(await parts.form(), deleted)
    await parts.topics.acknowledge(topic, DEAD_SUBSCRIPTION, [mail.message.place for mail in some])
    for mail in some:
        await parts.blob_cleanup.add(mail.listed.queued.blobs, dequeued=False)


async def _remove(
    parts: PulsarParts, where: MailFilter, on_removed: OnRemoved | None, *, dry_run: bool
) -> set[EnqueueId]:
    gone = set[EnqueueId]()
    known = await parts.deletions.look()
    passed_over = None
    if dry_run:
        passed_over = known
    for look in LOOKS:
        mails = found(parts, look, where, known=passed_over)
        async with aclosing(mails), aclosing(in_batches(mails, AT_ONCE)) as batches:
            async for batch in batches:
                new = [mail for mail in batch if not is_deleted(parts.queue, mail.message, mail.listed, known)]
                for mail in new:
                    if on_removed is not None and mail.listed.queued.enqueue_id not in gone:
                        await on_removed(mail.listed)
                    gone.add(mail.listed.queued.enqueue_id)
                if not dry_run:
                    await _removed(parts, new, batch)
    return gone


async def _removed(parts: PulsarParts, new: Sequence[FoundMail], some: Sequence[FoundMail]) -> None:
    """Delete the new ones; acknowledge them, and mails whose deletion could not be acknowledged before."""
    if new:
        deleted = []
        for mail in new:
            topic, _ = place_of(mail.listed.whereabouts, parts.queue)
            deleted.append(DeletedMail(mail.listed.queued.enqueue_id, TopicPlace(topic, mail.message.place)))
        await parts.deletions.publish(await parts.form(), deleted)
    await acknowledged(parts, some)


LETTERS_AT_ONCE: Final = 64
"""The number of dead letters that are published at once, then acknowledged together."""


async def redrive(
    parts: PulsarParts, limit: int | None, where: MailFilter, lacking: LackingMail, *, dry_run: bool, ids_max: int
) -> Redriven:
    """Those dead letters that were there when it began: what is rejected anew meanwhile stays."""
    dead = await parts.topics.backlog(dead_topic(parts.queue), DEAD_SUBSCRIPTION)
    if not dead or not dead.count:
        return Redriven()
    if dry_run:
        return await _redriven(parts, limit, where, lacking, ids_max, dry_run=True)
    async with parts.topics.lease(redrive_lease(parts.queue)) as held:
        if not held:
            raise LeaseHeld(
                f"another process puts dead letters of {parts.queue!r} back", mend="Run the same again when it is done."
            )
        return await _redriven(parts, limit, where, lacking, ids_max, dry_run=False)


async def _redriven(
    parts: PulsarParts, limit: int | None, where: MailFilter, lacking: LackingMail, ids_max: int, *, dry_run: bool
) -> Redriven:
    done = Redriven()
    there = await _there(parts, ids_max)
    letters = _letters(parts, limit, where, done)
    async with aclosing(letters), aclosing(in_batches(letters, LETTERS_AT_ONCE)) as batches:
        async for batch in batches:
            deletions = parts.deletions
            if dry_run:
                known = await deletions.look()
            else:
                known = await deletions.known()
            deleted = [mail for mail in batch if mail.listed.queued.enqueue_id in known.mails]
            done.dropped += len(deleted)
            back = list[FoundMail]()
            had = list[FoundMail]()
            for letter in batch:
                if letter.listed.queued.enqueue_id in known.mails:
                    continue
                queued = done.add(letter.listed.queued, await lacking(letter.listed.queued))
                if queued is None:
                    had.append(letter)
                else:
                    back.append(FoundMail(letter.message, replace(letter.listed, queued=queued)))
            if not dry_run:
                await _delivered(parts, back, there)
                await _left(parts, batch, [*deleted, *had])
    return done


async def _letters(
    parts: PulsarParts, limit: int | None, where: MailFilter, done: Redriven
) -> AsyncGenerator[FoundMail]:
    """The dead letters that match, at most the limit; messages that are not mails are counted."""
    count = 0
    topic = dead_topic(parts.queue)
    async with aclosing(parts.topics.unacked(topic, DEAD_SUBSCRIPTION)) as messages:
        async for message in messages:
            if limit is not None and count + done.unreadable >= limit:
                return
            try:
                listed = listed_of(message, Whereabouts.WAITING)
            except BadPayload:
                done.unreadable += 1
                continue
            if where.matches(listed):
                count += 1
                yield FoundMail(message, listed)


async def _there(parts: PulsarParts, ids_max: int) -> set[EnqueueId]:
    """The mails that the queue holds already: a redrive was killed, or a mail was rejected twice."""
    there = set[EnqueueId]()
    for look in LOOKS:
        async with aclosing(found(parts, look, known=None)) as mails:
            async for mail in mails:
                there.add(mail.listed.queued.enqueue_id)
                refuse_too_many(len(there), f"mails in {parts.queue}", ids_max)
    return there


async def _delivered(parts: PulsarParts, some: Sequence[FoundMail], there: set[EnqueueId]) -> None:
    lacking: dict[EnqueueId, FoundMail] = {}
    for mail in some:
        enqueue_id = mail.listed.queued.enqueue_id
        if enqueue_id not in there:
            lacking[enqueue_id] = mail
    if not lacking:
        return
    topic = out_topic(parts.queue)
    await parts.topics.create(topic, out_subscription(parts.queue))
    form = await parts.form()

    async def copy(one: FoundMail) -> None:
        await parts.topics.publish(topic, redriven_message(one.message, one.listed.queued, form))

    await all_of(lacking.values(), copy, LETTERS_AT_ONCE)
    there.update(lacking)


async def _left(parts: PulsarParts, some: Sequence[FoundMail], deleted: Sequence[FoundMail]) -> None:
    """Acknowledge dead letters; the bytes of deleted ones, and of mails that all recipients have, go with them."""
    await parts.topics.create(dead_topic(parts.queue), DEAD_SUBSCRIPTION)
    await parts.topics.acknowledge(dead_topic(parts.queue), DEAD_SUBSCRIPTION, [mail.message.place for mail in some])
    for mail in deleted:
        await parts.blob_cleanup.add(mail.listed.queued.blobs, dequeued=False)
