"""What the twin has beyond the common suite: a clock that tests turn, and a hook where they break things."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.memory import MemoryTables, token_of
from mailmend.cql.row_statements import Operation
from mailmend.model.catalog.mail import MAILBOX, MESSAGE_V3, PATHS
from mailmend.model.errors import DoubtfulWrite, MailmendError, TimedOut
from mailmend.model.operations import (
    Applied,
    Change,
    ChangeIf,
    Count,
    Put,
    PutIfAbsent,
    Read,
    Remove,
    Scan,
    Seen,
    Write,
)
from mailmend.model.ports import NodeClocks, Tables
from tests.support.clock import START, VirtualClock
from tests.support.tables import CELLS, COUNTERS, MARKS

D = UUID("71158c60-e509-11f1-b512-b9fb9d6f173b")
ROW = {"k": "k", "c": 1, "d": D, "v": "x"}


def shown(tables: MemoryTables) -> list[Any]:
    return [seen.row["v"] for seen in tables.read(Read(CELLS, ("k",)))]


class TestClock:
    """Stamps, ballots and expiry come from the clock that the test turns."""

    def test_it_is_both_ports(self) -> None:
        tables = MemoryTables(lambda: 5)
        ports: tuple[Tables, NodeClocks] = (tables, tables)
        assert ports[1].node_micros() == [5]

    def test_a_write_without_a_stamp_gets_the_clocks(self) -> None:
        tables = MemoryTables(VirtualClock().micros)
        tables.write(Put(CELLS, ROW))
        assert tables.read(Read(CELLS, ("k",), times=True))[0].written_at == {"v": START}

    def test_stamps_of_one_instant_differ(self) -> None:
        tables = MemoryTables(lambda: 100)
        for v in ("b", "a"):
            tables.write(Put(CELLS, {**ROW, "v": v}))
        assert shown(tables) == ["a"]

    def test_stamps_never_go_back(self) -> None:
        clock = iter((200, 200, 100, 100))
        tables = MemoryTables(lambda: next(clock, 100))
        for v in ("b", "a"):
            assert tables.attempt(ChangeIf(CELLS, ("k", 1, D), {"n": None}, {"v": v})).applied
        assert shown(tables) == ["a"]

    @pytest.mark.parametrize("explicit", [True, False])
    def test_a_row_expires_with_its_ttl(self, explicit: bool) -> None:
        clock = VirtualClock()
        tables = MemoryTables(clock.micros)
        table = CELLS if explicit else replace(CELLS, options={"default_time_to_live": "60"})
        tables.write(Put(table, ROW, ttl_seconds=60 if explicit else None))
        clock.advance(59)
        assert shown(tables) == ["x"]
        clock.advance(1)
        assert shown(tables) == []

    def test_a_lease_that_expired_is_free(self) -> None:
        clock = VirtualClock()
        tables = MemoryTables(clock.micros)
        assert tables.attempt(PutIfAbsent(CELLS, ROW, ttl_seconds=60)).applied
        clock.advance(30)
        assert tables.attempt(PutIfAbsent(CELLS, ROW, ttl_seconds=60)).current is not None
        clock.advance(30)
        assert tables.attempt(PutIfAbsent(CELLS, ROW, ttl_seconds=60)) == Applied(True)

    def test_a_renewal_that_names_too_few_columns_leaves_the_rest_to_expire(self) -> None:
        clock = VirtualClock()
        tables = MemoryTables(clock.micros)
        tables.attempt(PutIfAbsent(CELLS, {**ROW, "n": 1}, ttl_seconds=60))
        clock.advance(30)
        tables.attempt(ChangeIf(CELLS, ("k", 1, D), {"v": "x"}, {"n": 2}, ttl_seconds=60))
        clock.advance(30)
        assert [(seen.row["v"], seen.row["n"]) for seen in tables.read(Read(CELLS, ("k",)))] == [(None, 2)]

    def test_what_expires_beats_what_does_not_at_a_tie(self) -> None:
        tables = MemoryTables(VirtualClock().micros)
        tables.write(Put(CELLS, {**ROW, "v": "a"}, at=10, ttl_seconds=60))
        tables.write(Put(CELLS, {**ROW, "v": "b"}, at=10))
        assert shown(tables) == ["a"]


class TestSurround:
    """The hook where tests break things."""

    def test_an_operation_may_fail_before(self) -> None:
        def refuse(operation: Operation, carry_out: Callable[[], Any]) -> Any:
            raise TimedOut("no answer")

        tables = MemoryTables(lambda: 1, refuse)
        with pytest.raises(TimedOut):
            tables.write(Put(CELLS, ROW))
        tables.surround = lambda _, carry_out: carry_out()
        assert shown(tables) == []

    def test_an_operation_may_fail_after(self) -> None:
        def lose_the_answer(operation: Operation, carry_out: Callable[[], Any]) -> Any:
            carry_out()
            raise DoubtfulWrite("no answer")

        tables = MemoryTables(lambda: 1, lose_the_answer)
        with pytest.raises(DoubtfulWrite):
            tables.attempt(PutIfAbsent(CELLS, ROW))
        tables.surround = lambda _, carry_out: carry_out()
        assert shown(tables) == ["x"]

    def test_it_sees_every_operation(self) -> None:
        seen: list[type] = []

        def note(operation: Operation, carry_out: Callable[[], Any]) -> Any:
            seen.append(type(operation))
            return carry_out()

        tables = MemoryTables(lambda: 1, note)
        tables.write_all([Put(CELLS, ROW), Remove(CELLS, ("k",))])
        tables.read_all([Read(CELLS, ("k",))])
        list(tables.scan(Scan(CELLS, ("k",))))
        assert seen == [Put, Remove, Read, Scan]

    def test_of_many_only_the_failing_one_fails(self) -> None:
        def refuse_two(operation: Operation, carry_out: Callable[[], Any]) -> Any:
            if isinstance(operation, Put) and operation.row["c"] == 2:
                raise TimedOut("no answer")
            return carry_out()

        tables = MemoryTables(lambda: 1, refuse_two)
        errors = tables.write_all([Put(CELLS, {**ROW, "c": c}) for c in (1, 2, 3)])
        assert [type(error) for error in errors] == [type(None), TimedOut, type(None)]
        assert len(shown(tables)) == 2

    def test_an_error_of_the_program_is_not_an_answer(self) -> None:
        tables = MemoryTables(lambda: 1)
        with pytest.raises(KeyError):
            tables.write_all([Change(CELLS, ("k", 1, D), {"nope": 1})])

    def test_a_row_without_its_whole_key_is_refused(self) -> None:
        tables = MemoryTables(lambda: 1)
        with pytest.raises(ValueError, match="no row under"):
            tables.write(Put(CELLS, {**ROW, "c": None}))


class TestShapes:
    """Values of every kind that the mail tables have."""

    def test_fields_of_a_user_type_are_read_one_by_one(self) -> None:
        tables = MemoryTables(lambda: 7)
        base = {"namespace": "#private", "user": "me"}
        tables.write(Put(MAILBOX, {"id": D, "mailboxbase": base, "name": "INBOX"}))
        seen = tables.read(Read(PATHS.mirror.table, (D,), times=True))
        fields = {"mailboxbase.namespace": "#private", "mailboxbase.user": "me"}
        assert seen == [
            Seen({"id": D, "name": "INBOX", "uidvalidity": None, **fields}, dict.fromkeys((*fields, "name"), 7))
        ]

    def test_a_list_keeps_its_order(self) -> None:
        tables = MemoryTables(lambda: 7)
        for ids in (("a", "b", "c"), ("c", "a")):
            tables.write(Put(MESSAGE_V3, {"messageid": D, "attachments": tuple({"id": one} for one in ids)}))
        assert tables.read(Read(MESSAGE_V3, (D,)))[0].row["attachments"] == ({"id": "c"}, {"id": "a"})

    def test_a_deleted_counter_starts_anew(self) -> None:
        tables = MemoryTables(lambda: 7)
        tables.write(Count(COUNTERS, ("k",), {"count": 5}))
        tables.write(Remove(COUNTERS, ("k",)))
        assert tables.read(Read(COUNTERS, ("k",))) == []
        tables.write(Count(COUNTERS, ("k",), {"count": 1}))
        assert tables.read(Read(COUNTERS, ("k",)))[0].row["count"] == 1

    def test_a_scan_shows_the_table_as_it_began(self) -> None:
        tables = MemoryTables(lambda: 7)
        tables.write_all([Put(MARKS, {"k": str(n), "c": 1}) for n in range(10)])
        rows = []
        for row in tables.scan(Scan(MARKS, ("k",))):
            rows.append(row)
            tables.write(Put(MARKS, {"k": f"new{len(rows)}", "c": 1}))
        assert len(rows) == 10

    @given(key=st.tuples(st.uuids() | st.text()))
    def test_tokens_are_where_tokens_are(self, key: tuple[Any, ...]) -> None:
        assert -(2**63) <= token_of(key) < 2**63
        assert token_of(key) == token_of(tuple(key))


@given(stamps=st.permutations(range(1, 6)), removed_at=st.integers(1, 5))
def test_writes_may_come_in_any_order(stamps: list[int], removed_at: int) -> None:
    tables, turned = MemoryTables(lambda: 9), MemoryTables(lambda: 9)
    writes: list[Write] = [Put(CELLS, {**ROW, "v": str(at)}, at=at) for at in stamps]
    remove = Remove(CELLS, ("k",), removed_at)
    for write in [*writes, remove]:
        tables.write(write)
    for write in [remove, *reversed(writes)]:
        turned.write(write)
    assert shown(tables) == shown(turned) == (["5"] if removed_at < 5 else [])


def test_errors_keep_their_kind() -> None:
    error = TimedOut("no answer")

    def fail(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        raise error

    answers: list[Any] = MemoryTables(lambda: 1, fail).read_all([Read(CELLS, ("k",))])
    assert answers == [error]
    assert isinstance(answers[0], MailmendError)
