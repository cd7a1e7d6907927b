"""A transform gives the same cell in Spark as in Python, over generated cells."""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from mailmend.model.projections.family import Family
from mailmend.model.projections.partial_mirror import ExplodedMirror
from mailmend.model.projections.projection import Mirror
from mailmend.model.table import Column, Row, Table, columns, computed_column
from mailmend.model.transforms import (
    ConstantCell,
    ElementCell,
    FieldCell,
    HashBucket,
    JoinedCell,
    JoinedColumns,
    JsonCell,
    LowerCase,
    PrefixCell,
    RestCell,
    SameCell,
    TimeBucket,
    TimeUnit,
    Transform,
)
from mailmend.spark_repair.source import read_cell
from mailmend.spark_repair.suspects import (
    cell_of,
    place_suspects,
    placed_frame,
    places,
    spread,
    truth_frame,
    unnested,
    with_truth_keys,
)
from mailmend.spark_repair.transforms import rendered
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
    "rights": ArrayType(StringType()),
    "steps": ArrayType(StringType()),
    "mapping": StringType(),
    "document": StringType(),
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


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3) | st.sampled_from(
    ["", "a", "Z", "é", "\ue000", "\uffee", "\U0001f600", "\U00010000", "+"]
)
JSON_KEYS = ("a", "b", "a b", "", "é", "\\u0061")
JSON_PARTS = (
    *("null", "true", "false", "True", "NaN", "-Infinity", "nul"),
    *("0", "-0", "12", "-7", "012", "+1", "1.0", "1e400", "1E2", "9" * 20, "8" * 5_000),
    *('""', '"a"', "'a'", '"é"', '"\\u00e9"', '"\U0001f600"', '"\\ud83d\\ude00"', '"\\ud83d"', '"\\udead"'),
    *('"\\/\\n"', '"a\nb"', '"a\\x"', '"{\\"a\\": 1}"', '"[[["', '"open', "[" * 501 + "]" * 501, "[" * 480 + "]" * 480),
)
"""Parts of documents as they are spelled; some of them are not JSON, or are JSON for some readers only."""


def spelled_object(pairs: Sequence[tuple[str, str]]) -> str:
    """An object, whose keys may be the same."""
    return "{" + ", ".join(f'"{key}" : {value}' for key, value in pairs) + "}"


SPELLED = st.recursive(
    st.sampled_from(JSON_PARTS),
    lambda inner: (
        st.lists(st.tuples(st.sampled_from(JSON_KEYS), inner), max_size=3).map(spelled_object)
        | st.lists(inner, max_size=2).map(lambda parts: f"[{','.join(parts)}]")
    ),
    max_leaves=5,
)
WRITTEN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=5,
)
DOCUMENTS = (
    SPELLED
    | st.builds(json.dumps, WRITTEN, ensure_ascii=st.booleans())
    | st.builds(str.__add__, SPELLED, st.sampled_from([" ", "\x00", "}", " x"]))
    | st.builds(str.__add__, st.sampled_from(["\ufeff", "\n\t ", "\u00a0", ","]), SPELLED)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
)
PREFIXES = ("a:", "aB:", "é", "\U0001f600%", "'")
ROWS = st.fixed_dictionaries(
    {
        "letters": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        "number": st.none() | st.integers(-(2**63), 2**63 - 1),
        "instant": st.none() | INSTANTS,
        "born": st.none() | TIMES.map(born_at),
        "address": st.none()
        | st.fixed_dictionaries({"city": st.none() | st.text(st.just("a")), "zip": st.none() | st.integers(0, 9)}),
        "rights": st.none() | st.frozensets(TEXTS, max_size=6),
        "steps": st.none() | st.lists(TEXTS, max_size=4).map(tuple),
        "mapping": st.none() | st.builds(str.__add__, st.sampled_from(["", *PREFIXES]), TEXTS),
        "document": st.none() | DOCUMENTS,
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
        found.append(TimeBucket(source="instant", type="text", unit=unit, of_uuid=False, digits=True))
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
    JsonCell(source="document", type="text", path=("a",)),
    JsonCell(source="document", type="text", path=("a", "b"), default="none"),
    JsonCell(source="document", type="text", path=("a b",)),
    JsonCell(source="letters", type="text", path=("é",), default=""),
    FieldCell(source="address", type="text", field="city", default="nowhere"),
    FieldCell(source="address", type="int", field="zip"),
    ConstantCell(source=None, type="text", value="eu.`west`"),
    ConstantCell(source=None, type="boolean", value=True),
    ConstantCell(source=None, type="smallint", value=3),
    JoinedCell(source="rights", type="text", of_set=True),
    JoinedCell(source="rights", type="text", of_set=True, separator="%$", default=""),
    JoinedCell(source="steps", type="text", of_set=False, separator="+"),
    JoinedCell(source="steps", type="text", of_set=False, default="none"),
    JoinedColumns(type="text", columns=("letters", "mapping"), separator="@"),
    JoinedColumns(type="text", columns=("mapping", "letters", "mapping"), separator="%$", default="none"),
    PrefixCell(source="mapping", type="text", prefixes=PREFIXES),
    PrefixCell(source="mapping", type="text", prefixes=PREFIXES, default="none"),
    RestCell(source="mapping", type="text", prefixes=PREFIXES),
    RestCell(source="mapping", type="text", prefixes=PREFIXES, default="none"),
]


def for_spark(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, frozenset):
        return list(value)
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
        sources = map(cell_of, transform.sources)
        columns.append(rendered(transform, *sources).alias(str(number)))
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


DAY = computed_column(TimeBucket(source="born", type="text", unit=TimeUnit.DAY, of_uuid=True))
REGION = computed_column(ConstantCell(source=None, type="text", value="eu.west"))
SMALL = computed_column(LowerCase(source="letters", type="text", default="no.ne"))
STORED = columns("born timeuuid", regular="letters text")
EVENTS = Table("events", (*STORED, DAY, REGION, SMALL))
COPIES = Table("copies", columns("day text, region text", "born timeuuid", "small text"))
COMPUTED = Family(
    Mirror(
        EVENTS,
        COPIES,
        (("day", DAY.name), ("region", REGION.name), ("born", "born")),
        COPIES.regular,
        (("small", SMALL.name),),
    )
)


def test_places_have_computed_keys(spark: SparkSession) -> None:
    # Given
    truths: list[dict[str, Any]] = [
        {"born": born_at(0x1EF1F4BCBEA0000 + number), "letters": None} for number in range(3)
    ]
    truths[1]["letters"] = "BIG"
    copies = [COMPUTED.mirror.row_of(EVENTS.completed(row)) for row in truths]
    copies[1]["small"] = "BIG"
    copies[2]["region"] = "us"
    rules = dict(EVENTS.computed)
    raw = spark.createDataFrame([(str(row["born"]), row["letters"]) for row in truths], "born string, letters string")
    stored = spark.createDataFrame(
        [tuple(map(for_spark, row.values())) for row in copies],
        "day string, region string, born string, small string",
    )

    # When
    rows = raw.select(*(read_cell(rules.get(name), name).alias(name) for name in EVENTS.names))
    truth = truth_frame(COMPUTED, rows, accept_torn=False)
    placed = placed_frame(COMPUTED, COMPUTED.mirror, stored)
    known = places([COMPUTED.mirror], COMPUTED, truth, [placed])
    wrong = place_suspects(COMPUTED, [COMPUTED.mirror], known)
    found = spread([COMPUTED.mirror], with_truth_keys(COMPUTED, [COMPUTED.mirror], wrong, truth)).collect()

    # Then
    day = copies[0]["day"]
    ids = [str(row["born"]) for row in truths]
    assert {(row["verdict"], *row["key"]): row["truth_keys"] for row in found} == {
        ("AMEND", day, "eu.west", ids[1]): [[ids[1]]],
        ("PROJECT", day, "eu.west", ids[2]): [[ids[2]]],
        ("WITHDRAW", day, "us", ids[2]): [],
    }


ELEMENT = computed_column(
    ElementCell(source="tags", type="text", rule=LowerCase(source="tags", type="text", default="none"))
)
ITSELF = computed_column(ElementCell(source="tags", type="text"))
KIND = computed_column(ElementCell(source="tags", type="text", rule=JsonCell(source="tags", type="text", path=("a",))))
NAMED = computed_column(
    ElementCell(source="tags", type="text", rule=JsonCell(source="tags", type="text", path=("b",), default="none"))
)
TAGGED = Table("tagged", (*columns("id text", regular="tags set<text>"), ELEMENT, ITSELF, KIND, NAMED))
BY_TAG = Table("by_tag", columns("tag text", "id text", "tagged text"))
LOWERED = Table("lowered", columns("tag text", "id text"))


def exploded(table: Table, key: Column, other: Column = ITSELF) -> ExplodedMirror:
    others = tuple((column.name, other.name) for column in table.regular)
    own = (("tag", key.name), ("id", "id"))
    return ExplodedMirror(TAGGED, table, own, table.regular, others, collection="tags")


@pytest.mark.parametrize(
    "mirror",
    [
        exploded(BY_TAG, ELEMENT),
        exploded(LOWERED, ELEMENT),
        exploded(LOWERED, ITSELF),
        exploded(LOWERED, KIND),
        exploded(BY_TAG, NAMED, KIND),
        exploded(BY_TAG, NAMED, ELEMENT),
    ],
    ids=["two cells", "lower case", "itself", "JSON", "two paths of JSON", "JSON and lower case"],
)
def test_a_row_has_the_same_elements_in_both(spark: SparkSession, mirror: ExplodedMirror) -> None:
    collections = st.none() | st.frozensets(st.text("aAbBΣ", max_size=2) | DOCUMENTS, max_size=4)
    rows: list[Row] = [
        {**dict.fromkeys(TAGGED.names), "id": str(number), "tags": tags}
        for number, tags in enumerate(drawn(collections, share(200)))
    ]
    stored = [(row["id"], None if row["tags"] is None else sorted(row["tags"])) for row in rows]
    raw = spark.createDataFrame(stored, "id string, tags array<string>")
    rules = dict(TAGGED.computed)
    read = raw.select(*(read_cell(rules.get(name), name).alias(name) for name in TAGGED.names))
    names = ["id", *dict(mirror.element_cells)]

    found = unnested(mirror, read).select(*map(cell_of, names)).collect()

    wanted = [part for row in rows for part in mirror.unnested(row)]
    assert sorted(map(tuple, found), key=str) == sorted(
        (tuple(part[name] for name in names) for part in wanted), key=str
    )
