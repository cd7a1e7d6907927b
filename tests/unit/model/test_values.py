"""Cells are the same exactly where Cassandra stores the same, whatever Python's `==` says."""

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.table import Column, rows_agree
from mailmend.model.values import (
    CqlDuration,
    FarDate,
    FineTime,
    FrozenMap,
    date_of,
    exact_form,
    same_value,
    same_values,
    time_of,
)
from tests.support.cells import TYPES, cells_of_type, stored


@given(st.data(), TYPES)
def test_cells_are_the_same_exactly_where_the_same_is_stored(data: st.DataObject, kind: str) -> None:
    cells = cells_of_type(kind)
    one, other = data.draw(cells), data.draw(cells)
    if kind.startswith("set<"):
        # Its elements are stored one by one: of null and of the empty set there are none.
        one, other = one or None, other or None

    same = stored(kind, one) == stored(kind, other)

    assert same_value(one, other) is same
    assert same_values({"c": one}, {"c": other}) is same
    assert rows_agree([Column("c", kind)], {"c": one}, {"c": other}) is same


@given(st.integers(-(2**31), 2**31 - 1))
def test_every_day_of_cassandra_has_one_form(days: int) -> None:
    found = date_of(days)
    if isinstance(found, FarDate):
        assert found.days_from_epoch == days
    else:
        assert found.toordinal() - date(1970, 1, 1).toordinal() == days


@given(st.integers(0, 86_400 * 10**9 - 1))
def test_every_nanosecond_of_a_day_has_one_form(nanos: int) -> None:
    found = time_of(nanos)
    if isinstance(found, FineTime):
        assert found.nanosecond_time == nanos
        assert nanos % 1_000
    else:
        assert ((found.hour * 60 + found.minute) * 60 + found.second) * 10**9 + found.microsecond * 1_000 == nanos


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (FineTime(3_723_000_000_001), "01:02:03.000000001"),
        (FarDate(5_000_000), "5000000 days since 1970-01-01"),
        (CqlDuration(1, 2, 3), "1mo2d3ns"),
        (time_of(1_000), str(time(0, 0, 0, 1))),
    ],
)
def test_a_value_shows_what_it_is(value: Any, text: str) -> None:
    assert str(value) == text


def test_a_map_can_be_part_of_a_key_and_equals_any_map_of_its_pairs() -> None:
    pairs = {"a": 1, "b": (2,)}
    assert FrozenMap(pairs) == pairs
    assert {FrozenMap(pairs): "x"}[FrozenMap(reversed(pairs.items()))] == "x"


def test_rows_of_other_columns_are_not_the_same() -> None:
    assert not same_values({"a": None}, {})


def test_what_is_no_value_of_a_row_is_refused() -> None:
    with pytest.raises(TypeError, match="complex"):
        exact_form(1j)


BERLIN = timezone(timedelta(hours=2))
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (float("nan"), float("nan"), True),
        (0.0, -0.0, False),
        (Decimal("1.0"), Decimal("1.0"), True),
        (Decimal("1.0"), Decimal("1.00"), False),
        (NOON, NOON.astimezone(BERLIN), True),
        (NOON, NOON.replace(tzinfo=None), True),
        (NOON, NOON.replace(tzinfo=BERLIN), False),
        ({3, 10, "a"}, {"a", 10, 3}, True),
        ([1, 2], [2, 1], False),
        ({"a": 1, 2: 3}, {2: 3, "a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        (date(2026, 1, 1), date(2026, 1, 2), False),
        (UUID(int=1), UUID(int=2), False),
        (None, 0, False),
    ],
)
def test_two_cells_are_the_same_as_cassandra_stores_them(one: object, other: object, *, same: bool) -> None:
    assert same_value(one, other) is same
    assert same_value(other, one) is same


def test_days_and_times_have_the_forms_of_python_as_far_as_these_go() -> None:
    assert date_of(date.min.toordinal() - date(1970, 1, 1).toordinal()) == date.min
    assert date_of(date.max.toordinal() - date(1970, 1, 1).toordinal()) == date.max
    assert time_of((61 * 60 + 1) * 10**9 + 1_000) == time(1, 1, 1, 1)
