"""Our own tables: where rows lie and for how long, what each column is for, which of the queue's a keyspace has."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid1

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.language.parser import parse
from mailmend.cql.schema.generations import GENERATIONS, Generation
from mailmend.cql.schema.lint.subject import gc_grace_of, option_text, strategy_of, ttl_of, window_of
from mailmend.cql.statements import CreateTable
from mailmend.mailqueue.rules.advice import Figure, FigureSource, Traffic, advise_queue
from mailmend.model.catalog.ledger import (
    DELIVERY_ATTEMPT,
    DELIVERY_ORDER_HISTORY,
    DELIVERY_TABLES,
    FINDING_BUCKETS,
    HISTORY_TABLES,
    JOB_PAUSE,
    KEEP,
    LAG_BUCKETS,
    LEDGER_TABLES,
    REPAIR_LEASE,
    bucket_of,
    day_of,
    days_back,
)
from mailmend.model.catalog.mail import (
    IMAP_UID,
    MESSAGE_COMPACTIONS,
    MESSAGE_ID,
    PRIVATE,
    PROJECTIONS,
    SCHEMA,
    CompactionChoice,
    compacted,
)
from mailmend.model.catalog.mail_queue import (
    BROWSE_START,
    CONTENT_START,
    DELETED_MAILS,
    DUE_MAILS,
    ENQUEUED_MAILS,
    HINT_WINDOW_SECONDS,
    JAMES_QUEUE_TABLES,
    LIVES,
    LONGEST_STAY_SECONDS,
    OWN_QUEUE_TABLES,
    QUEUE_STATE,
    QUEUE_TABLES,
    SLICE_SECONDS,
    SLICE_TALLIES,
    WINDOWS,
    OwnTables,
    queue_tables_of,
    time_to_live,
    window_compaction,
)
from mailmend.model.catalog.purposes import null_text, purpose_of, why_compacted
from mailmend.model.durations import DAY, HOUR
from mailmend.model.errors import SchemaMismatch
from mailmend.model.ids import micros_of
from mailmend.model.keyspace import Schema
from mailmend.model.projections.projection import Mirror, Projection
from mailmend.model.table import Column, Compaction, Kind, Table, identifier
from tests.support.james import ROWS
from tests.support.schemas import served


def test_everything_but_what_holds_now_expires_by_itself_in_windows_of_a_day() -> None:
    """Leases, pauses, suspensions and conditions are few; the history of schemas stays; attempts live a week."""
    staying = {REPAIR_LEASE.name, JOB_PAUSE.name, *(one.name for one in (*DELIVERY_TABLES, *HISTORY_TABLES))}
    staying -= {DELIVERY_ATTEMPT.name, DELIVERY_ORDER_HISTORY.name}
    for table in LEDGER_TABLES:
        days = 7 if table is DELIVERY_ATTEMPT else 30
        expires = table.options.get("default_time_to_live") == str(days * 24 * 3600)
        windows = table.compaction is not None and "TimeWindow" in table.compaction.strategy
        assert (expires, windows) == ((False, False) if table.name in staying else (True, True))


def test_every_name_needs_no_quotes() -> None:
    for table in LEDGER_TABLES:
        for name in (table.spelling, *(column.spelling for column in table.columns)):
            assert identifier(name) == name.lower()


def test_a_runs_day_is_reported_by_its_own_id() -> None:
    run = uuid1()
    assert day_of(run) == datetime.fromtimestamp(micros_of(run) / 1e6, UTC).date().isoformat()


@given(st.integers(0, 30 * 24 * 3600), st.integers(-3600, 3600))
def test_what_is_kept_lies_in_one_of_the_days_that_are_read(age_seconds: int, skew_seconds: int) -> None:
    now = datetime(2026, 9, 1, 0, 30, tzinfo=UTC)
    written = now - timedelta(seconds=age_seconds + skew_seconds)
    assert written.date().isoformat() in days_back(int(now.timestamp() * 1e6), KEEP)


def test_days_are_read_newest_first() -> None:
    days = days_back(int(datetime(2026, 9, 1, tzinfo=UTC).timestamp() * 1e6))
    assert list(days) == sorted(days, reverse=True)
    assert len(days) == len(set(days))


@given(st.text())
def test_a_bucket_is_one_of_those_that_are_read(text: str) -> None:
    assert 0 <= bucket_of(text, FINDING_BUCKETS) < FINDING_BUCKETS
    assert 0 <= bucket_of(text, LAG_BUCKETS) < LAG_BUCKETS


def test_buckets_are_the_same_in_every_process() -> None:
    assert bucket_of("mailmend", 256) == 32


def test_keys_spread_over_buckets() -> None:
    counts = [0] * FINDING_BUCKETS
    for number in range(25_600):
        counts[bucket_of(str(number), FINDING_BUCKETS)] += 1
    assert max(counts) < 2 * 100


@pytest.mark.parametrize("projection", PROJECTIONS.values(), ids=lambda projection: projection.name)
def test_a_projection_names_columns_that_its_tables_have(projection: Projection) -> None:
    pairs = list(projection.key)
    if isinstance(projection, Mirror):
        pairs += projection.renamed
    for own, source in pairs:
        assert own in projection.table
        assert source in projection.truth
    assert {own for own, _ in projection.key} == set(projection.table.key_names)
    assert projection.truth_columns <= set(projection.truth.names)


def test_mailboxes_of_users_are_in_the_namespace_of_james() -> None:
    assert PRIVATE == "#private"


OURS = Table("t", (Column("k", "int", Kind.PARTITION),))


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda one: one.name)
def test_every_column_of_every_generation_is_explained(generation: Generation) -> None:
    for spelled, reported in zip(generation.schema.tables, served(generation.schema).tables, strict=True):
        for column in spelled.columns:
            why = purpose_of(spelled.spelling, column.spelling)
            assert why, f"{spelled.spelling}.{column.spelling}"
            assert purpose_of(reported.spelling, column.name) == why


@pytest.mark.parametrize("table", LEDGER_TABLES, ids=lambda one: one.name)
def test_every_column_of_the_ledger_is_explained(table: Table) -> None:
    assert [column.name for column in table.columns if not purpose_of(table.name, column.name)] == []


def test_a_word_means_in_a_table_what_it_means_there() -> None:
    assert purpose_of("mailboxCounters", "count") == "messages"
    assert purpose_of("orders", "count") == ""
    assert purpose_of("applicableFlag", "userFlags") != purpose_of("imapUidTable", "userFlags")
    assert purpose_of("orders", "colour") == ""


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("threadid", "null is messageId"),
        ("modseq", "null is 0"),
        ("flagseen", "null is false"),
        ("userflags", "null is the empty set"),
        ("save_date", "as it is"),
    ],
)
def test_a_compared_column_tells_what_its_null_is(column: str, text: str) -> None:
    assert null_text(MESSAGE_ID.column(column), MESSAGE_ID) == text


@pytest.mark.parametrize("choice", CompactionChoice)
def test_every_choice_of_compaction_is_explained(choice: CompactionChoice) -> None:
    (truth,) = (one for one in compacted(SCHEMA.tables, choice) if one.name == IMAP_UID.name)
    why = why_compacted(truth)
    assert why not in {"", "not known to mailmend"}
    compaction = MESSAGE_COMPACTIONS[choice]
    more = Compaction(compaction.strategy, {**compaction.options, "max_threshold": "32"})
    assert why_compacted(Table("t", OURS.columns, compaction=more)) == why


def test_every_declared_table_says_why_it_is_compacted_so() -> None:
    for table in (*SCHEMA.tables, *LEDGER_TABLES):
        assert why_compacted(table) not in {"", "not known to mailmend"}
    assert why_compacted(Table("t", OURS.columns, compaction=Compaction("com.example.Own"))) == "not known to mailmend"
    assert "server's own default" in why_compacted(OURS)


def test_wide_windows_are_distinguished_from_those_of_rows_that_expire() -> None:
    wide = MESSAGE_COMPACTIONS[CompactionChoice.TWCS]
    narrow = Compaction(wide.strategy, {"compaction_window_unit": "HOURS", "compaction_window_size": "1"})
    whys = [why_compacted(Table("t", OURS.columns, compaction=one)) for one in (wide, narrow)]
    assert "old messages still change their flags" in whys[0]
    assert "expires together" in whys[1]


_P = Kind.PARTITION
JAMES_QUEUE = ROWS.with_name("james-queue") / "tables" / "schema.cql"

LIVE = served(Schema((), QUEUE_TABLES))


def live(*tables: Table) -> Schema:
    return served(Schema((), tables))


def expiring(table: Table, seconds: int) -> Table:
    return replace(table, options={**table.options, "default_time_to_live": str(seconds)})


def test_all_are_found_with_their_times_to_live() -> None:
    found = queue_tables_of(LIVE, "mail")
    assert (found.due, found.tallies, found.state, found.backlogs) == (True, True, True, True)
    assert found.row_ttl_seconds == time_to_live(ENQUEUED_MAILS)
    assert found.mark_ttl_seconds == time_to_live(DELETED_MAILS)
    assert found.marks_outlive_rows
    assert not found.shared


def test_where_rows_live_for_ever_james_enqueues_too() -> None:
    for_ever = [replace(table, options={}) for table in JAMES_QUEUE_TABLES]
    assert queue_tables_of(live(*for_ever, *OWN_QUEUE_TABLES), "mail").shared


@given(kept=st.tuples(*[st.booleans()] * len(OWN_QUEUE_TABLES)))
def test_each_of_ours_is_reported_by_itself(kept: tuple[bool, ...]) -> None:
    """Backlogs need both of their tables."""
    there = [table for table, is_kept in zip(OWN_QUEUE_TABLES, kept, strict=True) if is_kept]
    found = queue_tables_of(live(*JAMES_QUEUE_TABLES, *there), "mail")
    due, tallies, state, *backlogs = kept
    assert (found.due, found.tallies, found.state, found.backlogs) == (due, tallies, state, all(backlogs))


@pytest.mark.parametrize("gone", JAMES_QUEUE_TABLES, ids=lambda table: table.spelling)
def test_one_of_james_s_that_is_missing_is_named_with_the_command_that_makes_it(gone: Table) -> None:
    with pytest.raises(SchemaMismatch) as refused:
        queue_tables_of(live(*(table for table in QUEUE_TABLES if table is not gone)), "mail")
    assert refused.value.missing == (gone.spelling,)
    assert "mailmend schema apply --keyspace mail" in str(refused.value)


@pytest.mark.parametrize("table", QUEUE_TABLES, ids=lambda table: table.spelling)
def test_another_key_is_another_table(table: Table) -> None:
    other = table.with_columns((Column("somethingElse", "text", _P), *table.columns[1:]))
    with pytest.raises(SchemaMismatch, match=f"{table.spelling} with the key \\(queueName") as refused:
        queue_tables_of(live(*(other if one is table else one for one in QUEUE_TABLES)), "mail")
    assert "mailmend schema verify --keyspace mail" in str(refused.value)


@given(st.data())
def test_a_column_that_is_missing_or_of_another_type_is_named(drawn: st.DataObject) -> None:
    table = drawn.draw(st.sampled_from([one for one in QUEUE_TABLES if one.regular]))
    column = drawn.draw(st.sampled_from(table.regular))
    instead = drawn.draw(st.sampled_from([(), (replace(column, type="inet"),)]))
    columns = (*(one for one in table.columns if one is not column), *instead)
    changed = (table.with_columns(columns) if one is table else one for one in QUEUE_TABLES)
    with pytest.raises(SchemaMismatch) as refused:
        queue_tables_of(live(*changed), "mail")
    assert refused.value.missing == (f"{table.spelling}.{column.spelling} of type {column.type}",)


def test_somebody_s_own_column_stands_in_nobody_s_way() -> None:
    wider = ENQUEUED_MAILS.with_columns((*ENQUEUED_MAILS.columns, Column("noted", "text")))
    assert queue_tables_of(live(wider, *QUEUE_TABLES[1:]), "mail").due


@pytest.mark.parametrize(
    ("rows", "marks", "safe"),
    [(0, 0, True), (60, 0, True), (60, 61, True), (60, 60, False), (61, 60, False), (0, 60, False)],
)
def test_marks_must_outlive_the_rows_that_they_hide(rows: int, marks: int, *, safe: bool) -> None:
    tables = expiring(ENQUEUED_MAILS, rows), expiring(DELETED_MAILS, marks), *JAMES_QUEUE_TABLES[2:]
    found = queue_tables_of(live(*tables), "mail")
    ours = OwnTables(due=False, tallies=False, state=False, backlogs=False)
    assert found == replace(ours, row_ttl_seconds=rows, mark_ttl_seconds=marks, shared=not rows)
    assert found.marks_outlive_rows is safe


def test_the_queue_that_james_made_is_whole_and_lets_nothing_expire() -> None:
    text = JAMES_QUEUE.read_text(encoding="utf-8")
    tables = [one.statement.table for one in parse(text) if isinstance(one.statement, CreateTable)]
    found = queue_tables_of(Schema((), tuple(tables)), "apache_james")
    assert found == OwnTables(due=False, tallies=False, state=False, backlogs=False, shared=True)
    assert found.marks_outlive_rows


EXPIRING = (ENQUEUED_MAILS, DELETED_MAILS, SLICE_TALLIES)
TINY = (BROWSE_START, CONTENT_START, QUEUE_STATE)


def seconds(table: Table) -> int:
    return int(ttl_of(table).total_seconds())


def test_all_belong_to_the_schema() -> None:
    assert SCHEMA.tables[-len(QUEUE_TABLES) :] == QUEUE_TABLES


def test_rows_outlive_any_stay_and_marks_outlive_rows_by_the_slack() -> None:
    assert seconds(ENQUEUED_MAILS) >= LONGEST_STAY_SECONDS + LIVES.slack_seconds
    assert seconds(DELETED_MAILS) >= seconds(ENQUEUED_MAILS) + LIVES.slack_seconds
    assert seconds(SLICE_TALLIES) >= seconds(ENQUEUED_MAILS)


@pytest.mark.parametrize("table", EXPIRING, ids=lambda table: table.spelling)
def test_what_expires_does_so_in_windows_of_whole_slices(table: Table) -> None:
    window = window_of(table)
    assert window is not None
    least, _, most = WINDOWS
    assert window.total_seconds() % SLICE_SECONDS == 0
    assert seconds(table) % window.total_seconds() == 0
    assert least <= ttl_of(table) / window <= most


@pytest.mark.parametrize("table", EXPIRING, ids=lambda table: table.spelling)
def test_nothing_writes_old_cells_into_new_windows_and_no_hint_is_dropped(table: Table) -> None:
    assert option_text(table, "read_repair") == "NONE"
    assert gc_grace_of(table).total_seconds() == max(DAY, HINT_WINDOW_SECONDS)


def test_a_mail_that_is_delayed_lives_as_long_as_its_own_row_says() -> None:
    assert seconds(DUE_MAILS) == 0
    assert strategy_of(DUE_MAILS) == "LeveledCompactionStrategy"
    assert gc_grace_of(DUE_MAILS).total_seconds() >= HINT_WINDOW_SECONDS


@pytest.mark.parametrize("table", TINY, ids=lambda table: table.spelling)
def test_what_is_one_row_for_each_queue_stays(table: Table) -> None:
    assert seconds(table) == 0
    assert [column.kind for column in table.key] == [Kind.PARTITION]


def test_the_advice_for_that_stay_and_slice_is_the_catalog() -> None:
    rate = 10_000 / HOUR  # whose slice is an hour
    figures = (rate, rate, LONGEST_STAY_SECONDS, 1_500, 3, 3, HINT_WINDOW_SECONDS)
    advised = advise_queue(Traffic(*(Figure(figure, FigureSource.GIVEN, "said") for figure in figures)))

    assert advised.slice_seconds == SLICE_SECONDS
    assert (advised.ttl_seconds, advised.mark_ttl_seconds) == (seconds(ENQUEUED_MAILS), seconds(DELETED_MAILS))
    assert ENQUEUED_MAILS.compaction == window_compaction(advised.window_seconds)
    assert DELETED_MAILS.compaction == window_compaction(advised.mark_window_seconds)
    assert advised.gc_grace_seconds == gc_grace_of(ENQUEUED_MAILS).total_seconds()
    assert str(advised.mark_bloom_chance) == option_text(DELETED_MAILS, "bloom_filter_fp_chance")
