"""Compares the listing of a blob store with all references, in Spark: an exact difference, not an approximate filter.

Implements `mailqueue.collection.scan.BlobScanner`. The driver decides for each blob whether it may be removed, by
the same rule for every scanner. Executors read the tables. What only this process can read (the pages of a bucket,
whose keys never leave it; files; before-images) it writes to a file, which executors on other hosts get in portions.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import reduce
from itertools import islice
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Observation, Window
from pyspark.sql import functions as sf

from mailmend.mailqueue.collection.references import ReferenceSource, TableReferences
from mailmend.mailqueue.collection.scan import REFERRERS_MAX, BlobLines, Wanted
from mailmend.mailqueue.rules.blob_ids import SIDE_CAR, ListedBlob, MissingBlob
from mailmend.mailqueue.rules.slices import EPOCH
from mailmend.mailqueue.rules.stored_forms import SLOT
from mailmend.model.catalog.james_tables import BLOB_PARTS, BLOBS
from mailmend.model.catalog.mail_queue import DELETED_MAILS
from mailmend.model.ids import BlobId
from mailmend.model.ports import Progress
from mailmend.repair.joins.records import Workshop
from mailmend.spark_repair.executors import runs_here
from mailmend.spark_repair.failures import translated
from mailmend.spark_repair.jvm import end_session, release
from mailmend.spark_repair.pace import throttled
from mailmend.spark_repair.progress import rows_read, watched
from mailmend.spark_repair.source import Source

PORTION = 100_000
"""The number of lines that are sent to executors on other hosts at once."""

FEW = 20_000
"""The largest result, in rows, that is fetched at once; a larger one is fetched in parts, each by a Spark job."""

_KEY = "blob_id"
_SIDE = "side"
_STORED = "stored_micros"
_SIZE = "size_bytes"
_ID = "id"
_THERE = "there"
_WHOLE = "whole"
_COUNTED = "position"
_PARTS = "parts"
_SOURCE = "source"
_REFERRER = "referrer"
_NEEDED = "needed"
_LINE = "value"
_NUMBER = "number"
_MARK = ("queuename", "enqueueid")
_ID_CHARS_MAX = 1_024
_OWN: Final = "own"
_SIDE_CAR: Final = "side_car"
_NAMES: Final = {False: _OWN, True: _SIDE_CAR}


@dataclass(frozen=True, slots=True)
class SparkBlobScanner:
    """Reads the references through the Cassandra connector. Implements `BlobScanner`."""

    source: Source

    def first(self, listing: BlobLines | None, sources: Sequence[ReferenceSource], progress: Progress) -> "SparkLook":
        """One aggregation by id, of columns of a fixed width: with texts in it Spark would sort all that was read."""
        with self._look(sources, progress) as look:
            listed = self._listed(look, listing)
            named = look.references_of(sources, (_KEY, _NEEDED))
            by_key = listed.unionByName(named, allowMissingColumns=True).groupBy(_KEY)
            found = by_key.agg(_is_whole(), sf.max(_NEEDED).alias(_NEEDED), *map(_counted, _NAMES))
            count = sf.lit(0) + sf.count(f"{_OWN}.{_THERE}") + sf.count(f"{_SIDE_CAR}.{_THERE}")
            own = sf.col(f"{_OWN}.{_SIZE}")
            side = sf.col(f"{_SIDE_CAR}.{_SIZE}")
            judged = look.counted(0, found, count, sf.sum(sf.coalesce(own + side, own, side)))
            look.keep(judged.where(sf.col(_NEEDED).isNull() | (sf.col(_NEEDED) & ~sf.col(_WHOLE))))
            free = look.kept.where(sf.col(_NEEDED).isNull())
            look.free = _blobs(free.select(_KEY, sf.inline(sf.array(*_NAMES.values()))).where(_THERE))
            look.lacking = look.kept.where(_NEEDED).select(_KEY)
            return look

    def second(self, wanted: Wanted, sources: Sequence[ReferenceSource], progress: Progress) -> "SparkLook":
        with self._look(sources, progress) as look:
            candidates = look.blobs_in(wanted.candidates)
            missing = look.lines_of(wanted.missing).select(_field(0, _KEY))
            ids = candidates.select(_KEY).unionByName(missing).distinct()
            references = look.references_of(sources, (_KEY, _SOURCE, _REFERRER, _NEEDED))
            look.keep(references.join(ids, _KEY, "left_semi"))
            look.few &= wanted.candidates.count <= FEW
            look.free = _blobs(candidates.join(look.kept, _KEY, "left_anti"))
            if wanted.missing.count:
                named = look.kept.where(_NEEDED).drop(_NEEDED).distinct().join(missing, _KEY, "left_semi")
                number = sf.row_number().over(Window.partitionBy(_KEY).orderBy(_SOURCE, _REFERRER))
                some = named.withColumn(_NUMBER, number).where(sf.col(_NUMBER) <= REFERRERS_MAX)
                look.lacking = some.orderBy(_KEY, _NUMBER).select(_KEY, _SOURCE, _REFERRER)
            return look

    def interrupt(self) -> None:
        end_session(self.source.session)

    @contextmanager
    def _look(self, sources: Sequence[ReferenceSource], progress: Progress) -> "Iterator[SparkLook]":
        progress.stage("scan")
        source = self.source
        look = SparkLook(source, [reference_source.name for reference_source in sources])
        try:
            looking = throttled(source.session, source.throttle)
            with translated(source.contact, source.keyspace), watched(rows_read(source.session), progress), looking:
                yield look
        except BaseException:
            look.close()
            raise

    def _listed(self, look: "SparkLook", listing: BlobLines | None) -> DataFrame:
        """Of each id its counts of parts, and its parts; sizes and ages are only in a listing."""
        if listing is not None:
            return look.blobs_in(listing)
        counts = self.source.scan(BLOBS, (_ID, _COUNTED)).withColumn(_PARTS, sf.lit(0))
        parts = self.source.scan(BLOB_PARTS, (_ID,)).withColumn(_PARTS, sf.lit(1))
        unknown = sf.lit(None).cast("bigint")
        rows = counts.unionByName(parts, allowMissingColumns=True)
        return rows.select(*_named(), _COUNTED, _PARTS, unknown.alias(_STORED), unknown.alias(_SIZE))


@dataclass(slots=True)
class SparkLook:
    """The result of one look, kept by the executors. Implements `mailqueue.collection.scan.BlobLook`."""

    source: Source
    sources: list[str]
    free: DataFrame | None = None
    lacking: DataFrame | None = None
    few: bool = True
    _kept: DataFrame | None = None
    _tables: dict[str, DataFrame] = field(default_factory=dict)
    _counts: dict[int, Observation] = field(default_factory=dict)
    _workshop: Workshop = field(default_factory=Workshop)

    @property
    def listed(self) -> int:
        if 0 not in self._counts:
            return 0
        return int(self._counts[0].get["count"])

    @property
    def bytes(self) -> int | None:
        if 0 not in self._counts:
            return None
        size: int | None = self._counts[0].get["bytes"]
        return size

    @property
    def references(self) -> Mapping[str, int]:
        return {name: int(self._counts[number].get["count"]) for number, name in enumerate(self.sources, start=1)}

    @property
    def kept(self) -> DataFrame:
        assert self._kept is not None, "a look is made before it is asked"
        return self._kept

    def unreferenced(self) -> Iterator[ListedBlob]:
        for blob_id, micros, size in self._rows(self.free):
            stored_at = None
            if micros is not None:
                stored_at = EPOCH + timedelta(microseconds=micros)
            yield ListedBlob(BlobId(blob_id), stored_at, size)

    def missing_ids(self) -> Iterator[BlobId]:
        for blob_id, *_ in self._rows(self.lacking):
            yield BlobId(blob_id)

    def missing(self) -> Iterator[MissingBlob]:
        for blob_id, source, referrer in self._rows(self.lacking):
            yield MissingBlob(BlobId(blob_id), self.sources[source], referrer)

    def close(self) -> None:
        self._workshop.close()
        if self._kept is not None:
            release(self.source.session, self._kept)

    def keep(self, found: DataFrame) -> None:
        """Keep the rows on the executors' disks; all of them are read and counted when this returns."""
        self._kept = found.persist(StorageLevel.DISK_ONLY)
        self.few = found.count() <= FEW

    def counted(
        self, number: int, rows: DataFrame, count: Expression | None = None, size: Expression | None = None
    ) -> DataFrame:
        self._counts[number] = Observation()
        if count is None:
            count = sf.count(sf.lit(1))
        if size is None:
            size = sf.lit(None)
        return rows.observe(self._counts[number], count.alias("count"), size.alias("bytes"))

    def references_of(self, sources: Sequence[ReferenceSource], columns: Sequence[str]) -> DataFrame:
        """One row for each reference. Also sizes the shuffles that follow, by the largest table."""
        tables = [self._rows_of(source) for source in sources if isinstance(source, TableReferences)]
        if tables:
            self.source.size_shuffles(tables)
        counted = []
        for number, source in enumerate(sources):
            named = self._of(number, source)
            found = named.withColumn(_KEY, sf.regexp_replace(_KEY, SLOT, "$1")).select(*columns)
            counted.append(self.counted(number + 1, found))  # the listing is counted as 0
        return reduce(DataFrame.unionByName, counted)

    def blobs_in(self, lines: BlobLines) -> DataFrame:
        """The blobs of a listing as rows; they have no parts, so none is missing."""
        stored = sf.unix_micros(sf.to_timestamp(sf.col(_LINE)[1])).alias(_STORED)
        none = sf.lit(0)
        rows = self.lines_of(lines).select(_field(0, _ID), stored, _field(2, _SIZE, "bigint"))
        return rows.select(*_named(), _STORED, _SIZE, none.alias(_COUNTED), none.alias(_PARTS))

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
        for reference in source.references():
            lines.add(reference.blob_id, reference.referrer, reference.needed)
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
        ids = []
        for name in source.columns:
            column = sf.col(name)
            if not types[name].startswith("array"):
                column = sf.array(name)
            ids.append(sf.coalesce(column, sf.array().cast("array<string>")))
        every = sf.explode(sf.concat(*ids))
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
        if frame is None:
            return
        with translated(self.source.contact, self.source.keyspace):
            if self.few:
                yield from frame.collect()
            else:
                yield from frame.toLocalIterator()


def _named() -> tuple[Expression, ...]:
    """The id as `mailqueue.rules.blob_ids.referred_as` has it, and whether it was the id of a side-car."""
    one = sf.col(_ID)
    side = one.startswith(SIDE_CAR)
    plain = sf.when(side, one.substr(len(SIDE_CAR) + 1, _ID_CHARS_MAX)).otherwise(one)
    return plain.alias(_KEY), side.alias(_SIDE)


def _counted(side: bool) -> Expression:  # noqa: FBT001 - a value, not a switch
    """What the rows of one id tell of its blob, or of its side-car."""
    of = sf.col(_SIDE) == side
    there = sf.max(sf.when(of, of)).alias(_THERE)
    stored = sf.max(sf.when(of, sf.col(_STORED))).alias(_STORED)
    size = sf.max(sf.when(of, sf.col(_SIZE))).alias(_SIZE)
    return sf.struct(sf.lit(side).alias(_SIDE), there, stored, size).alias(_NAMES[side])


def _is_whole() -> Expression:
    """Of each id: as many parts as were counted; of two counts the first, as in James."""
    parts = sf.when(~sf.col(_SIDE), sf.col(_PARTS))
    counted = sf.when(~sf.col(_SIDE), sf.col(_COUNTED))
    return sf.coalesce(sf.sum(parts) >= sf.min(counted), sf.lit(False)).alias(_WHOLE)  # noqa: FBT003 - a literal of SQL


def _blobs(rows: DataFrame) -> DataFrame:
    prefix = sf.when(sf.col(_SIDE), SIDE_CAR).otherwise("")
    return rows.select(sf.concat(prefix, _KEY), _STORED, _SIZE)


def _field(number: int, name: str, kind: str = "string") -> Expression:
    return sf.col(_LINE)[number].cast(kind).alias(name)
