"""Records of rows: their keys, what is kept of a truth row, and the folder that they are spread in."""

import gc
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from mailmend.model.catalog.mail import IMAP_UID, MESSAGES
from mailmend.model.errors import MailmendError
from mailmend.model.projections.conditions import OneOf
from mailmend.model.projections.family import Family, Filter
from mailmend.model.projections.places import places_of
from mailmend.model.projections.projection import Mirror
from mailmend.model.projections.valued import Bound, Bounds
from mailmend.model.table import Table, columns
from mailmend.repair.joins.records import (
    PART_BYTES_MAX,
    STANDS,
    WHOLE,
    Forms,
    PlaceForms,
    Workshop,
    few_collections,
    packing,
    packing_key,
    unpacked_key,
)
from tests.support.repairing import MAILBOX, message, mirror_row, truth_row

ANN, BOB = UUID(int=1), UUID(int=2)
PEOPLE = Table("people", columns("id uuid", regular="name text, photo blob, age int, open boolean"))
BY_NAME = Table("by_name", columns("name text", "id uuid", "age int"))
BY_PHOTO = Table("by_photo", columns("photo blob", "id uuid"))
BY_AGE = Table("by_age", columns("age int", "id uuid"))
BY_BOTH = Table("by_both", columns("name text, age int", "id uuid"))
OPEN = Table("open", columns("id uuid", "name text"))
IS_OPEN, IS_SEVEN = OneOf("open", (True,)), OneOf("age", (7,))


def family(table: Table, *filters: Filter) -> Family:
    key = tuple((name, name) for name in table.key_names)
    mirror = Mirror(PEOPLE, table, key, compared=table.regular, required=("name",))
    return Family(mirror, filters=filters)


def filtered(table: Table, when: OneOf) -> Filter:
    return Filter(PEOPLE, table, tuple((name, name) for name in table.key_names), when)


def person(**cells: Any) -> dict[str, Any]:
    return {"id": ANN, "name": "ann", "photo": b"x", "age": 7, "open": True, **cells}


@pytest.mark.parametrize("part", [ANN, 7, "a", True, None, b"", b"x"])
def test_a_part_of_a_key_comes_back_as_it_was(part: Any) -> None:
    packed = packing(["c"])({"c": part})

    assert unpacked_key(packed) == (part,)
    assert packing_key(Table("t", columns("c text")))({"c": part}) == packed


def test_a_uuid_is_packed_as_its_bytes() -> None:
    assert packing(["id", "age"])(person()) == (ANN.bytes, 7)


@pytest.mark.parametrize(
    ("table", "cells", "demanded"),
    [
        (BY_NAME, {}, True),
        (BY_NAME, {"name": None}, False),
        (BY_NAME, {"name": ""}, False),
        (BY_PHOTO, {}, True),
        (BY_PHOTO, {"photo": b""}, False),
        (BY_AGE, {"age": 0}, True),
        (BY_AGE, {"age": None}, False),
        (BY_BOTH, {"name": ""}, True),
    ],
)
def test_a_truth_row_that_demands_no_row_has_no_place(table: Table, cells: Mapping[str, Any], demanded: bool) -> None:
    row = person(**cells)

    (place,) = Forms(family(table), accept_torn=False).truth(row).places

    expected: tuple[Any, ...] = ()
    if demanded:
        expected = packing(table.key_names)(row)
    assert place == expected


@pytest.mark.parametrize(
    ("cells", "accept_torn", "bits"),
    [
        ({}, False, 1 + 4 + 8),
        ({"name": None}, False, 4 + 8),
        ({"name": None}, True, 1 + 4 + 8),
        ({"age": 8}, False, 1 + 4),
        ({"open": False}, False, 1 + 8),
    ],
)
def test_the_bits_of_a_truth_row_say_what_it_is(cells: Mapping[str, Any], accept_torn: bool, bits: int) -> None:
    forms = Forms(family(BY_AGE, filtered(OPEN, IS_OPEN), filtered(BY_NAME, IS_SEVEN)), accept_torn=accept_torn)

    assert forms.truth(person(**cells)).bits == bits
    assert [WHOLE, STANDS, *map(forms.condition_bit, (IS_OPEN, IS_SEVEN))] == [1, 2, 4, 8]


def test_a_filter_of_the_same_columns_has_the_place_of_the_mirror() -> None:
    made = family(BY_NAME, filtered(OPEN, IS_OPEN))
    (together,) = places_of(family(Table("named", columns("id uuid", "name text")), filtered(OPEN, IS_OPEN)))
    forms = PlaceForms(together)
    row = person()

    assert len(places_of(made)) == 2
    assert forms.place_of(forms.filters[0])({"name": "ann", "id": ANN}) == (ANN.bytes, "ann")
    assert forms.row_key(forms.filters[0], (ANN.bytes, "ann")) == (ANN, "ann")
    assert forms.mirror is together[0]
    assert Forms(made, accept_torn=False).truth(row).places == (("ann", ANN.bytes), (ANN.bytes, "ann"))


def test_a_place_of_filters_alone_has_no_mirror() -> None:
    assert PlaceForms([filtered(OPEN, IS_OPEN)]).mirror is None


def test_a_truth_row_and_its_mirror_row_have_one_place_and_one_fingerprint() -> None:
    forms = Forms(MESSAGES, accept_torn=False)
    truth = truth_row(flagseen=True)

    assert forms.compared(truth) == forms.mirror(mirror_row(truth))
    assert forms.compared(truth) != forms.mirror(mirror_row(truth, flagseen=False))


def test_what_is_kept_of_a_truth_row() -> None:
    forms = Forms(MESSAGES, accept_torn=False)
    truth = truth_row(flagseen=True, userflags=frozenset("a"))

    kept = forms.truth(truth)

    assert kept.content == (message(1).bytes,)
    assert kept.places == ((MAILBOX.bytes, 1),)
    assert kept.truth == packing_key(IMAP_UID)(truth)
    assert kept.groups == ((MAILBOX.bytes,),) * len(forms.groups)
    assert kept.elements == (("a",),)


def test_a_truth_row_demands_its_own_value_of_the_greatest_one() -> None:
    oldest = Table("oldest", columns("team text", regular="age int"))
    team = PEOPLE.with_columns((*PEOPLE.columns, *columns("", regular="team text")))
    bounds = Bounds(team, oldest, (("team", "team"),), (("age", "age"),), Bound.MAX)
    forms = Forms(replace(family(BY_NAME), bounds=(bounds,)), accept_torn=False)

    assert forms.truth(person(team="a")).elements == ((("age", 7),),)
    assert forms.truth(person(team="a", age=None)).elements == ((),)


def test_a_family_without_contents_keeps_none() -> None:
    assert Forms(family(BY_NAME), accept_torn=False).truth(person()).content == ()


def test_partitions_of_truth_rows_come_once_and_in_order() -> None:
    forms = Forms(MESSAGES, accept_torn=False)
    truths = [packing_key(IMAP_UID)(truth_row(number, uid=uid)) for number, uid in ((2, 1), (1, 1), (2, 9))]

    assert forms.truth_keys(truths) == tuple(sorted(((message(1),), (message(2),)), key=lambda key: key[0].bytes))


def test_cycles_are_looked_for_less_often_for_a_while() -> None:
    before = gc.get_threshold()

    with few_collections():
        assert gc.get_threshold() == (200_000, *before[1:])

    assert gc.get_threshold() == before


def test_a_workshop_may_be_closed_twice(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)

    workshop.close()
    workshop.close()

    assert list(tmp_path.iterdir()) == []


def test_a_workshop_says_whose_folder_it_is(tmp_path: Path) -> None:
    with Workshop(tmp_path) as workshop:
        assert workshop.path.name.startswith("mailmend-")


def test_a_folder_without_room_is_named(tmp_path: Path) -> None:
    with pytest.raises(MailmendError, match=f"cannot write to the temporary folder {tmp_path}/missing: No such file"):
        Workshop(tmp_path / "missing")


def test_a_part_takes_sixteen_mebibytes_at_most() -> None:
    assert PART_BYTES_MAX == 16 * 2**20
