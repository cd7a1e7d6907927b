"""The twin is trustworthy: whatever is written, it shows what a real Cassandra shows, cell by cell, time by time."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mailmend.cql.driver.session import Keyspace
from mailmend.cql.memory import MemoryTables
from mailmend.model.operations import (
    Change,
    ChangeIf,
    Conditional,
    Put,
    PutIfAbsent,
    Read,
    Remove,
    RemoveIf,
    Seen,
    Write,
)
from mailmend.model.ports import Tables
from mailmend.model.table import Key
from tests.support.tables import CELLS, MARKS, micros
from tests.support.thorough import share

D, E = UUID("71158c60-e509-11f1-b512-b9fb9d6f173b"), UUID("7133c2c0-e509-11f1-b512-b9fb9d6f173b")
FAR = 4_000_000_000_000_000
STAMPS = st.sampled_from((1, 2, 3, 4, FAR))
PARTITION = "partition"  # stands for one that is new in every example

_clusterings = st.tuples(st.sampled_from((1, 2)), st.sampled_from((D, E)))
_plain = st.fixed_dictionaries(
    {},
    optional={
        "v": st.sampled_from((None, "a", "b")),
        "n": st.sampled_from((None, -1, 0, 7)),
        "b": st.sampled_from((None, False, True)),
        "tags": st.sampled_from((None, frozenset(), frozenset({"x"}), frozenset({"x", "y"}))),
    },
)
_tags = st.sampled_from(({}, {"tags": frozenset({"x"})}, {"tags": frozenset({"y", "z"})}))
_full = _clusterings.map(lambda rest: (PARTITION, *rest))
_prefixes = st.one_of(_full, _full.map(lambda key: key[:1]), _full.map(lambda key: key[:2]))
_changes = st.tuples(_plain, _tags, _tags).map(lambda change: _sensible(*change))


def _sensible(assign: dict[str, Any], add: dict[str, Any], take: dict[str, Any]) -> tuple[Any, Any, Any]:
    """A set is either assigned or changed by its elements; something is changed at all."""
    if "tags" in assign:
        return (assign, {}, {})
    return (assign, add, take) if assign or add or take else ({"n": 7}, {}, {})


def _row(key: Key, columns: dict[str, Any]) -> dict[str, Any]:
    return CELLS.key_row(key) | columns


writes: st.SearchStrategy[Write] = st.one_of(
    st.builds(
        lambda key, columns, at, clear: Put(CELLS, _row(key, columns), at, clear),
        _full,
        _plain,
        STAMPS,
        st.booleans(),
    ),
    st.builds(lambda key, change, at: Change(CELLS, key, change[0], change[1], change[2], at), _full, _changes, STAMPS),
    st.builds(lambda key, at: Remove(CELLS, key, at), _prefixes, STAMPS),
    st.builds(lambda c, at: Put(MARKS, {"k": PARTITION, "c": c}, at), st.sampled_from((1, 2)), STAMPS),
    st.builds(lambda key, at: Remove(MARKS, key[:2], at), _prefixes, STAMPS),
)
conditionals: st.SearchStrategy[Conditional] = st.one_of(
    st.builds(lambda key, columns: PutIfAbsent(CELLS, _row(key, columns)), _full, _plain),
    st.builds(lambda key, expected, change: ChangeIf(CELLS, key, expected, *change), _full, _plain, _changes),
    st.builds(lambda key, expected: RemoveIf(CELLS, key, expected), _full, _plain),
)


def placed(operation: Write | Conditional, partition: str) -> Write | Conditional:
    match operation:
        case Put(table, row, at, clear):
            return Put(table, {**row, "k": partition}, at, clear)
        case Change(table, key, assign, add, take, at):
            return Change(table, (partition, *key[1:]), assign, add, take, at)
        case Remove(table, key, at):
            return Remove(table, (partition, *key[1:]), at)
        case PutIfAbsent(table, row):
            return PutIfAbsent(table, {**row, "k": partition})
        case ChangeIf(table, key, expected, assign, add, take):
            return ChangeIf(table, (partition, *key[1:]), expected, assign, add, take)
        case RemoveIf(table, key, expected):
            return RemoveIf(table, (partition, *key[1:]), expected)
        case _:
            raise AssertionError(operation)


def carried_out(tables: Tables, operation: Write | Conditional) -> object:
    if isinstance(operation, PutIfAbsent | ChangeIf | RemoveIf):
        return tables.attempt(operation)
    tables.write(operation)
    return None


def shown(tables: Tables, key: Key) -> list[Seen]:
    table = MARKS if key[1:] == ("marks",) else CELLS
    seen = tables.read(Read(table, key[:1] if table is MARKS else key, times=True))
    return [
        Seen(one.row, {name: at if at < 10 or at == FAR else 0 for name, at in one.written_at.items()}) for one in seen
    ]


@pytest.mark.cassandra
@settings(max_examples=share(150), suppress_health_check=list(HealthCheck))
@given(operations=st.lists(st.one_of(writes, writes, conditionals), max_size=10))
def test_the_twin_shows_what_cassandra_shows(keyspace: Keyspace, operations: list[Write | Conditional]) -> None:
    """Given any operations, both answer each of them alike, and afterwards show the same rows at the same times."""
    twin, partition = MemoryTables(micros), uuid4().hex
    for operation in operations:
        there = placed(operation, partition)
        assert carried_out(twin, there) == carried_out(keyspace, there)
    for key in ((partition,), (partition, 1), (partition, 2, D), (partition, "marks")):
        assert shown(twin, key) == shown(keyspace, key)
