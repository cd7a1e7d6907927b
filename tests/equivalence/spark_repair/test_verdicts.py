"""The one table of verdicts says the same in Python and in Spark: every combination, possible or not."""

from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from mailmend.model.projections.content import Content
from mailmend.model.projections.family import Filter
from mailmend.model.projections.group import Group
from mailmend.model.projections.projection import Mirror
from mailmend.model.projections.verdicts import Verdict
from mailmend.spark_repair.suspects import verdict_column

pytestmark = pytest.mark.spark


MIRROR, FILTER, GROUP, CONTENT = Mirror.verdicts, Filter.verdicts, Group.verdicts, Content.verdicts


@pytest.mark.parametrize("verdicts", [MIRROR, FILTER, GROUP, CONTENT], ids=["mirror", "filter", "group", "content"])
def test_every_combination_of_symptoms_has_one_verdict_in_both(
    spark: SparkSession, verdicts: Mapping[Any, Verdict]
) -> None:
    fields = next(iter(verdicts))._fields
    combinations = spark.createDataFrame([tuple(seen) for seen in verdicts], list(fields))
    judged = combinations.withColumn("verdict", verdict_column(verdicts, {name: sf.col(name) for name in fields}))
    for row in judged.collect():
        assert row["verdict"] == verdicts[type(next(iter(verdicts)))(*row[:-1])].value


def test_the_order_of_the_symptoms_does_not_count(spark: SparkSession) -> None:
    fields = next(iter(FILTER))._fields
    seen = spark.createDataFrame([(True, False, True, False, True, True)], list(fields))
    backwards = {name: sf.col(name) for name in reversed(fields)}
    assert seen.select(verdict_column(FILTER, backwards)).collect()[0][0] == Verdict.WITHDRAW.value


def test_a_missing_symptom_is_an_error_not_a_guess() -> None:
    with pytest.raises(KeyError):
        verdict_column(CONTENT, {})
