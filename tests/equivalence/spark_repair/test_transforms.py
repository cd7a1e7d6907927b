"""A transform gives the same cell in Spark as in Python, over generated cells."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from mailmend.model.transforms import (
    ConstantCell,
    FieldCell,
    HashBucket,
    JsonCell,
    LowerCase,
    SameCell,
    TimeBucket,
    TimeUnit,
    Transform,
)
from mailmend.spark_repair.suspects import cell_of
from mailmend.spark_repair.transforms import is_rendered, rendered
from tests.equivalence.spark_repair.test_canonical_forms import drawn
from tests.support.thorough import share

pytestmark = pytest.mark.spark

ADDRESS = StructType([StructField("city", StringType()), StructField("zip", IntegerType())])
KINDS: dict[str, DataType] = {
    "letters": StringType(),
    "number": LongType(),
    "instant": TimestampType(),
    "born": StringType(),
    "address": ADDRESS,
}
INSTANTS = (
    st.datetimes()
    .filter(lambda instant: 1 < instant.year < 9999)
    .map(lambda instant: instant.replace(microsecond=instant.microsecond // 1000 * 1000, tzinfo=UTC))
)
TIMES = st.integers(0, 2**60 - 1) | st.integers(0x01B21DD213814000 - 10**8, 0x01B21DD213814000 + 10**8)


def born_at(ticks: int) -> UUID:
    """A UUID of version 1."""
    low = ticks & 0xFFFFFFFF
    middle = ticks >> 32 & 0xFFFF
    return UUID(fields=(low, middle, ticks >> 48 | 0x1000, 0x80, 0, 1))


ROWS = st.fixed_dictionaries(
    {
        "letters": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        "number": st.none() | st.integers(-(2**63), 2**63 - 1),
        "instant": st.none() | INSTANTS,
        "born": st.none() | TIMES.map(born_at),
        "address": st.none()
        | st.fixed_dictionaries({"city": st.none() | st.text(st.just("a")), "zip": st.none() | st.integers(0, 9)}),
    }
)
RESULTS = ["timestamp", "date", "text", "bigint", "int"]


def time_buckets() -> list[Transform]:
    found: list[Transform] = []
    for unit in TimeUnit:
        for result in RESULTS:
            if unit is not TimeUnit.HOUR or result not in {"date", "int"}:
                found.append(TimeBucket(source="instant", type=result, unit=unit, of_uuid=False))
                found.append(TimeBucket(source="born", type=result, unit=unit, of_uuid=True))
    return found


TRANSFORMS: list[Transform] = [
    *time_buckets(),
    LowerCase(source="letters", type="text"),
    LowerCase(source="letters", type="text", default="none"),
    SameCell(source="number", type="bigint", default=-7),
    SameCell(source="born", type="timeuuid", default=UUID(int=7)),
    HashBucket(source="letters", type="int", buckets=16),
    HashBucket(source="number", type="tinyint", buckets=7),
    HashBucket(source="born", type="bigint", buckets=2**31),
    FieldCell(source="address", type="text", field="city", default="nowhere"),
    FieldCell(source="address", type="int", field="zip"),
    ConstantCell(source=None, type="text", value="eu.`west`"),
    ConstantCell(source=None, type="boolean", value=True),
    ConstantCell(source=None, type="smallint", value=3),
]


def for_spark(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    return value


def from_spark(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return value


def computed_by_spark(
    spark: SparkSession, rows: Sequence[dict[str, Any]], transforms: Sequence[Transform]
) -> list[list[Any]]:
    schema = StructType([StructField(name, kind) for name, kind in KINDS.items()])
    frame = spark.createDataFrame([tuple(for_spark(row[name]) for name in KINDS) for row in rows], schema)
    columns = []
    for number, transform in enumerate(transforms):
        source = None
        if transform.source is not None:
            source = cell_of(transform.source)
        columns.append(rendered(transform, source).alias(str(number)))
    return [[from_spark(cell) for cell in found] for found in frame.select(*columns).collect()]


def test_a_transform_gives_the_same_cell_in_both(spark: SparkSession) -> None:
    rows = drawn(ROWS, share(400))
    found = computed_by_spark(spark, rows, TRANSFORMS)
    for row, cells in zip(rows, found, strict=True):
        for transform, cell in zip(TRANSFORMS, cells, strict=True):
            assert cell == for_spark(transform.cell(row)), (transform, row)


def test_every_letter_has_one_small_form(spark: SparkSession) -> None:
    letters = [chr(number) for number in range(sys.maxunicode + 1) if not 0xD800 <= number < 0xE000]
    texts = ["-".join(letters[start : start + 1000]) for start in range(0, len(letters), 1000)]
    rule = LowerCase(source="letters", type="text")
    frame = spark.createDataFrame([(text,) for text in texts], "letters string")
    found = frame.select(rendered(rule, cell_of("letters"))).collect()
    assert [row[0] for row in found] == [rule.of(text) for text in texts]


def test_a_json_path_is_left_to_the_other_engine() -> None:
    assert not is_rendered(JsonCell(source="letters", type="text", path=("a",)))
