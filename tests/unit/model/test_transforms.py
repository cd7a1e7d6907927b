"""Transforms in Python: what each gives, and the names of computed columns."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.operations import Seen
from mailmend.model.table import Table, columns, computed_column
from mailmend.model.transforms import (
    NESTING_MAX,
    ConstantCell,
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

NOON = datetime(2024, 5, 31, 12, 59, 59, 999_000, tzinfo=UTC)
BORN = UUID("cbea5000-1f4b-11ef-8000-000000000001")  # 2024-05-31T12:59:59.999Z


def bucket(unit: TimeUnit, result: str, *, of_uuid: bool = False) -> TimeBucket:
    return TimeBucket(source="at", type=result, unit=unit, of_uuid=of_uuid)


@pytest.mark.parametrize(
    ("unit", "result", "expected"),
    [
        (TimeUnit.HOUR, "text", "2024-05-31T12"),
        (TimeUnit.HOUR, "timestamp", datetime(2024, 5, 31, 12, tzinfo=UTC)),
        (TimeUnit.DAY, "text", "2024-05-31"),
        (TimeUnit.DAY, "date", date(2024, 5, 31)),
        (TimeUnit.DAY, "int", 20240531),
        (TimeUnit.DAY, "bigint", 1_717_113_600_000),
        (TimeUnit.MONTH, "text", "2024-05"),
        (TimeUnit.MONTH, "date", date(2024, 5, 1)),
        (TimeUnit.MONTH, "int", 202405),
        (TimeUnit.YEAR, "int", 2024),
        (TimeUnit.YEAR, "timestamp", datetime(2024, 1, 1, tzinfo=UTC)),
    ],
)
def test_the_form_of_a_bucket_follows_from_the_type(unit: TimeUnit, result: str, expected: Any) -> None:
    assert bucket(unit, result).of(NOON) == expected


@pytest.mark.parametrize(
    ("unit", "expected"),
    [(TimeUnit.HOUR, "2024053112"), (TimeUnit.DAY, "20240531"), (TimeUnit.MONTH, "202405"), (TimeUnit.YEAR, "2024")],
)
def test_a_text_may_have_digits_only(unit: TimeUnit, expected: str) -> None:
    rule = TimeBucket(source="at", type="text", unit=unit, of_uuid=False, digits=True)

    assert rule.of(NOON) == expected
    assert rule.name != bucket(unit, "text").name


def test_a_time_based_uuid_is_in_the_bucket_of_its_time() -> None:
    assert bucket(TimeUnit.HOUR, "text", of_uuid=True).of(BORN) == "2024-05-31T12"


@given(st.datetimes(), st.sampled_from(TimeUnit))
def test_a_bucket_begins_at_or_before_its_instants(instant: datetime, unit: TimeUnit) -> None:
    start: datetime = bucket(unit, "timestamp").of(instant)
    assert timedelta(0) <= instant.replace(tzinfo=UTC) - start < timedelta(days=366)


@given(st.datetimes(), st.sampled_from(TimeUnit))
def test_the_begin_of_a_bucket_is_in_it(instant: datetime, unit: TimeUnit) -> None:
    rule = bucket(unit, "timestamp")
    assert rule.of(rule.of(instant)) == rule.of(instant)


def test_lower_case_does_not_look_at_neighbours() -> None:
    assert LowerCase(source="name", type="text").of("ΟΔΟΣ É") == "οδοσ é"


@given(st.text(st.characters(exclude_categories=["Cs"])) | st.integers() | st.uuids(), st.integers(1, 2**31))
def test_a_hash_is_one_of_the_buckets(cell: Any, buckets: int) -> None:
    assert 0 <= HashBucket(source="id", type="bigint", buckets=buckets).of(cell) < buckets


def test_the_hash_is_crc32() -> None:
    assert HashBucket(source="id", type="bigint", buckets=2**31).of("123456789") == 0xCBF43926 % 2**31


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ('{"a": {"b": "c"}}', "c"),
        ('{"a": {"b": ""}}', ""),
        ('{"a": {"b": 12}}', "12"),
        ('{"a": {"b": -0}}', "0"),
        ('{"a": {"b": -12}}', "-12"),
        ('{"a": {"b": ' + "9" * 5_000 + "}}", "9" * 5_000),
        ('{"a": {"b": 1e400}}', None),
        ('{"a": {"b": "x"}, "a": {"b": "c"}}', "c"),
        ('{"a": {"b": true}}', "true"),
        ('{"a": {"b": 1.5}}', None),
        ('{"a": {"b": null}}', None),
        ('{"a": {"b": ["c"]}}', None),
        ('{"a": "b"}', None),
        ('{"a": {"b": "\\ud800"}}', None),
        ('{"a": {"b": "c"}} x', None),
        ('{"a": {"b": "c"}, "x": NaN}', None),
        ("", None),
        ("[" * 100_000, None),
    ],
)
def test_a_json_path_leads_to_a_text(document: str, expected: str | None) -> None:
    assert JsonCell(source="doc", type="text", path=("a", "b")).of(document) == expected


def nested(levels: int) -> str:
    """A document of so many levels, next to a text; brackets in the text count for nothing."""
    text = "[{" * NESTING_MAX + '\\"' + "]}" * levels
    return '{"a": "' + text + '", "x": ' + "[" * (levels - 1) + "]" * (levels - 1) + "}"


def found_under(calls: int, document: str) -> str | None:
    """What is found with so many calls under way."""
    if calls:
        return found_under(calls - 1, document)
    found: str | None = JsonCell(source="doc", type="text", path=("a",)).of(document)
    return found


@pytest.mark.parametrize("calls", [0, 300])
def test_a_document_is_read_up_to_one_depth_whatever_calls_are_under_way(calls: int) -> None:
    assert found_under(calls, nested(NESTING_MAX)) is not None
    assert found_under(calls, nested(NESTING_MAX + 1)) is None


def test_null_stays_null_without_a_default() -> None:
    assert LowerCase(source="name", type="text").cell({"name": None}) is None


def test_a_default_stands_for_null() -> None:
    assert LowerCase(source="name", type="text", default="x").cell({"name": None}) == "x"


def test_a_default_stands_for_what_a_path_does_not_find() -> None:
    assert JsonCell(source="doc", type="text", default="x", path=("a",)).cell({"doc": "{}"}) == "x"


def test_a_field_of_a_user_type_is_its_value() -> None:
    assert FieldCell(source="address", type="text", field="city").cell({"address": {"city": "Ulm"}}) == "Ulm"


RIGHTS = JoinedCell(source="rights", type="text", of_set=True)
STEPS = JoinedCell(source="steps", type="text", of_set=False, separator=", ")


@pytest.mark.parametrize(
    ("rule", "cell", "expected"),
    [
        (RIGHTS, frozenset("rle"), "elr"),
        (RIGHTS, frozenset(["\U0001f600", "\uffee", "é", "z", "Z", ""]), "Zzé\uffee\U0001f600"),
        (RIGHTS, frozenset([""]), ""),
        (RIGHTS, frozenset(), None),
        (STEPS, ("b", "a", "b"), "b, a, b"),
        (STEPS, ("",), ""),
        (STEPS, (), None),
    ],
)
def test_the_texts_of_a_collection_are_joined(rule: JoinedCell, cell: Any, expected: str | None) -> None:
    assert rule.of(cell) == expected


@pytest.mark.parametrize("cell", [None, frozenset()])
def test_a_default_stands_for_a_collection_without_elements(cell: Any) -> None:
    assert RIGHTS.cell({"rights": cell}) is None
    assert replace(RIGHTS, default="").cell({"rights": cell}) == ""


@given(st.frozensets(st.text(st.characters(exclude_categories=["Cs"]), max_size=3)))
def test_a_joined_set_is_in_the_order_of_its_bytes(texts: frozenset[str]) -> None:
    joined = (RIGHTS.of(texts) or "").encode()
    assert joined == b"".join(sorted(text.encode() for text in texts))


ADDRESS = JoinedColumns(type="text", columns=("name", "domain"), separator="@")


@pytest.mark.parametrize(
    ("name", "domain", "joined"),
    [("ann", "x.org", "ann@x.org"), ("", "", "@"), (None, "x.org", None), ("ann", None, None)],
)
def test_texts_of_columns_are_joined(name: str | None, domain: str | None, joined: str | None) -> None:
    assert ADDRESS.cell({"name": name, "domain": domain}) == joined


def test_a_default_stands_for_a_column_that_is_null() -> None:
    assert replace(ADDRESS, default="none").cell({"name": "ann", "domain": None}) == "none"


@given(st.text("a@"), st.text("b@"), st.sampled_from(["@", "@@", "a@"]))
def test_a_joined_text_leads_back_to_its_columns_or_nowhere(first: str, second: str, separator: str) -> None:
    rule = JoinedColumns(type="text", columns=("a", "b"), separator=separator)
    row = {"a": first, "b": second}
    assert rule.columns_of(rule.cell(row)) in (row, {})


@given(st.text("ab"), st.text("ab"), st.text("ab"))
def test_a_text_with_one_way_back_leads_back(first: str, second: str, third: str) -> None:
    rule = JoinedColumns(type="text", columns=("a", "b", "c"), separator="%@")
    row = {"a": first, "b": second, "c": third}
    assert rule.columns_of(rule.cell(row)) == row


@pytest.mark.parametrize("text", [None, "", "ann", "a@b@x.org"])
def test_a_text_without_one_way_back_leads_nowhere(text: str | None) -> None:
    assert ADDRESS.columns_of(text) == {}


KINDS = ("alias:", "group:")


@pytest.mark.parametrize(
    ("text", "prefix", "rest"),
    [("alias:a", "alias:", "a"), ("group:", "group:", ""), ("aalias:", "", "aalias:"), ("", "", "")],
)
def test_a_text_is_cut_behind_its_prefix(text: str, prefix: str, rest: str) -> None:
    assert PrefixCell(source="a", type="text", prefixes=KINDS).of(text) == prefix
    assert RestCell(source="a", type="text", prefixes=KINDS).of(text) == rest


DIFFERENT = [
    ConstantCell(source=None, type="text", value="1"),
    ConstantCell(source=None, type="int", value=1),
    ConstantCell(source=None, type="text", value="a.b"),
    ConstantCell(source=None, type="text", value="a/b"),
    ConstantCell(source=None, type="text", value="A"),
    ConstantCell(source=None, type="text", value="a"),
    SameCell(source="name", type="text", default="a"),
    SameCell(source="name", type="text", default="b"),
    LowerCase(source="name", type="text"),
    LowerCase(source="name", type="text", default=""),
    bucket(TimeUnit.DAY, "text"),
    bucket(TimeUnit.DAY, "date"),
    bucket(TimeUnit.YEAR, "date"),
    HashBucket(source="name", type="int", buckets=3),
    HashBucket(source="name", type="int", buckets=4),
    JsonCell(source="name", type="text", path=("a", "b")),
    JsonCell(source="name", type="text", path=("a b",)),
    FieldCell(source="name", type="text", field="a"),
    JoinedCell(source="name", type="text", of_set=True),
    JoinedCell(source="name", type="text", of_set=True, default="a"),
    JoinedCell(source="name", type="text", of_set=True, separator="a"),
    JoinedCell(source="name", type="text", of_set=True, separator="a) or b"),
    JoinedCell(source="name", type="text", of_set=True, separator="a", default="b)"),
    JoinedCell(source="name", type="text", of_set=True, separator="'"),
    JoinedColumns(type="text", columns=("name", "other"), separator="a"),
    JoinedColumns(type="text", columns=("other", "name"), separator="a"),
    JoinedColumns(type="text", columns=("name", "other"), separator="b"),
    PrefixCell(source="name", type="text", prefixes=("a.", "b")),
    PrefixCell(source="name", type="text", prefixes=("b", "a.")),
    RestCell(source="name", type="text", prefixes=("a.", "b")),
]


def test_different_transforms_have_different_columns() -> None:
    assert len({computed_column(rule).name for rule in DIFFERENT}) == len(DIFFERENT)


@pytest.mark.parametrize("rule", DIFFERENT)
def test_the_name_of_a_computed_column_has_no_dot_and_no_backtick(rule: Transform) -> None:
    assert not set(computed_column(rule).name) & set(".`\"'")


USERS = Table("users", columns("id int", regular="name text"))
LOWER = computed_column(LowerCase(source="name", type="text"))


def test_a_computed_column_is_no_column_of_the_server() -> None:
    table = USERS.with_columns((*USERS.columns, LOWER))
    assert table.names == ("id", "name", "lower(name)")
    assert [column.name for column in table.regular] == ["name"]
    assert table.stored(table.names) == ("id", "name")


def test_a_column_of_several_is_read_with_all_of_them() -> None:
    table = USERS.with_columns((*USERS.columns, *columns("", regular="domain text"), computed_column(ADDRESS)))
    assert table.stored((ADDRESS.name,)) == ("name", "domain")


def test_a_cell_of_several_is_as_new_as_the_newest_and_lives_as_long_as_the_first_to_expire() -> None:
    times = {"name": 5, "domain": 7}
    seen = Seen({"name": "ann", "domain": "x.org"}, times, ttls=times).completed(((ADDRESS.name, ADDRESS),))
    assert (seen.written_at[ADDRESS.name], seen.ttls[ADDRESS.name]) == (7, 5)


def test_a_row_is_completed() -> None:
    table = USERS.with_columns((*USERS.columns, LOWER))
    assert table.completed({"id": 1, "name": "Ann"}) == {"id": 1, "name": "Ann", "lower(name)": "ann"}


def test_an_instant_of_another_zone_is_in_the_bucket_of_its_time_in_utc() -> None:
    berlin = timezone(timedelta(hours=2))
    assert bucket(TimeUnit.HOUR, "text").of(NOON.astimezone(berlin)) == "2024-05-31T12"


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (ConstantCell(source=None, type="boolean", value=True), "constant(boolean true)"),
        (SameCell(source="a", type="text", default="n.a"), "column(a) or n/a"),
        (SameCell(source="a", type="text", default="`"), "column(a) or %60;"),
    ],
)
def test_a_computed_column_is_named_by_its_transform(rule: Transform, name: str) -> None:
    assert rule.name == name
