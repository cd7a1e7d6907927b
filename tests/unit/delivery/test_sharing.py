"""Servers of deliveries that share limits, with a ledger in memory, time turned by hand."""

import asyncio
from typing import Any

import pytest

from mailmend.delivery.mail.entries import EntryEnd
from mailmend.delivery.policy.policy import CounterPolicy, PickupField, Threshold
from mailmend.delivery.policy.rates import DeliveryRate, RateAlgorithm
from mailmend.model.errors import CannotReach, ServerNameTaken
from tests.support.deliveries import DeliverySite
from tests.support.orders import condition
from tests.support.sharing import Ledger, SharingServer, Wire

BY_DOMAIN = (PickupField.RECIPIENT_DOMAIN,)


def at_most(concurrency: int, **others: Any) -> CounterPolicy:
    return CounterPolicy(BY_DOMAIN, default=Threshold(concurrency, **others))


@pytest.fixture
def site() -> DeliverySite:
    return DeliverySite(shares_limits=True)


async def both(site: DeliverySite, other: DeliverySite, seconds: float, *policies: CounterPolicy, **more: Any) -> None:
    await asyncio.gather(
        site.serve(seconds, policies, server_name="a", **more), other.serve(seconds, policies, server_name="b", **more)
    )


def most_at_once(*sites: DeliverySite) -> int:
    """The largest number of attempts at once over all of them."""
    began = [(at, 1) for site in sites for at, _ in site.relay.attempts]
    ended = [(at + site.relay.seconds, -1) for site in sites for at, _ in site.relay.attempts]
    running = most = 0
    for _, change in sorted((*began, *ended)):
        running += change
        most = max(most, running)
    return most


def shown(site: DeliverySite, state: str) -> tuple[float, float]:
    """In metrics: how many servers there are, and whether ours is in that state."""
    values = {(one.metric.name, one.labels): one.value for one in site.server.samples()}
    queue = site.queue.name
    return values["mailmend_delivery_servers", (queue,)], values["mailmend_delivery_share", (queue, state)]


async def test_a_server_alone_has_all_of_each_limit_at_once(site: DeliverySite) -> None:
    site.relay.seconds = 10.0
    for number in range(4):
        await site.put(f"r{number}@one.example")

    async def look() -> None:
        await site.clock.pause(5)
        assert shown(site, "shares") == (1, 1)

    await site.serve(60, [at_most(4)], until=lambda: len(site.relay.had) == 4, beside=look())
    began = [at for at, _ in site.relay.attempts]
    assert (len(began), max(began) - min(began) < 2, site.relay.most["one.example"]) == (4, True, 4)


async def test_two_servers_share_a_limit_and_deliver_everything(site: DeliverySite) -> None:
    other = site.beside()
    site.relay.seconds = other.relay.seconds = 7.0
    for number in range(40):
        await site.put(f"r{number}@one.example")
    await both(site, other, 600, at_most(4), prefetch=4)
    assert most_at_once(site, other) == 4
    assert min(len(site.relay.had), len(other.relay.had)) > 5
    assert len(site.relay.had) + len(other.relay.had) == 40


async def test_a_limit_of_one_belongs_to_one_of_two_and_the_other_gives_its_mails_back(site: DeliverySite) -> None:
    """Within seconds, so that they may come to the right one; no retry is counted."""
    other = site.beside()
    for number in range(10):
        await site.put(f"r{number}@one.example")
    await both(site, other, 900, at_most(1), prefetch=4)
    assert most_at_once(site, other) == 1
    ours, theirs = sorted((site, other), key=lambda one: len(one.relay.had))
    assert (len(ours.relay.had), len(theirs.relay.had) > 4) == (0, True)
    assert set(ours.server.ended) == {EntryEnd.RETURNED}
    assert ours.server.ended[EntryEnd.RETURNED] > 10


async def test_limits_that_are_not_shared_are_each_servers_own(site: DeliverySite) -> None:
    other = site.beside()
    site.relay.seconds = other.relay.seconds = 30.0
    for number in range(12):
        await site.put(f"r{number}@one.example")
    await both(site, other, 200, at_most(3, cluster=False), prefetch=4)
    assert (most_at_once(site, other), site.relay.most["one.example"]) == (6, 3)


async def test_limits_set_for_a_while_may_be_each_servers_own() -> None:
    """In place of a shared one of the file."""
    site = DeliverySite(shares=True, shares_limits=True)
    other = site.beside()
    site.relay.seconds = other.relay.seconds = 30.0
    values = {"recipientdomain": ("one.example",)}
    made = condition(site.clock.now, values, Threshold(3, cluster=False), queue=site.queue.name)
    await site.ledger.put(made, site.clock.now)
    for number in range(12):
        await site.put(f"r{number}@one.example")
    await both(site, other, 100, at_most(1), prefetch=4)
    assert (most_at_once(site, other), site.relay.most["one.example"]) == (6, 3)


async def test_a_server_that_ended_keeps_its_part_for_who_has_its_name_next(site: DeliverySite) -> None:
    """It has it at once; nobody waits for a minute."""
    await site.serve(20, [at_most(2)], server_name="a", insists_on_name=True)
    await site.put("r@one.example")
    began = site.clock.monotonic()
    await site.serve(60, [at_most(2)], server_name="a", insists_on_name=True, until=lambda: bool(site.relay.had))
    assert site.relay.attempts[0][0] - began < 2


async def test_a_name_that_a_live_server_has_is_refused_where_it_was_asked_for(site: DeliverySite) -> None:
    """After a minute: the other could have been dead. Else a number follows it."""
    other, third = site.beside(), site.beside()
    serving = asyncio.ensure_future(site.serve(200, server_name="a"))
    await site.clock.pause(5)
    numbered = asyncio.ensure_future(third.serve(150, server_name="a"))
    began = site.clock.monotonic()
    with pytest.raises(ServerNameTaken, match="'a' of outgoing is alive"):
        await other.serve(150, server_name="a", insists_on_name=True)
    assert 60 < site.clock.monotonic() - began < 80
    assert sorted(await site.ledger.servers.memberships(site.queue.name)) == ["a", "a-2"]
    await asyncio.gather(serving, numbered)


@pytest.mark.parametrize("insists", [False, True])
def test_a_server_that_never_heard_that_it_has_its_membership_takes_no_other(*, insists: bool) -> None:
    """It knows its own claim, and keeps the membership from then on: by its first claim it would end sooner."""
    ledger = Ledger()
    server = SharingServer(ledger, "a", [at_most(2)], RateAlgorithm.SLIDING, insists=insists)
    server.tables.wire = Wire.ANSWERS_LOST
    server.turn()
    assert server.limits.membership is None
    ledger.seconds, server.tables.wire = 40.0, Wire.WELL
    server.turn()
    assert server.limits.membership
    assert server.limits.membership.name == "a"
    ledger.seconds = 65.0
    other = SharingServer(ledger, "a", [at_most(2)], RateAlgorithm.SLIDING)
    other.turn()
    assert other.limits.membership
    assert other.limits.membership.name == "a-2"


async def test_a_server_that_is_cut_off_begins_nothing_and_breaks_off_before_others_take_over(
    site: DeliverySite,
) -> None:
    """Half a minute after the last heartbeat, and nearly a whole one."""
    site.relay.seconds = 1000.0
    await site.put("one@one.example")
    await site.put("two@two.example")
    cut_at = list[float]()

    def surround(_operation: object, carry_out: Any) -> Any:
        if cut_at:
            raise CannotReach("nobody answers")
        return carry_out()

    async def cut() -> None:
        await site.clock.pause(12)
        site.tables.surround = surround
        cut_at.append(site.clock.monotonic())
        await site.clock.pause(35)
        await site.put("late@three.example")
        assert sum(site.relay.running.values()) == 2
        assert shown(site, "cut_off") == (1, 1)
        await site.clock.pause(25)
        assert sum(site.relay.running.values()) == 0

    await site.serve(90, [at_most(5)], beside=cut())
    assert sorted(site.relay.recipients) == ["one@one.example", "two@two.example"]
    assert site.relay.had == []
    assert len(await site.mails()) == 3


async def test_what_a_server_gains_of_a_rate_counts_as_spent(site: DeliverySite) -> None:
    """Never more than ten in a minute, although the second server comes when the first has begun all it may."""
    other, rate = site.beside(), DeliveryRate.parse("10/60")
    for number in range(30):
        await site.put(f"r{number}@one.example")
    policy = CounterPolicy(BY_DOMAIN, default=Threshold(rate=rate))
    first = asyncio.ensure_future(
        site.serve(400, [policy], server_name="a", prefetch=12, algorithm=RateAlgorithm.SLIDING)
    )
    await site.clock.pause(15)
    await other.serve(385, [policy], server_name="b", prefetch=12, algorithm=RateAlgorithm.SLIDING)
    await first
    began = sorted(at for one in (site, other) for at, _ in one.relay.attempts)
    assert len(began) == 30
    assert all(later - earlier >= 59.9 for earlier, later in zip(began, began[10:], strict=False))
    assert began[9] - began[0] < 2
