"""The hook at the end of DATA: what it sees of a mail that comes in, and what becomes of the mail."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from mailmend.delivery.mail.entries import EntryState
from mailmend.delivery.mail.envelopes import queued_entries
from mailmend.delivery.mail.hooks import (
    AcceptMail,
    ArrivalDecision,
    DelayMail,
    EndOfData,
    HoldRecipient,
    HookedArrival,
    HookOrder,
    HookResult,
    RejectMail,
    SuspendMails,
)
from mailmend.delivery.policy.file.reading import policies_of
from mailmend.delivery.policy.policy import PickupField
from mailmend.delivery.server.hooks import DeliveryHooks
from mailmend.delivery.transports import DeliveryProtocol
from mailmend.mailqueue.codec import attribute_value
from mailmend.model.errors import WrongUse
from mailmend.model.instants import instant_of
from tests.support.mail_clients import MAIL, RCPT, MailEntrance, entrance

CY = "RCPT TO:<cy@example.net>"
CONTENT = b"Subject: hello\r\n\r\nbody\r\n"


def hook_at(site: MailEntrance, hook: EndOfData, **more: Any) -> None:
    limit = timedelta(seconds=0.2)
    site.listener.intake.hook = DeliveryHooks(site.queue.clock, arrival=hook, limit=limit, **more).arrived


def rules_at(site: MailEntrance, text: str) -> None:
    site.listener.intake.rules = policies_of(f"incoming: [{text}]", "policies.yaml").said.incoming


def deciding(decision: ArrivalDecision | HookResult[ArrivalDecision]) -> EndOfData:
    return lambda _: decision


async def states(site: MailEntrance) -> list[EntryState]:
    return [
        one.state
        async for mail in site.queue.browse()
        for one in queued_entries(mail, instant_of(site.queue.clock.micros()))
    ]


async def test_the_hook_sees_the_mail_and_what_rules_made_of_it() -> None:
    seen = list[HookedArrival]()

    async def look(mail: HookedArrival) -> None:
        seen.append(mail)

    async with entrance() as site:
        rules_at(site, "{if: {recipientdomain: example.net}, set: {tenantid: acme}, delay: 60}")
        hook_at(site, look)
        answer = await (await site.client()).hand_over(CONTENT, MAIL, RCPT, CY)
        assert len(await site.mails()) == 2

    (mail,) = seen
    bob, cy = mail.recipients
    assert answer[:9] == "250 2.0.0"
    assert (mail.client, mail.greeted_as, mail.protocol) == ("127.0.0.1", "client.example", "ESMTP")
    assert (mail.sender, mail.content) == ("ann@example.org", CONTENT)
    assert (bob.address, bob.attributes, bob.delay) == ("bob@example.com", {}, timedelta())
    assert (cy.address, cy.attributes, cy.delay) == ("cy@example.net", {"tenantid": "acme"}, timedelta(minutes=1))


@pytest.mark.parametrize(
    ("decision", "state"),
    [
        (None, EntryState.DEFER),
        (AcceptMail(), EntryState.ACTIVE),
        (HoldRecipient("virus?"), EntryState.HOLD),
        (HoldRecipient(), EntryState.HOLD),
        (DelayMail(timedelta(hours=1)), EntryState.DEFER),
        (DelayMail(timedelta()), EntryState.ACTIVE),
    ],
)
async def test_what_the_hook_decides_comes_before_what_rules_do(decision: ArrivalDecision, state: EntryState) -> None:
    async with entrance() as site:
        rules_at(site, "{delay: 60}")
        hook_at(site, deciding(decision))
        await (await site.client()).hand_over(CONTENT)
        assert await states(site) == [state]


@pytest.mark.parametrize("protocol", DeliveryProtocol)
async def test_a_mail_that_the_hook_rejects_is_stored_for_no_recipient(protocol: DeliveryProtocol) -> None:
    is_lmtp = protocol is DeliveryProtocol.LMTP
    async with entrance(protocol) as site:
        hook_at(site, deciding(RejectMail("554 5.7.1 a virus")))
        client = await site.client("LHLO client.example" if is_lmtp else "EHLO client.example")
        answers = [await client.hand_over(CONTENT, MAIL, RCPT, CY)]
        answers += [await client.reply() for _ in range(is_lmtp)]
        assert set(answers) == {"554 5.7.1 a virus"}
        assert not await site.mails()
        assert site.listener.connections.refused["5.7.1"] == len(answers)


async def test_what_the_hook_sets_is_an_attribute_before_what_rules_set() -> None:
    given = {"jobid": "by-hook", "campaign": "spring"}
    async with entrance() as site:
        rules_at(site, "{set: {jobid: by-rule, tenantid: acme}}")
        hook_at(site, deciding(HookResult(None, attributes=given)))
        await (await site.client()).hand_over(CONTENT)
        ((mail, content),) = await site.mails()

    found = {name: attribute_value(text) for name, text in mail.attributes.items()}
    assert found == {**given, "tenantid": "acme", "mailmend.bytes": len(content)}


async def raising(_: HookedArrival) -> None:
    raise ZeroDivisionError


async def slow(_: HookedArrival) -> None:
    await asyncio.Event().wait()


def silly(_: HookedArrival) -> Any:
    return "yes"


@pytest.mark.parametrize("hook", [raising, slow, silly])
async def test_a_hook_that_fails_leaves_the_mail_with_its_client(
    hook: EndOfData, caplog: pytest.LogCaptureFixture
) -> None:
    async with entrance() as site:
        hook_at(site, hook)
        answer = await (await site.client()).hand_over(CONTENT)
        assert answer[:9] == "451 4.3.0"
        assert not await site.mails()

    assert "a hook decided nothing" in caplog.text


async def test_what_the_hook_orders_is_heeded_under_its_name() -> None:
    heeded = list[tuple[HookOrder, str]]()
    order = SuspendMails({PickupField.JOB_ID: ("spring",)}, timedelta(hours=1), "too many complaints")

    def heed(orders: Any, owner: str) -> None:
        heeded.extend((one, owner) for one in orders)

    async with entrance() as site:
        hook_at(site, deciding(HookResult(None, (order,))), heed=heed, arrival_name="gate")
        await (await site.client()).hand_over(CONTENT)

    assert heeded == [(order, "hook gate")]


async def test_a_quota_by_what_a_hook_may_set_is_asked_behind_the_mail() -> None:
    """Before that the job is not known: a rule's own value may not be the last."""
    text = "quotas: [{name: jobs, fields: [jobid], default: {messages: 0}}]"
    async with entrance() as site:
        quotas = policies_of(text, "policies.yaml").said.quotas
        site.listener.intake.quotas.usage = type(site.listener.intake.quotas.usage)(quotas)
        await site.until(lambda: not site.listener.intake.quotas.are_unknown)
        hook_at(site, deciding(None))
        client = await site.client()
        assert (await client.say(MAIL, RCPT))[:3] == "250"


@pytest.mark.parametrize("reply", ["250 2.0.0 fine", "421 4.7.0 go", "false", "550 4.0.0 no", "größer"])
def test_a_reply_that_refuses_no_mail_is_no_rejection(reply: str) -> None:
    with pytest.raises(WrongUse):
        RejectMail(reply)


def test_a_delay_of_the_past_is_no_delay() -> None:
    with pytest.raises(WrongUse):
        DelayMail(timedelta(seconds=-1))
