"""Tending deletions: those that are no longer needed expire, many small ones become one, what came again goes again.

A broker that was killed may have forgotten acknowledgements. A consumer drops what is deleted; here it is
acknowledged again, so that James's consumers, who do not know of our deletions, do not get it for long.
"""

from contextlib import aclosing
from typing import Final

from mailmend.mailqueue.concurrency import in_batches
from mailmend.mailqueue.pulsar.broker.names import OWN_SUBSCRIPTION, filter_topic
from mailmend.mailqueue.pulsar.parts import PulsarParts
from mailmend.mailqueue.pulsar.view.deletions import checkpoint_message, filter_topics, notices
from mailmend.mailqueue.pulsar.view.listing import acknowledged, backlog_of, found, is_deleted, place_of
from mailmend.mailqueue.rules.deletions import Checkpoint, KnownDeletions, Notice, progress_of, tending
from mailmend.mailqueue.rules.mails import Whereabouts
from mailmend.mailqueue.upkeep import TendedDeletions

AT_ONCE: Final = 500


async def tend_deletions(parts: PulsarParts, *, dry_run: bool = False) -> TendedDeletions:
    """One round; if two processes do it at once, nothing is lost, and some work is done twice."""
    lying = await notices(parts.topics, parts.queue)
    if not lying:
        return TendedDeletions()
    backlogs = {
        place_of(whereabouts, parts.queue)[0]: await backlog_of(parts, whereabouts) for whereabouts in Whereabouts
    }
    again = [await _gone_again(parts, whereabouts, lying, dry_run=dry_run) for whereabouts in Whereabouts]
    progress = progress_of(lying, backlogs)
    to_do = tending(lying, progress, parts.now)
    if not dry_run:
        form = await parts.form()
        for mails in to_do.merged:
            await parts.deletions.publish(form, mails)
        if to_do.checkpoint:
            await parts.topics.publish(filter_topic(parts.queue), checkpoint_message(progress, form))
        for topic in filter_topics(parts.queue):
            places = [place.place for place in to_do.expired if place.topic == topic]
            await parts.topics.acknowledge(topic, OWN_SUBSCRIPTION, places)
    left = {deletion.where for deletion in lying if not isinstance(deletion, Checkpoint)}.difference(to_do.expired)
    return TendedDeletions(len(left) + len(to_do.merged), len(to_do.expired), sum(again))


async def _gone_again(parts: PulsarParts, whereabouts: Whereabouts, lying: list[Notice], *, dry_run: bool) -> int:
    """Acknowledge what is deleted and lies there all the same; how many mails that are."""
    known = KnownDeletions()
    for notice in lying:
        known.hear(notice)
    topic, _ = place_of(whereabouts, parts.queue)
    places = {place.place for place in known.places if place.topic == topic}
    if not places or not (await backlog_of(parts, whereabouts)).held(places):
        return 0
    count = 0
    mails = found(parts, whereabouts, known=None)
    async with aclosing(mails), aclosing(in_batches(mails, AT_ONCE)) as batches:
        async for batch in batches:
            deleted = [mail for mail in batch if is_deleted(parts.queue, mail.message, mail.listed, known)]
            count += len(deleted)
            if not dry_run:
                await acknowledged(parts, deleted)
    return count
