"""Random declarations have the same suspects in Spark as in the local engine."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql import SparkSession

from mailmend.model.keyspace import Schema
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Table, columns
from mailmend.repair.declared import declared_families
from mailmend.repair.scanners.local import LocalEngine
from tests.equivalence.spark_repair.test_canonical_forms import drawn
from tests.support.random_declarations import Shop, cases
from tests.support.random_groups import GroupShop, grouped_cases
from tests.support.repairing import World
from tests.support.spark import engine_over, found_by
from tests.support.thorough import share

pytestmark = pytest.mark.spark


@pytest.mark.thorough
def test_a_random_declaration_has_the_same_suspects_in_both_engines(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Copies, rows of elements, filters, and groups of every kind, each with damage."""
    shops: list[Shop] = [Shop(case) for case in drawn(cases(), share(12))]
    shops += [GroupShop(case) for case in drawn(grouped_cases(), share(20))]
    seen: set[Verdict] = set()
    for shop in shops:
        world = shop.world

        local = found_by(LocalEngine(world.mail, world.ledger, world.clock), shop.families)
        distributed = found_by(engine_over(world.memory, spark, tmp_path, monkeypatch), shop.families)

        assert distributed == local
        for sums in local.counts.values():
            seen.update(sums)
    assert seen


AWKWARD = Table(
    "things",
    columns(
        "verdict uuid", "bits int", "truths text, found text, fingerprint_one text, truth_keys text, element set<text>"
    ),
)
"""Names of columns that a frame of Spark may want for itself."""

TABLES_OF_AWKWARD = (
    Table(
        "copies", columns("truths text", "truth_keys text, verdict uuid, bits int", "found text, fingerprint_one text")
    ),
    Table("sets", columns("truths text", regular="element set<text>")),
    Table("numbers", columns("truths text", regular="truth_keys int")),
    Table("bounds", columns("verdict uuid", regular="bits int")),
    Table("bodies", columns("verdict uuid", regular="bits int")),
    Table("filtered", columns("truths text", "truth_keys text, verdict uuid, bits int")),
)
DECLARED_AWKWARD = """
[truth.things.mirror.copies]
[truth.things.filter.filtered]
when = { found = "x" }
[truth.things.union.sets]
column = "element"
[truth.things.count.numbers]
counters = { truth_keys = { found = "x" } }
[truth.things.max.bounds]
columns = { bits = "bits" }
[truth.things.content.bodies]
"""


def test_columns_may_have_any_name(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given
    live = Schema((), (AWKWARD, *TABLES_OF_AWKWARD))
    families = declared_families("shop", read_declaration(DECLARED_AWKWARD), live)
    world = World(families=families)
    copies, _, _, _, bodies, _ = TABLES_OF_AWKWARD
    for number in range(4):
        row: dict[str, Any] = {name: f"{name}{number}" for name in AWKWARD.names}
        row |= {"verdict": UUID(int=number), "bits": number, "element": frozenset({"a"}), "found": "xy"[number % 2]}
        world.put(AWKWARD, row)
        if number:
            world.put(
                copies, {name: row[name] for name in copies.names} | {"fingerprint_one": f"fingerprint_one{number % 3}"}
            )
    for number in (0, 1, 3, 9):
        world.put(bodies, {"verdict": UUID(int=number), "bits": 0})
    world.put(copies, {**dict.fromkeys(copies.names, "stray"), "verdict": UUID(int=9), "bits": 9})

    # When
    local = found_by(LocalEngine(world.mail, world.ledger, world.clock), families)
    distributed = found_by(engine_over(world.memory, spark, tmp_path, monkeypatch), families)

    # Then
    assert distributed == local
    assert set(local.counts) == {table.name for table in TABLES_OF_AWKWARD}
    each = (Verdict.PROJECT, Verdict.AMEND, Verdict.WITHDRAW, Verdict.LOST_CONTENT)
    assert local.counts["copies"] == dict.fromkeys(each, 1)
