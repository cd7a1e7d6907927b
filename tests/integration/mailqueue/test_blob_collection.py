"""`check blobs` and `repair blobs` on real servers: a reference of each kind, blobs in tables and in a bucket."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid1, uuid4

import pytest
from pyspark.sql import SparkSession

from mailmend.cql.driver.session import CassandraCluster, Keyspace, connect
from mailmend.mailqueue.collection.references import BeforeImages, table_references
from mailmend.mailqueue.collection.scan import BlobLines, LocalBlobScanner, Wanted
from mailmend.mailqueue.pulsar.adapter import PulsarTopics
from mailmend.mailqueue.pulsar.settings import (
    PulsarForm,
    PulsarSettings,
    dead_topic,
    out_subscription,
    out_topic,
    scheduled_topic,
)
from mailmend.mailqueue.pulsar.topics import delayed_message, waiting_message
from mailmend.mailqueue.rules.blob_ids import ListedBlob
from mailmend.mailqueue.rules.mails import Listed, MailBlobs, QueuedMail, Whereabouts
from mailmend.mailqueue.rules.places import MessagePlace
from mailmend.model.catalog.james_tables import ATTACHMENT, BLOB_PARTS, BLOBS, EVENT_STORE
from mailmend.model.catalog.ledger import REPAIR_FINDING, day_of
from mailmend.model.catalog.mail import MESSAGE_V3, SCHEMA
from mailmend.model.catalog.mail_queue import DELETED_MAILS, DUE_MAILS, ENQUEUED_MAILS, QUEUE_TABLES
from mailmend.model.ids import BlobId, EnqueueId, QueueName, RunId
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Put, Scan, Seen, Write
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Table, columns
from mailmend.repair.clock import SystemClock
from mailmend.repair.ledger.before_images import image_text
from mailmend.repair.ledger.runs import Ledger
from mailmend.spark_repair.blob_collection import SparkBlobScanner
from mailmend.spark_repair.source import Source
from tests.support.blobs import blob_id
from tests.support.brokers import Broker
from tests.support.commands import CommandLine, command_line, contact_of
from tests.support.keyspaces import LEDGER, created, dropped, emptied, end_leases
from tests.support.progress import SilentProgress
from tests.support.pulsars import RealPulsar
from tests.support.queue_processes import QueueProcesses, program
from tests.support.queue_servers import Servers
from tests.support.queues import mail as queued_mail
from tests.support.real_queue import real_queue
from tests.support.s3_twin import S3Twin, s3_twin
from tests.support.servers import CassandraServer
from tests.support.stored_forms import CHUNK
from tests.support.thorough import ALL, first_of

pytestmark = [pytest.mark.cassandra]

REPOSITORY = Table(
    "mailRepositoryContentV2", columns("url text, mailKey text", regular="headerBlobId text, bodyBlobId text")
)
NOTES = Table("notes", columns("id uuid", regular="body text"))
TABLES = Schema(
    SCHEMA.types,
    (*SCHEMA.tables, *(one for one in (EVENT_STORE, *QUEUE_TABLES) if one not in SCHEMA.tables), REPOSITORY, NOTES),
)
MONTH_AGO = datetime.now(UTC) - timedelta(days=30)
WRITTEN = round(MONTH_AGO.timestamp() * 1e6)
AT_ONCE = ("--engine", "local", "--delay", "0s", "--no-broker", "--json")


@dataclass(slots=True)
class BlobWorld:
    """A keyspace in which something of each kind refers to a blob, and a store that holds them."""

    keyspace: Keyspace
    ledger: Keyspace
    line: CommandLine
    twin: S3Twin | None
    needed: set[str] = field(default_factory=set)

    def store(self, *ids: str, at: int | None = WRITTEN, parts: int = 1) -> None:
        if self.twin:
            self.twin.objects |= dict.fromkeys(ids, b"x" * 10)
            return
        writes: list[Write] = []
        for one in ids:
            writes += [
                Put(BLOB_PARTS, {"id": one, "chunknumber": number, "data": b"x"}, at=at) for number in range(parts)
            ]
            writes.append(Put(BLOBS.with_columns(BLOBS.key), {"id": one, "position": parts}, at=at))
        assert not any(self.keyspace.write_all(writes))

    def ids(self) -> set[str]:
        if self.twin:
            return set(self.twin.objects)
        tables = (BLOBS, BLOB_PARTS)
        return {row["id"] for table in tables for row in self.keyspace.scan(Scan(table, ("id",)))}

    def refer(self) -> None:
        """From every source once, each to blobs of its own; a finished mail's are gone."""
        when, mail = datetime.now(UTC), {"queuename": "spool", "enqueueid": uuid4()}
        finished = {"queuename": "spool", "enqueueid": uuid4()}
        place = {"timerangestart": MONTH_AGO, "bucketid": 0}
        due = {"queuename": "spool", "dueslice": when, "bucketid": 0, "dueat": when, "enqueueid": uuid4()}
        writes: list[Write] = [
            Put(MESSAGE_V3, {"messageid": uuid1(), "headercontent": self.kept("mh"), "bodycontent": self.kept("mb")}),
            Put(MESSAGE_V3, {"messageid": uuid1(), "headercontent": f"{CHUNK}~1~40", "bodycontent": f"{CHUNK}~41~90"}),
            Put(ATTACHMENT, {"idasuuid": uuid4(), "blobid": self.kept("at")}),
            Put(ENQUEUED_MAILS, {**mail, **place, "headerblobid": self.kept("qh"), "bodyblobid": self.kept("qb")}),
            Put(ENQUEUED_MAILS, {**finished, **place, "headerblobid": "1_600_gone", "bodyblobid": "1_600_gone"}),
            Put(DELETED_MAILS, finished),
            Put(DUE_MAILS, {**due, "headerblobid": self.kept("dh"), "bodyblobid": self.kept("db")}),
            Put(
                REPOSITORY,
                {"url": "u", "mailkey": "k", "headerblobid": self.kept("rh"), "bodyblobid": self.kept("rb")},
            ),
            Put(NOTES, {"id": uuid4(), "body": self.kept("note")}),
        ]
        assert not any(self.keyspace.write_all(writes))
        image = {"messageid": uuid1(), "headercontent": self.kept("ih"), "bodycontent": self.kept("ib")}
        suspect = Suspect("messageV3", (image["messageid"],), Verdict.LEAK)
        line = image_text(Finding(suspect, Verdict.LEAK, projected=Seen(image)))
        run = RunId(uuid1())
        key = {"day": day_of(run), "run": run, "bucket": 0, "projection": "messageV3", "rowkey": "k"}
        self.ledger.write(Put(REPAIR_FINDING, {**key, "before": line}))
        (self.line.home / "ids").write_text(f"{self.kept('file')} the archive\n\n")
        self.needed.add(CHUNK)
        self.store(*self.needed, f"recovery/{blob_id('mh')}")

    def kept(self, content: str) -> str:
        self.needed.add(blob_id(content))
        return blob_id(content)

    def declared(self) -> tuple[str, ...]:
        return ("--references", "notes.body", "--references-file", str(self.line.home / "ids"))


@dataclass(frozen=True, slots=True)
class Places:
    """The two keyspaces of all worlds: a server takes seconds to create them, and little to empty them."""

    cluster: CassandraCluster
    mail: Keyspace
    ledger: Keyspace

    def empty(self) -> None:
        emptied(self.cluster, self.mail, TABLES)
        emptied(self.cluster, self.ledger, LEDGER)


@pytest.fixture(scope="module")
def places(cassandra: CassandraServer) -> Iterator[Places]:
    name = f"g_blobs_{uuid4().hex[:8]}"
    with connect(contact_of(cassandra)) as cluster:
        yield Places(cluster, created(cluster, name, TABLES), created(cluster, f"{name}_ledger", LEDGER))
        dropped(cluster, (name, f"{name}_ledger"))


@pytest.fixture(params=["cassandra:", "s3"])
def world(
    request: pytest.FixtureRequest, cassandra: CassandraServer, places: Places, tmp_path: Path
) -> Iterator[BlobWorld]:
    places.empty()
    with s3_twin() as twin:
        in_bucket = request.param == "s3"
        line = command_line(
            tmp_path,
            cassandra,
            MAILMEND_KEYSPACE=places.mail.name,
            MAILMEND_LEDGER_KEYSPACE=places.ledger.name,
            MAILMEND_BLOBS=f"s3://twin?endpoint={twin.endpoint}" if in_bucket else request.param,
            MAILMEND_S3_ACCESS_KEY="AKIATEST",
            MAILMEND_S3_SECRET_KEY="secret",
        )
        yield BlobWorld(places.mail, places.ledger, line, twin if in_bucket else None)


def test_what_nothing_refers_to_goes_and_all_else_stays(world: BlobWorld) -> None:
    world.refer()
    stays = world.ids()
    young, unknown = blob_id("young", generation=99_999), "backup/of-mine.tar"
    world.store(young, unknown)
    gone = {blob_id(f"gone {number}") for number in range(3)} | {f"recovery/{blob_id('gone 0')}"}
    gone.add(blob_id("gone", generation=None))
    world.store(*gone)
    findings = {"KEEP": len(stays), "COLLECT": len(gone), "TOO_YOUNG": 1, "UNKNOWN_PREFIX": 1}
    how = (*AT_ONCE, *world.declared())

    checked = world.line("check", "blobs", *how)
    assert (checked.code, checked.json["findings"]) == (0, findings), checked.err
    assert checked.json["unknown"] == [unknown]
    plan = str(world.line.home / "plan.jsonl")
    assert world.line("repair", "blobs", "--plan", plan, *how).json["findings"] == findings
    assert world.ids() == stays | gone | {young, unknown}

    later = blob_id("free since")
    world.store(later)
    applied = world.line("apply", plan, "--json")
    assert (applied.code, applied.json["removed"], applied.json["moved"]) == (0, len(gone), 0), applied.err
    assert world.ids() == stays | {young, unknown, later}

    killed = Ledger(world.ledger, SystemClock()).start(world.keyspace.name, "repair blobs", WRITTEN, {})
    file = world.line.home / "went.jsonl"
    repaired = world.line("repair", "blobs", "--removed", str(file), *how)
    assert (repaired.code, repaired.json["removed"], repaired.json["left"]) == (0, 1, {}), repaired.err
    assert world.ids() == stays | {young, unknown}
    assert {json.loads(line)["blob_id"] for line in file.read_text().splitlines()} == {later}
    assert went(world.line.home) == gone

    run, before, _ = world.line("runs", "list", "--json").json["runs"]
    assert (run["command"], run["state"]) == ("repair blobs", "DONE")
    assert (before["run"], before["state"]) == (str(killed.id), "INTERRUPTED")
    assert world.line("undo", run["run"]).code == 2


KILLS = [
    ("cassandra:", "done Remove blobs", 2),
    ("cassandra:", "first look", 1),
    ("cassandra:", "second look", 1),
    ("cassandra:", "list", 1),
    ("cassandra:", "done list", 1),
    ("cassandra:", "done Remove blobParts", 3),
    ("cassandra:", "close", 1),
    ("s3", "first look", 1),
    ("s3", "second look", 1),
    ("s3", "done list", 1),
    ("s3", "close", 1),
]


@pytest.mark.parametrize(("world", "at", "nth"), first_of(KILLS), indirect=["world"])
def test_a_collection_that_is_killed(world: BlobWorld, at: str, nth: int, tmp_path: Path) -> None:
    """What went is on a list; the next one removes the rest, once the lease of the killed one is over."""
    world.refer()
    stays, gone = world.ids(), {blob_id(f"gone {number}") for number in range(5)}
    world.store(*gone)
    command = ("blobs", *AT_ONCE, *world.declared())

    with program() as forks:
        doomed = QueueProcesses(Servers((), 0, "", 0, "", "", "", "", ""), world.keyspace, forks, tmp_path)
        doomed.typed(tmp_path, *command, group="repair", at=at, nth=nth, variables=world.line.environment)
    left = world.ids()
    assert stays <= left
    assert gone - left <= went(tmp_path) <= gone
    held = world.line("repair", *command)
    assert (held.code, "is held by" in held.err) == (3, True)
    end_leases(world.ledger)
    ended = world.line("repair", *command)

    assert (ended.code, ended.json["left"]) == (0, {}), ended.err
    assert world.ids() == stays
    assert went(tmp_path) == gone
    assert [run["state"] for run in world.line("runs", "list", "--json").json["runs"]] == ["DONE", "INTERRUPTED"]


def went(home: Path) -> set[str]:
    """What the lists of all runs say, where no option names them."""
    lists = home.rglob("removed-*.jsonl")
    return {json.loads(line)["blob_id"] for one in lists for line in one.read_text().splitlines()}


def test_what_is_missing_is_reported_with_who_refers_to_it(world: BlobWorld) -> None:
    message, lost = UUID("6e0ab5e0-8d1c-11f0-9a5e-0242ac120002"), blob_id("lost")
    world.refer()
    world.keyspace.write(Put(MESSAGE_V3, {"messageid": message, "headercontent": lost, "bodycontent": blob_id("mb")}))
    file = world.line.home / "missing.jsonl"

    checked = world.line("check", "blobs", *AT_ONCE, *world.declared(), "--missing", str(file))

    assert checked.code == 1, checked.err
    missing = {"blob_id": lost, "source": "messagev3", "referrer": str(message)}
    assert checked.json["missing"] == [missing]
    assert json.loads(file.read_text()) == missing
    assert checked.json["findings"]["MISSING"] == 1


@pytest.mark.broker
@pytest.mark.parametrize("world", ["s3"], indirect=True)
def test_what_only_a_dead_letter_or_a_kept_mail_names_stays(
    world: BlobWorld, cassandra: CassandraServer, rabbitmq: Broker
) -> None:
    """Neither has a row any more; the kept mail had lost a blob, so its file holds no bytes."""
    assert world.twin
    objects, name, home = world.twin.objects, world.keyspace.name, world.line.home
    store = {one: text for one, text in world.line.environment.items() if "BLOBS" in one or "S3" in one}
    with real_queue(cassandra, rabbitmq, home, store, name) as queue:
        (dead,) = queue.put("dead")
        assert queue("dequeue", "--exec", "false", "--limit", "1", "--wait", "20s").code == 1
        (lost,) = queue.put("lost")
        (listed,) = queue("browse", "--json").json["mails"]
        header = objects[listed["header_blob"]]
        del objects[listed["body_blob"]]
        assert queue("delete", "--name", "lost", "--json").json["kept_without_content"] == 1
        objects[listed["header_blob"]] = header
        for one in (dead, lost):
            queue.lose_row(one)
        needed, stray = set(objects), f"1_600_{uuid4()}"
        world.store(stray)
        how = ("--engine", "local", "--delay", "0s", "--generation", "1h", "--oldest-message", "1m", "--json")

        repaired = queue.line("repair", "blobs", *how)

        assert repaired.json["findings"] == {"KEEP": 3, "COLLECT": 1}, repaired.err
        assert (
            repaired.json["references"].items()
            >= {"messages at the broker": 2, "kept mails of this machine": 2}.items()
        )
        assert set(objects) == needed
        assert queue.line("check", "blobs", *how).json["findings"] == {"KEEP": 3}


def waiting(name: str, whereabouts: Whereabouts = Whereabouts.WAITING) -> Listed:
    """A mail with blobs of its own."""
    blobs = MailBlobs(BlobId(blob_id(f"{name} header")), BlobId(blob_id(f"{name} body")))
    due_at = datetime.now(UTC) + timedelta(days=1)
    return Listed(QueuedMail(EnqueueId(uuid4()), queued_mail(name), blobs), MONTH_AGO, whereabouts, due_at=due_at)


async def published(settings: PulsarSettings, mails: dict[str, Listed]) -> MessagePlace:
    """One that waits, one that is delayed, a dead letter, and one more that waits: where that is."""
    spool, form, topics = QueueName("spool"), PulsarForm.JAMES_3_9, PulsarTopics(settings, SystemClock())
    await topics.publish(out_topic(spool), waiting_message(mails["waits"], form))
    await topics.publish(scheduled_topic(spool), delayed_message(mails["delayed"], form))
    await topics.publish(dead_topic(spool), waiting_message(mails["dead"], form))
    place = await topics.publish(out_topic(spool), waiting_message(mails["goes"], form))
    await topics.close()
    return place


async def acknowledged(settings: PulsarSettings, place: MessagePlace) -> None:
    spool, topics = QueueName("spool"), PulsarTopics(settings, SystemClock())
    await topics.acknowledge(out_topic(spool), out_subscription(spool), (place,))
    await topics.close()


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("world", ["s3"], indirect=True)
def test_what_mails_over_pulsar_need_stays_with_spark_too(world: BlobWorld, pulsar: RealPulsar) -> None:
    """One process makes a plan and applies it; then a mail is done, and Spark removes its blobs."""
    with pulsar.namespace() as namespace:
        settings = namespace.settings
    mails = {name: waiting(name) for name in ("waits", "goes", "delayed", "dead")}
    goes = asyncio.run(published(settings, mails))
    of_mail = {name: {one.queued.blobs.header, one.queued.blobs.body} for name, one in mails.items()}
    needed = set[str]().union(*of_mail.values())
    message, stray = blob_id("mh"), blob_id("stray")
    world.store(*needed, message, stray)
    world.keyspace.write(Put(MESSAGE_V3, {"messageid": uuid1(), "headercontent": message, "bodycontent": message}))
    at = ("--broker", f"{settings.service}/{settings.namespace}", "--broker-management", settings.admin)
    how, plan = ("--delay", "0s", "--json", *at), str(world.line.home / "plan.jsonl")

    planned = world.line("repair", "blobs", "--plan", plan, "--engine", "local", *how)
    assert planned.json["findings"] == {"KEEP": 9, "COLLECT": 1}, planned.err
    assert planned.json["references"]["messages at the broker"] == 8
    applied = world.line("apply", plan, "--json", *at)
    assert (applied.json["removed"], world.ids()) == (1, {*needed, message}), applied.err

    asyncio.run(acknowledged(settings, goes))
    repaired = world.line("repair", "blobs", "--engine", "spark", *how)
    assert (repaired.code, repaired.json["removed"]) == (0, 2), repaired.err
    assert world.ids() == {*needed, message} - of_mail["goes"]


@pytest.mark.spark
@pytest.mark.parametrize("world", first_of(["cassandra:", "s3"]), indirect=True)
def test_spark_sees_what_the_local_look_sees(
    world: BlobWorld, spark: SparkSession, cassandra: CassandraServer, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    world.refer()
    free, lost = blob_id("free"), blob_id("lost")
    world.store(free, f"recovery/{free}")
    world.keyspace.write(Put(MESSAGE_V3, {"messageid": uuid1(), "headercontent": lost, "bodycontent": free + "x"}))
    listing = BlobLines(tmp_path / "listing")
    for one in world.ids():
        listing.add_blob(ListedBlob(BlobId(one), MONTH_AGO, 10))
    listing.close()
    wanted = Wanted(listing, BlobLines(tmp_path / "missing"))
    wanted.missing.add(lost)
    wanted.missing.close()
    tables = table_references(TABLES, world.keyspace, declared=["notes.body"])
    if not pytestconfig.getoption(ALL):  # Spark plans each table anew
        tables = [one for one in tables if one.table in (MESSAGE_V3, ENQUEUED_MAILS, NOTES)]
    sources = [BeforeImages(world.ledger), *tables]
    scanners: tuple[Any, Any] = (
        LocalBlobScanner(world.keyspace),
        SparkBlobScanner(Source(spark, contact_of(cassandra), world.keyspace.name)),
    )
    seen = []
    for scanner in scanners:
        first = scanner.first(listing if world.twin else None, sources, SilentProgress())
        second = scanner.second(wanted, sources, SilentProgress())
        counts = (first.listed, first.bytes, dict(first.references), set(first.missing_ids()))
        seen.append((counts, set(first.unreferenced()), set(second.unreferenced()), set(second.missing())))
        first.close()
        second.close()
    assert seen[0] == seen[1]


@pytest.mark.spark
@pytest.mark.thorough
@pytest.mark.usefixtures("spark")
def test_the_commands_say_and_do_the_same_with_either_engine(world: BlobWorld) -> None:
    """Typed as by a person: findings, JSON and exit codes, then what a repair by Spark removes."""
    lost, gone = blob_id("lost"), {blob_id(f"gone {number}") for number in range(5)}
    world.refer()
    world.keyspace.write(Put(MESSAGE_V3, {"messageid": uuid1(), "headercontent": lost, "bodycontent": blob_id("mb")}))
    stays = world.ids()
    world.store(*gone, blob_id("young", generation=99_999))
    how = ("--delay", "0s", "--no-broker", "--json", *world.declared())

    def said(engine: str, *words: str) -> tuple[int, dict[str, Any]]:
        ended = world.line(*words, "blobs", *how, "--engine", engine)
        return ended.code, {name: value for name, value in ended.json.items() if name != "seconds"}

    local, parallel = (said(engine, "check") for engine in ("local", "spark"))
    assert local == parallel
    assert (local[0], local[1]["findings"]["COLLECT"], local[1]["findings"]["MISSING"]) == (1, len(gone), 1)

    code, repaired = said("spark", "repair")
    assert (code, repaired["removed"], repaired["left"]) == (1, len(gone), {"MISSING": 1})
    assert world.ids() == stays | {blob_id("young", generation=99_999)}
    assert went(world.line.home) == gone
