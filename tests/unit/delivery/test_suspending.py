"""Mails that people hold back: a server of deliveries with a ledger in memory, time turned by hand."""

from datetime import timedelta
from typing import Any

import pytest

from mailmend.delivery.policy.policy import CounterPolicy, PickupField, Threshold
from mailmend.delivery.policy.suspensions import MadeSuspension
from mailmend.mailqueue.codec import attribute
from mailmend.model.catalog.ledger import DELIVERY_SUSPENSION
from mailmend.model.errors import CannotReach
from mailmend.model.operations import Put, Read
from tests.support.deliveries import DeliverySite

ONE = "bob@one.example"
TWO = "cy@two.example"


@pytest.fixture
def site() -> DeliverySite:
    return DeliverySite(shares=True)


async def suspended(site: DeliverySite, *domains: str, lasts: timedelta | None = None) -> MadeSuspension:
    ends_at = site.clock.now + lasts if lasts else None
    values = {"recipientdomain": domains} if domains else {}
    made = MadeSuspension(
        id=site.clock.new_uuid(), queue=site.queue.name, values=values, owner="ann", reason="x", ends_at=ends_at
    )
    await site.ledger.suspensions.put(made, site.clock.now)
    return made


async def test_what_is_suspended_before_a_server_starts_is_never_picked(site: DeliverySite) -> None:
    """Others go on."""
    await suspended(site, "one.example")
    await site.put(ONE)
    await site.put(TWO)
    await site.serve(120)
    assert site.relay.recipients == [TWO]


async def test_what_is_lifted_goes_within_seconds(site: DeliverySite) -> None:
    """It is read every five seconds; its mail waits all the while."""
    made = await suspended(site, "one.example")
    await site.put(ONE)
    lifted_at = list[float]()

    async def lift() -> None:
        await site.clock.pause(60)
        await site.ledger.suspensions.remove(made, site.clock.now)
        lifted_at.append(site.clock.monotonic())

    await site.serve(300, until=lambda: bool(site.relay.had), beside=lift())
    assert site.relay.had == [ONE]
    assert 0 <= site.relay.attempts[0][0] - lifted_at[0] <= 5


async def test_a_suspension_ends_by_the_clock_of_the_server(site: DeliverySite) -> None:
    """To the second, although the ledger is read once in ten minutes only."""
    await suspended(site, "one.example", lasts=timedelta(seconds=90))
    await site.put(ONE)
    began = site.clock.monotonic()
    every = timedelta(minutes=10)
    await site.serve(600, until=lambda: bool(site.relay.had), suspensions_every=every)
    assert [round(at - began) for at, _ in site.relay.attempts] == [90]


async def test_an_end_that_is_past_holds_nothing_back(site: DeliverySite) -> None:
    """The row expires a minute after its end."""
    await suspended(site, lasts=timedelta(seconds=1))
    site.clock.advance(30)
    await site.put(ONE)
    await site.serve(60, until=lambda: bool(site.relay.had))
    assert site.relay.had == [ONE]
    site.clock.advance(60)
    assert await site.ledger.suspensions.of(site.queue.name) == []


async def test_a_suspension_stops_what_begins_and_not_what_is_under_way(site: DeliverySite) -> None:
    """Of two mails, of which one may go at once, the second stays."""
    site.relay.seconds = 60.0
    await site.put(ONE)
    await site.put(ONE)

    async def suspend() -> None:
        await site.clock.pause(20)
        await suspended(site)

    limit = CounterPolicy((PickupField.RECIPIENT_DOMAIN,), default=Threshold(concurrency=1))
    await site.serve(200, [limit], beside=suspend())
    assert site.relay.had == [ONE]
    assert len(await site.mails()) == 1


async def test_a_suspension_disturbs_no_limit(site: DeliverySite) -> None:
    """Whatever comes and goes, no more than two are under way to a domain."""
    site.relay.seconds = 12.0
    for number in range(6):
        await site.put(f"r{number}@one.example")

    async def come_and_go() -> None:
        for _ in range(4):
            made = await suspended(site, "two.example")
            await site.clock.pause(6)
            await site.ledger.suspensions.remove(made, site.clock.now)

    limit = CounterPolicy((PickupField.RECIPIENT_DOMAIN,), default=Threshold(concurrency=2))
    await site.serve(300, [limit], until=lambda: len(site.relay.had) == 6, beside=come_and_go())
    assert (len(site.relay.had), site.relay.most) == (6, {"one.example": 2})


async def test_a_ledger_that_cannot_be_read_changes_nothing_and_is_said_once(
    site: DeliverySite, caplog: pytest.LogCaptureFixture
) -> None:
    """Metrics tell since when; once it answers again, all goes on."""
    made = await suspended(site, "one.example")
    await site.put(ONE)
    silent, reads = [False], [0]

    def surround(operation: object, carry_out: Any) -> Any:
        if silent[0] and isinstance(operation, Read):
            reads[0] += 1
            raise CannotReach("nobody answers")
        return carry_out()

    site.tables.surround = surround

    async def fail_for_a_while() -> None:
        await site.clock.pause(30)
        await site.ledger.suspensions.remove(made, site.clock.now)
        silent[0], since = True, site.clock.micros() / 1_000_000
        await site.clock.pause(60)
        values = {one.metric.name: one.value for one in site.server.samples()}
        assert (reads[0] > 5, site.relay.recipients) == (True, [])
        assert values["mailmend_delivery_suspensions"] == 1
        assert since - 5 <= values["mailmend_delivery_suspensions_read_timestamp_seconds"] <= since
        silent[0] = False

    with caplog.at_level("INFO", "mailmend.delivery"):
        await site.serve(300, until=lambda: bool(site.relay.had), beside=fail_for_a_while())
    assert site.relay.had == [ONE]
    assert caplog.text.count("what is ordered stays as it was") == 1
    assert caplog.text.count("the ledger answers again") == 1


async def test_a_server_that_cannot_read_them_at_its_start_takes_no_mail(site: DeliverySite) -> None:
    """Nobody knows what must not go."""

    def surround(_operation: object, _carry_out: Any) -> Any:
        raise CannotReach("nobody answers")

    await site.put(ONE)
    site.tables.surround = surround
    with pytest.raises(CannotReach):
        await site.serve(60)
    assert site.relay.recipients == []


async def keep(site: DeliverySite, fields: str) -> None:
    """A row as another version has written it."""
    key = DELIVERY_SUSPENSION.key_row(("mail", site.queue.name, site.clock.new_uuid()))
    site.tables.write(Put(DELIVERY_SUSPENSION, key | {"fields": fields}))


async def test_an_expression_of_an_older_version_holds_every_mail_of_the_other_fields(
    site: DeliverySite, caplog: pytest.LogCaptureFixture
) -> None:
    """A server starts beside it, heeds the other suspensions, and says which one cannot be read."""
    await keep(site, '{"recipientdomain": ["/^(?!news)/"], "jobid": ["spring"]}')
    await suspended(site, "one.example")
    await site.put(ONE)
    await site.put(TWO)
    await site.put(TWO, attributes={"jobid": attribute("spring")})
    with caplog.at_level("WARNING", "mailmend.delivery"):
        await site.serve(120)
    assert site.relay.recipients == [TWO]
    values = {one.metric.name: one.value for one in site.server.samples()}
    assert values["mailmend_delivery_suspensions"] == 2
    assert values["mailmend_delivery_suspensions_unread"] == 1
    (record,) = [one for one in caplog.records if "cannot be read" in one.message]
    assert "(?!" in record.__dict__["error"]


async def test_what_a_later_version_suspends_by_a_field_of_its_own_holds_every_mail(
    site: DeliverySite, caplog: pytest.LogCaptureFixture
) -> None:
    await site.put(ONE)
    await keep(site, '{"weather": ["rain"]}')
    with caplog.at_level("WARNING", "mailmend.delivery"):
        await site.serve(120)
    assert site.relay.recipients == []
    assert "'weather' is no field" in caplog.records[-1].__dict__["error"]
