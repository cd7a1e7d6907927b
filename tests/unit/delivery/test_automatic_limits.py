"""Automatic limits: what a server of deliveries orders by the replies that it gets; time is turned by hand."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from mailmend.delivery.ledger.orders import OrderEvent
from mailmend.delivery.mail.attempts import AttemptOutcome, NextHop, SmtpReply
from mailmend.delivery.mail.hooks import HookedAttempt, HookOrder, LimitMails, PostDecision, SuspendMails
from mailmend.delivery.mail.reactions import ReplyReactions, automatic_order
from mailmend.delivery.policy.automation import AutomaticRule, TriggeredRule
from mailmend.delivery.policy.file.reading import policies_of
from mailmend.delivery.policy.file.replies import all_classes
from mailmend.delivery.policy.orders import Order, OrderKind
from mailmend.delivery.policy.policy import CounterPolicy, PickupField, Threshold
from mailmend.delivery.policy.rates import SECOND, DeliveryRate
from mailmend.delivery.policy.reply_classes import ReplyClasses
from mailmend.delivery.server.hooks import DeliveryHooks
from mailmend.mailqueue.codec import attribute
from mailmend.model.catalog.ledger import DELIVERY_SUSPENSION
from mailmend.model.errors import WrongUse
from mailmend.model.operations import Put
from tests.support.deliveries import ACCEPTED, LATER, NEVER, DeliverySite

BUSY = SmtpReply(421, "4.7.0", "too many connections")
DOMAIN = PickupField.RECIPIENT_DOMAIN
ONE_BY_ONE = CounterPolicy((DOMAIN,), default=Threshold(1))
SUSPENDS = "{name: busy, class: TooManyConnections, fields: [recipientdomain], trigger: 5/600, then: suspend, for: 10m}"
SLOWS = "{name: slow, class: RateLimited, fields: [recipientdomain], trigger: 2/600, then: {rate: 1/300}, for: 20m}"


def reacting(site: DeliverySite, *rules: str) -> DeliveryHooks:
    said = policies_of(f"automation: [{', '.join(rules)}]", "policies.yaml").said
    reactions = ReplyReactions()
    reactions.use(all_classes(said.classes), said.automation)
    return DeliveryHooks(site.clock, reactions=reactions)


@pytest.fixture
def site() -> DeliverySite:
    return DeliverySite(shares=True)


async def ordered(site: DeliverySite, kind: OrderKind = OrderKind.SUSPENSION) -> Sequence[Order]:
    return await site.ledger.of(kind, site.queue.name)


def began(site: DeliverySite, domain: str) -> list[float]:
    """When attempts for a domain began, in seconds since the first attempt of all."""
    first = site.relay.attempts[0][0]
    return [round(at - first) for at, one in site.relay.attempts if one.recipients[0].recipient.endswith(domain)]


async def test_five_refusals_suspend_a_domain_for_ten_minutes_while_others_go(site: DeliverySite) -> None:
    """The sixth mail waits for the end of the suspension, and goes then; the ledger says by which rule and why."""
    for number in range(6):
        site.relay.scripts[f"{number}@busy.example"] = [BUSY, ACCEPTED]
        await site.put(f"{number}@busy.example")
    found = list[Order]()

    async def look() -> None:
        await site.clock.pause(100)
        found.extend(await ordered(site))
        await site.put("bob@other.example")

    await site.serve(
        300, [ONE_BY_ONE], hooks=reacting(site, SUSPENDS), waiting_max=timedelta(minutes=20), beside=look()
    )
    assert (len(began(site, "busy.example")), site.relay.had) == (5, ["bob@other.example"])
    (order,) = found
    assert (order.owner, order.values) == ("automatic rule busy", {"recipientdomain": ("busy.example",)})
    assert order.reason == "TooManyConnections 5 times in 600 s; the last reply: 421 4.7.0 too many connections"
    assert order.ends_at is not None
    assert round((order.ends_at - order.made_at).total_seconds()) == 600

    await site.serve(900, [ONE_BY_ONE], hooks=reacting(site, SUSPENDS), waiting_max=timedelta(minutes=20))
    assert sorted(site.relay.had) == [*(f"{number}@busy.example" for number in range(6)), "bob@other.example"]
    assert all(at >= 600 for at in began(site, "busy.example")[5:])
    records = await site.ledger.records(OrderKind.SUSPENSION, site.queue.name, site.clock.micros(), 9)
    assert [record.event for record in records] == [OrderEvent.ADDED]


async def test_refusals_that_come_meanwhile_neither_double_nor_rewrite_the_order(site: DeliverySite) -> None:
    """Attempts that were under way end behind the suspension: 40 refusals are one write."""
    written = list[object]()

    def surround(operation: object, carry_out: Any) -> Any:
        if isinstance(operation, Put) and operation.table is DELIVERY_SUSPENSION:
            written.append(operation)
        return carry_out()

    site.tables.surround = surround
    for number in range(40):
        site.relay.scripts[f"{number}@busy.example"] = [BUSY]
        await site.put(f"{number}@busy.example")
    await site.serve(60, hooks=reacting(site, SUSPENDS), prefetch=40)
    assert len(began(site, "busy.example")) == 40
    assert len(written) == len(await ordered(site)) == 1


async def test_a_rule_that_is_triggered_again_extends_its_order(site: DeliverySite) -> None:
    """Once half of its time has passed; its id and its beginning stay."""
    hooks = reacting(site, "{name: a, class: Uncategorised, fields: [jobid], trigger: 1/60, then: suspend, for: 10m}")
    found = list[Order]()

    async def look() -> None:
        for _ in range(3):
            hooks_of_server().saw(LATER, {PickupField.JOB_ID: "spring"}, set())
            await site.clock.pause(6)
            found.extend(await ordered(site))
            await site.clock.pause(234)

    def hooks_of_server() -> DeliveryHooks:
        assert site.server.hooks is not None
        return site.server._work.hooks

    await site.put("bob@one.example")
    await site.serve(700, hooks=hooks, beside=_after(site, look))
    first, second, third = found
    assert (first.id, first.made_at, first.ends_at) == (second.id, second.made_at, second.ends_at)
    assert (third.id, third.made_at) == (first.id, first.made_at)
    assert third.ends_at is not None
    assert first.ends_at is not None
    assert 475 <= (third.ends_at - first.ends_at).total_seconds() <= 485


async def _after(site: DeliverySite, work: Any) -> None:
    await site.clock.pause(1)
    await work()


async def test_a_sub_queue_is_slowed_down_by_a_condition_of_the_policy_that_counts_it(site: DeliverySite) -> None:
    """Its owner is the rule; after its end the limits of the file hold again."""
    for number in range(6):
        await site.put(f"{number}@slow.example")
    for number in range(2):
        site.relay.scripts[f"{number}@slow.example"] = [SmtpReply(450, "4.7.28", "rate limit")]
    await site.serve(200, [ONE_BY_ONE], hooks=reacting(site, SLOWS), waiting_max=timedelta(minutes=20))
    (order,) = await ordered(site, OrderKind.CONDITION)
    assert (order.owner, order.fields, order.is_of_program) == ("automatic rule slow", ("recipientdomain",), True)
    assert order.threshold == Threshold(rate=DeliveryRate(1, 300 * SECOND))
    assert len(began(site, "slow.example")) == 3


async def test_what_a_person_lifts_goes_again(site: DeliverySite) -> None:
    for number in range(6):
        site.relay.scripts[f"{number}@busy.example"] = [BUSY, ACCEPTED]
        await site.put(f"{number}@busy.example")

    async def lift() -> None:
        await site.clock.pause(60)
        (order,) = await ordered(site)
        await site.ledger.remove(order, site.clock.now)

    waits = timedelta(minutes=20)
    await site.serve(200, [ONE_BY_ONE], hooks=reacting(site, SUSPENDS), waiting_max=waits, beside=lift())
    assert len(site.relay.had) == 6
    assert await ordered(site) == []


async def test_another_server_reads_what_a_rule_has_ordered(site: DeliverySite) -> None:
    other = site.beside()
    for number in range(5):
        site.relay.scripts[f"{number}@busy.example"] = [BUSY]
        await site.put(f"{number}@busy.example")
    await site.serve(30, hooks=reacting(site, SUSPENDS))
    await site.put("bob@busy.example")
    await other.serve(200, hooks=reacting(other, SUSPENDS))
    assert other.relay.attempts == []


async def test_a_domain_without_servers_counts_too(site: DeliverySite) -> None:
    """By what is known of its mails before there is a server."""
    site.hops.table["gone.example"] = SmtpReply(451, "4.4.3", "DNS does not say it now", ours=True)
    rule = "{name: dns, class: DnsFailure, fields: [recipientdomain], trigger: 2/600, then: suspend, for: 1h}"
    await site.put("ann@gone.example", "bob@gone.example")
    await site.serve(20, hooks=reacting(site, rule))
    (order,) = await ordered(site)
    assert order.values == {"recipientdomain": ("gone.example",)}
    assert order.reason.endswith("the last reply: 451 4.4.3 DNS does not say it now")


async def test_the_hook_after_delivery_sees_the_class_of_a_refusal(site: DeliverySite) -> None:
    """And no class of a delivery."""
    seen = list[str]()

    async def post(attempt: HookedAttempt) -> PostDecision:
        seen.append(attempt.reply_class)
        return None

    site.relay.scripts["bob@one.example"] = [BUSY, ACCEPTED]
    hooks = DeliveryHooks(site.clock, post=post, post_name="looks", reactions=reacting(site).reactions)
    await site.put("bob@one.example")
    await site.serve(200, hooks=hooks)
    assert seen == ["TooManyConnections", ""]
    assert hooks.reactions.seen == {"TooManyConnections": 1}


def rule_of(fields: tuple[PickupField, ...], threshold: Threshold | None = None) -> AutomaticRule:
    return AutomaticRule("a", frozenset({"A", "B"}), fields, {}, DeliveryRate(2, SECOND), threshold, timedelta(hours=1))


@pytest.mark.parametrize("tenant", ["#a", "@a", "/a/"])
def test_a_value_that_an_order_would_read_otherwise_is_not_ordered(tenant: str) -> None:
    """It would hold the mails of others."""
    with pytest.raises(WrongUse, match=r"names|alone"):
        automatic_order(TriggeredRule(rule_of((PickupField.TENANT_ID,)), (tenant,)), BUSY)


async def test_a_rule_that_cannot_order_is_in_the_log_once_and_deliveries_go_on(
    site: DeliverySite, caplog: pytest.LogCaptureFixture
) -> None:
    """The mails are refused and tried again as without the rule."""
    rule = "{name: a, class: TooManyConnections, fields: [tenantid], trigger: 1/60, then: suspend, for: 1h}"
    for number in range(3):
        site.relay.scripts[f"{number}@busy.example"] = [BUSY, ACCEPTED]
        await site.put(f"{number}@busy.example", attributes={"tenantid": attribute("/a/")})
    await site.serve(200, hooks=reacting(site, rule))
    assert (len(site.relay.attempts), len(site.relay.had), await ordered(site)) == (6, 3, [])
    assert [one.message for one in caplog.records if "orders nothing" in one.message] == [
        "an automatic rule orders nothing"
    ]


def cannot_be_heeded(_: Sequence[HookOrder], owner: str) -> None:
    raise RuntimeError(owner)


async def test_an_error_of_ours_in_an_order_does_not_end_the_attempt_otherwise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What was refused for good has failed by the server's reply, and the journal has its outcome."""
    site = DeliverySite(journals=True)
    rule = "{name: a, class: InvalidRecipient, fields: [recipientdomain], trigger: 1/60, then: suspend, for: 1h}"
    site.relay.scripts["bob@one.example"] = [NEVER]
    mail = await site.put("bob@one.example")
    hooks = replace(reacting(site, rule), heed=cannot_be_heeded)
    await site.serve(30, hooks=hooks)
    (attempt,) = await site.recorded(mail)
    assert (attempt.outcome, attempt.status) == (AttemptOutcome.FAILED, "5.1.1")
    assert site.relay.reports() == [("bob@one.example", "failed")]
    assert "an automatic rule orders nothing" in caplog.text


async def test_a_mail_that_no_address_of_a_domain_takes_counts_once(site: DeliverySite) -> None:
    """One recipient of a domain with eight addresses does not suspend the domain; two recipients do."""
    site.hops.table["one.example"] = [NextHop(f"mx{number}.example", "192.0.2.1") for number in range(8)]
    site.relay.silent.update(f"mx{number}.example" for number in range(8))
    rule = "{name: a, class: NoAnswer, fields: [recipientdomain], trigger: 2/600, then: suspend, for: 1h}"
    hooks = reacting(site, rule)
    await site.put("bob@one.example")
    await site.serve(20, hooks=hooks)
    assert (len(site.relay.attempts), hooks.reactions.seen, await ordered(site)) == (8, {"NoAnswer": 8}, [])
    await site.put("cy@one.example")
    await site.serve(20, hooks=hooks)
    (order,) = await ordered(site)
    assert order.values == {"recipientdomain": ("one.example",)}


async def test_recipients_in_a_reply_are_in_no_order(site: DeliverySite) -> None:
    """The reason is in logs, in lists and in the history, which keep no addresses of people."""
    rule = "{name: a, class: InvalidRecipient, fields: [recipientdomain], trigger: 1/60, then: suspend, for: 1h}"
    site.relay.scripts["bob@one.example"] = [SmtpReply(550, "5.1.1", "<bob@one.example> unknown: mail bob@one.example")]
    await site.put("bob@one.example")
    await site.serve(20, hooks=reacting(site, rule))
    (order,) = await ordered(site)
    assert order.reason.endswith("the last reply: 550 5.1.1 (address) unknown: mail (address)")


def test_an_order_names_the_sub_queue_alone() -> None:
    """Also the empty value, which mails without the field have."""
    key = ("one.example", "")
    fields = (DOMAIN, PickupField.LOCAL_IP)
    given = automatic_order(TriggeredRule(rule_of(fields), key), BUSY)
    limited = automatic_order(TriggeredRule(rule_of(fields, Threshold(1)), key), BUSY)
    values = {DOMAIN: ("one.example",), PickupField.LOCAL_IP: ("",)}
    why = "A or B 2 times in 1 s; the last reply: 421 4.7.0 too many connections"
    assert given == SuspendMails(values, timedelta(hours=1), why)
    assert limited == LimitMails(values, Threshold(1), timedelta(hours=1), why)


def test_counts_of_classes_that_are_no_more_are_forgotten(site: DeliverySite) -> None:
    """The labels of the metric stay bounded over reloads."""
    reactions = reacting(site).reactions
    for _ in range(2):
        reactions.count(BUSY, {}, 0, set())
    reactions.use(all_classes(()), ())
    assert reactions.seen == {"TooManyConnections": 2}
    reactions.use(ReplyClasses(), ())
    assert reactions.seen == {}
