"""Maxima and minima that a writer keeps: whatever rows come, change and go, and whoever writes meanwhile."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.memory import MemoryTables
from mailmend.cql.row_statements import Operation
from mailmend.model.errors import DoubtfulWrite, NotEnoughReplicas
from mailmend.model.keyspace import Schema
from mailmend.model.operations import ChangeIf, Put, Read, Remove
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Row, Table, columns
from mailmend.repair.declared import declared_families
from mailmend.repair.store.projection_writer import ProjectionWriter
from mailmend.repair.store.writes import WriterSettings
from tests.support.clock import VirtualClock
from tests.support.writing import Faults, LagList

VISITS = Table("visits", columns("user text", "id uuid", "team text, size int"))
MOST = Table("most", columns("user text", regular="size int, note text"))
LEAST = Table("least", columns("user text", regular="size int"))
DECLARED = (
    '[truth.visits.max.most]\ncolumns = { size = "size" }\n\n[truth.visits.min.least]\ncolumns = { size = "size" }\n'
)
FAMILIES = declared_families("shop", read_declaration(DECLARED), Schema((), (VISITS, MOST, LEAST)))


class Visits:
    """The keyspace in memory, with writers, and faults on demand."""

    def __init__(self, settings: WriterSettings | None = None) -> None:
        self.clock = VirtualClock()
        self.faults = Faults()
        self.lags = LagList()
        self.tables = MemoryTables(self.clock.micros, self.faults)
        self.settings = settings
        self.writer = self.another()

    def another(self) -> ProjectionWriter:
        return ProjectionWriter(self.tables, FAMILIES, self.lags, self.clock, settings=self.settings)

    def value(self, table: Table) -> Any:
        rows = self.tables.read(Read(table, ("ann",)))
        if not rows:
            return None
        return rows[0].row["size"]


def visit(number: int, size: int | None = None) -> Row:
    return {"user": "ann", "id": UUID(int=number), "size": size}


def raises(operation: Operation) -> bool:
    return isinstance(operation, ChangeIf) and operation.table.name == "most"


sizes = st.none() | st.integers(-2, 3)
steps = st.lists(st.tuples(st.sampled_from(["put", "change", "delete"]), st.integers(1, 3), sizes), max_size=8)


@given(steps, st.booleans())
def test_values_are_as_far_as_every_row_that_ever_was(story: list[tuple[str, int, int | None]], strong: bool) -> None:
    """A row that goes leaves its value there: what is farther is right."""
    visits = Visits(WriterSettings(strong=strong))
    seen = []
    there = set()
    for what, number, size in story:
        visits.clock.advance(1)
        if what == "delete":
            visits.writer.delete({"user": "ann", "id": UUID(int=number)})
            there.discard(number)
            continue
        if what == "put":
            visits.writer.put(visit(number, size))
        elif number in there:
            visits.writer.change({"user": "ann", "id": UUID(int=number)}, {"size": size})
        else:
            continue
        there.add(number)
        seen.append(size)

    known = [size for size in seen if size is not None]
    assert visits.value(MOST) == max(known, default=None)
    assert visits.value(LEAST) == min(known, default=None)
    assert visits.lags.suspects == []


@given(st.integers(1, 30), st.integers(0, 5), st.integers(0, 5))
def test_a_farther_value_of_another_writer_in_between_wins(before: int, ours: int, theirs: int) -> None:
    """The other writer comes before any one of the first writer's operations."""
    visits = Visits()
    other = visits.another()
    asked = 0

    def interleaved(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        nonlocal asked
        asked += 1
        visits.clock.advance(1e-3)
        if asked == before:
            other.put(visit(2, theirs))
        return carry_out()

    visits.tables.surround = interleaved
    visits.writer.put(visit(1, ours))
    visits.tables.surround = visits.faults

    farthest = [ours]
    if asked >= before:
        farthest.append(theirs)
    assert (visits.value(MOST), visits.value(LEAST)) == (max(farthest), min(farthest))
    assert visits.lags.suspects == []


def test_a_value_is_changed_on_condition_that_it_is_as_it_was_read() -> None:
    visits = Visits()
    visits.writer.put(visit(1, 3))
    visits.writer.put(visit(2, 7))

    changes = [operation for operation in visits.faults.seen if raises(operation)]

    assert [(change.expected, change.assign) for change in changes if isinstance(change, ChangeIf)] == [
        ({"size": None}, {"size": 3}),
        ({"size": 3}, {"size": 7}),
    ]


def test_a_row_that_is_not_farther_changes_nothing() -> None:
    visits = Visits()
    visits.writer.put(visit(1, 3))
    before = len([operation for operation in visits.faults.seen if isinstance(operation, ChangeIf)])

    visits.writer.put(visit(2, 3))

    changes = [operation for operation in visits.faults.seen if isinstance(operation, ChangeIf)]
    assert len(changes) == before


def test_other_columns_of_a_group_stay() -> None:
    visits = Visits()
    visits.tables.write(Put(MOST, {"user": "ann", "size": 1, "note": "kept"}))

    visits.writer.put(visit(1, 9))

    (row,) = [seen.row for seen in visits.tables.read(Read(MOST, ("ann",)))]
    assert (row["size"], row["note"]) == (9, "kept")


@given(st.booleans())
def test_an_attempt_without_an_answer_is_settled_by_a_look(done: bool) -> None:
    visits = Visits()
    visits.faults.doubt(raises, DoubtfulWrite("no answer"), done=done)

    written = visits.writer.put(visit(1, 3))

    assert (written.lagged, visits.value(MOST), visits.lags.suspects) == (False, 3, [])


def test_a_value_that_cannot_be_written_is_a_lag() -> None:
    visits = Visits()
    visits.faults.fail(raises, NotEnoughReplicas("no quorum"), times=1000)

    written = visits.writer.put(visit(1, 3))

    assert (written.changed, written.lagged, written.journalled) == (True, True, True)
    assert visits.lags.suspects == [Suspect("most", ("ann",), Verdict.AMEND)]
    assert visits.value(LEAST) == 3


def test_a_value_that_a_later_deletion_hides_is_a_lag() -> None:
    """The deletion is of a clock that is ahead."""
    visits = Visits()
    visits.tables.write(Remove(MOST, ("ann",), at=visits.clock.micros() + 10**9))

    written = visits.writer.put(visit(1, 3))

    assert written.lagged
    assert [suspect.projection for suspect in visits.lags.suspects] == ["most"]


def test_a_row_without_a_value_changes_no_group() -> None:
    visits = Visits()

    written = visits.writer.put(visit(1))

    assert (written.lagged, visits.value(MOST), visits.value(LEAST)) == (False, None, None)
