"""The ledger: runs are listed and shown, before-images survive retried tasks, secrets never get in."""

from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from itertools import permutations
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.memory import MemoryTables
from mailmend.cql.row_statements import Operation
from mailmend.model.catalog.ledger import REPAIR_FINDING
from mailmend.model.errors import (
    MailmendError,
    NotEnoughReplicas,
    SchemaMismatch,
    TableOpening,
    TimedOut,
    UnknownRun,
    WrongUse,
)
from mailmend.model.ids import RunId
from mailmend.model.instants import MICROS
from mailmend.model.operations import Put, Read, Seen
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.ledger.runs import Ledger, RunState, without_secrets
from tests.support.clock import START, VirtualClock
from tests.support.writing import Faults

T = START - 30 * MICROS


def ledger(clock: VirtualClock, **options: Any) -> Ledger:
    return Ledger(MemoryTables(clock.micros), clock, **options)


def finding(number: int = 1, flags: str = "seen", at: int = T - 1000) -> Finding:
    """A stale row of a mirror, as a second look saw it."""
    projected = Seen({"uid": number, "flags": flags}, {"flags": at})
    return Finding(Suspect("messageIdTable", (number,), Verdict.AMEND), Verdict.AMEND, projected=projected)


def held_back(book: Ledger, tables: MemoryTables, run: RunId) -> list[Any]:
    """The writes of three attempts to record one finding, none of which has arrived."""
    writes: list[Any] = []
    tables.surround = lambda write, _: writes.append(write)
    for attempt in range(3):
        book.clock.sleep(0.001)
        book.record(run, T, [finding(flags=f"attempt {attempt}")])
    tables.surround = lambda _, carry_out: carry_out()
    return writes


@pytest.mark.parametrize(
    ("error", "times", "found"),
    [
        (TableOpening("still made"), 99, True),
        (SchemaMismatch("ledger", ("table repair_run",)), 99, True),
        (TableOpening("still made"), 9999, False),
        (TimedOut("silence"), 1, False),
    ],
)
def test_a_node_that_is_still_making_the_table_is_asked_again(error: MailmendError, times: int, *, found: bool) -> None:
    clock, faults = VirtualClock(), Faults()
    tables = MemoryTables(clock.micros, faults)
    book = Ledger(tables, clock)
    run = book.start("mail", "repair messages", T, {}, owner="op@host pid 1")
    faults.fail(lambda one: isinstance(one, Read), error, times=times)

    with nullcontext() if found else pytest.raises(type(error)):
        assert book.runs() == [run]
    assert clock.micros() - START < 10 * MICROS


def test_a_beginning_that_several_ids_share_is_refused_with_the_ids() -> None:
    clock = VirtualClock()
    book = ledger(clock)
    runs = [book.start("mail", "repair messages", T, {}, owner="op@host pid 1") for _ in range(2)]
    alike = str(runs[0].id)[:8]

    with pytest.raises(WrongUse, match="2 runs have an id") as refused:
        book.id_of(alike)

    assert all(str(run.id) in str(refused.value) for run in runs)
    assert [book.id_of(str(run.id)) for run in runs] == [run.id for run in runs]


def test_a_run_is_known_from_its_start_to_its_end() -> None:
    """Started, it is RUNNING; finished, it has its sums."""
    clock = VirtualClock()
    book = ledger(clock)
    run = book.start("mail", "repair messages", T, {"delay": 60}, owner="op@host pid 1")
    assert book.get(run.id) == run
    assert run.state is RunState.RUNNING
    clock.sleep(5)
    done = book.finish(run, {"fixed": {"AMEND": 3}})
    assert book.get(run.id) == done
    assert (done.state, done.summary["fixed"], done.as_of) == (RunState.DONE, {"AMEND": 3}, T)
    assert done.ended_at is not None
    assert done.ended_at - done.started_at == timedelta(seconds=5)


def test_an_interrupted_run_says_so() -> None:
    book = ledger(VirtualClock())
    run = book.start("mail", "repair messages", T, {})
    book.interrupt(run, {})
    assert book.get(run.id).state is RunState.INTERRUPTED


def test_an_undo_names_the_run_that_it_takes_back() -> None:
    book = ledger(VirtualClock())
    first = book.start("mail", "repair messages", T, {})
    undo = book.start("mail", "undo", T + 1, {}, undoes=first.id)
    assert book.get(undo.id).undoes == first.id


@pytest.mark.parametrize("version", [1, 4])
def test_an_unknown_run_is_an_error_that_says_what_to_do(version: int) -> None:
    clock = VirtualClock()
    with pytest.raises(UnknownRun, match="mailmend runs list"):
        ledger(clock).get(clock.new_uuid() if version == 1 else uuid4())


def test_runs_are_listed_newest_first_and_by_keyspace() -> None:
    clock = VirtualClock()
    book = ledger(clock)
    runs = []
    for keyspace in ("one", "two", "one"):
        runs.append(book.start(keyspace, "repair messages", T, {}))
        clock.sleep(20 * 3600)
    assert [run.id for run in book.runs()] == [run.id for run in reversed(runs)]
    assert [run.id for run in book.runs("one")] == [runs[2].id, runs[0].id]


def test_runs_are_kept_as_long_as_was_asked_for() -> None:
    """`--keep 2 days`: on the third there is nothing left."""
    clock = VirtualClock()
    book = ledger(clock, keep=timedelta(days=2))
    run = book.start("mail", "repair messages", T, {})
    book.record(run.id, T, [finding()])
    clock.sleep(2 * 24 * 3600 - 60)
    assert book.runs() == [run]
    assert len(list(book.findings(run.id))) == 1
    clock.sleep(120)
    assert book.runs() == []
    assert list(book.findings(run.id)) == []


@given(st.permutations(["password", "tls_key_password", "ApiToken", "client_secret", "credentials", "delay", "only"]))
def test_secrets_never_enter_the_ledger(names: list[str]) -> None:
    assert set(without_secrets(dict.fromkeys(names, "x"))) == {"delay", "only"}


def test_findings_come_back_with_what_became_of_them() -> None:
    book = ledger(VirtualClock())
    run = book.start("mail", "repair messages", T, {}).id
    outcomes = [finding(number) for number in range(500)]
    assert book.record(run, T, outcomes) == [None] * 500
    ends = [replace(one, result=Verdict.FIXED if number % 2 else Verdict.HIDDEN) for number, one in enumerate(outcomes)]
    assert book.settle(run, ends) == [None] * 500
    assert sorted(book.findings(run), key=lambda one: one.suspect.key) == ends


def test_a_finding_that_was_never_settled_is_there_all_the_same() -> None:
    book = ledger(VirtualClock())
    run = book.start("mail", "repair messages", T, {}).id
    book.record(run, T, [finding()])
    assert list(book.findings(run)) == [finding()]
    assert book.finding(run, finding().suspect) == finding()


def test_runs_do_not_mix() -> None:
    clock = VirtualClock()
    book = ledger(clock)
    one, two = (book.start("mail", "repair messages", T, {}).id for _ in range(2))
    book.record(one, T, [finding(flags="one")])
    book.record(two, T, [finding(flags="two")])
    assert list(book.findings(one)) == [finding(flags="one")]
    assert list(book.findings(two)) == [finding(flags="two")]
    assert book.finding(two, finding(2).suspect) is None


def test_the_earliest_attempts_image_wins_in_whatever_order_they_arrive() -> None:
    for order in permutations(range(3)):
        clock = VirtualClock()
        tables = MemoryTables(clock.micros)
        book = Ledger(tables, clock)
        run = book.start("mail", "repair messages", T, {}).id
        writes = held_back(book, tables, run)
        for number in order:
            tables.write(writes[number])
        assert list(book.findings(run)) == [finding(flags="attempt 0")]


def test_attempts_in_the_same_microsecond_leave_one_image_whole() -> None:
    clock = VirtualClock()
    book = ledger(clock)
    run = book.start("mail", "repair messages", T, {}).id
    images = [finding(flags="a"), replace(finding(flags="b"), verdict=Verdict.WITHDRAW)]
    for image in images:
        book.record(run, T, [image])
    assert [one for one in book.findings(run) if one in images] == list(book.findings(run))
    assert len(list(book.findings(run))) == 1


def test_what_the_run_itself_wrote_is_no_before_image() -> None:
    clock = VirtualClock()
    book = ledger(clock)
    run = book.start("mail", "repair messages", T, {}).id
    assert book.record(run, T, [finding(1), finding(2)]) == [None, None]
    clock.advance(-10)
    assert book.record(run, T, [finding(1, "fixed", at=T), finding(3)]) == [None, None]
    assert sorted(one.suspect.key for one in book.findings(run)) == [(1,), (2,), (3,)]
    assert book.finding(run, finding(1).suspect) == finding(1)


def test_what_cannot_be_recorded_is_said_one_by_one() -> None:
    clock = VirtualClock()
    book = ledger(clock)
    run = book.start("mail", "repair messages", T, {}).id
    assert isinstance(book.tables, MemoryTables)

    def failing(write: Operation, carry_out: Any) -> Any:
        if isinstance(write, Put) and write.table is REPAIR_FINDING and '"key":[2]' in write.row["before"]:
            raise NotEnoughReplicas("two of three replicas are down")
        return carry_out()

    book.tables.surround = failing
    answers = book.record(run, T, [finding(1), finding(2), finding(2, "own", at=T), finding(3)])
    assert [type(answer).__name__ for answer in answers] == ["NoneType", "NotEnoughReplicas", "NoneType", "NoneType"]


def test_the_latest_end_of_a_finding_wins() -> None:
    """First HIDDEN, then seen by a retry as FIXED."""
    clock = VirtualClock()
    book = ledger(clock)
    run = book.start("mail", "repair messages", T, {}).id
    book.record(run, T, [finding()])
    for result in (Verdict.HIDDEN, Verdict.FIXED):
        clock.sleep(1)
        book.settle(run, [replace(finding(), result=result, error="once" if result is Verdict.HIDDEN else None)])
    (end,) = book.findings(run)
    assert (end.result, end.error) == (Verdict.FIXED, None)


def test_an_unreadable_ledger_is_an_error_and_not_an_empty_one() -> None:
    clock = VirtualClock()
    book = ledger(clock)
    run = book.start("mail", "repair messages", T, {}).id
    assert isinstance(book.tables, MemoryTables)

    def down(_: Operation, __: Any) -> Any:
        raise NotEnoughReplicas("two of three replicas are down")

    book.tables.surround = down
    with pytest.raises(NotEnoughReplicas):
        list(book.findings(run))
    with pytest.raises(NotEnoughReplicas):
        book.runs()
