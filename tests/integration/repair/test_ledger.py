"""The ledger and the leases on a real Cassandra: what only a server can confirm of stamps, expiry and conditions."""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from mailmend.cql.driver.session import CassandraCluster, Contact, Keyspace, connect
from mailmend.model.catalog.ledger import REPAIR_LEASE
from mailmend.model.errors import LeaseLost
from mailmend.model.operations import Seen
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.clock import SystemClock
from mailmend.repair.ledger.leases import Leases
from mailmend.repair.ledger.runs import Ledger
from tests.support.keyspaces import LEDGER, created, dropped
from tests.support.servers import CassandraServer
from tests.support.thorough import share

pytestmark = pytest.mark.cassandra

NAME = "d_ledger"
CLOCK = SystemClock()


@pytest.fixture(scope="module")
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    with connect(Contact((cassandra.host,), cassandra.port, cassandra.local_dc)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tables(cluster: CassandraCluster) -> Iterator[Keyspace]:
    yield created(cluster, NAME, LEDGER)
    dropped(cluster, (NAME,))


@pytest.fixture
def ledger(tables: Keyspace) -> Ledger:
    return Ledger(tables, CLOCK)


def finding(number: int, flags: str = "seen", at: int = 1) -> Finding:
    row = {"uid": number, "flags": flags, "headercontent": f"1_628_{number}" * 4}
    suspect = Suspect("messageIdTable", (CLOCK.new_uuid() if flags == "new" else None, number), Verdict.AMEND)
    return Finding(suspect, Verdict.AMEND, truths=(Seen(row, {"flags": 5}),), projected=Seen(row, {"flags": at}))


def test_thousands_of_fixes_are_recorded_and_settled_in_seconds(ledger: Ledger) -> None:
    """Batches of 200, as the fixer sends them; before-images must not be what a repair waits for."""
    fixes, as_of = share(10_000), CLOCK.micros()
    run = ledger.start("mail", "repair messages", as_of, {}).id
    started = time.monotonic()
    for first in range(0, fixes, 200):
        outcomes = [finding(number) for number in range(first, min(first + 200, fixes))]
        assert not any(ledger.record(run, as_of, outcomes))
        assert not any(ledger.settle(run, [replace(one, result=Verdict.FIXED) for one in outcomes]))
    written = time.monotonic() - started
    found = list(ledger.findings(run))
    assert len({one.suspect.key for one in found}) == fixes
    assert {one.result for one in found} == {Verdict.FIXED}
    assert written < 60


def test_the_earliest_attempt_wins_on_a_server_too(ledger: Ledger) -> None:
    as_of = CLOCK.micros() - 30_000_000
    run = ledger.start("mail", "repair messages", as_of, {}).id
    for attempt in ("first", "second", "third"):
        ledger.record(run, as_of, [finding(1, attempt)])
    (kept,) = ledger.findings(run)
    assert kept == finding(1, "first")


def test_what_is_kept_expires_when_it_was_said_to(tables: Keyspace, cluster: CassandraCluster) -> None:
    as_of = CLOCK.micros() - 3600 * 1_000_000
    book = Ledger(tables, CLOCK, keep=timedelta(hours=1))
    run = book.start("mail", "repair messages", as_of, {}).id
    book.record(run, as_of, [finding(1)])
    text = f"SELECT ttl(before) AS t FROM {NAME}.repair_finding WHERE run = ? ALLOW FILTERING"
    (row,) = cluster.query(text, (run,))
    assert 3500 < row["t"] <= 3600
    (row,) = cluster.query(f"SELECT ttl(state) AS t FROM {NAME}.repair_run WHERE run = ? ALLOW FILTERING", (run,))
    assert 3500 < row["t"] <= 3600


def until(wanted: Any, seconds: float = 20) -> Any:
    end = time.monotonic() + seconds
    while not (answer := wanted()) and time.monotonic() < end:
        time.sleep(0.1)
    return answer


def test_a_heartbeat_outlives_the_time_to_live_and_a_killed_holder_does_not(
    tables: Keyspace, cluster: CassandraCluster
) -> None:
    leases = Leases(tables, CLOCK, "us", ttl_seconds=3)
    lease = leases.acquire("beating", "repair messages")
    columns = [column.name for column in REPAIR_LEASE.regular]
    lives = ", ".join(f"ttl({name}) AS {name}" for name in columns)
    for _ in range(5):
        time.sleep(1)
        lease = leases.renew(lease)
        (row,) = cluster.query(f"SELECT {lives} FROM {NAME}.repair_lease WHERE name = ?", ("beating",))
        assert all(row[name] is not None and row[name] > 1 for name in columns)
    assert until(lambda: leases.holder("beating") is None)
    with pytest.raises(LeaseLost, match="held by nobody"):
        leases.renew(lease)
    assert Leases(tables, CLOCK, "them").acquire("beating", "x").owner == "them"
