"""Mails that are taken out of a queue, and dead letters that are put back into it.

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
from dataclasses import replace
from typing import Final

from mailmend.mailqueue.concurrency import all_of, in_batches
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.pulsar.broker.settings import (
    DEAD_SUBSCRIPTION,
    dead_topic,
    out_subscription,
    out_topic,
    redrive_lease,
)
from mailmend.mailqueue.pulsar.broker.topics import listed_of, redriven_message
from mailmend.mailqueue.pulsar.parts import (
    FoundMail,
    PulsarParts,
    acknowledged,
    dead_letters,
    found,
    is_deleted,
    place_of,
)
from mailmend.mailqueue.queue import LackingMail, OnRemoved, Removed, refuse_too_many
from mailmend.mailqueue.rules.deletions import DeletedMail
from mailmend.mailqueue.rules.filters import EVERYTHING, MailFilter
from mailmend.mailqueue.rules.mails import LOOKS, Whereabouts
from mailmend.mailqueue.rules.places import TopicPlace
from mailmend.mailqueue.upkeep import Redriven
from mailmend.model.errors import BadPayload, LeaseHeld
from mailmend.model.ids import EnqueueId

AT_ONCE: Final = 500
"""The number of mails that are removed together."""


async def remove(parts: PulsarParts, where: MailFilter, on_removed: OnRemoved | None, *, dry_run: bool) -> Removed:
    return await _ended(parts, await _remove(parts, where, on_removed, dry_run=dry_run), dry_run=dry_run)


async def purge(parts: PulsarParts, on_removed: OnRemoved | None, *, dry_run: bool) -> Removed:
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


async def _ended(parts: PulsarParts, gone: Collection[EnqueueId], *, dry_run: bool) -> Removed:
    if gone and not dry_run:
        await parts.deletions.are_heard()
        parts.counts.add(QueueCount.REMOVED, parts.queue, len(gone))
    return Removed(len(gone))


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
