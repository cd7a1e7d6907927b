"""Types of CQL in one spelling, and the Java classes that mean the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.cql_types import class_problem, cql_of_class, names_in, normal_type, parse_type
from mailmend.model.errors import BadIdentifier

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
        ("frozen<vector<set<int>, 3>>", "vector<frozen<set<int>>,3>"),
        ("frozen<list<vector<map<int, int>, 3>>>", "frozen<list<vector<frozen<map<int,int>>,3>>>"),
        ("vector<list<int>, 3>", "vector<list<int>,3>"),
        ('list<"Own">', 'list<"Own">'),
        ('"own"', "own"),
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


CLASSES = {
    "ascii": "AsciiType",
    "boolean": "BooleanType",
    "tinyint": "ByteType",
    "blob": "BytesType",
    "decimal": "DecimalType",
    "double": "DoubleType",
    "duration": "DurationType",
    "float": "FloatType",
    "inet": "InetAddressType",
    "int": "Int32Type",
    "varint": "IntegerType",
    "bigint": "LongType",
    "smallint": "ShortType",
    "date": "SimpleDateType",
    "time": "TimeType",
    "timeuuid": "TimeUUIDType",
    "timestamp": "TimestampType",
    "text": "UTF8Type",
    "uuid": "UUIDType",
}
"""The class of each type of CQL but counters."""


@pytest.mark.parametrize(("kind", "name"), CLASSES.items())
def test_each_type_of_cql_but_counters_has_a_class_of_its_own(kind: str, name: str) -> None:
    assert normal_type(f"'{name}'") == kind


@pytest.mark.parametrize(
    "text",
    [
        *CLASSES.values(),
        *("CounterColumnType", "DateType", "DynamicCompositeType", "EmptyType", "LegacyTimeUUIDType", "TupleType"),
        *("LexicalUUIDType", "PartitionerDefinedOrder", "com.example.MyType", "MyType(a=>b)", ""),
        "org.apache.cassandra.db.marshal.ListType(org.apache.cassandra.db.marshal.Int32Type)",
        *("SetType(Int32Type)", "MapType(Int32Type,UTF8Type)", "FrozenType(ListType(Int32Type))"),
        *("ReversedType(Int32Type)", "CompositeType(Int32Type)", "UserType(UTF8Type)", "VectorType(FloatType,3)"),
    ],
)
def test_a_class_that_some_server_has_is_no_problem(text: str) -> None:
    assert class_problem(text) == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("MyType", "names the class MyType, which no server has"),
        ("ListType(MyType)", "names the class MyType, which no server has"),
        ("FrozenType(SetType(MyType))", "names the class MyType, which no server has"),
        ("ListType", "names the class ListType with 0 parameters"),
        ("SetType(Int32Type,Int32Type)", "names the class SetType with 2 parameters"),
        ("MapType(Int32Type)", "names the class MapType with 1 parameters"),
        *((name, f"names the class {name} with 0 parameters") for name in ("CompositeType", "FrozenType")),
        *((name, f"names the class {name} with 0 parameters") for name in ("ReversedType", "UserType", "VectorType")),
    ],
)
def test_a_class_that_no_server_has_is_named_with_what_is_wrong(text: str, problem: str) -> None:
    assert class_problem(text) == problem


@pytest.mark.parametrize(
    ("text", "in_cql"),
    [
        ("Int32Type", "int"),
        ("TupleType", None),
        ("TupleType(Int32Type,com.example.MyType)", None),
        ("VectorType(FloatType)", None),
        ("VectorType(com.example.MyType,3)", None),
        ("FrozenType(Int32Type)", None),
        ("FrozenType(ListType(Int32Type),ListType(Int32Type))", None),
        ("FrozenType(ListType(DurationType))", None),
        ("ListType(DurationType)", None),
        ("MapType(Int32Type)", None),
        ("SetType(Int32Type", None),
        ("SetType Int32Type)", None),
        ("SetType(,Int32Type)", None),
        (" ", None),
    ],
)
def test_a_class_has_a_type_in_cql_where_it_means_the_same(text: str, in_cql: str | None) -> None:
    assert cql_of_class(text) == in_cql


def test_the_names_in_a_type_are_those_of_user_types_too() -> None:
    assert names_in('map<TEXT, frozen<"Own">>') == {"map", "text", "frozen", "Own"}
