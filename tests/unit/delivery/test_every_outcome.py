"""The hook behind delivery sees every outcome, also where no attempt was made or none came to an end."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from mailmend.delivery.mail.attempts import NextHop, SmtpReply, UncertainPolicy
from mailmend.delivery.mail.entries import EntryEnd
from mailmend.delivery.mail.hooks import (
    AttemptState,
    BounceRecipient,
    DeleteRecipient,
    HoldRecipient,
    HookedAttempt,
    HookedRecipient,
    HookResult,
    PostDecision,
    PreDecision,
    PutOffDelivery,
    TryDelivery,
)
from mailmend.delivery.mail.settling import RetryInterval, RetrySchedule
from mailmend.delivery.policy.policy import CounterPolicy, ExactValue, PickupField, Threshold, ThresholdCondition
from mailmend.delivery.policy.rates import SECOND, DeliveryRate
from mailmend.delivery.server.hooks import DeliveryHooks
from mailmend.mailqueue.codec import attribute
from mailmend.model.errors import CannotReach
from tests.support.deliveries import LATER, MINUTE, NEVER, DeliverySite

BOB, CY = "bob@one.example", "cy@two.example"
CLOSED = CounterPolicy((PickupField.RECIPIENT_DOMAIN,), default=Threshold(concurrency=0))
SHARED = CounterPolicy((PickupField.RECIPIENT_DOMAIN,), default=Threshold(concurrency=1))
Seen = list[tuple[EntryEnd, AttemptState]]


def looking(site: DeliverySite, seen: Seen, decision: PostDecision = None) -> DeliveryHooks:
    """A hook that notes what it sees of mails, not of reports."""

    async def look(attempt: HookedAttempt) -> PostDecision:
        if attempt.recipient.sender is None:
            return None
        seen.append((attempt.end, attempt.state))
        return decision

    return DeliveryHooks(site.clock, post=look)


@pytest.fixture
def site() -> DeliverySite:
    return DeliverySite()


async def put_expiring(site: DeliverySite, seconds: int) -> None:
    at = (site.clock.now + timedelta(seconds=seconds)).isoformat()
    await site.put(BOB, attributes={"expires": attribute(at)})


@pytest.mark.parametrize(
    ("decision", "reports", "held"),
    [
        (None, [(BOB, "failed")], 0),
        (PutOffDelivery(MINUTE), [(BOB, "failed")], 0),
        (PutOffDelivery(MINUTE, counts=False), [(BOB, "failed")], 0),
        (BounceRecipient("too late"), [(BOB, "failed")], 0),
        (DeleteRecipient(), [], 0),
        (HoldRecipient("look at it"), [], 1),
    ],
)
async def test_what_expires_while_it_waits_ends_as_the_hook_decides(
    site: DeliverySite, decision: PostDecision, reports: list[tuple[str, str]], held: int
) -> None:
    """But it cannot be put off: it would only expire again."""
    seen = Seen()
    await put_expiring(site, 30)
    only_reports = CounterPolicy(
        (PickupField.RECIPIENT_DOMAIN,),
        conditions=(
            ThresholdCondition({PickupField.RECIPIENT_DOMAIN: (ExactValue("one.example"),)}, Threshold(concurrency=0)),
        ),
    )
    await site.serve(120, [only_reports], hooks=looking(site, seen, decision))
    assert seen == [(EntryEnd.EXPIRED, AttemptState.EXPIRED)]
    assert site.relay.reports() == reports
    assert len(await site.held()) == held


async def test_what_has_waited_for_too_long_is_seen_as_it_goes_back(site: DeliverySite) -> None:
    seen = Seen()
    await site.put(BOB)
    await site.serve(80, [CLOSED], hooks=looking(site, seen), waiting_max=MINUTE)
    assert seen == [(EntryEnd.RETURNED, AttemptState.WAITED)]
    assert len(await site.waits()) == 1


async def test_what_goes_back_may_be_put_off_for_longer(site: DeliverySite) -> None:
    await site.put(BOB)
    hooks = looking(site, Seen(), PutOffDelivery(30 * MINUTE, counts=False))
    await site.serve(80, [CLOSED], hooks=hooks, waiting_max=MINUTE)
    assert [round(wait / MINUTE) for wait in await site.waits()] == [30]


async def test_a_recipient_whose_next_server_has_no_room_is_seen(site: DeliverySite) -> None:
    site.hops.table["one.example"] = (NextHop("first.example", "192.0.2.1"), NextHop("second.example", "192.0.2.2"))
    site.relay.silent.add("first.example")
    second = {PickupField.REMOTE_MX: (ExactValue("second.example"),)}
    closed = CounterPolicy((PickupField.REMOTE_MX,), conditions=(ThresholdCondition(second, Threshold(concurrency=0)),))
    seen = Seen()
    await site.put(BOB)
    await site.serve(5, [closed], hooks=looking(site, seen))
    assert seen == [(EntryEnd.RETURNED, AttemptState.LIMITED)]


async def test_a_domain_without_a_server_is_seen(site: DeliverySite) -> None:
    site.hops.table["one.example"] = NEVER
    seen = Seen()
    await site.put(BOB)
    await site.serve(5, hooks=looking(site, seen))
    assert seen == [(EntryEnd.FAILED, AttemptState.UNROUTABLE)]


@pytest.mark.parametrize(
    ("policy", "end"),
    [
        (UncertainPolicy.RETRY, EntryEnd.REFUSED),
        (UncertainPolicy.HOLD, EntryEnd.RETURNED),
        (UncertainPolicy.ASSUME, EntryEnd.DELIVERED),
    ],
)
async def test_an_uncertain_attempt_is_seen_as_one_whatever_follows(policy: UncertainPolicy, end: EntryEnd) -> None:
    site = DeliverySite(journals=True)
    site.relay.breaking.add("mx.one.example")
    seen = Seen()
    await site.put(BOB)
    await site.serve(5, hooks=looking(site, seen), uncertain=policy)
    assert seen == [(end, AttemptState.UNCERTAIN)]


async def test_an_uncertain_attempt_is_not_held_where_the_hook_decides_otherwise() -> None:
    """It is tried again, in a passage in which the journal has nothing against it."""
    site = DeliverySite(journals=True)
    site.relay.breaking.add("mx.one.example")
    seen = Seen()
    await site.put(BOB)
    hooks = looking(site, seen, PutOffDelivery(MINUTE, counts=False))
    await site.serve(30, hooks=hooks, uncertain=UncertainPolicy.HOLD)
    assert not await site.held()
    site.relay.breaking.clear()
    await site.serve(90, hooks=hooks, uncertain=UncertainPolicy.HOLD)
    assert site.relay.recipients == [BOB, BOB]
    assert seen == [(EntryEnd.RETURNED, AttemptState.UNCERTAIN), (EntryEnd.DELIVERED, AttemptState.ANSWERED)]


async def test_an_attempt_of_a_server_that_died_is_seen_by_the_next_one() -> None:
    site = DeliverySite(journals=True)
    seen = Seen()
    await site.put(BOB)
    await site.serve(60, dies_at=5)
    await site.serve(60, hooks=looking(site, seen), uncertain=UncertainPolicy.HOLD)
    assert seen == [(EntryEnd.RETURNED, AttemptState.UNCERTAIN)]
    assert len(await site.held()) == 1


async def test_an_attempt_that_is_broken_off_as_the_server_stops_is_seen(site: DeliverySite) -> None:
    site.relay.seconds = 500.0
    seen = Seen()
    await site.put(BOB)
    await site.serve(10, hooks=looking(site, seen))
    assert seen == [(EntryEnd.RETURNED, AttemptState.STOPPING)]
    assert [mail.recipients for mail in await site.mails()] == [(BOB,)]


async def test_what_is_left_of_a_mail_as_the_server_stops_is_seen(site: DeliverySite) -> None:
    seen = Seen()
    await site.put(BOB, CY)
    once = CounterPolicy((), default=Threshold(rate=DeliveryRate(1, 3600 * SECOND)))
    await site.serve(10, [once], hooks=looking(site, seen))
    assert seen == [(EntryEnd.DELIVERED, AttemptState.ANSWERED), (EntryEnd.RETURNED, AttemptState.STOPPING)]
    assert [len(mail.recipients) for mail in await site.mails()] == [1]


async def test_a_hook_that_is_silent_does_not_keep_a_server_from_stopping(site: DeliverySite) -> None:
    """What was to go back goes back."""

    async def silent(attempt: HookedAttempt) -> PostDecision:
        if attempt.state is AttemptState.STOPPING:
            await asyncio.Event().wait()
        return None

    await site.put(BOB, CY)
    once = CounterPolicy((), default=Threshold(rate=DeliveryRate(1, 3600 * SECOND)))
    hooks = DeliveryHooks(site.clock, post=silent, limit=timedelta(hours=1))
    await site.serve(10, [once], hooks=hooks)
    assert [len(mail.recipients) for mail in await site.mails()] == [1]


async def test_what_expired_on_its_way_here_is_seen_once_though_it_has_no_server(site: DeliverySite) -> None:
    """It is given up while its servers are looked up."""
    site.hops.table["one.example"] = NEVER
    seen = Seen()
    await put_expiring(site, 30)
    site.clock.advance(60)
    await site.serve(20, hooks=looking(site, seen))
    assert seen == [(EntryEnd.EXPIRED, AttemptState.EXPIRED)]
    assert site.relay.reports() == [(BOB, "failed")]


async def test_what_expires_while_the_hook_before_delivery_is_asked_is_seen_once(site: DeliverySite) -> None:
    """What that hook decides comes too late."""
    seen = Seen()
    looks = looking(site, seen)

    async def slow(recipient: HookedRecipient) -> PreDecision:
        if recipient.sender is None:
            return TryDelivery()
        await site.clock.pause(60)
        return DeleteRecipient()

    await put_expiring(site, 30)
    hooks = replace(looks, pre=slow, limit=timedelta(minutes=5))
    await site.serve(200, hooks=hooks)
    assert seen == [(EntryEnd.EXPIRED, AttemptState.EXPIRED)]
    assert site.server.ended[EntryEnd.EXPIRED] == 1
    assert not site.server.ended[EntryEnd.DELETED]


@pytest.mark.parametrize("journals", [False, True])
async def test_what_was_delivered_is_not_sent_again_where_the_hook_is_silent_as_the_server_stops(
    journals: bool,
) -> None:
    """Nor is the hook asked again: it had its time."""
    site = DeliverySite(journals=journals)
    seen = Seen()

    async def silent(attempt: HookedAttempt) -> PostDecision:
        seen.append((attempt.end, attempt.state))
        await asyncio.Event().wait()
        return None

    await site.put(BOB)
    await site.serve(10, hooks=DeliveryHooks(site.clock, post=silent, limit=timedelta(hours=1)))
    assert seen == [(EntryEnd.DELIVERED, AttemptState.ANSWERED)]
    assert not await site.mails()
    await site.serve(60)
    assert site.relay.had == [BOB]


async def test_what_was_delivered_is_not_sent_again_where_the_hook_orders_nonsense(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = DeliverySite(shares=True)
    seen = Seen()

    async def silly(attempt: HookedAttempt) -> HookResult[PostDecision]:
        seen.append((attempt.end, attempt.state))
        return HookResult(None, orders=cast("Any", ("suspend all",)))

    await site.put(BOB)
    await site.serve(300, hooks=DeliveryHooks(site.clock, post=silly))
    assert site.relay.had == [BOB]
    assert seen == [(EntryEnd.DELIVERED, AttemptState.ANSWERED)]
    assert not await site.mails()
    assert "what a hook orders is not heeded" in caplog.text


async def test_what_goes_back_as_the_server_stops_waits_for_no_attempt_any_more(site: DeliverySite) -> None:
    await site.put(BOB, CY)
    once = CounterPolicy((), default=Threshold(rate=DeliveryRate(1, 3600 * SECOND)))
    await site.serve(10, [once])
    assert not site.server._ready


async def test_an_error_of_ours_is_seen(site: DeliverySite, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(site.relay, "deliver", broken)
    seen = Seen()
    await site.put(BOB)
    await site.serve(5, hooks=looking(site, seen))
    assert seen == [(EntryEnd.REFUSED, AttemptState.FAULT)]


async def test_a_journal_that_does_not_answer_is_seen() -> None:
    site = DeliverySite(journals=True)
    site.attempts.silent = True
    seen = Seen()
    await site.put(BOB)

    async def answer() -> None:
        await site.clock.pause(5)
        site.attempts.silent = False

    hooks = looking(site, seen)
    await site.serve(60, hooks=hooks, uncertain=UncertainPolicy.HOLD, beside=answer(), until=lambda: bool(seen))
    assert seen[0] == (EntryEnd.RETURNED, AttemptState.NO_JOURNAL)


async def test_a_limit_that_another_server_has_is_seen() -> None:
    site = DeliverySite(shares_limits=True)
    other = site.beside()
    seen = Seen()
    for number in range(4):
        await site.put(f"r{number}@one.example")
    await asyncio.gather(
        site.serve(60, [SHARED], server_name="a", hooks=looking(site, seen)),
        other.serve(60, [SHARED], server_name="b", hooks=looking(other, seen)),
    )
    assert (EntryEnd.RETURNED, AttemptState.ELSEWHERE) in seen


async def test_an_attempt_of_a_server_that_lost_its_membership_is_seen() -> None:
    site = DeliverySite(shares_limits=True)
    site.relay.seconds = 1000.0
    seen = Seen()
    await site.put(BOB)

    def surround(_operation: object, _carry_out: Any) -> Any:
        raise CannotReach("the cluster does not answer")

    async def cut() -> None:
        await site.clock.pause(12)
        site.tables.surround = surround

    await site.serve(90, [SHARED], beside=cut(), hooks=looking(site, seen))
    assert seen == [(EntryEnd.RETURNED, AttemptState.CUT_OFF)]


async def test_what_a_server_said_earlier_is_no_reply_of_a_later_outcome(site: DeliverySite) -> None:
    """A hook that suspends mails because of a reply would go on for ever; the recipient has the last reply."""
    seen = list[tuple[AttemptState, str, str, str]]()

    async def look(attempt: HookedAttempt) -> PostDecision:
        seen.append((attempt.state, attempt.reply, attempt.host, attempt.recipient.reply))
        return None

    site.relay.scripts[BOB] = [LATER]
    await site.put(BOB, sender=None)
    hooks = DeliveryHooks(site.clock, post=look)
    await site.serve(30, hooks=hooks)
    await site.serve(150, [CLOSED], hooks=hooks, waiting_max=MINUTE)
    said = "450 4.2.0 later"
    assert seen[:2] == [(AttemptState.ANSWERED, said, "mx.one.example", said), (AttemptState.WAITED, "", "", said)]


@pytest.mark.parametrize(
    "said",
    [
        SmtpReply(550, "5.4.4", "the domain takes no mail", ours=True),
        SmtpReply(451, "4.4.3", "DNS does not say it now", ours=True),
    ],
)
async def test_a_notice_does_not_repeat_what_a_server_said_before_it_could_not_be_found(
    site: DeliverySite, said: SmtpReply
) -> None:
    """The sender reads why it failed now; the hook still has what was said last."""
    seen = list[str]()

    async def look(attempt: HookedAttempt) -> PostDecision:
        if attempt.recipient.sender:
            seen.append(attempt.recipient.reply)
        return None

    site.relay.scripts[BOB] = [SmtpReply(452, "4.2.2", "mailbox full")]
    await site.put(BOB)
    hooks = DeliveryHooks(site.clock, post=look)
    schedules = {"": RetrySchedule((RetryInterval(MINUTE), RetryInterval(MINUTE, notify=True)))}
    await site.serve(30, hooks=hooks, schedules=schedules)
    site.hops.table["one.example"] = said
    await site.serve(100, hooks=hooks, schedules=schedules)
    report = site.relay.taken[0][1].decode()
    assert said.text in report
    assert "mailbox full" not in report
    assert "Remote-MTA" not in report
    assert seen[:2] == ["452 4.2.2 mailbox full"] * 2
