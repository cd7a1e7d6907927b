"""The second look and the fixes, on the executors: the same write path as everywhere, many times side by side.

Each Python worker keeps one driver session from task to task. Suspects arrive ordered by partition and leave as one
finding each. A task may be run twice (a lost executor): its fixes carry the same T and its before-images are recorded
once, so the second time finds them FIXED.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from mailmend.cql.driver.contact import Contact
from mailmend.cql.memory import MemoryTables
from mailmend.cql.rows import decode
from mailmend.model.ports import Tables
from mailmend.model.projections.family import Family, projections_of
from mailmend.model.projections.findings import Finding, RepairPolicy, Suspect
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.clock import SystemClock
from mailmend.repair.ledger.before_images import image_from, image_text
from mailmend.repair.ledger.runs import Ledger
from mailmend.repair.log_fields import with_command_log
from mailmend.repair.mending.engine import names_of_counters
from mailmend.repair.mending.fixer import Fixer
from mailmend.repair.mending.limits import Breaker, Pace, share
from mailmend.repair.mending.throttle import Throttle
from mailmend.spark_repair.comparable import key_of
from mailmend.spark_repair.pace import ThrottledPlace, open_here
from mailmend.spark_repair.suspects import KEY, PROJECTION, TRUTH_KEYS, VERDICT, WANTED

SUSPECTS_PER_TASK = 2_000
TASKS_MAX = 2_000
_FINDINGS_PER_BATCH = 200
_FINDING = "finding"
_SCHEMA = pa.schema([(_FINDING, pa.string())])

_breakers: dict[tuple[Contact, str, RepairPolicy], Breaker] = {}
"""One for each policy of this worker process: a task need not learn anew what the one before it learnt."""


@dataclass(frozen=True, slots=True)
class Workplace:
    """What an executor needs for the second look and the fixes; plain data.

    Attributes:
        ledger: the keyspace of before-images; None where nothing may be written.
        keep: how long the ledger keeps what is recorded.
        workers: the number of workers that share the policy's pace.
        throttled: the settings of a pace that may change while they work; None: it does not.
    """

    contact: Contact
    keyspace: str
    ledger: str | None
    keep: timedelta
    families: tuple[Family, ...]
    policy: RepairPolicy
    workers: int
    throttled: ThrottledPlace | None = None

    @property
    def projections(self) -> dict[str, Projection]:
        return projections_of(self.families)


def revisited(suspects: DataFrame, number: int, place: Workplace) -> DataFrame:
    """One finding, as text, for each row-wise suspect; kept on the executors' disks, so that no fix runs twice."""
    counters = names_of_counters(place.families)
    row_wise = suspects
    if counters:
        row_wise = suspects.where(~sf.col(PROJECTION).isin(counters))
    tasks = tasks_for(number, place.workers)
    side_by_side = row_wise.repartitionByRange(tasks, sf.get(KEY, sf.lit(0)), sf.get(KEY, sf.lit(1)))

    def visit(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return findings_of(place, batches)

    visiting: Any = with_command_log(visit)  # Spark 3.5 and Spark 4 declare different types for it
    return side_by_side.mapInArrow(visiting, f"{_FINDING} string").persist(StorageLevel.DISK_ONLY)


def revisited_here(suspects: Iterable[Suspect], place: Workplace, throttle: Throttle | None) -> Iterator[Finding]:
    """One finding for each row-wise suspect, looked at and mended by this process alone."""
    return _fixer(replace(place, workers=1), throttle).revisit(suspects)


def tasks_for(suspects: int, workers: int) -> int:
    """The number of tasks: enough for every worker, small enough to show progress and to retry cheaply."""
    return max(workers, min(TASKS_MAX, -(-suspects // SUSPECTS_PER_TASK)))


def findings_of(place: Workplace, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    suspects = _suspects_in(batches, place.projections)
    lines = map(finding_text, _fixer(place).revisit(suspects))
    while some := list(islice(lines, _FINDINGS_PER_BATCH)):
        yield pa.RecordBatch.from_arrays([pa.array(some, pa.string())], schema=_SCHEMA)


def _suspects_in(batches: Iterable[pa.RecordBatch], projections: Mapping[str, Projection]) -> Iterator[Suspect]:
    for batch in batches:
        for row in batch.to_pylist():
            yield suspect_of(row, projections)


def _fixer(place: Workplace, throttle: Throttle | None = None) -> Fixer:
    clock = SystemClock()
    cluster = open_here(place.contact)
    pace = Pace(share(place.policy.rows_per_second, place.workers), clock, throttle)
    if throttle is None and place.throttled:
        pace = place.throttled.pace(clock)
    tables: Tables = MemoryTables(clock.micros)
    if place.ledger:
        tables = pace.over(cluster.keyspace(place.ledger))
    journal = Ledger(tables, clock, place.keep)
    breaker = _breakers.setdefault((place.contact, place.keyspace, place.policy), Breaker())
    mail = pace.over(cluster.keyspace(place.keyspace))
    return Fixer(mail, journal, clock, place.families, place.policy, breaker)


def suspect_of(row: Mapping[str, Any], projections: Mapping[str, Projection]) -> Suspect:
    projection = projections[row[PROJECTION]]
    key = key_of(projection.table.key, row[KEY])
    truth_keys = tuple(key_of(projection.truth.partition, texts) for texts in row[TRUTH_KEYS])
    return Suspect(projection.name, key, Verdict(row[VERDICT]), truth_keys, _wanted(projection, row[WANTED]))


def _wanted(projection: Projection, text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    cells: dict[str, Any] = json.loads(text)
    return {name: decode(projection.table.column(name).type, value) for name, value in cells.items()}


def finding_text(finding: Finding) -> str:
    result = None
    if finding.result:
        result = finding.result.value
    ended = [finding.error, finding.due, finding.unreached, finding.untried]
    return json.dumps([image_text(finding), result, *ended])


def finding_from(text: str) -> Finding:
    image, name, error, due, unreached, untried = json.loads(text)
    result = None
    if name:
        result = Verdict(name)
    seen = image_from(image, result=result, error=error)
    return replace(seen, due=due, unreached=unreached, untried=untried)
