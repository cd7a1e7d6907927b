"""What every adapter of `Tables` must do: one suite, run against the memory twin and against a real Cassandra."""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from model.errors import MailmendError
from model.operations import (
    Applied,
    Change,
    ChangeIf,
    Count,
    Level,
    Put,
    PutIfAbsent,
    Read,
    Remove,
    RemoveIf,
    Scan,
    Seen,
)
from model.ports import Tables
from model.schema.table import Key, Row, Table
from tests.support.tables import CELLS, COUNTERS, MARKS

D, E = UUID("71158c60-e509-11f1-b512-b9fb9d6f173b"), UUID("7133c2c0-e509-11f1-b512-b9fb9d6f173b")
DAY = datetime(2026, 11, 20, 17, 40, 18, 255000, tzinfo=UTC)
FAR = 4_000_000_000_000_000
"""A stamp of the year 2096, later than any clock's."""


def cell(k: str, c: int = 1, d: UUID = D, **columns: Any) -> Row:
    return {"k": k, "c": c, "d": d, **columns}


def see(tables: Tables, key: Key, table: Table = CELLS) -> list[Seen]:
    return list(tables.read(Read(table, key, times=True)))


def one(tables: Tables, k: str) -> Row | None:
    rows = see(tables, (k,))
    assert len(rows) <= 1
    return rows[0].row if rows else None


def value(tables: Tables, k: str, column: str = "v") -> Any:
    row = one(tables, k)
    return row[column] if row else None


class TestRead:
    """Reading shows whole rows, in order, in the model's own forms."""

    def test_a_row_comes_back_as_it_was_put(self, tables: Tables, k: str) -> None:
        """Every kind of value keeps its form: instants in UTC, sets frozen, what was never written null."""
        tables.write(Put(CELLS, cell(k, v="é", n=-5, b=False, day=DAY, tags=frozenset({"b", "a"})), at=10))
        expected = cell(k, v="é", n=-5, b=False, day=DAY, tags=frozenset({"a", "b"}))
        assert see(tables, (k,)) == [Seen(expected, dict.fromkeys(("v", "n", "b", "day", "tags"), 10))]

    def test_times_are_read_on_demand_alone(self, tables: Tables, k: str) -> None:
        tables.write(Put(CELLS, cell(k, v="x"), at=10))
        assert [seen.written_at for seen in tables.read(Read(CELLS, (k,)))] == [{}]

    @pytest.mark.parametrize(("columns", "cells"), [(("n",), {"n": None}), (("tags", "v"), {"v": "x"}), ((), {})])
    def test_few_columns_bring_the_key_and_all_times(
        self, tables: Tables, k: str, columns: tuple[str, ...], cells: Row
    ) -> None:
        """A row is there even when none of its cells is asked for."""
        tables.write(Change(CELLS, (k, 1, D), {"v": "x"}, at=10))
        absent = dict.fromkeys(columns)
        for key in ((k,), (k, 1, D)):
            seen = tables.read(Read(CELLS, key, times=True, columns=columns))
            assert list(seen) == [Seen({**cell(k), **absent, **cells}, {"v": 10})]

    def test_each_cell_has_its_own_time(self, tables: Tables, k: str) -> None:
        tables.write(Put(CELLS, cell(k, v="x", n=1), at=10))
        tables.write(Change(CELLS, (k, 1, D), {"n": 2}, at=20))
        assert see(tables, (k,))[0].written_at == {"v": 10, "n": 20}

    def test_a_row_of_key_columns_has_no_time(self, tables: Tables, k: str) -> None:
        tables.write(Put(MARKS, {"k": k, "c": 1}, at=10))
        assert see(tables, (k,), MARKS) == [Seen({"k": k, "c": 1}, {})]

    def test_rows_come_in_clustering_order(self, tables: Tables, k: str) -> None:
        late, early = UUID("00000000-0000-11f2-8000-000000000000"), UUID("ffffffff-0000-11f1-8000-000000000000")
        for c, d in ((2, early), (1, late), (1, early), (-3, late)):
            tables.write(Put(CELLS, cell(k, c, d, v="x")))
        keys = [(seen.row["c"], seen.row["d"]) for seen in see(tables, (k,))]
        assert keys == [(-3, late), (1, early), (1, late), (2, early)]

    def test_a_descending_table_is_read_so(self, tables: Tables, k: str) -> None:
        for c in (2, 3, 1):
            tables.write(Put(MARKS, {"k": k, "c": c}))
        assert [seen.row["c"] for seen in see(tables, (k,), MARKS)] == [3, 2, 1]

    @pytest.mark.parametrize(("rest", "found"), [((), 3), ((1,), 2), ((1, D), 1), ((9,), 0), ((2, E), 0)])
    def test_any_prefix_of_the_key_is_read(self, tables: Tables, k: str, rest: Key, found: int) -> None:
        for c, d in ((1, D), (1, E), (2, D)):
            tables.write(Put(CELLS, cell(k, c, d, v="x")))
        assert len(see(tables, (k, *rest))) == found

    def test_rows_of_many_partitions_are_read_together(self, tables: Tables, k: str) -> None:
        for n in range(3):
            tables.write(Put(CELLS, cell(f"{k}{n}", v=f"{n}"), at=10))
        seen = tables.read(Read(CELLS, (), times=True, among=(f"{k}0", f"{k}2", f"{k}0", f"{k}9")))
        assert sorted((one.row["k"], one.row["v"], one.newest) for one in seen) == [
            (f"{k}0", "0", 10),
            (f"{k}2", "2", 10),
        ]

    def test_some_rows_of_a_partition_are_read_together(self, tables: Tables, k: str) -> None:
        for c, d in ((1, D), (2, D), (2, E), (3, E)):
            tables.write(Put(CELLS, cell(k, c, d)))
        seen = tables.read(Read(CELLS, (k,), among=(2, 3, 4)))
        assert sorted((one.row["c"], one.row["d"]) for one in seen) == [(2, D), (2, E), (3, E)]

    @pytest.mark.parametrize("level", list(Level))
    def test_every_level_reads(self, tables: Tables, k: str, level: Level) -> None:
        tables.write(Put(CELLS, cell(k, v="x")))
        assert len(tables.read(Read(CELLS, (k,), level))) == 1

    def test_a_key_of_the_wrong_length_is_refused(self, tables: Tables, k: str) -> None:
        with pytest.raises(ValueError, match="key of 0 values"):
            tables.read(Read(CELLS, ()))
        with pytest.raises(ValueError, match="key of 4 values"):
            tables.read(Read(CELLS, (k, 1, D, "v")))

    def test_reads_that_may_share_requests_answer_as_each_alone(self, tables: Tables, k: str) -> None:
        """Partitions, rows of one partition, both; there or not; with their times."""
        tables.write_all([Put(CELLS, cell(f"{k}{n}", c, v=f"{n}{c}"), at=10) for n in range(60) for c in (1, 2)])
        keys: list[Key] = [(f"{k}{n}",) for n in range(62)]
        keys += [(f"{k}{n}", c) for n in range(3) for c in (3, 2, 1)]
        alone = tables.read_all([Read(CELLS, key, times=True) for key in keys])
        together = tables.read_all([Read(CELLS, key, times=True, joinable=True) for key in keys])
        assert [list(answer) for answer in together if not isinstance(answer, MailmendError)] == list(map(list, alone))  # type: ignore[arg-type]

    def test_many_reads_answer_in_order(self, tables: Tables, k: str) -> None:
        tables.write_all([Put(MARKS, {"k": f"{k}{n}", "c": n}) for n in range(150)])
        answers = tables.read_all([Read(MARKS, (f"{k}{n}",)) for n in range(150)])
        assert [[seen.row["c"] for seen in answer] for answer in answers if not isinstance(answer, MailmendError)] == [
            [n] for n in range(150)
        ]


class TestStamps:
    """The later stamp wins; at a tie the tombstone, then the larger value."""

    def test_the_later_stamp_wins_in_whatever_order_it_comes(self, tables: Tables, k: str) -> None:
        tables.write(Put(CELLS, cell(k, v="late"), at=20))
        tables.write(Put(CELLS, cell(k, v="early"), at=10))
        assert value(tables, k) == "late"

    @pytest.mark.parametrize(("column", "order"), [("v", ("a", "b")), ("n", (5, -1)), ("b", (False, True))])
    @pytest.mark.parametrize("turned", [False, True])
    def test_a_tie_keeps_the_larger_value(
        self, tables: Tables, k: str, column: str, order: tuple[Any, Any], turned: bool
    ) -> None:
        for written in reversed(order) if turned else order:
            tables.write(Put(CELLS, cell(k, **{column: written}), at=10))
        assert value(tables, k, column) == order[1]

    def test_a_delete_beats_a_row_of_the_same_stamp(self, tables: Tables, k: str) -> None:
        tables.write(Remove(CELLS, (k, 1, D), at=10))
        tables.write(Put(CELLS, cell(k, v="x"), at=10))
        assert one(tables, k) is None

    def test_a_row_shows_through_an_older_delete(self, tables: Tables, k: str) -> None:
        tables.write(Put(CELLS, cell(k, v="x"), at=11))
        tables.write(Remove(CELLS, (k,), at=10))
        assert value(tables, k) == "x"

    def test_a_row_of_key_columns_obeys_stamps_too(self, tables: Tables, k: str) -> None:
        tables.write(Remove(MARKS, (k, 1), at=10))
        tables.write(Put(MARKS, {"k": k, "c": 1}, at=10))
        assert see(tables, (k,), MARKS) == []
        tables.write(Put(MARKS, {"k": k, "c": 1}, at=11))
        assert len(see(tables, (k,), MARKS)) == 1

    def test_a_cleared_cell_beats_a_value_of_the_same_stamp(self, tables: Tables, k: str) -> None:
        tables.write(Put(CELLS, cell(k, v=None), at=10, clear=True))
        tables.write(Put(CELLS, cell(k, v="x"), at=10))
        assert value(tables, k) is None

    def test_a_write_without_a_stamp_is_of_now(self, tables: Tables, k: str) -> None:
        tables.write(Put(CELLS, cell(k, v="past", n=1), at=10))
        tables.write(Put(CELLS, cell(k, v="now"), at=None))
        tables.write(Put(CELLS, cell(k, n=2), at=FAR))
        tables.write(Put(CELLS, cell(k, n=3), at=None))
        assert (value(tables, k), value(tables, k, "n")) == ("now", 2)


class TestRemove:
    """A delete covers every row under its key."""

    @pytest.mark.parametrize(("rest", "left"), [((), []), ((1,), [(2, D)]), ((1, D), [(1, E), (2, D)])])
    def test_a_prefix_deletes_all_under_it(
        self, tables: Tables, k: str, rest: Key, left: list[tuple[int, UUID]]
    ) -> None:
        for c, d in ((1, D), (1, E), (2, D)):
            tables.write(Put(CELLS, cell(k, c, d, v="x"), at=10))
        tables.write(Remove(CELLS, (k, *rest), at=10))
        assert [(seen.row["c"], seen.row["d"]) for seen in see(tables, (k,))] == left

    def test_deleting_nothing_is_fine(self, tables: Tables, k: str) -> None:
        tables.write(Remove(CELLS, (k, 1, D)))
        assert one(tables, k) is None

    def test_a_range_deleted_early_hides_no_later_row(self, tables: Tables, k: str) -> None:
        tables.write(Put(CELLS, cell(k, 1, D, v="old"), at=5))
        tables.write(Put(CELLS, cell(k, 1, E, v="new"), at=15))
        tables.write(Remove(CELLS, (k, 1), at=10))
        assert [seen.row["v"] for seen in see(tables, (k,))] == ["new"]


class TestPut:
    """An insert leaves a marker, leaves nulls alone unless it is told to clear, and may expire."""

    def test_null_is_left_unset(self, tables: Tables, k: str) -> None:
        tables.write(Put(CELLS, cell(k, v="x", tags=frozenset({"a"})), at=10))
        tables.write(Put(CELLS, cell(k, v=None, n=1, tags=None), at=20))
        tables.write(Put(CELLS, cell(k, v="y"), at=15))
        assert see(tables, (k,))[0] == Seen(
            cell(k, v="y", n=1, b=None, day=None, tags=frozenset({"a"})), {"v": 15, "n": 20, "tags": 10}
        )

    def test_clear_overwrites_the_whole_row(self, tables: Tables, k: str) -> None:
        tables.write(Put(CELLS, cell(k, v="x", n=1, tags=frozenset({"a"})), at=10))
        tables.write(Put(CELLS, cell(k, v=None, n=2, tags=None), at=20, clear=True))
        assert see(tables, (k,))[0] == Seen(cell(k, v=None, n=2, b=None, day=None, tags=None), {"n": 20})

    def test_a_column_that_is_not_named_is_left_alone(self, tables: Tables, k: str) -> None:
        tables.write(Put(CELLS, cell(k, v="x", n=1), at=10))
        tables.write(Put(CELLS, cell(k, n=2), at=20, clear=True))
        assert value(tables, k) == "x"

    def test_an_inserted_row_outlives_its_last_cell(self, tables: Tables, k: str) -> None:
        tables.write(Put(CELLS, cell(k, v="x"), at=10))
        tables.write(Change(CELLS, (k, 1, D), {"v": None}, at=20))
        assert one(tables, k) == cell(k, v=None, n=None, b=None, day=None, tags=None)

    def test_a_set_is_replaced(self, tables: Tables, k: str) -> None:
        """Elements from before are gone; those of the same stamp are not: Cassandra clears as of just before."""
        tables.write(Change(CELLS, (k, 1, D), add={"tags": frozenset({"old"})}, at=9))
        tables.write(Change(CELLS, (k, 1, D), add={"tags": frozenset({"same"})}, at=10))
        tables.write(Put(CELLS, cell(k, tags=frozenset({"new"})), at=10))
        assert value(tables, k, "tags") == {"same", "new"}

    def test_an_empty_set_is_null(self, tables: Tables, k: str) -> None:
        tables.write(Put(CELLS, cell(k, v="x", tags=frozenset())))
        assert value(tables, k, "tags") is None

    def test_a_row_with_a_long_life_shows(self, tables: Tables, k: str) -> None:
        tables.write(Put(CELLS, cell(k, v="x"), ttl_seconds=1000))
        assert value(tables, k) == "x"


class TestChange:
    """An update writes cells alone: the row shows as long as one of them does."""

    def test_a_change_makes_a_row(self, tables: Tables, k: str) -> None:
        tables.write(Change(CELLS, (k, 1, D), {"v": "x"}, at=10))
        assert value(tables, k) == "x"

    def test_a_changed_row_goes_with_its_last_cell(self, tables: Tables, k: str) -> None:
        tables.write(Change(CELLS, (k, 1, D), {"v": "x"}, at=10))
        tables.write(Change(CELLS, (k, 1, D), {"v": None}, at=20))
        assert one(tables, k) is None

    def test_elements_are_added_and_taken_one_by_one(self, tables: Tables, k: str) -> None:
        tables.write(Change(CELLS, (k, 1, D), add={"tags": frozenset({"a", "b"})}, at=10))
        tables.write(
            Change(CELLS, (k, 1, D), {"v": "x"}, {"tags": frozenset({"c"})}, {"tags": frozenset({"a"})}, at=20)
        )
        seen = see(tables, (k,))[0]
        assert (seen.row["tags"], seen.written_at) == ({"b", "c"}, {"v": 20, "tags": 20})

    def test_an_element_taken_late_comes_back_not(self, tables: Tables, k: str) -> None:
        tables.write(Change(CELLS, (k, 1, D), take={"tags": frozenset({"a", "b"})}, at=10))
        tables.write(Change(CELLS, (k, 1, D), add={"tags": frozenset({"a"})}, at=10))
        tables.write(Change(CELLS, (k, 1, D), add={"tags": frozenset({"b"})}, at=11))
        assert value(tables, k, "tags") == {"b"}

    def test_the_older_element_does_not_set_the_time(self, tables: Tables, k: str) -> None:
        tables.write(Change(CELLS, (k, 1, D), add={"tags": frozenset({"a"})}, at=30))
        tables.write(Change(CELLS, (k, 1, D), add={"tags": frozenset({"b"})}, at=20))
        tables.write(Change(CELLS, (k, 1, D), take={"tags": frozenset({"a"})}, at=40))
        assert see(tables, (k,))[0].written_at == {"tags": 20}

    def test_a_change_of_nothing_is_refused(self, tables: Tables, k: str) -> None:
        with pytest.raises(ValueError, match="changes nothing"):
            tables.write(Change(CELLS, (k, 1, D)))

    def test_many_writes_answer_in_order(self, tables: Tables, k: str) -> None:
        writes = [Change(CELLS, (k, n, D), {"n": n}) for n in range(150)]
        assert tables.write_all(writes) == [None] * 150
        assert [seen.row["n"] for seen in see(tables, (k,))] == list(range(150))


class TestManyWrites:
    """Those that may share a request leave what each alone leaves, under its own stamp and for its own time."""

    @staticmethod
    def carried_out(tables: Tables, k: str, *, joinable: bool) -> list[list[Seen]]:
        writes: list[Any] = [
            write
            for p in (f"{k}{joinable}p", f"{k}{joinable}q")
            for c in range(60)
            for write in (
                Put(CELLS, cell(p, c, v="early", n=c), at=10 + c, joinable=joinable),
                Put(CELLS, cell(p, c, v=None, b=True), at=5, clear=c % 2 == 0, joinable=joinable),
                Change(CELLS, (p, c, D), {"n": -c}, {"tags": frozenset({"t"})}, at=40, joinable=joinable),
                Put(CELLS, cell(p, c, E, v="lasts"), at=7, ttl_seconds=1000, joinable=joinable),
                Remove(CELLS, (p, c, E) if c % 3 else (p, c), at=12, joinable=joinable),
                Put(MARKS, {"k": p, "c": c}, joinable=joinable),
            )
        ]
        assert tables.write_all(writes) == [None] * len(writes)
        rows = [see(tables, (f"{k}{joinable}{p}",), table) for p in "pq" for table in (CELLS, MARKS)]
        return [[Seen({**one.row, "k": "k"}, one.written_at) for one in some] for some in rows]

    def test_joined_or_alone_the_rows_are_the_same(self, tables: Tables, k: str) -> None:
        alone = self.carried_out(tables, k, joinable=False)
        assert self.carried_out(tables, k, joinable=True) == alone
        assert [len(some) for some in alone] == [60, 60, 60, 60]

    def test_now_is_a_joined_writes_stamp_unless_it_has_one(self, tables: Tables, k: str) -> None:
        tables.write_all([Put(CELLS, cell(k, c, v="old", n=1), at=FAR if c == 2 else 10) for c in (1, 2)])
        tables.write_all([Put(CELLS, cell(k, c, v="new"), joinable=True) for c in (1, 2)])
        assert [seen.row["v"] for seen in see(tables, (k,))] == ["new", "old"]


class TestCount:
    """Counters only ever add up."""

    def test_deltas_add_up(self, tables: Tables, k: str) -> None:
        tables.write(Count(COUNTERS, (k,), {"count": 5, "unseen": 2}))
        tables.write(Count(COUNTERS, (k,), {"unseen": -3}))
        assert see(tables, (k,), COUNTERS) == [Seen({"k": k, "count": 5, "unseen": -1}, {})]

    def test_a_counter_that_was_never_counted_is_null(self, tables: Tables, k: str) -> None:
        tables.write(Count(COUNTERS, (k,), {"count": 0}))
        assert see(tables, (k,), COUNTERS)[0].row == {"k": k, "count": 0, "unseen": None}


class TestConditional:
    """A conditional write tells whether it was applied, and what stood in its way."""

    def test_a_row_is_put_when_there_is_none(self, tables: Tables, k: str) -> None:
        assert tables.attempt(PutIfAbsent(CELLS, cell(k, v="x", n=None, tags=frozenset({"a"})))) == Applied(True)
        assert one(tables, k) == cell(k, v="x", n=None, b=None, day=None, tags=frozenset({"a"}))

    def test_a_row_in_the_way_is_shown_whole(self, tables: Tables, k: str) -> None:
        tables.write(Put(CELLS, cell(k, n=1, day=DAY, tags=frozenset({"a"}))))
        refused = tables.attempt(PutIfAbsent(CELLS, cell(k, v="x")))
        assert refused == Applied(False, cell(k, v=None, n=1, b=None, day=DAY, tags=frozenset({"a"})))

    def test_a_row_of_its_key_alone_is_in_the_way_too(self, tables: Tables, k: str) -> None:
        tables.write(Put(MARKS, {"k": k, "c": 1}))
        assert tables.attempt(PutIfAbsent(MARKS, {"k": k, "c": 1})) == Applied(False, {"k": k, "c": 1})

    def test_a_change_is_made_while_all_is_as_expected(self, tables: Tables, k: str) -> None:
        tables.write(Put(CELLS, cell(k, n=1, tags=frozenset({"a"})), at=10))
        change = ChangeIf(CELLS, (k, 1, D), {"n": 1}, {"n": 2}, {"tags": frozenset({"b"})}, {"tags": frozenset({"a"})})
        assert tables.attempt(change) == Applied(True)
        assert one(tables, k) == cell(k, v=None, n=2, b=None, day=None, tags=frozenset({"b"}))

    def test_a_refused_change_shows_what_was_expected_otherwise(self, tables: Tables, k: str) -> None:
        tables.write(Put(CELLS, cell(k, n=1, v="x")))
        refused = tables.attempt(ChangeIf(CELLS, (k, 1, D), {"n": 9, "b": None}, {"v": "y"}))
        assert refused == Applied(False, {"n": 1, "b": None})
        assert value(tables, k) == "x"

    def test_an_absent_row_refuses_what_is_expected_of_it(self, tables: Tables, k: str) -> None:
        assert tables.attempt(ChangeIf(CELLS, (k, 1, D), {"n": 1}, {"v": "y"})) == Applied(False)
        assert tables.attempt(RemoveIf(CELLS, (k, 1, D), {"n": 1})) == Applied(False)

    def test_an_absent_row_is_as_null_as_expected(self, tables: Tables, k: str) -> None:
        """The trap: expecting null alone also holds where there is no row, which is thereby made."""
        assert tables.attempt(ChangeIf(CELLS, (k, 1, D), {"n": None}, {"v": "y"})) == Applied(True)
        assert value(tables, k) == "y"

    def test_null_beside_a_value_holds_for_a_present_row_alone(self, tables: Tables, k: str) -> None:
        change = ChangeIf(CELLS, (k, 1, D), {"n": None, "b": True}, {"v": "y"})
        assert tables.attempt(change) == Applied(False)
        tables.write(Put(CELLS, cell(k, b=True)))
        assert tables.attempt(change) == Applied(True)

    def test_without_expectations_existence_is_expected(self, tables: Tables, k: str) -> None:
        assert tables.attempt(ChangeIf(CELLS, (k, 1, D), {}, {"v": "y"})) == Applied(False)
        tables.write(Put(CELLS, cell(k)))
        assert tables.attempt(ChangeIf(CELLS, (k, 1, D), {}, {"v": "y"})) == Applied(True)

    def test_a_set_is_expected_as_a_whole(self, tables: Tables, k: str) -> None:
        tables.write(Put(CELLS, cell(k, tags=frozenset({"a", "b"}))))
        assert not tables.attempt(RemoveIf(CELLS, (k, 1, D), {"tags": frozenset({"a"})})).applied
        assert tables.attempt(RemoveIf(CELLS, (k, 1, D), {"tags": frozenset({"b", "a"})})).applied

    def test_exactly_one_row_is_removed(self, tables: Tables, k: str) -> None:
        for d in (D, E):
            tables.write(Put(CELLS, cell(k, 1, d, n=1), at=10))
        assert tables.attempt(RemoveIf(CELLS, (k, 1, D), {"n": 1})) == Applied(True)
        assert [seen.row["d"] for seen in see(tables, (k,))] == [E]

    def test_a_ballot_is_later_than_the_ones_before(self, tables: Tables, k: str) -> None:
        for n in range(5):
            expected: Row = {"n": n - 1 if n else None}
            assert tables.attempt(ChangeIf(CELLS, (k, 1, D), expected, {"n": n})).applied
        assert value(tables, k, "n") == 4

    def test_an_applied_insert_may_stay_hidden(self, tables: Tables, k: str) -> None:
        tables.write(Remove(CELLS, (k,), at=FAR))
        assert tables.attempt(PutIfAbsent(CELLS, cell(k, v="x"))) == Applied(True)
        assert one(tables, k) is None

    def test_a_conditional_row_may_expire(self, tables: Tables, k: str) -> None:
        assert tables.attempt(PutIfAbsent(CELLS, cell(k, v="me"), ttl_seconds=1000)).applied
        assert tables.attempt(ChangeIf(CELLS, (k, 1, D), {"v": "me"}, {"v": "you"}, ttl_seconds=1000)).applied
        assert value(tables, k) == "you"


class TestScan:
    """A scan shows every row once, in the order of tokens, whole or a range of it."""

    @pytest.fixture
    def written(self, tables: Tables, k: str) -> list[str]:
        keys = [f"{k}{n}" for n in range(40)]
        rows = [cell(key, c, v=key, tags=frozenset({"a"}), day=DAY) for key in keys for c in (1, 2)]
        tables.write_all([Put(CELLS, row) for row in rows])
        return keys

    def scanned(self, tables: Tables, k: str, tokens: tuple[int, int] | None = None) -> list[Row]:
        rows = tables.scan(Scan(CELLS, ("k", "c", "day", "tags"), tokens=tokens))
        return [row for row in rows if row["k"].startswith(k)]

    def test_every_row_is_shown_once(self, tables: Tables, k: str, written: list[str]) -> None:
        rows = sorted(self.scanned(tables, k), key=lambda row: (row["k"], row["c"]))
        expected = [{"k": key, "c": c, "day": DAY, "tags": frozenset({"a"})} for key in sorted(written) for c in (1, 2)]
        assert rows == expected

    @pytest.mark.usefixtures("written")
    def test_token_ranges_cover_the_table_without_overlap(self, tables: Tables, k: str) -> None:
        """(after, up to]: what ranges show one after the other is what the whole scan shows, in the same order."""
        bounds = [-(2**63), -(2**62), 0, 2**61, 2**63 - 1]
        parts = [self.scanned(tables, k, tokens) for tokens in pairwise(bounds)]
        assert [row for part in parts for row in part] == self.scanned(tables, k)
        assert sum(1 for part in parts if part) > 1

    @pytest.mark.usefixtures("written")
    def test_an_empty_range_shows_nothing(self, tables: Tables, k: str) -> None:
        assert self.scanned(tables, k, (5, 5)) == []

    def test_one_partition_alone_is_scanned(self, tables: Tables, written: list[str]) -> None:
        """In clustering order, or the rows under a longer key; one that is not there shows nothing."""
        names = ("k", "c")
        assert [row["c"] for row in tables.scan(Scan(CELLS, names, under=(written[7],)))] == [1, 2]
        assert list(tables.scan(Scan(CELLS, names, under=(written[7], 2)))) == [{"k": written[7], "c": 2}]
        assert list(tables.scan(Scan(CELLS, names, under=("nowhere",)))) == []

    @pytest.mark.parametrize("limit", [None, 1, 3, 9])
    @pytest.mark.parametrize("after", [(), (1,), (1, D), (1, E), (2, D), (7,)])
    def test_one_partition_is_scanned_from_behind_a_row(
        self, tables: Tables, k: str, after: Key, limit: int | None
    ) -> None:
        keys = [(1, D), (1, E), (2, D), (2, E), (3, D)]
        tables.write_all([Put(CELLS, cell(k, c, d, v="x")) for c, d in reversed(keys)])
        rows = tables.scan(Scan(CELLS, ("c", "d"), under=(k,), after=after, limit=limit))
        expected = [key for key in keys if not after or key[: len(after)] > after]
        assert [(row["c"], row["d"]) for row in rows] == expected[:limit]

    @pytest.mark.usefixtures("written")
    def test_a_scan_ends_after_so_many_rows(self, tables: Tables) -> None:
        assert len(list(tables.scan(Scan(CELLS, ("k",), limit=3)))) == 3

    @pytest.mark.usefixtures("written")
    def test_rows_of_a_partition_stay_together(self, tables: Tables, k: str) -> None:
        rows = self.scanned(tables, k)
        assert [row["c"] for row in rows] == [1, 2] * 40
