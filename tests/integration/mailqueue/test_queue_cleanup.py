"""`check queues` and `repair queues` on real servers: tables as James makes them, a past that no sweep has seen."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from shutil import rmtree
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from mailmend.mailqueue.cleanup.scan import LocalQueueScanner, MarksGone, MarksWanted
from mailmend.mailqueue.rules.slices import slice_of
from mailmend.model.catalog.mail_queue import BROWSE_START, CONTENT_START, DELETED_MAILS, ENQUEUED_MAILS
from mailmend.model.ids import QueueName
from mailmend.model.operations import Put, Scan, Write
from mailmend.model.table import Table
from mailmend.repair.clock import SystemClock
from mailmend.spark_repair.queue_cleanup import SparkQueueScanner
from mailmend.spark_repair.source import Source
from tests.support.brokers import Broker
from tests.support.commands import contact_of
from tests.support.keyspaces import LEDGER, created, emptied
from tests.support.progress import SilentProgress
from tests.support.real_queue import RealQueue, real_queue
from tests.support.servers import CassandraServer
from tests.support.thorough import first_of

pytestmark = [pytest.mark.cassandra, pytest.mark.broker]

HOUR = timedelta(hours=1)
ENGINES = ("local", "spark")
SLICES, MAILS, ORPHANS = 5, 40, 7
AT_ONCE = ("--engine", "local", "--delay", "0s", "--no-blobs", "--json")


@pytest.fixture(scope="module")
def long_lived(
    cassandra: CassandraServer, rabbitmq: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealQueue]:
    """A queue whose rows stay until something removes them, and its ledger."""
    home = tmp_path_factory.mktemp("home")
    with real_queue(cassandra, rabbitmq, home, {"MAILMEND_BLOBS": f"file://{home}/blobs"}) as queue:
        for table in (ENQUEUED_MAILS, DELETED_MAILS):
            queue.cluster.execute_ddl(f"ALTER TABLE {queue.keyspace.name}.{table.name} WITH default_time_to_live = 0")
        created(queue.cluster, f"{queue.keyspace.name}_ledger", LEDGER)
        yield queue


@pytest.fixture
def queue(long_lived: RealQueue) -> RealQueue:
    """As if nobody had used it."""
    cluster, name = long_lived.cluster, long_lived.keyspace.name
    long_lived.empty()
    emptied(cluster, cluster.keyspace(f"{name}_ledger"), LEDGER)
    rmtree(long_lived.line.home / "blobs", ignore_errors=True)
    return long_lived


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
    file = queue.line.home / "found.jsonl"

    checked = queue.line("check", "queues", "--engine", "local", "--delay", "0s", "--json", "--findings", str(file))
    assert checked.code == 1, checked.err
    assert checked.json["findings"] == {
        "enqueuedMailsV4": {"OVER": (SLICES - 1) * MAILS, "BEFORE_CONTENT": MAILS},
        "deletedMailsV2": {"ORPHAN_MARK": ORPHANS},
        "browseStart": {"START_BEHIND": 1},
    }
    assert checked.json["scanned"] == {
        "enqueuedMailsV4": SLICES * MAILS + 1,
        "deletedMailsV2": SLICES * MAILS + ORPHANS,
    }
    assert (checked.json["run"], checked.json["unseen"]) == (None, None)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert Counter(one["verdict"] for one in lines) == {
        "OVER": SLICES - 1,
        "BEFORE_CONTENT": 1,
        "ORPHAN_MARK": 1,
        "START_BEHIND": 1,
    }
    assert queue.line("repair", "queues", *AT_ONCE, "--dry-run").json["findings"] == checked.json["findings"]
    assert number_of(queue, ENQUEUED_MAILS) == SLICES * MAILS + 1

    repaired = queue.line("repair", "queues", *AT_ONCE)
    assert (repaired.code, repaired.json["left"]) == (0, {}), repaired.err
    assert repaired.json["fixed"] == {"OVER": (SLICES - 1) * MAILS, "BEFORE_CONTENT": MAILS, "START_BEHIND": 1}
    assert "--no-blobs" in repaired.json["unseen"]
    assert number_of(queue, ENQUEUED_MAILS) == 1
    assert number_of(queue, DELETED_MAILS) == SLICES * MAILS + ORPHANS
    assert queue.names() == ["waits"]

    (run,) = queue.line("runs", "list", "--json").json["runs"]
    assert (run["command"], run["state"], run["summary"]["fixed"]) == ("repair queues", "DONE", repaired.json["fixed"])
    output = queue.line("runs", "show", run["run"], "--findings").out.splitlines()
    kept = [json.loads(line) for line in output]
    assert sorted((one["verdict"], one["result"]) for one in kept) == [
        ("BEFORE_CONTENT", "FIXED"),
        *[("OVER", "FIXED")] * (SLICES - 1),
        ("START_BEHIND", "FIXED"),
    ]
    assert {one["projected"]["row"]["marked"] for one in kept if "projected" in one and one["verdict"] == "OVER"} == {
        MAILS
    }
    refused = queue.line("undo", run["run"])
    assert (refused.code, "removes what is finished" in refused.err) == (2, True), refused.err


def test_marks_go_once_the_broker_is_seen_empty(queue: RealQueue) -> None:
    lived_through(queue)
    queue.put("waits")
    refused = queue.line("repair", "queues", *AT_ONCE, "--marks", "empty").json["queues"][0]
    assert refused["removed_marks"] == 0
    assert "the broker holds 1 messages" in refused["marks_stay"]

    assert queue("purge", "--yes").code == 0
    queue.lose_messages()
    plan = str(queue.line.home / "plan.jsonl")
    reported = queue.line("repair", "queues", *AT_ONCE, "--marks", "empty", "--plan", plan)
    assert reported.json["queues"][0]["marks_due"] == SLICES * MAILS + ORPHANS, reported.err
    later = {"queuename": queue.name, "enqueueid": uuid4()}
    queue.keyspace.write(Put(DELETED_MAILS, later, at=1))  # it has the age to go, and nobody has approved it
    emptied = queue.line("apply", plan, "--json")
    assert emptied.json["queues"][0]["removed_marks"] == SLICES * MAILS + ORPHANS, emptied.out
    assert emptied.json["fixed"]["ORPHAN_MARK"] == SLICES * MAILS + ORPHANS
    assert number_of(queue, DELETED_MAILS) == 2  # with the purged mail's own: it is younger than the look
    again = queue.line("apply", plan, "--json")
    assert (again.code, again.json["fixed"], again.json["moved"]) == (0, {}, 0), again.err


def test_a_waiting_mail_without_its_blobs_is_reported_and_options_of_messages_are_refused(queue: RealQueue) -> None:
    queue.put("kept", "lost")
    blobs = [file for file in (queue.line.home / "blobs").rglob("*") if file.is_file()]
    body = min(blobs, key=lambda file: file.stat().st_size)
    body.unlink()
    checked = queue.line("check", "queues", "--engine", "local", "--delay", "0s", "--json")
    assert (checked.code, checked.json["findings"]) == (1, {"enqueuedMailsV4": {"BLOBS_GONE": 1}}), checked.err
    assert checked.json["queues"][0]["waiting"] == 2
    unasked = queue.line("check", "queues", "--no-recheck", "--engine", "local", "--json", MAILMEND_BLOBS="")
    assert (unasked.code, unasked.json["findings"]) == (0, {}), unasked.err
    assert "no store is known" in unasked.json["unseen"]
    refused = queue.line("check", "queues", "--torn", "accept")
    assert (refused.code, "--torn has no effect with queues" in refused.err) == (2, True)


@pytest.mark.thorough
@pytest.mark.spark
def test_spark_sees_what_the_local_scan_sees_and_removes_the_same_marks(
    queue: RealQueue, spark: SparkSession, cassandra: CassandraServer
) -> None:
    first = lived_through(queue)
    scanners: tuple[Any, Any] = (
        LocalQueueScanner(queue.keyspace, SystemClock()),
        SparkQueueScanner(Source(spark, contact_of(cassandra), queue.keyspace.name, rows_per_second=10_000)),
    )
    local, parallel = (scanner.scan(SilentProgress()) for scanner in scanners)
    try:
        assert dict(parallel.partitions) == local.partitions
        assert (parallel.marks, parallel.orphan_marks) == (dict(local.marks), dict(local.orphan_marks))
        standing = frozenset(one for one in local.partitions if one.slice_start > first)
        wanted = MarksWanted(frozenset({queue.name}), standing, SystemClock().micros())
        going = {queue.name: MAILS + ORPHANS}
        assert parallel.marks_without_rows(wanted) == local.marks_without_rows(wanted) == going
        again = scanners[0].scan(SilentProgress())
        assert Counter(parallel.going(wanted)) == Counter(again.going(wanted))
        again.close()
        assert parallel.marks_without_rows(replace(wanted, queues=frozenset({QueueName("other")}))) == {}
        assert parallel.remove_marks(wanted, SilentProgress()) == {queue.name: MarksGone(MAILS + ORPHANS)}
        assert number_of(queue, DELETED_MAILS) == (SLICES - 1) * MAILS
    finally:
        local.close()
        parallel.close()


MARKS = ("--marks", "old", "--marks-age", "1h")


def said(queue: RealQueue, engine: str, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the JSON of a command, without what differs from engine to engine."""
    ended = queue.line(*words, "--engine", engine, "--delay", "0s", "--json")
    assert ended.json["engine"]["name"] == engine, ended.err
    different = ("engine", "seconds")
    return ended.code, {name: reported for name, reported in ended.json.items() if name not in different}


def said_within_an_hour(queue: RealQueue, *words: str) -> list[tuple[int, dict[str, Any]]]:
    """What both engines say while the same slice is the present one: the browse start that is due moves with it."""
    while True:
        began = datetime.now(UTC)
        answers = [said(queue, engine, *words) for engine in ENGINES]
        if datetime.now(UTC).hour == began.hour:
            return answers


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("command", first_of(["repair queues --dry-run", "check queues"]))
def test_the_commands_say_and_do_the_same_with_either_engine(queue: RealQueue, command: str) -> None:
    """Typed as by a person: findings, JSON and exit codes, then what a repair by Spark removes."""
    lived_through(queue)
    queue.put("waits")
    words = (*command.split(), *(MARKS if "repair" in command else ()))

    local, parallel = said_within_an_hour(queue, *words)
    assert local == parallel
    assert local[0] == 1

    code, repaired = said(queue, "spark", "repair", "queues", *MARKS)
    (one,) = repaired["queues"]
    assert (code, one["removed_rows"], one["removed_marks"]) == (0, SLICES * MAILS, SLICES * MAILS + ORPHANS)
    assert (number_of(queue, ENQUEUED_MAILS), number_of(queue, DELETED_MAILS)) == (1, 0)
    assert queue.names() == ["waits"]
    code, checked = said(queue, "local", "check", "queues")
    assert (code, checked["findings"]) == (0, {})


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_both_engines_say_the_same_where_nothing_is_to_be_mended(queue: RealQueue) -> None:
    queue.put("waits")

    local, parallel = said_within_an_hour(queue, "check", "queues")

    assert local == parallel
    assert (local[0], local[1]["findings"]) == (0, {})
