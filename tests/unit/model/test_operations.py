"""Reads and writes as values: what a row that was read still says later, and how long a write lasts."""

from dataclasses import fields, replace
from decimal import Decimal

import pytest

from mailmend.model.instants import MICROS
from mailmend.model.operations import (
    Applied,
    Change,
    ChangeIf,
    Conditional,
    Count,
    Level,
    Put,
    PutIfAbsent,
    Read,
    Remove,
    RemoveIf,
    Scan,
    Seen,
    Write,
    cells_of,
    computed_in,
    lasting,
    run_out,
)
from mailmend.model.table import Table, columns, computed_column
from mailmend.model.transforms import LowerCase

LOWER = LowerCase(source="name", type="text")
PLAIN = Table("people", columns("id int", regular="name text, age int"))
PEOPLE = PLAIN.with_columns((*PLAIN.columns, computed_column(LOWER)))
ANN = {"id": 1, "name": "Ann", "age": 7}
TIMES = {"name": 5, "age": 6}


class TestSeen:
    """A row as it was read."""

    def test_two_looks_differ_in_what_is_left_and_are_equal(self) -> None:
        one = Seen(ANN, TIMES, {"age": 9}, {"age": 100})

        assert one == Seen(ANN, TIMES, {"age": 8}, {"age": 101})
        assert one != Seen(ANN, {"name": 5})
        assert [part.name for part in fields(Seen) if part.compare is not False] == ["row", "written_at"]

    def test_cells_end_what_they_had_left_after_the_read_began(self) -> None:
        seen = Seen(ANN, TIMES, {"age": 9})

        assert seen.asked_at(3 * MICROS - 1).expires_at == {"age": 11}

    def test_without_seconds_left_the_known_instants_stay(self) -> None:
        seen = Seen(ANN, TIMES, expires_at={"age": 100})

        assert seen.asked_at(MICROS).expires_at == {"age": 100}

    def test_a_computed_cell_has_the_times_of_its_source(self) -> None:
        seen = Seen(ANN, TIMES, {"name": 9}).completed(PEOPLE.computed)

        assert seen.row == {**ANN, "lower(name)": "ann"}
        assert seen.written_at == {**TIMES, "lower(name)": 5}
        assert seen.ttls == {"name": 9, "lower(name)": 9}

    def test_a_computed_cell_that_is_null_has_no_times(self) -> None:
        seen = Seen({**ANN, "name": None}, TIMES).completed(PEOPLE.computed)

        assert seen.row["lower(name)"] is None
        assert seen.written_at == TIMES

    def test_a_row_without_computed_cells_is_as_it_was(self) -> None:
        seen = Seen(ANN, TIMES, expires_at={"age": 100})

        assert seen.completed(PLAIN.computed).expires_at == {"age": 100}

    @pytest.mark.parametrize(
        ("expires_at", "ends_at"),
        [({}, None), ({"name": 9}, None), ({"name": 9, "age": 12}, 12), ({"id": 20, "name": 9, "age": 12}, 20)],
    )
    def test_a_row_ends_with_its_last_cell(self, expires_at: dict[str, int], ends_at: int | None) -> None:
        assert Seen(ANN, TIMES, expires_at=expires_at).ends_at == ends_at

    def test_a_row_of_which_nothing_expired_is_whole(self) -> None:
        seen = Seen(ANN, TIMES, {"name": 1}, {"name": 9})

        assert seen.without_expired(8) is seen

    @pytest.mark.parametrize(("now", "is_there"), [(11, True), (12, False), (13, False)])
    def test_a_row_is_gone_with_its_last_cell(self, now: int, is_there: bool) -> None:
        seen = Seen(ANN, TIMES, expires_at={"name": 9, "age": 12})

        assert (seen.without_expired(now) is not None) is is_there

    @pytest.mark.parametrize("expires_at", [{"name": 9}, {"name": 9, "age": 12}])
    def test_an_expired_cell_is_null_without_times(self, expires_at: dict[str, int]) -> None:
        left = Seen(ANN, TIMES, expires_at=expires_at).without_expired(9)

        assert left is not None
        assert (left.row, left.written_at) == ({**ANN, "name": None}, {"age": 6})
        assert left.expires_at == {name: at for name, at in expires_at.items() if name != "name"}

    def test_an_expired_cell_that_was_not_read_adds_none(self) -> None:
        left = Seen({"id": 1}, {"age": 6}, expires_at={"name": 9}).without_expired(9)

        assert left == Seen({"id": 1}, {"age": 6})

    @pytest.mark.parametrize(
        ("other", "is_same"),
        [
            (Seen({"c": Decimal("1.0")}, {"c": 5}), True),
            (Seen({"c": Decimal("1.00")}, {"c": 5}), False),
            (Seen({"c": Decimal("1.0")}, {"c": 6}), False),
        ],
    )
    def test_rows_are_the_same_by_what_is_stored_and_when(self, other: Seen, is_same: bool) -> None:
        assert Seen({"c": Decimal("1.0")}, {"c": 5}).is_same(other) is is_same

    @pytest.mark.parametrize(("written_at", "newest"), [(TIMES, 6), ({}, None)])
    def test_the_newest_write_is_the_latest_visible_one(self, written_at: dict[str, int], newest: int | None) -> None:
        assert Seen(ANN, written_at).newest == newest

    @pytest.mark.parametrize(("seen", "cells"), [(None, {}), (Seen(ANN), ANN)])
    def test_no_row_has_no_cells(self, seen: Seen | None, cells: dict[str, object]) -> None:
        assert cells_of(seen) == cells


class TestDefaults:
    """What an operation is unless its caller says otherwise."""

    def test_a_read_asks_for_cells_alone_at_a_quorum(self) -> None:
        read = Read(PLAIN, (1,))

        assert (read.level, read.times, read.joinable) == (Level.QUORUM, False, False)

    def test_a_scan_reads_at_the_local_quorum(self) -> None:
        assert Scan(PLAIN, ("id",)).level is Level.LOCAL_QUORUM

    def test_a_put_deletes_nothing(self) -> None:
        assert not Put(PLAIN, ANN).clear

    @pytest.mark.parametrize("write", [Put(PLAIN, ANN), Change(PLAIN, (1,)), Remove(PLAIN, (1,))])
    def test_a_write_has_a_request_of_its_own(self, write: Put | Change | Remove) -> None:
        assert not write.joinable

    @pytest.mark.parametrize(
        ("names", "computed"), [(None, PEOPLE.computed), (("name", "lower(name)"), PEOPLE.computed), (("name",), ())]
    )
    def test_a_read_computes_what_it_asks_for(self, names: tuple[str, ...] | None, computed: object) -> None:
        assert computed_in(Read(PEOPLE, (1,), columns=names)) == computed

    def test_an_answer_that_was_not_applied_may_have_found_no_row(self) -> None:
        assert Applied(applied=False).current is None


NOW = 10 * MICROS
ENDING = Put(PLAIN, ANN, expires_at=15)


class TestLasting:
    """A write that is decided with an instant, sent with the seconds that it has left."""

    @pytest.mark.parametrize(
        ("write", "now", "over"),
        [
            (ENDING, 15 * MICROS - 1, False),
            (ENDING, 15 * MICROS, True),
            (Put(PLAIN, ANN), NOW, False),
            (Remove(PLAIN, (1,)), NOW, False),
        ],
    )
    def test_a_write_runs_out_at_its_instant(self, write: Write, now: int, over: bool) -> None:
        assert run_out(write, now) is over

    @pytest.mark.parametrize(
        ("now", "seconds"), [(NOW, 5), (NOW + 1, 4), (14 * MICROS, 1), (14 * MICROS + 1, 1), (20 * MICROS, 1)]
    )
    def test_it_ends_never_later_than_its_instant_and_lasts_a_second_at_least(self, now: int, seconds: int) -> None:
        assert lasting(ENDING, now) == Put(PLAIN, ANN, ttl_seconds=seconds)

    @pytest.mark.parametrize(
        "write",
        [
            Put(PLAIN, ANN, ttl_seconds=3),
            Remove(PLAIN, (1,)),
            Count(PLAIN, (1,), {"age": 1}),
            RemoveIf(PLAIN, (1,), {"age": 7}),
            ChangeIf(PLAIN, (1,), {"age": 7}, {"age": 8}),
            ChangeIf(PLAIN, (1,), {"age": 7}, add={"tags": frozenset("a")}),
        ],
    )
    def test_a_write_without_an_instant_is_sent_as_it_is(self, write: Write | Conditional) -> None:
        assert lasting(write, NOW) is write

    @pytest.mark.parametrize("write", [Change(PLAIN, (1,), {"age": 8}), PutIfAbsent(PLAIN, ANN)])
    def test_changes_and_conditional_inserts_end_too(self, write: Change | PutIfAbsent) -> None:
        assert lasting(replace(write, expires_at=15), NOW) == replace(write, ttl_seconds=5)

    @pytest.mark.parametrize(("expires_at", "seconds"), [(None, None), (12, 2)])
    def test_cells_next_to_an_insert_have_seconds_of_their_own(
        self, expires_at: int | None, seconds: int | None
    ) -> None:
        gone = Change(PLAIN, (1,), {"name": "a"}, expires_at=10)
        kept = Change(PLAIN, (1,), {"age": 8}, expires_at=15)

        sent = lasting(PutIfAbsent(PLAIN, ANN, expires_at=expires_at, beside=(gone, kept)), NOW)

        beside = (replace(kept, expires_at=None, ttl_seconds=5),)
        assert sent == PutIfAbsent(PLAIN, ANN, ttl_seconds=seconds, beside=beside)
