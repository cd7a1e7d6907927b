"""What a live mail keyspace is taken to: its own generation, leaving alone what is somebody else's."""

from dataclasses import replace

import pytest

from model.catalog.generations import GENERATIONS, JAMES_3_8, JAMES_3_9, NEWEST, Generation, gap_to_catalog, recognise
from model.catalog.mail import SCHEMA, CompactionChoice
from model.schema.changes import Include, SchemaChange, changes
from model.schema.keyspace import Schema
from model.schema.risk import Risk
from model.schema.statements import CreateTable, DropColumns, SetOptions
from model.schema.table import Column, Compaction, Kind, Table
from tests.support.schemas import columns_of, served, with_columns, without_tables

NOTHING: frozenset[Include] = frozenset()
EVERYTHING = frozenset(Include)
OTHER = Table("orders", (Column("id", "uuid", Kind.PARTITION),))


def sized(schema: Schema) -> Schema:
    tables = [replace(one, compaction=Compaction("SizeTieredCompactionStrategy")) for one in schema.tables]
    return replace(schema, tables=tuple(tables))


def carried_out(live: Schema, found: tuple[SchemaChange, ...]) -> Schema:
    for one in found:
        assert one.statement is not None, one.manual
        live = one.statement.apply(live)
    return live


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda one: one.name)
def test_a_keyspace_of_james_that_agrees_is_left_alone(generation: Generation) -> None:
    live = without_tables(sized(served(generation.schema)), "blobs", "blobparts")
    live = replace(live, tables=(*live.tables, OTHER))
    assert changes(gap_to_catalog(live, NOTHING)) == ()
    assert changes(gap_to_catalog(live, frozenset({Include.REMOVALS}))) == ()


def test_options_are_proposed_on_request_and_marked() -> None:
    found = changes(gap_to_catalog(sized(served(JAMES_3_9.schema)), frozenset({Include.OPTIONS})))
    assert {one.assessment.worst for one in found} == {Risk.REWRITE}
    assert {"imapUidTable", "messageIdTable", "messageV3"} <= {one.owner for one in found}
    assert all(isinstance(one.statement, SetOptions) for one in found)


def test_a_compaction_that_is_named_is_the_one_that_is_proposed() -> None:
    found = changes(
        gap_to_catalog(served(SCHEMA, made_here=True), frozenset({Include.OPTIONS}), choice=CompactionChoice.LEVELED)
    )
    assert [one.owner for one in found] == ["imapUidTable", "messageIdTable", "messageV3"]
    for one in found:
        assert isinstance(one.statement, SetOptions)
        assert "LeveledCompactionStrategy" in one.statement.options["compaction"]


def test_what_is_missing_is_created_or_added() -> None:
    whole = served(JAMES_3_8.schema)
    live = with_columns(
        without_tables(whole, "firstunseen"),
        "messageidtable",
        [one for one in columns_of(whole, "messageidtable") if one.name != "save_date"],
    )
    found = changes(gap_to_catalog(live, NOTHING))
    assert [one.owner for one in found] == ["messageIdTable", "firstUnseen"]
    assert recognise(carried_out(live, found)).agrees


def test_the_newest_generation_is_reached_on_request() -> None:
    live = served(JAMES_3_8.schema)
    adding = changes(gap_to_catalog(live, NOTHING, newest=True))
    assert {type(one.statement) for one in adding if one.owner.startswith("thread_")} == {CreateTable}
    assert not any(isinstance(one.statement, DropColumns) for one in adding)

    whole = changes(gap_to_catalog(live, EVERYTHING, newest=True))
    after = carried_out(live, whole)
    assert recognise(after).generation is NEWEST
    assert after.table("threadtable") is not None


def test_an_empty_keyspace_gets_the_whole_catalog() -> None:
    after = carried_out(Schema((), ()), changes(gap_to_catalog(Schema((), ()), NOTHING)))
    assert recognise(after).agrees
    assert {table.name for table in after.tables} == {table.name for table in SCHEMA.tables}
