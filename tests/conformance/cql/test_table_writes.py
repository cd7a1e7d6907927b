"""What every adapter of `Tables` does when it is written to: one suite, the memory twin and a real Cassandra."""

from typing import Any
from uuid import UUID

import pytest

from mailmend.model.operations import Applied, Change, ChangeIf, Count, Put, PutIfAbsent, Remove, RemoveIf, Seen
from mailmend.model.ports import Tables
from mailmend.model.table import Key, Row
from tests.support.tables import CELLS, COUNTERS, DAY, MARKS, D, E, cell, one, see, value

FAR = 4_000_000_000_000_000
"""A stamp of the year 2096, later than any clock's."""


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


class TestExpiry:
    """A read with times tells how many seconds each cell has left, a set as many as its last element has."""

    def test_each_cell_tells_its_own(self, tables: Tables, k: str) -> None:
        tables.write(Put(CELLS, cell(k, v="x", n=1, tags=frozenset({"a"})), at=10, ttl_seconds=1000))
        tables.write(Change(CELLS, (k, 1, D), {"n": 2}, {"tags": frozenset({"b"})}, at=20, ttl_seconds=5000))
        tables.write(Change(CELLS, (k, 1, D), {"b": True}, at=20))
        (seen,) = see(tables, (k,))
        assert seen.ttls.keys() == {"v", "n", "tags"}
        assert 900 < seen.ttls["v"] <= 1000
        assert 4900 < seen.ttls["n"] <= 5000
        assert 4900 < seen.ttls["tags"] <= 5000

    def test_a_set_without_an_expiring_element_tells_nothing(self, tables: Tables, k: str) -> None:
        tables.write(Put(CELLS, cell(k, v="x", tags=frozenset({"a"})), at=10))
        (seen,) = see(tables, (k,))
        assert seen.ttls == {}

    def test_a_conditional_insert_has_a_ttl_for_each_group_of_cells(self, tables: Tables, k: str) -> None:
        sooner = Change(CELLS, (k, 1, D), {"n": 2}, {"tags": frozenset({"b"})}, ttl_seconds=1000)
        insert = PutIfAbsent(CELLS, cell(k, v="x"), ttl_seconds=5000, beside=(sooner,))
        assert tables.attempt(insert) == Applied(True)
        (seen,) = see(tables, (k,))
        assert (seen.row["v"], seen.row["n"], seen.row["tags"]) == ("x", 2, frozenset({"b"}))
        assert 4900 < seen.ttls["v"] <= 5000
        assert 900 < seen.ttls["n"] <= 1000
        assert seen.written_at["v"] == seen.written_at["n"]
        if "tags" in seen.ttls:  # shown from Cassandra 5.0 on
            assert 900 < seen.ttls["tags"] <= 1000

    def test_a_refused_insert_changes_none_of_its_cells(self, tables: Tables, k: str) -> None:
        tables.write(Put(CELLS, cell(k, v="first")))
        sooner = Change(CELLS, (k, 1, D), {"n": 2}, ttl_seconds=1000)
        refused = tables.attempt(PutIfAbsent(CELLS, cell(k, v="x"), beside=(sooner,)))
        assert not refused.applied
        assert refused.current is not None
        assert (refused.current["v"], refused.current["n"]) == ("first", None)
        (seen,) = see(tables, (k,))
        assert (seen.row["v"], seen.row["n"]) == ("first", None)

    def test_a_later_write_without_a_ttl_takes_it_away(self, tables: Tables, k: str) -> None:
        tables.write(Put(CELLS, cell(k, v="x"), at=10, ttl_seconds=1000))
        tables.write(Put(CELLS, cell(k, v="y"), at=20))
        (seen,) = see(tables, (k,))
        assert seen.ttls == {}


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
