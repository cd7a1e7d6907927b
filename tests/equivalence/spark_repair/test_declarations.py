"""Random declarations have the same suspects in Spark as in the local engine."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.scanners.local import LocalEngine
from tests.equivalence.spark_repair.test_canonical_forms import drawn
from tests.support.random_declarations import Shop, cases
from tests.support.random_groups import GroupShop, grouped_cases
from tests.support.spark import engine_over, found_by
from tests.support.thorough import share

pytestmark = pytest.mark.spark


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
