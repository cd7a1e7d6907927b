"""Worker processes by rule: what each has of a limit, when one begins again, and what ends them all."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.admin.frame.supervision import (
    LONGEST_PAUSE,
    SOUND_AFTER,
    WorkerFate,
    WorkerRecord,
    exit_code_of,
    parts_of,
    restart_pause,
    worst_code,
)

KILLED = 137


def served(begun_at: float = 0.0) -> WorkerRecord:
    """A worker that serves."""
    record = WorkerRecord(1, has_served=True)
    record.began(begun_at)
    return record


@given(whole=st.integers(0, 50_000), count=st.integers(1, 64))
def test_parts_are_equal_and_make_up_the_whole(whole: int, count: int) -> None:
    parts = parts_of(whole, count)
    assert (len(parts), sum(parts)) == (count, whole)
    assert max(parts) - min(parts) <= 1


def test_pauses_grow_to_a_minute() -> None:
    pauses = [restart_pause(failures).total_seconds() for failures in (1, 2, 3, 6, 7, 10_000)]
    assert pauses == [1, 2, 4, 32, LONGEST_PAUSE.total_seconds(), LONGEST_PAUSE.total_seconds()]


def test_a_worker_that_dies_again_and_again_begins_after_longer_pauses() -> None:
    record = served()
    dues = []
    for now in (5.0, 10.0, 20.0):
        assert record.ended(KILLED, now, stopping=False) is WorkerFate.AGAIN
        dues.append((record.due_at or 0) - now)
        record.began(now)
    assert dues == [1, 2, 4]


def test_a_worker_that_lived_for_a_minute_begins_again_soon() -> None:
    record = served()
    record.failures = 5
    assert record.ended(KILLED, SOUND_AFTER.total_seconds(), stopping=False) is WorkerFate.AGAIN
    assert record.due_at == (SOUND_AFTER + timedelta(seconds=1)).total_seconds()


@pytest.mark.parametrize("code", [0, 2, 4])
def test_a_worker_that_could_never_serve_gives_the_server_up(code: int) -> None:
    """Its exit code is the server's: with one process a wrong start ends so."""
    record = WorkerRecord(1)
    record.began(0.0)
    assert record.ended(code, 0.5, stopping=False) is WorkerFate.GIVEN_UP
    assert (record.exit_code, record.due_at) == (code, None)


def test_no_worker_begins_again_while_the_server_stops() -> None:
    """One that waits for its turn to begin is not begun, and its old exit code does not count."""
    record = served()
    assert record.ended(0, 5.0, stopping=True) is WorkerFate.OVER
    waiting = served()
    waiting.ended(KILLED, 5.0, stopping=False)
    waiting.stop()
    assert (record.exit_code, record.due_at) == (0, None)
    assert (waiting.exit_code, waiting.due_at) == (None, None)


def test_the_worst_exit_code_is_the_servers() -> None:
    """A signal counts as shells report it."""
    assert worst_code([]) == 0
    assert worst_code([0, exit_code_of(-9), 4]) == KILLED
