"""The collection of blobs beside what it cannot do without: the store's listing, and a scan of all references a look.

Two blobs for each message, one in a hundred is nobody's. Bare and whole run in turn on the same servers, and every
collection has both of its looks, without the delay. With either engine for tables, with the local one for a bucket: a
real one, and one in the memory of another process, which serves a page in the same time however many there are.
"""

import asyncio
import multiprocessing
import resource
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, Final

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf

from mailmend.cql.driver.asynchronous import AsyncKeyspace
from mailmend.cql.driver.session import Contact, Keyspace
from mailmend.cql.introspect import live_schema
from mailmend.mailqueue.blobs.cassandra import CassandraStore
from mailmend.mailqueue.blobs.object_storage import ExactRequests, open_s3
from mailmend.mailqueue.blobs.s3 import PAGE_KEYS, S3Settings
from mailmend.mailqueue.collection.collecting import (
    BlobCollection,
    CollectableStore,
    ListedStore,
    RemovedList,
    Removing,
    TablesStore,
)
from mailmend.mailqueue.collection.references import TableReferences, table_references
from mailmend.mailqueue.collection.scan import BlobScanner, LocalBlobScanner
from mailmend.mailqueue.concurrency import all_of
from mailmend.mailqueue.rules.blob_ids import BlobVerdict, CollectionRule
from mailmend.model.catalog.james_tables import BLOB_PARTS, BLOBS
from mailmend.model.catalog.mail import MESSAGE_V3, SCHEMA
from mailmend.model.catalog.mail_queue import DELETED_MAILS, QUEUE_TABLES
from mailmend.model.ids import BlobId
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Scan
from mailmend.model.table import Table
from mailmend.repair.clock import SystemClock
from mailmend.spark_repair.blob_collection import SparkBlobScanner
from mailmend.spark_repair.source import Source
from tests.bench.population import _uuid, _Writer
from tests.support.progress import SilentProgress
from tests.support.s3_twin import s3_twin

TABLES: Final = Schema(SCHEMA.types, (*SCHEMA.tables, *(table for table in QUEUE_TABLES if table not in SCHEMA.tables)))
BUCKET_MAX: Final = 10_000
"""The local server of S3 reads its whole folder for each page: ten times the objects take a hundred times as long."""

ROUNDS: Final = 3
_NOBODYS: Final = 100
_PUTS_AT_ONCE: Final = 64
_BYTES: Final = b"x" * 1_000
_LOOKS: Final = 2

Columns = tuple[Table, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Collecting:
    """Medians of the rounds after a first one that warms up; seconds, of the clock and of Python's processor.

    Attributes:
        bare_mib, whole_mib: the most memory that Python took meanwhile.
        plain: of a bucket: its listing page after page; `bare` is with the listing in parts.
    """

    lane: str
    blobs: int
    bare: float
    bare_cpu: float
    bare_mib: float
    whole: float
    whole_cpu: float
    whole_mib: float
    plain: float | None = None

    def __str__(self) -> str:
        plain = "" if self.plain is None else f"; page after page the listing alone {self.plain:.1f} s"
        return (
            f"{self.blobs:>9,} blobs, {self.lane:14} collection {self.whole:.1f} s (CPU {self.whole_cpu:.1f}, "
            f"{self.whole_mib:.0f} MiB), bare {self.bare:.1f} s (CPU {self.bare_cpu:.1f}, {self.bare_mib:.0f} MiB): "
            f"ratio {self.whole / self.bare:.2f}{plain}"
        )


@dataclass(frozen=True, slots=True)
class BlobKeyspace:
    """A keyspace with so many blobs, and what refers to them."""

    session: SparkSession
    contact: Contact
    keyspace: Keyspace
    blobs: int

    @property
    def source(self) -> Source:
        return Source(self.session, self.contact, self.keyspace.name)

    @property
    def references(self) -> list[TableReferences]:
        return table_references(live_schema(self.keyspace.cluster, self.keyspace.name), self.keyspace)

    @property
    def referring(self) -> list[Columns]:
        """What the looks read of what refers to blobs."""
        one_look: list[Columns] = [(one.table, (*one.keys, *one.columns)) for one in self.references]
        return [*one_look, (DELETED_MAILS, ("queuename", "enqueueid"))] * _LOOKS

    def populate(self) -> None:
        put, ids = _Writer(self.session, self.contact, self.keyspace.name), self.session.range(0, self.blobs, 1, 8)
        blobs = ids.select(_id(sf.col("id")).alias("id"), sf.lit(1).alias("position"))
        put(blobs, BLOBS)
        put(blobs.select("id", sf.lit(0).alias("chunknumber"), sf.lit(_BYTES).alias("data")), BLOB_PARTS)
        number, messages = sf.col("id"), self.session.range(0, (self.blobs - self.nobodys) // 2, 1, 8)
        both = (_id(2 * number).alias("headercontent"), _id(2 * number + 1).alias("bodycontent"))
        put(messages.select(_uuid("message", number).alias("messageid"), *both), MESSAGE_V3)

    @property
    def nobodys(self) -> int:
        return self.blobs // _NOBODYS // 2 * 2


def measure_tables(filled: BlobKeyspace) -> Iterator[Collecting]:
    """Either engine; then all that is nobody's goes, and is counted."""
    tables: list[Columns] = [(BLOBS, ("id", "position")), (BLOB_PARTS, ("id", "chunknumber")), *filled.referring]
    local = LocalBlobScanner(filled.keyspace)
    collect = partial(
        _collect, filled, lambda: TablesStore(CassandraStore(AsyncKeyspace(filled.keyspace), SystemClock()))
    )
    yield _in_turn("tables, local", filled, lambda: _read(filled.keyspace, tables), lambda: collect(local))
    spark = SparkBlobScanner(filled.source)
    yield _in_turn("tables, Spark", filled, lambda: _read_by_spark(filled.source, tables), lambda: collect(spark))
    seconds, *_ = _timed(lambda: collect(local, removes=True))
    print(
        f"{filled.blobs:>9,} blobs, tables, local: with the removal of {filled.nobodys:,} {seconds:.1f} s", flush=True
    )


def measure_bucket(filled: BlobKeyspace, bucket: S3Settings, lane: str = "bucket, local") -> Collecting:
    """The blobs of a bucket instead; nothing goes."""

    def bare() -> None:
        asyncio.run(_listed(bucket))
        _read(filled.keyspace, filled.referring)

    collect = partial(_collect, filled, lambda: ListedStore(open_s3(bucket).store), LocalBlobScanner(filled.keyspace))
    plain, *_ = _timed(lambda: asyncio.run(_listed_page_after_page(bucket)))
    return _in_turn(lane, filled, bare, collect, plain)


async def fill(bucket: S3Settings, blobs: int) -> None:
    store = open_s3(bucket).store
    await all_of((_id_of(number) for number in range(blobs)), lambda one: store.keep(one, _BYTES), _PUTS_AT_ONCE)


@contextmanager
def bucket_in_memory(blobs: int) -> Iterator[S3Settings]:
    """So many blobs, served over HTTP by another process."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(there, blobs), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        here.send("enough")
        process.join()


def _serve(connection: Connection, blobs: int) -> None:
    with s3_twin() as twin:
        twin.objects = {_id_of(number): _BYTES for number in range(blobs)}
        twin.ordered = sorted(twin.objects)
        connection.send(twin.settings())
        connection.recv()


def as_json(measured: Sequence[Collecting]) -> list[dict[str, Any]]:
    return [asdict(one) | {"ratio": round(one.whole / one.bare, 3)} for one in measured]


def _in_turn(
    lane: str, filled: BlobKeyspace, bare: Callable[[], Any], whole: Callable[[], Any], plain: float | None = None
) -> Collecting:
    rounds = [(*_timed(bare), *_timed(whole)) for _ in range(ROUNDS + 1)][1:]
    return replace(Collecting(lane, filled.blobs, *map(median, zip(*rounds, strict=True))), plain=plain)


def _timed(work: Callable[[], Any]) -> tuple[float, float, float]:
    """Seconds of the clock and of the processor, and the most memory of this process in MiB."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    began, cpu = time.perf_counter(), time.process_time()
    work()
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    return took, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _read(keyspace: Keyspace, tables: Sequence[Columns]) -> None:
    for table, columns in tables:
        deque(keyspace.scan(Scan(table, columns)), maxlen=0)


def _read_by_spark(source: Source, tables: Sequence[Columns]) -> None:
    for table, columns in tables:
        source.scan(table, columns).write.format("noop").mode("overwrite").save()


def _collect(
    filled: BlobKeyspace, store: Callable[[], CollectableStore], scanner: BlobScanner, *, removes: bool = False
) -> None:
    async def sources() -> Sequence[TableReferences]:
        return filled.references

    async def run(folder: Path) -> None:
        rule = CollectionRule(datetime.now(UTC) + timedelta(days=2))
        collection = BlobCollection(store(), scanner, sources, rule, SystemClock(), SilentProgress(), 0)
        removing = Removing(RemovedList(folder / "went"), lambda: None) if removes else None
        found = await collection.run(removing)
        connection = {kind: count for kind, count in found.verdicts.items() if count}
        expected = {BlobVerdict.KEEP: filled.blobs - filled.nobodys, BlobVerdict.COLLECT: filled.nobodys}
        assert (connection, found.removed) == (expected, filled.nobodys * removes), (connection, found)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


async def _listed(bucket: S3Settings) -> int:
    return sum([1 async for _ in open_s3(bucket).scan()])


async def _listed_page_after_page(bucket: S3Settings) -> int:
    requests, token, count = ExactRequests(bucket), "", 0
    while token or not count:
        page, token = await requests.page(after="", token=token, most=PAGE_KEYS)
        count += len(page)
    return count


def _id(number: Column) -> Column:
    return sf.concat(sf.lit("1_600_"), sf.sha2(number.cast("string"), 256))


def _id_of(number: int) -> BlobId:
    return BlobId(f"1_600_{sha256(str(number).encode()).hexdigest()}")
