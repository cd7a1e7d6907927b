"""What a server tells of its schema, as values of the model."""

from dataclasses import replace

import pytest

from cql.introspect import keyspace_exists, live_schema
from model.catalog.generations import GENERATIONS, Generation
from model.catalog.james_tables import EMAIL_QUERY_VIEW, EVENT_STORE, THREAD
from model.catalog.mail import SCHEMA
from model.errors import BadIdentifier
from model.schema.difference import differences
from model.schema.keyspace import Schema
from model.schema.table import Column, Compaction, Kind, Table
from tests.support.schema_twin import SchemaTwin
from tests.support.schemas import served


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda one: one.name)
def test_what_a_server_holds_is_read_back(generation: Generation) -> None:
    """Every type, table, key and option of every generation."""
    live = live_schema(SchemaTwin(mail=served(generation.schema)), "mail")
    assert differences(generation.schema, live) == ()
    assert {table.name for table in live.tables} == {table.name for table in generation.schema.tables}


def test_key_columns_come_first_in_key_order() -> None:
    """A server lists columns by name; a key is a matter of position."""
    live = live_schema(SchemaTwin(mail=served(Schema((), (THREAD, EMAIL_QUERY_VIEW, EVENT_STORE)))), "mail")
    keys = {table.name: [column.name for column in table.key] for table in live.tables}
    assert keys["thread_2"] == ["username", "mimemessageid", "messageid"]
    assert keys["email_query_view_received_at"] == ["mailboxid", "receivedat", "messageid"]
    kinds = {column.name: column.kind for column in live.tables[2].columns}
    assert kinds == {
        "aggregateid": Kind.PARTITION,
        "eventid": Kind.CLUSTERING,
        "snapshot": Kind.STATIC,
        "event": Kind.REGULAR,
    }


def test_the_order_of_clustering_is_read() -> None:
    """Latest first is not the same table as latest last."""
    live = live_schema(SchemaTwin(mail=served(Schema((), (EMAIL_QUERY_VIEW,)))), "mail")
    assert [column.descending for column in live.tables[0].clustering] == [True, False]


def test_types_are_read_in_their_one_spelling() -> None:
    """No spaces after commas."""
    table = Table("t", (Column("id", "uuid", Kind.PARTITION), Column("m", "frozen<map<text,blob>>")))
    live = live_schema(SchemaTwin(mail=Schema((), (table,))), "mail")
    assert live.tables[0].column("m").type == "frozen<map<text,blob>>"


def test_options_are_read_as_cql_has_them() -> None:
    """Numbers, maps and truths; what is null, or no option, is not among them."""
    table = Table(
        "t",
        (Column("id", "uuid", Kind.PARTITION),),
        comment="Mine",
        compaction=Compaction("LeveledCompactionStrategy", {"sstable_size_in_mb": "160"}),
        options={"gc_grace_seconds": "0", "caching": "{'keys': 'ALL', 'rows_per_partition': '10'}"},
    )
    found = live_schema(SchemaTwin(mail=Schema((), (table,))), "mail").tables[0]
    assert found.comment == "Mine"
    assert found.compaction == table.compaction
    assert found.options == {**table.options, "crc_check_chance": "1.0", "cdc": "false"}


def test_an_unknown_keyspace_holds_nothing() -> None:
    """Whether it exists is another question."""
    twin = SchemaTwin(empty=Schema((), ()))
    assert live_schema(twin, "nowhere").empty
    assert live_schema(twin, "empty").empty
    assert keyspace_exists(twin, "Empty")
    assert not keyspace_exists(twin, "nowhere")


def test_a_keyspace_is_asked_for_by_a_valid_name_only() -> None:
    """Though it is bound, never spliced."""
    for ask in (live_schema, keyspace_exists):
        with pytest.raises(BadIdentifier):
            ask(SchemaTwin(), "mail; DROP KEYSPACE mail")


def test_a_schema_finds_its_tables_in_any_case() -> None:
    """As CQL does for names without quotes."""
    live = served(SCHEMA)
    assert live.table("imapUidTable") is live.table("IMAPUIDTABLE")
    assert live.user_type("mailboxBase") is not None
    assert live.table("nowhere") is None
    assert live.user_type("nowhere") is None
    assert not replace(live, types=()).empty
