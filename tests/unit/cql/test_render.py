"""CREATE text from the model: complete, validated, and what each server understands."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from mailmend.cql.render import (
    CASSANDRA_5,
    ServerVersion,
    ddl_cql,
    in_every_data_centre,
    keyspace_cql,
    parse_version,
    schema_cql,
    table_cql,
    type_cql,
)
from mailmend.cql.schema.generations import GENERATIONS
from mailmend.cql.statements import AddColumns, CreateIndex, Name, Other, SetOptions, Statement, Truncate
from mailmend.model.catalog.james_tables import EMAIL_QUERY_VIEW, EVENT_STORE, THREAD
from mailmend.model.catalog.ledger import LEDGER_TABLES
from mailmend.model.catalog.mail import ATTACHMENTS, MESSAGE_ID, SCHEMA, CompactionChoice, compacted
from mailmend.model.catalog.mail_queue import ENQUEUED_MAILS
from mailmend.model.errors import BadIdentifier, CqlSyntaxError, WrongUse
from mailmend.model.keyspace import Index
from mailmend.model.names import text_literal
from mailmend.model.table import COMPACT_STORAGE, Column, Kind, Table, UserType

CASSANDRA_4_1 = ServerVersion(4, 1)
KEY = Column("id", "uuid", Kind.PARTITION)


def test_a_table_with_everything() -> None:
    table = Table(
        "noteTable",
        (
            Column("boxId", "timeuuid", Kind.PARTITION),
            Column("owner", "text", Kind.PARTITION),
            Column("at", "timestamp", Kind.CLUSTERING, descending=True),
            Column("uid", "bigint", Kind.CLUSTERING),
            Column("words", "frozen<list<text>>"),
            Column("total", "int", Kind.STATIC),
        ),
        comment="Bob's notes",
        options={"gc_grace_seconds": "0"},
    )
    assert table_cql("mail", table) == (
        "CREATE TABLE IF NOT EXISTS mail.noteTable (\n"
        "    boxId timeuuid,\n"
        "    owner text,\n"
        "    at timestamp,\n"
        "    uid bigint,\n"
        "    words frozen<list<text>>,\n"
        "    total int STATIC,\n"
        "    PRIMARY KEY ((boxId, owner), at, uid)\n"
        ") WITH CLUSTERING ORDER BY (at DESC, uid ASC)\n"
        "    AND comment = 'Bob''s notes'\n"
        "    AND gc_grace_seconds = 0;"
    )


def test_a_table_with_nothing() -> None:
    assert table_cql("mail", Table("t", (KEY,))) == (
        "CREATE TABLE IF NOT EXISTS mail.t (\n    id uuid,\n    PRIMARY KEY ((id))\n);"
    )


def test_a_user_type() -> None:
    assert type_cql("mail", ATTACHMENTS) == (
        "CREATE TYPE IF NOT EXISTS mail.attachments (\n"
        "    id text,\n    name text,\n    cid text,\n    isInline boolean\n);"
    )


def test_a_keyspace() -> None:
    assert keyspace_cql("Mail_1", in_every_data_centre(2)) == (
        "CREATE KEYSPACE IF NOT EXISTS mail_1 WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'replication_factor': '2'};"
    )


def test_james_own_special_keys() -> None:
    assert "PRIMARY KEY ((username, mimeMessageId), messageId)" in table_cql("mail", THREAD)
    assert "CLUSTERING ORDER BY (receivedAt DESC, messageId ASC)" in table_cql("mail", EMAIL_QUERY_VIEW)
    assert "snapshot int STATIC" in table_cql("mail", EVENT_STORE)


@pytest.mark.parametrize("name", ["", "1st", "a b", "a;b", 'a"', "a'b", "a-b", "order", "token", '"', '""', '"a"b"'])
def test_no_odd_name_gets_into_the_text(name: str) -> None:
    attempts: tuple[Callable[[], str], ...] = (
        lambda: keyspace_cql(name, in_every_data_centre(1)),
        lambda: table_cql(name, Table("t", (KEY,))),
        lambda: table_cql("mail", Table(name, (KEY,))),
        lambda: table_cql("mail", Table("t", (KEY, Column(name, "int")))),
        lambda: table_cql("mail", Table("t", (KEY,), options={name: "1"})),
        lambda: type_cql("mail", UserType(name, (("a", "int"),))),
        lambda: type_cql("mail", UserType("t", ((name, "int"),))),
    )
    for attempt in attempts:
        with pytest.raises(BadIdentifier):
            attempt()


def test_a_name_in_quotes_is_written_as_it_is() -> None:
    odd = '"Bob\'s; ""box"""'
    table = Table('"Box"', (replace(KEY, spelling='"Id"'), Column(odd, "int", Kind.CLUSTERING)))
    assert table_cql("mail", table) == (
        'CREATE TABLE IF NOT EXISTS mail."Box" (\n'
        f'    "Id" uuid,\n    {odd} int,\n    PRIMARY KEY (("Id"), {odd})\n'
        f") WITH CLUSTERING ORDER BY ({odd} ASC);"
    )
    assert (table.name, table.names) == ("Box", ("Id", 'Bob\'s; "box"'))


def test_compact_storage_is_written_for_every_server() -> None:
    table = Table("t", (KEY,), options={COMPACT_STORAGE: "true"})
    for version in (ServerVersion(3, 11), ServerVersion(4, 1), ServerVersion(5)):
        assert table_cql("mail", table, version).endswith(" WITH COMPACT STORAGE;")


def test_a_mask_stands_after_the_type() -> None:
    table = Table("t", (KEY, Column("name", "text", mask="mask_default()")))
    assert "    name text MASKED WITH mask_default(),\n" in table_cql("mail", table)


def test_no_odd_type_gets_into_the_text() -> None:
    with pytest.raises(BadIdentifier):
        table_cql("mail", Table("t", (KEY, Column("a", "int); DROP TABLE x"))))


def test_quotes_in_a_text_are_doubled() -> None:
    assert text_literal("it's") == "'it''s'"


@pytest.mark.parametrize(
    ("release", "version"),
    [
        ("5.0.9", (5, 0)),
        ("4.1.10", (4, 1)),
        ("4.0-rc1", (4, 0)),
        ("3.0.8", (3, 0)),
        ("6", (6, 0)),
        ("5.1-SNAPSHOT", (5, 1)),
    ],
)
def test_versions_as_servers_tell_them(release: str, version: tuple[int, int]) -> None:
    assert parse_version(release) == ServerVersion(*version)


def test_older_servers_are_not_asked_for_what_they_refuse() -> None:
    unified = compacted((MESSAGE_ID,), CompactionChoice.UNIFIED)[0]
    assert "UnifiedCompactionStrategy" in table_cql("mail", unified, CASSANDRA_5)
    with pytest.raises(WrongUse, match=r"the server is Cassandra 4\.1, it needs 5\.0") as refused:
        table_cql("mail", unified, CASSANDRA_4_1)
    assert "--compaction leveled" in refused.value.mend


@pytest.mark.parametrize("choice", [CompactionChoice.TWCS, CompactionChoice.LEVELED])
def test_the_other_choices_suit_every_server(choice: CompactionChoice) -> None:
    tables = compacted(SCHEMA.tables, choice)
    assert [table_cql("m", one, CASSANDRA_4_1) for one in tables] == [table_cql("m", one) for one in tables]


def test_the_choice_of_compaction_is_for_the_big_message_tables_only() -> None:
    changed = [
        table.spelling
        for table, other in zip(SCHEMA.tables, compacted(SCHEMA.tables, CompactionChoice.LEVELED), strict=True)
        if table != other
    ]
    assert changed == ["imapUidTable", "messageIdTable", "messageV3"]


def test_every_table_of_every_generation_and_of_the_ledger_can_be_rendered() -> None:
    for generation in GENERATIONS:
        statements = list(schema_cql("mail", generation.schema))
        assert len(statements) == len(generation.schema.types) + len(generation.schema.tables)
    assert all(table_cql("mailmend", table) for table in LEDGER_TABLES)


@pytest.mark.parametrize(("release", "there"), [("3.0.8", False), ("3.11.17", False), ("4.0.0", True), ("5.0.9", True)])
def test_an_option_that_an_older_server_lacks_is_left_out(release: str, there: bool) -> None:
    text = table_cql("mail", ENQUEUED_MAILS, parse_version(release))
    assert ("read_repair = 'NONE'" in text) is there
    assert "default_time_to_live = " in text


def test_types_come_before_the_tables_that_use_them() -> None:
    kinds = [statement.split()[1] for statement in schema_cql("mail", SCHEMA)]
    assert kinds == sorted(kinds, reverse=True)


def test_a_statement_lies_in_the_keyspace_it_is_rendered_for() -> None:
    assert ddl_cql(Truncate(Name("t")), "mail") == "TRUNCATE mail.t;"
    assert ddl_cql(Truncate(Name("t", "k")), "mail") == "TRUNCATE k.t;"
    assert ddl_cql(Truncate(Name("t")), None) == "TRUNCATE t;"


def test_older_servers_are_not_asked_for_what_they_lack() -> None:
    index = CreateIndex(Name("t"), Index("i", "t", "a", "sai"))
    assert ddl_cql(index, None) == "CREATE INDEX i ON t (a) USING 'sai';"
    with pytest.raises(WrongUse, match=r"the server is Cassandra 4\.1, it needs 5\.0"):
        ddl_cql(index, None, ServerVersion(4, 1))
    own = CreateIndex(Name("t"), Index("i", "t", "a", "com.example.Own"))
    assert ddl_cql(own, None, ServerVersion(4, 1)) == "CREATE CUSTOM INDEX i ON t (a) USING 'com.example.Own';"


def test_data_statements_are_not_rendered() -> None:
    with pytest.raises(WrongUse, match="changes no schema"):
        ddl_cql(Other("SELECT"), None)


@pytest.mark.parametrize(
    "statement",
    [
        Truncate(Name("t; DROP TABLE u")),
        SetOptions(Name("t"), {"comment": "'a'; DROP TABLE u"}),
        SetOptions(Name("t"), {"a = 1 AND b": "1"}),
        CreateIndex(Name("t"), Index("i", "t", "a); DROP TABLE u")),
        AddColumns(Name("t"), (Column("a", "int", mask="f(); DROP TABLE u"),)),
        AddColumns(Name("t"), (Column("a", "int; DROP TABLE u"),)),
    ],
)
def test_nothing_breaks_out_of_its_place(statement: Statement) -> None:
    with pytest.raises((BadIdentifier, CqlSyntaxError)):
        ddl_cql(statement, "mail")
