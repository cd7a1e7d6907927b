"""What a folder of migrations has otherwise than the history, and what has changed since a keyspace was adopted."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.schema.generations import GENERATIONS
from mailmend.cql.schema.migrations import (
    Baseline,
    HistoryDrift,
    Migration,
    MigrationState,
    Since,
    StatementEntry,
    StatementState,
    Tampering,
    changes_since,
    checksum_of,
    digests,
    fingerprint_of,
    history_drift,
    in_order,
)
from mailmend.model.catalog.mail import SCHEMA
from mailmend.model.keyspace import Index, Schema, View
from mailmend.model.table import Column, Compaction, Kind, Table, UserType
from tests.support.migrating import SHOP, applied, folder, migration
from tests.support.schemas import served, with_columns, without_tables

DONE, BEGUN = StatementState.DONE, StatementState.BEGUN

FOLDER = folder()


def drift(files: Mapping[str, str], history: tuple[Migration, ...] = FOLDER) -> list[tuple[Tampering, str]]:
    found = history_drift(folder(files), applied(history))
    assert all(one.why and one.mend.strip() and one.file in str(one) for one in found)
    return [(one.kind, one.file) for one in found]


@given(st.integers(0, len(FOLDER)))
def test_a_folder_fits_its_own_history_however_far_that_came(number: int) -> None:
    for state in (MigrationState.APPLIED, MigrationState.BASELINE):
        assert history_drift(FOLDER, applied(FOLDER[:number], state)) == ()


@given(st.data())
def test_any_edit_of_what_was_applied_is_named(data: st.DataObject) -> None:
    done = data.draw(st.integers(1, len(FOLDER)))
    at = data.draw(st.integers(1, len(FOLDER)))
    name = str(FOLDER[at - 1].file)
    found = drift({**SHOP, name: SHOP[name] + "-- a word more\n"}, FOLDER[:done])
    assert found == ([(Tampering.EDITED, name)] if at <= done else [])


def test_a_file_that_is_gone_is_named() -> None:
    files = dict(list(SHOP.items())[:-1])
    assert drift(files) == [(Tampering.MISSING, "0004_pre_places.cql")]


def test_a_renamed_file_is_named_with_its_old_name() -> None:
    files = {name.replace("_pre_labels", "_post_tags"): cql for name, cql in SHOP.items()}
    (found,) = history_drift(folder(files), applied(FOLDER))
    assert (found.kind, found.file) == (Tampering.RENAMED, "0002_post_tags.cql")
    assert found.mend == "Rename it back: 0002_pre_labels.cql"


def test_a_file_put_in_between_moves_the_others() -> None:
    names = list(SHOP)
    files = {
        names[0]: SHOP[names[0]],
        "0002_pre_between.cql": "DROP TABLE between;",
        **{f"{int(name[:4]) + 1:04}{name[4:]}": SHOP[name] for name in names[1:]},
    }
    found = drift(files)
    assert {kind for kind, _ in found} == {Tampering.MOVED}
    assert [file for _, file in found] == ["0003_pre_labels.cql", "0004_post_no_totals.cql", "0005_pre_places.cql"]


def test_a_number_that_belongs_to_another_file_now_is_reported() -> None:
    files = {"0001_pre_other.cql" if name.startswith("0001") else name: cql for name, cql in SHOP.items()}
    files["0001_pre_other.cql"] = "DROP TABLE other;"
    (found,) = history_drift(folder(files), applied(FOLDER))
    assert (found.kind, found.file) == (Tampering.REPLACED, "0001_pre_other.cql")
    assert "0001_pre_orders.cql" in found.why


def test_a_file_that_was_not_applied_though_later_ones_were_is_named() -> None:
    history = tuple(one for one in applied(FOLDER) if one.number != 2)
    found = history_drift(FOLDER, history)
    assert [(one.kind, one.file) for one in found] == [
        (Tampering.INSERTED, "0002_pre_labels.cql"),
        (Tampering.FORGED, "0003_post_no_totals.cql"),
    ]


@pytest.mark.parametrize("at", range(len(FOLDER)))
def test_a_history_that_was_written_into_by_hand_is_reported(at: int) -> None:
    history = list(applied(FOLDER))
    history[at] = replace(history[at], chain="0" * 64)
    assert [(one.kind, one.number) for one in history_drift(FOLDER, history)] == [(Tampering.FORGED, at + 1)]


def running(states: list[StatementState]) -> tuple[HistoryDrift, ...]:
    """The second migration was edited in its second statement while the history has it as running, so far."""
    history = (*applied(FOLDER[:1]), replace(applied(FOLDER)[1], state=MigrationState.RUNNING, done=0))
    at = datetime(2026, 9, 1, tzinfo=UTC)
    begun = [
        StatementEntry(2, place, checksum_of(FOLDER[1].cql(place)), state, UUID(int=9), at, FOLDER[1].cql(place))
        for place, state in enumerate(states)
    ]
    edited = migration("0002_pre_labels.cql", SHOP["0002_pre_labels.cql"].replace("by_label ON", "by_name ON"))
    return history_drift(in_order([FOLDER[0], edited, *FOLDER[2:]]), history, begun)


@pytest.mark.parametrize(
    "states", [[], [StatementState.DONE], [StatementState.BEGUN], [StatementState.DONE, StatementState.FAILED]]
)
def test_what_has_not_taken_effect_may_still_be_mended(states: list[StatementState]) -> None:
    assert running(states) == ()


@pytest.mark.parametrize(
    "states", [[StatementState.DONE, StatementState.DONE], [StatementState.DONE, StatementState.BEGUN]]
)
def test_what_may_have_taken_effect_stays_as_it_is(states: list[StatementState]) -> None:
    assert [one.kind for one in running(states)] == [Tampering.EDITED]


def test_a_statement_that_took_effect_cannot_be_left_out() -> None:
    history = (replace(applied(FOLDER)[0], state=MigrationState.RUNNING),)
    at = datetime(2026, 9, 1, tzinfo=UTC)
    begun = [StatementEntry(1, 2, checksum_of(FOLDER[0].cql(2)), StatementState.DONE, UUID(int=9), at, "")]
    shorter = migration("0001_pre_orders.cql", "CREATE TYPE place (street text, town text);")
    assert [one.kind for one in history_drift(in_order([shorter]), history, begun)] == [Tampering.EDITED]


LABELS = "0002_pre_labels.cql"


def plan_texts(files: Mapping[str, str], history: tuple[Migration, ...] = FOLDER) -> tuple[str, str]:
    (found,) = history_drift(folder(files), applied(history))
    return str(found), found.mend


def test_an_edit_is_reported_with_both_checksums_and_the_day() -> None:
    now = {**SHOP, LABELS: SHOP[LABELS] + "\n"}
    edited, applied_then = folder(now)[1].checksum[:12], FOLDER[1].checksum[:12]
    assert plan_texts(now) == (
        f"edited migration: {LABELS}: its checksum is {edited}, {applied_then} was applied on 2026-09-01",
        "Put the text back that was applied (from version control); what has to change goes into a new migration.",
    )


def test_each_other_way_of_being_otherwise_is_reported_with_its_way_back() -> None:
    renamed = {name.replace("_pre_labels", "_post_labels"): cql for name, cql in SHOP.items()}
    assert plan_texts(renamed) == (
        f"renamed migration: 0002_post_labels.cql: it was applied under the name {LABELS}",
        f"Rename it back: {LABELS}",
    )
    assert plan_texts(dict(list(SHOP.items())[:3])) == (
        (
            "missing migration: 0004_pre_places.cql: it was applied on 2026-09-01 by alice@ops pid 7, "
            "and is not in the folder"
        ),
        "Put the file back (from version control), or name the folder that holds it with --migrations.",
    )
    replaced = {name.replace("_pre_labels", "_pre_other"): cql for name, cql in SHOP.items()}
    replaced["0002_pre_other.cql"] = "DROP TABLE other;"
    assert plan_texts(replaced) == (
        f"replaced migration: 0002_pre_other.cql: {LABELS} was applied under this number, with another text",
        f"Put {LABELS} back (from version control), and give this one the next free number.",
    )
    moved = {"0001_pre_first.cql": "DROP TABLE first;", "0002_pre_orders.cql": SHOP["0001_pre_orders.cql"]}
    assert plan_texts(moved, FOLDER[:1]) == (
        "moved migration: 0002_pre_orders.cql: it was applied as number 0001",
        "Rename it back: 0001_pre_orders.cql",
    )


def test_a_ledger_that_was_written_into_is_reported_from_the_first_broken_link_on() -> None:
    history = [replace(one, checksum="0" * 64) if one.number == 2 else one for one in applied(FOLDER)]
    found = history_drift(FOLDER, history)
    assert [(one.kind, one.number) for one in found] == [(Tampering.EDITED, 2), (Tampering.FORGED, 2)]
    assert "schema_migration of the ledger keyspace" in found[-1].mend
    assert history_drift(FOLDER, list(reversed(applied(FOLDER)))) == ()


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_an_entry_that_was_taken_out_of_the_ledger_is_reported(gone: int) -> None:
    found = history_drift(FOLDER, [one for one in applied(FOLDER) if one.number != gone])
    assert [(one.kind, one.number) for one in found] == [(Tampering.INSERTED, gone), (Tampering.FORGED, gone + 1)]
    assert found[0].mend == "Give it the next free number, after all that was applied."


def test_only_what_runs_may_be_edited_and_only_its_own_statements_count() -> None:
    at = datetime(2026, 9, 1, tzinfo=UTC)
    edited = in_order([migration("0001_pre_orders.cql", "DROP TABLE nothing;")])
    of_another = StatementEntry(2, 0, "0" * 64, StatementState.DONE, UUID(int=9), at, "")
    running = replace(applied(FOLDER)[0], state=MigrationState.RUNNING)
    assert history_drift(edited, [running], [of_another]) == ()
    for state in (MigrationState.APPLIED, MigrationState.BASELINE):
        assert [one.kind for one in history_drift(edited, [replace(running, state=state)])] == [Tampering.EDITED]


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
def test_each_change_is_reported_by_its_object(live: Schema, change: tuple[Since, str]) -> None:
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
