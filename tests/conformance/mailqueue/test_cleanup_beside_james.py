"""`repair queues` on what James 3.8.1 itself makes, alone and at the same time: each mail is delivered once.

MAILMEND_JAMES_MAILS says how many mails James has worked off before; 100,000 take some minutes.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Final
from uuid import uuid4

import pytest

from mailmend.cql.driver.session import CassandraCluster
from mailmend.mailqueue.rules import slices as starts
from mailmend.mailqueue.rules.configuration import QueueConfiguration
from mailmend.mailqueue.rules.slices import Slicing
from mailmend.model.catalog.mail_queue import DELETED_MAILS, ENQUEUED_MAILS
from mailmend.model.operations import Scan
from mailmend.model.table import Table
from mailmend.repair.clock import SystemClock
from tests.support.brokers import Broker, eventually
from tests.support.james_itself import OF_JAMES, JamesItself, Place
from tests.support.keyspaces import created, dropped
from tests.support.queues import HOURLY
from tests.support.real_queue import RealQueue, real_queue
from tests.support.servers import CassandraServer

MAILS: Final = int(os.environ.get("MAILMEND_JAMES_MAILS", "400"))
pytestmark = [pytest.mark.broker, pytest.mark.thorough, pytest.mark.timeout(600 + MAILS // 25)]
HOURS_AGO: Final = range(30, 20, -1)
WAITING: Final = 40
PREFETCH: Final = 20
CLEAN: Final = ("repair", "queues", "--engine", "local", "--delay", "1s", "--margin", "26s", "--json")
"""The least margin, so that what James has written is soon old enough to go."""

SETTLED_SECONDS: Final = 27.0
BESIDE_SECONDS: Final = 80.0
"""At least; on a busy machine until some marks were old enough to go."""

SOON: Final = timedelta(seconds=5)
"""A slice in the test at the same time, and the grace of the browse start: hours are too long for a test."""


@pytest.fixture
def queue(
    james: JamesItself, cassandra: CassandraServer, rabbitmq: Broker, cluster: CassandraCluster, tmp_path: Path
) -> Iterator[RealQueue]:
    keyspace = created(cluster, f"j_cleanup_{uuid4().hex[:8]}", OF_JAMES)
    with real_queue(cassandra, rabbitmq, tmp_path, {"MAILMEND_BLOBS": "cassandra:"}, keyspace.name) as queue:
        yield queue
    james.close()
    dropped(cluster, (keyspace.name, f"{keyspace.name}_ledger"))


def place_of(queue: RealQueue, cassandra: CassandraServer) -> Place:
    return Place(cassandra, queue.keyspace.name, queue.broker, queue.vhost)


def number_of(queue: RealQueue, table: Table) -> int:
    return sum(1 for _ in queue.keyspace.scan(Scan(table, ("queuename",))))


def worked_off(james: JamesItself, mails: int) -> list[str]:
    """The names of what James takes out of its queue until it has so many; it may take long, but not stop."""
    james.consume(at_once=16, at_most=mails, whole=False)

    def more_than(before: int) -> int | None:
        count: int = james.ask("count")
        return count if count > before else None

    taken = 0
    while taken < mails:
        taken = eventually(partial(more_than, taken), 60)
    return james.taken_names()


def cleaned(queue: RealQueue, *options: str) -> dict[str, Any]:
    ended = queue.line(*CLEAN, *options)
    assert ended.code in {0, 1}, f"{ended.out}\n{ended.err}"
    found = ended.json
    assert not [one["failed"] for one in found["queues"] if one["failed"]]
    return found


def test_a_past_that_james_itself_made(james: JamesItself, queue: RealQueue, cassandra: CassandraServer) -> None:
    """Mails of ten hours, worked off by James, which never cleaned; then rows and marks go, and James goes on."""
    james.open(place_of(queue, cassandra), HOURLY)
    james.use(queue.name, PREFETCH, later=-timedelta(hours=HOURS_AGO[0]))
    for hours in HOURS_AGO:
        james.ask("turn", seconds=-3600 * hours)
        james.fill(f"{hours}-", MAILS // len(HOURS_AGO))
    taken = worked_off(james, MAILS)
    james.ask("turn", seconds=0)
    james.fill("waits-", WAITING)
    waiting = {f"waits-{number}" for number in range(WAITING)}
    assert len(set(taken)) == MAILS

    SystemClock().sleep(SETTLED_SECONDS)
    checked = queue.line("check", "queues", "--engine", "local", "--delay", "1s", "--json")
    assert checked.code == 1, checked.err
    assert checked.json["queues"][0]["findings"] == {"OVER": MAILS, "START_BEHIND": 1}
    repaired = cleaned(queue)
    print(json.dumps({"check": checked.json["seconds"], "repair": repaired["seconds"], **repaired["queues"][0]}))  # noqa: T201 - figures, for who says -s
    assert (repaired["exit"], repaired["queues"][0]["removed_rows"], repaired["left"]) == (0, MAILS, {})

    # Then James lists and counts what waits, delivers it once, and what has gone stays gone without its marks
    assert (set(james.names()), james.size()) == (waiting, WAITING)
    assert set(worked_off(james, WAITING)) == waiting
    SystemClock().sleep(SETTLED_SECONDS)
    marks = cleaned(queue, "--marks", "empty")
    print(json.dumps({"marks": marks["seconds"], **marks["queues"][0]}))  # noqa: T201 - figures, for who says -s
    assert (marks["queues"][0]["removed_marks"], number_of(queue, DELETED_MAILS)) == (MAILS, WAITING)
    assert (james.names(), james.ask("republish", older_than=-60)) == ([], [])
    james.fill("last-", 1)
    assert worked_off(james, 1) == ["last-0"]


MAILS_OF_A_ROUND: Final = 20
ROUNDS_BETWEEN_CLEANUPS: Final = 200
"""James cleans up every half minute or so, so that something is left for us."""


class Enqueuing:
    """James enqueues mail after mail, and cleans now and then; its consumer runs beside."""

    def __init__(self, james: JamesItself) -> None:
        self.james, self.stop, self.rounds = james, Event(), 0

    def run(self) -> None:
        while not self.stop.is_set():
            self.james.fill(f"{self.rounds}-", MAILS_OF_A_ROUND, at_once=4)
            self.rounds += 1
            if self.rounds % ROUNDS_BETWEEN_CLEANUPS == 0:
                self.james.ask("move")

    @property
    def names(self) -> Counter[str]:
        return Counter(f"{one}-{number}" for one in range(self.rounds) for number in range(MAILS_OF_A_ROUND))


def test_james_enqueues_consumes_and_cleans_meanwhile(
    james: JamesItself, queue: RealQueue, cassandra: CassandraServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run after run, rows and old marks go; each mail comes once, none is lost, none is back, and James lists right."""
    monkeypatch.setattr(starts, "GRACE_MIN", SOON)
    james.open(place_of(queue, cassandra), QueueConfiguration(Slicing(SOON, 1), pace=2_000))
    james.use(queue.name, PREFETCH)
    clock, removed, enqueuing = SystemClock(), Counter[str](), Enqueuing(james)
    james.consume(at_once=4, whole=False)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(enqueuing.run)
        try:
            until, number = clock.monotonic() + BESIDE_SECONDS, 0
            while (clock.monotonic() < until or not removed["removed_marks"]) and not running.done():
                number += 1
                marks = ("--marks", "old", "--marks-age", "40s") if number % 2 else ()
                (one,) = cleaned(queue, *marks)["queues"]
                removed += Counter({name: one[name] for name in ("removed_rows", "removed_marks")})
        finally:
            enqueuing.stop.set()
        running.result()
    eventually(lambda: james.ask("count") >= enqueuing.names.total(), 60)
    assert Counter(james.taken_names()) == enqueuing.names
    print(json.dumps({"mails": enqueuing.names.total(), "runs": number, **removed}))  # noqa: T201 - figures, for who says -s
    assert min(removed["removed_rows"], removed["removed_marks"]) > 0

    # Then what waits is listed and counted by James, run after run, and comes once
    james.fill("waits-", WAITING)
    waiting = Counter(f"waits-{number}" for number in range(WAITING))
    for _ in range(2):
        cleaned(queue)
        assert (Counter(james.names()), james.size()) == (waiting, WAITING)
    assert Counter(worked_off(james, WAITING)) == waiting
    # And of what was worked off no row is left that James would list or publish again
    SystemClock().sleep(SETTLED_SECONDS)
    cleaned(queue)
    assert (number_of(queue, ENQUEUED_MAILS), james.names()) == (0, [])
    assert james.ask("republish", older_than=-60) == []
