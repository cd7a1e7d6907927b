"""Every CQL type is compared as it is stored, or refused by name; keys of every type come back from text."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.catalog.mail import FAMILIES
from mailmend.model.projections.family import Counts, Family, Union
from mailmend.model.projections.projection import Mirror
from mailmend.model.table import Column, Kind, Table, columns
from mailmend.repair.comparable import incomparable
from mailmend.repair.joins.fingerprints import fingerprinting
from mailmend.repair.joins.records import packing, unpacked_key
from mailmend.repair.ledger.before_images import key_from, key_text
from tests.support.cells import TYPES, cells_of_type, stored, values_of_type


@given(st.data(), TYPES)
def test_fingerprints_are_equal_exactly_where_the_same_is_stored(data: st.DataObject, kind: str) -> None:
    mark = fingerprinting([Column("c", kind)], {})
    cells = cells_of_type(kind)
    one, other = data.draw(cells), data.draw(cells)

    assert (mark({"c": one}) == mark({"c": other})) is (kept(kind, one) == kept(kind, other))


def kept(kind: str, cell: Any) -> Any:
    """What is stored of a cell; Cassandra stores the empty set as null where it is not frozen."""
    if kind.startswith("set<") and cell is None:
        return stored(kind, frozenset())
    return stored(kind, cell)


@given(st.data(), TYPES)
def test_a_key_of_any_type_comes_back_from_a_line_and_from_a_record(data: st.DataObject, kind: str) -> None:
    cell = data.draw(values_of_type(kind))

    (from_line,) = key_from(key_text((cell,)))
    (from_record,) = unpacked_key(packing(["c"])({"c": cell}))

    assert stored(kind, from_line) == stored(kind, from_record) == stored(kind, cell)
    assert {(from_line,), (from_record,)}, "both can be keys of a dictionary"


def test_the_mail_families_are_compared() -> None:
    for family in FAMILIES:
        assert list(incomparable(family)) == []


def pair(of: str = "text", key: str = "uuid", **of_cell: Any) -> Family:
    """A table and its mirror, which have one key column and one other."""
    cells = (replace(Column("c", of), **of_cell),)
    made = []
    for name in ("things", "things_by_id"):
        made.append(Table(name, (Column("id", key, Kind.PARTITION), *cells)))
    truth, table = made
    return Family(Mirror(truth, table, (("id", "id"),), compared=table.regular))


@given(TYPES)
def test_a_column_of_any_type_is_compared(kind: str) -> None:
    assert list(incomparable(pair(kind))) == []


@pytest.mark.parametrize(
    ("family", "problem"),
    [
        (pair("counter"), "things_by_id.c is a counter"),
        (pair(kind=Kind.STATIC), "things.c is static"),
        (pair("'org.example.OwnType'"), "type 'org.example.OwnType', which is not compared exactly"),
        (pair("list<frozen<set<empty>>>"), "which is not compared exactly"),
        (pair("no type"), "things.c has the type no type"),
        (pair(mask="mask_default()"), "things.c is masked"),
        (pair(key="double"), "things.id has the type double, and is part of a key"),
        (pair(key="frozen<list<decimal>>"), "is part of a key"),
        (pair(key="vector<int,2>"), "is part of a key"),
    ],
)
def test_what_cannot_be_compared_exactly_is_refused_by_name(family: Family, problem: str) -> None:
    assert problem in "; ".join(incomparable(family))


@pytest.mark.parametrize("key", ["frozen<address>", "frozen<map<text,int>>", "tuple<int,date>", "varint", "inet"])
def test_keys_of_types_with_one_spelling_are_compared(key: str) -> None:
    assert list(incomparable(pair(key=key))) == []


def test_a_union_of_elements_without_order_is_refused() -> None:
    family = pair()
    group = Table("groups", columns("id uuid", regular="seen set<uuid>"))
    gathered = replace(family, unions=(Union(family.truth, group, (("id", "id"),), "seen"),))

    assert "groups.seen has the type set<uuid>, which is not gathered" in "; ".join(incomparable(gathered))


def test_counters_by_group_are_counted() -> None:
    family = pair()
    group = Table("sums", columns("id uuid", regular="number counter"))
    counts = Counts(family.truth, group, (("id", "id"),), (("number", None),))
    assert list(incomparable(replace(family, counts=(counts,)))) == []
