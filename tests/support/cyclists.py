"""The published model of materialised views: cyclists, by age, by birthday and by country.

The shapes are those of DataStax's and Cassandra's CQL documentation. Rows and oracle are our own.
"""

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Final
from uuid import UUID

from mailmend.model.keyspace import Schema, View
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row, Table, columns

CYCLISTS: Final = Table("cyclist_mv", columns("cid uuid", regular="name text, age int, birthday date, country text"))
BY_AGE: Final = Table("cyclist_by_age", columns("age int", "cid uuid", "birthday date, name text, country text"))
BY_BIRTHDAY: Final = Table(
    "cyclist_by_birthday", columns("birthday date", "cid uuid", "age int, name text, country text")
)
BY_COUNTRY: Final = Table(
    "cyclist_by_country", columns("country text", "cid uuid", "age int, birthday date, name text")
)
VIEWS: Final = (BY_AGE, BY_BIRTHDAY, BY_COUNTRY)


def view_of_all(view: Table) -> View:
    """A view of every cyclist that has a value for its partition."""
    return View(view, CYCLISTS.name, f"{view.names[0]} IS NOT NULL AND cid IS NOT NULL")


LIVE: Final = Schema((), (CYCLISTS,), views=tuple(map(view_of_all, VIEWS)))
DECLARED: Final = """
[truth.cyclist_mv.view.cyclist_by_age]

[truth.cyclist_mv.view.cyclist_by_birthday]

[truth.cyclist_mv.view.cyclist_by_country]
"""
VALUES: Final[Mapping[str, tuple[object, ...]]] = {
    "name": (None, "A. Costa", "B. Welten"),
    "age": (None, 18, 27),
    "birthday": (None, date(1987, 9, 4), date(1997, 2, 8)),
    "country": (None, "Germany", "Netherlands"),
}
"""A null and two values of each column: so that cyclists share partitions of the views."""

OTHER: Final[Mapping[str, object]] = {"name": "Nobody", "age": 99, "birthday": date(2000, 1, 1), "country": "Atlantis"}
"""Values that no row of the base has."""

Rows = dict[Key, Row]


def stray_of(view: Table) -> Row:
    """A row of a view that no cyclist stands for."""
    return {name: OTHER.get(name, UUID(int=99)) for name in view.names}


def demanded(view: Table, cyclists: Iterable[Row]) -> Rows:
    """The rows that the server would derive: none of a cyclist without a value for the view's partition."""
    found: Rows = {}
    for cyclist in cyclists:
        row = {name: cyclist[name] for name in view.names}
        if row[view.names[0]] is not None:
            found[view.key_of(row)] = row
    return found


def differences(wanted: Rows, standing: Rows) -> dict[Key, Verdict]:
    """What a check of the view has to find."""
    found = {}
    for key in wanted.keys() | standing.keys():
        if key not in standing:
            found[key] = Verdict.PROJECT
        elif key not in wanted:
            found[key] = Verdict.WITHDRAW
        elif wanted[key] != standing[key]:
            found[key] = Verdict.AMEND
    return found


def out_of_reach(wanted: Rows, standing: Rows) -> dict[Key, Verdict]:
    """What no touch of the base mends: rows without a cyclist, and cells that the cyclist has not."""
    found: dict[Key, Verdict] = {}
    for key, verdict in differences(wanted, standing).items():
        is_more = verdict is Verdict.AMEND and keeps_more(wanted[key], standing[key])
        if is_more or verdict is Verdict.WITHDRAW:
            found[key] = verdict
    return found


def keeps_more(wanted: Row, standing: Row) -> bool:
    return any(wanted[name] is None and cell is not None for name, cell in standing.items())
