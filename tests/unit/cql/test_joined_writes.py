"""Writes that share requests leave what each would leave alone, and have each its own answer."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.driver.joined import BYTES_MAX, PARTITIONS_MAX, WRITES_MAX, JoinedWrite, write_joined
from mailmend.cql.memory import MemoryTables
from mailmend.model.errors import CannotReach, MailmendError, TimedOut, WrongUse
from mailmend.model.operations import Change, Count, Put, Read, Remove, Write
from tests.support.clock import uuid_at
from tests.support.tables import CELLS, COUNTERS, MARKS

D = uuid_at(1_000)
BAD = "refused"


def replica_of(write: Write) -> bool:
    """Partitions "a" to "m" lie on one, the others on another."""
    assert isinstance(write, Remove)
    return str(write.key[0]) <= "m"


class Server:
    """Carries requests out, a joined one whole or not at all; `answer_to_joined` is what those are told instead."""

    def __init__(self, answer_to_joined: MailmendError | None = None) -> None:
        self.tables, self.answer_to_joined = MemoryTables(lambda: 5), answer_to_joined
        self.requests: list[Write | JoinedWrite] = []

    def write_all(self, writes: Sequence[Write]) -> list[MailmendError | None]:
        return write_joined(writes, self.send, replica_of)

    def send(self, requests: Sequence[Write | JoinedWrite]) -> list[MailmendError | None]:
        self.requests += requests
        return [self._answer(request) for request in requests]

    def _answer(self, request: Write | JoinedWrite) -> MailmendError | None:
        writes = request.writes if isinstance(request, JoinedWrite) else (request,)
        if isinstance(request, JoinedWrite) and self.answer_to_joined:
            return self.answer_to_joined
        if any(isinstance(write, Put) and write.row.get("v") == BAD for write in writes):
            return WrongUse("a value does not fit its column")
        return next((error for error in self.tables.write_all(writes) if error), None)

    @property
    def joined(self) -> list[int]:
        return [len(one.writes) if isinstance(one, JoinedWrite) else 1 for one in self.requests]

    def rows(self) -> list[list[Any]]:
        keys = [Read(table, (k,), times=True) for table in (CELLS, MARKS, COUNTERS) for k in "ab"]
        return [list(self.tables.read(read)) for read in keys]


def put(k: str, c: int = 1, v: str = "x", *, joinable: bool = True) -> Put:
    return Put(CELLS, {"k": k, "c": c, "d": D, "v": v}, at=10, joinable=joinable)


K, C, AT = st.sampled_from("ab"), st.integers(0, 3), st.integers(1, 30)
WRITES = st.one_of(
    st.builds(
        lambda k, c, v, at, joined: Put(CELLS, {"k": k, "c": c, "d": D, "v": v}, at=at, joinable=joined),
        K, C, st.sampled_from(["x", None, BAD]), AT, st.booleans(),
    ),
    st.builds(lambda k, c, at: Change(CELLS, (k, c, D), {"n": at}, at=at, joinable=True), K, C, AT),
    st.builds(lambda k, c, at, joined: Remove(CELLS, (k, c), at=at, joinable=joined), K, C, AT, st.booleans()),
    st.builds(lambda k, at, joined: Remove(MARKS, (k,), at=at, joinable=joined), K, AT, st.booleans()),
    st.builds(lambda k, c, at: Put(MARKS, {"k": k, "c": c}, at=at, joinable=True), K, C, AT),
    st.builds(lambda k: Count(COUNTERS, (k,), {"count": 1}), K),
)  # fmt: skip


@given(st.lists(WRITES, max_size=14))
def test_joined_or_alone_rows_and_answers_are_the_same(writes: list[Write]) -> None:
    """Whatever stamps they carry, and where one of them is refused."""
    joined, alone = Server(), Server()
    answers = [joined.write_all(writes), alone.send(writes)]
    assert [type(error) for error in answers[0]] == [type(error) for error in answers[1]]
    assert joined.rows() == alone.rows()


def test_writes_of_a_partition_share_a_request_in_any_order() -> None:
    server = Server()
    mark = Put(MARKS, {"k": "a", "c": 1}, joinable=True)
    assert server.write_all([put("a"), put("b"), mark, put("a", 2), Remove(CELLS, ("a", 1), 9, joinable=True)])
    assert sorted(server.joined) == [1, 1, 3]


def test_removals_of_whole_partitions_share_a_request_by_replica() -> None:
    """No more of them than a node takes without a warning; of another table, or of part of a partition, none."""
    server = Server()
    server.tables.write(Put(MARKS, {"k": "a", "c": 1}, at=1))
    other, part = Remove(CELLS, ("a",), 9, joinable=True), Remove(MARKS, ("a", 1), 9, joinable=True)
    gone = [Remove(MARKS, (one,), 9, joinable=True) for one in "abcdefghijklxyz"]
    alone = replace(gone[0], joinable=False)
    assert server.write_all([other, *gone, part, alone]) == [None] * 18
    assert sorted(server.joined) == [1, 1, 1, 2, 3, PARTITIONS_MAX]
    assert server.rows() == Server().rows()


def test_only_what_says_so_is_joined() -> None:
    server = Server()
    server.write_all([put("a", joinable=False), put("a", 2, joinable=False), put("a"), put("a", 2)])
    assert sorted(server.joined) == [1, 1, 2]


def test_a_request_has_a_largest_number_of_writes() -> None:
    server = Server()
    server.write_all([put("a", c) for c in range(WRITES_MAX + 2)])
    assert server.joined == [WRITES_MAX, 2]


def test_a_request_has_a_largest_number_of_bytes() -> None:
    """Elements of sets count; a write that is larger by itself is sent alone."""
    server = Server()
    third = BYTES_MAX // 3
    tags = Put(CELLS, {"k": "a", "c": 9, "d": D, "tags": frozenset({"t" * third})}, joinable=True)
    server.write_all([put("a", 1, "v" * third), tags, put("a", 2, "v" * third), put("a", 3, "v" * 2 * BYTES_MAX)])
    assert server.joined == [2, 1, 1]


def test_what_is_refused_together_is_sent_one_by_one() -> None:
    """An older server, or another one, may have limits of its own."""
    server = Server(WrongUse("Batch too large"))
    assert server.write_all([put("a"), put("a", 2), put("b")]) == [None] * 3
    assert server.joined == [2, 1, 1, 1]


def test_a_request_without_an_answer_is_every_writes_error_and_not_sent_again() -> None:
    for error in (TimedOut("no answer"), CannotReach("no node")):
        server = Server(error)
        assert server.write_all([put("a"), put("b"), put("a", 2)]) == [error, None, error]
        assert sorted(server.joined) == [1, 2]
