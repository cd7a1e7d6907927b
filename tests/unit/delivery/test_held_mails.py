"""A mail that was taken from its queue: when it only waits."""

from datetime import timedelta

import pytest

from mailmend.delivery.mail.entries import EndedEntry, EntryEnd, EntryStage
from mailmend.delivery.mail.envelopes import outgoing_of
from mailmend.delivery.server.held_mails import HeldMail
from tests.support.deliveries import DeliverySite

WAITING, DELIVERING = EntryStage.WAITING, EntryStage.DELIVERING


async def held(stages: list[EntryStage]) -> HeldMail:
    """One with a recipient at each of these stages."""
    site = DeliverySite()
    await site.put(*(f"r{number}@one.example" for number in range(len(stages))))
    async with site.queue.dequeue() as mails:
        dequeued = await anext(mails)
        mail, entries = outgoing_of(dequeued, site.clock.now)
        found = HeldMail(dequeued, mail, {entry.id.number: entry for entry in entries}, 0, 0)
    for number, stage in enumerate(stages):
        for step in (EntryStage.DNS, WAITING, DELIVERING):
            if found.active[number].stage is not stage:
                found.move(number, step)
    return found


@pytest.mark.parametrize(
    ("stages", "waits"),
    [
        ([WAITING], True),
        ([WAITING, WAITING], True),
        ([WAITING, DELIVERING], False),
        ([EntryStage.DNS, WAITING], False),
        ([DELIVERING], False),
    ],
)
async def test_a_mail_waits_while_each_of_its_recipients_does(stages: list[EntryStage], *, waits: bool) -> None:
    assert (await held(stages)).waits is waits


async def test_a_mail_without_recipients_left_does_not_wait() -> None:
    """It is being settled: that it goes back would leave no room for others."""
    mail = await held([WAITING, WAITING])
    at = mail.mail.first_seen_at + timedelta(minutes=1)

    ends = [mail.end(EndedEntry(entry, EntryEnd.DELIVERED, at)) for entry in list(mail.active.values())]

    assert (ends, mail.waits) == ([False, True], False)
