"""Tables, types in one spelling, keys, and canonical forms: what "the same" means, in Python."""

from typing import Any
from uuid import uuid1

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.catalog.mail import IMAP_UID, MAILBOX_COUNTERS, MESSAGE_ID
from mailmend.model.cql_types import normal_type, parse_type
from mailmend.model.errors import BadIdentifier
from mailmend.model.table import Canonical, Column, canonical_value, identifier, rows_agree


@pytest.mark.parametrize("name", ["apache_james", "a", "Keyspace1", "x" * 48])
def test_a_good_identifier_is_taken_in_lower_case(name: str) -> None:
    assert identifier(name) == name.lower()


@pytest.mark.parametrize("name", ["", "1st", "a-b", 'a"b', "a;b", "a b", "x" * 49, "é", "a.b", "_x"])
def test_a_bad_identifier_is_refused_by_name(name: str) -> None:
    with pytest.raises(BadIdentifier) as refused:
        identifier(name, "keyspace")
    assert refused.value.name == name
    assert "keyspace" in str(refused.value)


def test_the_key_is_partition_then_clustering() -> None:
    assert [column.name for column in IMAP_UID.key] == ["messageid", "mailboxid", "uid"]
    assert [column.name for column in MESSAGE_ID.key] == ["mailboxid", "uid"]


def test_a_key_prefix_names_its_columns() -> None:
    mailbox = uuid1()
    assert MESSAGE_ID.key_row((mailbox,)) == {"mailboxid": mailbox}


def test_a_key_is_read_back_from_its_row() -> None:
    key = (uuid1(), 7)
    assert MESSAGE_ID.key_of(MESSAGE_ID.key_row(key)) == key


def test_the_partition_of_a_row_needs_no_other_column_of_its_key() -> None:
    mailbox = uuid1()
    assert MESSAGE_ID.key_names == ("mailboxid", "uid")
    assert MESSAGE_ID.partition_names == ("mailboxid",)
    assert MESSAGE_ID.partition_of({"mailboxid": mailbox}) == (mailbox,)


def test_wanted_columns_come_in_the_order_of_the_table() -> None:
    assert MESSAGE_ID.ordered(["modseq", "unknown", "mailboxid"]) == ("mailboxid", "modseq")


def test_a_missing_column_is_named_with_its_table() -> None:
    with pytest.raises(KeyError, match="messageIdTable has no column nothing"):
        MESSAGE_ID.column("nothing")


def test_columns_are_found_in_any_case() -> None:
    assert MESSAGE_ID.column("modSeq").name == "modseq"
    assert "modseq" in MESSAGE_ID
    assert "modSeq" not in MESSAGE_ID


def test_counters_and_collections_are_distinguished_from_plain_columns() -> None:
    assert MAILBOX_COUNTERS.column("count").is_counter
    assert MESSAGE_ID.column("userflags").is_collection
    assert not MESSAGE_ID.column("modseq").is_collection


MESSAGE = uuid1()
SAME: list[tuple[Canonical, Any, Any]] = [
    (Canonical.FLAG, None, False),
    (Canonical.SET, None, frozenset()),
    (Canonical.SET, {"b", "a"}, ["a", "b"]),
    (Canonical.NUMBER, None, 0),
    (Canonical.THREAD, None, MESSAGE),
]


@pytest.mark.parametrize(("canonical", "one", "other"), SAME)
def test_two_spellings_of_the_same_cell_agree(canonical: Canonical, one: Any, other: Any) -> None:
    column = Column("c", "text", canonical=canonical)
    assert rows_agree([column], {"c": one, "messageid": MESSAGE}, {"c": other, "messageid": MESSAGE})


@pytest.mark.parametrize(("one", "other"), [(None, ""), (0, None), (False, None)])
def test_plain_cells_agree_only_when_equal(one: Any, other: Any) -> None:
    assert not rows_agree([Column("c", "text")], {"c": one}, {"c": other})


@given(st.frozensets(st.text(max_size=5), max_size=5))
def test_the_order_of_a_set_never_counts(elements: frozenset[str]) -> None:
    column = Column("c", "set<text>", canonical=Canonical.SET)
    forward, backward = sorted(elements), sorted(elements, reverse=True)
    assert canonical_value(column, {"c": forward}) == canonical_value(column, {"c": backward}) == elements


SCALARS = st.sampled_from(["int", "bigint", "text", "timeuuid", "boolean", "mailboxbase"])


def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        inner.map(lambda one: f"list<{one}>"),
        inner.map(lambda one: f"frozen<set< {one} >>"),
        inner.map(lambda one: f"FROZEN<{one}>"),
        st.tuples(inner, inner).map(lambda two: f"map<{two[0]}, {two[1]}>"),
        st.lists(inner, min_size=1, max_size=3).map(lambda some: f"tuple<{','.join(some)}>"),
    )


TYPES = st.recursive(SCALARS, nested, max_leaves=5)


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("TEXT", "text"),
        ("varchar", "text"),
        ("map<text, int>", "map<text,int>"),
        ("list<frozen<attachments>>", "list<frozen<attachments>>"),
        ("frozen<map<text, frozen<list<text>>>>", "frozen<map<text,list<text>>>"),
        ("frozen<list<frozen<tuple<text, text, text>>>>", "frozen<list<tuple<text,text,text>>>"),
        ("frozen<tuple<text, frozen<set<int>>>>", "tuple<text,set<int>>"),
        ("frozen<frozen<set<int>>>", "frozen<set<int>>"),
        ("vector<float, 3>", "vector<float,3>"),
    ],
)
def test_a_type_has_one_spelling(written: str, normal: str) -> None:
    assert normal_type(written) == normal


@pytest.mark.parametrize(
    "text",
    [
        "",
        "set<",
        "set<>",
        "map<text,>",
        "text>",
        "set<text",
        "te xt",
        "text; DROP TABLE x",
        "<text>",
        "a b<int>",
        "text,",
    ],
)
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(BadIdentifier):
        parse_type(text)


@given(TYPES)
def test_the_normal_form_is_its_own_normal_form(text: str) -> None:
    assert normal_type(normal_type(text)) == normal_type(text)


@given(TYPES)
def test_freezing_what_is_frozen_changes_nothing(text: str) -> None:
    assert normal_type(f"frozen<frozen<{text}>>") == normal_type(f"frozen<{text}>")


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("'UTF8Type'", "text"),
        ("'org.apache.cassandra.db.marshal.UTF8Type'", "text"),
        ("list<'Int32Type'>", "list<int>"),
        ("'MapType(UTF8Type, LongType)'", "map<text,bigint>"),
        ("'FrozenType(SetType(UUIDType))'", "frozen<set<uuid>>"),
        ("'TupleType(Int32Type,UTF8Type)'", "tuple<int,text>"),
        ("'VectorType(FloatType , 3)'", "vector<float,3>"),
        ("'ListType(ListType(Int32Type))'", "'ListType(ListType(Int32Type))'"),
        ("'com.example.MyType'", "'com.example.MyType'"),
        ("'CounterColumnType'", "'CounterColumnType'"),
        ("''", "''"),
    ],
)
def test_a_java_class_is_the_type_that_servers_show_for_it(written: str, normal: str) -> None:
    assert normal_type(written) == normal
