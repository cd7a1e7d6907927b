"""Whatever servers answer and wherever the process is killed: every recipient is served, and no limit is passed."""

import asyncio
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from model.delivery.attempts import SmtpReply
from model.pickup.policy import CounterPolicy, PickupField, Threshold
from model.pickup.rates import SECOND, DeliveryRate, RateAlgorithm
from tests.support.deliveries import ACCEPTED, BUSY, LATER, NEVER, DeliverySite

_SERVERS_MAX = 20
"""Hours: so long it takes at most, with attempts that are refused for now three times."""

DOMAINS = ("one.example", "two.example")
RECIPIENTS = [f"r{number}@{domain}" for number in range(4) for domain in DOMAINS]
MAILS = st.lists(
    st.lists(st.sampled_from(RECIPIENTS), min_size=1, max_size=3, unique=True).map(tuple), min_size=1, max_size=4
)
ANSWERS = st.fixed_dictionaries(
    {
        one: st.tuples(st.lists(st.sampled_from([LATER, BUSY]), max_size=3), st.sampled_from([ACCEPTED, NEVER]))
        for one in RECIPIENTS
    }
)
DEATHS = st.lists(st.integers(1, 40), max_size=4)
LIMITS = st.tuples(st.integers(1, 3), st.sampled_from([1, 5, 60]))


@settings(max_examples=60, deadline=None)
@given(MAILS, ANSWERS, DEATHS, LIMITS)
def test_every_recipient_has_the_mail_or_is_reported_and_never_both(
    mails: list[tuple[str, ...]],
    answers: dict[str, tuple[list[SmtpReply], SmtpReply]],
    deaths: list[int],
    limits: tuple[int, int],
) -> None:
    """At least once; where the process is not killed, exactly once."""
    site = asyncio.run(_story(mails, answers, deaths, limits))
    put, had, reports = Counter(one for mail in mails for one in mail), Counter(site.relay.had), site.relay.reports()
    for recipient, times in put.items():
        failed = answers[recipient][1] is NEVER
        served = reports.count((recipient, "failed")) if failed else had[recipient]
        assert served >= times
        assert served == times or deaths
        assert not (had[recipient] if failed else reports.count((recipient, "failed")))
    assert set(had) <= {*put, "ann@sender.example"}


async def _story(
    mails: list[tuple[str, ...]],
    answers: dict[str, tuple[list[SmtpReply], SmtpReply]],
    deaths: list[int],
    limits: tuple[int, int],
) -> DeliverySite:
    at_once, seconds = limits
    policies = [
        CounterPolicy((PickupField.RECIPIENT_DOMAIN,), default=Threshold(concurrency=at_once)),
        CounterPolicy((PickupField.TRANSPORT_ID,), default=Threshold(rate=DeliveryRate(2, seconds * SECOND))),
    ]
    site = DeliverySite()
    site.relay.seconds = 7.0
    site.relay.scripts = {one: [*before, last] for one, (before, last) in answers.items()}
    for recipients in mails:
        await site.put(*recipients)
    for dies_at in deaths:
        await site.serve(600, policies, dies_at=dies_at, algorithm=RateAlgorithm.SLIDING)
    for _ in range(_SERVERS_MAX):
        if await site.mails():
            await site.serve(3600, policies, algorithm=RateAlgorithm.SLIDING, prefetch=2)
    assert await site.mails() == []
    assert max(site.relay.most[domain] for domain in DOMAINS) <= at_once
    if not deaths:
        began = [at for at, _ in site.relay.attempts]
        assert all(later - sooner >= seconds for sooner, later in zip(began, began[2:], strict=False))
    return site
