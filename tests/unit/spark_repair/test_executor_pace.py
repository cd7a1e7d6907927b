"""Executors elsewhere keep their part of a rate, and hear of a new one by themselves."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from mailmend.cql.driver.contact import Contact
from mailmend.cql.memory import MemoryTables
from mailmend.model.operations import Level
from mailmend.repair.ledger.runs import RunLimit, RunLimits
from mailmend.repair.mending.throttle import HEAR_SECONDS, SmallRead, Throttle
from mailmend.spark_repair import pace
from mailmend.spark_repair.pace import ThrottledPlace, at_pace, paced, place_of
from tests.support.clock import VirtualClock
from tests.support.tables import MARKS

CONTACT = Contact(("node1",))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> "ExecutorCluster":
    found = ExecutorCluster()
    monkeypatch.setattr(pace, "connect", lambda _: found)
    monkeypatch.setattr(pace, "_clusters", {})
    monkeypatch.setattr(pace, "_throttles", {})
    return found


class ExecutorCluster:
    """A cluster as an executor opens it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.run: UUID = self.clock.new_uuid()
        self.tables = {name: MemoryTables(self.clock.micros) for name in ("mail", "book")}
        self.limits = RunLimits(self.tables["book"], self.clock, "book")

    def keyspace(self, name: str) -> MemoryTables:
        return self.tables[name]

    def place(self, limit: int | None, workers: int = 4) -> ThrottledPlace:
        read = SmallRead(self.tables["mail"], MARKS, self.clock, Level.ONE)
        throttle = Throttle(self.clock, limit, read, limits=self.limits, run=self.run)
        return place_of(throttle, CONTACT, "mail", workers)

    def seconds(self, place: ThrottledPlace, rows: int) -> float:
        began, table = self.clock.monotonic(), pa.table({"n": list(range(rows))})
        passed = list(at_pace(place.pace(self.clock), table.to_batches(max_chunksize=200)))
        assert [row for part in passed for row in part.to_pydict()["n"]] == list(range(rows)), "as they came"
        return self.clock.monotonic() - began


def test_four_workers_have_a_fourth_of_the_rate_each(cluster: ExecutorCluster) -> None:
    assert cluster.seconds(cluster.place(1_000), 2_500) == pytest.approx(10, rel=0.05)


def test_a_worker_hears_of_a_new_limit_in_the_midst_of_a_task(cluster: ExecutorCluster) -> None:
    place = cluster.place(None)
    assert cluster.seconds(place, 1_000) == 0
    cluster.limits.put(cluster.run, RunLimit(rows_per_second=400))
    cluster.clock.advance(HEAR_SECONDS)
    assert cluster.seconds(place, 1_000) == pytest.approx(10, rel=0.05)


def test_what_is_sent_to_workers_is_plain_data(cluster: ExecutorCluster) -> None:
    place: Any = cluster.place(1_000)
    assert (place.limit, place.ledger, place.run, place.table) == (1_000, "book", cluster.run, MARKS)
    assert place_of(Throttle(cluster.clock, 10), CONTACT, "mail", 2).table is None


@pytest.mark.parametrize(("limit", "rows"), [(None, 500), (10_000, 500), (1_000, 250), (3, 1)])
def test_a_worker_is_sent_no_more_at_once_than_it_may_read_in_a_second(
    cluster: ExecutorCluster, limit: int | None, rows: int
) -> None:
    assert cluster.place(limit).batch_rows == rows


def test_no_pace_is_built_into_a_plan_where_workers_elsewhere_keep_one_that_may_change(
    cluster: ExecutorCluster,
) -> None:
    """It would stand for the whole scan: a limit that is set higher would never be reached."""
    context = SimpleNamespace(master="spark://node1:7077")
    rows: Any = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))

    assert paced(rows, 100, Throttle(cluster.clock, 100)) is rows
