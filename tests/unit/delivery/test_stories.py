"""Whatever servers answer and wherever the process is killed: every recipient is served, and no limit is passed.

A process may be killed before and after each step: an attempt, its beginning in the journal, the server's answer, its
outcome in the journal, the mail that is put off, the report, the ack.
"""

import asyncio
from collections import Counter
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mailmend.delivery.mail.attempts import SmtpReply, UncertainPolicy
from mailmend.delivery.metrics import UNCERTAIN
from mailmend.delivery.policy.policy import CounterPolicy, PickupField, Threshold
from mailmend.delivery.policy.rates import SECOND, DeliveryRate, RateAlgorithm
from tests.support.deliveries import ACCEPTED, BUSY, FULL, LATER, NEVER, DeliverySite, reported
from tests.support.thorough import few_or

_SERVERS_MAX = 20
"""Hours: so long it takes at most, with attempts that are refused for now three times."""

DOMAINS = ("one.example", "two.example")
RECIPIENTS = [f"r{number}@{domain}" for number in range(4) for domain in DOMAINS]
MAILS = st.lists(
    st.lists(st.sampled_from(RECIPIENTS), min_size=1, max_size=3, unique=True).map(tuple), min_size=1, max_size=4
)
ANSWERS = st.fixed_dictionaries(
    {
        one: st.tuples(st.lists(st.sampled_from([LATER, BUSY, FULL]), max_size=3), st.sampled_from([ACCEPTED, NEVER]))
        for one in RECIPIENTS
    }
)
DEATHS = st.lists(st.integers(1, 60), max_size=4)
LIMITS = st.tuples(st.integers(1, 3), st.sampled_from([1, 5, 60]))


Answers = dict[str, tuple[list[SmtpReply], SmtpReply]]

TWO_FAIL: Answers = {one: ([], NEVER if one in RECIPIENTS[:2] else ACCEPTED) for one in RECIPIENTS}
"""One report tells of both."""


@settings(max_examples=few_or(100, 12), deadline=None)
@given(MAILS, ANSWERS, DEATHS, LIMITS)
def test_every_recipient_has_the_mail_or_is_reported_and_never_both(
    mails: list[tuple[str, ...]], answers: Answers, deaths: list[int], limits: tuple[int, int]
) -> None:
    """At least once; where the process is not killed, exactly once."""
    site, _ = asyncio.run(_story(mails, answers, deaths, limits))
    had, reports = Counter(site.relay.had), site.relay.reports()
    for recipient, times in _put(mails).items():
        failed = answers[recipient][1] is NEVER
        served = reports.count((recipient, "failed")) if failed else had[recipient]
        assert served >= times
        assert served == times or deaths
        assert served <= times * (len(deaths) + 1) ** 2
        assert not (had[recipient] if failed else reports.count((recipient, "failed")))
    assert set(had) <= {*_put(mails), "ann@sender.example"}


@settings(max_examples=few_or(100, 12), deadline=None)
@given(MAILS, ANSWERS, DEATHS, LIMITS)
def test_what_nobody_knows_is_held_and_nobody_has_it_twice(
    mails: list[tuple[str, ...]], answers: Answers, deaths: list[int], limits: tuple[int, int]
) -> None:
    """Nor one that was refused for now, and was being put off; every recipient is served, or waits for a person."""
    site, _ = asyncio.run(_story(mails, answers, deaths, limits, UncertainPolicy.HOLD))
    had, reports = Counter(site.relay.had), [*site.relay.reports(), *asyncio.run(_held_reports(site))]
    held = Counter(one.entry.recipient for one in asyncio.run(site.held()))
    for recipient, times in _put(mails).items():
        _, last = answers[recipient]
        served = reports.count((recipient, "failed")) if last is NEVER else had[recipient]
        assert served + held[recipient] >= times
        assert had[recipient] <= times
        assert not held[recipient] or deaths


@settings(max_examples=few_or(100, 12), deadline=None)
@given(MAILS, ANSWERS, DEATHS, LIMITS)
@example([tuple(RECIPIENTS[:2])], TWO_FAIL, [15], (1, 1))
def test_what_nobody_knows_counts_as_delivered_and_nobody_has_it_twice(
    mails: list[tuple[str, ...]], answers: Answers, deaths: list[int], limits: tuple[int, int]
) -> None:
    """Nor one that was refused for now, and was being put off; whoever is not served was assumed to be, and counted.

    A report is one mail, whatever it tells of all recipients of another.
    """
    site, assumed = asyncio.run(_story(mails, answers, deaths, limits, UncertainPolicy.ASSUME))
    had, reports, unserved, untold = Counter(site.relay.had), site.relay.reports(), 0, 0
    for recipient, times in _put(mails).items():
        _, last = answers[recipient]
        if last is NEVER:
            untold += max(0, times - reports.count((recipient, "failed")))
        unserved += 0 if last is NEVER else max(0, times - had[recipient])
        assert had[recipient] <= times
    assert unserved + untold / max(map(len, mails)) <= assumed
    assert not assumed or deaths


def _put(mails: list[tuple[str, ...]]) -> Counter[str]:
    return Counter(one for mail in mails for one in mail)


async def _held_reports(site: DeliverySite) -> list[tuple[str, str]]:
    contents = [await site.queue.content(one) async for one in site.queue.browse()]
    return [one for text in contents if b"multipart/report" in text for one in reported(text)]


async def _story(
    mails: list[tuple[str, ...]],
    answers: Answers,
    deaths: list[int],
    limits: tuple[int, int],
    uncertain: UncertainPolicy = UncertainPolicy.RETRY,
) -> tuple[DeliverySite, int]:
    """The site once nothing is left to be done, and how often the policy of what is uncertain decided."""
    at_once, seconds = limits
    policies = [
        CounterPolicy((PickupField.RECIPIENT_DOMAIN,), default=Threshold(concurrency=at_once)),
        CounterPolicy((PickupField.TRANSPORT_ID,), default=Threshold(rate=DeliveryRate(2, seconds * SECOND))),
    ]
    site, decided = DeliverySite(journals=True), 0
    site.relay.seconds = 7.0
    site.relay.scripts = {one: [*before, last] for one, (before, last) in answers.items()}
    for recipients in mails:
        await site.put(*recipients)
    for dies_at in [*deaths, *[None] * _SERVERS_MAX]:
        if len(await site.held()) < sum([len(one.recipients) for one in await site.mails()]):
            how: dict[str, Any] = {"prefetch": 2} if dies_at is None else {"dies_at": dies_at}
            time = 3600 if dies_at is None else 600
            await site.serve(time, policies, algorithm=RateAlgorithm.SLIDING, uncertain=uncertain, **how)
            decided += sum(int(one.value) for one in site.server.samples() if one.metric is UNCERTAIN)
    assert len(await site.held()) == sum([len(one.recipients) for one in await site.mails()])
    assert max(site.relay.most[domain] for domain in DOMAINS) <= at_once
    if not deaths:
        began = [at for at, _ in site.relay.attempts]
        assert all(later - sooner >= seconds for sooner, later in zip(began, began[2:], strict=False))
    return site, decided
