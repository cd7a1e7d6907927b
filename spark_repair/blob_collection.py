"""One look at a store's listing and at every reference, in Spark: an exact difference, no filter that may be wrong.

Implements `mailqueue.maintenance.blob_scan.BlobScanner`; which blob may go is decided by the driver, one by one, by the
same rule for every scanner. Tables are read by the executors. What only this process can read (the pages of a bucket,
whose keys never leave it; files; before-images) it writes to a file: executors on other hosts get it in portions.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Observation, Window
from pyspark.sql import functions as sf

from mailqueue.maintenance.blob_references import ReferenceSource, TableReferences
from mailqueue.maintenance.blob_scan import REFERRERS_MAX, BlobLines, Wanted, blob_of
from model.blob_collection import SIDE_CAR, ListedBlob, MissingBlob
from model.catalog.james_tables import BLOB_PARTS, BLOBS
from model.catalog.mail_queue import DELETED_MAILS
from model.ids import BlobId
from model.ports import Progress
from repair.joins.records import Workshop
from spark_repair.connector import Source
from spark_repair.executors import runs_here
from spark_repair.failures import translated
from spark_repair.interruption import end_session, is_over
from spark_repair.message_inconsistencies import rows_read, watched

PORTION = 100_000
"""How many lines go to executors on other hosts at once."""

_ID, _STORED, _SIZE, _WHOLE, _KEY = "id", "stored_at", "size_bytes", "whole", "blob_id"
_SOURCE, _REFERRER, _NEEDED, _LINE = "source", "referrer", "needed", "value"
_BLOB, _BY, _NUMBER = "blob", "by", "number"
_MARK = ("queuename", "enqueueid")
_KEY_CHARS_MAX = 1_024


@dataclass(frozen=True, slots=True)
class SparkBlobScanner:
    """Looks through the Cassandra connector."""

    source: Source

    def first(self, listing: BlobLines | None, sources: Sequence[ReferenceSource], progress: Progress) -> "SparkLook":
        with self._look(sources, progress) as look:
            listed = self._of_tables() if listing is None else look.blobs_in(listing)
            known = look.counted(0, listed).select(
                _KEY,
                sf.struct(_ID, _STORED, _SIZE).alias(_BLOB),
                (sf.col(_WHOLE) & (sf.col(_ID) == sf.col(_KEY))).alias(_WHOLE),
            )
            named = look.references_of(sources).select(_KEY, sf.struct(_NEEDED, _SOURCE, _REFERRER).alias(_BY))
            found = known.unionByName(named, allowMissingColumns=True).groupBy(_KEY)
            judged = found.agg(
                sf.collect_list(_BLOB).alias(_BLOB),
                sf.coalesce(sf.max(_WHOLE), sf.lit(False)).alias(_WHOLE),  # noqa: FBT003 - a literal of SQL
                sf.max(_BY).alias(_BY),  # one that needs it, where any does
            )
            kept = look.keep(judged.where(sf.col(_BY).isNull() | (sf.col(f"{_BY}.{_NEEDED}") & ~sf.col(_WHOLE))))
            look.free = kept.where(sf.col(_BY).isNull()).select(sf.explode(_BLOB).alias(_BLOB)).select(f"{_BLOB}.*")
            look.lacking = kept.where(sf.col(_BY).isNotNull()).select(_KEY, f"{_BY}.{_SOURCE}", f"{_BY}.{_REFERRER}")
            return look

    def second(self, wanted: Wanted, sources: Sequence[ReferenceSource], progress: Progress) -> "SparkLook":
        with self._look(sources, progress) as look:
            candidates, missing = (
                look.blobs_in(wanted.candidates),
                look.lines_of(wanted.missing).select(_field(0, _KEY)),
            )
            ids = candidates.select(_KEY).unionByName(missing).distinct()
            kept = look.keep(look.references_of(sources).join(ids, _KEY, "left_semi"))
            look.free = candidates.join(kept, _KEY, "left_anti").select(_ID, _STORED, _SIZE)
            named = kept.where(_NEEDED).select(_KEY, _SOURCE, _REFERRER).distinct().join(missing, _KEY, "left_semi")
            number = sf.row_number().over(Window.partitionBy(_KEY).orderBy(_SOURCE, _REFERRER))
            few = named.withColumn(_NUMBER, number).where(sf.col(_NUMBER) <= REFERRERS_MAX)
            look.lacking = few.orderBy(_KEY, _NUMBER).select(_KEY, _SOURCE, _REFERRER)
            return look

    def interrupt(self) -> None:
        end_session(self.source.session)

    @contextmanager
    def _look(self, sources: Sequence[ReferenceSource], progress: Progress) -> "Iterator[SparkLook]":
        progress.stage("scan")
        source = self.source
        look = SparkLook(source, [one.name for one in sources])
        try:
            with translated(source.contact, source.keyspace), watched(rows_read(source.session), progress):
                yield look
        except BaseException:
            look.close()
            raise

    def _of_tables(self) -> DataFrame:
        """Each id, and whether it has as many parts as were counted; of two counts the first, as in James."""
        rows, parts = (self.source.scan(BLOBS, (_ID, "position")), self.source.scan(BLOB_PARTS, (_ID,)))
        counted = rows.withColumn("parts", sf.lit(0))
        together = counted.unionByName(parts.withColumn("parts", sf.lit(1)), allowMissingColumns=True)
        by_id = together.groupBy(_ID).agg(sf.min("position").alias("position"), sf.sum("parts").alias("parts"))
        whole = sf.coalesce(sf.col("parts") >= sf.col("position"), sf.lit(False))  # noqa: FBT003 - a literal of SQL
        unknown = sf.lit(None).cast("string").alias(_STORED), sf.lit(None).cast("bigint").alias(_SIZE)
        return by_id.select(_referred_as(_ID), _ID, *unknown, whole.alias(_WHOLE))


@dataclass(slots=True)
class SparkLook:
    """What one look found, kept by the executors. Implements `mailqueue.maintenance.blob_scan.BlobLook`."""

    source: Source
    sources: list[str]
    free: DataFrame | None = None
    lacking: DataFrame | None = None
    _kept: list[DataFrame] = field(default_factory=list)
    _tables: dict[str, DataFrame] = field(default_factory=dict)
    _counts: dict[int, Observation] = field(default_factory=dict)
    _workshop: Workshop = field(default_factory=Workshop)

    @property
    def listed(self) -> int:
        return int(self._counts[0].get["count"]) if 0 in self._counts else 0

    @property
    def bytes(self) -> int | None:
        size: int | None = self._counts[0].get["bytes"] if 0 in self._counts else None
        return size

    @property
    def references(self) -> Mapping[str, int]:
        return {name: int(self._counts[number].get["count"]) for number, name in enumerate(self.sources, start=1)}

    def unreferenced(self) -> Iterator[ListedBlob]:
        return (blob_of(*row) for row in self._rows(self.free))

    def missing(self) -> Iterator[MissingBlob]:
        return (MissingBlob(BlobId(one), self.sources[at], referrer) for one, at, referrer in self._rows(self.lacking))

    def close(self) -> None:
        self._workshop.close()
        if not is_over(self.source.session):
            for one in self._kept:
                one.unpersist()

    def keep(self, found: DataFrame) -> DataFrame:
        """The rows, kept on the executors' disks; everything was read and counted by then."""
        self._kept.append(found.persist(StorageLevel.DISK_ONLY))
        found.count()
        return found

    def counted(self, number: int, rows: DataFrame) -> DataFrame:
        self._counts[number] = Observation()
        size = sf.sum(_SIZE) if _SIZE in rows.columns else sf.lit(None)
        return rows.observe(self._counts[number], sf.count(sf.lit(1)).alias("count"), size.alias("bytes"))

    def references_of(self, sources: Sequence[ReferenceSource]) -> DataFrame:
        """One row for each reference. Also sizes the shuffles that follow, by the largest table."""
        tables = [self._rows_of(one) for one in sources if isinstance(one, TableReferences)]
        if tables:
            self.source.size_shuffles(tables)
        found = [self.counted(number + 1, self._of(number, source)) for number, source in enumerate(sources)]
        return reduce(DataFrame.unionByName, found)

    def blobs_in(self, lines: BlobLines) -> DataFrame:
        fields = (_field(0, _ID), _field(1, _STORED), _field(2, _SIZE, "bigint"))
        whole = sf.lit(True).alias(_WHOLE)  # noqa: FBT003 - a literal of SQL
        return self.lines_of(lines).select(*fields).select(_referred_as(_ID), _ID, _STORED, _SIZE, whole)

    def lines_of(self, lines: BlobLines) -> DataFrame:
        """The lines as arrays of text. A cluster's executors cannot open a file of this machine."""
        session = self.source.session
        if runs_here(str(session.sparkContext.master)):
            texts = session.read.text(str(lines.path))
        else:
            texts = reduce(DataFrame.union, self._portions(lines), session.createDataFrame([], f"{_LINE} string"))
        return texts.select(sf.from_json(_LINE, "array<string>").alias(_LINE))

    def _portions(self, lines: BlobLines) -> "Iterator[DataFrame]":
        """Each is with the executors, and no longer here, before the next is read."""
        with lines.path.open(encoding="utf-8") as stream:
            while some := [(line.rstrip("\n"),) for line in islice(stream, PORTION)]:
                frame = self.source.session.createDataFrame(some, f"{_LINE} string")
                yield frame.localCheckpoint()

    def _of(self, number: int, source: ReferenceSource) -> DataFrame:
        if isinstance(source, TableReferences):
            return self._of_table(number, source)
        lines = BlobLines(self._workshop.path / f"source{number}")
        for one in source.references():
            lines.add(one.blob_id, one.referrer, one.needed)
        lines.close()
        fields = (_field(0, _KEY), _field(1, _REFERRER), _field(2, _NEEDED, "boolean"))
        return self.lines_of(lines).select(*fields, sf.lit(number).alias(_SOURCE))

    def _of_table(self, number: int, source: TableReferences) -> DataFrame:
        rows = self._rows_of(source)
        needed = sf.lit(source.needed)
        if source.marks:
            marks = self.source.scan(DELETED_MAILS, _MARK).withColumn(_NUMBER, sf.lit(number))
            rows = rows.join(marks, list(_MARK), "left")
            needed = sf.col(_NUMBER).isNull()
        types = dict(rows.dtypes)
        ids = [sf.col(name) if types[name].startswith("array") else sf.array(name) for name in source.columns]
        every = sf.explode(sf.concat(*(sf.coalesce(one, sf.array().cast("array<string>")) for one in ids)))
        referrer = sf.concat_ws(" ", *(sf.col(name).cast("string") for name in source.keys))
        found = rows.select(every.alias(_KEY), referrer.alias(_REFERRER), needed.alias(_NEEDED))
        return found.where(sf.col(_KEY).isNotNull()).withColumn(_SOURCE, sf.lit(number))

    def _rows_of(self, source: TableReferences) -> DataFrame:
        name = source.table.name
        if name not in self._tables:
            wanted = dict.fromkeys((*source.keys, *source.columns))
            self._tables[name] = self.source.scan(source.table, wanted)
        return self._tables[name]

    def _rows(self, frame: DataFrame | None) -> Iterator[Sequence[Any]]:
        assert frame is not None, "a look is made before it is asked"
        with translated(self.source.contact, self.source.keyspace):
            yield from frame.toLocalIterator()


def _referred_as(name: str) -> Expression:
    """As `model.blob_collection.referred_as`."""
    one = sf.col(name)
    return sf.when(one.startswith(SIDE_CAR), one.substr(len(SIDE_CAR) + 1, _KEY_CHARS_MAX)).otherwise(one).alias(_KEY)


def _field(number: int, name: str, kind: str = "string") -> Expression:
    return sf.col(_LINE)[number].cast(kind).alias(name)
