"""Quotas of a policy file: where they are wrong, and what they refuse to clients."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from mailmend.delivery.mail.envelopes import counted_mail
from mailmend.delivery.metrics import QUOTA_COUNTED, QUOTA_REFUSED, QUOTA_USED
from mailmend.delivery.policy.file.forms import BadPolicyFile
from mailmend.delivery.policy.file.reading import policies_of
from mailmend.delivery.policy.lint import lint_policies
from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.policy.policy import PickupField
from mailmend.delivery.policy.quotas import QueuedAmount, QuotaLimit, QuotaUsage
from mailmend.delivery.shared.quotas import QueueQuotas
from mailmend.delivery.transports import DeliveryProtocol
from mailmend.mailqueue.codec import attribute
from mailmend.mailqueue.memory import MemoryMailQueue
from mailmend.mailqueue.rules.mails import Listed, Mail
from mailmend.model.errors import CannotReach
from mailmend.model.ids import QueueName
from tests.support.clock import VirtualClock
from tests.support.mail_clients import MAIL, RCPT, MailEntrance, entrance

CONTENT = b"Subject: hello\r\n\r\nThe body.\r\n"
CY = "RCPT TO:<cy@example.net>"
FULL = "452 4.3.1 the quota per-domain is full"
PER_DOMAIN = "quotas: [{name: per-domain, fields: [recipientdomain], default: {messages: 1}}]"


def said(text: str) -> PickupPolicies:
    return policies_of(text, "policies.yaml").said


def limit(site: MailEntrance, text: str) -> None:
    """Let a policy file hold, of an empty queue that was counted."""
    found = said(text)
    site.listener.intake.rules = found.incoming
    quotas = site.listener.intake.quotas
    quotas.usage = QuotaUsage(found.quotas, is_counted=True)
    quotas.usage.end_count(quotas.usage.begin_count())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("quotas: {}", "line 1, column 9: quotas are a list"),
        ("quotas:\n- {fields: [jobid]}", "line 2, column 3: a quota lacks its name"),
        ("quotas:\n- {name: a b}", "line 2, column 10: 'a b' is no name of a quota"),
        ("quotas:\n- {name: a}\n- {name: a}", "line 3, column 10: there are two quotas 'a'"),
        ("quotas:\n- {name: a, fields: [localip]}", "line 2, column 22: localip is no field here"),
        ("quotas:\n- {name: a, default: {concurrency: 1}}", "column 23: the limits of a quota has no 'concurrency'"),
        ("quotas:\n- {name: a, default: {messages: -1}}", "column 33: '-1' is no number of mails"),
        ("quotas:\n- {name: a, default: {bytes: 1.5G}}", "column 30: '1.5G' is no number of bytes"),
        ("quotas:\n- {name: a, conditions: [{if: {jobid: a}, then: {}}]}", "column 32: this does not count by jobid"),
        ("quotas:\n- {name: a, conditions: [{if: {}}]}", "a condition lacks its then"),
    ],
)
def test_a_quota_that_cannot_be_used_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(BadPolicyFile, match=message):
        said(text)


@pytest.mark.parametrize(
    ("written", "count"),
    [("0", 0), ("5000", 5000), ("2K", 2048), ("3 MB", 3 * 2**20), ("5GiB", 5 * 2**30), ("1t", 2**40)],
)
def test_bytes_are_written_with_a_unit_or_without(written: str, count: int) -> None:
    (quota,) = said(f"quotas: [{{name: a, default: {{bytes: {written}, messages: 7}}}}]").quotas
    assert quota.default == QuotaLimit(7, count)


def test_quotas_that_are_surely_not_meant_are_found() -> None:
    """As with policies: conditions that no mail reaches, values that none has; no limit at all; and none let in."""
    text = """\
quotas:
- {name: a, default: {messages: 0}}
- {name: b}
- {name: c, fields: [jobid], conditions: [{if: {jobid: /.*/}, then: {bytes: 0}}], default: {messages: 5}}
- name: d
  fields: [recipientdomain]
  conditions:
  - {if: {recipientdomain: '*.a.org'}, then: {messages: 0}}
  - {if: {recipientdomain: b.a.org}, then: {messages: 1}}
  - {if: {recipientdomain: []}, then: {messages: 1}}
- {name: fine, fields: [jobid], conditions: [{if: {jobid: bad}, then: {messages: 0}}], default: {bytes: 5G}}
"""
    assert [(rule.id, hit.path) for rule, hit in lint_policies(said(text))] == [
        ("P1", ("quotas", 3, "conditions", 1)),
        ("P3", ("quotas", 2, "default")),
        ("P4", ("quotas", 3, "conditions", 2, "if", "recipientdomain")),
        ("P10", ("quotas", 1)),
        ("P12", ("quotas", 0)),
        ("P12", ("quotas", 2)),
    ]


def test_a_mail_is_counted_by_what_its_attributes_say_and_its_domains() -> None:
    """Each domain once, in its normal form; what cannot be read counts as not there."""
    attributes = {"tenantid": attribute("acme"), "jobid": "{", "mailmend.bytes": attribute(70)}
    found = counted_mail(Mail("m", ("a@X.org", "b@x.org", "c@y.org"), attributes=attributes))
    assert [dict(one) for one in found.values] == [
        {PickupField.TENANT_ID: "acme", PickupField.RECIPIENT_DOMAIN: domain} for domain in ("x.org", "y.org")
    ]
    assert (found.bytes, counted_mail(Mail("m", ("a@x.org",))).bytes) == (70, 0)


async def test_a_recipient_whose_quota_is_full_has_to_come_again() -> None:
    """Others of the mail are taken; so is the recipient once a count finds room."""
    async with entrance() as site:
        limit(site, PER_DOMAIN)
        client = await site.client()
        await client.hand_over(CONTENT)
        answers = [await client.say(*lines) for lines in ((MAIL, RCPT), (CY,))]
        await client.hand_over(CONTENT, "NOOP")
        await site.queue.purge()
        await site.listener.intake.quotas.count()
        again = await client.hand_over(CONTENT)

    assert answers[0].startswith(FULL)
    assert [one[:9] for one in (answers[1], again)] == ["250 2.1.5", "250 2.0.0"]


async def test_a_quota_in_bytes_goes_by_what_the_client_says_of_its_mail_and_then_by_its_bytes() -> None:
    """The size is kept with the mail, for counts to come."""
    async with entrance() as site:
        limit(site, "quotas: [{name: all, default: {bytes: 1000}}]")
        client = await site.client()
        stated = await client.say(f"{MAIL} SIZE=1001", RCPT)
        await client.say("RSET")
        large = await client.hand_over(b"x" * 998 + b"\r\n")
        taken = await client.hand_over(b"x" * 600 + b"\r\n")
        await site.listener.intake.quotas.count()
        again = await client.hand_over(b"x" * 600 + b"\r\n")
        ((_, content),) = await site.mails()
        (quota,) = site.listener.intake.quotas.usage.quotas
        assert site.listener.intake.quotas.usage.used(quota, ()) == QueuedAmount(1, len(content))

    assert [one[:9] for one in (stated, large, taken, again)] == ["452 4.3.1", "452 4.3.1", "250 2.0.0", "452 4.3.1"]


@pytest.mark.parametrize("protocol", DeliveryProtocol)
async def test_what_only_the_header_tells_is_refused_behind_the_mail(protocol: DeliveryProtocol) -> None:
    """By LMTP each recipient has its answer, and those that fit are taken; by SMTP all of it comes again."""
    is_lmtp = protocol is DeliveryProtocol.LMTP
    async with entrance(protocol) as site:
        limit(
            site,
            "incoming: [{if: {header: {X-Job: '/(.+)/'}}, set: {jobid: '${1}'}}]\n"
            "quotas: [{name: job, fields: [jobid, recipientdomain],"
            " conditions: [{if: {jobid: daily, recipientdomain: example.net}, then: {messages: 0}}]}]",
        )
        client = await site.client("LHLO client.example" if is_lmtp else "EHLO client.example")
        answers = [await client.hand_over(b"X-Job: daily\r\n" + CONTENT, MAIL, RCPT, CY)]
        answers += [await client.reply() for _ in range(is_lmtp)]
        there = [mail.recipients for mail, _ in await site.mails()]
        other = await client.hand_over(b"X-Job: other\r\n" + CONTENT, MAIL, CY)

    assert [one[:9] for one in answers] == (["250 2.0.0", "452 4.3.1"] if is_lmtp else ["452 4.3.1"])
    assert there == ([("bob@example.com",)] if is_lmtp else [])
    assert other[:9] == "250 2.0.0"


async def test_mails_that_come_at_once_share_a_quota() -> None:
    """One that is being put counts already; so do the mails that rules make of one."""
    async with entrance() as site:
        limit(
            site,
            "incoming: [{set: {grouping: '${recipientdomain}'}}]\nquotas: [{name: all, default: {messages: 2}}]",
        )
        first, second = await site.client(), await site.client()
        site.queue.goes_on.clear()
        for client in (first, second):
            assert (await client.say(MAIL, RCPT, CY, "DATA"))[:3] == "354"
        first.write(CONTENT + b".\r\n")
        await site.until(site.queue.began.is_set)
        second.write(CONTENT + b".\r\n")
        refused = await second.reply()
        site.queue.goes_on.set()
        taken = await first.reply()
        assert len(await site.mails()) == 2

    assert [one[:9] for one in (refused, taken)] == ["452 4.3.1", "250 2.0.0"]


async def test_no_mail_is_taken_before_the_queue_was_counted() -> None:
    """Then without anybody doing anything."""
    async with entrance() as site:
        found = said("quotas: [{name: all, default: {messages: 1}}]").quotas
        client = await site.client()
        site.listener.intake.quotas.usage = QuotaUsage(found)
        early = await client.say(MAIL, RCPT)
        assert [one.metric for one in site.listener.samples() if one.metric is QUOTA_COUNTED] == []
        site.listener.intake.quotas.limit(found)
        await site.until(lambda: not site.listener.intake.quotas.are_unknown)
        later = await client.say(RCPT)

    assert [one[:9] for one in (early, later)] == ["452 4.3.1", "250 2.1.5"]


async def test_metrics_show_refusals_of_quotas_and_how_full_they_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By their names; neither it nor the log hears of keys or addresses."""
    caplog.set_level("INFO")
    async with entrance() as site:
        limit(site, PER_DOMAIN)
        client = await site.client()
        await client.hand_over(CONTENT)
        await client.say(MAIL, RCPT)
        await site.listener.intake.quotas.count()
        samples = {one.metric: (one.labels, one.value) for one in site.listener.samples()}

    assert samples[QUOTA_REFUSED] == (("outgoing", "per-domain"), 1)
    assert samples[QUOTA_USED] == (("outgoing", "per-domain"), 1.0)
    assert samples[QUOTA_COUNTED][1] > 0
    (full,) = (vars(one) for one in caplog.records if one.getMessage() == "a quota is full")
    assert (full["quota"], "example.com" in str(full)) == ("per-domain", False)


class ListedSlowly(MemoryMailQueue):
    """A queue whose listing takes some seconds, and may fail; `began` is when each was."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(QueueName("outgoing"), clock)
        self.began = list[float]()
        self.seconds, self.error = 0.0, False

    async def browse(self, *args: Any, **options: Any) -> AsyncGenerator[Listed]:
        self.began.append(self.clock.monotonic())
        await self.clock.pause(self.seconds)
        if self.error:
            raise CannotReach("away")
        async for one in super().browse(*args, **options):
            yield one


@dataclass
class Counting:
    """Quotas that are counted by a clock turned by hand, over a queue that lists slowly."""

    quotas: QueueQuotas
    queue: ListedSlowly
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def times(self, seconds: float, beside: Callable[[], Awaitable[None]] | None = None) -> list[float]:
        """When each count began, in seconds from now on, over so many."""
        begun = self.queue.clock.monotonic()
        task = asyncio.ensure_future(self.quotas.keep_current(self.stop))
        if beside:
            await beside()
        await self.queue.clock.pause(begun + seconds - self.queue.clock.monotonic())
        self.stop.set()
        await task
        return [round(one - begun, 3) for one in self.queue.began]


@pytest.fixture
def counting() -> Counting:
    queue = ListedSlowly(VirtualClock())
    quotas = QueueQuotas(queue=queue, clock=queue.clock, usage=QuotaUsage(said(PER_DOMAIN).quotas))
    return Counting(quotas, queue)


async def test_the_queue_is_counted_again_and_again(counting: Counting) -> None:
    """Ten seconds after a count; where that took long, so that it takes a tenth of the time."""
    assert await counting.times(25) == [0, 10, 20]
    counting.stop.clear()
    counting.queue.began.clear()
    counting.queue.seconds = 2.0
    assert await counting.times(45) == [0, 20, 40]


async def test_a_refusal_lets_the_next_count_begin_soon(counting: Counting) -> None:
    """A second after the last."""

    async def refused() -> None:
        await counting.queue.clock.pause(0.5)
        one = counted_mail(Mail("m", ("a@x.org",)))
        assert counting.quotas.refusal([one, one])

    assert await counting.times(5, refused) == [0, 1]


async def test_a_count_that_fails_leaves_what_was_known(counting: Counting, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once, and tried again no sooner than any other."""
    caplog.set_level("INFO")
    await counting.queue.enqueue(Mail("m", ("a@x.org",)), CONTENT)
    await counting.quotas.count()
    counting.queue.error = True
    assert counting.quotas.refusal([counted_mail(Mail("m", ("a@x.org",)))])

    async def mended() -> None:
        await counting.queue.clock.pause(25)
        assert counting.quotas.refusal([counted_mail(Mail("m", ("a@x.org",)))])
        counting.queue.error = False

    counting.queue.began.clear()
    assert await counting.times(35, mended) == [0, 10, 20, 30]
    assert [one.getMessage() for one in caplog.records] == [
        "quotas stay as they were counted",
        "quotas can be counted again",
    ]


async def test_without_quotas_nothing_is_counted_until_there_are_some(counting: Counting) -> None:
    """They are counted at once, and refuse nothing before."""
    counting.quotas.usage = QuotaUsage()

    async def reload() -> None:
        await counting.queue.clock.pause(100)
        counting.quotas.limit(said("quotas: [{name: a, default: {messages: 0}}]").quotas)
        assert not counting.quotas.are_unknown
        assert counting.quotas.refusal([counted_mail(Mail("m", ("a@x.org",)))]) is None

    assert await counting.times(105, reload) == [100]
    assert counting.quotas.refusal([counted_mail(Mail("m", ("a@x.org",)))])
