"""Runs, listed and shown from the ledger; nothing is written."""

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from admin.services.caller import Caller, ignore
from admin.services.examples import Example, Examples
from admin.settings import ConnectionSettings
from admin.wiring.cluster import open_cluster
from model.catalog.ledger import KEEP
from repair.ledger.runs import Run


@dataclass(frozen=True, slots=True)
class RunsResult:
    """The runs, newest first."""

    keyspace: str
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run and a few of its findings."""

    run: Run
    examples: tuple[Example, ...]


def list_runs(connection: ConnectionSettings, since: timedelta = KEEP, *, everything: bool = False) -> RunsResult:
    """The runs in the ledger that are not older than `since`; `everything`: of every keyspace."""
    with open_cluster(connection) as opened:
        ledger = opened.existing_ledger(since)
        runs = ledger.runs(None if everything else connection.keyspace) if ledger else []
    return RunsResult(connection.keyspace, tuple(runs))


def show_run(connection: ConnectionSettings, run: UUID, caller: Caller) -> RunResult:
    """One run; each of its findings goes to the caller.

    Raises:
        UnknownRun: no such run is kept.
    """
    examples = Examples()
    with open_cluster(connection) as opened:
        ledger = opened.known_ledger(run)
        found = ledger.get(run)
        if caller.examples or caller.finding is not ignore:
            for outcome in ledger.findings(found.id):
                examples.add(outcome)
                caller.finding(outcome)
    return RunResult(found, examples.sorted())
