"""Runs, listed and shown from the ledger; nothing is written."""

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from admin.services.caller import Caller, ignore
from admin.services.examples import Example, Examples
from admin.settings import ConnectionSettings
from admin.wiring import open_cluster
from model.catalog.ledger import KEEP
from repair.ledger.runs import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsRequest:
    """Whose runs, and how far back."""

    connection: ConnectionSettings
    everything: bool = False
    since: timedelta = KEEP


@dataclass(frozen=True, slots=True)
class RunsResult:
    """The runs, newest first."""

    keyspace: str
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """Which run."""

    connection: ConnectionSettings
    run: UUID


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run and a few of its findings."""

    run: Run
    examples: tuple[Example, ...]


def list_runs(request: RunsRequest, _: Caller) -> RunsResult:
    keyspace = request.connection.keyspace
    with open_cluster(request.connection) as opened:
        ledger = opened.existing_ledger(request.since)
        runs = ledger.runs(None if request.everything else keyspace) if ledger else []
    return RunsResult(keyspace, tuple(runs))


def show_run(request: RunRequest, caller: Caller) -> RunResult:
    """One run; each of its findings goes to the caller.

    Raises:
        UnknownRun: no such run is kept.
    """
    examples = Examples()
    with open_cluster(request.connection) as opened:
        ledger = opened.known_ledger(request.run)
        run = ledger.get(request.run)
        if caller.examples or caller.finding is not ignore:
            for outcome in ledger.findings(run.id):
                examples.add(outcome)
                caller.finding(outcome)
    return RunResult(run, examples.sorted())
