"""Users with profiles: a declared truth whose rows need contents, of every age, with whoever writes meanwhile."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final
from uuid import UUID

from hypothesis import strategies as st

from mailmend.model.ids import RunId
from mailmend.model.instants import MICROS
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Scan
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.projections.findings import Finding, RepairPolicy
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row, Table, columns
from mailmend.repair.declared import declared_families
from mailmend.repair.mending.engine import RepairResult, RepairSettings
from mailmend.repair.mending.runner import RepairTools, repair
from mailmend.repair.mending.undo import UndoSettings, UndoTools, undo
from mailmend.repair.scanners.local import LocalEngine
from tests.support.clock import START, uuid_at
from tests.support.progress import SilentProgress
from tests.support.repairing import DAY_SECONDS, World

USERS: Final = Table("users", columns("user_id uuid", regular="email text, team text, tags set<text>"))
PROFILES: Final = Table("profiles", columns("user_id uuid", regular="body text, links list<text>"))
BY_EMAIL: Final = Table("users_by_email", columns("email text", "user_id uuid", "team text"))
BY_TEAM: Final = Table("users_by_team", columns("team text", "user_id uuid", "email text"))
BY_TAG: Final = Table("users_by_tag", columns("tag text", "user_id uuid", "team text"))
LEADS: Final = Table("leads", columns("team text", "user_id uuid"))
FOLLOWERS: Final = (BY_EMAIL, BY_TEAM, BY_TAG, LEADS)
DECLARED: Final = """\
[truth.users.mirror.users_by_email]

[truth.users.mirror.users_by_team]

[truth.users.explode.users_by_tag]
column = "tags"
element = "tag"

[truth.users.filter.leads]
when = { email = { starts = "lead" } }

[truth.users.content.profiles]
"""
LIVE: Final = Schema((), (USERS, PROFILES, *FOLLOWERS))


LOOKS_APART: Final = 60
"""The seconds between the scan and the second look."""


class Age(Enum):
    """When a row was written, in seconds before the scan; NONE: never."""

    NONE = None
    OLD = 2 * DAY_SECONDS
    JUST_OLD = DAY_SECONDS + 1
    JUST_YOUNG = DAY_SECONDS - LOOKS_APART - 1
    YOUNG = 3600

    @property
    def at(self) -> int:
        assert self.value is not None
        return START - int(self.value) * MICROS

    @property
    def is_old(self) -> bool:
        return self in (Age.OLD, Age.JUST_OLD)


class Meanwhile(Enum):
    """What a program does between the scan and the second look."""

    NOTHING = "nothing"
    NAMES = "writes the row of truth"
    WRITES_CONTENT = "writes the content"


@dataclass(frozen=True)
class UserStory:
    """A user.

    Attributes:
        born: of a key that tells a time; NONE: the key is a random UUID.
    """

    number: int
    born: Age
    truth: Age
    content: Age
    lead: bool
    meanwhile: Meanwhile

    @property
    def id(self) -> UUID:
        if self.born is Age.NONE:
            return UUID(int=self.number, version=4)
        return uuid_at(self.born.at, self.number)

    @property
    def row(self) -> Row:
        name = f"u{self.number}"
        if self.lead:
            name = f"lead{self.number}"
        return {"user_id": self.id, "email": name, "team": "red", "tags": frozenset({"all", name})}

    @property
    def profile(self) -> Row:
        return {"user_id": self.id, "body": f"profile {self.number}", "links": ("one", "two")}

    @property
    def followers(self) -> list[tuple[Table, Row]]:
        row = self.row
        found = [(BY_EMAIL, _cells(BY_EMAIL, row)), (BY_TEAM, _cells(BY_TEAM, row))]
        for tag in sorted(row["tags"]):
            found.append((BY_TAG, _cells(BY_TAG, {**row, "tag": tag})))
        if self.lead:
            found.append((LEADS, _cells(LEADS, row)))
        return found

    @property
    def is_old(self) -> bool:
        """Whether a row that was written at the age of truth or content, whichever is there, is old."""
        written = self.truth
        if written is Age.NONE:
            written = self.content
        return written.is_old and (self.born is Age.NONE or self.born.is_old)

    @property
    def verdict(self) -> Verdict | None:
        """What is wrong before anything happens."""
        if self.truth is Age.NONE and self.content is not Age.NONE:
            return Verdict.LEAK
        if self.truth is not Age.NONE and self.content is Age.NONE:
            return Verdict.LOST_CONTENT
        return None

    @property
    def is_mended(self) -> bool:
        """Whether a repair that may do everything removes what is alone."""
        return self.verdict is not None and self.is_old and self.meanwhile is Meanwhile.NOTHING


def _cells(table: Table, row: Row) -> Row:
    return {name: row[name] for name in table.names}


@st.composite
def user_stories(draw: st.DrawFn) -> list[UserStory]:
    ages = st.sampled_from(Age)
    stories = []
    for number in range(1, draw(st.integers(1, 5)) + 1):
        stories.append(
            UserStory(
                number,
                draw(st.sampled_from([Age.NONE, Age.NONE, Age.OLD, Age.YOUNG])),
                draw(ages),
                draw(ages),
                draw(st.booleans()),
                draw(st.sampled_from([Meanwhile.NOTHING, *Meanwhile])),
            )
        )
    return stories


Everything = dict[str, dict[Key, Row]]
"""The rows of each table, by their keys."""


class Register:
    """The keyspace in memory."""

    def __init__(self, stories: Iterable[UserStory], declared: str = DECLARED) -> None:
        self.stories = list(stories)
        self.families = declared_families("shop", read_declaration(declared), LIVE)
        self.world = World(families=self.families)
        for story in self.stories:
            if story.truth is not Age.NONE:
                self.world.put(USERS, story.row, story.truth.at)
                for table, row in story.followers:
                    self.world.put(table, row, story.truth.at)
            if story.content is not Age.NONE:
                self.world.put(PROFILES, story.profile, story.content.at)

    def rows(self) -> Everything:
        return {table.name: self._rows_of(table) for table in (USERS, PROFILES, *FOLLOWERS)}

    def _rows_of(self, table: Table) -> dict[Key, Row]:
        found: dict[Key, Row] = {}
        for row in self.world.memory.scan(Scan(table, table.names)):
            cells = {name: row[name] or None for name in table.names}
            found[table.key_of(row)] = cells
        return found

    def repaired(
        self, *, meanwhile: bool = False, dry_run: bool = False, **changes: Any
    ) -> tuple[RepairResult, list[Finding]]:
        """A repair, with its findings; a minute passes between its looks, and after it."""
        wanted: Mapping[str, Any] = {"orphans": "quarantine", "leaks": "collect", **changes}
        settings = RepairSettings(
            "shop",
            self.families,
            delay_seconds=LOOKS_APART,
            dry_run=dry_run,
            policy=RepairPolicy(**wanted),
        )
        if meanwhile:
            self.world.during_sleep(self._write_meanwhile)
        world = self.world
        engine = LocalEngine(world.mail, world.ledger, world.clock)
        tools = RepairTools(engine, world.clock, world.memory, SilentProgress(), ledger=world.ledger)
        findings: list[Finding] = []
        result = repair(settings, tools, findings.append)
        world.clock.advance(60)
        return result, findings

    def _write_meanwhile(self) -> None:
        now = self.world.clock.micros()
        for story in self.stories:
            match story.meanwhile:
                case Meanwhile.NAMES:
                    self.world.put(USERS, story.row, now)
                case Meanwhile.WRITES_CONTENT:
                    self.world.put(PROFILES, story.profile, now)
                case Meanwhile.NOTHING:
                    pass

    def undo(self, run: RunId | None) -> RepairResult:
        assert run is not None
        world = self.world
        tools = UndoTools(world.mail, world.ledger, world.clock, SilentProgress())
        result = undo(UndoSettings(run, "shop", self.families), tools, lambda _: None)
        world.clock.advance(60)
        return result


def without(rows: Everything, gone: Iterable[tuple[Table, Row]]) -> Everything:
    """The rows of each table less some."""
    left = {name: dict(keyed) for name, keyed in rows.items()}
    for table, row in gone:
        left[table.name].pop(table.key_of(row), None)
    return left


def put_meanwhile(rows: Everything, stories: Iterable[UserStory]) -> Everything:
    """The rows of each table with those that programs wrote meanwhile."""
    found = {name: dict(keyed) for name, keyed in rows.items()}
    written: Mapping[Meanwhile, Callable[[UserStory], tuple[Table, Row]]] = {
        Meanwhile.NAMES: lambda story: (USERS, story.row),
        Meanwhile.WRITES_CONTENT: lambda story: (PROFILES, story.profile),
    }
    for story in stories:
        if story.meanwhile in written:
            table, row = written[story.meanwhile](story)
            found[table.name][table.key_of(row)] = row
    return found
