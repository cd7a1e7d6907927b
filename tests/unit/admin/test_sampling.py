"""A sample of messages: whole mailboxes within the bound, write times as they were, and no text that anybody wrote."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from admin.advice.sampling import NAMES, Sample, SampledMessage, blanked, draw_sample
from cql.memory import MemoryTables
from model.catalog.mail import IMAP_UID, MAIL_TABLES, MESSAGE_ID
from model.operations import Put, Write
from model.ports import Silent
from model.schema.keyspace import Schema
from tests.support.histories import DAY, histories

UNTIL = 1_700_000_000_000_000
LIVE = Schema((), MAIL_TABLES)


def tables_with(messages: Iterable[tuple[Write, ...]]) -> MemoryTables:
    tables = MemoryTables(lambda: UNTIL)
    for writes in messages:
        tables.write_all(writes)
    return tables


def sample_of(tables: MemoryTables, rows: int) -> Sample:
    return draw_sample(tables, LIVE, rows, Silent())


def test_mailboxes_are_whole_and_their_times_are_kept() -> None:
    sample = sample_of(tables_with(histories(6, 40, days=300, until=UNTIL)), rows=100)

    assert sample.mailboxes == 2
    assert len(sample.messages) == 80
    assert sample.passed_over == 4
    assert 40 < sample.changed < 80
    assert 200 < sample.history_seconds / 86_400 <= 300
    assert not sample.by_birth


def test_the_bound_holds_and_a_mailbox_that_is_larger_is_passed_over() -> None:
    sample = sample_of(tables_with(histories(1, 40, days=300, until=UNTIL)), rows=10)

    assert sample == Sample([], 0, 1)


def test_a_mailbox_of_which_the_end_was_not_seen_is_left_out() -> None:
    sample = sample_of(tables_with(histories(1, 60, days=300, until=UNTIL)), rows=2)

    assert sample == Sample([], 0, 0)


def test_rows_that_were_written_all_at_once_get_their_history_from_the_messages_births() -> None:
    restored = [
        tuple(Put(one.table, one.row, at=UNTIL) for one in writes if isinstance(one, Put))
        for writes in histories(2, 50, days=300, until=UNTIL - DAY)
    ]

    sample = sample_of(tables_with(restored), rows=100)

    assert sample.by_birth
    assert sample.changed == 0
    assert sample.history_seconds / 86_400 > 200


def test_nothing_that_people_wrote_is_kept() -> None:
    tables = tables_with([])
    (added, *_), *_ = histories(1, 1, days=1, until=UNTIL)
    assert isinstance(added, Put)
    row = {**added.row, "userflags": frozenset({"project secret", "boss"}), "headercontent": "1_692_abc"}
    tables.write(Put(MESSAGE_ID, row, at=UNTIL))

    (message,) = sample_of(tables, rows=10).messages

    assert message.row["headercontent"] == "x" * 9
    assert sorted(map(len, message.row["userflags"])) == [4, 14]
    assert "secret" not in str(message)
    assert message.row["uid"] == row["uid"]


@given(st.frozensets(st.text(min_size=1, max_size=30), max_size=12))
def test_blanked_labels_stay_as_many_and_hold_no_letter_of_their_own(labels: frozenset[str]) -> None:
    blank = blanked(labels)

    assert len(blank) == len(labels)
    assert all(set(label) <= set("0123456789x") for label in blank)


def test_a_row_without_any_time_is_as_old_as_its_message() -> None:
    message = SampledMessage(tuple(None for _ in NAMES), 5, None)

    assert message.row == {}
    assert IMAP_UID.name in {table.name for table in LIVE.tables}
