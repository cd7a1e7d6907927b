"""Random declarations over random rows, with an oracle that knows no projection of mailmend.

A case is a list of tables, each with a function from a truth row to the rows that follow from it,
and the text that declares the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from hypothesis import strategies as st

from mailmend.model.ids import RunId
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Put, Scan
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.projections.findings import Finding
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row, Table, columns
from mailmend.repair.clock import Timing
from mailmend.repair.declared import declared_families
from mailmend.repair.mending.counters import CounterMender
from mailmend.repair.mending.engine import RepairSettings
from mailmend.repair.mending.runner import RepairTools, check, repair
from mailmend.repair.mending.undo import UndoSettings, UndoTools, undo
from mailmend.repair.scanners.local import LocalEngine
from tests.support.progress import SilentProgress
from tests.support.repairing import LONG_AGO, World

TYPES: Final = {
    "id": "uuid",
    "n": "int",
    "team": "text",
    "size": "int",
    "at": "timestamp",
    "open": "boolean",
    "tags": "set<text>",
}
CELLS: Final = ("team", "size", "open")
MONTHS: Final = ["2024-05", "2024-06"]

Cell = Callable[[Row], Any]


@dataclass(frozen=True)
class Source:
    """How a column follows from a truth row: as the file says it, and as the oracle knows it."""

    name: str
    type: str
    rule: str
    cell: Cell

    @property
    def computed(self) -> str:
        """Its entry in `computed`; "" for a plain column."""
        if not self.rule:
            return ""
        return f"{self.name} = {self.rule}"


def plain(name: str) -> Source:
    return Source(name, TYPES[name], "", lambda row: row[name])


def lowered(row: Row) -> str | None:
    team: str | None = row["team"]
    if team is None:
        return None
    return team.lower()


def month(row: Row) -> str | None:
    at: datetime | None = row["at"]
    if at is None:
        return None
    return f"{at:%Y-%m}"


def joined(row: Row) -> str | None:
    return "+".join(sorted(row["tags"])) or None


PLACES: Final = (
    plain("team"),
    plain("size"),
    Source("small", "text", '{ lower = "team" }', lowered),
    Source("known", "text", '{ column = "team", default = "none" }', lambda row: row["team"] or "none"),
    Source("month", "text", '{ month_of = "at" }', month),
    Source("region", "text", '{ constant = "eu" }', lambda _: "eu"),
    Source("joined", "text", '{ joined_of = "tags", separator = "+" }', joined),
)


@dataclass(frozen=True)
class Follower:
    """A table that follows from the truth.

    Attributes:
        rows_of: the rows that one truth row demands of it.
        stray: a row that no truth may demand.
    """

    table: Table
    text: str
    rows_of: Callable[[Row], list[Row]]
    stray: Row


def keyed(row: Row, names: Sequence[str]) -> list[Row]:
    """The row, unless its key has a null."""
    if None in [row[name] for name in names]:
        return []
    return [row]


def header(kind: str, table: str) -> str:
    return f"[truth.things.{kind}.{table}]\n"


def computed_line(*sources: Source) -> str:
    entries = [source.computed for source in sources if source.computed]
    if not entries:
        return ""
    return f"computed = {{ {', '.join(entries)} }}\n"


def stray_of(table: Table) -> Row:
    row: dict[str, Any] = {}
    for column in table.columns:
        match column.type:
            case "uuid":
                row[column.name] = UUID(int=99)
            case "int":
                row[column.name] = 99
            case "text":
                row[column.name] = "stray"
            case _:
                row[column.name] = None
    return row


def mirror(number: int, place: Source, key: Sequence[str], copied: Sequence[str], *, alone: bool) -> Follower:
    """A copy under a place; `alone`: the place is the whole key, so two truths may want one row."""
    name = f"mirror_{number}"
    others = [other for other in copied if other != place.name]
    listed = ", ".join(f"{other} {TYPES[other]}" for other in (*key, *others))
    if alone:
        table = Table(name, columns(f"{place.name} {place.type}", regular=listed))
    else:
        clustering = ", ".join(f"{other} {TYPES[other]}" for other in key)
        regular = ", ".join(f"{other} {TYPES[other]}" for other in others)
        table = Table(name, columns(f"{place.name} {place.type}", clustering, regular))

    def rows_of(truth: Row) -> list[Row]:
        row = {place.name: place.cell(truth), **{other: truth[other] for other in (*key, *others)}}
        return keyed(row, table.key_names)

    return Follower(table, header("mirror", name) + computed_line(place), rows_of, stray_of(table))


def exploded(key: Sequence[str], copied: Sequence[str], *, lower: bool) -> Follower:
    clustering = ", ".join(f"{other} {TYPES[other]}" for other in key)
    regular = ", ".join(f"{other} {TYPES[other]}" for other in copied)
    table = Table("exploded", columns("tag text", clustering, regular))
    rule = 'element = "tag"\n'
    if lower:
        rule = 'computed = { tag = { lower = "tags" } }\n'

    def rows_of(truth: Row) -> list[Row]:
        tags = set(truth["tags"])
        if lower:
            tags = {tag.lower() for tag in tags}
        others = {other: truth[other] for other in (*key, *copied)}
        return [{"tag": tag, **others} for tag in sorted(tags)]

    text = header("explode", "exploded") + 'column = "tags"\n' + rule
    return Follower(table, text, rows_of, stray_of(table))


CONDITIONS: Final[Mapping[str, Callable[[Row], bool]]] = {
    "{}": lambda _: True,
    "{ open = true }": lambda row: row["open"] is True,
    "{ size = { null = true } }": lambda row: row["size"] is None,
    '{ team = ["a", "B"] }': lambda row: row["team"] in ("a", "B"),
    '{ team = { not = ["a", "B"] } }': lambda row: row["team"] in (None, "A"),
    '{ team = { starts_not = "a" }, size = { not = 1 } }': lambda row: row["team"] != "a" and row["size"] != 1,
    '{ team = { starts = ["A", "b"] } }': lambda row: row["team"] == "A",
    "[{ size = 1 }, { open = false }]": lambda row: row["size"] == 1 or row["open"] is False,
}


def filtered(key: Sequence[str], condition: str) -> Follower:
    clustering = ", ".join(f"{other} {TYPES[other]}" for other in key)
    table = Table("filtered", columns("team text", clustering))

    def rows_of(truth: Row) -> list[Row]:
        return keyed({name: truth[name] for name in table.names}, table.key_names)

    whole = Follower(table, header("filter", "filtered"), rows_of, stray_of(table))
    return where(condition, whole)


def where(condition: str, whole: Follower) -> Follower:
    """The table of the truth rows that satisfy a condition."""

    def rows_of(truth: Row) -> list[Row]:
        if not CONDITIONS[condition](truth):
            return []
        return whole.rows_of(truth)

    return replace(whole, text=whole.text + f"when = {condition}\n", rows_of=rows_of)


@dataclass(frozen=True)
class Case:
    """Tables that follow from a truth, truth rows, and damage.

    Attributes:
        damage: for each follower a number for each of its rows, and whether it has a stray row.
    """

    truth: Table
    followers: Sequence[Follower]
    rows: Sequence[Row]
    damage: Sequence[tuple[Sequence[int], bool]]

    @property
    def text(self) -> str:
        return "".join(follower.text for follower in self.followers)


def demanded(case: Case, follower: Follower) -> dict[Key, list[Row]]:
    """The rows that the truth demands, by key; several of one key clash."""
    found: dict[Key, list[Row]] = {}
    for truth in case.rows:
        for row in follower.rows_of(truth):
            found.setdefault(follower.table.key_of(row), []).append(row)
    return found


def damaged(case: Case) -> Iterator[tuple[Follower, dict[Key, Row]]]:
    """The rows that each follower has: some are lost, some are changed, one may be a stray."""
    for follower, (fates, stray) in zip(case.followers, case.damage, strict=True):
        standing: dict[Key, Row] = {}
        for number, (key, rows) in enumerate(sorted(demanded(case, follower).items(), key=str)):
            fate = fates[number % len(fates)]
            row = dict(rows[0])
            if fate == 0:
                continue
            if fate == 1:
                for name, cell in other_cells(follower.table, row).items():
                    row[name] = cell
            standing[key] = row
        if stray:
            standing[follower.table.key_of(follower.stray)] = follower.stray
        yield follower, standing


def other_cells(table: Table, row: Row) -> dict[str, Any]:
    """Other values for the columns outside a key, but for those that lead to the truth."""
    changed = {}
    for column in table.regular:
        if column.name in CELLS:
            changed[column.name] = {"text": "wrong", "int": 7, "boolean": row[column.name] is not True}[column.type]
    return changed


@st.composite
def cases(draw: st.DrawFn) -> Case:
    composite = draw(st.booleans())
    key = ["id", "n"] if composite else ["id"]
    regular = {name: kind for name, kind in TYPES.items() if name not in key}
    truth = Table(
        "things",
        columns("id uuid", "n int" if composite else "", ", ".join(f"{name} {kind}" for name, kind in regular.items())),
    )
    copies = st.lists(st.sampled_from(CELLS), unique=True)
    conditions = st.sampled_from(sorted(CONDITIONS))
    followers = []
    for number in range(draw(st.integers(1, 2))):
        place = draw(st.sampled_from(PLACES))
        follower = mirror(number, place, key, draw(copies), alone=draw(st.booleans()))
        if number:
            follower = where(draw(conditions), follower)
        followers.append(follower)
    if draw(st.booleans()):
        followers.append(where(draw(conditions), exploded(key, draw(copies), lower=draw(st.booleans()))))
    if draw(st.booleans()):
        followers.append(filtered(key, draw(conditions)))
    made = st.fixed_dictionaries(
        {
            "id": st.integers(1, 4).map(lambda number: UUID(int=number)),
            "n": st.integers(0, 2),
            "team": st.sampled_from([None, "a", "A", "B"]),
            "size": st.sampled_from([None, 0, 1]),
            "at": st.sampled_from([None, datetime(2024, 5, 31, 23, tzinfo=UTC), datetime(2024, 6, 1, tzinfo=UTC)]),
            "open": st.sampled_from([None, False, True]),
            "tags": st.frozensets(st.sampled_from("aAbB"), max_size=3),
        }
    )
    rows = draw(st.lists(made, min_size=1, max_size=6, unique_by=lambda row: tuple(row[name] for name in key)))
    fates = st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.booleans())
    damage = [draw(fates) for _ in followers]
    return Case(truth, followers, rows, damage)


def cells(table: Table, row: Row) -> Row:
    """The cells of a row; null and the empty set are one."""
    found = {name: row[name] for name in table.names}
    if "tags" in found:
        found["tags"] = frozenset(found["tags"] or ())
    return found


class Shop:
    """The keyspace of a case, in memory."""

    def __init__(self, case: Case, text: str = "", others: Sequence[Table] = ()) -> None:
        tables = [follower.table for follower in case.followers]
        live = Schema((), (case.truth, *tables, *others))
        self.families = declared_families("shop", read_declaration(case.text + text), live)
        self.world = World(families=self.families)
        for row in case.rows:
            self.put(case.truth, row)
        for follower, standing in damaged(case):
            for stored in standing.values():
                self.put(follower.table, stored)

    def put(self, table: Table, row: Row) -> None:
        self.world.mail.write(Put(table, cells(table, row), at=LONG_AGO))

    def rows(self, table: Table) -> dict[Key, Row]:
        stored = self.world.memory.scan(Scan(table, table.names))
        return {table.key_of(row): cells(table, row) for row in stored}

    def check(self) -> dict[tuple[str, Key], Verdict]:
        found: dict[tuple[str, Key], Verdict] = {}

        def note(finding: Finding) -> None:
            if finding.verdict is not Verdict.AGREE:
                found[finding.suspect.projection, finding.suspect.key] = finding.verdict

        check(self._settings(), self._tools(), note)
        return found

    def repaired(self) -> RunId:
        """The run that mended what was wrong; a minute passes."""
        result = repair(self._settings(), self._tools(), lambda _: None)
        assert result.run is not None
        assert result.failed == 0
        self.world.clock.advance(60)
        return result.run

    def undo(self, run: RunId) -> None:
        world = self.world
        tools = UndoTools(
            world.mail,
            world.ledger,
            world.clock,
            SilentProgress(),
            counters=self._counters(),
        )
        undo(UndoSettings(run, "shop", self.families), tools, lambda _: None)

    def _settings(self) -> RepairSettings:
        return RepairSettings("shop", self.families, delay_seconds=0.0, timing=Timing(no_writers=True))

    def _tools(self) -> RepairTools:
        world = self.world
        engine = LocalEngine(world.mail, world.ledger, world.clock)
        return RepairTools(
            engine,
            world.clock,
            world.memory,
            SilentProgress(),
            self._counters(),
            world.ledger,
        )

    def _counters(self) -> CounterMender:
        world = self.world
        timing = Timing(no_writers=True)
        return CounterMender(world.mail, "shop", self.families, world.clock, timing, world.ledger)
