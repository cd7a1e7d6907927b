"""One Spark for all tests: two cores, a small heap, started when the first test asks."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from mailmend.admin.local.jars import connector_jars
from mailmend.cql.driver.contact import Contact
from mailmend.model.errors import JavaMissing, LocalServerError
from mailmend.model.operations import Scan
from mailmend.model.ports import Tables
from mailmend.model.projections.family import Family
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Table
from mailmend.repair.mending.engine import Detector, RepairSettings
from mailmend.repair.staging.area import SegmentWriter, columns_of
from mailmend.spark_repair.jvm import forget_ended_session
from mailmend.spark_repair.message_inconsistencies import SparkEngine
from mailmend.spark_repair.session import SparkSettings, coordinates_here, open_session
from mailmend.spark_repair.source import Source, read_cell
from tests.support.progress import SilentProgress
from tests.support.servers import unavailable


def started_settings(master: str = "local[2]", **settings: Any) -> SparkSettings:
    """Settings with the connector's jars, which are fetched where they are not here."""
    try:
        return SparkSettings(master, jars=connector_jars(coordinates_here()), **settings)
    except (JavaMissing, LocalServerError) as error:
        unavailable(error)


LOCAL = partial(
    started_settings,
    driver_memory="1g",
    brief=True,
    options={"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "1"},
)
"""As a command has it whose keyspace is small: each test reads some thousand rows at most.

The connector reads each table in 1 + 2 * parallelism tasks, and shuffles have as many parts.
"""


@pytest.fixture(scope="session")
def shared_spark() -> Iterator[Callable[[], SparkSession]]:
    """Gives the session that tests share, or another one where its Java process has ended."""
    yield _living_session
    forget_ended_session()
    if session := SparkSession.getActiveSession():
        session.stop()


@pytest.fixture
def spark(shared_spark: Callable[[], SparkSession]) -> SparkSession:
    """A session that lives: a test whose session lost its Java process fails alone."""
    return shared_spark()


def _living_session() -> SparkSession:
    forget_ended_session()
    return SparkSession.getActiveSession() or open_session(LOCAL())


def jobs_of(spark: SparkSession) -> int:
    """How many jobs the session has begun."""
    context: Any = spark.sparkContext._jsc
    return int(context.sc().statusStore().jobsList(None).size())


def engine_over(
    tables: Tables,
    spark: SparkSession,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> SparkEngine:
    """The engine over tables in memory, each of which is read in the types of a staged scan."""
    names = count()

    def scan(_: Source, table: Table, columns: Iterable[str]) -> DataFrame:
        wanted = tuple(columns)
        stored = Scan(table, table.stored(wanted))
        segment = SegmentWriter(columns_of(stored), {})
        for row in tables.scan(stored):
            segment.add(row)
        file = folder / f"{next(names)}.parquet"
        file.write_bytes(segment.whole())
        rules = dict(table.computed)
        cells = [read_cell(rules.get(name), name).alias(name) for name in wanted]
        reader = spark.read.option("datetimeRebaseMode", "CORRECTED")
        return reader.parquet(str(file)).select(*cells)

    monkeypatch.setattr(Source, "scan", scan)
    return SparkEngine(spark, Contact(("unused",)), "shop")


class FoundByScan(NamedTuple):
    """What a scan found: its suspects by projection and key, and the number of each verdict."""

    suspects: Mapping[tuple[str, Key], Suspect]
    counts: Mapping[str, Mapping[Verdict, int]]


def found_by(engine: Detector, families: tuple[Family, ...]) -> FoundByScan:
    detection = engine.detect(RepairSettings("shop", families), SilentProgress())
    suspects = {(suspect.projection, suspect.key): suspect for suspect in detection.suspects()}
    counts = {name: dict(sums) for name, sums in detection.counts.items()}
    detection.close()
    return FoundByScan(suspects, counts)
