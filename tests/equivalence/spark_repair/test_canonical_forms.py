"""Two rows agree in Spark exactly when they agree in Python: canonical forms and fingerprints, over random rows."""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from mailmend.model.catalog.mail import FAMILIES, IMAP_UID, MESSAGE_ID, MESSAGES
from mailmend.model.projections.conditions import (
    Condition,
    Either,
    Every,
    IsNull,
    Not,
    OneOf,
    RowCondition,
    StartsWith,
)
from mailmend.model.projections.family import Family
from mailmend.model.projections.projection import Mirror
from mailmend.model.table import Column, Kind, OtherColumn, Row, Table, canonical_value, rows_agree
from mailmend.model.table import columns as listed
from mailmend.model.values import FarDate
from mailmend.spark_repair.comparable import COMPARED, IN_KEYS, key_of, key_texts, refuse_incomparable_here
from mailmend.spark_repair.suspects import (
    BITS,
    ONE,
    TWO,
    RowBits,
    canonical,
    demanding,
    fingerprints,
    holding,
    placed_frame,
    truth_frame,
)
from tests.support.cells import values_of_type
from tests.support.repairing import truth_row
from tests.support.thorough import share

pytestmark = pytest.mark.spark

T = TypeVar("T")

_SPARK: dict[str, DataType] = {
    "timeuuid": StringType(),
    "uuid": StringType(),
    "bigint": LongType(),
    "int": IntegerType(),
    "boolean": BooleanType(),
    "text": StringType(),
    "timestamp": TimestampType(),
    "set<text>": ArrayType(StringType()),
}
_FEW = st.sampled_from
_CELLS: dict[str, st.SearchStrategy[Any]] = {
    "timeuuid": st.none() | st.uuids(),
    "bigint": st.none() | _FEW([0, 1, 2, -1, 2**62]),
    "int": st.none() | _FEW([0, 1, 2**31 - 1]),
    "boolean": st.none() | st.booleans(),
    "text": st.none() | _FEW(["", "a", "ab", "ä", "1_2_3"]),
    "timestamp": st.none() | _FEW([datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC)]),
    "set<text>": st.none() | st.frozensets(_FEW(["a", "b", "ab", ""])),
}


def rows_of(table: Table) -> st.SearchStrategy[dict[str, Any]]:
    """Rows of a table: keys always there, everything else maybe, from values that often meet."""
    known = st.uuids()
    return st.fixed_dictionaries(
        {
            column.name: (known if column.type == "timeuuid" else st.integers(1, 3))
            if column.in_key or column.name == "messageid"
            else _CELLS[column.type]
            for column in table.columns
        }
    )


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Row, Row]:
    """A truth row, and a projection row that differs from what it demands in nothing, in form only, or in a cell."""
    truth = draw(rows_of(IMAP_UID))
    projection = MESSAGES.mirror.row_of(truth)
    for column in draw(
        st.lists(_FEW([one for one in MESSAGES.mirror.compared if one.name != "messageid"]), max_size=2)
    ):
        projection[column.name] = draw(_CELLS[column.type])
    return truth, projection


def frame(spark: SparkSession, table: Table, rows: Sequence[Row]) -> Any:
    """Rows as the connector brings them: UUIDs as text, sets as arrays (in whatever order)."""
    kinds = _SPARK | _OF_KIND
    schema = StructType([StructField(column.name, kinds[column.type]) for column in table.columns])
    return spark.createDataFrame(
        [tuple(_reported(row.get(column.name)) for column in table.columns) for row in rows], schema
    )


def _reported(value: Any) -> Any:
    match value:
        case None | bool() | int() | str() | date() | bytes() | float():
            return value
        case frozenset():
            return sorted(value, reverse=len(value) % 2 == 0)
        case _:
            return str(value)


def drawn(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """That many examples at once: Spark judges each row by itself, and a job for each costs seconds."""
    examples: list[T] = []

    @settings(max_examples=count, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def draw(example: T) -> None:
        examples.append(example)

    draw()
    return examples


class Seen(NamedTuple):
    """A truth row, a projection row beside it, and the compact row that Spark makes of each."""

    truth: Row
    projection: Row
    ours: Any
    theirs: Any


@pytest.fixture(scope="module")
def seen(shared_spark: Callable[[], SparkSession]) -> list[Seen]:
    """Drawn rows, which Spark reads once for several claims; one is whole, as chance may draw none that is."""
    spark, some = shared_spark(), drawn(pairs(), share(1_000))
    whole = truth_row()
    some.append((whole, MESSAGES.mirror.row_of(whole)))
    truths = truth_frame(MESSAGES, frame(spark, IMAP_UID, [truth for truth, _ in some]), accept_torn=False)
    mirrored = placed_frame(MESSAGES, MESSAGES.mirror, frame(spark, MESSAGE_ID, [other for _, other in some]))
    compact = zip(truths.collect(), mirrored.collect(), strict=True)
    return [Seen(*pair, *both) for pair, both in zip(some, compact, strict=True)]


def test_rows_agree_in_both_or_in_neither(seen: list[Seen]) -> None:
    """The fingerprints of a truth and of its projection are equal exactly when `rows_agree` says so."""
    answers = set()
    for truth, projection, ours, theirs in seen:
        same = (ours[ONE], ours[TWO]) == (theirs[ONE], theirs[TWO])
        assert same == MESSAGES.mirror.agree(truth, projection), (truth, projection)
        answers.add(same)
    assert answers == {True, False}


def test_both_hashes_are_different_functions(seen: list[Seen]) -> None:
    assert all(one.ours[ONE] != one.ours[TWO] for one in seen)


def test_bits_say_what_the_declarations_say(seen: list[Seen]) -> None:
    """Torn or whole, and each condition: as `Mirror.whole` and `Condition.holds` have it."""
    layout = RowBits(MESSAGES)
    for row, _, compact, _ in seen:
        assert is_torn(compact) == (not MESSAGES.mirror.whole(row))
        for condition in MESSAGES.conditions:
            assert bool(compact[BITS] >> layout.holds(condition) & 1) == condition.holds(row)
        assert not compact[BITS] >> layout.lost & 1
    assert {is_torn(one.ours) for one in seen} == {True, False}


def is_torn(compact: Any) -> bool:
    return bool(compact[BITS] >> RowBits(MESSAGES).torn & 1)


@pytest.mark.thorough
def test_no_row_is_torn_where_torn_rows_are_accepted(spark: SparkSession, seen: list[Seen]) -> None:
    rows = frame(spark, IMAP_UID, [one.truth for one in seen])
    accepted = truth_frame(MESSAGES, rows, accept_torn=True).collect()
    torn = 1 << RowBits(MESSAGES).torn
    assert [row[BITS] for row in accepted] == [one.ours[BITS] & ~torn for one in seen]


def test_each_cell_has_one_canonical_form(spark: SparkSession) -> None:
    """Column by column: null and false, null and empty, any order, a null thread, a null modseq."""
    some = drawn(rows_of(IMAP_UID), share(400))
    names = {column.name: column.name for column in IMAP_UID.columns}
    forms = [canonical(column, names).alias(column.name) for column in MESSAGES.mirror.compared]
    for row, reported in zip(some, frame(spark, IMAP_UID, some).select(*forms).collect(), strict=True):
        for column in MESSAGES.mirror.compared:
            assert _read(reported[column.name]) == _read(canonical_value(column, row)), column.name


READ = Table(
    "read",
    (
        Column("id", "int", Kind.PARTITION),
        Column("state", "text", null_is="a"),
        Column("open", "boolean", null_is=True),
        Column("size", "int", null_is=1),
        Column("said", "text", null_is=OtherColumn("asked")),
        Column("asked", "text"),
        Column("since", "timestamp", null_is=OtherColumn("at")),
        Column("at", "timestamp"),
        Column("owner", "timeuuid", null_is=UUID(int=1)),
    ),
)


def test_a_null_is_read_in_both_as_its_column_says(spark: SparkSession) -> None:
    some = drawn(rows_of(READ), share(400))
    names = {name: name for name in READ.names}
    forms = [canonical(column, names).alias(column.name) for column in READ.regular]
    marks = fingerprints(READ.regular, names)
    frames = frame(spark, READ, some)
    for row, reported in zip(some, frames.select(*forms).collect(), strict=True):
        for column in READ.regular:
            assert _read(reported[column.name]) == _read(canonical_value(column, row)), column.name
    found = frames.select(*(mark.alias(name) for mark, name in zip(marks, (ONE, TWO), strict=True))).collect()
    for first, second, one, other in zip(some, some[1:], found, found[1:], strict=False):
        assert rows_agree(READ.regular, first, second) is (tuple(one) == tuple(other))


def _read(value: Any) -> Any:
    """Both sides' values, comparable: arrays and sets as sorted lists, instants in UTC, ids as text."""
    match value:
        case list() | frozenset():
            return sorted(value)
        case datetime():
            return value.astimezone(UTC)
        case None | bool() | int() | str():
            return value
        case _:
            return str(value)


AMBIGUOUS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"internaldate": datetime(2026, 1, 1, tzinfo=UTC)}, {"save_date": datetime(2026, 1, 1, tzinfo=UTC)}),
    ({"userflags": frozenset({"a"})}, {"headercontent": "a"}),
    ({"userflags": frozenset({"a", "b"})}, {"userflags": frozenset({"ab"})}),
    ({"userflags": frozenset({""})}, {"userflags": None}),
    ({"headercontent": ""}, {"headercontent": None}),
    ({"bodystartoctet": 0}, {"bodystartoctet": None}),
    ({"flagseen": True}, {"flagrecent": True}),
    ({"bodystartoctet": 5}, {"fullcontentoctets": 5}),
]


def test_cells_that_only_look_alike_have_other_fingerprints(spark: SparkSession) -> None:
    empty: Row = dict.fromkeys(IMAP_UID.names) | {"messageid": "m", "mailboxid": "b", "uid": 1}
    rows = [{**empty, **cells} for pair in AMBIGUOUS for cells in pair]
    reported = truth_frame(MESSAGES, frame(spark, IMAP_UID, rows), accept_torn=False).collect()
    for pair, first, second in zip(AMBIGUOUS, reported[::2], reported[1::2], strict=True):
        one, other = ({**empty, **cells} for cells in pair)
        assert not rows_agree(MESSAGES.mirror.compared, one, other), pair
        assert (first[ONE], first[TWO]) != (second[ONE], second[TWO]), pair
        assert first[ONE] != second[ONE], pair


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.truth.spelling)
def test_what_is_read_is_what_is_needed(family: Any) -> None:
    read = family.columns_read
    assert list(read) == [table.spelling for table in family.tables]
    for table, names in read.values():
        assert {column.name for column in table.key} <= set(names) <= set(table.names)


def test_a_dotted_column_is_one_column(spark: SparkSession) -> None:
    paths = FAMILIES[1]
    row = {"id": "1", "mailboxbase.namespace": "#private", "mailboxbase.user": "bob", "name": "INBOX", "uidvalidity": 1}
    schema = StructType(
        [StructField(c.name, _SPARK[c.type]) for c in paths.mirror.table.columns if not c.type.startswith("frozen")]
    )
    seen = placed_frame(paths, paths.mirror, spark.createDataFrame([tuple(row[name] for name in schema.names)], schema))
    truth = {"namespace": "#private", "user": "bob", "mailboxname": "INBOX", "mailboxid": "1", "uidvalidity": 1}
    table = paths.truth
    wanted = truth_frame(paths, frame(spark, table, [truth]), accept_torn=False)
    assert seen.select(ONE, TWO).collect() == wanted.select(ONE, TWO).collect()
    assert seen.select(sf.col("mailboxid")).collect()[0][0] == "1"


KINDS = sorted(COMPARED)
_OF_KIND: dict[str, DataType] = {
    "ascii": StringType(),
    "blob": BinaryType(),
    "date": DateType(),
    "double": DoubleType(),
    "float": FloatType(),
    "inet": StringType(),
    "smallint": ShortType(),
    "tinyint": ByteType(),
    "uuid": StringType(),
    "varchar": StringType(),
}
_EVERY = ", ".join(f"c{number} {kind}" for number, kind in enumerate(KINDS))
MEASURED = Table("measured", listed("id uuid", regular=f"email text, {_EVERY}"))
BY_EMAIL = Table("measured_by_email", listed("email text", regular=f"id uuid, {_EVERY}"))
DECLARED = Family(Mirror(MEASURED, BY_EMAIL, (("email", "email"),), compared=BY_EMAIL.regular))


def cells_for_spark(kind: str) -> st.SearchStrategy[Any]:
    """Without days of which Spark's Python has no date."""
    return values_of_type(kind).filter(lambda cell: not isinstance(cell, FarDate))


@st.composite
def declared_pairs(draw: st.DrawFn) -> tuple[Row, Row]:
    cells = {f"c{number}": draw(st.none() | cells_for_spark(kind)) for number, kind in enumerate(KINDS)}
    truth = {"id": draw(st.uuids()), "email": draw(_FEW([None, "", "a@x"])), **cells}
    copy = dict(truth)
    number = draw(st.integers(0, len(KINDS) - 1))
    copy[f"c{number}"] = draw(st.none() | cells_for_spark(KINDS[number]))
    return truth, copy


def test_columns_of_every_type_that_spark_takes_agree_in_both_or_in_neither(spark: SparkSession) -> None:
    """Signs of zeros, NaNs and empty values count; rows without a whole key demand no row."""
    refuse_incomparable_here([DECLARED])
    some = drawn(declared_pairs(), share(600))
    truths = frame(spark, MEASURED, [truth for truth, _ in some])
    ours = truth_frame(DECLARED, truths, accept_torn=False).collect()
    copies = frame(spark, BY_EMAIL, [copy for _, copy in some])
    theirs = placed_frame(DECLARED, DECLARED.mirror, copies).collect()

    answers = set()
    for (truth, copy), one, other in zip(some, ours, theirs, strict=True):
        same = (one[ONE], one[TWO]) == (other[ONE], other[TWO])
        assert same == DECLARED.mirror.agree(truth, copy), (truth, copy)
        answers.add(same)
    assert answers == {True, False}
    whole = [truth for truth, _ in some if DECLARED.mirror.is_demanded_by(truth)]
    assert demanding(DECLARED.mirror, truths).count() == len(whole) > 0


def test_a_key_of_every_type_that_spark_takes_comes_back_from_its_text(spark: SparkSession) -> None:
    keyed = [(f"c{KINDS.index(kind)}", Column(f"c{KINDS.index(kind)}", kind)) for kind in sorted(IN_KEYS)]
    parts = {}
    for name, column in keyed:
        parts[name] = cells_for_spark(column.type)
    rows = drawn(st.fixed_dictionaries(parts), 60)
    key_columns = [column for _, column in keyed]

    texts = frame(spark, MEASURED, rows).select(key_texts(keyed)).collect()

    assert [key_of(key_columns, text[0]) for text in texts] == [tuple(row[name] for name, _ in keyed) for row in rows]


_TESTED = Table("tested", listed("id int", regular="state text, size int, open boolean, owner uuid"))
_OWNER = UUID(int=7)
_ATOMS = _FEW(
    [
        OneOf("state", ("", "a")),
        OneOf("size", (0, 1)),
        OneOf("open", (False,)),
        OneOf("owner", (_OWNER,)),
        StartsWith("state", ("a",)),
        StartsWith("state", ("A", "%", "_", ".", "\\")),
        StartsWith("state", ("a%", "a_", "a.", "$", "^", "é")),
        IsNull("state"),
        IsNull("owner", value=False),
        Condition("open", value=False),
        Condition("open", value=True),
    ]
)
_CONDITIONS: st.SearchStrategy[RowCondition] = st.recursive(
    _ATOMS,
    lambda inner: (
        st.builds(Not, inner)
        | st.builds(Every, st.lists(inner, max_size=3).map(tuple))
        | st.builds(Either, st.lists(inner, max_size=3).map(tuple))
    ),
    max_leaves=5,
)


def test_a_condition_holds_in_both_or_in_neither(spark: SparkSession) -> None:
    # Given
    conditions = drawn(_CONDITIONS, 40)
    row: dict[str, st.SearchStrategy[Any]] = {"id": st.just(1), "owner": st.none() | st.just(_OWNER) | st.uuids()}
    for name, kind in (("size", "int"), ("open", "boolean")):
        row[name] = _CELLS[kind]
    row["state"] = st.one_of(_CELLS["text"], st.text("aAé%_.^$\\", max_size=3))
    rows = drawn(st.fixed_dictionaries(row), share(200))

    # When
    rendered = [holding(condition).alias(str(number)) for number, condition in enumerate(conditions)]
    found = frame(spark, _TESTED, rows).select(*rendered).collect()

    # Then
    for tested, answers in zip(rows, found, strict=True):
        assert list(answers) == [condition.holds(tested) for condition in conditions]
