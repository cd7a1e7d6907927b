"""Tables, their columns, keys and options, and canonical forms: what "the same" means, in Python."""

from dataclasses import fields, replace
from typing import Any
from uuid import UUID, uuid1

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.catalog.mail import IMAP_UID, MAILBOX_COUNTERS, MESSAGE_ID
from mailmend.model.errors import BadIdentifier
from mailmend.model.table import (
    Column,
    Compaction,
    Kind,
    OtherColumn,
    Table,
    UserType,
    canonical_value,
    columns,
    computed_column,
    identifier,
    is_plain_name,
    names_of,
    rows_agree,
    spellings,
    types_of,
)
from mailmend.model.transforms import ConstantCell, LowerCase
from mailmend.model.values import FrozenMap


@pytest.mark.parametrize("name", ["apache_james", "a", "Keyspace1", "x" * 48])
def test_a_good_identifier_is_taken_in_lower_case(name: str) -> None:
    assert identifier(name) == name.lower()


@pytest.mark.parametrize("name", ["", "1st", "a-b", 'a"b', "a;b", "a b", "x" * 49, "é", "a.b", "_x"])
def test_a_bad_identifier_is_refused_by_name(name: str) -> None:
    with pytest.raises(BadIdentifier) as refused:
        identifier(name, "keyspace")
    assert refused.value.name == name
    assert "keyspace" in str(refused.value)


def test_a_bad_identifier_is_a_bad_name_where_nothing_else_is_said() -> None:
    with pytest.raises(BadIdentifier, match="'1st' is not a valid name"):
        identifier("1st")


@pytest.mark.parametrize(
    ("spelling", "is_plain"), [("uid", True), ("Uid", False), ("select", False), ("a b", False), ('"uid"', False)]
)
def test_a_plain_name_needs_no_quotes(spelling: str, is_plain: bool) -> None:
    assert is_plain_name(spelling) is is_plain


@pytest.mark.parametrize("word", ["select", "SELECT"])
def test_a_word_of_cql_is_no_identifier(word: str) -> None:
    with pytest.raises(BadIdentifier):
        identifier(word)


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
ID = Column("id", "uuid", Kind.PARTITION)
"""A key, for tables of which only the other columns matter."""

NAME = Column('"Name"', "text")
LOWER = LowerCase(source="Name", type="text")
ALWAYS = ConstantCell(source=None, type="int", value=7)
COMPUTING = Table("t", (ID, NAME, computed_column(LOWER), computed_column(ALWAYS)))


@pytest.mark.parametrize(
    ("of", "declared"),
    [
        (Column, ("spelling", "type", "kind", "null_is", "descending", "mask", "computed")),
        (Table, ("spelling", "columns", "comment", "compaction", "options")),
    ],
)
def test_a_part_of_a_schema_is_made_compared_and_shown_as_it_was_declared(
    of: type[Column | Table], declared: tuple[str, ...]
) -> None:
    switches = {part.name: (part.init, part.repr, part.compare) for part in fields(of) if part.name != "dropped"}

    assert switches == {**dict.fromkeys(switches, (False,) * 3), **dict.fromkeys(declared, (True,) * 3)}


def test_dropped_columns_of_a_table_are_not_compared() -> None:
    assert Table("t", (ID,), dropped=(NAME,)) == Table("t", (ID,))


def test_a_table_keeps_its_options_with_other_columns() -> None:
    assert OPTED.with_columns((NAME,)) == replace(OPTED, columns=(NAME,))


@pytest.mark.parametrize(
    ("kind", "in_key"),
    [(Kind.PARTITION, True), (Kind.CLUSTERING, True), (Kind.REGULAR, False), (Kind.STATIC, False)],
)
def test_partition_and_clustering_columns_are_the_key(kind: Kind, in_key: bool) -> None:
    assert Column("c", "int", kind).in_key is in_key


@pytest.mark.parametrize(
    ("of", "is_collection"),
    [("set<int>", True), ("list<int>", True), ("map<int,int>", True), ("frozen<set<int>>", False), ("text", False)],
)
def test_a_collection_that_is_frozen_is_one_cell(of: str, is_collection: bool) -> None:
    table = Table("t", (ID, Column("c", of)))

    assert table.column("c").is_collection is is_collection
    assert table.collections == ("c",) * is_collection
    assert table.plain == ("id", *("c",) * (not is_collection))


@pytest.mark.parametrize(("descending", "order"), [(False, "ASC"), (True, "DESC")])
def test_an_order_is_spelled_as_in_cql(descending: bool, order: str) -> None:
    assert Column("c", "int", Kind.CLUSTERING, descending=descending).order == order


def test_columns_of_one_shape_have_one_type_and_are_both_static_or_neither() -> None:
    assert Column("c", "map<varchar, int>").shape == Column("c", "map<text,int>", Kind.CLUSTERING).shape
    assert Column("c", "int", Kind.STATIC).shape == "int static"


@pytest.mark.parametrize(
    ("of", "counts", "by_class"),
    [
        ("counter", True, False),
        ("'CounterColumnType'", True, True),
        ("'org.apache.cassandra.db.marshal.CounterColumnType'", True, True),
        ("'LongType'", False, False),
        ("CounterColumnType'", False, False),
        ("bigint", False, False),
    ],
)
def test_a_counter_may_be_named_by_its_class(of: str, counts: bool, by_class: bool) -> None:
    column = Column("c", of)

    assert (column.is_counter, column.counts_by_class) == (counts, by_class)
    assert Table("t", (ID, Column("other", "text"), column)).has_counters is counts


def test_columns_are_listed_by_what_they_are_to_their_table() -> None:
    assert columns("day text, hour int", "run timeuuid DESC, step int", "note text", "owner uuid") == (
        Column("day", "text", Kind.PARTITION),
        Column("hour", "int", Kind.PARTITION),
        Column("run", "timeuuid", Kind.CLUSTERING, descending=True),
        Column("step", "int", Kind.CLUSTERING),
        Column("owner", "uuid", Kind.STATIC),
        Column("note", "text"),
    )
    assert columns("id uuid") == (ID,)


def test_a_compaction_comes_back_from_its_literal() -> None:
    compaction = Compaction("LeveledCompactionStrategy", {"sstable_size_in_mb": "160"})

    assert compaction.literal == "{'class': 'LeveledCompactionStrategy', 'sstable_size_in_mb': '160'}"
    assert Compaction.from_literal(compaction.literal) == compaction


@pytest.mark.parametrize("literal", ["", "{'enabled': 'false'}"])
def test_a_literal_without_a_class_is_no_compaction(literal: str) -> None:
    assert Compaction.from_literal(literal) is None


def test_a_user_type_has_fields_with_normal_names_and_types() -> None:
    user_type = UserType('"Own"', (("Name", "varchar"), ('"Size"', "BIGINT")))

    assert user_type.name == "Own"
    assert user_type.normal_fields == (("name", "text"), ("Size", "bigint"))
    assert user_type.field_types == ("varchar", "BIGINT")


def test_a_column_is_found_by_its_name_and_by_its_spelling() -> None:
    assert COMPUTING.column("Name") is COMPUTING.column('"Name"') is NAME


def test_computed_columns_are_no_columns_of_the_server() -> None:
    assert COMPUTING.names == ("id", "Name", "lower(Name)", "constant(int 7)")
    assert COMPUTING.computed == (("lower(Name)", LOWER), ("constant(int 7)", ALWAYS))
    assert (COMPUTING.regular, COMPUTING.plain) == ((NAME,), ("id", "Name"))


@pytest.mark.parametrize(
    ("names", "stored"),
    [
        (["id", "lower(Name)"], ("id", "Name")),
        (["lower(Name)", "Name", "id"], ("Name", "id")),
        (["constant(int 7)"], ()),
    ],
)
def test_a_computed_column_is_read_as_its_source(names: list[str], stored: tuple[str, ...]) -> None:
    assert COMPUTING.stored(names) == stored


BOXES = Table("boxes", (ID, *columns("", regular="base.user text, name text, base.space text, owner.id uuid")))
BASE = {"base.user": "ann", "base.space": None}


def test_fields_of_a_user_type_are_one_cell_where_they_are_written() -> None:
    row = {"id": MESSAGE, "name": "INBOX", **BASE}

    assert BOXES.by_field == ("base", "owner")
    assert BOXES.whole_cells(row) == {"id": MESSAGE, "name": "INBOX", "base": {"user": "ann", "space": None}}
    assert isinstance(BOXES.whole_cells(row)["base"], FrozenMap)
    assert MESSAGE_ID.whole_cells(row) is row


def test_a_cell_is_null_where_each_of_its_fields_is() -> None:
    assert BOXES.whole_cells({"base.user": None, "base.space": None}) == {"base": None}


def test_a_cell_without_one_of_its_fields_is_not_written() -> None:
    with pytest.raises(ValueError, match=r"boxes\.base is written with all of its fields"):
        BOXES.whole_cells({"base.user": "ann"})


@pytest.mark.parametrize(("name", "column"), [("base", Column("base", "frozen")), ("name", Column("name", "text"))])
def test_a_cell_with_fields_has_a_column_of_its_own(name: str, column: Column) -> None:
    assert BOXES.whole_column(name) == column


def test_the_clustering_columns_of_a_table_are_in_their_order() -> None:
    table = Table("t", columns("k int", "a int, b int DESC"))

    assert names_of(table.clustering) == ("a", "b")
    assert names_of(table.partition) == ("k",)


def test_a_row_gets_its_computed_cells() -> None:
    row = {"id": MESSAGE, "Name": "Ann"}

    assert COMPUTING.completed(row) == {**row, "lower(Name)": "ann", "constant(int 7)": 7}
    assert MESSAGE_ID.completed(row) is row


@pytest.mark.parametrize("of", ["ascii", "blob", "text", "varchar"])
def test_a_lone_text_or_blob_of_a_partition_key_is_never_empty(of: str) -> None:
    table = Table("t", columns(f"k {of}", "c text"))

    assert table.lone_partition == "k"
    assert table.takes_key(("a", ""))
    assert not table.takes_key(("", "a"))


@pytest.mark.parametrize("partition", ["k int", "k text, l text"])
def test_any_other_partition_key_may_be_empty(partition: str) -> None:
    assert Table("t", columns(partition)).lone_partition is None
    assert Table("t", columns("k text, l text")).takes_key(("", ""))


def test_no_part_of_a_key_is_null() -> None:
    assert MESSAGE_ID.takes_key((MESSAGE, 1))
    assert not MESSAGE_ID.takes_key((MESSAGE, None))


@pytest.mark.parametrize(
    ("row", "named"), [({"k": 1, "l": 2, "c": 3}, (1, 2)), ({"k": 1}, None), ({"k": 1, "l": None}, None)]
)
def test_a_row_names_a_partition_by_every_part_of_its_key(row: dict[str, Any], named: tuple[int, ...] | None) -> None:
    assert Table("t", columns("k int, l int", "c int")).partition_named_by(row) == named


@pytest.mark.parametrize(
    ("kind", "part", "is_named"),
    [("timeuuid", MESSAGE, True), ("timeuuid", UUID(int=9), False), ("uuid", UUID(int=9), True)],
)
def test_a_partition_of_time_based_uuids_has_no_other(kind: str, part: UUID, is_named: bool) -> None:
    """A server refuses a read with another one."""
    named = Table("t", columns(f"k {kind}")).partition_named_by({"k": part})

    assert named == ((part,) if is_named else None)


LEVELED = Compaction("LeveledCompactionStrategy")
OPTED = Table("t", (ID,), "it's ours", LEVELED, {"gc_grace_seconds": "60"})
LITERALS = {"comment": "'it''s ours'", "compaction": LEVELED.literal, "gc_grace_seconds": "60"}


def test_every_option_is_a_literal() -> None:
    assert OPTED.literals() == LITERALS
    assert OPTED.literals(comment=False) == {name: LITERALS[name] for name in ("compaction", "gc_grace_seconds")}
    assert Table("t", (ID,)).literals() == {}


def test_literals_make_the_options_that_they_came_from() -> None:
    assert Table("t", (ID,)).with_options(LITERALS) == OPTED


def test_options_of_other_names_stay() -> None:
    changed = OPTED.with_options({"gc_grace_seconds": "0", "read_repair": "'NONE'"})

    assert changed.literals() == {**LITERALS, "gc_grace_seconds": "0", "read_repair": "'NONE'"}


def test_a_compaction_without_a_class_is_kept_as_it_is_written() -> None:
    assert OPTED.with_options({"compaction": "{}"}).literals()["compaction"] == "{}"


def test_parts_of_a_schema_are_named_in_their_order() -> None:
    assert names_of((ID, NAME)) == ("id", "Name")
    assert spellings((ID, NAME)) == 'id, "Name"'
    assert types_of((ID, NAME)) == ("uuid", "text")


ANOTHER = uuid1()
FLAG = Column("c", "boolean", null_is=False)
SET = Column("c", "set<text>")
NUMBER = Column("c", "bigint", null_is=0)
THREAD = Column("c", "timeuuid", null_is=OtherColumn("messageid"))
STATE = Column("c", "text", null_is="open")
PLAIN = Column("c", "text")
SAME: list[tuple[Column, Any, Any]] = [
    (FLAG, None, False),
    (SET, None, frozenset()),
    (SET, {"b", "a"}, ["a", "b"]),
    (NUMBER, None, 0),
    (THREAD, None, MESSAGE),
    (THREAD, ANOTHER, ANOTHER),
    (STATE, None, "open"),
    (STATE, "", ""),
    (PLAIN, "a", "a"),
]
DIFFERENT: list[tuple[Column, Any, Any]] = [
    (FLAG, None, True),
    (SET, None, {"a"}),
    (NUMBER, None, 1),
    (NUMBER, 1, 2),
    (THREAD, None, ANOTHER),
    (THREAD, MESSAGE, ANOTHER),
    (STATE, None, ""),
    (PLAIN, None, ""),
    (PLAIN, 0, None),
    (PLAIN, False, None),
]


@pytest.mark.parametrize(("column", "one", "other"), SAME)
def test_two_spellings_of_the_same_cell_agree(column: Column, one: Any, other: Any) -> None:
    assert rows_agree([column], {"c": one, "messageid": MESSAGE}, {"c": other, "messageid": MESSAGE})


@pytest.mark.parametrize(("column", "one", "other"), DIFFERENT)
def test_cells_of_another_canonical_form_differ(column: Column, one: Any, other: Any) -> None:
    assert not rows_agree([column], {"c": one, "messageid": MESSAGE}, {"c": other, "messageid": MESSAGE})


def test_one_column_that_differs_is_enough() -> None:
    assert not rows_agree([Column("a", "int"), Column("b", "int")], {"a": 1, "b": 1}, {"a": 1, "b": 2})


@given(st.frozensets(st.text(max_size=5), max_size=5))
def test_the_order_of_a_set_never_counts(elements: frozenset[str]) -> None:
    column = Column("c", "set<text>")
    forward, backward = sorted(elements), sorted(elements, reverse=True)
    assert canonical_value(column, {"c": forward}) == canonical_value(column, {"c": backward}) == elements
