"""Cells of SSTables are read as the driver reads the same bytes."""

from datetime import UTC, datetime
from struct import pack
from typing import Any
from uuid import UUID

import pytest
from cassandra.cqltypes import lookup_casstype
from hypothesis import given, settings
from hypothesis import strategies as st

from mailmend.cql.rows import normalised
from mailmend.model.errors import WrongUse
from mailmend.model.table import columns
from mailmend.repair.snapshots.cells import reader_of, without_unknown_types
from mailmend.repair.snapshots.wire import RowFrames

_PROTOCOL = 5
# Farther instants the driver reads through a number whose last milliseconds are lost.
_MILLIS = st.datetimes(min_value=datetime(1800, 1, 2), max_value=datetime(2200, 1, 1))  # noqa: DTZ001 - as the driver's
_VALUES: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "bigint": ("LongType", st.integers(-(2**63), 2**63 - 1)),
    "int": ("Int32Type", st.integers(-(2**31), 2**31 - 1)),
    "varint": ("IntegerType", st.integers()),
    "boolean": ("BooleanType", st.booleans()),
    "text": ("UTF8Type", st.text()),
    "blob": ("BytesType", st.binary()),
    "uuid": ("UUIDType", st.uuids()),
    "timestamp": ("TimestampType", _MILLIS.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000))),
    "set<text>": ("SetType(UTF8Type)", st.sets(st.text())),
    "list<int>": ("ListType(Int32Type)", st.lists(st.integers(-9, 9))),
    "map<text, bigint>": ("MapType(UTF8Type, LongType)", st.dictionaries(st.text(), st.integers(-9, 9))),
    "tuple<text, int>": ("TupleType(UTF8Type, Int32Type)", st.tuples(st.text(), st.integers(-9, 9) | st.none())),
}


_SLOW_TO_DRAW = settings(deadline=None)


@_SLOW_TO_DRAW
@given(st.data())
@pytest.mark.parametrize("cql_type", _VALUES)
def test_a_cell_is_read_as_the_driver_reads_it(cql_type: str, data: st.DataObject) -> None:
    class_name, values = _VALUES[cql_type]
    driver_type = lookup_casstype(class_name)
    written = driver_type.serialize(data.draw(values), _PROTOCOL)

    read = reader_of(cql_type, {})(written)

    assert read == normalised(driver_type.deserialize(written, _PROTOCOL))


def test_fields_of_a_user_type_have_names_and_may_be_lacking() -> None:
    user_types = {"base": (("namespace", "text"), ("user", "text"), ("age", "int"))}
    written = pack(">i1si", 1, b"n", -1)

    assert reader_of("frozen<base>", user_types)(written) == {"namespace": "n", "user": None, "age": None}


def test_a_type_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(WrongUse, match="vector"):
        reader_of("vector<float, 3>", {})


@pytest.mark.parametrize(
    ("cql_type", "sent"),
    [
        ("list<frozen<attachments>>", "list<blob>"),
        ("frozen<base>", "frozen<base>"),
        ("map<text, frozen<set<frozen<odd>>>>", "map<text,frozen<set<blob>>>"),
        ("timeuuid", "timeuuid"),
    ],
)
def test_a_user_type_that_the_snapshot_leaves_out_is_sent_as_blob(cql_type: str, sent: str) -> None:
    """Cassandra's schema.cql has no user types that are elements of a collection."""
    assert without_unknown_types(cql_type, {"base"}) == sent


def test_a_frame_holds_rows_by_column() -> None:
    """Fixed and varying widths, nulls in both, an instant, and a UUID that comes twice."""
    box = UUID(int=7)
    wanted = columns("box uuid", "uid bigint", "seen boolean, at timestamp, head text")
    body = b"".join(
        (
            pack(">i", 2),
            pack(">bbi", 16, 0, 32) + box.bytes * 2,
            pack(">bb2Bi2q", 8, 1, 0, 1, 16, 5, 0),
            pack(">bbi2B", 1, 0, 2, 1, 0),
            pack(">bb2Bi2q", 8, 1, 1, 0, 16, 0, 1500),
            pack(">bb2ii3s", 0, 1, 3, -1, 3, b"abc"),
        )
    )

    rows = list(RowFrames(wanted, {}).values(body))

    assert rows == [
        (box, 5, True, None, "abc"),
        (box, None, False, datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=UTC), None),
    ]
