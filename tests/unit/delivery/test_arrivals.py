"""Mails that rules of the policy file hold, delay or reject as clients hand them over."""

from dataclasses import replace
from datetime import timedelta

import pytest

from mailmend.delivery.mail.entries import EntryAction, EntryChange, EntryFilter, EntryState, QueuedEntry
from mailmend.delivery.mail.envelopes import changed_mail, queued_entries
from mailmend.delivery.policy.file.reading import policies_of
from mailmend.delivery.policy.incoming import IncomingRule
from mailmend.delivery.smtp.incoming.intake import MailIntake
from mailmend.delivery.smtp.incoming.reception import MailOrigin, NamedRecipient, NamedSender
from mailmend.delivery.transports import DeliveryProtocol
from mailmend.mailqueue.rules.mails import Listed
from mailmend.model.instants import instant_of
from tests.support.deliveries import ACCEPTED, LATER, DeliverySite
from tests.support.mail_clients import MAIL, RCPT, MailEntrance, entrance

CY = "RCPT TO:<cy@example.net>"
HEADER = b"Subject: hello\r\nX-Job: daily\r\n\r\nbody\r\n"
REFUSED_CY = "{if: {recipient: cy@example.net}, reject: 550 5.1.1 cy is gone}"


def rules(text: str) -> tuple[IncomingRule, ...]:
    return policies_of(f"incoming: [{text}]", "policies.yaml").said.incoming


async def listed(site: MailEntrance) -> list[Listed]:
    return [one async for one in site.queue.browse()]


async def entries(site: MailEntrance) -> list[QueuedEntry]:
    return [entry for one in await listed(site) for entry in queued_entries(one, instant_of(site.queue.clock.micros()))]


async def test_a_mail_that_a_rule_holds_is_held_as_by_a_person() -> None:
    async with entrance() as site:
        site.listener.intake.rules = rules("{if: {helo: client.example}, hold: looks like spam}")
        client = await site.client()
        answer = await client.hand_over(HEADER, MAIL, RCPT, CY)
        found = await entries(site)

    assert answer[:9] == "250 2.0.0"
    assert [(one.state, one.entry.recipient) for one in found] == [
        (EntryState.HOLD, "bob@example.com"),
        (EntryState.HOLD, "cy@example.net"),
    ]
    assert {one.entry.order and one.entry.order.reason for one in found} == {"looks like spam"}
    assert {one.mail.id for one in found} == {one.enqueue_id for one in found}


async def test_a_mail_that_a_rule_delays_is_due_that_much_later() -> None:
    async with entrance() as site:
        site.listener.intake.rules = rules("{delay: 600}")
        await (await site.client()).hand_over(HEADER)
        (one,) = await listed(site)

    assert one.due_at is not None
    assert abs(one.due_at - one.enqueued_at - timedelta(minutes=10)) < timedelta(seconds=1)


async def test_the_time_of_the_retries_begins_when_a_delayed_mail_is_due() -> None:
    """A delay that is longer than all retries would else give up the mail without an attempt."""
    site = DeliverySite()
    site.relay.scripts["bob@one.example"] = [LATER, ACCEPTED]
    intake = MailIntake(queue=site.queue, clock=site.clock, host_name="mail.example", rules=rules("{delay: 30d}"))
    origin = MailOrigin(client="192.0.2.7", greeted_as="client.example", protocol="ESMTP")
    await intake.take(NamedSender("ann@one.example"), [NamedRecipient("bob@one.example")], origin, HEADER)
    site.clock.advance(timedelta(days=30).total_seconds())
    await site.queue.move_due()
    await site.serve(120)
    assert site.relay.had == ["bob@one.example"]
    assert not site.relay.reports()


@pytest.mark.parametrize("protocol", DeliveryProtocol)
async def test_an_error_of_ours_behind_a_mail_is_an_answer_to_each_recipient_and_the_connection_goes_on(
    protocol: DeliveryProtocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for its next mail then, and not for this one for ever."""
    is_lmtp = protocol is DeliveryProtocol.LMTP

    async def broken(*_: object) -> None:
        raise ZeroDivisionError

    async with entrance(protocol) as site:
        monkeypatch.setattr(MailIntake, "_taken", broken)
        client = await site.client("LHLO client.example" if is_lmtp else "EHLO client.example")
        answers = [await client.hand_over(HEADER, MAIL, RCPT, CY)]
        answers += [await client.reply() for _ in range(is_lmtp)]
        assert await client.say("NOOP") == "250 2.0.0 OK"
        (connection,) = site.listener.connections.open

    assert [answer[:9] for answer in answers] == ["451 4.3.0"] * (1 + is_lmtp)
    assert not connection.has_mail


async def test_a_mail_is_delayed_until_it_expires_at_most() -> None:
    async with entrance() as site:
        site.listener.intake.rules = rules("{delay: 2h, set: {expires: 1h}}")
        await (await site.client()).hand_over(HEADER)
        (one,) = await listed(site)

    assert one.due_at is not None
    assert abs(one.due_at - one.enqueued_at - timedelta(hours=1)) < timedelta(seconds=1)


async def test_a_recipient_that_a_rule_rejects_is_refused_before_the_mail_comes() -> None:
    async with entrance() as site:
        site.listener.intake.rules = rules(REFUSED_CY)
        client = await site.client()
        assert await client.say(MAIL, CY) == "550 5.1.1 cy is gone"
        assert await client.hand_over(HEADER, RCPT) != ""
        assert [mail.recipients for mail, _ in await site.mails()] == [("bob@example.com",)]
        assert site.listener.connections.refused["5.1.1"] == 1


async def test_a_mail_whose_header_a_rule_rejects_is_not_stored() -> None:
    async with entrance() as site:
        site.listener.intake.rules = rules("{if: {header: {X-Job: daily}}, reject: 451 4.7.1 come again tomorrow}")
        client = await site.client()
        assert await client.hand_over(HEADER) == "451 4.7.1 come again tomorrow"
        assert not await site.mails()
        assert (await client.hand_over(b"Subject: hello\r\n\r\n"))[:9] == "250 2.0.0"


@pytest.mark.parametrize("protocol", DeliveryProtocol)
async def test_a_rejected_recipient_refuses_the_whole_mail_where_a_client_gets_one_answer(
    protocol: DeliveryProtocol,
) -> None:
    """By LMTP each recipient has its own answer; a rule of the header is known only behind the mail."""
    is_lmtp = protocol is DeliveryProtocol.LMTP
    text = "{if: {recipient: cy@example.net, header: {X-Job: daily}}, reject: 550 5.1.1 cy is gone}"
    async with entrance(protocol) as site:
        site.listener.intake.rules = rules(text)
        client = await site.client("LHLO client.example" if is_lmtp else "EHLO client.example")
        answers = [await client.hand_over(HEADER, MAIL, RCPT, CY)]
        answers += [await client.reply() for _ in range(is_lmtp)]
        kept = [mail.recipients for mail, _ in await site.mails()]

    if is_lmtp:
        assert [answer[:9] for answer in answers] == ["250 2.0.0", "550 5.1.1"]
        assert kept == [("bob@example.com",)]
    else:
        assert answers == ["550 5.1.1 cy is gone"]
        assert kept == []


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("{if: {header: {X-Job: daily}}, reject: false}, {reject: true}", "250 2.1.5"),
        ("{if: {header: {X-Job: daily}}, stop: true}, {reject: true}", "250 2.1.5"),
        ("{if: {header: {X-Job: daily}}, hold: true}, {reject: true}", "550 5.7.1"),
        ("{if: {helo: client.example}, stop: true}, {reject: true}", "250 2.1.5"),
        ("{if: {helo: client.example}, reject: false}, {reject: true}", "250 2.1.5"),
        ("{if: {helo: other.example}, reject: false}, {reject: 451}", "451 4.7.1"),
    ],
)
async def test_a_recipient_is_refused_at_once_only_where_no_header_can_change_that(text: str, answer: str) -> None:
    async with entrance() as site:
        site.listener.intake.rules = rules(text)
        client = await site.client()
        assert (await client.say(MAIL, RCPT))[:9] == answer


async def test_a_mail_that_a_rule_held_is_due_once_a_person_releases_it() -> None:
    """With the id, and since when it was seen, that it has had from the beginning."""
    async with entrance() as site:
        site.listener.intake.rules = rules("{hold: true}")
        await (await site.client()).hand_over(HEADER, MAIL, RCPT, CY)
        (one,) = await listed(site)
        now = instant_of(site.queue.clock.micros())
    release = EntryChange(action=EntryAction.RELEASE, at=now, owner="ann")
    chosen, changed = changed_mail(one, EntryFilter(), release, now)

    assert changed is not None
    assert (len(chosen), changed.due_at) == (2, now)
    released = queued_entries(replace(one, queued=replace(one.queued, mail=changed.mail), due_at=None), now)
    assert {entry.state for entry in released} == {EntryState.ACTIVE}
    assert {entry.mail.id for entry in released} == {one.queued.enqueue_id}
    assert {entry.mail.first_seen_at for entry in released} == {entry.mail.first_seen_at for entry in chosen}
