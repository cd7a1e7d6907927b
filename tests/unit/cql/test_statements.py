"""Operations as CQL text: exactly what is sent, one text for each shape, every value bound."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.row_statements import Operation, render, selection_of, shape_of, values_of
from mailmend.model.catalog.mail import FAMILIES, IMAP_UID, MAILBOX_COUNTERS, PATHS
from mailmend.model.errors import BadIdentifier
from mailmend.model.operations import Change, ChangeIf, Count, Level, Put, PutIfAbsent, Read, Remove, RemoveIf, Scan
from mailmend.model.table import Column, Kind, Table

T = Table(
    "someTable",
    (
        Column("messageId", "timeuuid", Kind.PARTITION),
        Column("uid", "bigint", Kind.CLUSTERING),
        Column("modSeq", "bigint"),
        Column("userFlags", "set<text>"),
    ),
)
PAIRED = Table(
    "paired",
    (Column("a", "text", Kind.PARTITION), Column("b", "text", Kind.PARTITION), Column("c", "int", Kind.CLUSTERING)),
)
M = UUID("71158c60-e509-11f1-b512-b9fb9d6f173b")
ROW = {"messageid": M, "uid": 7, "modseq": None, "userflags": frozenset({"a"})}
UNSET = "left alone"

TEXTS: list[tuple[Operation, str, tuple[Any, ...]]] = [
    (
        Read(T, (M,)),
        "SELECT messageid, uid, modseq, userflags FROM ks.sometable WHERE messageid = ?",
        (M,),
    ),
    (
        Read(T, (M, 7), times=True),
        (
            "SELECT messageid, uid, modseq, userflags, WRITETIME(modseq), TTL(modseq) FROM ks.sometable"
            " WHERE messageid = ? AND uid = ?"
        ),
        (M, 7),
    ),
    (
        Read(T, (M,), among=(7, 8)),
        "SELECT messageid, uid, modseq, userflags FROM ks.sometable WHERE messageid = ? AND uid IN ?",
        (M, (7, 8)),
    ),
    (
        Read(PAIRED, ("x",), among=("y", "z")),
        "SELECT a, b, c FROM ks.paired WHERE a = ? AND b IN ?",
        ("x", ("y", "z")),
    ),
    (Scan(T, ("uid", "modseq")), "SELECT uid, modseq FROM ks.sometable", ()),
    (Scan(T, ("uid",), under=(M,)), "SELECT uid FROM ks.sometable WHERE messageid = ?", (M,)),
    (
        Scan(PAIRED, ("c",), under=("x",), among=("y", "z"), limit=5),
        "SELECT c FROM ks.paired WHERE a = ? AND b IN ? LIMIT ?",
        ("x", ("y", "z"), 5),
    ),
    (
        Scan(PAIRED, ("c",), under=("x", "y", 3)),
        "SELECT c FROM ks.paired WHERE a = ? AND b = ? AND c = ?",
        ("x", "y", 3),
    ),
    (
        Scan(T, ("uid",), tokens=(-5, 9)),
        "SELECT uid FROM ks.sometable WHERE token(messageid) > ? AND token(messageid) <= ?",
        (-5, 9),
    ),
    (
        Scan(PAIRED, ("c",), tokens=(-5, 9)),
        "SELECT c FROM ks.paired WHERE token(a, b) > ? AND token(a, b) <= ?",
        (-5, 9),
    ),
    (
        Put(T, ROW),
        "INSERT INTO ks.sometable (messageid, uid, modseq, userflags) VALUES (?, ?, ?, ?)",
        (M, 7, UNSET, frozenset({"a"})),
    ),
    (
        Put(T, ROW, at=5, clear=True, ttl_seconds=60),
        "INSERT INTO ks.sometable (messageid, uid, modseq, userflags) VALUES (?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?",
        (M, 7, None, frozenset({"a"}), 60, 5),
    ),
    (
        Change(T, (M, 7), {"modseq": 3}, {"userflags": frozenset({"a"})}, {"userflags": frozenset({"b"})}, at=5),
        (
            "UPDATE ks.sometable USING TIMESTAMP ? SET modseq = ?, userflags = userflags + ?, userflags = userflags - ?"
            " WHERE messageid = ? AND uid = ?"
        ),
        (5, 3, frozenset({"a"}), frozenset({"b"}), M, 7),
    ),
    (Remove(T, (M,)), "DELETE FROM ks.sometable WHERE messageid = ?", (M,)),
    (
        Remove(T, (M, 7), at=5),
        "DELETE FROM ks.sometable USING TIMESTAMP ? WHERE messageid = ? AND uid = ?",
        (5, M, 7),
    ),
    (
        Count(MAILBOX_COUNTERS, (M,), {"count": 1, "unseen": -1}),
        "UPDATE ks.mailboxcounters SET count = count + ?, unseen = unseen + ? WHERE mailboxid = ?",
        (1, -1, M),
    ),
    (
        PutIfAbsent(T, ROW, ttl_seconds=60),
        "INSERT INTO ks.sometable (messageid, uid, modseq, userflags) VALUES (?, ?, ?, ?) IF NOT EXISTS USING TTL ?",
        (M, 7, UNSET, frozenset({"a"}), 60),
    ),
    (
        ChangeIf(T, (M, 7), {"modseq": None}, {"modseq": 3}, {"userflags": frozenset({"a"})}, ttl_seconds=60),
        (
            "UPDATE ks.sometable USING TTL ? SET modseq = ?, userflags = userflags + ?"
            " WHERE messageid = ? AND uid = ? IF modseq = ?"
        ),
        (60, 3, frozenset({"a"}), M, 7, None),
    ),
    (
        ChangeIf(T, (M, 7), {}, {"modseq": 3}),
        "UPDATE ks.sometable SET modseq = ? WHERE messageid = ? AND uid = ? IF EXISTS",
        (3, M, 7),
    ),
    (
        RemoveIf(T, (M, 7), {"modseq": 3, "userflags": None}),
        "DELETE FROM ks.sometable WHERE messageid = ? AND uid = ? IF modseq = ? AND userflags = ?",
        (M, 7, 3, None),
    ),
]


@pytest.mark.parametrize(("operation", "text", "values"), TEXTS)
def test_each_kind_has_its_text_and_its_values(operation: Operation, text: str, values: tuple[Any, ...]) -> None:
    assert render("ks", operation) == text
    assert values_of(operation, UNSET) == values
    assert text.count("?") == len(values)


@pytest.mark.parametrize(("operation", "text", "_"), TEXTS)
def test_a_quoted_keyspace_stands_in_its_quotes(operation: Operation, text: str, _: tuple[Any, ...]) -> None:
    assert render('"OddKs"', operation) == text.replace(" ks.", ' "OddKs".')


def test_times_of_collections_are_read_where_the_server_tells_them() -> None:
    read = Read(T, (M,), times=True)
    assert render("ks", read, collection_times=True).startswith(
        "SELECT messageid, uid, modseq, userflags, WRITETIME(modseq), MAXWRITETIME(userflags), TTL(modseq), "
        "COLLECTION_MAX(TTL(userflags)) FROM"
    )
    assert [column.name for column in selection_of(read, collection_times=False).timed] == ["modseq"]


def test_partitions_are_read_once() -> None:
    scan = Scan(T, ("messageid",), tokens=(1, 2), limit=3, distinct=True)

    text = render("ks", scan)
    assert text.startswith("SELECT DISTINCT messageid FROM ks.sometable WHERE token(messageid) > ?")
    assert text.endswith(" LIMIT ?")
    assert shape_of(scan) != shape_of(replace(scan, distinct=False))


def test_counters_have_no_times() -> None:
    assert "WRITETIME" not in render("ks", Read(MAILBOX_COUNTERS, (M,), times=True), collection_times=True)


def test_fields_of_a_user_type_are_read_one_by_one() -> None:
    table = PATHS.mirror.table
    text = render("ks", Read(table, (M,), times=True))
    assert "mailboxbase.namespace, mailboxbase.user, name" in text
    assert text.count("WRITETIME(mailboxbase)") == 2
    assert selection_of(Read(table, (M,)), collection_times=True).names == table.names


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.truth.spelling)
def test_every_declared_table_can_be_read(family: Any) -> None:
    for table in family.tables:
        key = tuple(range(len(table.partition)))
        assert render("ks", Read(table, key, times=True)).endswith("?")
        assert render("ks", Scan(table, table.names)).endswith(table.name)


@pytest.mark.parametrize(
    ("keyspace", "table"),
    [
        ("ks; DROP TABLE x", T),
        ("1ks", T),
        ('"a"b"', T),
        ('"Odd-Ks"', T),
        ("ks", Table("a b", T.columns)),
        ("ks", Table('a"', T.columns)),
    ],
)
def test_names_that_cql_would_not_take_are_refused(keyspace: str, table: Table) -> None:
    with pytest.raises(BadIdentifier):
        render(keyspace, Read(table, (M,)))


def test_a_column_that_cql_would_not_take_is_refused() -> None:
    bad = T.with_columns((*T.columns, Column("x = 1, y", "text")))
    with pytest.raises(BadIdentifier):
        render("ks", Read(bad, (M,)))
    with pytest.raises(BadIdentifier):
        render("ks", Put(bad, {"x = 1, y": "z"}))


PATH = {"id": M, "mailboxbase.namespace": "#private", "mailboxbase.user": "me", "name": "INBOX"}


def test_a_user_type_is_written_whole() -> None:
    put = Put(PATHS.mirror.table, PATH)

    assert render("ks", put) == "INSERT INTO ks.mailbox (id, mailboxbase, name) VALUES (?, ?, ?)"
    assert values_of(put, "unset") == (M, {"namespace": "#private", "user": "me"}, "INBOX")


def test_a_user_type_whose_fields_are_null_is_null() -> None:
    empty = {"mailboxbase.namespace": None, "mailboxbase.user": None}
    put = Put(PATHS.mirror.table, PATH | empty, clear=True)

    assert values_of(put, "unset") == (M, None, "INBOX")


def test_a_change_sets_a_user_type_whole() -> None:
    change = Change(PATHS.mirror.table, (M,), {name: PATH[name] for name in PATH if name != "id"})

    assert render("ks", change) == "UPDATE ks.mailbox SET mailboxbase = ?, name = ? WHERE id = ?"
    assert values_of(change, "unset") == ({"namespace": "#private", "user": "me"}, "INBOX", M)


def test_one_field_of_a_user_type_cannot_be_written() -> None:
    """The other fields would be lost."""
    with pytest.raises(ValueError, match=r"mailbox\.mailboxbase is written with all of its fields"):
        render("ks", Put(PATHS.mirror.table, {"id": M, "mailboxbase.user": "me"}))


def test_a_column_that_the_table_lacks_is_refused() -> None:
    with pytest.raises(KeyError, match="someTable has no column nope"):
        render("ks", Put(T, {"messageid": M, "nope": 1}))


@pytest.mark.parametrize("key", [(), (1,), (1, 2, 3, 4)])
def test_a_key_holds_at_least_the_partition_and_at_most_the_row(key: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=f"key of {len(key)} values"):
        render("ks", Remove(PAIRED, key))


@pytest.mark.parametrize("key", [(), (1, 2, 3)])
def test_what_is_read_among_ends_in_the_key(key: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=f"key of {len(key) + 1} values"):
        render("ks", Read(PAIRED, key, among=(1, 2)))


def test_a_change_of_nothing_has_no_text() -> None:
    with pytest.raises(ValueError, match="changes nothing"):
        render("ks", Change(T, (M, 7)))


_columns = st.lists(st.sampled_from(("messageid", "uid", "modseq", "userflags")), unique=True)
_columns_and_key = st.tuples(_columns, st.sampled_from(((M,), (M, 7))), st.sampled_from((None, 5)))
_elements = st.sampled_from(({}, {"userflags": frozenset({"a"})}))
operations: st.SearchStrategy[Operation] = st.one_of(
    st.builds(
        lambda columns, at, clear, ttl: Put(T, dict.fromkeys(("messageid", *columns)), at, clear, ttl),
        _columns,
        st.sampled_from((None, 5)),
        st.booleans(),
        st.sampled_from((None, 60)),
    ),
    st.builds(
        lambda place, times, level: Read(T, place[0], level, times, place[1]),
        st.sampled_from((((M,), ()), ((M, 7), ()), ((M,), (7, 8)), ((M,), (9,)), ((), (M,)))),
        st.booleans(),
        st.sampled_from(Level),
    ),
    st.builds(
        lambda add, take, at: Change(T, (M, 7), {"modseq": 1}, add, take, at),
        _elements,
        _elements,
        st.sampled_from((None, 5)),
    ),
    st.builds(lambda key, at: Remove(T, key, at), st.sampled_from(((M,), (M, 7))), st.sampled_from((None, 5))),
    st.builds(lambda columns: Scan(T, tuple(columns)), _columns.filter(bool)),
    st.builds(lambda tokens: Scan(T, ("uid",), tokens=tokens), st.sampled_from((None, (1, 2)))),
    st.builds(lambda among: Scan(T, ("uid",), among=among), st.sampled_from(((), (M,)))),
    st.builds(
        lambda expected, add, ttl: ChangeIf(T, (M, 7), dict.fromkeys(expected), {"modseq": 1}, add, {}, ttl),
        _columns,
        _elements,
        st.sampled_from((None, 60)),
    ),
    st.builds(lambda expected: RemoveIf(T, (M, 7), dict.fromkeys(expected)), _columns),
    st.builds(
        lambda columns, ttl: PutIfAbsent(T, dict.fromkeys(("messageid", *columns)), ttl),
        _columns,
        st.sampled_from((None, 60)),
    ),
)


@given(one=operations, other=operations)
def test_equal_shapes_have_equal_texts(one: Operation, other: Operation) -> None:
    if shape_of(one) == shape_of(other):
        assert render("ks", one) == render("ks", other)


@given(operation=operations)
def test_there_is_a_value_for_every_marker(operation: Operation) -> None:
    assert render("ks", operation).count("?") == len(values_of(operation, UNSET))


def test_values_do_not_change_the_shape() -> None:
    assert shape_of(Put(T, ROW, at=1)) == shape_of(Put(T, {**ROW, "modseq": 9}, at=2))
    assert shape_of(Read(T, (M,))) == shape_of(Read(T, (UUID(int=5),)))


def test_tables_of_one_name_have_shapes_of_their_own() -> None:
    assert shape_of(Read(IMAP_UID, (M,))) != shape_of(Read(IMAP_UID.with_columns(IMAP_UID.columns), (M,)))
