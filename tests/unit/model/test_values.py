"""Cells are the same exactly where Cassandra stores the same, whatever Python's `==` says."""

from datetime import date, time
from typing import Any

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
