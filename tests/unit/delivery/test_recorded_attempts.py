"""Recorded attempts as this process reads them."""

import random
from datetime import timedelta

import pytest

from mailmend.cql.memory import MemoryTables
from mailmend.delivery.ledger.attempts import AttemptsWanted, LocalAttempts, read_attempts
from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.model.errors import WrongUse
from mailmend.model.ids import QueueName
from mailmend.model.operations import Level, Put
from mailmend.model.ports import Tables
from tests.support.attempts import DAY, attempt, drawn_attempts, row_of, rows_of
from tests.support.progress import SilentProgress

SPOOL = QueueName("spool")


def tables_with(*writes: Put) -> Tables:
    tables = MemoryTables(lambda: round(DAY.timestamp() * 1e6))
    tables.write_all(writes)
    return tables


def read(tables: Tables, *, most: int = 1_000, **span: timedelta) -> LocalAttempts:
    wanted = AttemptsWanted("mail", SPOOL, **{name: DAY + after for name, after in span.items()})
    return read_attempts(tables, wanted, Level.ONE, SilentProgress(), most)


def test_attempts_of_the_queue_come_sorted_as_they_were_written() -> None:
    """With their values, addresses and times; those of other queues and keyspaces are left out."""
    drawn = drawn_attempts(random.Random(1), 50)
    elsewhere = [row_of(attempt("x"), 99, "mail", "outgoing"), row_of(attempt("x"), 99, "other", "spool")]
    found = read(tables_with(*rows_of(drawn), *elsewhere))
    assert [one.ready_at for one in found.held] == sorted(one.ready_at for one in drawn)

    def plain(one: object) -> tuple[object, ...]:
        mail = one.mail  # type: ignore[attr-defined]
        values = sorted((field.value, value) for field, value in mail.values.items() if value)
        return values, mail.sources, mail.urgent, one.ready_at, one.started_at, one.ended_at  # type: ignore[attr-defined]

    assert sorted(map(plain, found.held), key=str) == sorted(map(plain, drawn), key=str)
    assert len({one.mail.id for one in found.held}) == 50


def test_a_stretch_of_time_begins_with_its_first_instant_and_ends_before_its_last() -> None:
    tables = tables_with(*rows_of([attempt(str(second), second * 1_000) for second in range(6)]))
    assert read(tables, since=timedelta(seconds=2), until=timedelta(seconds=4)).attempts == 2
    assert read(tables, since=timedelta(seconds=2)).attempts == 4
    assert read(tables, until=timedelta(seconds=2)).attempts == 2
    assert read(tables).attempts == 6


def test_what_lasted_for_an_unknown_time_is_taken_to_last_the_median() -> None:
    """Of those whose end is known; where none is, nobody knows."""
    lasting = (100, None, 300, 5_000)
    found = read(tables_with(*rows_of([attempt(str(one), lasted=one) for one in lasting])))
    assert found.lasting == 300
    sums = found.replay(PickupPolicies(), 3)
    assert (sums.without_end, sums.simulated.begun) == (1, 4)
    assert read(tables_with(*rows_of([attempt("a", lasted=None)]))).lasting is None


@pytest.mark.parametrize("column", ["readyat", "startedat"])
def test_a_row_of_which_half_is_gone_is_counted_and_left_out(column: str) -> None:
    """The last that was written of it lives longest."""
    whole, half = rows_of([attempt("a"), attempt("b")])
    found = read(tables_with(whole, Put(half.table, {**half.row, column: None})))
    assert (found.attempts, found.incomplete) == (1, 1)


def test_more_than_this_process_holds_are_refused_with_a_way_out() -> None:
    tables = tables_with(*rows_of([attempt(str(number)) for number in range(4)]))
    assert read(tables, most=4).attempts == 4
    with pytest.raises(WrongUse) as refused:
        read(tables, most=3)
    assert "more than 3 attempts" in refused.value.what
    assert "--engine spark" in refused.value.mend
