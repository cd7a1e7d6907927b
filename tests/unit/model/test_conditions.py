"""Conditions on a row of a truth."""

import pytest

from mailmend.model.operations import Seen
from mailmend.model.projections.conditions import (
    Condition,
    Either,
    Every,
    IsNull,
    Not,
    OneOf,
    RowCondition,
    StartsWith,
)
from mailmend.model.projections.family import Filter
from mailmend.model.table import Row, Table, columns

TRUTH = Table("users", columns("id int", regular="state text, Size int, open boolean"))
ACTIVE = OneOf("state", ("a", "b"))
SMALL = OneOf("size", (1,))
MARKED = StartsWith("state", ("-", "a%"))
WRITTEN = {"state": 1, "size": 1, "open": 1}


@pytest.mark.parametrize(
    ("condition", "row", "holds"),
    [
        (ACTIVE, {"state": "b"}, True),
        (ACTIVE, {"state": "c"}, False),
        (ACTIVE, {"state": None}, False),
        (ACTIVE, {}, False),
        (IsNull("state"), {}, True),
        (IsNull("state"), {"state": ""}, False),
        (IsNull("state", value=False), {"state": ""}, True),
        (MARKED, {"state": "-x"}, True),
        (MARKED, {"state": "a%"}, True),
        (MARKED, {"state": "ab"}, False),
        (MARKED, {"state": "x-"}, False),
        (MARKED, {"state": ""}, False),
        (MARKED, {"state": None}, False),
        (Not(MARKED), {"state": "x-"}, True),
        (Not(MARKED), {"state": None}, True),
        (Not(MARKED), {"state": "-"}, False),
        (Not(ACTIVE), {"state": "c"}, True),
        (Not(ACTIVE), {"state": "a"}, False),
        (Not(ACTIVE), {}, True),
        (Every((ACTIVE, SMALL)), {"state": "a", "size": 1}, True),
        (Every((ACTIVE, SMALL)), {"state": "a"}, False),
        (Every(()), {}, True),
        (Either((ACTIVE, SMALL)), {"size": 1}, True),
        (Either((ACTIVE, SMALL)), {"size": 2}, False),
        (Either(()), {}, False),
    ],
)
def test_a_condition_holds_or_not(condition: RowCondition, row: Row, holds: bool) -> None:
    assert condition.holds(row) is holds


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (ACTIVE, "state is a or b"),
        (IsNull("size"), "Size is null"),
        (IsNull("size", value=False), "Size is not null"),
        (Every((SMALL, OneOf("open", (True,)))), "Size is 1 and open is true"),
        (Either((SMALL, ACTIVE)), "(Size is 1) or (state is a or b)"),
        (MARKED, "state starts with - or a%"),
        (Not(ACTIVE), "not (state is a or b)"),
        (Every(()), "always"),
        (Condition("open", value=False), "open is false"),
    ],
)
def test_a_condition_in_words(condition: RowCondition, words: str) -> None:
    assert condition.said(TRUTH) == words


def test_each_column_that_decides_is_named_once() -> None:
    assert Either((Every((ACTIVE, SMALL)), ACTIVE)).columns == ("state", "size")
    assert Every((Not(MARKED), Not(ACTIVE))).columns == ("state",)


@pytest.mark.parametrize(
    ("condition", "expires_at", "ends_at"),
    [
        (ACTIVE, {"state": 50}, 50),
        (IsNull("state", value=False), {"state": 50, "size": 20}, 50),
        (Either((ACTIVE, SMALL)), {"state": 50, "size": 20}, 50),
        (Every((ACTIVE, SMALL)), {"state": 50, "size": 20}, 20),
        (Either((ACTIVE, SMALL)), {"size": 20}, None),
        (Not(MARKED), {"state": 50, "size": 20}, None),
    ],
)
def test_a_row_of_a_filter_lives_as_long_as_its_condition(
    condition: RowCondition, expires_at: dict[str, int], ends_at: int | None
) -> None:
    filtered = Filter(TRUTH, Table("f", columns("id int")), (("id", "id"),), condition)
    truth = Seen({"id": 1, "state": "a", "size": 1, "open": True}, WRITTEN, expires_at=expires_at)
    assert filtered._ends_at(truth) == ends_at
