"""Values between the driver, the model and JSON: nothing is lost, and nothing depends on order."""

import gzip
import json
from collections import namedtuple
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from cassandra import cqltypes
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.row_statements import selection_of
from mailmend.cql.rows import (
    adaptation_of,
    answer_of,
    applied_of,
    conversion_of,
    decode,
    encode,
    normalised,
    row_reader,
    seen_reader,
)
from mailmend.model.errors import BadIdentifier
from mailmend.model.operations import (
    Applied,
    Change,
    ChangeIf,
    Count,
    Put,
    PutIfAbsent,
    Read,
    Remove,
    RemoveIf,
    Scan,
    Seen,
)
from mailmend.model.table import Column
from mailmend.model.values import CqlDuration, FarDate, FineTime, FrozenMap
from tests.support.cells import SCALARS
from tests.support.checkout import CHECKOUT
from tests.support.tables import CELLS, COUNTERS

M = UUID("71158c60-e509-11f1-b512-b9fb9d6f173b")
INSTANT = datetime(2026, 11, 20, 17, 40, 18, 255000, tzinfo=UTC)
Path_ = namedtuple("Path_", ("namespace", "user"))  # noqa: PYI024 - what the driver makes of a user type
JAMES_ROWS = CHECKOUT / "tests" / "data" / "james-keyspace"


class SortedSet:
    """A set of the driver's own kind: it can be walked, and is no `set`."""

    def __init__(self, *elements: Any) -> None:
        self.elements = elements

    def __iter__(self) -> Iterator[Any]:
        return iter(self.elements)


class UserType:
    """A user type as the driver tells it."""

    fieldnames = ("namespace", "user")


class ListOfUserTypes:
    """A list of them."""

    subtypes = (UserType,)


class ListOfTexts:
    """A list of something plain."""

    subtypes = (str,)


class TestNormalised:
    """The driver's values in the model's forms."""

    @pytest.mark.parametrize(
        ("given_value", "expected"),
        [
            (None, None),
            (M, M),
            (b"x", b"x"),
            (5, 5),
            (INSTANT.replace(tzinfo=None), INSTANT),
            (SortedSet("b", "a"), frozenset({"a", "b"})),
            (["x", None], ("x", None)),
            (Path_("#private", "me"), {"namespace": "#private", "user": "me"}),
            ([Path_("a", "b")], ({"namespace": "a", "user": "b"},)),
            ({"a": SortedSet(1)}, {"a": frozenset({1})}),
        ],
    )
    def test_every_kind_has_one_form(self, given_value: Any, expected: Any) -> None:
        assert normalised(given_value) == expected

    @pytest.mark.parametrize("cql_type", ["text", "bigint", "timeuuid", "boolean", "counter", "blob"])
    def test_plain_types_need_no_conversion(self, cql_type: str) -> None:
        assert conversion_of(cql_type) is None

    @pytest.mark.parametrize(
        ("cql_type", "value", "expected"),
        [
            ("timestamp", INSTANT.replace(tzinfo=None), INSTANT),
            ("set<text>", SortedSet("a"), frozenset({"a"})),
            ("list<frozen<attachments>>", [Path_("a", "b")], ({"namespace": "a", "user": "b"},)),
            ("frozen<mailboxbase>", Path_("a", "b"), {"namespace": "a", "user": "b"}),
        ],
    )
    def test_other_types_are_converted_as_they_are_declared(self, cql_type: str, value: Any, expected: Any) -> None:
        conversion = conversion_of(cql_type)
        assert conversion is not None
        assert conversion(value) == expected


class TestReaders:
    """Rows of the driver's tuples."""

    COLUMNS = (Column("modSeq", "bigint"), Column("userFlags", "set<text>"), Column("day", "timestamp"))

    def test_a_row_has_every_column_by_name(self) -> None:
        read = row_reader(self.COLUMNS)
        assert read((3, SortedSet("a"), None)) == {"modseq": 3, "userflags": frozenset({"a"}), "day": None}

    def test_times_follow_the_columns(self) -> None:
        see = seen_reader(self.COLUMNS, self.COLUMNS[:2])
        seen = see((3, None, None, 77, None, None, None))
        assert seen == Seen({"modseq": 3, "userflags": None, "day": None}, {"modseq": 77})
        assert seen.ttls == {}

    @pytest.mark.parametrize(("of_set", "expected"), [(90, {"modseq": 7, "userflags": 90}), (None, {"modseq": 7})])
    def test_ttls_follow_the_times(self, of_set: int | None, expected: dict[str, int]) -> None:
        see = seen_reader(self.COLUMNS, self.COLUMNS[:2])
        assert see((3, SortedSet("ab"), None, 77, 78, 7, of_set)).ttls == expected


class TestAdaptation:
    """What the driver takes only in another form: user types, given by field."""

    def test_fields_are_put_in_order(self) -> None:
        adapt = adaptation_of(UserType)
        assert adapt is not None
        assert adapt({"user": "me", "namespace": "#private"}) == ("#private", "me")
        assert adapt({"user": "me"}) == (None, "me")

    def test_a_tuple_is_taken_as_it_is(self) -> None:
        adapt = adaptation_of(UserType)
        assert adapt is not None
        assert adapt(("#private", "me")) == ("#private", "me")

    def test_a_list_of_user_types_is_adapted_one_by_one(self) -> None:
        adapt = adaptation_of(ListOfUserTypes)
        assert adapt is not None
        assert adapt(({"user": "a", "namespace": "b"},)) == [("b", "a")]

    def test_user_types_within_maps_tuples_and_user_types_are_adapted_too(self) -> None:
        path = cqltypes.UserType.make_udt_class("mail", "path", ("a", "b"), (cqltypes.UTF8Type, cqltypes.Int32Type))
        outer = cqltypes.UserType.make_udt_class("mail", "outer", ("of",), (path,))
        mapped = cqltypes.MapType.apply_parameters([cqltypes.UTF8Type, outer])
        kind = cqltypes.TupleType.apply_parameters([mapped, cqltypes.Int32Type])
        adapt = adaptation_of(kind)
        value = (FrozenMap(k=FrozenMap(of=FrozenMap(a="x", b=1))), 5)

        assert adapt is not None
        stored = kind.serialize(adapt(value), 4)

        assert normalised(kind.deserialize(stored, 4)) == value

    def test_plain_types_need_none(self) -> None:
        assert adaptation_of(str) is None
        assert adaptation_of(ListOfTexts) is None


CASES: list[tuple[str, Any, Any]] = [
    ("timeuuid", M, str(M)),
    ("timestamp", INSTANT, "2026-11-20T17:40:18.255Z"),
    ("boolean", False, False),
    ("bigint", -(2**63), -(2**63)),
    ("counter", 5, 5),
    ("text", "étiquette", "étiquette"),
    ("blob", b"\x00\xff", "0x00ff"),
    ("double", 1.5, 1.5),
    ("decimal", Decimal("1.50"), "1.50"),
    ("date", date(2026, 11, 20), "2026-11-20"),
    ("set<text>", frozenset({"b", "a"}), ["a", "b"]),
    ("frozen<list<int>>", (2, 1), [2, 1]),
    ("tuple<int,text>", (1, "x"), [1, "x"]),
    ("map<text, frozen<set<timeuuid>>>", {"k": frozenset({M})}, {"k": [str(M)]}),
    ("map<int, text>", {1: "x"}, {"1": "x"}),
    ("frozen<mailboxbase>", {"namespace": "#private", "user": "me"}, {"namespace": "#private", "user": "me"}),
    ("list<frozen<attachments>>", ({"id": "a", "isinline": True},), [{"id": "a", "isinline": True}]),
    ("text", None, None),
]


class TestJson:
    """Values as JSON text keeps them."""

    @pytest.mark.parametrize(("cql_type", "value", "text"), CASES)
    def test_a_value_has_one_text_and_comes_back(self, cql_type: str, value: Any, text: Any) -> None:
        assert encode(value) == text
        assert decode(cql_type, json.loads(json.dumps(encode(value)))) == value

    def test_instants_are_reported_in_utc(self) -> None:
        there = INSTANT.astimezone(timezone(timedelta(hours=9)))
        assert encode(there) == "2026-11-20T17:40:18.255Z"

    def test_a_set_of_unlike_values_has_an_order_too(self) -> None:
        assert encode(frozenset({1, "a", None})) == encode(frozenset({None, "a", 1}))

    @pytest.mark.parametrize(
        ("cql_type", "value"),
        [
            ("timeuuid", "no uuid"),
            ("timeuuid", 5),
            ("timestamp", "yesterday"),
            ("bigint", "x"),
            ("boolean", "yes"),
            ("blob", "0xzz"),
            ("set<text>", 5),
            ("map<text,text>", ["a"]),
            ("tuple<int,int>", [1]),
            ("decimal", "x"),
        ],
    )
    def test_what_is_not_of_the_type_is_refused(self, cql_type: str, value: Any) -> None:
        with pytest.raises(ValueError, match=r".+"):
            decode(cql_type, value)

    def test_what_is_no_type_is_refused(self) -> None:
        with pytest.raises(BadIdentifier):
            decode("set<", [])

    @given(
        value=st.recursive(
            st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.uuids(), st.binary()),
            lambda inner: st.lists(inner) | st.frozensets(st.text()) | st.dictionaries(st.text(), inner),
        )
    )
    def test_anything_can_be_reported_in_json(self, value: Any) -> None:
        assert json.loads(json.dumps(encode(value))) == encode(value)

    @given(instant=st.datetimes(timezones=st.timezones()))
    def test_an_instant_comes_back_to_the_millisecond(self, instant: datetime) -> None:
        back = decode("timestamp", encode(instant))
        assert timedelta() <= instant - back < timedelta(milliseconds=1)


@pytest.mark.skipif(not JAMES_ROWS.exists(), reason="the rows that James wrote are not here")
def test_rows_that_james_wrote_come_back() -> None:
    from mailmend.model.catalog.mail import IMAP_UID, MAILBOX  # noqa: PLC0415 - beside what it is for

    for table in (IMAP_UID, MAILBOX):
        with gzip.open(JAMES_ROWS / f"{table.name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            for line in lines:
                document = json.loads(line)
                for column in table.columns:
                    assert encode(decode(column.type, document.get(column.name))) == document.get(column.name)


KEY = ("a", 1)


@dataclass(frozen=True, slots=True)
class Answer:
    """A driver's result of one row."""

    column_names: Sequence[str]
    values: Sequence[Any]

    def one(self) -> Sequence[Any]:
        return self.values


def test_a_write_that_applied_brings_nothing_back() -> None:
    assert applied_of(Answer(["[applied]"], [True])) == Applied(applied=True)


def test_a_refused_write_brings_what_stands_there() -> None:
    answer = Answer(["[applied]", "v", "tags"], [False, "x", {"b", "a"}])

    assert applied_of(answer) == Applied(applied=False, current={"v": "x", "tags": frozenset({"a", "b"})})


def test_a_refused_write_where_no_row_is_says_so() -> None:
    assert applied_of(Answer(["[applied]"], [False])) == Applied(applied=False, current=None)
    assert applied_of(Answer(["[applied]", "v"], [False, None])) == Applied(applied=False, current={"v": None})


@pytest.mark.parametrize(
    "write",
    [PutIfAbsent(CELLS, {"k": "a", "c": 1}), ChangeIf(CELLS, KEY, {"n": 1}, {"n": 2}), RemoveIf(CELLS, KEY, {"n": 1})],
    ids=lambda write: type(write).__name__,
)
def test_every_conditional_write_is_answered_by_a_verdict(write: Any) -> None:
    read = answer_of(write, collection_times=True)

    assert read(Answer(["[applied]"], [True])) == Applied(applied=True)


@pytest.mark.parametrize(
    "write",
    [Put(CELLS, {"k": "a", "c": 1}), Change(CELLS, KEY, {"n": 2}), Remove(CELLS, KEY), Count(COUNTERS, ("a",), {})],
    ids=lambda write: type(write).__name__,
)
def test_a_plain_write_is_answered_by_nothing(write: Any) -> None:
    assert answer_of(write, collection_times=True)(object()) is None


@pytest.mark.parametrize("collection_times", [True, False])
def test_a_read_pairs_each_time_with_its_column(collection_times: bool) -> None:
    read = Read(CELLS, ("a",), times=True)
    selection = selection_of(read, collection_times=collection_times)
    row = {column.name: None for column in selection.columns} | {"k": "a", "c": 1, "v": "x", "n": 5}
    times = {"v": 10, "n": 20}
    ttls = {"n": 60}
    of_times, of_ttls = ([one.get(column.name) for column in selection.timed] for one in (times, ttls))
    values = [*row.values(), *of_times, *of_ttls]

    (seen,) = answer_of(read, collection_times=collection_times)([values])

    assert isinstance(seen, Seen)
    assert (seen.row["v"], seen.row["n"], seen.written_at, seen.ttls) == ("x", 5, times, ttls)
    assert ("tags" in {column.name for column in selection.timed}) is collection_times


def test_a_scan_gives_rows_by_the_names_asked_for() -> None:
    of = answer_of(Scan(CELLS, ("k", "n")), collection_times=True)

    assert of(("a", 5)) == {"k": "a", "n": 5}


@pytest.mark.parametrize(
    ("ours", "kind"),
    [
        (date(2026, 5, 1), "date"),
        (FarDate(2**31 - 1), "date"),
        (time(1, 2, 3, 4), "time"),
        (FineTime(1), "time"),
        (CqlDuration(1, -2, 3), "duration"),
    ],
)
def test_days_times_and_durations_come_back_from_the_driver_as_they_went(ours: Any, kind: str) -> None:
    """The driver writes our values, and reads values of its own types."""
    _, codec = SCALARS[kind]
    theirs = codec.deserialize(codec.serialize(ours, 4), 4)

    assert normalised(theirs) == ours
    assert normalised([theirs]) == (ours,)


def test_a_set_of_maps_can_be_read() -> None:
    assert normalised(SortedSet({"a": 1}, {"a": 2})) == frozenset({FrozenMap(a=1), FrozenMap(a=2)})
