"""Reads that share requests answer as each would alone."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.driver.joined import KEYS_MAX, RowsOrError, read_joined
from mailmend.cql.memory import MemoryTables
from mailmend.model.errors import CannotReach
from mailmend.model.operations import Level, Put, Read
from tests.support.tables import MARKS


def stored() -> MemoryTables:
    tables = MemoryTables(lambda: 5)
    tables.write_all([Put(MARKS, {"k": k, "c": c}) for k in "abcd" for c in range(3)])
    return tables


class Server:
    """Answers from the tables, and counts requests; a request for several keys fails where `joined_fails`."""

    def __init__(self, *, joined_fails: bool = False) -> None:
        self.tables, self.joined_fails = stored(), joined_fails
        self.requests: list[Read] = []

    def ask(self, reads: Sequence[Read]) -> list[RowsOrError]:
        self.requests += reads
        answers = self.tables.read_all(reads)
        return [
            CannotReach("no replica") if read.among and self.joined_fails else answer
            for read, answer in zip(reads, answers, strict=True)
        ]


def marks(*keys: tuple[object, ...]) -> list[Read]:
    return [Read(MARKS, key, joinable=True) for key in keys]


KEYS = st.tuples(st.sampled_from("abcdef")) | st.tuples(st.sampled_from("abcdef"), st.integers(0, 4))
READS = st.builds(
    Read,
    st.just(MARKS),
    KEYS,
    st.sampled_from([Level.QUORUM, Level.SERIAL]),
    st.booleans(),
    joinable=st.booleans(),
    columns=st.sampled_from([None, ()]),
)


@given(st.lists(READS, max_size=12), st.booleans())
def test_joined_or_alone_the_answers_are_the_same(reads: list[Read], joined_fails: bool) -> None:
    server = Server(joined_fails=joined_fails)
    alone = stored().read_all(reads)
    assert list(map(list, read_joined(reads, server.ask, lambda _: "node"))) == list(map(list, alone))  # type: ignore[arg-type]


def test_keys_of_a_table_and_rows_of_a_partition_share_a_request_each() -> None:
    server = Server()
    read_joined(marks(("a",), ("b",), ("a", 1), ("a", 2), ("b", 1)), server.ask, lambda _: "node")
    assert [(read.key, read.among) for read in server.requests] == [((), ("a", "b")), (("a",), (1, 2)), (("b", 1), ())]


def test_only_partitions_of_one_replica_share_a_request() -> None:
    server = Server()
    read_joined(marks(("a",), ("b",), ("c",)), server.ask, lambda read: read.key[0] in "ac")
    assert [read.among for read in server.requests] == [("a", "c"), ()]


def test_a_request_has_a_largest_number_of_keys() -> None:
    server = Server()
    read_joined(marks(*((f"k{n}",) for n in range(KEYS_MAX + 2))), server.ask, lambda _: "node")
    assert [len(read.among) for read in server.requests] == [KEYS_MAX, 2]


@pytest.mark.parametrize("further", [1, 2, KEYS_MAX + 1])
def test_what_is_left_over_has_its_own_answer(further: int) -> None:
    """One read too many for a request is sent alone, and is not the group's first one once more."""
    server = Server()
    server.tables.write_all([Put(MARKS, {"k": "full", "c": c}) for c in range(KEYS_MAX + further)])
    reads = marks(*(("full", c) for c in range(KEYS_MAX + further)))
    answers = read_joined(reads, server.ask, lambda _: "node")
    assert [[seen.row["c"] for seen in answer] for answer in answers if isinstance(answer, Sequence)] == [
        [c] for c in range(KEYS_MAX + further)
    ]


def test_serial_reads_and_those_that_may_be_large_are_sent_alone() -> None:
    server = Server()
    large = Read(MARKS, ("a",))
    serial = Read(MARKS, ("a",), Level.SERIAL, joinable=True)
    read_joined([large, replace(large, key=("b",)), serial, replace(serial, key=("b",))], server.ask, lambda _: "node")
    assert [read.among for read in server.requests] == [()] * 4


def test_a_row_that_nobody_asked_for_makes_each_read_ask_alone() -> None:
    server = Server()
    strange = list(server.tables.read(Read(MARKS, ("d",))))

    def ask(reads: Sequence[Read]) -> list[RowsOrError]:
        return [strange if read.among else answer for read, answer in zip(reads, server.ask(reads), strict=True)]

    answers = read_joined(marks(("a",), ("b",)), ask, lambda _: "node")
    assert [len(answer) for answer in answers if isinstance(answer, Sequence)] == [3, 3]
