"""`check queues` and `repair queues` on real servers: tables as James makes them, a past that no sweep has seen."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from mailqueue.maintenance.cleanup_scan import LocalQueueScanner
from model.catalog.mail_queue import BROWSE_START, CONTENT_START, DELETED_MAILS, ENQUEUED_MAILS
from model.operations import Put, Scan, Write
from model.queue.slices import slice_of
from model.schema.table import Table
from spark_repair.queue_cleanup import SparkQueueScanner
from tests.support.brokers import Broker
from tests.support.commands import contact_of
from tests.support.progress import SilentProgress
from tests.support.real_queue import RealQueue, real_queue
from tests.support.servers import CassandraServer

pytestmark = [pytest.mark.cassandra, pytest.mark.broker]

HOUR = timedelta(hours=1)
SLICES, MAILS, ORPHANS = 5, 40, 7
AT_ONCE = ("--engine", "local", "--delay", "0s", "--no-blobs", "--json")


@pytest.fixture
def queue(cassandra: CassandraServer, rabbitmq: Broker, tmp_path: Path) -> Iterator[RealQueue]:
    with real_queue(cassandra, rabbitmq, tmp_path, {"MAILMEND_BLOBS": f"file://{tmp_path}/blobs"}) as queue:
        for table in (ENQUEUED_MAILS, DELETED_MAILS):
            queue.cluster.execute_ddl(f"ALTER TABLE {queue.keyspace.name}.{table.name} WITH default_time_to_live = 0")
        yield queue


def lived_through(queue: RealQueue) -> datetime:
    """Finished slices from a day ago on, some before the content start; marks without rows. The first slice."""
    first = slice_of(datetime.now(UTC) - 24 * HOUR, HOUR)
    written = round((first + SLICES * HOUR).timestamp() * 1e6)
    writes: list[Write] = [
        Put(BROWSE_START, {"queuename": queue.name, "browsestart": first + HOUR}, at=written),
        Put(CONTENT_START, {"queuename": queue.name, "contentstart": first + HOUR}, at=written),
    ]
    for number in range(SLICES * MAILS):
        mail = {"queuename": queue.name, "enqueueid": uuid4()}
        place = {"timerangestart": first + number // MAILS * HOUR, "bucketid": 0}
        writes += [Put(ENQUEUED_MAILS, {**mail, **place}, at=written), Put(DELETED_MAILS, mail, at=written)]
    writes += [Put(DELETED_MAILS, {"queuename": queue.name, "enqueueid": uuid4()}, at=written) for _ in range(ORPHANS)]
    assert not any(queue.keyspace.write_all(writes))
    return first


def number_of(queue: RealQueue, table: Table) -> int:
    return sum(1 for _ in queue.keyspace.scan(Scan(table, ("queuename",))))


def test_a_past_that_nobody_swept_goes_and_what_waits_stays(queue: RealQueue) -> None:
    lived_through(queue)
    queue.put("waits")

    checked = queue.line("check", "queues", "--engine", "local", "--delay", "0s", "--json")
    assert checked.code == 1, checked.err
    assert checked.json["findings"] == {"spool": {"OVER": SLICES * MAILS, "ORPHAN_MARK": ORPHANS, "START_BEHIND": 1}}
    assert queue.line("repair", "queues", *AT_ONCE, "--dry-run").json["findings"] == checked.json["findings"]
    assert number_of(queue, ENQUEUED_MAILS) == SLICES * MAILS + 1

    repaired = queue.line("repair", "queues", *AT_ONCE)
    assert (repaired.code, repaired.json["left"]) == (0, {"ORPHAN_MARK": ORPHANS}), repaired.err
    assert number_of(queue, ENQUEUED_MAILS) == 1
    assert number_of(queue, DELETED_MAILS) == SLICES * MAILS + ORPHANS
    assert queue.names() == ["waits"]

    runs = queue.line("runs", "list", "--json").json["runs"]
    assert [(one["command"], one["state"]) for one in runs] == [("repair queues", "DONE")]
    assert queue.line("undo", runs[0]["run"]).code == 2


def test_marks_go_once_the_broker_is_seen_empty(queue: RealQueue) -> None:
    lived_through(queue)
    queue.put("waits")
    refused = queue.line("repair", "queues", *AT_ONCE, "--marks", "empty").json["queues"][0]
    assert refused["removed_marks"] == 0
    assert "the broker holds 1 messages" in refused["marks_stay"]

    assert queue("purge", "--yes").code == 0
    queue.lose_messages()
    emptied = queue.line("repair", "queues", *AT_ONCE, "--marks", "empty")
    assert emptied.json["queues"][0]["removed_marks"] == SLICES * MAILS + ORPHANS, emptied.out
    assert number_of(queue, DELETED_MAILS) == 1  # the purged mail's own: it is younger than the look


@pytest.mark.spark
def test_spark_sees_what_the_local_scan_sees(queue: RealQueue, spark: SparkSession, cassandra: CassandraServer) -> None:
    first = lived_through(queue)
    scanners: tuple[Any, Any] = (
        LocalQueueScanner(queue.keyspace),
        SparkQueueScanner(spark, contact_of(cassandra), queue.keyspace.name),
    )
    local, parallel = (scanner.scan(SilentProgress()) for scanner in scanners)
    try:
        assert dict(parallel.partitions) == local.partitions
        assert (parallel.marks, parallel.orphan_marks) == (dict(local.marks), dict(local.orphan_marks))
        standing = [one for one in local.partitions if one.slice_start > first]
        assert set(parallel.marks_without(standing)) == set(local.marks_without(standing))
        assert len(set(parallel.marks_without([]))) == SLICES * MAILS + ORPHANS
    finally:
        local.close()
        parallel.close()
