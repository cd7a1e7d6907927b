"""Generators that are behind the numbers of their groups: the same ones in Spark and in the local engine."""

import random
from collections.abc import Sequence
from typing import Any, Final, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from mailmend.cql.memory import MemoryTables
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Put
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.table import Row, Table, columns
from mailmend.repair.declared import declared_families
from mailmend.repair.mending.generators import BehindGenerator, Generators, GeneratorWatch, in_order
from mailmend.spark_repair.message_inconsistencies import numbers_behind
from mailmend.spark_repair.source import Source
from tests.support.clock import VirtualClock

pytestmark = pytest.mark.spark

THINGS: Final = Table("things", columns("owner text", "id int", "team text, number bigint, last_version int"))
BY_TEAM: Final = Table("by_team", columns("team text", "number bigint, owner text, id int", "last_version int"))
TOTALS: Final = Table("totals", columns("team text", regular="total counter"))
LAST_NUMBER: Final = Table("last_number", columns("squad text", regular="last bigint"))
VERSION: Final = Table("version", columns("team text", regular="last int"))
DECLARED: Final = """
[truth.things.mirror.by_team]

[truth.things.count.totals]
counters = { total = {} }
generators = ["last_number", "version"]
numbered_by = { number = "last_number", last_version = "version" }
"""
TYPES: Final = {"text": "string", "int": "int", "bigint": "bigint"}
TEAMS: Final = ("", "ä", *map(str, range(40)))


class FramesOfRows:
    """Reads rows in place of the connector."""

    def __init__(self, spark: SparkSession, rows: dict[str, list[Row]]) -> None:
        self._spark = spark
        self._rows = rows

    def scan(self, table: Table, names: Sequence[str]) -> DataFrame:
        return self.frame(table, self._rows[table.name], names)

    def frame(self, table: Table, rows: Sequence[Row], names: Sequence[str]) -> DataFrame:
        schema = ", ".join(f"{name} {TYPES[table.column(name).type]}" for name in names)
        listed = [tuple(row.get(name) for name in names) for row in rows]
        return self._spark.createDataFrame(listed, schema)


def test_both_engines_find_the_same_generators_behind(spark: SparkSession) -> None:
    # Given
    live = Schema((), (THINGS, BY_TEAM, TOTALS, LAST_NUMBER, VERSION))
    (family,) = declared_families("shop", read_declaration(DECLARED), live)
    (numbering,) = family.numberings
    rows = drawn(random.Random(5))
    clock = VirtualClock()
    tables = MemoryTables(clock.micros)
    for table in (LAST_NUMBER, VERSION):
        for row in rows[table.name]:
            tables.write(Put(table, row))
    generators = Generators(tables, numbering, clock, "shop")

    # When
    frames = FramesOfRows(spark, rows)
    truth = frames.scan(THINGS, THINGS.names)
    alone = frames.frame(BY_TEAM, [row for row in rows["by_team"] if row["id"] < 0], BY_TEAM.key_names)
    in_use = numbers_behind(cast("Source", frames), numbering, truth, alone)
    distributed = in_order(list(generators.behind(in_use)))

    # Then
    local = by_watch(GeneratorWatch(generators, family.mirror), rows)
    assert distributed == local
    assert {behind.table for behind in local} == {"last_number", "version"}
    assert ("",) not in {behind.key for behind in local}, "no row can have an empty key"
    assert {behind.last == 0 for behind in local} == {True, False}
    assert 0 < len({behind.key for behind in local}) < len(TEAMS)


def by_watch(watch: GeneratorWatch, rows: dict[str, list[Row]]) -> list[BehindGenerator]:
    for row in rows["by_team"]:
        watch.add_copy(row)
    for row in rows["things"]:
        watch.add(row)
    return watch.end()


def drawn(chance: random.Random) -> dict[str, list[Row]]:
    """Rows of teams; negative ids have no truth, and some rows have no team or no version."""
    found: dict[str, list[Row]] = {"things": [], "by_team": [], "last_number": [], "version": []}
    for team in TEAMS:
        for place in range(chance.randint(0, 3)):
            cells: dict[str, Any] = {"team": team, "number": chance.randint(1, 9)}
            cells["last_version"] = chance.choice([None, *range(1, 9)])
            row = {"owner": "o", "id": place, **cells}
            found["things"].append(row)
            found["by_team"].append(row)
            found["things"].append({**row, "team": None, "id": 100 + place})
        if chance.random() < 0.3:
            found["by_team"].append({"owner": "o", "id": -1, "team": team, "number": 12, "last_version": 99})
        if chance.random() < 0.8:
            found["last_number"].append({"squad": team, "last": chance.randint(1, 12)})
        if chance.random() < 0.8:
            found["version"].append({"team": team, "last": chance.randint(1, 12)})
    return found
