"""A fingerprint says whether a keyspace is what it was, object by object, and says nothing about options."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.catalog import SCHEMA
from model.ddl import Index
from model.generations import GENERATIONS
from model.migrating.baselines import Baseline, Since, changes_since, digests, fingerprint_of
from model.schema import Schema
from model.table import Column, Compaction, Kind, Table, UserType
from tests.support.schemas import served, with_columns, without_tables

LIVE = served(SCHEMA)
BASELINE = Baseline("3.9", digests(LIVE), (), datetime(2026, 11, 1, tzinfo=UTC), "ann@host", "1.0")


def test_a_keyspace_that_is_as_it_was_shows_no_change() -> None:
    """Nor does one whose options were tuned, or whose columns a server lists in another order."""
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
    """Tables, types and columns outside the key."""
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
    """One object changed, one is told."""
    assert changes_since(BASELINE, live) == (change,)
    assert fingerprint_of(digests(live)) != BASELINE.fingerprint


def test_generations_have_fingerprints_of_their_own() -> None:
    """No two of them look the same."""
    assert len({fingerprint_of(digests(one.schema)) for one in GENERATIONS}) == len(GENERATIONS)
