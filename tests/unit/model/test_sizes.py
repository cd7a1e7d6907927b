"""Sizes are summed over the nodes, scaled over those that are silent, and never invented."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.sizes import TableSize, bytes_text, table_sizes
from mailmend.model.table import Row

MIB = 1024 * 1024


def recorded(table: str, partitions: int, mean_bytes: int = 100) -> Row:
    """A row of size_estimates: one range of one node."""
    return {"table_name": table, "partitions_count": partitions, "mean_partition_size": mean_bytes}


def on_disk(table: str, mebibytes: int) -> Row:
    return {"table_name": table, "mebibytes": mebibytes}


def test_ranges_and_nodes_are_summed() -> None:
    nodes = [[recorded("notes", 10), recorded("notes", 20, 200)], [recorded("notes", 30)], []]
    found = table_sizes(nodes, [[on_disk("notes", 2)], [on_disk("notes", 3)], []], 3)
    assert found == {"notes": TableSize(60, 8_000, 5 * MIB, 3, 3)}
    assert str(found["notes"]) == "about 60 partitions, 7.81 KiB a copy, 5 MiB on disk (estimate from 3 of 3 nodes)"


def test_a_silent_node_is_scaled_over_and_reported() -> None:
    found = table_sizes([[recorded("notes", 10)], [recorded("notes", 20)]], [], 3)
    assert found["notes"] == TableSize(45, 4_500, None, 2, 3)
    assert "from 2 of 3 nodes" in str(found["notes"])


def test_what_nobody_tells_is_unknown() -> None:
    assert table_sizes([], [], 3) == {}
    assert table_sizes([[], []], [[on_disk("notes", 1)]], 2)["notes"] == TableSize(None, None, 2 * MIB, 2, 2)
    assert str(TableSize(None, None, None, 1, 1)) == "unknown"


@given(st.lists(st.lists(st.integers(0, 10**9), max_size=5), min_size=1, max_size=5))
def test_when_every_node_answers_nothing_is_scaled(counts: list[list[int]]) -> None:
    nodes = [[recorded("notes", count) for count in node] for node in counts]
    found = table_sizes(nodes, [], len(nodes)).get("notes")
    assert (found.partitions if found else 0) == sum(map(sum, counts))


def test_more_answers_than_nodes_scale_nothing_down() -> None:
    assert table_sizes([[recorded("notes", 10)], [recorded("notes", 10)]], [], 1)["notes"] == (
        TableSize(20, 2_000, None, 2, 1)
    )


def test_either_source_counts_as_having_asked() -> None:
    rows, disks = [[recorded("notes", 2)]], [[on_disk("notes", 1)], [on_disk("notes", 1)]]
    found = table_sizes(rows, disks, 2)["notes"]
    assert (found.partitions, found.disk_bytes, found.nodes_asked) == (4, 2 * MIB, 2)
    found = table_sizes([*rows, *rows, *rows], disks, 3)["notes"]
    assert (found.partitions, found.disk_bytes, found.nodes_asked) == (6, 3 * MIB, 3)


def test_tables_are_reported_by_name() -> None:
    found = table_sizes([[recorded("b", 1)], [recorded("c", 1), recorded("b", 1)]], [[on_disk("a", 1)]], 2)
    assert list(found) == ["a", "b", "c"]
    assert (found["a"].partitions, found["b"].disk_bytes) == (None, None)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1000 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1023 * 1024, "1023 KiB"),
        (MIB, "1 MiB"),
        (1024 * MIB - 1, "1024 MiB"),
        (5 * 1024 * MIB, "5 GiB"),
        (2**50, "1 PiB"),
        (2**61, "2048 PiB"),
    ],
)
def test_bytes_are_reported_in_the_largest_unit_that_they_fill(count: int, text: str) -> None:
    assert bytes_text(count) == text


@given(st.integers(0, 2**60))
def test_bytes_are_reported_in_three_digits_or_four(count: int) -> None:
    number, unit = bytes_text(count).split()
    assert unit in {"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
    assert float(number) <= 1024
