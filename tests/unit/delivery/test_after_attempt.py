"""What is ordered of recipients that are active, for after their attempts: a ledger in memory, time turned by hand."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from mailmend.delivery.ledger.intents import IntentStage
from mailmend.delivery.mail.attempts import AttemptOutcome, SmtpReply
from mailmend.delivery.mail.entries import (
    EntryAction,
    EntryChange,
    EntryId,
    EntryState,
    QueuedEntry,
)
from mailmend.delivery.mail.envelopes import queued_entries
from mailmend.delivery.policy.policy import CounterPolicy, PickupField, Threshold, ThresholdCondition, pattern_of
from mailmend.mailqueue.codec import attribute
from mailmend.model.catalog.ledger import DELIVERY_INTENT
from mailmend.model.errors import CannotReach
from mailmend.model.operations import Read
from tests.support.deliveries import ACCEPTED, LATER, MINUTE, NEVER, DeliverySite
from tests.unit.delivery.test_held_entries import change, states

BOB, CY = "bob@one.example", "cy@two.example"
HOUR = timedelta(hours=1)
FINAL = [EntryAction.BOUNCE, EntryAction.DELETE]


@pytest.fixture
def site() -> DeliverySite:
    return DeliverySite(shares=True)


async def entries(site: DeliverySite) -> list[QueuedEntry]:
    return [one async for mail in site.queue.browse() for one in queued_entries(mail, site.clock.now)]


async def order(
    site: DeliverySite,
    action: EntryAction,
    until: timedelta | None = None,
    stage: IntentStage = IntentStage.AFTER_ATTEMPT,
) -> None:
    """Of every entry of the queue."""
    ends_at = site.clock.now + until if until else None
    ordered = EntryChange(action=action, at=site.clock.now, owner="ann", reason="spam?", until=ends_at)
    changes = {one.entry.id: ordered for one in await entries(site)}
    await site.ledger.intents.put(site.queue.name, changes, site.clock.now, stage)


async def ordered_of(site: DeliverySite, entry: EntryId) -> Mapping[int, EntryChange]:
    return await site.ledger.intents.of(site.queue.name, entry.mail)


async def during(
    site: DeliverySite, action: EntryAction, seconds: float = 20.0, at: float = 8.0, **more: Any
) -> EntryId:
    """Order it while the attempt runs, and serve to its end; the entry's id."""
    site.relay.seconds = 10.0
    await site.put(BOB)
    (one,) = await entries(site)

    async def ordering() -> None:
        await site.clock.pause(at)
        await order(site, action, **more)

    await site.serve(seconds, beside=ordering())
    return one.entry.id


async def test_who_was_refused_for_now_is_held_in_place_of_the_next_attempt(site: DeliverySite) -> None:
    """Though it was ordered after the last reading of what is ordered; the attempt counts, and its reply is kept."""
    site.relay.scripts[BOB] = [LATER]
    entry = await during(site, EntryAction.HOLD, 400.0)
    (one,) = await entries(site)
    assert (one.state, one.entry.refusals, one.entry.reply) == (EntryState.HOLD, 1, "450 4.2.0 later")
    assert one.entry.order is not None
    assert (one.entry.order.owner, one.entry.order.reason) == ("ann", "spam?")
    assert (one.entry.id, len(site.relay.attempts)) == (entry, 1)
    assert await ordered_of(site, entry) == {}


async def test_who_was_refused_for_now_is_deferred_as_ordered(site: DeliverySite) -> None:
    """For the time that was named, in place of the schedule's."""
    site.relay.scripts[BOB] = [LATER, ACCEPTED]
    await during(site, EntryAction.DEFER, until=timedelta(hours=2))
    (one,) = await entries(site)
    assert (one.state, one.entry.refusals) == (EntryState.DEFER, 1)
    assert [round(wait / MINUTE) for wait in await site.waits()] == [120]
    await site.serve(2 * 3600 + 60)
    assert site.relay.had == [BOB]


@pytest.mark.parametrize(("action", "reports"), [(EntryAction.BOUNCE, [(BOB, "failed")]), (EntryAction.DELETE, [])])
async def test_who_was_refused_for_now_is_given_up_as_ordered(
    site: DeliverySite, action: EntryAction, reports: list[tuple[str, str]]
) -> None:
    """With a report to the sender, or without."""
    site.relay.scripts[BOB] = [LATER]
    await during(site, action, 60.0)
    assert await entries(site) == []
    assert site.relay.reports() == reports


@pytest.mark.parametrize("reply", [ACCEPTED, NEVER])
@pytest.mark.parametrize("action", [EntryAction.HOLD, *FINAL])
async def test_what_has_ended_stays_as_it_is(site: DeliverySite, action: EntryAction, reply: Any) -> None:
    """Who has the mail has it, and who was refused for good is reported; nothing is left of what was ordered."""
    site.relay.scripts[BOB] = [reply]
    entry = await during(site, action, 60.0, at=3.0)
    assert await entries(site) == []
    assert site.relay.reports() == ([] if reply is ACCEPTED else [(BOB, "failed")])
    assert await ordered_of(site, entry) == {}


TO_BOB = {PickupField.RECIPIENT_DOMAIN: (pattern_of(PickupField.RECIPIENT_DOMAIN, "one.example"),)}
STOPPED = CounterPolicy(
    (PickupField.RECIPIENT_DOMAIN,), conditions=(ThresholdCondition(TO_BOB, Threshold(concurrency=0)),)
)


@pytest.mark.parametrize("stage", [IntentStage.ORDERED, IntentStage.AFTER_ATTEMPT])
@pytest.mark.parametrize("action", [EntryAction.HOLD, EntryAction.DEFER, *FINAL])
async def test_what_waits_for_a_policy_is_changed_at_once(
    site: DeliverySite, action: EntryAction, stage: IntentStage
) -> None:
    """Within the time between two readings of what is ordered; nothing is left of the order."""
    await site.put(BOB)
    (one,) = await entries(site)

    async def ordering() -> None:
        await site.clock.pause(8.0)
        await order(site, action, HOUR if action is EntryAction.DEFER else None, stage)

    await site.serve(20.0, [STOPPED], beside=ordering())
    resting = {EntryAction.HOLD: EntryState.HOLD, EntryAction.DEFER: EntryState.DEFER}
    assert await states(site) == ({BOB: resting[action]} if action in resting else {})
    assert site.relay.reports() == ([(BOB, "failed")] if action is EntryAction.BOUNCE else [])
    assert await site.ledger.intents.find(site.queue.name, [one.entry.id.mail]) == {}
    assert BOB not in site.relay.had


@pytest.mark.parametrize("reply", [ACCEPTED, LATER])
async def test_who_is_being_attempted_is_left_alone(site: DeliverySite, reply: SmtpReply) -> None:
    """Unless it was ordered for after the attempt; the server says so, in the same seconds."""
    site.relay.scripts[BOB] = [reply]
    entry = await during(site, EntryAction.HOLD, 18.0, at=3.0, stage=IntentStage.ORDERED)

    found = await site.ledger.intents.find(site.queue.name, [entry.mail])
    assert [intent.stage for intent in found.values()] == [IntentStage.LEFT]
    assert await states(site) == ({} if reply is ACCEPTED else {BOB: EntryState.DEFER})


async def test_an_order_that_was_not_read_when_its_mail_came_is_done_when_the_ledger_answers(
    site: DeliverySite,
) -> None:
    """Given a ledger that answers no reading of a mail's orders for a while."""
    await site.put(BOB)
    await order(site, EntryAction.HOLD, stage=IntentStage.ORDERED)
    began = site.clock.monotonic()

    def surround(operation: object, carry_out: Any) -> Any:
        is_of_a_mail = isinstance(operation, Read) and operation.table == DELIVERY_INTENT and operation.key[2].int
        if is_of_a_mail and site.clock.monotonic() < began + 12:
            raise CannotReach("nobody answers")
        return carry_out()

    site.tables.surround = surround
    await site.serve(30.0, [STOPPED])
    assert await states(site) == {BOB: EntryState.HOLD}
    assert site.relay.had == []


async def test_an_order_that_comes_too_late_for_any_attempt_is_answered_too(site: DeliverySite) -> None:
    """Given a recipient that has the mail before its server reads the order."""
    entry = await during(site, EntryAction.HOLD, 18.0, at=9.5, stage=IntentStage.ORDERED)
    found = await site.ledger.intents.find(site.queue.name, [entry.mail])
    assert [intent.stage for intent in found.values()] == [IntentStage.LEFT]
    assert await states(site) == {}


@pytest.mark.parametrize("action", [EntryAction.HOLD, *FINAL])
async def test_what_is_ordered_before_a_mail_is_taken_is_done_without_an_attempt(
    site: DeliverySite, action: EntryAction
) -> None:
    """Of the recipient that it is ordered of alone; once is enough."""
    await site.put(BOB, CY, sender=None)
    entry = (await entries(site))[0].entry.id
    ordered = EntryChange(action=action, at=site.clock.now, owner="ann", reason="spam?")
    await site.ledger.intents.put(site.queue.name, {entry: ordered}, site.clock.now)
    await site.serve(60.0)
    assert site.relay.had == [CY]
    assert await states(site) == ({BOB: EntryState.HOLD} if action is EntryAction.HOLD else {})
    assert await ordered_of(site, entry) == {}


async def test_what_is_known_to_be_in_no_ledger_is_not_asked_for(site: DeliverySite) -> None:
    """Given nothing ordered, mails that are delivered cost no reading; one that is refused costs one."""
    asked = list[object]()

    def surround(operation: object, carry_out: Any) -> Any:
        if isinstance(operation, Read) and operation.table == DELIVERY_INTENT:
            asked.append(operation.key[2])
        return carry_out()

    site.tables.surround = surround
    site.relay.scripts[BOB] = [LATER]
    bob, cy = await site.put(BOB), await site.put(CY)
    await site.serve(20.0)
    assert [one for one in asked if one in {bob, cy}] == [bob]


@pytest.mark.parametrize("dies_at", range(1, 14))
async def test_wherever_a_server_is_killed_it_is_held_once(site: DeliverySite, dies_at: int) -> None:
    """And released it goes, though the order may still be in the ledger."""
    site.relay.scripts[BOB] = [LATER, ACCEPTED]
    site.relay.seconds = 10.0
    await site.put(BOB)

    async def ordering() -> None:
        await site.clock.pause(3)
        await order(site, EntryAction.HOLD)

    await site.serve(60.0, dies_at=dies_at, beside=ordering())
    await site.serve(120.0)
    assert await states(site) == {BOB: EntryState.HOLD}
    attempts = len(site.relay.attempts)
    assert attempts <= 1
    await change(site, EntryAction.RELEASE)
    await site.serve(200.0)
    assert set(site.relay.had) == {BOB}


async def test_a_later_command_counts_in_its_place(site: DeliverySite) -> None:
    """Though what was ordered before is in the ledger yet."""
    site.relay.scripts[BOB] = [LATER, ACCEPTED]
    await site.put(BOB)
    await site.serve(20.0)
    await order(site, EntryAction.DELETE)
    site.clock.advance(1)
    await change(site, EntryAction.RETRY)
    await site.serve(60.0)
    assert site.relay.had == [BOB]


async def test_a_defer_until_a_time_that_has_passed_is_void(site: DeliverySite) -> None:
    """The schedule's time holds."""
    site.relay.scripts[BOB] = [LATER]
    await during(site, EntryAction.DEFER, until=timedelta(seconds=1))
    assert [round(wait / MINUTE) for wait in await site.waits()] == [1]


async def test_a_ledger_that_does_not_answer_holds_up_nothing(site: DeliverySite) -> None:
    """The mail goes on as it would; what was ordered is done when it answers, before the next attempt."""
    site.relay.scripts[BOB] = [LATER, ACCEPTED]

    def surround(operation: object, carry_out: Any) -> Any:
        if isinstance(operation, Read) and site.clock.monotonic() > began + 9:
            raise CannotReach("nobody answers")
        return carry_out()

    began = site.clock.monotonic()
    site.tables.surround = surround
    entry = await during(site, EntryAction.HOLD)
    assert await states(site) == {BOB: EntryState.DEFER}
    began = site.clock.monotonic() + 10_000
    assert list(await ordered_of(site, entry)) == [0]
    await site.serve(200.0)
    assert await states(site) == {BOB: EntryState.HOLD}
    assert len(site.relay.attempts) == 1


async def test_what_is_deferred_beyond_its_expiry_is_given_up_then(site: DeliverySite) -> None:
    """A mail's own expiry: neither later, nor asked for again and again, though another recipient comes before."""
    site.relay.scripts = {BOB: [LATER], CY: [LATER]}
    expires_at = site.clock.now + timedelta(hours=1)
    await site.put(BOB, CY, attributes={"expires": attribute(expires_at.isoformat())})
    await site.serve(20.0)
    await change(site, EntryAction.DEFER, until=site.clock.now + timedelta(days=1))
    assert {one.due_at for one in await entries(site)} == {expires_at}
    await site.serve(3700.0)
    assert sorted(site.relay.reports()) == [(BOB, "failed"), (CY, "failed")]


async def test_what_the_journal_knows_is_not_done_otherwise() -> None:
    """Given a server that is killed behind a delivery, who has the mail is neither held nor given up."""
    known = 0
    for dies_at in range(1, 12):
        site = DeliverySite(shares=True, journals=True)
        mail = await site.put(BOB)
        await site.serve(60.0, dies_at=dies_at)
        has_it = any(one.outcome is AttemptOutcome.DELIVERED for one in await site.recorded(mail))
        is_there = bool(await entries(site))
        await order(site, EntryAction.HOLD)
        await site.serve(120.0)
        assert await states(site) == ({BOB: EntryState.HOLD} if is_there and not has_it else {})
        known += is_there and has_it
    assert known > 0
