"""What a server holds, read from its `system_schema`; and what lint looks at."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from mailmend.cql.introspect import beside_model, keyspace_exists, live_schema, unknown_keyspace
from mailmend.cql.lint_sources import live_subject, release_of, statements_of
from mailmend.cql.schema.difference import differences
from mailmend.cql.schema.generations import GENERATIONS, Generation
from mailmend.cql.schema.lint.servers import ServerRelease
from mailmend.cql.schema.lint.subject import HINT_WINDOW_DEFAULT, Knowledge
from mailmend.model.catalog.mail import SCHEMA
from mailmend.model.errors import BadIdentifier, CqlSyntaxError, MailmendError, UnknownKeyspace, WrongUse
from mailmend.model.keyspace import Index, Schema, View
from mailmend.model.table import COMPACT_STORAGE, Column, Compaction, Kind, Row, Table, UserType
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


def table_of(*columns: Row, **others: Sequence[Row]) -> Table:
    rows: Mapping[str, Sequence[Row]] = {"tables": [table_row()], "columns": [KEY, *columns], **others}
    (found,) = live_schema(RowsServer(**rows), "mail").tables
    return found


class ServerInTheMiddle(SchemaTwin):
    """A server on which somebody makes a table after the columns of all tables were read."""

    def query(self, text: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        rows = super().query(text, values)
        if "system_schema.columns" in text:
            self.keyspaces["mail"] = SCHEMA
        return rows


def test_a_table_that_is_made_while_the_schema_is_read_has_its_columns() -> None:
    server = ServerInTheMiddle(mail=Schema((), SCHEMA.tables[:1]))

    read = live_schema(server, "mail")

    assert {table.name: len(table.columns) for table in read.tables} == {
        table.name: len(table.columns) for table in SCHEMA.tables
    }


class BusyServer(SchemaTwin):
    """A server whose node shows the columns of its tables seconds later than the tables."""

    def __init__(self, moments: int) -> None:
        super().__init__(mail=SCHEMA)
        self.moments = moments

    def query(self, text: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        if self.moments and "system_schema.columns" in text:
            return ()
        return super().query(text, values)

    def settle(self) -> None:
        self.moments -= 1


def test_a_busy_node_is_given_the_time_to_show_the_columns_of_a_new_table() -> None:
    server = BusyServer(moments=40)

    read = live_schema(server, "mail")

    assert read == live_schema(SchemaTwin(mail=SCHEMA), "mail")
    assert server.moments == 0


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
    found = table_of(
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

    assert table_of(dropped_columns=gone).dropped == (
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
    row = table_row(**{**extra, "flags": frozenset({"compound"})}, comment=None)

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


@pytest.mark.parametrize(
    ("spelling", "bound"), [("Mail", "mail"), ('"Mail"', "Mail"), ('"1ks"', "1ks"), ('"select"', "select")]
)
def test_a_keyspace_is_asked_for_by_the_name_that_the_server_knows(spelling: str, bound: str) -> None:
    server = RowsServer(keyspaces=[{"keyspace_name": bound}])

    assert keyspace_exists(server, spelling)
    live_schema(server, spelling)

    assert [values for _, *values in server.asked] == [[bound]] * 8
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


def test_a_keyspace_that_differs_in_case_only_is_named() -> None:
    there = RowsServer(keyspaces=[{"keyspace_name": name} for name in ("OddKs", "mail", "oddks2")])

    assert "Did you mean --keyspace '\"OddKs\"'?" in str(unknown_keyspace(there, "oddks"))
    assert "Did you mean --keyspace mail?" in str(unknown_keyspace(there, '"Mail"'))
    assert "mailmend schema apply --keyspace nowhere" in str(unknown_keyspace(there, "nowhere"))


class ServerTwin(SchemaTwin):
    """A server that tells some of its settings, or none at all."""

    def __init__(self, settings: Mapping[str, str | None] | None, release_version: str = "5.0.9") -> None:
        super().__init__(release_version, mail=served(SCHEMA))
        self.settings = settings
        self.scylla = False

    def query(self, text: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        if "scylla_local" in text:
            return [{"table_name": "scylla_local"}] if self.scylla else []
        if "system_views" not in text:
            return super().query(text, values)
        if self.settings is None:
            raise MailmendError("there is no such table here")
        return [{"value": self.settings[name]} for name in values if name in self.settings]


def test_statements_come_with_their_files_in_order() -> None:
    texts = {"b.cql": "CREATE TABLE b (k int PRIMARY KEY);", "empty.cql": " ", "a.cql": "DROP TABLE a; DROP TABLE b;"}
    assert [placed.file for placed in statements_of(texts)] == ["b.cql", "a.cql", "a.cql"]


def test_what_is_no_cql_is_reported_with_its_file() -> None:
    with pytest.raises(CqlSyntaxError, match=r"b\.cql, line 2, column 1") as refused:
        statements_of({"a.cql": "DROP TABLE a;", "b.cql": "DROP TABLE a;\nCREAT TABLE b (k int PRIMARY KEY);"})
    assert "^" in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "window", "paxos"),
    [
        (None, HINT_WINDOW_DEFAULT, ""),
        ({}, HINT_WINDOW_DEFAULT, ""),
        ({"max_hint_window_in_ms": "3600000", "paxos_variant": "v2"}, timedelta(hours=1), "v2"),
        ({"max_hint_window_in_ms": "1h", "paxos_variant": None}, HINT_WINDOW_DEFAULT, ""),
    ],
)
def test_a_server_tells_what_it_can(settings: Mapping[str, str | None] | None, window: timedelta, paxos: str) -> None:
    subject = live_subject(ServerTwin(settings), "mail", Knowledge(), None, None)
    assert (subject.knowledge.hint_window, subject.knowledge.paxos_variant) == (window, paxos)
    assert subject.release is ServerRelease.CASSANDRA_5_0
    assert subject.statements == ()
    assert "imapuidtable" in subject.knowledge.updated


def test_what_somebody_says_counts_more_than_what_the_server_tells() -> None:
    server = ServerTwin({"max_hint_window_in_ms": "3600000"}, "4.0.1")
    assert release_of(server) is ServerRelease.CASSANDRA_4_0
    table_of = live_subject(server, "mail", Knowledge(rows_max=5), ServerRelease.CASSANDRA_5_0, timedelta(hours=9))
    assert (table_of.release, table_of.knowledge.hint_window, table_of.knowledge.rows_max) == (
        ServerRelease.CASSANDRA_5_0,
        timedelta(hours=9),
        5,
    )


def test_a_keyspace_or_a_server_that_is_not_known_is_refused() -> None:
    with pytest.raises(UnknownKeyspace):
        live_subject(ServerTwin(None), "nowhere", Knowledge(), None, None)
    with pytest.raises(WrongUse, match="is no server"):
        live_subject(ServerTwin(None, "2.1.22"), "mail", Knowledge(), None, None)


def test_scylla_is_known_by_a_table_of_its_own() -> None:
    server = ServerTwin(None, "3.0.8")
    server.scylla = True
    assert release_of(server) is ServerRelease.SCYLLA
    assert live_subject(server, "mail", Knowledge(), None, None).release is ServerRelease.SCYLLA


def mask_row(column_name: str, function: str, *arguments: tuple[str, str, bool], keyspace: str = "system") -> Row:
    types, values, nulls = zip(*arguments, strict=True) if arguments else ((), (), ())
    return {
        "table_name": "t",
        "column_name": column_name,
        "function_keyspace": keyspace,
        "function_name": function,
        "function_argument_types": list(types),
        "function_argument_values": list(values),
        "function_argument_nulls": list(nulls),
    }


def test_the_masks_of_columns_are_read_as_cql_has_them() -> None:
    masks = [
        mask_row("a", "mask_default"),
        mask_row("b", "mask_inner", ("int", "1", False), ("int", "", True)),
        mask_row("c", "mask_replace", ("text", "it's", False)),
        mask_row("d", "hide", keyspace="Own"),
    ]
    found = table_of(*(column(name) for name in "abcde"), column_masks=masks)
    assert [found.column(name).mask for name in "abcde"] == [
        "mask_default()",
        "mask_inner(1, null)",
        "mask_replace('it''s')",
        '"Own".hide()',
        "",
    ]


def test_a_server_before_5_0_is_not_asked_for_masks() -> None:
    server = RowsServer(tables=[table_row()], columns=[KEY])
    server.release_version = "4.1.10"
    live_schema(server, "mail")
    assert not any("column_masks" in text for text, *_ in server.asked)


def test_a_changed_mask_is_a_difference() -> None:
    """Input 0001_pre_people.cql: the masks were changed by hand, and verify said that all is as expected."""
    expected = table_of(column("a"), column("b"), column_masks=[mask_row("a", "mask_default")])
    live = table_of(column("a"), column("b"), column_masks=[mask_row("b", "mask_null")])
    found = differences(Schema((), (expected,)), Schema((), (live,)))
    assert [str(one) for one in found] == [
        "different mask: t.a: expected mask_default(), found no mask",
        "different mask: t.b: expected no mask, found mask_null()",
    ]


@pytest.mark.parametrize(
    ("flags", "columns", "names"),
    [
        ((), (column("column1", "clustering", 0), column("value"), column("team", "static")), ("k", "team")),
        (("dense",), (column("c", "clustering", 0), column("v")), ("k", "c", "v")),
        (("dense",), (column("c", "clustering", 0), column("value", type="empty")), ("k", "c")),
    ],
)
def test_a_table_with_compact_storage_has_its_own_columns_only(
    flags: tuple[str, ...], columns: tuple[Row, ...], names: tuple[str, ...]
) -> None:
    found = table_of(*columns, tables=[table_row(flags=frozenset(flags))])
    assert found.names == names
    assert found.options[COMPACT_STORAGE] == "true"
    assert all(one.kind is Kind.REGULAR for one in found.regular)


def test_what_the_model_has_no_place_for_is_named() -> None:
    server = RowsServer(
        functions=[{"function_name": "Half", "argument_types": ["int"]}],
        aggregates=[{"aggregate_name": "total", "argument_types": ["int", "text"]}],
        triggers=[{"trigger_name": "copy", "table_name": "mail"}],
        tables=[{"table_name": "mail", "extensions": {"search": b"1"}}, {"table_name": "box", "extensions": {}}],
        keyspaces=[{"keyspace_name": "mail", "durable_writes": False}],
    )
    assert beside_model(server, "mail") == (
        "aggregate total(int, text)",
        "durable_writes = false",
        "extensions of mail",
        'function "Half"(int)',
        "trigger copy on mail",
    )
