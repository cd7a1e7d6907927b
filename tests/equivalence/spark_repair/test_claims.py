"""Truth rows that claim one row together, or cannot say what it is: one verdict in Spark and in the local engine."""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from mailmend.cql.memory import MemoryTables
from mailmend.model.operations import Put
from mailmend.model.projections.conditions import Condition
from mailmend.model.projections.family import Family, Filter
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.projection import Mirror
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Column, OtherColumn, Row, Table, columns
from mailmend.repair.ledger.runs import Ledger
from mailmend.repair.mending.engine import RepairSettings
from mailmend.repair.scanners.local import LocalEngine
from mailmend.spark_repair.fixing import suspect_of
from mailmend.spark_repair.suspects import (
    place_suspects,
    placed_frame,
    places,
    spread,
    truth_frame,
    with_truth_keys,
)
from tests.support.clock import VirtualClock
from tests.support.progress import SilentProgress

pytestmark = pytest.mark.spark

LETTERS: Final = Table("letters", columns("letter int", "box int, uid int", "size int, kept boolean, thread int"))
SIZES: Final = Table("sizes", columns("box int", "letter int", "size int"))
BY_SIZE: Final = Table("by_size", columns("box int", "size int, letter int"))
KEPT: Final = Table("kept", columns("box int", "letter int"))
THREADS: Final = Table("threads", columns("box int", "letter int", "thread int"))
KEY: Final = (("box", "box"), ("letter", "letter"))
BY_SIZE_KEY: Final = (("box", "box"), ("size", "size"), ("letter", "letter"))

SHARED: Final = Mirror(LETTERS, SIZES, KEY, compared=SIZES.regular)
NEEDING: Final = Mirror(LETTERS, SIZES, KEY, compared=SIZES.regular, needs=("size",))
KEYED: Final = Mirror(LETTERS, BY_SIZE, BY_SIZE_KEY, compared=(), needs=("size",))
OF_THREADS: Final = Mirror(LETTERS, THREADS, KEY, compared=(Column("thread", "int", null_is=OtherColumn("letter")),))
FILTERED: Final = Filter(LETTERS, KEPT, KEY, Condition("kept", value=True))

PLACES: Final = [(box, letter) for box in range(20) for letter in range(20)]
TYPES: Final = {"int": "int", "boolean": "boolean"}


class DrawnLetters(NamedTuple):
    """The rows of each table."""

    rows: Mapping[str, Sequence[Row]]

    @classmethod
    def drawn(cls, chance: random.Random) -> "DrawnLetters":
        """Up to three truth rows at each place, and what may follow from them."""
        letters: list[Row] = []
        sizes: list[Row] = []
        by_size: list[Row] = []
        kept: list[Row] = []
        threads: list[Row] = []
        for box, letter in PLACES:
            place = {"box": box, "letter": letter}
            for uid in range(chance.randint(0, 3)):
                size = chance.choice([None, 1, 1, 2])
                thread = chance.choice([None, letter, 99])
                kept_too = chance.choice([True, False])
                letters.append({**place, "uid": uid, "size": size, "kept": kept_too, "thread": thread})
            if chance.random() < 0.7:
                sizes.append({**place, "size": chance.choice([None, 1, 2])})
            by_size += [{**place, "size": size} for size in (1, 2) if chance.random() < 0.5]
            if chance.random() < 0.5:
                kept.append(place)
            if chance.random() < 0.7:
                threads.append({**place, "thread": chance.choice([None, letter, 99])})
        return cls({"letters": letters, "sizes": sizes, "by_size": by_size, "kept": kept, "threads": threads})

    def frame(self, spark: SparkSession, table: Table) -> DataFrame:
        schema = ", ".join(f"{column.name} {TYPES[column.type]}" for column in table.columns)
        listed = [tuple(row.get(name) for name in table.names) for row in self.rows[table.name]]
        return spark.createDataFrame(listed, schema)

    def in_memory(self, family: Family, clock: VirtualClock) -> MemoryTables:
        tables = MemoryTables(clock.micros)
        for table in family.tables:
            for row in self.rows[table.name]:
                tables.write(Put(table, row))
        return tables


def by_spark(spark: SparkSession, family: Family, stored: DrawnLetters) -> Iterator[Suspect]:
    placed: tuple[Mirror | Filter, ...] = (*family.copies, *family.filters)
    truth = truth_frame(family, stored.frame(spark, family.truth), accept_torn=False)
    rows = [placed_frame(family, projection, stored.frame(spark, projection.table)) for projection in placed]
    wrong = place_suspects(family, placed, places(placed, family, truth, rows))
    known = {projection.name: projection for projection in family.projections}
    for row in spread(placed, with_truth_keys(family, placed, wrong, truth)).collect():
        yield suspect_of(row.asDict(), known)


def by_local_engine(family: Family, stored: DrawnLetters) -> Iterator[Suspect]:
    clock = VirtualClock()
    mail = stored.in_memory(family, clock)
    engine = LocalEngine(mail, Ledger(MemoryTables(clock.micros), clock), clock, places_max=100)
    detection = engine.detect(RepairSettings("letters", (family,)), SilentProgress())
    yield from detection.suspects()
    detection.close()


def place_of(suspect: Suspect) -> Any:
    return suspect.projection, suspect.key


@pytest.mark.parametrize(
    ("family", "found"),
    [
        (Family(SHARED), {Verdict.PROJECT, Verdict.AMEND, Verdict.WITHDRAW, Verdict.CLASH}),
        (Family(NEEDING), {Verdict.PROJECT, Verdict.AMEND, Verdict.WITHDRAW, Verdict.CLASH}),
        (Family(NEEDING, (FILTERED,)), {Verdict.PROJECT, Verdict.AMEND, Verdict.WITHDRAW, Verdict.CLASH}),
        (Family(KEYED), {Verdict.PROJECT, Verdict.WITHDRAW}),
        (Family(OF_THREADS), {Verdict.PROJECT, Verdict.AMEND, Verdict.WITHDRAW, Verdict.CLASH}),
    ],
    ids=["shared", "needing", "next to a filter", "in the key", "null is a key"],
)
def test_both_engines_judge_the_claims_of_each_place_alike(
    spark: SparkSession, family: Family, found: set[Verdict]
) -> None:
    stored = DrawnLetters.drawn(random.Random(7))

    distributed = sorted(by_spark(spark, family, stored), key=place_of)
    local = sorted(by_local_engine(family, stored), key=place_of)

    assert distributed == local
    assert {suspect.verdict for suspect in local if suspect.projection != "kept"} == found
