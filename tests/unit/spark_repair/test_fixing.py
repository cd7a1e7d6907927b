"""What travels between the driver and the executors arrives as it left; tasks are neither too few nor too many."""

import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.driver.contact import Contact
from mailmend.model.catalog.mail import FAMILIES, MESSAGES
from mailmend.model.operations import Seen
from mailmend.model.projections.findings import Finding, RepairPolicy, Suspect
from mailmend.model.projections.verdicts import MENDABLE, Verdict
from mailmend.repair.mending.limits import BURST_SECONDS, Breaker
from mailmend.spark_repair import fixing, pace
from mailmend.spark_repair.fixing import (
    TASKS_MAX,
    Workplace,
    finding_from,
    finding_text,
    findings_of,
    suspect_of,
    tasks_for,
)
from tests.support.clock import START
from tests.support.repairing import MAILBOX, T, World, message, truth_row

POLICY = RepairPolicy(None, T, 5.0, MENDABLE)
PLACE = Workplace(Contact(), "mail", None, timedelta(days=30), FAMILIES, POLICY, workers=2)
SUSPECT = Suspect("messageIdTable", (MAILBOX, 7), Verdict.AMEND, ((message(7),),))


def suspect_row(suspect: Suspect) -> dict[str, Any]:
    """A suspect as a DataFrame has it."""
    return {
        "projection": suspect.projection,
        "verdict": suspect.verdict.value,
        "key": [str(part) for part in suspect.key],
        "truth_keys": [list(map(str, key)) for key in suspect.truth_keys],
        "wanted": None,
    }


def test_a_suspect_comes_out_of_a_frame_with_the_types_of_its_table() -> None:
    """Text on the way, UUIDs and numbers at the end."""
    assert suspect_of(suspect_row(SUSPECT), PLACE.projections) == SUSPECT


def test_what_a_group_wants_keeps_its_types() -> None:
    row = suspect_row(Suspect("applicableFlag", (MAILBOX,), Verdict.PROJECT)) | {"wanted": '{"userflags":["b","a"]}'}
    assert suspect_of(row, PLACE.projections).wanted == {"userflags": frozenset({"a", "b"})}
    row = suspect_row(Suspect("mailboxCounters", (MAILBOX,), Verdict.AMEND)) | {"wanted": '{"count":3,"unseen":1}'}
    assert suspect_of(row, PLACE.projections).wanted == {"count": 3, "unseen": 1}


def test_keys_of_other_tables_are_typed_too() -> None:
    leak = Suspect("messageV3", (message(3),), Verdict.LEAK)
    recent = Suspect("mailboxRecents", (MAILBOX, 3), Verdict.WITHDRAW)
    assert [suspect_of(suspect_row(one), PLACE.projections) for one in (leak, recent)] == [leak, recent]


_verdicts = st.sampled_from(list(Verdict))
_cells = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(),
    st.uuids(),
    st.frozensets(st.text()),
    st.binary(),
    st.datetimes(timezones=st.just(UTC)),
)
_micros = st.integers(-(2**63), 2**63 - 1)
"""Write times are of type bigint."""

_seen = st.builds(Seen, st.dictionaries(st.text(), _cells, max_size=5), st.dictionaries(st.text(), _micros, max_size=3))
_outcomes = st.builds(
    Finding,
    suspect=st.builds(
        Suspect, st.text(), st.tuples(st.uuids(), st.integers()), _verdicts, st.lists(st.tuples(st.uuids())).map(tuple)
    ),
    verdict=_verdicts,
    result=st.none() | _verdicts,
    truths=st.lists(_seen, max_size=2).map(tuple),
    projected=st.none() | _seen,
    last_trace=st.booleans(),
    error=st.none() | st.text(),
    due=st.booleans(),
    unreached=st.booleans(),
    untried=st.booleans(),
)


@given(_outcomes)
def test_an_outcome_comes_home_as_it_left(outcome: Finding) -> None:
    assert finding_from(finding_text(outcome)) == outcome


@given(st.integers(0, 10**9), st.integers(1, 1000))
def test_tasks_keep_every_worker_busy_and_stay_small(suspects: int, workers: int) -> None:
    tasks = tasks_for(suspects, workers)
    assert workers <= tasks <= max(workers, TASKS_MAX)
    if tasks < TASKS_MAX:
        assert tasks * fixing.SUSPECTS_PER_TASK >= suspects


def test_a_workplace_reaches_an_executor_whole() -> None:
    secret = Workplace(Contact(password="s3cret"), "mail", "book", timedelta(1), FAMILIES, POLICY, 2)
    assert pickle.loads(pickle.dumps(secret)) == secret
    assert "s3cret" not in repr(secret)


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> World:
    """An executor whose cluster is the twin in memory."""
    world = World()

    class Cluster:
        def keyspace(self, name: str) -> Any:
            return {"mail": world.mail, "book": world.ledger.tables}[name]

    monkeypatch.setattr(pace, "connect", lambda _: Cluster())
    monkeypatch.setattr(fixing, "SystemClock", lambda: world.clock)
    monkeypatch.setattr(pace, "_clusters", {})
    monkeypatch.setattr(fixing, "_breakers", {})
    return world


def batches(suspects: list[Suspect], rows: int = 2) -> list[pa.RecordBatch]:
    """Suspects as Spark hands them to a task."""
    table = pa.Table.from_pylist([suspect_row(one) for one in suspects], schema=_suspects_schema())
    return list(table.to_batches(max_chunksize=rows))


def _suspects_schema() -> pa.Schema:
    text, texts = pa.string(), pa.list_(pa.string())
    kinds = {"projection": text, "verdict": text, "key": texts, "truth_keys": pa.list_(texts), "wanted": text}
    return pa.schema(list(kinds.items()))


def outcomes(place: Workplace, suspects: list[Suspect]) -> list[Finding]:
    answered = list(findings_of(place, batches(suspects)))
    return [finding_from(line) for batch in answered for line in batch.column(0).to_pylist()]


def _missing(world: World, number: int) -> list[Suspect]:
    truths = [world.message(truth_row(uid), projected=False) for uid in range(1, number + 1)]
    return [
        Suspect("messageIdTable", MESSAGES.mirror.key_of(truth), Verdict.PROJECT, ((truth["messageid"],),))
        for truth in truths
    ]


def test_a_task_mends_what_the_policy_allows(executor: World) -> None:
    suspects = _missing(executor, 5)
    place = Workplace(Contact(), "mail", "book", timedelta(30), FAMILIES, executor.policy(), 1)
    reported = outcomes(place, suspects)
    assert {one.suspect.key for one in reported} == {one.key for one in suspects}
    assert {one.result for one in reported} == {Verdict.FIXED}
    assert executor.get(MESSAGES.mirror.table, suspects[0].key) is not None


def test_a_task_that_is_run_twice_says_the_same(executor: World) -> None:
    """A lost executor's work is done again: the rows are found FIXED, and its before-images stay the first ones."""
    suspects = _missing(executor, 3)
    place = Workplace(Contact(), "mail", "book", timedelta(30), FAMILIES, executor.policy(), 1)
    first = outcomes(place, suspects)
    second = outcomes(place, suspects)
    assert [one.result for one in second] == [Verdict.FIXED] * 3
    assert {one.suspect.key: one.verdict for one in second} == {one.suspect.key: one.verdict for one in first}
    recorded = list(executor.ledger.findings(executor.run))
    assert len(recorded) == 3
    assert all(one.projected is None for one in recorded)


def test_a_check_on_an_executor_writes_nowhere(executor: World) -> None:
    suspects = _missing(executor, 2)
    reported = outcomes(PLACE, suspects)
    assert {one.verdict for one in reported} == {Verdict.PROJECT}
    assert {one.result for one in reported} == {None}
    assert executor.get(MESSAGES.mirror.table, suspects[0].key) is None


def test_one_cluster_serves_all_tasks_of_a_worker(monkeypatch: pytest.MonkeyPatch, executor: World) -> None:
    opened: list[Contact] = []

    class Cluster:
        def keyspace(self, name: str) -> Any:
            return {"mail": executor.mail}[name]

    def connect(contact: Contact) -> Cluster:
        opened.append(contact)
        return Cluster()

    monkeypatch.setattr(pace, "connect", connect)
    for _ in range(3):
        outcomes(PLACE, _missing(executor, 1))
    assert len(opened) == 1


def test_a_worker_that_lost_the_cluster_knows_it_in_its_next_task(
    monkeypatch: pytest.MonkeyPatch, executor: World
) -> None:
    monkeypatch.setattr(fixing, "Breaker", lambda: Breaker(3))
    suspects = _missing(executor, 3)
    executor.fail_in_mail(lambda _: True)

    first, second = outcomes(PLACE, suspects), outcomes(PLACE, suspects)
    executor.fail_in_mail(lambda _: False)
    other = outcomes(replace(PLACE, policy=replace(POLICY, as_of=T + 1)), suspects)

    assert [[one.untried for one in reported] for reported in (first, second, other)] == [
        [False] * 3,
        [True] * 3,
        [False] * 3,
    ]


def test_the_pace_is_shared_between_workers(executor: World) -> None:
    """Two workers with 400 rows a second together: each takes 200, whatever it reads, keeps, writes and reads back."""
    suspects, meter = _missing(executor, 200), executor.metered()
    policy = replace(executor.policy(), rows_per_second=400)
    place = Workplace(Contact(), "mail", "book", timedelta(30), FAMILIES, policy, workers=2)
    assert len(outcomes(place, suspects)) == 200
    assert meter.rows >= 8 * 200
    assert (executor.clock.micros() - START) / 1_000_000 == pytest.approx(meter.rows / 200, abs=BURST_SECONDS)


def test_an_unknown_date_is_no_error() -> None:
    seen = Seen({"internaldate": datetime(2026, 1, 2, tzinfo=UTC), "id": UUID(int=1)})
    outcome = Finding(SUSPECT, Verdict.AMEND, truths=(seen,))
    assert finding_from(finding_text(outcome)).truths[0].row["internaldate"].tzinfo is not None
