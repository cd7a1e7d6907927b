"""What the driver's answers become: rows with their times, a condition's verdict, nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from cql.rows import answer_of, applied_of
from cql.statements import selection_of
from model.operations import Applied, Change, ChangeIf, Count, Put, PutIfAbsent, Read, Remove, RemoveIf, Scan, Seen
from tests.support.tables import CELLS, COUNTERS

KEY = ("a", 1)


@dataclass(frozen=True, slots=True)
class Answer:
    """A driver's result of one row."""

    column_names: Sequence[str]
    values: Sequence[Any]

    def one(self) -> Sequence[Any]:
        """Its row."""
        return self.values


def test_a_write_that_applied_brings_nothing_back() -> None:
    """Only `[applied]`."""
    assert applied_of(Answer(["[applied]"], [True])) == Applied(applied=True)


def test_a_refused_write_brings_what_stands_there() -> None:
    """In the model's own forms, so that it can be compared with what was expected."""
    answer = Answer(["[applied]", "v", "tags"], [False, "x", {"b", "a"}])

    assert applied_of(answer) == Applied(applied=False, current={"v": "x", "tags": frozenset({"a", "b"})})


def test_a_refused_write_where_no_row_is_says_so() -> None:
    """No row and a row of nulls are told apart."""
    assert applied_of(Answer(["[applied]"], [False])) == Applied(applied=False, current=None)
    assert applied_of(Answer(["[applied]", "v"], [False, None])) == Applied(applied=False, current={"v": None})


@pytest.mark.parametrize(
    "write",
    [PutIfAbsent(CELLS, {"k": "a", "c": 1}), ChangeIf(CELLS, KEY, {"n": 1}, {"n": 2}), RemoveIf(CELLS, KEY, {"n": 1})],
    ids=lambda write: type(write).__name__,
)
def test_every_conditional_write_is_answered_by_a_verdict(write: Any) -> None:
    """Not by silence."""
    read = answer_of(write, collection_times=True)

    assert read(Answer(["[applied]"], [True])) == Applied(applied=True)


@pytest.mark.parametrize(
    "write",
    [Put(CELLS, {"k": "a", "c": 1}), Change(CELLS, KEY, {"n": 2}), Remove(CELLS, KEY), Count(COUNTERS, ("a",), {})],
    ids=lambda write: type(write).__name__,
)
def test_a_plain_write_is_answered_by_nothing(write: Any) -> None:
    """Whatever the driver gives back."""
    assert answer_of(write, collection_times=True)(object()) is None


@pytest.mark.parametrize("collection_times", [True, False])
def test_a_read_pairs_each_time_with_its_column(collection_times: bool) -> None:
    """Times follow the columns; a cell that was never written has none; before 5.0 sets tell no times."""
    read = Read(CELLS, ("a",), times=True)
    selection = selection_of(read, collection_times=collection_times)
    row = {column.name: None for column in selection.columns} | {"k": "a", "c": 1, "v": "x", "n": 5}
    times = {"v": 10, "n": 20}
    values = [*row.values(), *(times.get(column.name) for column in selection.timed)]

    (seen,) = answer_of(read, collection_times=collection_times)([values])

    assert isinstance(seen, Seen)
    assert (seen.row["v"], seen.row["n"], seen.written_at) == ("x", 5, times)
    assert ("tags" in {column.name for column in selection.timed}) is collection_times


def test_a_scan_gives_rows_by_the_names_asked_for() -> None:
    """Only the columns that the scan named."""
    of = answer_of(Scan(CELLS, ("k", "n")), collection_times=True)

    assert of(("a", 5)) == {"k": "a", "n": 5}
