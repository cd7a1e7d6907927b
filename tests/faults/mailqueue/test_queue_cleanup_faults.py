"""`repair queues` on real servers that is killed, lacks a broker or a node, or meets a clock that is an hour ahead."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from mailmend.admin.local.processes import free_port
from mailmend.cql.driver.session import Keyspace, connect
from mailmend.cql.render import in_every_data_centre, keyspace_cql, schema_cql
from mailmend.mailqueue.rules.slices import slice_of
from mailmend.model.catalog.james_tables import EVENT_STORE
from mailmend.model.catalog.mail_queue import BROWSE_START, CONTENT_START, DELETED_MAILS, ENQUEUED_MAILS, QUEUE_TABLES
from mailmend.model.instants import MICROS
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Put, Scan, Write
from mailmend.model.table import Table
from mailmend.repair.clock import SystemClock
from mailmend.spark_repair.session import SparkSettings
from tests.support.brokers import Broker
from tests.support.commands import Ended, command_line
from tests.support.keyspaces import end_leases
from tests.support.object_stores import S3
from tests.support.queue_processes import QueueProcesses, delivered, queue_processes, servers_of
from tests.support.queue_servers import Servers
from tests.support.servers import CassandraServer, ThreeNodes
from tests.support.thorough import first_of

pytestmark = [pytest.mark.cassandra, pytest.mark.broker, pytest.mark.object_store]

HOUR = timedelta(hours=1)
SLICES, MAILS = 4, 5
CLEAN = ("queues", "--engine", "local", "--delay", "0s", "--json")
AGAIN_SECONDS = 60.0
"""How long the nodes may need until they serve again."""
OLD_MARKS = ("--marks", "old", "--marks-age", "1h")


@pytest.fixture(scope="module")
def _james_made(
    cassandra: CassandraServer, rabbitmq: Broker, s3: S3, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[QueueProcesses]:
    """A ground of its own: nothing expires in it."""
    folder = tmp_path_factory.mktemp("ledgers")
    with rabbitmq.vhost() as vhost, queue_processes(cassandra, rabbitmq, vhost, s3, folder) as processes:
        for table in (ENQUEUED_MAILS, DELETED_MAILS):
            name = f"{processes.keyspace.name}.{table.name}"
            processes.keyspace.cluster.execute_ddl(f"ALTER TABLE {name} WITH default_time_to_live = 0")
        yield processes


@pytest.fixture
def james_made(_james_made: QueueProcesses, s3: S3) -> QueueProcesses:
    return _james_made.in_bucket(s3)


def lived_through(keyspace: Keyspace, queue: str, ahead: timedelta = timedelta()) -> None:
    """Finished mails of four slices, from ten hours ago on; the clock that stamped one of them may be ahead."""
    first = slice_of(datetime.now(UTC) - 10 * HOUR, HOUR)
    at = round((first + SLICES * HOUR).timestamp() * MICROS)
    later = round((datetime.now(UTC) + ahead).timestamp() * MICROS) if ahead else at
    writes: list[Write] = [
        Put(BROWSE_START, {"queuename": queue, "browsestart": first}, at=at),
        Put(CONTENT_START, {"queuename": queue, "contentstart": first}, at=at),
    ]
    for number in range(SLICES * MAILS):
        mail = {"queuename": queue, "enqueueid": uuid4()}
        blobs = {name: f"1_692_{uuid4()}" for name in ("headerblobid", "bodyblobid")}
        row = {**mail, "timerangestart": first + number // MAILS * HOUR, "bucketid": 0, **blobs}
        writes += [Put(ENQUEUED_MAILS, row, at=at if number else later), Put(DELETED_MAILS, mail, at=at)]
    assert not any(keyspace.write_all(writes))


def left(keyspace: Keyspace, table: Table, queue: str) -> int:
    return sum(row["queuename"] == queue for row in keyspace.scan(Scan(table, ("queuename",))))


def cleaned(servers: Servers, home: Path, *options: str, **environment: str) -> Ended:
    line = command_line(home, CassandraServer(servers.hosts[0], servers.port), **servers.environment)
    return line("repair", *CLEAN, *options, **environment)


def of_queue(ended: Ended, queue: str) -> dict[str, Any]:
    return next(one for one in ended.json["queues"] if one["queue"] == queue)


KILLS = {
    "partition": ("done Remove enqueuedMailsV4", 2),
    "marks": ("Remove deletedMailsV2", 7),
    "start": ("ChangeIf browseStart", 1),
    "start-moved": ("done ChangeIf browseStart", 1),
    "blobs": ("done delete blobs", 1),
    "removal": ("Remove enqueuedMailsV4", 1),
    "content-start": ("ChangeIf contentStart", 1),
    "content-start-moved": ("done ChangeIf contentStart", 1),
    "last-mark": ("done Remove deletedMailsV2", SLICES * MAILS),
}


@pytest.mark.parametrize("name", first_of(KILLS, quick=2))
def test_a_cleanup_that_is_killed(james_made: QueueProcesses, tmp_path: Path, name: str) -> None:
    """The next one completes it, once the lease of the killed one is over; what waits is delivered once."""
    processes, (at, nth) = james_made, KILLS[name]
    lived_through(processes.keyspace, name)
    (waits,) = processes.put(name, "waits")

    processes.typed(tmp_path, *CLEAN, *OLD_MARKS, group="repair", at=at, nth=nth)
    held = cleaned(processes.servers, tmp_path, *OLD_MARKS)
    assert (held.code, "is held by" in held.err) == (3, True)
    with connect(processes.servers.contact) as cluster:
        end_leases(cluster.keyspace(f"{processes.keyspace.name}_ledger"))
    ended = cleaned(processes.servers, tmp_path, *OLD_MARKS)

    assert ended.code == 0, f"{ended.out}\n{ended.err}"
    assert (left(processes.keyspace, ENQUEUED_MAILS, name), left(processes.keyspace, DELETED_MAILS, name)) == (1, 0)
    assert processes.listed(name) == {str(waits)}
    assert processes.run(name, lambda queue: delivered(queue, [str(waits)])) == [str(waits)]


@pytest.mark.spark
@pytest.mark.thorough
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("name", "at", "nth"),
    [
        ("spark-rows", "done Remove enqueuedMailsV4", 2),
        ("spark-marks", "marks by Spark", 1),
        ("spark-marks-gone", "done marks by Spark", 1),
    ],
)
def test_a_cleanup_by_spark_that_is_killed(
    james_made: QueueProcesses, tmp_path: Path, name: str, at: str, nth: int
) -> None:
    """Its executors remove the marks; the next run completes what is left of it."""
    processes, by_spark = james_made, ("--engine", "spark", "--spark-conf", "spark.driver.memory=1g")
    lived_through(processes.keyspace, name)
    (waits,) = processes.put(name, "waits")
    jars = {"XDG_CACHE_HOME": str(SparkSettings().folder.parent)}

    processes.typed(
        tmp_path,
        *(*CLEAN, *OLD_MARKS, *by_spark),
        group="repair",
        at=at,
        nth=nth,
        variables=processes.servers.environment | jars,
    )
    before = left(processes.keyspace, ENQUEUED_MAILS, name) + left(processes.keyspace, DELETED_MAILS, name)
    with connect(processes.servers.contact) as cluster:
        end_leases(cluster.keyspace(f"{processes.keyspace.name}_ledger"))
    ended = cleaned(processes.servers, tmp_path, *OLD_MARKS, *by_spark)

    assert ended.code == 0, f"{ended.out}\n{ended.err}"
    one = of_queue(ended, name)
    assert one["removed_rows"] + one["removed_marks"] == before - 1
    assert (left(processes.keyspace, ENQUEUED_MAILS, name), left(processes.keyspace, DELETED_MAILS, name)) == (1, 0)
    assert processes.listed(name) == {str(waits)}
    assert processes.run(name, lambda queue: delivered(queue, [str(waits)])) == [str(waits)]


def test_where_the_broker_cannot_be_asked_rows_go_and_marks_stay(james_made: QueueProcesses, tmp_path: Path) -> None:
    processes, queue = james_made, "no-broker"
    lived_through(processes.keyspace, queue)

    ended = cleaned(
        processes.servers,
        tmp_path,
        "--marks",
        "empty",
        MAILMEND_BROKER=f"amqp://guest@127.0.0.1:{free_port(('127.0.0.1',))}",
    )

    assert (of_queue(ended, queue)["removed_rows"], of_queue(ended, queue)["removed_marks"]) == (SLICES * MAILS, 0)
    assert "could not be asked" in of_queue(ended, queue)["marks_stay"]
    assert left(processes.keyspace, DELETED_MAILS, queue) == SLICES * MAILS


def test_a_row_of_a_clock_that_is_an_hour_ahead_stays_and_is_reported(
    james_made: QueueProcesses, tmp_path: Path
) -> None:
    """Its slice is not called clean, its mark stays with it; the next run after that hour takes both."""
    processes, queue = james_made, "ahead"
    lived_through(processes.keyspace, queue, ahead=HOUR)

    ended = cleaned(processes.servers, tmp_path, *OLD_MARKS)

    assert (ended.code, ended.json["left"].get("OVER")) == (1, MAILS)
    assert left(processes.keyspace, ENQUEUED_MAILS, queue) == 1
    assert left(processes.keyspace, DELETED_MAILS, queue) == MAILS
    assert not processes.listed(queue)


@pytest.mark.thorough
def test_one_node_may_be_down_and_two_may_not(
    three_nodes: ThreeNodes, rabbitmq: Broker, vhost: str, s3: S3, tmp_path: Path
) -> None:
    """With two nodes down nothing is begun; back, the same command cleans, and what waits is there."""
    servers = servers_of(three_nodes, three_nodes.keyspace(), rabbitmq, vhost, s3)
    with connect(servers.contact) as cluster:
        cluster.execute_ddl(keyspace_cql(servers.keyspace, in_every_data_centre(3)))
        for text in schema_cql(servers.keyspace, Schema((), (EVENT_STORE, *QUEUE_TABLES))):
            cluster.execute_ddl(text)
        lived_through(cluster.keyspace(servers.keyspace), "spool")
        lived_through(cluster.keyspace(servers.keyspace), "other")
        assert cleaned(servers, tmp_path, "--dry-run").code == 1

    three_nodes.stop(3)
    three_nodes.stop(2)
    refused = cleaned(servers, tmp_path)
    assert refused.code == 4, f"{refused.out}\n{refused.err}"
    three_nodes.start(2)
    ended = [refused]
    until = SystemClock().monotonic() + AGAIN_SECONDS
    while ended[-1].code:
        assert SystemClock().monotonic() < until, f"{ended[-1].out}\n{ended[-1].err}"
        ended.append(cleaned(servers, tmp_path))
    assert [one["removed_rows"] for one in ended[-1].json["queues"]] == [SLICES * MAILS] * 2
    three_nodes.start_all()
