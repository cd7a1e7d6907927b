"""An applier that kills itself at its n-th step: run as a program, it forks one child for each crash point.

A step lies before and after each statement and each write to the ledger. The child connects, applies the migrations of
a folder, and goes on until SIGKILL or the end; the lease that it held is left to whoever comes next.

Usage: python -m tests.support.migration_crashing HOST PORT KEYSPACE LEDGER FOLDER TTL, then one number per line.
"""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mailmend.cql.driver.nodes import CassandraNodes
from mailmend.cql.driver.session import CassandraCluster, Contact, Keyspace, connect
from mailmend.cql.migrate.files import read_folder
from mailmend.cql.migrate.history import History
from mailmend.cql.migrate.migrator import Agreement, Migrator
from mailmend.cql.migrate.rollout import RolloutRequest
from mailmend.model.operations import Applied, Conditional, Read, Seen, Write
from mailmend.model.table import Row
from mailmend.repair.clock import SystemClock
from mailmend.repair.ledger.leases import Leases
from tests.support.progress import SilentProgress

STATEMENT_SECONDS = 9.0
"""Less than a lease of 20 seconds has left right before a heartbeat."""


class Steps:
    """Counts steps, and SIGKILLs the process at the n-th."""

    def __init__(self, left: int) -> None:
        self._left = left

    def pass_by(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Rows:
    """The ledger, with a step before and after each write."""

    def __init__(self, keyspace: Keyspace, steps: Steps) -> None:
        self._keyspace, self._steps = keyspace, steps

    def read(self, read: Read) -> Sequence[Seen]:
        return self._keyspace.read(read)

    def write(self, write: Write) -> None:
        self._steps.pass_by()
        self._keyspace.write(write)
        self._steps.pass_by()

    def attempt(self, write: Conditional) -> Applied:
        self._steps.pass_by()
        answer = self._keyspace.attempt(write)
        self._steps.pass_by()
        return answer


class Server:
    """The cluster, with a step before and after each statement."""

    def __init__(self, cluster: CassandraCluster, steps: Steps) -> None:
        self._cluster, self._steps = cluster, steps
        self.release_version = cluster.release_version

    def query(self, text: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        return self._cluster.query(text, values)

    def execute_ddl(self, text: str, seconds: float = STATEMENT_SECONDS, agreed: float = 30.0) -> None:
        self._steps.pass_by()
        self._cluster.execute_ddl(text, seconds, agreed)
        self._steps.pass_by()

    def replication_of(self, keyspace: str) -> Mapping[str, str]:
        return self._cluster.replication_of(keyspace)

    def settle(self) -> None:
        self._cluster.settle()


def act(arguments: Sequence[str], steps: int) -> None:
    host, port, keyspace, ledger, folder, ttl = arguments
    clock, counted = SystemClock(), Steps(steps)
    with connect(Contact((host,), int(port))) as cluster:
        rows = Rows(cluster.keyspace(ledger), counted)
        history = History(rows, clock, keyspace, f"pid {os.getpid()}", "0.1.0")  # type: ignore[arg-type] # needs no more
        leases = Leases(cluster.keyspace(ledger), clock, f"pid {os.getpid()}", int(ttl))
        agreement = Agreement(CassandraNodes(cluster), clock)
        server = Server(cluster, counted)
        migrator = Migrator(
            server, clock, agreement, SilentProgress(), history, lambda _: history, lambda: leases, STATEMENT_SECONDS
        )
        migrator.roll_out(RolloutRequest(keyspace, read_folder(Path(folder)), ours=False))


def main(arguments: Sequence[str]) -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _child(arguments, int(line))
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        os.write(1, b"killed\n" if killed else f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _child(arguments: Sequence[str], steps: int) -> None:
    code = 1
    try:
        act(arguments, steps)
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
