"""Folders of migrations: what is read, and every mistake told with its file before anything is run."""

from pathlib import Path

import pytest

from mailmend.cql.migrate.files import read_folder, shipped
from mailmend.cql.schema.difference import differences
from mailmend.cql.schema.migration_plan import declared_by
from mailmend.cql.schema.migrations import Phase
from mailmend.cql.statements import CreateTable, CreateType
from mailmend.model.catalog.mail import SCHEMA
from mailmend.model.errors import BadMigration, CqlSyntaxError
from tests.support.migrating import HEAD, SHOP, folder, written


def test_our_own_migrations_make_exactly_what_the_catalog_declares() -> None:
    made = declared_by(shipped())
    assert differences(SCHEMA, made) == differences(made, SCHEMA) == ()
    assert {table.spelling for table in made.tables} == {table.spelling for table in SCHEMA.tables}
    columns = {table.spelling: [column.spelling for column in table.columns] for table in SCHEMA.tables}
    assert {table.spelling: [column.spelling for column in table.columns] for table in made.tables} == columns
    assert {one.spelling: one.fields for one in made.types} == {one.spelling: one.fields for one in SCHEMA.types}


def test_our_own_migrations_only_add() -> None:
    for one in shipped():
        assert one.file.phase is Phase.PRE
        assert {type(parsed.statement) for parsed in one.statements} <= {CreateTable, CreateType}
        assert min(len(one.head.why), len(one.head.effect), len(one.head.undo)) > 20


def test_a_folder_is_read_in_order_and_other_files_are_let_be(tmp_path: Path) -> None:
    path = written(tmp_path)
    for name in ("README.md", ".0001_pre_orders.cql.swp", ".hidden.cql", "0001_pre_orders.cql~"):
        path.joinpath(name).write_text("nothing to run", encoding="utf-8")
    path.joinpath("old").mkdir()
    assert read_folder(path) == folder()


def test_windows_line_ends_and_a_byte_order_mark_change_nothing(tmp_path: Path) -> None:
    for name, cql in SHOP.items():
        tmp_path.joinpath(name).write_bytes(b"\xef\xbb\xbf" + (HEAD + cql).replace("\n", "\r\n").encode())
    assert [one.checksum for one in read_folder(tmp_path)] == [one.checksum for one in folder()]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("0001_pre_a.cql", b"", "0001_pre_a.cql is empty"),
        ("0001_pre_a.cql", b" \n\t\n", "0001_pre_a.cql is empty"),
        ("0001_pre_a.cql", HEAD.encode(), "holds no statement"),
        ("0001_pre_a.cql", b"DROP TABLE a;", "does not say at its top: Why, Effect, Undo"),
        ("0001_pre_a.cql", HEAD.encode() + b"-- caf\xe9", "0001_pre_a.cql is not UTF-8 text: byte .* is 0xe9"),
        ("0002_pre_a.cql", HEAD.encode() + b"DROP TABLE a;", "number 0001 is missing"),
        ("0001_pre_a.CQL", HEAD.encode() + b"DROP TABLE a;", "is not the name of a migration"),
        ("add labels.cql", HEAD.encode() + b"DROP TABLE a;", "0007_pre_add_labels.cql"),
    ],
    ids=range(8),
)
def test_a_file_that_is_no_migration_is_refused(tmp_path: Path, name: str, text: bytes, expected: str) -> None:
    tmp_path.joinpath(name).write_bytes(text)
    with pytest.raises(BadMigration, match=expected) as refused:
        read_folder(tmp_path)
    assert refused.value.mend


def test_a_folder_that_is_none_or_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadMigration, match="is not a folder") as refused:
        read_folder(tmp_path / "nowhere")
    assert "--migrations" in refused.value.mend
    with pytest.raises(BadMigration, match="holds no migration"):
        read_folder(tmp_path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    link = tmp_path / "0001_pre_orders.cql"
    link.symlink_to(link)
    with pytest.raises(BadMigration, match=r"0001_pre_orders\.cql cannot be read: Too many levels of symbolic links"):
        read_folder(tmp_path)


def test_a_folder_in_a_files_place_is_named(tmp_path: Path) -> None:
    tmp_path.joinpath("0001_pre_a.cql").mkdir()
    with pytest.raises(BadMigration, match=r"0001_pre_a\.cql cannot be read"):
        read_folder(tmp_path)


def test_bad_syntax_is_reported_with_file_line_column_and_caret(tmp_path: Path) -> None:
    written(tmp_path, {"0001_pre_a.cql": "CREATE TABLE a (k int PRIMARY KEY);\nALTER TABEL a ADD b int;\n"})
    with pytest.raises(CqlSyntaxError, match=r"0001_pre_a\.cql, line 6, column 7") as refused:
        read_folder(tmp_path)
    assert "\n      ^" in str(refused.value)


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("DROP KEYSPACE k", "the keyspace is an argument"),
        ("CREATE ROLE r", "mailmend schema grants"),
        ("SELECT * FROM a", "does not show whether it took effect"),
        ("UPDATE a SET c = c + 1 WHERE k = 1", "would not leave the same rows"),
        ("UPDATE a SET c = c - 1 WHERE k = 1", "would not leave the same rows"),
        ("UPDATE a SET l = l + ['x'] WHERE k = 1", "would not leave the same rows"),
        ("UPDATE a SET l = ['x'] + l WHERE k = 1", "would not leave the same rows"),
        ("INSERT INTO a (k, at) VALUES (1, now())", "would not leave the same rows"),
        ("INSERT INTO a (k, at) VALUES (1, toTimestamp(now()))", "would not leave the same rows"),
        ("INSERT INTO a (k) VALUES (uuid())", "would not leave the same rows"),
        ("INSERT INTO a (k) VALUES (uuid()) IF NOT EXISTS", "would not leave the same rows"),
        ("INSERT INTO a (k, at) VALUES (1, current_timestamp())", "would not leave the same rows"),
        ("INSERT INTO a (k, at) VALUES (1, currentDate ( ))", "would not leave the same rows"),
        ("INSERT INTO a (k, at) VALUES (1, current_timeuuid())", "would not leave the same rows"),
        ("INSERT INTO a (k, at) VALUES (1, system.current_time())", "would not leave the same rows"),
        ('INSERT INTO a (k, at) VALUES (1, "now"())', "would not leave the same rows"),
        ("UPDATE a SET at = to_timestamp(now()) WHERE k = 1", "would not leave the same rows"),
        ("UPDATE a SET l -= ['x'] WHERE k = 1", "would not leave the same rows"),
        ("INSERT INTO a (k) VALUES (?)", "a migration cannot bind values"),
        ("UPDATE a SET b = :b WHERE k = 1", "a migration cannot bind values"),
    ],
)
def test_what_no_migration_may_hold_is_refused_with_the_reason(tmp_path: Path, statement: str, why: str) -> None:
    written(tmp_path, {"0001_pre_a.cql": f"DROP TABLE IF EXISTS b;\n{statement};\n"})
    with pytest.raises(BadMigration, match=r"0001_pre_a\.cql, line 6: a migration may not hold") as refused:
        read_folder(tmp_path)
    assert why in refused.value.mend


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO a (k, b) VALUES (-1, 'now() + uuid()')",
        "INSERT INTO a (k) VALUES (1) IF NOT EXISTS",
        "INSERT INTO a (now, uuid) VALUES (1, 2)",
        "CREATE TABLE now (k int PRIMARY KEY)",
        "INSERT INTO a (k, m) VALUES (1, {'?': 1, f(2): 'b', [3]: ':c'})",
        "INSERT INTO a (k, at) VALUES (1, to_timestamp('2026-01-01'))",
        "UPDATE a USING TTL 60 SET b = -1 WHERE k = 1",
        "DELETE b FROM a WHERE k = 1",
        "CREATE INDEX ON a (b)",
        "ALTER TABLE a WITH comment = 'a - b + c'",
    ],
)
def test_what_can_be_sent_twice_may_stand_in_a_migration(tmp_path: Path, statement: str) -> None:
    written(tmp_path, {"0001_pre_a.cql": f"{statement};\n"})
    assert len(read_folder(tmp_path)) == 1
