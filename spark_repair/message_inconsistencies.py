"""The check of a whole keyspace in Spark: every table read once, only suspects leave the executors.

Implements `repair.findings.Engine`. The truth's compact form is kept by the executors (memory, then disk) while
contents, places and groups are decided from it; the suspects are kept on disk, counted there, and streamed.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any
from uuid import UUID

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as sf

from cql.rows import decode
from cql.session import Contact
from model.projections import Family, Filter, Mirror, Projection
from repair.decide import Verdict
from repair.findings import Errand, Outcome, Progress, Survey, Suspect
from spark_repair import suspects as native
from spark_repair.connector import Source
from spark_repair.frames import columns_read, filter_frame, mirror_frame, truth_frame
from spark_repair.session import translated

_STREAMED_ROWS = 50_000


@dataclass(slots=True)
class _Counted:
    """Scans whose rows are counted while they pass, without a second look."""

    source: Source
    observed: dict[str, Observation] = field(default_factory=dict)

    def scan(self, family: Family, name: str) -> DataFrame:
        """The table's rows, counted under its spelling."""
        table, columns = columns_read(family)[name]
        self.observed[name] = Observation(name)
        return self.source.scan(table, columns).observe(self.observed[name], sf.count(sf.lit(1)).alias("rows"))

    @property
    def rows(self) -> dict[str, int]:
        """Rows per table; only when every scan has run."""
        return {name: int(seen.get["rows"]) for name, seen in self.observed.items()}


class SparkEngine:
    """Scans a keyspace through the Cassandra connector."""

    def __init__(self, session: SparkSession, contact: Contact, keyspace: str) -> None:
        self._session = session
        self._contact = contact
        self._keyspace = keyspace

    def detect(self, survey: Survey, progress: Progress) -> "SparkDetection":
        """Read every table of the families once and find the suspects."""
        source = Source(self._session, self._contact, self._keyspace, survey.level, survey.rows_per_second)
        detection = SparkDetection(source, survey.families)
        with translated(self._keyspace):
            for family in survey.families:
                detection.add(_FamilyCheck(family, _Counted(source), accept_torn=survey.accept_torn), progress)
        return detection


@dataclass(slots=True)
class _FamilyCheck:
    """One family's frames, in the order in which they are decided."""

    family: Family
    tables: _Counted
    accept_torn: bool
    held: list[DataFrame] = field(default_factory=list)

    def suspects(self) -> DataFrame:
        """Every suspect of the family, in one frame."""
        truth = self._hold(self._truth(), StorageLevel.MEMORY_AND_DISK)
        found: list[DataFrame] = []
        if self.family.content:
            content = self.family.content
            rows = self.tables.scan(self.family, content.name)
            alone = self._hold(native.contents(content, truth, rows), StorageLevel.MEMORY_AND_DISK)
            if alone.count():
                truth = native.mark_lost(self.family, truth, alone)
            found.append(native.content_suspects(content, alone))
        found += self._place_suspects(truth)
        found += self._group_suspects(truth)
        return reduce(DataFrame.unionByName, found)

    def _truth(self) -> DataFrame:
        rows = self.tables.scan(self.family, self.family.truth.spelling)
        return truth_frame(self.family, rows, accept_torn=self.accept_torn)

    def _place_suspects(self, truth: DataFrame) -> list[DataFrame]:
        found: list[DataFrame] = []
        for place, projections in _by_place(self.family).items():
            projected = [self._placed(projection) for projection in projections]
            known = native.places(place, truth, projected)
            wrong = self._hold(native.place_suspects(self.family, projections, known), StorageLevel.DISK_ONLY)
            truth_id = _truth_id(self.family) if wrong.count() else None
            found += native.spread(projections, native.with_truth_ids(place, wrong, truth, truth_id))
        return found

    def _placed(self, projection: Mirror | Filter) -> DataFrame:
        rows = self.tables.scan(self.family, projection.name)
        if isinstance(projection, Mirror):
            return mirror_frame(self.family, rows)
        return filter_frame(self.family, projection, rows)

    def _group_suspects(self, truth: DataFrame) -> list[DataFrame]:
        counts = [
            native.counts_suspects(self.family, counts, truth, self.tables.scan(self.family, counts.name))
            for counts in self.family.counts
        ]
        truth_id = _truth_id(self.family)
        unions = [
            native.union_suspects(union, truth, self.tables.scan(self.family, union.name), truth_id)
            for union in self.family.unions
        ]
        return counts + unions

    def _hold(self, frame: DataFrame, level: StorageLevel) -> DataFrame:
        kept = frame.persist(level)
        self.held.append(kept)
        return kept

    def close(self) -> None:
        """Let go of what the executors keep."""
        for frame in self.held:
            frame.unpersist()


def _by_place(family: Family) -> dict[tuple[str, ...], list[Mirror | Filter]]:
    """The projections that are decided together: those of the same place."""
    together: dict[tuple[str, ...], list[Mirror | Filter]] = {}
    placed: tuple[Mirror | Filter, ...] = (family.mirror, *family.filters)
    for projection in placed:
        together.setdefault(native.place_of(projection, family), []).append(projection)
    return together


def _truth_id(family: Family) -> str | None:
    """The column that leads back to the truth: its partition key, where that is one UUID."""
    partition = family.truth.partition
    single = len(partition) == 1 and partition[0].type in ("uuid", "timeuuid")
    return partition[0].name if single else None


class SparkDetection:
    """The suspects of one scan, kept by the executors. Implements `repair.findings.Detection`."""

    def __init__(self, source: Source, families: tuple[Family, ...]) -> None:
        self._source = source
        self._families = families
        self._frames: list[DataFrame] = []
        self._checks: list[_FamilyCheck] = []
        self._counts: dict[str, dict[Verdict, int]] = {}
        self._scanned: dict[str, int] = {}

    def add(self, check: _FamilyCheck, progress: Progress) -> None:
        """Carry out a family's check and keep what it finds."""
        progress.stage(f"check {check.family.truth.spelling}")
        self._checks.append(check)
        frame = check.suspects().persist(StorageLevel.DISK_ONLY)
        self._frames.append(frame)
        for row in frame.groupBy(native.PROJECTION, native.VERDICT).count().collect():
            self._counts.setdefault(row[0], {})[Verdict(row[1])] = row[2]
        self._scanned |= check.tables.rows
        check.close()
        found = sum(sum(counts.values()) for counts in self._counts.values())
        progress.advance(sum(check.tables.rows.values()), found)

    @property
    def scanned(self) -> Mapping[str, int]:
        """Rows read, per table in James's spelling."""
        return self._scanned

    @property
    def counts(self) -> Mapping[str, Mapping[Verdict, int]]:
        """Suspects per projection and verdict."""
        return self._counts

    def suspects(self) -> Iterator[Suspect]:
        """Every suspect, streamed: never more than a part of them in this process at once."""
        projections = {one.name: one for family in self._families for one in family.projections}
        with translated(self._source.keyspace):
            for frame in self._frames:
                for row in frame.toLocalIterator():
                    yield suspect_of(row, projections)

    def revisit(self, errand: Errand, progress: Progress) -> Iterator[Outcome]:
        """Look at every row-wise suspect again on the executors, and mend what the errand allows."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what the executors keep."""
        for frame in self._frames:
            frame.unpersist()


def suspect_of(row: Row, projections: Mapping[str, Projection]) -> Suspect:
    """A suspect as the executors tell it, as the rest of mailmend knows it."""
    projection = projections[row[native.PROJECTION]]
    columns = projection.table.key
    key = tuple(decode(column.type, text) for column, text in zip(columns, row[native.KEY], strict=True))
    ids = tuple(UUID(text) for text in row[native.TRUTH_IDS])
    return Suspect(projection.name, key, Verdict(row[native.VERDICT]), ids, _wanted(projection, row[native.WANTED]))


def _wanted(projection: Projection, text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    cells: dict[str, Any] = json.loads(text)
    return {name: decode(projection.table.column(name).type, value) for name, value in cells.items()}
