"""A live keyspace as one file: in the order in which it can run, and without what a server lists but does not take."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql import export
from mailmend.cql.export import SCHEMA_FILE, live_file_text, schema_file_text
from mailmend.cql.language.parser import parse
from mailmend.cql.render import in_every_data_centre, table_cql
from mailmend.cql.schema.difference import differences
from mailmend.cql.schema.generations import GENERATIONS, Generation
from mailmend.cql.statements import CreateIndex, CreateKeyspace, CreateTable, CreateType, CreateView, apply_all
from mailmend.model.catalog.mail import SCHEMA
from mailmend.model.keyspace import Index, Schema, View
from mailmend.model.table import Column, Kind, Table, UserType
from tests.support.schemas import served
from tests.support.statements import LITERALS, PLAIN, TEXTS

NEVER_GIVEN = {"read_repair_chance": "0.0", "dclocal_read_repair_chance": "0.0"}
MAIL = Table("mail", (Column("k", "int", Kind.PARTITION), Column("v", "frozen<pair>")), options=NEVER_GIVEN)
BY_V = Table(
    "by_v", (Column("v", "frozen<pair>", Kind.PARTITION), Column("k", "int", Kind.CLUSTERING)), options=NEVER_GIVEN
)
LIVE = Schema(
    (UserType("pair", (("a", "int"), ("b", "text"))),),
    (MAIL,),
    (Index("mail_v", "mail", "v"),),
    (View(BY_V, "mail", "v IS NOT NULL AND k IS NOT NULL"),),
)


def test_everything_comes_after_what_it_needs() -> None:
    text = live_file_text("mail", LIVE, in_every_data_centre(3), "5.0.9")

    kinds = [type(parsed.statement) for parsed in parse(text)]
    assert kinds == [CreateKeyspace, CreateType, CreateTable, CreateIndex, CreateView]
    assert "'replication_factor': '3'" in text
    assert text.startswith("-- Keyspace mail as Cassandra 5.0.9 has it.")


def test_options_that_no_server_takes_any_more_are_left_out() -> None:
    lasting = Table("mail", MAIL.columns, options={**NEVER_GIVEN, "gc_grace_seconds": "60"})
    text = live_file_text("mail", Schema(LIVE.types, (lasting,), (), LIVE.views), in_every_data_centre(1), "4.1.10")

    assert "read_repair_chance" not in text
    assert "gc_grace_seconds = 60" in text


def test_an_empty_keyspace_is_one_statement() -> None:
    assert len(parse(live_file_text("mail", Schema((), ()), in_every_data_centre(1), "5.0"))) == 1


def again(text: str) -> Schema:
    return apply_all(parsed for parsed in parse(text) if not isinstance(parsed.statement, CreateKeyspace))


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda one: one.name)
def test_the_file_makes_the_keyspace_again(generation: Generation) -> None:
    live = served(generation.schema)

    made = again(live_file_text("mail", live, in_every_data_centre(3), "5.0.9"))

    assert differences(live, made) == differences(made, live) == ()
    assert [(one.name, one.compaction, one.options) for one in made.tables] == [
        (one.name, one.compaction, one.options) for one in live.tables
    ]


@given(
    TEXTS,
    st.dictionaries(PLAIN.map(str.lower).filter(lambda one: one not in {"comment", "compaction", "id"}), LITERALS),
)
def test_any_comment_and_any_option_comes_back_as_it_was(comment: str, options: dict[str, str]) -> None:
    table = replace(MAIL, comment=comment, options=options)

    (made,) = again(live_file_text("mail", Schema(LIVE.types, (table,)), in_every_data_centre(3), "5.0.9")).tables

    assert (made.comment, made.options) == (comment, options)


def test_the_schema_file_is_what_the_catalog_says() -> None:
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_file_text()


def test_the_check_of_the_schema_file_fails_on_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(export, "SCHEMA_FILE", tmp_path / "schema.cql")
    assert export.main(["--check"]) == 1
    assert export.main([]) == 0
    assert export.main(["--check"]) == 0
    (tmp_path / "schema.cql").write_text("-- mine", encoding="utf-8")
    assert export.main(["--check"]) == 1
    assert "python -m mailmend.cql.export" in capsys.readouterr().err


def test_a_change_of_the_catalog_changes_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    before = schema_file_text()
    changed = replace(SCHEMA, tables=(*SCHEMA.tables, MAIL))
    monkeypatch.setattr(export, "SCHEMA", changed)
    assert schema_file_text() == f"{before}\n{table_cql('apache_james', MAIL)}\n"


def test_what_the_file_does_not_create_is_named_in_it() -> None:
    beside = ("aggregate total(int)", "function half(int)", "trigger copy on mail")
    text = live_file_text("mail", LIVE, in_every_data_centre(3), "5.0.9", beside)

    assert "-- This file does not create these; DESCRIBE KEYSPACE mail shows them:\n" in text
    assert [line for line in text.splitlines() if line.startswith("--   ")] == [f"--   {name}" for name in beside]
    assert len(parse(text)) == len(parse(live_file_text("mail", LIVE, in_every_data_centre(3), "5.0.9")))


def test_a_quoted_keyspace_is_exported_by_its_own_name() -> None:
    text = live_file_text('"OddKs"', LIVE, in_every_data_centre(1), "5.0.9", beside=("function f(int)",))

    assert 'CREATE KEYSPACE IF NOT EXISTS "OddKs" WITH' in text
    assert 'CREATE TABLE IF NOT EXISTS "OddKs".mail (' in text
    assert 'DESCRIBE KEYSPACE "OddKs" shows them' in text
    assert "oddks" not in text
