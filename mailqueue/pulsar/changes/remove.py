"""Removing mails of a queue: their deletion is published, then each is acknowledged where it is.

A process that dies in between has deleted them all the same: a consumer that meets a mail whose
deletion is published drops it. The caller has kept each by then, and waits at the end until every
process knows.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from mailmend.mailqueue.concurrency import in_batches
from mailmend.mailqueue.metrics import QueueCount
from mailmend.mailqueue.pulsar.broker.names import DEAD_SUBSCRIPTION, dead_topic
from mailmend.mailqueue.pulsar.parts import PulsarParts
from mailmend.mailqueue.pulsar.view.listing import FoundMail, acknowledged, dead_letters, found, is_deleted, place_of
from mailmend.mailqueue.queue import OnRemoved, Removed
from mailmend.mailqueue.rules.deletions import DeletedMail
from mailmend.mailqueue.rules.filters import EVERYTHING, MailFilter
from mailmend.mailqueue.rules.mails import LOOKS
from mailmend.mailqueue.rules.places import TopicPlace
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
            new = {mail.listed.queued.enqueue_id: mail for mail in batch}
            new = {mail: found_mail for mail, found_mail in new.items() if mail not in gone and mail not in known.mails}
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
        deleted = [DeletedMail(mail, TopicPlace(topic, found_mail.message.place)) for mail, found_mail in new.items()]
        await parts.deletions.publish(await parts.form(), deleted)
    await parts.topics.acknowledge(topic, DEAD_SUBSCRIPTION, [mail.message.place for mail in some])
    for mail in some:
        await parts.blob_cleanup.add(mail.listed.queued.blobs, dequeued=False)


async def _remove(
    parts: PulsarParts, where: MailFilter, on_removed: OnRemoved | None, *, dry_run: bool
) -> set[EnqueueId]:
    gone = set[EnqueueId]()
    known = await parts.deletions.look()
    for look in LOOKS:
        mails = found(parts, look, where, known=known if dry_run else None)
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
        deleted = [
            DeletedMail(
                mail.listed.queued.enqueue_id,
                TopicPlace(place_of(mail.listed.whereabouts, parts.queue)[0], mail.message.place),
            )
            for mail in new
        ]
        await parts.deletions.publish(await parts.form(), deleted)
    await acknowledged(parts, some)
