"""The check of a whole keyspace in Spark: every table read once, only suspects leave the executors.

Implements `repair.mending.engine.Detector`. The truth's compact form is kept by the executors
(memory, then disk) while contents, places and groups are decided from it. Few suspects come to the
driver once and stay there; many are kept on the executors' disks and streamed.

Generators that are behind the numbers of a group are found by one aggregation by group,
which brings the numbers in use and the last numbers given together. Only groups that look wrong
leave the executors. They are looked at again one by one, as the generators of the local engine.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import reduce
from itertools import islice
from operator import or_
from typing import Final, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from mailmend.cql.driver.contact import Contact
from mailmend.model.catalog.ledger import KEEP
from mailmend.model.ports import Progress
from mailmend.model.projections.family import Family, Filter, projections_of
from mailmend.model.projections.findings import Finding, RepairPolicy, Suspect
from mailmend.model.projections.numbering import Numbering
from mailmend.model.projections.places import places_of
from mailmend.model.projections.projection import Mirror, Projection
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Table
from mailmend.repair.clock import SystemClock
from mailmend.repair.log_fields import with_log_fields
from mailmend.repair.mending.engine import Detection, RepairSettings
from mailmend.repair.mending.generators import (
    SHOWN_MAX,
    BehindGenerator,
    Generators,
    HighestNumbers,
    in_order,
)
from mailmend.repair.mending.throttle import Throttle
from mailmend.repair.staging.area import StagingArea
from mailmend.spark_repair import fixing
from mailmend.spark_repair import suspects as native
from mailmend.spark_repair.comparable import key_of, key_texts, refuse_incomparable_here
from mailmend.spark_repair.executors import runs_here, tasks_at_once
from mailmend.spark_repair.failures import translated
from mailmend.spark_repair.groups import group_suspects, groups_of
from mailmend.spark_repair.jvm import ended_when_interrupted, release
from mailmend.spark_repair.pace import open_here, place_of, throttled
from mailmend.spark_repair.progress import rows_read, share_of_tasks, watched
from mailmend.spark_repair.source import Source, segments_read
from mailmend.spark_repair.suspects import cell_of, truth_frame
from mailmend.spark_repair.tls import contact_of_executors

IN_DRIVER_MAX = 20_000
"""The largest number of suspects that this process itself looks at again, where Spark runs locally (`local[*]`).

The executors' Python takes seconds to start; but executors of a cluster may be nearer to Cassandra than this machine.
"""

_PART_ROWS = 20_000
"""Suspects that come to this process at once, at most, roughly."""


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Scans a keyspace through the Cassandra connector.

    Args:
        ledger: the keyspace where fixes are recorded; a check needs none.
        keep: how long the ledger keeps what is recorded.
        throttle: changes the pace of the run while it is at work.
        staging: where the rows of a scan are kept, so that the next attempt goes on.
    """

    session: SparkSession
    contact: Contact
    keyspace: str
    ledger: str | None = None
    keep: timedelta = KEEP
    throttle: Throttle | None = None
    staging: StagingArea | None = None

    @property
    def is_local(self) -> bool:
        return runs_here(str(self.session.sparkContext.master))

    def detect(self, settings: RepairSettings, progress: Progress) -> "SparkDetection":
        refuse_incomparable_here(settings.families)
        detection = SparkDetection(self, settings)
        measure = rows_read(self.session)
        area = self.staging
        if area:
            progress.stage(f"scan: segments ({area.kept} of {area.number} stood)", area.number - area.kept)
            measure = segments_read(area)
        else:
            progress.stage("scan")
        try:
            looking = throttled(self.session, self.throttle)
            with translated(self.contact, self.keyspace), watched(measure, progress), looking:
                detection.size_shuffles()
                threads = ThreadPoolExecutor(len(settings.families), "mailmend-family")
                with threads, ended_when_interrupted(self.session):  # ended before the threads are waited for
                    found = list(threads.map(with_log_fields(detection.found_in), settings.families))
        except BaseException:
            detection.close()
            raise
        detection.keep(found)
        progress.advance(0, detection.number)
        return detection


class NumbersOfGroups(NamedTuple):
    """The highest numbers of groups whose generators look behind."""

    numbering: Numbering
    groups: Mapping[Key, HighestNumbers]


@dataclass(frozen=True, slots=True)
class _Found:
    """The suspects of one family: few in this process, many by the executors."""

    family: Family
    scanned: Mapping[str, int]
    counts: Mapping[str, Counter[Verdict]]
    numbers: Sequence[NumbersOfGroups]  # of groups whose generators look behind
    few: Sequence[Suspect] = ()
    many: DataFrame | None = None


class SparkDetection(Detection):
    """The suspects of one scan."""

    def __init__(self, engine: SparkEngine, settings: RepairSettings) -> None:
        super().__init__()
        self._engine = engine
        self._settings = settings
        self._found: list[_Found] = []
        self._frames: list[DataFrame] = []

    def found_in(self, family: Family) -> _Found:
        """Read a family's tables."""
        tables = _Counted(self._source(), family)
        check = _FamilyCheck(family, tables, accept_torn=self._settings.policy.accept_torn)
        try:
            found = check.found()
            counts = found.counts()
            numbers = found.numbers_behind(tables.source)
            if not counts:
                return _Found(family, tables.rows, counts, numbers)
            suspects = found.suspects(counts)
            if _number(counts, family.projections) <= IN_DRIVER_MAX and self._engine.is_local:
                projections = projections_of([family])
                few = [fixing.suspect_of(row.asDict(), projections) for row in suspects.collect()]
                return _Found(family, tables.rows, counts, numbers, few)
            many = suspects.persist(StorageLevel.DISK_ONLY)
            self._frames.append(many)
            many.count()
            return _Found(family, tables.rows, counts, numbers, many=many)
        finally:
            check.close()

    def size_shuffles(self) -> None:
        """Set the number of shuffle parts from the largest truth; call before anything is shuffled."""
        source = self._source()
        read = [family.columns_read[family.truth.spelling] for family in self._settings.families]
        source.size_shuffles(source.scan(table, columns) for table, columns in read)

    def keep(self, found: Sequence[_Found]) -> None:
        self._found = [*found]
        for portion in found:
            self.scanned.update(portion.scanned)
            self.counts |= portion.counts

    def _source(self) -> Source:
        engine = self._engine
        settings = self._settings
        place = (engine.session, engine.contact, engine.keyspace, settings.level)
        return Source(*place, settings.policy.rows_per_second, engine.throttle, engine.staging)

    def suspects(self) -> Iterator[Suspect]:
        for found in self._found:
            yield from found.few
            if found.many is not None:
                yield from self._streamed(found, found.many)

    def generators_behind(self) -> list[BehindGenerator]:
        contact = contact_of_executors(self._engine.session, self._engine.contact)
        place = (contact, self._engine.keyspace)
        behind = []
        for found in self._found:
            for in_use in found.numbers:
                behind += confirmed(*place, in_use)
        return behind

    def _streamed(self, found: _Found, frame: DataFrame) -> Iterator[Suspect]:
        projections = projections_of([found.family])
        parts = 1 + _number(found.counts, found.family.projections) // _PART_ROWS
        with self._at_work():
            for row in frame.repartition(parts).toLocalIterator():
                yield fixing.suspect_of(row.asDict(), projections)

    def revisit(self, policy: RepairPolicy, progress: Progress) -> Iterator[Finding]:
        with self._at_work():
            place = self._workplace(policy)
        progress.stage("look again", sum(map(self.row_wise, self._settings.families)))
        for found in self._found:
            number = self.row_wise(found.family)
            if not number:
                continue
            if found.many is not None:
                yield from self._findings(fixing.revisited(found.many, number, place), number, progress)
                continue
            for finding in fixing.revisited_here(found.few, place, self._engine.throttle):
                progress.advance(1)
                yield finding

    def _workplace(self, policy: RepairPolicy) -> fixing.Workplace:
        engine = self._engine
        contact = contact_of_executors(engine.session, engine.contact)
        workers = tasks_at_once(engine.session)
        ledger = None
        if policy.run:
            ledger = engine.ledger
        throttled_place = None
        if engine.throttle:
            throttled_place = place_of(engine.throttle, contact, engine.keyspace, workers)
        return fixing.Workplace(
            contact=contact,
            keyspace=engine.keyspace,
            ledger=ledger,
            keep=engine.keep,
            families=self._settings.families,
            policy=policy,
            workers=workers,
            throttled=throttled_place,
        )

    def _findings(self, findings: DataFrame, number: int, progress: Progress) -> Iterator[Finding]:
        try:
            with self._at_work():
                with watched(share_of_tasks(self._engine.session, number), progress):
                    findings.count()  # run all tasks in parallel; the iterator alone runs one after the other
                for row in findings.toLocalIterator():
                    yield fixing.finding_from(row[0])
        finally:
            release(self._engine.session, findings)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        with translated(self._engine.contact, self._engine.keyspace), ended_when_interrupted(self._engine.session):
            yield

    def close(self) -> None:
        release(self._engine.session, *self._frames)


def _number(counts: Mapping[str, Counter[Verdict]], projections: Iterable[Projection]) -> int:
    number = 0
    for projection in projections:
        if projection.name in counts:
            number += counts[projection.name].total()
    return number


@dataclass(slots=True)
class _Counted:
    """A family's scans, whose rows are counted while they pass, without a second look."""

    source: Source
    family: Family
    observed: dict[str, Observation] = field(default_factory=dict)

    def scan(self, name: str) -> DataFrame:
        table, columns = self.family.columns_read[name]
        self.observed[name] = Observation(name)
        return self.source.scan(table, columns).observe(self.observed[name], sf.count(sf.lit(1)).alias("rows"))

    @property
    def rows(self) -> dict[str, int]:
        """Rows per table; complete only after every scan has run."""
        return {name: int(seen.get["rows"]) for name, seen in self.observed.items()}


@dataclass(slots=True)
class _FamilyCheck:
    """What is suspect in a family; each frame that is looked at twice is kept until the check is closed."""

    family: Family
    tables: _Counted
    accept_torn: bool
    held: list[DataFrame] = field(default_factory=list)

    def found(self) -> "_Suspicious":
        """Two jobs find everything: first what lacks its content or its truth, then all that follows from the truth.

        Each job costs a plan, code of its own and a gap, so what is suspect is kept, and counted by one job.
        """
        rows = self.tables.scan(self.family.truth.spelling)
        truth = self._hold(truth_frame(self.family, rows, accept_torn=self.accept_torn), StorageLevel.MEMORY_AND_DISK)
        leaks, truth = self._content_suspects(truth)
        wrong = [self._wrong(projections, truth) for projections in places_of(self.family)]
        groups = [self._hold(suspect, StorageLevel.DISK_ONLY) for suspect in self._group_suspects(truth)]
        return _Suspicious(self.family, truth, wrong, (*leaks, *groups))

    def _content_suspects(self, truth: DataFrame) -> tuple[list[DataFrame], DataFrame]:
        content = self.family.content
        if content is None:
            return [], truth
        alone = native.contents(content, truth, self.tables.scan(content.name))
        alone = self._hold(alone, StorageLevel.MEMORY_AND_DISK)
        lost = native.lost(alone)
        if lost.count():
            truth = native.mark_lost(self.family, truth, lost)
        return [native.content_suspects(content, alone)], truth

    def _wrong(self, projections: Sequence[Mirror | Filter], truth: DataFrame) -> DataFrame:
        placed = []
        for projection in projections:
            rows = self.tables.scan(projection.name)
            placed.append(native.placed_frame(self.family, projection, rows))
        known = native.places(projections, self.family, truth, placed)
        return self._hold(native.place_suspects(self.family, projections, known), StorageLevel.DISK_ONLY)

    def _group_suspects(self, truth: DataFrame) -> Iterator[DataFrame]:
        for group in groups_of(self.family):
            yield group_suspects(self.family, group, truth, self.tables.scan(group.name))

    def _hold(self, frame: DataFrame, level: StorageLevel) -> DataFrame:
        kept = frame.persist(level)
        self.held.append(kept)
        return kept

    def close(self) -> None:
        release(self.tables.source.session, *self.held)


@dataclass(frozen=True, slots=True)
class _Suspicious:
    """What is suspect, as it was found: places of the truth, whose keys are not known yet, and the rest."""

    family: Family
    truth: DataFrame
    wrong: Sequence[DataFrame]
    rest: Sequence[DataFrame]

    def counts(self) -> dict[str, Counter[Verdict]]:
        counts: dict[str, Counter[Verdict]] = {}
        for name, verdict, number in (
            self._suspects(keyed=False).groupBy(native.PROJECTION, native.VERDICT).count().collect()
        ):
            counts.setdefault(name, Counter())[Verdict(verdict)] += number
        return counts

    def suspects(self, counts: Mapping[str, Counter[Verdict]]) -> DataFrame:
        """One row for each suspect; the truth is asked for the keys of its rows only where some place is wrong."""
        wrong = _number(counts, (*self.family.copies, *self.family.filters))
        return self._suspects(keyed=bool(wrong))

    def numbers_behind(self, source: Source) -> list[NumbersOfGroups]:
        """The groups whose generators look behind.

        The rows are held by now, so the generators are read after them. A staged scan began long
        ago: generators are read from their tables all the same.
        """
        mirror_only = None
        if self.family.numberings and self.family.copies:
            at_mirror, *_ = self.wrong
            mirror_only = native.mirror_only(self.family, at_mirror)
        now = replace(source, staging=None)
        found = []
        for numbering in self.family.numberings:
            in_use = numbers_behind(now, numbering, self.truth, mirror_only)
            found.append(NumbersOfGroups(numbering, in_use))
        return found

    def _suspects(self, *, keyed: bool) -> DataFrame:
        placed = []
        for projections, found_wrong in zip(places_of(self.family), self.wrong, strict=True):
            if keyed:
                wrong = native.with_truth_keys(self.family, projections, found_wrong, self.truth)
            else:
                wrong = native.without_truth_keys(found_wrong)
            placed.append(native.spread(projections, wrong))
        found = reduce(DataFrame.unionByName, [*placed, *self.rest])
        return found.coalesce(native.shuffle_parts(found))


def numbers_behind(
    source: Source,
    numbering: Numbering,
    truth: DataFrame,
    mirror_only: DataFrame | None,
) -> dict[Key, HighestNumbers]:
    """The groups with a number that a generator did not give, at most `SHOWN_MAX`.

    Args:
        source: reads the generators, now: call this after the rows were read.
        numbering: the generators, and the columns with their numbers.
        truth: the rows of the truth, with the columns of groups and numbers.
        mirror_only: the keys of the mirror's rows that have no truth, as the truth names them;
            None without a mirror.
    """
    group = numbering.group
    sides = [truth.select(*map(cell_of, (*group, *numbering.columns)))]
    if mirror_only is not None and set(group) <= set(mirror_only.columns):
        in_key = [name for name in numbering.columns if name in mirror_only.columns]
        sides.append(mirror_only.select(*map(cell_of, (*group, *in_key))))
    sides += [_last_numbers(source, numbering, generator) for generator in numbering.generators]
    rows = reduce(_united, sides)
    highest = [sf.max(cell_of(name)).alias(name) for name in rows.columns if name not in group]
    is_behind = [cell_of(column) > _last_number(generator) for generator, column in numbering.given]
    by_group = rows.dropna(subset=list(group)).groupBy(*group).agg(*highest)
    behind = by_group.where(reduce(or_, is_behind)).limit(SHOWN_MAX)
    keyed = numbering.generators[0].key
    texts = key_texts(zip(group, keyed, strict=True)).alias(_GROUP)
    found = {}
    for row in behind.select(texts, *map(cell_of, numbering.columns)).collect():
        numbers = [row[column] or 0 for column in numbering.columns]
        found[key_of(keyed, row[_GROUP])] = tuple(numbers)
    return found


_GROUP: Final = "the group"
"""The column with the texts of a group's key; no column of a table is named so."""


def confirmed(contact: Contact, keyspace: str, in_use: NumbersOfGroups) -> list[BehindGenerator]:
    """The generators of these groups that are still behind when this process reads them.

    Without groups it opens nothing.
    """
    if not in_use.groups:
        return []
    mail = open_here(contact).keyspace(keyspace)
    found = Generators(mail, in_use.numbering, SystemClock(), keyspace).behind(in_use.groups)
    return in_order(list(islice(found, SHOWN_MAX)))


def _last_numbers(source: Source, numbering: Numbering, generator: Table) -> DataFrame:
    """The group, and the last number that the generator gave."""
    number = generator.regular[0].name
    rows = source.scan(generator, (*generator.key_names, number))
    named = zip(generator.key_names, numbering.group, strict=True)
    group = [cell_of(own).alias(name) for own, name in named]
    return rows.select(*group, cell_of(number).alias(_last(generator)))


def _united(some: DataFrame, other: DataFrame) -> DataFrame:
    return some.unionByName(other, allowMissingColumns=True)


def _last(generator: Table) -> str:
    """A name that no column has: `modseq` is a column and a generator."""
    return f"last of {generator.name}"


def _last_number(generator: Table) -> Expression:
    return sf.coalesce(cell_of(_last(generator)), sf.lit(0).cast("long"))
