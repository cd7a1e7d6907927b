"""Rates over the restarts of a server: what was left of them goes on, and what a crash leaves in doubt is spent."""

from collections.abc import Sequence
from uuid import uuid4

import pytest

from mailmend.delivery.policy.policy import CounterPolicy, PickupField, Threshold
from mailmend.delivery.policy.rates import SECOND, DeliveryRate, RateAlgorithm
from mailmend.delivery.policy.shares import Members, RememberedMembership, ServerName
from mailmend.model.catalog.ledger import DELIVERY_RATE
from mailmend.model.operations import Put, Scan
from tests.support.sharing import Ledger, SharingServer, Wire

BY_DOMAIN = (PickupField.RECIPIENT_DOMAIN,)
DAY = 86_400 * SECOND
OF_A_DAY = DeliveryRate(200, DAY)
CLOCKS_APART = 5.0
"""Seconds: the server may go on where the clock differs."""


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def policies(rate: DeliveryRate = OF_A_DAY) -> list[CounterPolicy]:
    return [CounterPolicy(BY_DOMAIN, default=Threshold(rate=rate))]


def started(
    ledger: Ledger,
    name: str = "a",
    some: Sequence[CounterPolicy] = (),
    algorithm: RateAlgorithm = RateAlgorithm.SLIDING,
    *,
    off: float = 0.0,
    host: str = "",
) -> SharingServer:
    server = SharingServer(ledger, name, some or policies(), algorithm, off=off, host=host)
    for _ in range(4):
        server.turn()
        ledger.seconds += 1
    return server


def named(server: SharingServer) -> str | None:
    return server.limits.membership.name if server.limits.membership else None


def begun(server: SharingServer, most: int = 10_000, domain: str = "one") -> int:
    """How many could be begun now, at most so many, while what began is saved again and again."""
    many = 0
    while many < most:
        picked = server.begin(domain)
        if not picked:
            server.save()
            picked = server.begin(domain)
        if not picked:
            break
        server.end_all()
        many += len(picked)
    return many


def test_after_an_orderly_end_what_was_left_of_a_rate_may_begin_at_once(ledger: Ledger) -> None:
    server = started(ledger)
    assert begun(server, 150) == 150
    server.stop()
    assert begun(started(ledger)) == 50


@pytest.mark.parametrize("algorithm", [RateAlgorithm.SLIDING, RateAlgorithm.FIXED_WINDOW])
def test_a_kill_costs_a_fiftieth_of_a_rate(ledger: Ledger, algorithm: RateAlgorithm) -> None:
    """Of 200, 4: the last row says that so many more may have begun after 96, of which two did."""
    server = started(ledger, algorithm=algorithm)
    assert begun(server, 98) == 98
    server.kill()
    ledger.seconds += 70
    assert begun(started(ledger, algorithm=algorithm)) == 100


def test_who_knows_that_a_server_was_killed_has_its_name_and_its_rates_at_once(ledger: Ledger) -> None:
    server = started(ledger, host="here")
    assert begun(server, 98) == 98
    server.kill()
    again = started(ledger, host="here")
    assert (named(again), begun(again)) == ("a", 100)


@pytest.mark.parametrize(("host", "killed"), [("there", True), ("", True), ("here", False)])
def test_a_name_is_another_ones_where_nobody_knows_whether_its_server_has_ended(
    ledger: Ledger, host: str, killed: bool
) -> None:
    server = started(ledger, host="here")
    server.tables.wire = Wire.CUT
    if killed:
        server.kill()
    assert named(started(ledger, host=host)) == "a-2"


def test_what_began_before_a_restart_frees_its_place_when_its_interval_is_over(ledger: Ledger) -> None:
    server = started(ledger)
    assert begun(server) == 200
    began = ledger.seconds
    server.stop()
    ledger.seconds = began + 86_000
    server, many = started(ledger), 0
    while ledger.seconds < began + 86_400 + CLOCKS_APART + 2:
        server.turn()
        many += begun(server)
        assert not many or ledger.seconds >= began + 86_400
        ledger.seconds += 1
    assert many == 200


def test_a_counter_that_was_not_used_may_begin_all_at_once_after_a_kill(ledger: Ledger) -> None:
    server = started(ledger)
    begun(server)
    server.kill()
    ledger.seconds += 70
    assert begun(started(ledger), domain="two") == 200


def test_a_wall_clock_that_is_set_back_frees_nothing(ledger: Ledger) -> None:
    server = started(ledger)
    assert begun(server, 120) == 120
    server.clock.off = -40_000.0
    assert begun(server, 30) == 30
    server.stop()
    assert begun(started(ledger, off=-40_000.0)) == 50


def test_a_wall_clock_that_was_set_back_for_a_while_frees_nothing(ledger: Ledger) -> None:
    server = started(ledger)
    server.clock.off = -90_000.0
    assert begun(server, 118) == 118
    server.clock.off = 0.0
    server.kill()
    ledger.seconds += 70
    assert begun(started(ledger)) == 80


def test_a_server_that_others_went_on_without_counts_all_as_spent(ledger: Ledger) -> None:
    a, b = started(ledger, "a"), started(ledger, "b")
    for _ in range(5):
        a.turn()
        b.turn()
        ledger.seconds += 1
    assert begun(a, 10) == 10
    a.kill()
    for _ in range(90):
        b.turn()
        ledger.seconds += 1
    assert b.limits.members is not None
    assert list(b.limits.members.since) == ["b"]
    again = started(ledger, "a")
    for _ in range(10):
        b.turn()
        again.turn()
        ledger.seconds += 1
    assert begun(again) == 0


@pytest.mark.parametrize("text", ["?", "{}", '{"algorithm":"x"}', "null", "[]"])
def test_where_a_row_cannot_be_read_all_counts_as_spent(ledger: Ledger, text: str) -> None:
    server = started(ledger)
    begun(server, 10)
    server.stop()
    (row,) = ledger.tables.scan(Scan(DELIVERY_RATE, tuple(one.name for one in DELIVERY_RATE.columns)))
    ledger.tables.write(Put(DELIVERY_RATE, {**row, "state": text}))
    assert begun(started(ledger)) == 0


def test_another_algorithm_counts_all_as_spent_that_was_used(ledger: Ledger) -> None:
    server = started(ledger)
    begun(server, 10)
    server.stop()
    server = started(ledger, algorithm=RateAlgorithm.FIXED_WINDOW)
    assert (begun(server), begun(server, domain="two")) == (0, 200)


def test_a_rate_that_was_raised_over_a_restart_counts_on(ledger: Ledger) -> None:
    server = started(ledger, some=policies(DeliveryRate(100, DAY)))
    assert begun(server, 60) == 60
    server.stop()
    assert begun(started(ledger, some=policies(DeliveryRate(200, DAY)))) == 40


def test_a_counter_that_was_forgotten_costs_nothing_after_a_kill(ledger: Ledger) -> None:
    """Its last row says that no more may begin, as soon as it is as good as a new one."""
    some = policies(DeliveryRate(1, 100 * SECOND))
    server = started(ledger, some=some)
    assert begun(server, 1) == 1
    server.save()
    ledger.seconds += 101
    server.turn()
    assert server.engine.pick(server.now) is None
    server.save()
    server.kill()
    ledger.seconds += 70
    assert begun(started(ledger, some=some)) == 1


def test_nothing_begins_under_such_a_rate_that_was_not_written_down(ledger: Ledger) -> None:
    server = started(ledger)
    server.tables.wire = Wire.CUT
    assert begun(server) == 0
    server.tables.wire = Wire.WELL
    assert begun(server, 10) == 10
    server.tables.wire = Wire.ANSWERS_LOST
    assert begun(server) <= 4


def test_a_process_that_comes_back_after_another_of_its_name_counts_all_as_spent(ledger: Ledger) -> None:
    """Both had the same part of the limit: what the other began is not known to it."""
    first = started(ledger)
    assert begun(first, 40) == 40
    first.tables.wire = Wire.CUT
    ledger.seconds += 70
    first.limits.check()
    second = started(ledger)
    assert begun(second) > 100
    second.stop()
    first.tables.wire = Wire.WELL
    for _ in range(5):
        first.turn()
        ledger.seconds += 1
    assert begun(first) == 0


@pytest.mark.parametrize(
    ("epoch", "since", "goes_on"),
    [
        (7, {"a": 3}, True),
        (8, {"b": 8, "a": 3}, True),
        (9, {"a": 3}, False),
        (6, {"a": 3}, False),
        (8, {"b": 3}, False),
        (8, {"a": 8}, False),
    ],
)
def test_a_process_goes_on_where_nobody_else_can_have_had_its_part(
    epoch: int, since: dict[ServerName, int], goes_on: bool
) -> None:
    """The list is the one that the last process went by, which was the seventh, or the next."""
    remembered = RememberedMembership(claim=uuid4(), span=uuid4(), epoch=7, changes=(), number=0, stamp=0, seen=0)
    assert remembered.goes_on(Members(epoch, since), ServerName("a")) is goes_on
