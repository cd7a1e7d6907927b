"""The queue's tables as mailmend makes them: what must hold of their lives, and that the advice says the same."""

import pytest

from model.advice.queue_settings import (
    DAY,
    HOUR,
    WINDOWS,
    Figure,
    FigureSource,
    Traffic,
    advise_queue,
    window_compaction,
)
from model.catalog.mail import SCHEMA
from model.catalog.mail_queue import (
    BROWSE_START,
    CONTENT_START,
    DELETED_MAILS,
    DUE_MAILS,
    ENQUEUED_MAILS,
    HINT_WINDOW_SECONDS,
    LIVES,
    LONGEST_STAY_SECONDS,
    QUEUE_STATE,
    QUEUE_TABLES,
    SLICE_SECONDS,
    SLICE_TALLIES,
)
from model.schema.lint.subject import gc_grace_of, option_text, strategy_of, ttl_of, window_of
from model.schema.table import Kind, Table

EXPIRING = (ENQUEUED_MAILS, DELETED_MAILS, SLICE_TALLIES)
TINY = (BROWSE_START, CONTENT_START, QUEUE_STATE)


def seconds(table: Table) -> int:
    """Its time to live."""
    return int(ttl_of(table).total_seconds())


def test_all_seven_belong_to_the_schema() -> None:
    """In one order: James's four, then ours."""
    assert SCHEMA.tables[-len(QUEUE_TABLES) :] == QUEUE_TABLES


def test_rows_outlive_any_stay_and_marks_outlive_rows_by_the_slack() -> None:
    """A mark that expired first would show a mail again that was deleted."""
    assert seconds(ENQUEUED_MAILS) >= LONGEST_STAY_SECONDS + LIVES.slack_seconds
    assert seconds(DELETED_MAILS) >= seconds(ENQUEUED_MAILS) + LIVES.slack_seconds
    assert seconds(SLICE_TALLIES) >= seconds(ENQUEUED_MAILS)


@pytest.mark.parametrize("table", EXPIRING, ids=lambda table: table.spelling)
def test_what_expires_does_so_in_windows_of_whole_slices(table: Table) -> None:
    """20 to 30 of them over the time to live, which is whole windows too."""
    window = window_of(table)
    assert window is not None
    least, _, most = WINDOWS
    assert window.total_seconds() % SLICE_SECONDS == 0
    assert seconds(table) % window.total_seconds() == 0
    assert least <= ttl_of(table) / window <= most


@pytest.mark.parametrize("table", EXPIRING, ids=lambda table: table.spelling)
def test_nothing_writes_old_cells_into_new_windows_and_no_hint_is_dropped(table: Table) -> None:
    """Tombstones are kept for a day, which is longer than hints are."""
    assert option_text(table, "read_repair") == "NONE"
    assert gc_grace_of(table).total_seconds() == max(DAY, HINT_WINDOW_SECONDS)


def test_a_mail_that_is_delayed_lives_as_long_as_its_own_row_says() -> None:
    """No default is right for a mail that is due tomorrow and for one that is due in a month."""
    assert seconds(DUE_MAILS) == 0
    assert strategy_of(DUE_MAILS) == "LeveledCompactionStrategy"
    assert gc_grace_of(DUE_MAILS).total_seconds() >= HINT_WINDOW_SECONDS


@pytest.mark.parametrize("table", TINY, ids=lambda table: table.spelling)
def test_what_is_one_row_for_each_queue_stays(table: Table) -> None:
    """They are written with conditions: an expired browse start would begin again in the past."""
    assert seconds(table) == 0
    assert [column.kind for column in table.key] == [Kind.PARTITION]


def test_the_advice_for_that_stay_and_slice_is_the_catalog() -> None:
    """Both ask the same functions, so a fresh keyspace needs no change by its own advice."""
    rate = 10_000 / HOUR  # whose slice is an hour
    figures = (rate, rate, LONGEST_STAY_SECONDS, 1_500, 3, 3, HINT_WINDOW_SECONDS)
    advised = advise_queue(Traffic(*(Figure(figure, FigureSource.GIVEN, "said") for figure in figures)))

    assert advised.slice_seconds == SLICE_SECONDS
    assert (advised.ttl_seconds, advised.mark_ttl_seconds) == (seconds(ENQUEUED_MAILS), seconds(DELETED_MAILS))
    assert ENQUEUED_MAILS.compaction == window_compaction(advised.window_seconds)
    assert DELETED_MAILS.compaction == window_compaction(advised.mark_window_seconds)
    assert advised.gc_grace_seconds == gc_grace_of(ENQUEUED_MAILS).total_seconds()
    assert str(advised.mark_bloom_chance) == option_text(DELETED_MAILS, "bloom_filter_fp_chance")
