"""A published model with materialised views: damaged at random, found, and mended as far as a touch can."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.operations import Put, Scan
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.projections.findings import Finding, RepairPolicy
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.projections.view_mirror import ViewMirror
from mailmend.model.table import Key, Row, Table
from mailmend.repair.clock import Timing
from mailmend.repair.declared import declared_families
from mailmend.repair.mending.engine import RepairSettings
from mailmend.repair.mending.runner import RepairTools, check, repair
from mailmend.repair.mending.undo import UndoSettings, UndoTools, undo
from mailmend.repair.scanners.local import LocalEngine
from tests.support.cyclists import (
    CYCLISTS,
    DECLARED,
    LIVE,
    OTHER,
    VALUES,
    VIEWS,
    Rows,
    demanded,
    differences,
    out_of_reach,
    stray_of,
)
from tests.support.progress import SilentProgress
from tests.support.repairing import LONG_AGO, World
from tests.support.view_server import ViewServer


@dataclass(frozen=True)
class RidersCase:
    """Cyclists, and what stands in each view: by its name, its rows."""

    cyclists: Sequence[Row]
    standing: Mapping[str, Rows]


@st.composite
def riders_cases(draw: st.DrawFn) -> RidersCase:
    cells = {name: st.sampled_from(values) for name, values in VALUES.items()}
    numbers = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5, unique=True))
    cyclists = [{"cid": UUID(int=number), **draw(st.fixed_dictionaries(cells))} for number in numbers]
    return RidersCase(cyclists, {view.name: draw(damaged(view, cyclists)) for view in VIEWS})


@st.composite
def damaged(draw: st.DrawFn, view: Table, cyclists: Sequence[Row]) -> Rows:
    """The rows of a view: some are lost, some have other cells or lack some, one may be a stray."""
    standing: dict[Key, Row] = {}
    for key, row in demanded(view, cyclists).items():
        if draw(st.booleans()):
            spoilt = draw(st.dictionaries(st.sampled_from(view.names[2:]), st.booleans(), max_size=2))
            cells = {name: OTHER[name] for name, is_other in spoilt.items() if is_other}
            lost = {name: None for name in spoilt if name not in cells}
            standing[key] = {**row, **cells, **lost}
        elif draw(st.booleans()):
            standing[key] = row
    if draw(st.booleans()):
        stray = stray_of(view)
        standing[view.key_of(stray)] = stray
    return standing


class Velodrome:
    """The keyspace of a case in memory, with a server that derives the views."""

    def __init__(self, case: RidersCase) -> None:
        self.families = declared_families("cycling", read_declaration(DECLARED, "cycling.toml"), LIVE)
        self.world = World(families=self.families)
        for cyclist in case.cyclists:
            self.put(CYCLISTS, cyclist)
        for view in VIEWS:
            for row in case.standing[view.name].values():
                self.put(view, row)
        mirrors = [family.mirror for family in self.families if isinstance(family.mirror, ViewMirror)]
        assert len(mirrors) == len(VIEWS)
        self.world.memory.surround = ViewServer(self.world.mail, mirrors)

    def put(self, table: Table, row: Row) -> None:
        self.world.mail.write(Put(table, row, at=LONG_AGO))

    def rows(self, table: Table) -> Rows:
        return {table.key_of(row): dict(row) for row in self.world.mail.scan(Scan(table, table.names))}

    def all_rows(self) -> list[Rows]:
        return [self.rows(table) for table in (CYCLISTS, *VIEWS)]

    def stamps(self) -> set[int]:
        """The write times of the base."""
        found = set[int]()
        for key in self.rows(CYCLISTS):
            found.update(self.world.seen(CYCLISTS, key).written_at.values())
        return found

    def found(self) -> dict[str, dict[Key, Verdict]]:
        found: dict[str, dict[Key, Verdict]] = {view.name: {} for view in VIEWS}

        def note(finding: Finding) -> None:
            if finding.verdict is not Verdict.AGREE:
                found[finding.suspect.projection][finding.suspect.key] = finding.verdict

        check(self._settings(), self._tools(), note)
        return found

    def touch_and_undo(self) -> tuple[list[Rows], list[Rows]]:
        """The rows after a repair, and those after it was taken back."""
        result = repair(self._settings(), self._tools(), lambda _: None)
        assert result.run is not None
        assert result.failed == 0
        mended = self.all_rows()
        self.world.clock.advance(60)
        tools = UndoTools(self.world.mail, self.world.ledger, self.world.clock, SilentProgress())
        undo(UndoSettings(result.run, "cycling", self.families), tools, lambda _: None)
        return mended, self.all_rows()

    def _settings(self) -> RepairSettings:
        policy = RepairPolicy(touch_base=True)
        timing = Timing(no_writers=True)
        return RepairSettings("cycling", self.families, delay_seconds=0.0, timing=timing, policy=policy)

    def _tools(self) -> RepairTools:
        engine = LocalEngine(self.world.mail, self.world.ledger, self.world.clock)
        return RepairTools(engine, self.world.clock, self.world.memory, SilentProgress(), ledger=self.world.ledger)


def of_each_view(case: RidersCase, judged: Any) -> dict[str, dict[Key, Verdict]]:
    return {view.name: judged(demanded(view, case.cyclists), case.standing[view.name]) for view in VIEWS}


@given(riders_cases())
def test_a_check_of_published_views_finds_what_the_oracle_finds(case: RidersCase) -> None:
    assert Velodrome(case).found() == of_each_view(case, differences)


@given(riders_cases())
def test_a_touch_mends_all_that_the_base_can_say(case: RidersCase) -> None:
    velodrome = Velodrome(case)
    base = velodrome.rows(CYCLISTS)

    (cyclists, *views), after_undo = velodrome.touch_and_undo()

    left = of_each_view(case, out_of_reach)
    assert velodrome.found() == left
    assert cyclists == base
    assert velodrome.stamps() <= set(range(LONG_AGO, LONG_AGO + len(VIEWS) + 1))
    for view, rows in zip(VIEWS, views, strict=True):
        wanted = demanded(view, case.cyclists)
        assert {key for key in rows if key not in left[view.name]} == wanted.keys() - left[view.name].keys()
        assert all(row == wanted[key] for key, row in rows.items() if key not in left[view.name])
    assert after_undo == [cyclists, *views]
