"""What every adapter of `Tables` shows when it is read and scanned: one suite, the memory twin and a real Cassandra."""

from dataclasses import replace
from itertools import pairwise
from uuid import UUID

import pytest

from mailmend.model.errors import MailmendError
from mailmend.model.operations import Change, Level, Put, Read, Scan, Seen
from mailmend.model.ports import Tables
from mailmend.model.table import Key, Row
from tests.support.tables import CELLS, DAY, MARKS, D, E, cell, see


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

    def test_some_partitions_are_scanned_as_one(self, tables: Tables, written: list[str]) -> None:
        scan = Scan(CELLS, ("k", "c"), among=(*written[3:5], "nowhere"))
        expected = [(key, c) for key in written[3:5] for c in (1, 2)]
        assert sorted((row["k"], row["c"]) for row in tables.scan(scan)) == expected
        assert len(list(tables.scan(replace(scan, limit=3)))) == 3

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
