"""What people order of recipients that rest: held, released, tried earlier or later, bounced, deleted."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.mail.entries import (
    HELD_FOR,
    EntryAction,
    EntryChange,
    EntryFilter,
    EntryState,
    QueuedEntry,
)
from mailmend.delivery.mail.envelopes import changed_mail, part_of_mail, queued_entries
from mailmend.delivery.mail.hooks import HoldRecipient
from mailmend.delivery.server.hooks import DeliveryHooks
from mailmend.mailqueue.queue import AffectedMails
from tests.support.deliveries import ACCEPTED, LATER, MINUTE, DeliverySite
from tests.unit.delivery.test_hooks import deciding

BOB, CY = "bob@one.example", "cy@two.example"
ALL = EntryFilter()
DAY = timedelta(days=1)


@pytest.fixture
def site() -> DeliverySite:
    return DeliverySite()


async def deferred(site: DeliverySite, *recipients: str) -> None:
    """A mail whose recipients were all refused for now once, and are accepted from then on."""
    site.relay.scripts = {one: [LATER, ACCEPTED] for one in recipients}
    await site.put(*recipients)
    await site.serve(30.0)


async def entries(site: DeliverySite) -> list[QueuedEntry]:
    return [one async for mail in site.queue.browse() for one in queued_entries(mail, site.clock.now)]


async def states(site: DeliverySite) -> dict[str, EntryState]:
    return {one.entry.recipient: one.state for one in await entries(site)}


def ordered(site: DeliverySite, action: EntryAction, **more: Any) -> EntryChange:
    return EntryChange(action=action, at=site.clock.now, owner="ann", reason="spam?", **more)


async def change(site: DeliverySite, action: EntryAction, where: EntryFilter = ALL, **more: Any) -> AffectedMails:
    order, now = ordered(site, action, **more), site.clock.now
    return await site.queue.change(lambda mail: changed_mail(mail, where, order, now)[1])


def to(recipient: str, all_of_them: list[QueuedEntry]) -> EntryFilter:
    return EntryFilter(ids=frozenset(str(one.entry.id) for one in all_of_them if one.entry.recipient == recipient))


async def test_what_is_held_is_not_tried_until_it_is_released(site: DeliverySite) -> None:
    """Given one of two recipients of a mail, the other one's mail goes; and a flush does not let the held one go."""
    await deferred(site, BOB, CY)
    await change(site, EntryAction.HOLD, to(BOB, await entries(site)))
    assert await states(site) == {BOB: EntryState.HOLD, CY: EntryState.DEFER}
    await site.serve()
    assert (site.relay.had, await states(site)) == ([CY], {BOB: EntryState.HOLD})
    await site.queue.flush()
    await site.serve(60.0)
    (one,) = await entries(site)
    assert (one.state, one.entry.refusals, one.entry.order and one.entry.order.owner) == (EntryState.HOLD, 1, "ann")

    await change(site, EntryAction.RELEASE)
    await site.serve(until=lambda: len(site.relay.had) == 2)
    assert site.relay.had == [CY, BOB]
    assert not await entries(site)


async def test_what_is_held_does_not_expire(site: DeliverySite) -> None:
    """Released after its age it is tried no more: its sender is told."""
    await deferred(site, BOB)
    await change(site, EntryAction.HOLD)
    site.clock.advance(400 * DAY.total_seconds())
    await site.serve(120.0)
    assert await states(site) == {BOB: EntryState.HOLD}
    assert HELD_FOR - 2 * MINUTE < (await site.waits())[0] <= HELD_FOR
    await change(site, EntryAction.RELEASE)
    await site.serve(until=lambda: bool(site.relay.reports()))
    assert (site.relay.reports(), BOB in site.relay.had) == ([(BOB, "failed")], False)


async def test_a_recipient_that_is_bounced_is_reported_and_the_others_go_on(site: DeliverySite) -> None:
    """With the reason that was given, and no attempt, the other one in its own time."""
    await deferred(site, BOB, CY)
    await change(site, EntryAction.BOUNCE, to(BOB, await entries(site)))
    await site.serve(20.0)
    assert site.relay.reports() == [(BOB, "failed")]
    assert b"spam?" in site.relay.taken[-1][1]
    assert await states(site) == {CY: EntryState.DEFER}
    await site.serve()
    assert sorted(set(site.relay.had)) == ["ann@sender.example", CY]


async def test_a_retry_moves_those_alone_that_it_names(site: DeliverySite) -> None:
    """Given two in one mail, the other one keeps its time, and no retry is counted."""
    site.relay.scripts = {BOB: [LATER, LATER, ACCEPTED], CY: [LATER, LATER, ACCEPTED]}
    await site.put(BOB, CY)
    await site.serve(120.0)
    before = {one.entry.recipient: one.due_at for one in await entries(site)}
    await change(site, EntryAction.RETRY, to(BOB, await entries(site)))
    await site.serve(30.0)
    assert site.relay.had == [BOB]
    (other,) = await entries(site)
    assert (other.entry.refusals, other.due_at) == (2, before[CY])


async def test_a_defer_moves_the_next_attempt_once(site: DeliverySite) -> None:
    """Behind it the schedule goes on."""
    site.relay.scripts = {BOB: [LATER, LATER, ACCEPTED]}
    await site.put(BOB)
    await site.serve(30.0)
    await change(site, EntryAction.DEFER, until=site.clock.now + 2 * timedelta(hours=1))
    await site.serve(7100.0)
    assert len(site.relay.attempts) == 1
    await site.serve(200.0)
    assert len(site.relay.attempts) == 2
    await site.serve(400.0)
    assert site.relay.had == [BOB]


async def test_a_recipient_that_is_deleted_gets_nothing_and_no_report_is_made(site: DeliverySite) -> None:
    """Of a mail with others; what was kept of it is a mail to that recipient alone, under an id of its own."""
    await deferred(site, BOB, CY)
    (mail,) = [one async for one in site.queue.browse()]
    chosen = [one for one in await entries(site) if one.entry.recipient == BOB]
    part = part_of_mail(mail, chosen)
    assert part.queued.mail.recipients == (BOB,)
    assert part.queued.enqueue_id == part_of_mail(mail, chosen).queued.enqueue_id != mail.queued.enqueue_id
    assert part_of_mail(mail, await entries(site)) == mail
    await change(site, EntryAction.DELETE, to(BOB, await entries(site)))
    await site.serve()
    assert (site.relay.had, site.relay.reports()) == ([CY], [])


async def test_a_hook_may_hold_a_recipient(site: DeliverySite) -> None:
    """Over restarts, and although the rest of its mail came back to the queue unchanged."""
    await site.put(BOB)
    await site.serve(30.0, hooks=DeliveryHooks(site.clock, pre=deciding(HoldRecipient("to be looked at"))))
    await site.serve(30.0)
    (one,) = await entries(site)
    assert (one.state, site.relay.attempts) == (EntryState.HOLD, [])
    assert one.entry.order
    assert (one.entry.order.owner, one.entry.order.reason) == ("a hook", "to be looked at")


async def test_the_reason_of_a_hook_may_be_any_text_and_the_mail_is_kept(site: DeliverySite) -> None:
    """Given one that quotes bytes of others, and is long: the recipient is held, with what can be kept of it."""
    reason = "Empf\udce4nger\r\n" + "x" * 5_000
    await site.put(BOB)
    await site.serve(30.0, hooks=DeliveryHooks(site.clock, pre=deciding(HoldRecipient(reason))))
    (one,) = await entries(site)
    assert one.entry.order
    assert one.entry.order.reason == "Empf\ufffdnger  " + "x" * 2_032 + "..."
    assert site.queue.dead == []


@pytest.mark.parametrize("action", list(EntryAction))
async def test_a_mail_that_waits_is_left_alone(site: DeliverySite, action: EntryAction) -> None:
    """A server may have it."""
    await site.put(BOB)
    assert (await change(site, action, until=site.clock.now + DAY)).count == 0
    assert await states(site) == {BOB: EntryState.ACTIVE}


def seen(one: QueuedEntry, now: datetime) -> tuple[object, ...]:
    """What is due already is due now."""
    return one.state, one.due_at and max(one.due_at, now), one.entry.order


ACTIONS = st.lists(st.tuples(st.sampled_from(EntryAction), st.sampled_from([BOB, CY, None])), max_size=6)


@given(ACTIONS)
async def test_a_command_given_again_changes_nothing(actions: list[tuple[EntryAction, str | None]]) -> None:
    """Whatever commands came before; and each entry that it does not name stays as it is."""
    site = DeliverySite()
    await deferred(site, BOB, CY)
    for action, named in actions:
        before = await entries(site)
        where = to(named, before) if named else ALL
        if action is EntryAction.DELETE and all(map(where.matches, before)):
            continue  # nothing of the mail would be left: that is no change but a removal
        now = site.clock.now
        await change(site, action, where, until=now + DAY)
        behind = await entries(site)
        assert (await change(site, action, where, until=now + DAY)).count == 0
        assert await entries(site) == behind
        kept = {one.entry.id: seen(one, now) for one in behind}
        assert all(kept[one.entry.id] == seen(one, now) for one in before if not where.matches(one))
        site.clock.advance(1)
