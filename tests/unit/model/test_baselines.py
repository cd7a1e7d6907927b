"""A fingerprint says whether a keyspace is what it was, object by object, and says nothing about options."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.catalog.generations import GENERATIONS
from model.catalog.mail import SCHEMA
from model.migrations.history import Baseline, Since, changes_since, digests, fingerprint_of
from model.schema.keyspace import Index, Schema, View
from model.schema.table import Column, Compaction, Kind, Table, UserType
from tests.support.schemas import served, with_columns, without_tables

LIVE = served(SCHEMA)
BASELINE = Baseline("3.9", digests(LIVE), (), datetime(2026, 11, 1, tzinfo=UTC), "ann@host", "1.0")


def test_a_keyspace_that_is_as_it_was_shows_no_change() -> None:
    tuned = replace(
        LIVE,
        tables=tuple(
            replace(one, compaction=Compaction("LeveledCompactionStrategy"), options={}, comment="x")
            for one in LIVE.tables
        ),
    )
    assert changes_since(BASELINE, LIVE) == ()
    assert changes_since(BASELINE, tuned) == ()
    assert fingerprint_of(digests(tuned)) == BASELINE.fingerprint


@given(st.permutations(LIVE.tables), st.permutations(LIVE.types))
def test_the_order_in_which_a_server_lists_things_does_not_count(
    tables: Sequence[Table], types: Sequence[UserType]
) -> None:
    turned = tuple(table.with_columns((*table.key, *reversed(table.regular))) for table in tables)
    assert digests(Schema(tuple(types), turned)) == digests(LIVE)


@pytest.mark.parametrize(
    ("live", "change"),
    [
        (without_tables(LIVE, "modseq"), (Since.GONE, "table modseq")),
        (replace(LIVE, tables=(*LIVE.tables, Table("notes", (Column("id", "uuid", Kind.PARTITION),)))),
         (Since.NEW, "table notes")),
        (with_columns(LIVE, "modseq", (Column("mailboxid", "timeuuid", Kind.PARTITION),)),
         (Since.CHANGED, "table modseq")),
        (replace(LIVE, types=(*LIVE.types, UserType("size", (("bytes", "int"),)))), (Since.NEW, "type size")),
        (replace(LIVE, indexes=(Index("by_name", "mailbox", "name"),)), (Since.NEW, "index by_name")),
    ],
    ids=["gone", "new", "columns", "type", "index"],
)  # fmt: skip
def test_each_change_is_told_by_its_object(live: Schema, change: tuple[Since, str]) -> None:
    assert changes_since(BASELINE, live) == (change,)
    assert fingerprint_of(digests(live)) != BASELINE.fingerprint


def test_generations_have_fingerprints_of_their_own() -> None:
    assert len({fingerprint_of(digests(one.schema)) for one in GENERATIONS}) == len(GENERATIONS)


KEY, UID = Column("k", "int", Kind.PARTITION), Column("uid", "int", Kind.CLUSTERING)
NOTES = Table("notes", (KEY, UID, Column("n", "text"), Column("tags", "set<text>")))
NEWEST_FIRST = View(
    Table("by_uid", (replace(UID, kind=Kind.PARTITION), replace(KEY, kind=Kind.CLUSTERING))),
    "notes",
    "uid IS NOT NULL AND k IS NOT NULL",
)
WHOLE = Schema((UserType("size", (("bytes", "int"),)),), (NOTES,), (Index("By_n", "notes", "n"),), (NEWEST_FIRST,))


def changed(live: Schema) -> list[tuple[str, str]]:
    baseline = replace(BASELINE, objects=digests(WHOLE))
    return [(since.value, name) for since, name in changes_since(baseline, live)]


@pytest.mark.parametrize(
    ("column", "other"),
    [
        (UID, replace(UID, descending=True)),
        (UID, replace(UID, type="bigint")),
        (UID, replace(UID, kind=Kind.PARTITION)),
        (NOTES.columns[2], replace(NOTES.columns[2], kind=Kind.STATIC)),
        (NOTES.columns[2], replace(NOTES.columns[2], type="blob")),
        (NOTES.columns[2], replace(NOTES.columns[2], spelling="m")),
        (NOTES.columns[3], replace(NOTES.columns[3], type="frozen<set<text>>")),
    ],
    ids=["order", "key type", "key", "static", "type", "name", "frozen"],
)
def test_whatever_cql_cannot_change_back_shows(column: Column, other: Column) -> None:
    columns = tuple(other if one is column else one for one in NOTES.columns)
    assert changed(replace(WHOLE, tables=(replace(NOTES, columns=columns),))) == [
        ("changed since adoption", "table notes")
    ]


@pytest.mark.parametrize(
    ("live", "found"),
    [
        (replace(WHOLE, views=()), [("gone since adoption", "view by_uid")]),
        (
            replace(WHOLE, views=(replace(NEWEST_FIRST, where="uid > 5 AND k IS NOT NULL"),)),
            [("changed since adoption", "view by_uid")],
        ),
        (
            replace(WHOLE, indexes=(Index("By_n", "notes", "n", "sai"),)),
            [("changed since adoption", "index by_n")],
        ),
        (replace(WHOLE, types=(UserType("size", (("Bytes", "int"),)),)), []),
        (replace(WHOLE, indexes=(Index("by_N", "NOTES", "N"),)), []),
        (replace(WHOLE, types=(UserType("size", (("bytes", "bigint"),)),)), [("changed since adoption", "type size")]),
        (
            Schema((), (), (), ()),
            [
                ("gone since adoption", "index by_n"),
                ("gone since adoption", "table notes"),
                ("gone since adoption", "type size"),
                ("gone since adoption", "view by_uid"),
            ],
        ),
    ],
    ids=["view gone", "view", "index class", "field in another case", "index in another case", "field type", "all"],
)
def test_types_indexes_and_views_count_as_tables_do(live: Schema, found: list[tuple[str, str]]) -> None:
    assert changed(live) == found


def test_a_server_spells_types_in_its_own_way() -> None:
    spelled = replace(NOTES, columns=(*NOTES.columns[:2], Column("n", "varchar"), Column("tags", "set< text >")))
    assert changed(replace(WHOLE, tables=(spelled,))) == []


def test_a_fingerprint_is_short_enough_to_be_read_out() -> None:
    assert len(BASELINE.fingerprint) == 16
    assert {len(one) for one in BASELINE.objects.values()} == {16}
    assert fingerprint_of({}) == "e3b0c44298fc1c14"
