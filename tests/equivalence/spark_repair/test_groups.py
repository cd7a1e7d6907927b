"""Groups of declared tables have the same suspects in Spark as in the local engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from mailmend.model.keyspace import Schema
from mailmend.model.operations import Count, Put
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.projections.family import Counts, Union
from mailmend.model.projections.valued import Numbers
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row, Table, columns
from mailmend.repair.declared import declared_families
from mailmend.repair.scanners.local import LocalEngine
from mailmend.spark_repair.groups import groups_of
from tests.equivalence.spark_repair.test_canonical_forms import drawn
from tests.support.repairing import LONG_AGO, World
from tests.support.spark import engine_over, found_by
from tests.support.thorough import share

pytestmark = pytest.mark.spark

VALUES: Final[Mapping[str, Sequence[Any]]] = {
    "tinyint": (-128, -1, 0, 1, 127),
    "smallint": (-(2**15), -1, 0, 2**15 - 1),
    "int": (-(2**31), -1, 0, 1, 2**31 - 1),
    "bigint": (-(2**63), -1, 0, 2**53, 2**53 + 1, 2**63 - 1),
    "date": (date(1600, 2, 29), date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)),
    "timestamp": (
        datetime(1600, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
        datetime(2024, 3, 31, 1, 59, 59, 999_000, tzinfo=UTC),
        datetime(2024, 3, 31, 2, 0, 0, 0, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
    ),
}
"""Values of each type that has a greatest and a smallest value, in its order."""

RANKED: Final = ", ".join(f"v_{kind} {kind}" for kind in VALUES)
TRUTH: Final = Table("things", columns("owner text", "id uuid", f"team text, open boolean, tags set<text>, {RANKED}"))
BY_TEAM: Final = Table("by_team", columns("team text", "owner text, id uuid", "open boolean"))
BODIES: Final = Table("bodies", columns("owner text", regular="body text"))
ROWS_OF_BOUNDS: Final = ", ".join(f'v_{kind} = "v_{kind}"' for kind in VALUES)
TABLES: Final = (
    Table("numbers_by_owner", columns("owner text", regular="total int, some bigint")),
    Table("numbers_by_team", columns("team text", regular="total int, some bigint")),
    Table("counters_by_team", columns("team text", regular="total counter, some counter")),
    Table("tags_by_owner", columns("owner text", regular="tags set<text>")),
    Table("tags_by_team", columns("team text", regular="tags set<text>")),
    Table("last_by_owner", columns("owner text", regular=RANKED)),
    Table("last_by_team", columns("team text", regular=RANKED)),
    Table("first_by_owner", columns("owner text", regular=RANKED)),
    Table("first_by_team", columns("team text", regular=RANKED)),
)
DECLARED: Final = f"""
[truth.things.mirror.by_team]
[truth.things.content.bodies]

[truth.things.count.numbers_by_owner]
counters = {{ total = {{}}, some = {{ open = true }} }}

[truth.things.count.numbers_by_team]
counters = {{ total = {{ v_int = {{ null = true }} }}, some = {{ v_bigint = {{ not = 0 }} }} }}

[truth.things.count.counters_by_team]
counters = {{ total = {{}}, some = [{{ team = {{ starts = "0b" }} }}, {{ open = false }}] }}

[truth.things.union.tags_by_owner]
column = "tags"

[truth.things.union.tags_by_team]
column = "tags"

[truth.things.max.last_by_owner]
columns = {{ {ROWS_OF_BOUNDS} }}

[truth.things.max.last_by_team]
columns = {{ {ROWS_OF_BOUNDS} }}

[truth.things.min.first_by_owner]
columns = {{ {ROWS_OF_BOUNDS} }}

[truth.things.min.first_by_team]
columns = {{ {ROWS_OF_BOUNDS} }}
"""
"""Groups of every kind, by the truth's partition and by the mirror's."""

CELLS: Final = {f"v_{kind}": st.none() | st.sampled_from(values) for kind, values in VALUES.items()}
THINGS: Final = st.lists(
    st.fixed_dictionaries(
        {
            "owner": st.sampled_from(["a", "b", "ä"]),
            "team": st.sampled_from([None, "", "0", "0b"]),
            "open": st.sampled_from([None, True, False]),
            "tags": st.frozensets(st.sampled_from(["a", "b", "ä"]), max_size=2),
            **CELLS,
        }
    ),
    max_size=4,
)


@dataclass(frozen=True)
class Damage:
    """What becomes of a group's row: one of `FATES`, and a column with a value that it gets."""

    fate: str
    column: int
    cells: Row


FATES: Final = ("sound", "lost", "null", "other", "other")
DAMAGES: Final = st.builds(
    Damage,
    st.sampled_from(FATES),
    st.integers(0, 9),
    st.fixed_dictionaries(
        {
            **CELLS,
            "total": st.integers(0, 3),
            "some": st.integers(0, 3),
            "tags": st.frozensets(st.sampled_from(["a", "b", "c"]), max_size=2),
        }
    ),
)


@dataclass(frozen=True)
class Story:
    """Rows of the truth of some owners and teams, and damage to the rows of their groups.

    Attributes:
        bodies: whether each owner has its content.
        strays: whether there are rows of groups that have no truth row.
    """

    rows: Sequence[Row]
    damages: Sequence[Damage]
    bodies: bool
    strays: bool


STORIES: Final = st.builds(Story, THINGS, st.lists(DAMAGES, min_size=3, max_size=6), st.booleans(), st.booleans())


WHOLE: Final[Row] = {
    "owner": "a",
    "team": "0b",
    "open": True,
    "tags": frozenset({"a"}),
    **{f"v_{kind}": values[0] for kind, values in VALUES.items()},
}
TWO_ROWS: Final = (WHOLE, {**WHOLE, "v_int": None})
KNOWN: Final = tuple(Story(TWO_ROWS, [Damage(fate, 0, {})], bodies=True, strays=False) for fate in ("lost", "null"))
"""All rows of groups are lost, and all have a null: chance may leave out a table."""


def apart(number: int, text: str | None) -> str | None:
    """A name that no other story has; null and the empty text are shared."""
    if not text:
        return text
    return f"{text}{number}"


class StoriesOfGroups:
    """A keyspace in memory with groups of every kind, in which many stories have happened."""

    def __init__(self, stories: Sequence[Story]) -> None:
        live = Schema((), (TRUTH, BY_TEAM, BODIES, *TABLES))
        (self.family,) = declared_families("shop", read_declaration(DECLARED), live)
        self.world = World(families=(self.family,))
        for number, story in enumerate(stories):
            self._tell(number, story)

    def put(self, table: Table, row: Row) -> None:
        self.world.mail.write(Put(table, row, at=LONG_AGO))

    def _tell(self, number: int, story: Story) -> None:
        truths = []
        for place, row in enumerate(story.rows):
            owner = apart(number, row["owner"])
            truth = {**row, "id": UUID(int=place), "owner": owner, "team": apart(number, row["team"])}
            truths.append(truth)
            self.put(TRUTH, truth)
            if truth["team"]:
                self.put(BY_TEAM, {name: truth[name] for name in BY_TEAM.names})
            if story.bodies:
                self.put(BODIES, {"owner": owner, "body": "b"})
        damages = [*story.damages]
        for group in groups_of(self.family):
            for key, values in sound(group, truths).items():
                damages.append(damages.pop(0))
                self._store(group, key, values, damages[-1])
            if story.strays:
                self._store(group, (f"stray{number}",), dict(damages[0].cells), damages[0])

    def _store(self, group: Any, key: Key, values: dict[str, Any], damage: Damage) -> None:
        table: Table = group.table
        names = [column.name for column in table.regular]
        values = {name: values[name] for name in names}
        changed = names[damage.column % len(names)]
        match damage.fate:
            case "lost":
                return
            case "null":
                values[changed] = None
            case "other":
                values[changed] = damage.cells[changed]
            case _:
                pass
        if isinstance(group, Counts):
            deltas = {name: value for name, value in values.items() if value is not None}
            self.world.mail.write(Count(table, key, deltas))
        else:
            self.put(table, {**table.key_row(key), **values})


def sound(group: Any, truths: Sequence[Row]) -> dict[Key, dict[str, Any]]:
    """The values of each group that truth rows demand."""
    found: dict[Key, dict[str, Any]] = {}
    for truth in filter(group.is_demanded_by, truths):
        values = found.setdefault(group.key_of(truth), dict.fromkeys(group.own_columns))
        match group:
            case Union():
                values[group.column] = (values[group.column] or frozenset()) | truth[group.column]
            case Counts():
                for name, delta in group.deltas_of(truth).items():
                    values[name] = (values[name] or 0) + delta
            case Numbers():
                values.update({name: values[name] or 0 for name in values})
                group.add(values, truth)
            case _:
                group.add(values, truth)
    return found


def test_groups_have_the_same_suspects_in_both_engines(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Numbers, bounds, counters and sets: verdicts, keys, truths that were seen, what is wanted."""
    shop = StoriesOfGroups([*KNOWN, *drawn(STORIES, share(200))])
    world = shop.world
    families = (shop.family,)

    local = found_by(LocalEngine(world.mail, world.ledger, world.clock), families)
    distributed = found_by(engine_over(world.memory, spark, tmp_path, monkeypatch), families)

    assert distributed == local
    for table in TABLES:
        assert local.counts[table.name].keys() == {Verdict.PROJECT, Verdict.AMEND}
