"""Hooks around an attempt: what they decide is done, and one that fails decides nothing."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from mailmend.delivery.mail.entries import EntryEnd
from mailmend.delivery.mail.hooks import (
    BounceRecipient,
    DeleteRecipient,
    HookedAttempt,
    HookedRecipient,
    HookResult,
    PostDecision,
    PostDelivery,
    PreDecision,
    PreDelivery,
    PutOffDelivery,
    TryDelivery,
)
from mailmend.delivery.policy.policy import CounterPolicy, PickupField, Threshold
from mailmend.delivery.server.hooks import DeliveryHooks
from mailmend.delivery.transports import SourceAddress, TlsLevel
from mailmend.mailqueue.codec import attribute
from mailmend.repair.clock import SystemClock
from tests.support.deliveries import ACCEPTED, LATER, MINUTE, NEVER, DeliverySite


@pytest.fixture
def site() -> DeliverySite:
    return DeliverySite()


def before(site: DeliverySite, pre: PreDelivery) -> DeliveryHooks:
    return DeliveryHooks(site.clock, pre=pre)


def deciding(decision: Any) -> Any:
    """A hook of either kind that decides this, and nothing for reports."""

    async def hook(seen: HookedRecipient | HookedAttempt) -> Any:
        recipient = seen.recipient if isinstance(seen, HookedAttempt) else seen
        if recipient.sender is None:
            return TryDelivery() if isinstance(seen, HookedRecipient) else None
        return decision

    return hook


async def test_a_hook_before_delivery_says_where_a_mail_goes_and_how(site: DeliverySite) -> None:
    """Another server and port, another envelope, other addresses, TLS: in place of the domain's and the server's."""
    sources = (SourceAddress("127.0.0.9"),)
    wanted = TryDelivery("127.0.0.5", 2525, "s@x.example", "r@y.example", sources, TlsLevel.REQUIRED)
    await site.put("bob@one.example")
    await site.serve(hooks=before(site, deciding(wanted)), until=lambda: bool(site.relay.attempts))
    ((_, attempt),) = site.relay.attempts
    assert (attempt.hop.address, attempt.hop.port, attempt.source.address) == ("127.0.0.5", 2525, "127.0.0.9")
    assert (attempt.mail.sender, attempt.recipients[0].recipient) == ("s@x.example", "r@y.example")
    assert attempt.tls is TlsLevel.REQUIRED


async def test_a_hook_before_delivery_sees_the_recipient_and_sets_what_policies_count_by(site: DeliverySite) -> None:
    """Given jobs by the recipient's first letter, each of them has its own limit."""
    seen = []

    def job(recipient: HookedRecipient) -> PreDecision:
        seen.append(recipient)
        return TryDelivery(fields={PickupField.JOB_ID: recipient.recipient[0]})

    for name in ("a1", "a2", "b1"):
        await site.put(f"{name}@one.example", attributes={"tenantid": attribute("t")})
    limits = [CounterPolicy((PickupField.JOB_ID,), default=Threshold(concurrency=1))]
    await site.serve(60, limits, hooks=DeliveryHooks(SystemClock(), pre=job))
    assert len(site.relay.had) == 3
    assert site.relay.most == {"one.example": 2}
    assert {one.fields[PickupField.TENANT_ID] for one in seen} == {"t"}


@pytest.mark.parametrize(
    ("decision", "waits", "reports"),
    [
        (PutOffDelivery(7 * MINUTE), [7], []),
        (PutOffDelivery(7 * MINUTE, counts=False), [7], []),
        (PutOffDelivery(counts=True), [1], []),
        (PutOffDelivery(counts=False), [1], []),
        (BounceRecipient("not with us"), [], [("bob@one.example", "failed")]),
        (DeleteRecipient(), [], []),
    ],
)
async def test_a_hook_before_delivery_may_decide_against_an_attempt(
    site: DeliverySite, decision: PreDecision, waits: list[int], reports: list[tuple[str, str]]
) -> None:
    """It comes again when the hook says so, its sender is told, or nobody is."""
    await site.put("bob@one.example")
    await site.serve(20, hooks=before(site, deciding(decision)))
    assert "bob@one.example" not in site.relay.recipients
    assert [round(wait / MINUTE) for wait in await site.waits()] == waits
    assert site.relay.reports() == reports


ATTRIBUTES = {"campaign": "spring", "jobid": "j1"}


@pytest.mark.parametrize("decision", [None, PutOffDelivery(MINUTE, counts=False)])
async def test_what_a_hook_sets_is_kept_with_the_mail_when_it_comes_again(site: DeliverySite, decision: Any) -> None:
    """Whether or not that was a retry; both hooks see it from then on, and policies count by it."""
    seen = list[tuple[str, dict[str, str], str]]()

    async def look(recipient: HookedRecipient) -> HookResult[PreDecision]:
        seen.append(("pre", dict(recipient.attributes), recipient.fields.get(PickupField.JOB_ID, "")))
        return HookResult(TryDelivery(), attributes={"campaign": "spring"})

    async def give(attempt: HookedAttempt) -> HookResult[PostDecision]:
        seen.append(("post", dict(attempt.recipient.attributes), ""))
        return HookResult(decision, attributes=ATTRIBUTES)

    site.relay.scripts["bob@one.example"] = [LATER, ACCEPTED]
    await site.put("bob@one.example", attributes={"n": attribute(7)})
    hooks = DeliveryHooks(site.clock, look, give)
    await site.serve(300, hooks=hooks, until=lambda: bool(site.relay.had))
    first, again = {"n": "7"}, {"n": "7", **ATTRIBUTES}
    given = {**first, "campaign": "spring"}
    assert seen[:3] == [("pre", first, ""), ("post", given, ""), ("pre", again, "j1")]


async def test_a_mail_that_goes_back_with_nothing_new_is_not_written_again(site: DeliverySite) -> None:
    """Though a hook sets what it has already."""
    first = await site.put("bob@one.example", sender=None, attributes={"n": attribute(7)})

    async def hook(_: HookedRecipient) -> HookResult[PreDecision]:
        return HookResult(PutOffDelivery(MINUTE, counts=False), attributes={"n": "7"})

    await site.serve(200, hooks=before(site, hook))
    assert [one.queued.enqueue_id async for one in site.queue.browse()] == [first]


@pytest.mark.parametrize("name", ["mailmend.delivery", "Mailmend.x", "dsn-notify", ""])
async def test_what_is_not_the_hooks_to_set_is_refused(
    site: DeliverySite, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The hook has failed then, and why is in the log."""
    await site.put("bob@one.example")

    async def hook(_: HookedRecipient) -> HookResult[PreDecision]:
        return HookResult(TryDelivery(), attributes={name: "x"})

    await site.serve(20, hooks=before(site, hook))
    assert site.relay.attempts == []
    assert "no attribute that a hook may set" in caplog.records[-1].__dict__["why"]


async def failing(_: Any) -> Any:
    raise ZeroDivisionError


async def silly(_: Any) -> Any:
    return "yes"


async def slow(_: Any) -> Any:
    await asyncio.Event().wait()


def failing_in_a_thread(_: Any) -> Any:
    raise ZeroDivisionError


@pytest.mark.parametrize("hook", [failing, silly, slow, failing_in_a_thread])
async def test_a_hook_before_delivery_that_fails_puts_the_mail_off_without_a_retry(
    site: DeliverySite, hook: PreDelivery, caplog: pytest.LogCaptureFixture
) -> None:
    """For five minutes, whether it raises, decides what is no decision, or takes too long."""
    first = await site.put("bob@one.example")
    await site.serve(20, hooks=before(site, hook))
    assert site.relay.attempts == []
    assert [round(wait / MINUTE) for wait in await site.waits()] == [5]
    assert [one.queued.enqueue_id async for one in site.queue.browse()] == [first]
    assert "a hook decided nothing" in caplog.text


@pytest.mark.parametrize("hook", [failing, silly, slow, failing_in_a_thread])
async def test_a_hook_behind_delivery_that_fails_changes_nothing(site: DeliverySite, hook: PostDelivery) -> None:
    """What follows is what would follow without it."""
    site.relay.scripts["bob@one.example"] = [LATER, ACCEPTED]
    await site.put("bob@one.example")
    await site.serve(300, hooks=DeliveryHooks(site.clock, post=hook))
    assert site.relay.had == ["bob@one.example"]


@pytest.mark.parametrize(
    ("reply", "decision", "waits", "reports"),
    [
        (LATER, PutOffDelivery(7 * MINUTE), [7], []),
        (NEVER, PutOffDelivery(7 * MINUTE, counts=False), [7], []),
        (LATER, BounceRecipient("enough"), [], [("bob@one.example", "failed")]),
        (NEVER, DeleteRecipient(), [], []),
        (LATER, None, [1], []),
        (ACCEPTED, BounceRecipient("too late"), [], []),
        (ACCEPTED, PutOffDelivery(), [], []),
    ],
)
async def test_a_hook_behind_delivery_decides_what_follows(
    site: DeliverySite, reply: Any, decision: PostDecision, waits: list[int], reports: list[tuple[str, str]]
) -> None:
    """But for whoever has the mail already."""
    site.relay.scripts["bob@one.example"] = [reply]
    await site.put("bob@one.example")
    await site.serve(30, hooks=DeliveryHooks(site.clock, post=deciding(decision)))
    assert [round(wait / MINUTE) for wait in await site.waits()] == waits
    assert site.relay.reports() == reports
    assert site.relay.recipients.count("bob@one.example") == 1


async def test_a_hook_behind_delivery_sees_what_the_server_said(site: DeliverySite) -> None:
    """And where nobody was asked, why; and whether this was the last attempt."""
    seen = list[HookedAttempt]()

    async def look(attempt: HookedAttempt) -> PostDecision:
        seen.append(attempt)
        return None

    site.relay.scripts["bob@one.example"] = [LATER]
    site.hops.table["nowhere.example"] = NEVER
    expires = (site.clock.now + timedelta(seconds=30)).isoformat()
    await site.put("bob@one.example", sender=None)
    await site.put("cy@nowhere.example", sender=None, attributes={"expires": attribute(expires)})
    await site.serve(20, hooks=DeliveryHooks(site.clock, post=look))
    said = {one.recipient.recipient: (one.end, one.status, one.reply, one.is_last) for one in seen}
    assert said == {
        "bob@one.example": (EntryEnd.REFUSED, "4.2.0", "450 4.2.0 later", False),
        "cy@nowhere.example": (EntryEnd.FAILED, "5.1.1", "", False),
    }
