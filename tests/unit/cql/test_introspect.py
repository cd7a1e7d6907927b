"""What a server holds, read from its `system_schema`: odd names, dropped columns, indexes, views, options."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cql.introspect import keyspace_exists, live_schema
from model.catalog.generations import GENERATIONS, Generation
from model.errors import BadIdentifier
from model.schema.difference import differences
from model.schema.keyspace import Index, Schema, View
from model.schema.table import Column, Compaction, Kind, Row, Table, UserType
from tests.support.schema_twin import SchemaTwin
from tests.support.schemas import served

LEVELED = {"class": "org.apache.cassandra.db.compaction.LeveledCompactionStrategy", "fanout_size": "10"}


class RowsServer(SchemaTwin):
    """A server that tells exactly these rows of `system_schema`, by the table's last name."""

    def __init__(self, **rows: Sequence[Row]) -> None:
        super().__init__()
        self.rows = rows
        self.asked: list[tuple[str, Any]] = []

    def query(self, text: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        self.asked.append((text, *values))
        return self.rows.get(text.partition("system_schema.")[2].partition(" ")[0], ())


def column(name: str, kind: str = "regular", position: int = -1, **other: Any) -> Row:
    plain = {"table_name": "t", "type": "int", "clustering_order": "none"}
    return {**plain, "column_name": name, "kind": kind, "position": position, **other}


def table_row(**other: Any) -> Row:
    return {"keyspace_name": "mail", "table_name": "t", "comment": "", "compaction": LEVELED, **other}


KEY = column("k", "partition_key", 0)


def told(*columns: Row, **others: Sequence[Row]) -> Table:
    rows: Mapping[str, Sequence[Row]] = {"tables": [table_row()], "columns": [KEY, *columns], **others}
    (found,) = live_schema(RowsServer(**rows), "mail").tables
    return found


def test_names_that_need_quotes_get_them() -> None:
    rows: dict[str, list[Row]] = {
        "types": [{"type_name": "Place", "field_names": ["Street", "order", "town"], "field_types": ["text"] * 3}],
        "tables": [table_row(table_name="Box of Bob")],
        "columns": [
            column("Id", "partition_key", 0, table_name="Box of Bob"),
            column('a"b', table_name="Box of Bob", type='frozen<"Place">'),
        ],
        "indexes": [{"index_name": "By", "table_name": "Box of Bob", "options": {"target": '"Id"'}}],
    }

    assert live_schema(RowsServer(**rows), "mail") == Schema(
        (UserType('"Place"', (('"Street"', "text"), ('"order"', "text"), ("town", "text"))),),
        (
            Table(
                '"Box of Bob"',
                (Column('"Id"', "int", Kind.PARTITION), Column('"a""b"', 'frozen<"Place">')),
                compaction=Compaction("LeveledCompactionStrategy", {"fanout_size": "10"}),
            ),
        ),
        (Index('"By"', '"Box of Bob"', '"Id"'),),
    )


def test_columns_come_in_the_order_in_which_a_table_is_written() -> None:
    found = told(
        column("b"),
        column("a"),
        column("s", "static"),
        column("d", "clustering", 1, clustering_order="desc", type="frozen<map<text, blob>>"),
        column("c", "clustering", 0, clustering_order="asc"),
        column("j", "partition_key", 1),
    )

    assert [one.name for one in found.columns] == ["k", "j", "c", "d", "s", "a", "b"]
    assert [one.name for one in found.columns if one.descending] == ["d"]
    assert found.column("s").kind is Kind.STATIC
    assert found.column("d").type == "frozen<map<text,blob>>"


def test_dropped_columns_are_remembered_with_their_kind() -> None:
    gone = [
        {"table_name": "t", "column_name": "Old", "type": "text", "kind": "static"},
        {"table_name": "t", "column_name": "older", "type": "map<int, int>"},
        {"table_name": "u", "column_name": "other", "type": "int", "kind": "regular"},
    ]

    assert told(dropped_columns=gone).dropped == (
        Column('"Old"', "text", Kind.STATIC),
        Column("older", "map<int,int>"),
    )


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        (86_400, "86400"),
        (0.01, "0.01"),
        (True, "true"),
        (False, "false"),
        ("99p", "'99p'"),
        ("it's", "'it''s'"),
        ({"keys": "ALL"}, "{'keys': 'ALL'}"),
        ({"chunk_length_in_kb": 16}, "{'chunk_length_in_kb': '16'}"),
    ],
)
def test_an_option_is_read_as_cql_writes_it(value: Any, literal: str) -> None:
    (found,) = live_schema(RowsServer(tables=[table_row(opt=value)], columns=[KEY]), "mail").tables

    assert found.options == {"opt": literal}


def test_what_is_no_option_is_none() -> None:
    extra = {
        **dict.fromkeys(("id", "flags", "extensions", "view_name", "base_table_id"), "x"),
        **dict.fromkeys(("dclocal_read_repair_chance", "read_repair_chance"), 0.1),
        "memtable": None,
    }
    row = table_row(**extra, comment=None)

    (found,) = live_schema(RowsServer(tables=[row], columns=[KEY]), "mail").tables

    assert (found.options, found.comment) == ({}, "")


def test_a_class_of_somebody_else_keeps_its_whole_name() -> None:
    row = table_row(compaction={"class": "org.example.Own"})

    (found,) = live_schema(RowsServer(tables=[row], columns=[KEY]), "mail").tables

    assert found.compaction == Compaction("org.example.Own", {})


def test_an_index_is_its_target_its_class_and_the_rest() -> None:
    options = {"target": "values(m)", "class_name": "sai", "similarity_function": "cosine"}
    rows = [
        {"index_name": "plain", "table_name": "t", "options": {"target": "a"}},
        {"index_name": "own", "table_name": "t", "options": options},
        {"index_name": "whole", "table_name": "t", "options": {"class_name": "org.example.Whole"}},
    ]

    assert live_schema(RowsServer(indexes=rows), "mail").indexes == (
        Index("plain", "t", "a"),
        Index("own", "t", "values(m)", "sai", {"similarity_function": "cosine"}),
        Index("whole", "t", "", "org.example.Whole"),
    )


def test_a_view_is_a_table_with_a_base_and_a_condition() -> None:
    row = {
        **table_row(comment="c", gc_grace_seconds=5),
        "view_name": "by_v",
        "base_table_name": "t",
        "base_table_id": "x",
        "where_clause": "v IS NOT NULL",
        "include_all_columns": True,
    }
    del row["table_name"]
    columns = [column("v", "partition_key", 0, table_name="by_v"), column("k", "clustering", 0, table_name="by_v"), KEY]

    (found,) = live_schema(RowsServer(views=[row], columns=columns), "mail").views

    assert found == View(
        Table(
            "by_v",
            (Column("v", "int", Kind.PARTITION), Column("k", "int", Kind.CLUSTERING)),
            "c",
            Compaction("LeveledCompactionStrategy", {"fanout_size": "10"}),
            {"gc_grace_seconds": "5"},
        ),
        "t",
        "v IS NOT NULL",
        all_columns=True,
    )


def test_types_come_before_those_that_use_them() -> None:
    rows = [
        {"type_name": "a", "field_names": ["f"], "field_types": ["frozen<b>"]},
        {"type_name": "b", "field_names": ["f"], "field_types": ["int"]},
    ]

    assert [one.name for one in live_schema(RowsServer(types=rows), "mail").types] == ["b", "a"]


@pytest.mark.parametrize(("spelling", "bound"), [("Mail", "mail"), ('"Mail"', "Mail"), ('"a ""b"""', 'a "b"')])
def test_a_keyspace_is_asked_for_by_the_name_that_the_server_knows(spelling: str, bound: str) -> None:
    server = RowsServer(keyspaces=[{"keyspace_name": bound}])

    assert keyspace_exists(server, spelling)
    live_schema(server, spelling)

    assert [values for _, *values in server.asked] == [[bound]] * 7
    assert all("WHERE keyspace_name = ?" in text for text, _ in server.asked)


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda one: one.name)
def test_what_a_server_holds_is_read_back(generation: Generation) -> None:
    live = live_schema(SchemaTwin(mail=served(generation.schema)), "mail")
    assert differences(generation.schema, live) == ()
    assert {table.name for table in live.tables} == {table.name for table in generation.schema.tables}


def test_an_unknown_keyspace_holds_nothing() -> None:
    twin = SchemaTwin(empty=Schema((), ()))
    assert live_schema(twin, "nowhere").empty
    assert live_schema(twin, "empty").empty
    assert keyspace_exists(twin, "Empty")
    assert not keyspace_exists(twin, "nowhere")


def test_a_keyspace_is_asked_for_by_a_valid_name_only() -> None:
    for ask in (live_schema, keyspace_exists):
        with pytest.raises(BadIdentifier):
            ask(SchemaTwin(), "mail; DROP KEYSPACE mail")
