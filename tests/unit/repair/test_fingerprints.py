"""Fingerprints: sixteen bytes that are equal where all compared cells are the same, in canonical form."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from mailmend.model.table import Column, OtherColumn
from mailmend.repair.joins.fingerprints import cells_at, fingerprint, fingerprinting

MESSAGE = UUID(int=1)
ANOTHER = UUID(int=2)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PLAIN = Column("c", "int")
FLAG = Column("c", "boolean", null_is=False)
OPEN = Column("c", "boolean", null_is=True)
SET = Column("c", "set<text>")
NUMBER = Column("c", "bigint", null_is=0)
THREAD = Column("c", "timeuuid", null_is=OtherColumn("messageid"))
STATE = Column("c", "text", null_is="open")
SINCE = Column("c", "timestamp", null_is=OtherColumn("at"))
INSTANT = Column("c", "timestamp")
ID = Column("c", "uuid")
DECIMAL = Column("c", "decimal")


@pytest.mark.parametrize(
    ("column", "one", "other", "are_equal"),
    [
        (PLAIN, None, 0, False),
        (PLAIN, 1, 2, False),
        (FLAG, None, False, True),
        (FLAG, None, True, False),
        (OPEN, None, True, True),
        (OPEN, None, False, False),
        (OPEN, False, True, False),
        (STATE, None, "open", True),
        (STATE, None, "", False),
        (SET, None, frozenset(), True),
        (SET, frozenset({"a", "b"}), ["b", "a"], True),
        (SET, None, frozenset("a"), False),
        (NUMBER, None, 0, True),
        (NUMBER, None, 1, False),
        (NUMBER, 1, 2, False),
        (THREAD, None, MESSAGE, True),
        (THREAD, None, ANOTHER, False),
        (THREAD, ANOTHER, ANOTHER, True),
        (THREAD, MESSAGE, ANOTHER, False),
        (ID, None, MESSAGE, False),
        (ID, MESSAGE, ANOTHER, False),
        (DECIMAL, Decimal("1.0"), Decimal("1.0"), True),
        (DECIMAL, Decimal("1.0"), Decimal("1.00"), False),
        (INSTANT, None, None, True),
        (INSTANT, None, NOON, False),
        (INSTANT, NOON, NOON + timedelta(milliseconds=1), False),
    ],
)
def test_fingerprints_are_equal_where_the_canonical_forms_are(
    column: Column, one: Any, other: Any, are_equal: bool
) -> None:
    mark = fingerprinting([column], {})

    assert (mark({"c": one, "messageid": MESSAGE}) == mark({"c": other, "messageid": MESSAGE})) is are_equal


@pytest.mark.parametrize("column", [PLAIN, FLAG, SET, NUMBER, THREAD])
def test_a_row_with_names_of_its_own_has_the_same_fingerprint(column: Column) -> None:
    of_mirror = fingerprinting([column], {})
    of_truth = fingerprinting([column], {"c": "d", "messageid": "m"})
    for cell in (None, {1}):
        assert of_mirror({"c": cell, "messageid": MESSAGE}) == of_truth({"d": cell, "m": MESSAGE})


def test_a_null_is_read_as_the_other_column_of_its_own_row() -> None:
    mark = fingerprinting([SINCE], {})
    later = NOON + timedelta(milliseconds=1)

    assert mark({"c": None, "at": NOON}) == mark({"c": NOON, "at": later})
    assert mark({"c": None, "at": NOON}) != mark({"c": None, "at": later})
    assert mark({"c": None, "at": None}) != mark({"c": NOON, "at": None})


def test_every_column_counts() -> None:
    mark = fingerprinting([Column("a", "int"), Column("b", "text"), FLAG], {})
    row = {"a": 1, "b": "x", "c": True}

    marks = {mark(row), mark({**row, "a": 2}), mark({**row, "b": "y"}), mark({**row, "c": False})}

    assert len(marks) == 4
    assert {len(each) for each in marks} == {16}


def test_equal_values_are_equal_whether_or_not_they_are_one_object() -> None:
    long = "x" * 300

    assert fingerprint((long, long)) == fingerprint((long, "".join(["x"] * 300)))


@pytest.mark.parametrize("places", [(), (1,), (2, 0)])
def test_cells_are_picked_by_place(places: tuple[int, ...]) -> None:
    assert cells_at(places)(("a", "b", "c")) == tuple("abc"[place] for place in places)
