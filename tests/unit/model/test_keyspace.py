"""A schema as a value: its parts are found, put and ordered by the names that the server knows."""

import pytest

from mailmend.model.keyspace import (
    EMPTY,
    Index,
    Schema,
    View,
    all_but,
    among,
    by_name,
    find,
    in_order_of_use,
    put,
    without,
)
from mailmend.model.table import Column, Kind, Table, UserType

KEY = (Column("k", "int", Kind.PARTITION),)
NOTES, QUOTED, LOGS = Table("Notes", KEY), Table('"Notes"', KEY), Table("logs", KEY)
BY_K, OF_QUOTED = Index("by_k", "NOTES", "k"), Index('"By_k"', '"Notes"', "k")
SEEN, ELSEWHERE = View(Table("seen", KEY), "notes", "k IS NOT NULL"), View(Table("other", KEY), "logs", "k IS NOT NULL")
SIZE = UserType("Size", (("bytes", "bigint"),))
SCHEMA = Schema((SIZE,), (NOTES, QUOTED, LOGS), (BY_K, OF_QUOTED), (SEEN, ELSEWHERE))


@pytest.mark.parametrize(
    ("name", "table"),
    [("notes", NOTES), ("NOTES", NOTES), ('"notes"', NOTES), ("Notes", QUOTED), ('"Notes"', QUOTED), ("drafts", None)],
)
def test_a_table_is_found_in_any_case_unless_the_servers_own_name_is_given(name: str, table: Table | None) -> None:
    assert SCHEMA.table(name) is table


def test_each_kind_of_part_is_found_by_its_name() -> None:
    assert SCHEMA.user_type("SIZE") is SIZE
    assert SCHEMA.index("BY_K") is BY_K
    assert SCHEMA.index("By_k") is OF_QUOTED
    assert SCHEMA.view("SEEN") is SEEN
    assert (SCHEMA.user_type("notes"), SCHEMA.index("seen"), SCHEMA.view("notes")) == (None, None, None)


def test_the_indexes_and_views_of_a_table_are_those_that_name_it_in_any_spelling() -> None:
    assert (SCHEMA.indexes_of(NOTES), SCHEMA.indexes_of(QUOTED), SCHEMA.indexes_of(LOGS)) == ((BY_K,), (OF_QUOTED,), ())
    assert (SCHEMA.views_of(NOTES), SCHEMA.views_of(QUOTED), SCHEMA.views_of(LOGS)) == ((SEEN,), (), (ELSEWHERE,))


@pytest.mark.parametrize(("schema", "empty"), [(EMPTY, True), (Schema((SIZE,), ()), False), (SCHEMA, False)])
def test_a_schema_without_types_and_tables_is_empty(schema: Schema, *, empty: bool) -> None:
    assert schema.empty is empty


def test_a_view_has_the_name_of_its_table_and_an_index_one_of_its_own() -> None:
    assert (View(NOTES, "base", "").name, View(NOTES, "base", "").spelling) == ("notes", "Notes")
    assert (BY_K.name, OF_QUOTED.name) == ("by_k", "By_k")
    assert (BY_K.using, BY_K.options, SEEN.all_columns) == ("", {}, False)


def test_parts_are_chosen_by_their_names_and_keep_their_order() -> None:
    tables = (NOTES, QUOTED, LOGS)

    assert by_name(tables) == {"notes": NOTES, "Notes": QUOTED, "logs": LOGS}
    assert among(tables, {"logs", "notes", "more"}) == (NOTES, LOGS)
    assert all_but(tables, {"notes"}) == without(tables, "NOTES") == (QUOTED, LOGS)
    assert find(tables, '"Notes"') is QUOTED
    assert find(tables, "drafts") is None


def test_a_part_is_put_in_the_place_of_its_namesake_or_behind_all_others() -> None:
    other = Table("NOTES", (*KEY, Column("v", "text")))

    assert put((LOGS, NOTES, QUOTED), other) == (LOGS, other, QUOTED)
    assert put((LOGS,), other) == (LOGS, other)


def test_types_come_behind_those_that_their_fields_use() -> None:
    house = UserType("house", (("at", "frozen<place>"), ("size", "frozen<size>")))
    place = UserType("place", (("size", "list<frozen<size>>"), ("elsewhere", "text")))

    assert in_order_of_use((house, place, SIZE)) == (SIZE, place, house)
    assert in_order_of_use((SIZE, house, place)) == (SIZE, place, house)


def test_types_that_use_one_another_keep_their_order() -> None:
    one, two = UserType("one", (("x", "frozen<two>"),)), UserType("two", (("x", "frozen<one>"),))
    own = UserType("own", (("x", "frozen<own>"),))

    assert in_order_of_use((one, two, own)) == (own, one, two)
