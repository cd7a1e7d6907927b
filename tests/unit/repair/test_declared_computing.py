"""Computed columns of declared projections: bound to a live schema, found, mended and taken back."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID
from zlib import crc32

import pytest

from mailmend.model.keyspace import Schema
from mailmend.model.operations import Change, Remove
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.projections.family import Family
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Row, Table, UserType, columns
from mailmend.repair.declared import DoesNotFit, declared_families
from mailmend.repair.declared_conditions import Misfit
from tests.support.repairing import LONG_AGO
from tests.unit.repair.test_declared_pairs import Shop

EVENTS = Table(
    "events",
    columns(
        "id uuid",
        regular="at timestamp, email text, doc text, address frozen<address>, place address, tags set<text>, "
        "codes frozen<set<text>>, steps list<text>, sizes set<int>",
    ),
)
BY_DAY = Table(
    "events_by_day",
    columns("day date, region text", "bucket int, id uuid", "mail text, city text, kind text"),
)
ACTIVE = Table("active_by_hour", columns("hour text", "id uuid"))
COUNTS = Table("counts_by_month", columns("month int", regular="total counter"))
ADDRESS = UserType("address", (("city", "text"), ("zip", "int")))
LIVE = Schema((ADDRESS,), (EVENTS, BY_DAY, ACTIVE, COUNTS))
HEADER = "[truth.events.mirror.events_by_day]\n"
COMPUTED = (
    "computed = { "
    'day = { day_of = "at" }, region = { constant = "eu" }, bucket = { crc32_of = "id", buckets = 4 }, '
    'mail = { lower = "email", default = "none" }, city = { field_of = "address", field = "city" }, '
    'kind = { json_of = "doc", path = "kind" } }\n'
)


def families(text: str) -> tuple[Family, ...]:
    return declared_families("shop", read_declaration(text, "shop.toml"), LIVE)


def refused(text: str) -> Misfit:
    with pytest.raises(DoesNotFit) as caught:
        families(text)
    return caught.value.misfits[0]


def computed_as(rule: str, own: str = "mail") -> Misfit:
    return refused(HEADER + COMPUTED.replace('mail = { lower = "email", default = "none" }', f"{own} = {rule}"))


@pytest.mark.parametrize(
    ("rule", "problem", "mend"),
    [
        ('{ lower = "emial" }', "events has no column emial", "Did you mean 'email'?"),
        ('{ lower = "at" }', "at is of type timestamp, and lower needs another one", "It takes: text"),
        ('{ day_of = "email" }', "email is of type text, and day_of needs another one", "timeuuid, timestamp"),
        ('{ day_of = "id" }', "id is of type uuid, and day_of needs another one", "timeuuid, timestamp"),
        ('{ crc32_of = "id", buckets = 4 }', "mail is of type text, and a number below 4", "bigint"),
        ("{ constant = 3 }", "3 is not a value of mail (text)", "Write a text."),
        ('{ lower = "email", default = 3 }', "3 is not a value of mail (text)", "Write a text."),
        ('{ lower = "tags" }', "events.tags computes nothing", "one cell of the row"),
        ('{ joined_of = "email" }', "email is of type text, and joined_of needs another one", "set<text>, list<text>"),
        ('{ joined_of = "sizes" }', "sizes is of type set<int>, and joined_of needs another one", "list<text>"),
        ('{ joined_of = "tgs" }', "events has no column tgs", "Did you mean 'tags'?"),
        ('{ joined_of = "tags", default = 3 }', "3 is not a value of mail (text)", "Write a text."),
        ('{ joined_columns = ["email", "dok"], separator = "@" }', "events has no column dok", "Did you mean 'doc'?"),
        ('{ joined_columns = ["email", "at"], separator = "@" }', "at is of type timestamp", "It takes: text"),
        ('{ joined_columns = ["email", "tags"], separator = "@" }', "events.tags computes nothing", "one cell"),
        ('{ prefix_of = "at", prefixes = ["a"] }', "at is of type timestamp, and prefix_of", "It takes: text"),
        ('{ field_of = "place", field = "city" }', "which is no frozen user type", "Types: address."),
        ('{ field_of = "address", field = "town" }', "address has no field town", "city"),
        ('{ field_of = "address", field = "zip" }', "mail is of type text, and address.zip", "int"),
        ('{ column = "at", default = "x" }', "mail is of type text, and the result of column", "timestamp"),
    ],
)
def test_what_does_not_fit_is_named_with_a_mend(rule: str, problem: str, mend: str) -> None:
    misfit = computed_as(rule)
    assert problem in misfit.problem
    assert mend in misfit.mend


def test_joined_texts_are_a_text() -> None:
    misfit = refused(HEADER + COMPUTED.replace('{ crc32_of = "id", buckets = 4 }', '{ joined_of = "tags" }'))
    assert misfit.problem == "bucket is of type int, and the result of joined_of needs another one"
    assert misfit.mend == "It takes: text."


def test_an_hour_is_no_date() -> None:
    misfit = refused(HEADER + COMPUTED.replace("day_of", "hour_of"))
    assert misfit.problem == "day is of type date, and the result of hour_of needs another one"


@pytest.mark.parametrize(
    "rule", ['{ joined_columns = ["email", "doc"], separator = "@" }', '{ rest_of = "email", prefixes = ["a"] }']
)
def test_a_text_is_no_number(rule: str) -> None:
    misfit = refused(HEADER + COMPUTED.replace('{ crc32_of = "id", buckets = 4 }', rule))
    assert "bucket is of type int, and the result of" in misfit.problem
    assert misfit.mend == "It takes: text."


def test_digits_are_a_text() -> None:
    misfit = refused(HEADER + COMPUTED.replace('day_of = "at"', 'day_of = "at", form = "digits"'))
    assert misfit.problem == "day is of type date, and form = 'digits' needs another one"
    assert "text" in misfit.mend


def test_a_misfit_has_the_place_of_its_column() -> None:
    assert computed_as('{ lower = "emial" }').path == (
        *("truth", "events", "mirror", "events_by_day"),
        *("computed", "mail"),
    )


def test_a_computed_column_does_not_lead_back() -> None:
    rule = f'id = {{ column = "id", default = "{UUID(int=1)}" }}, city ='
    misfit = refused(HEADER + COMPUTED.replace("city =", rule))
    assert "no column of events_by_day holds events.id" in misfit.problem


class Events:
    """A keyspace of events in memory, with one family of a declaration."""

    def __init__(self, text: str = HEADER + COMPUTED) -> None:
        (self.family,) = families(text)
        self.shop = Shop(self.family)

    def event(self, number: int, **cells: Any) -> Row:
        """A row of the truth; its UUID is its number."""
        row = {**dict.fromkeys(EVENTS.names), "id": UUID(int=number), "at": NOON, "tags": frozenset(), **cells}
        self.shop.put(EVENTS, row)
        return row


NOON = datetime(2024, 5, 31, 12, tzinfo=UTC)


def copy_of(number: int, **cells: Any) -> Row:
    """The copy that an event of that number demands."""
    id_ = UUID(int=number)
    row = {"day": date(2024, 5, 31), "region": "eu", "bucket": crc32(str(id_).encode()) % 4, "id": id_}
    return {**row, "mail": "none", "city": None, "kind": None, **cells}


def key_of(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in BY_DAY.key_names)


def test_a_computed_row_is_found_mended_and_taken_back() -> None:
    # Given
    events = Events()
    shop = events.shop
    events.event(1, email="Ann@X", doc='{"kind": "click"}', address={"city": "Ulm", "zip": 1})
    missing = copy_of(1, mail="ann@x", city="Ulm", kind="click")
    assert {key: found.verdict for key, found in shop.check().items()} == {key_of(missing): Verdict.PROJECT}

    # When
    run = shop.repair()

    # Then
    assert shop.check() == {}
    ((row, _, _),) = shop.rows(BY_DAY, key_of(missing))
    assert row == missing
    shop.undo(run)
    assert shop.rows(BY_DAY, key_of(missing)) == [None]


def test_a_cell_that_differs_from_its_transform_is_amended_and_taken_back() -> None:
    events = Events()
    events.event(1, email="Ann@X")
    row = copy_of(1, mail="Ann@X")
    events.shop.put(BY_DAY, row)
    assert {found.verdict for found in events.shop.check().values()} == {Verdict.AMEND}

    run = events.shop.repair()

    assert events.shop.check() == {}
    events.shop.undo(run)
    ((found, _, _),) = events.shop.rows(BY_DAY, key_of(row))
    assert found["mail"] == "Ann@X"


@pytest.mark.parametrize(
    ("rule", "cells", "joined"),
    [
        ('{ joined_of = "tags" }', {"tags": frozenset(["b", "a", "é"])}, "abé"),
        ('{ joined_of = "tags" }', {"tags": frozenset()}, None),
        ('{ joined_of = "tags", default = "" }', {"tags": frozenset()}, ""),
        ('{ joined_of = "codes", separator = "," }', {"codes": frozenset("ba")}, "a,b"),
        ('{ joined_of = "steps", separator = ", " }', {"steps": ("b", "a", "b")}, "b, a, b"),
    ],
)
def test_a_joined_collection_is_found_mended_and_taken_back(
    rule: str, cells: dict[str, Any], joined: str | None
) -> None:
    # Given
    events = Events(HEADER + COMPUTED.replace('{ lower = "email", default = "none" }', rule))
    shop = events.shop
    events.event(1, **cells)
    row = copy_of(1, mail="wrong")
    shop.put(BY_DAY, row)
    assert {found.verdict for found in shop.check().values()} == {Verdict.AMEND}

    # When
    run = shop.repair()

    # Then
    assert shop.check() == {}
    ((found, _, _),) = shop.rows(BY_DAY, key_of(row))
    assert found["mail"] == joined
    shop.undo(run)
    ((found, _, _),) = shop.rows(BY_DAY, key_of(row))
    assert found["mail"] == "wrong"


def test_a_row_under_the_wrong_day_is_withdrawn() -> None:
    events = Events()
    events.event(1)
    events.shop.put(BY_DAY, copy_of(1))
    stray = copy_of(1, day=date(2024, 6, 1))
    events.shop.put(BY_DAY, stray)
    assert {key: found.verdict for key, found in events.shop.check().items()} == {key_of(stray): Verdict.WITHDRAW}


def test_a_row_without_the_instant_of_its_key_has_no_copy() -> None:
    events = Events()
    events.event(1, at=None)
    assert events.shop.check() == {}


def test_a_copy_lives_as_long_as_its_truth() -> None:
    events = Events()
    row: dict[str, Any] = {
        **dict.fromkeys(EVENTS.names),
        "id": UUID(int=1),
        "at": NOON,
        "email": "A",
        "tags": frozenset(),
    }
    events.shop.put(EVENTS, row, ends_in=10_000)
    key = next(iter(events.shop.check()))

    events.shop.repair()

    ((_, _, ttls),) = events.shop.rows(BY_DAY, key)
    assert ttls
    ((_, _, of_truth),) = events.shop.rows(EVENTS, (UUID(int=1),))
    assert set(ttls.values()) == {of_truth["at"]}


JOINED = HEADER + COMPUTED.replace('{ lower = "email", default = "none" }', '{ joined_of = "tags" }')


def tags_that_end_in(events: Events, **seconds: int | None) -> None:
    """Tags of the first event, each with a time to live of its own; None: it stays."""
    for tag, left in seconds.items():
        added = {"tags": frozenset({tag})}
        events.shop.world.mail.write(Change(EVENTS, (UUID(int=1),), add=added, at=LONG_AGO + 1, ttl_seconds=left))


def mended_text(events: Events) -> tuple[Any, Mapping[str, int]]:
    """The joined text after a repair, with the seconds that the row's cells have left."""
    events.shop.repair()
    assert events.shop.check() == {}
    ((row, _, ttls),) = events.shop.rows(BY_DAY, key_of(copy_of(1)))
    return row["mail"], ttls


def test_a_text_of_tags_that_expire_one_by_one_is_amended_after_each_of_them_once() -> None:
    """No time tells that a tag expired, so no later run would find it settled."""
    events = Events(JOINED)
    events.event(1)
    tags_that_end_in(events, a=1000, b=2000)
    assert mended_text(events) == ("ab", {"mail": 2000})

    events.shop.world.clock.advance(1500)

    assert {found.verdict for found in events.shop.check().values()} == {Verdict.AMEND}
    assert mended_text(events) == ("b", {"mail": 500})
    events.shop.world.clock.advance(1000)
    assert events.shop.check() == {}


def test_a_text_of_tags_of_which_some_stay_ends_with_those_that_expire() -> None:
    events = Events(JOINED)
    events.event(1)
    tags_that_end_in(events, a=1000, b=None)
    assert mended_text(events) == ("ab", {"mail": 1000})

    events.shop.world.clock.advance(1500)

    assert {found.verdict for found in events.shop.check().values()} == {Verdict.AMEND}
    assert mended_text(events) == ("b", {})


def test_a_filter_has_a_computed_key() -> None:
    hours = '[truth.events.filter.active_by_hour]\nwhen = {}\ncomputed = { hour = { hour_of = "at" } }\n'
    events = Events(HEADER + COMPUTED + hours)
    events.event(1)
    events.shop.repair()
    assert events.shop.world.get(ACTIVE, ("2024-05-31T12", UUID(int=1))) is not None
    events.shop.world.mail.write(Remove(EVENTS, (UUID(int=1),), at=LONG_AGO + 1))
    assert {found.verdict for found in events.shop.check().values()} == {Verdict.WITHDRAW}
