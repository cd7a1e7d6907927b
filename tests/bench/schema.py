"""What it costs to plan and to verify, against the number of migrations and tables.

Each migration makes one table of ten columns. Real servers take a second for a few tables, so the larger numbers are
measured on a server in memory; then what is left out is how long a real one needs to tell its schema.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from mailmend.cql.driver.session import CassandraCluster
from mailmend.cql.introspect import SchemaServer, live_schema
from mailmend.cql.migrate.files import read_folder
from mailmend.cql.migrate.rollout import RolloutRequest, plan_rollout
from mailmend.cql.render import in_every_data_centre, keyspace_cql
from mailmend.cql.schema.difference import differences
from mailmend.cql.schema.migration_plan import declared_by, verify_migrations
from mailmend.cql.schema.migrations import LedgerRecord, Migration, MigrationState
from mailmend.model.keyspace import Schema
from mailmend.repair.clock import SystemClock
from tests.support.keyspaces import dropped
from tests.support.migrating import HEAD, applied
from tests.support.migration_twin import MigrationServer

SIZES = (10, 100, 1000)
ON_A_SERVER_MAX = 100
"""So many tables are created on the real server; a thousand would take it minutes, and all of its memory."""

KEYSPACE = "bench_schema"
_COLUMNS = ", ".join(f"value_{number} text" for number in range(9))

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Measured:
    """Milliseconds for one number of migrations and tables.

    Attributes:
        server: "cassandra", or "memory" where the tables were not created on a real one.
        read: reading and checking the folder.
        plan_all: planning all of it on an empty keyspace.
        plan_none: finding, on a keyspace that has all of it, that nothing is pending.
        introspect: reading the live schema.
        verify: comparing it with what the migrations declare, and the folder with the history.
    """

    migrations: int
    server: str
    read: float
    plan_all: float
    plan_none: float
    introspect: float
    verify: float


def measure(cluster: CassandraCluster, sizes: Sequence[int] = SIZES) -> list[Measured]:
    """Measure every size, the best of three rounds each."""
    with tempfile.TemporaryDirectory(prefix="mailmend-bench-") as folder:
        return [_measured(cluster, Path(folder) / str(size), size) for size in sizes]


def _measured(cluster: CassandraCluster, folder: Path, size: int) -> Measured:
    folder.mkdir()
    for number in range(1, size + 1):
        text = f"{HEAD}CREATE TABLE table_{number} (id uuid PRIMARY KEY, {_COLUMNS});\n"
        folder.joinpath(f"{number:04}_pre_table_{number}.cql").write_text(text, encoding="utf-8")
    read, migrations = _best(lambda: read_folder(folder))
    request = RolloutRequest(KEYSPACE, migrations, ours=False)
    plan_all, _ = _best(lambda: plan_rollout(MigrationServer(), LedgerRecord(), request))
    past = LedgerRecord(applied(migrations, MigrationState.APPLIED))
    server = _with_tables(cluster, migrations)
    try:
        plan_none, rollout = _best(lambda: plan_rollout(server, past, request))
        assert rollout.migrations.empty
        introspect, live = _best(lambda: live_schema(server, KEYSPACE))
        verify, found = _best(lambda: verify_migrations(live, migrations, past))
        assert found.agrees
    finally:
        dropped(cluster, (KEYSPACE,))
    kind = "memory" if server is not cluster else "cassandra"
    return Measured(size, kind, read, plan_all, plan_none, introspect, verify)


def _with_tables(cluster: CassandraCluster, migrations: Sequence[Migration]) -> SchemaServer:
    """A server that holds all of the tables: the real one as far as that is sane."""
    declared = declared_by(migrations)
    if len(migrations) > ON_A_SERVER_MAX:
        return MigrationServer(bench_schema=declared)
    dropped(cluster, (KEYSPACE,))
    cluster.execute_ddl(keyspace_cql(KEYSPACE, in_every_data_centre(1)))
    for one in migrations:
        cluster.execute_ddl(one.cql(0).replace("CREATE TABLE ", f"CREATE TABLE {KEYSPACE}."))
    assert not differences(declared, Schema((), live_schema(cluster, KEYSPACE).tables))
    return cluster


def _best(work: Callable[[], T]) -> tuple[float, T]:
    """The quickest of three rounds in milliseconds, and what it gave."""
    clock, rounds = SystemClock(), []
    for _ in range(3):
        before = clock.micros()
        answer = work()
        rounds.append((clock.micros() - before) / 1000)
    return round(min(rounds), 1), answer


def shown(measured: Sequence[Measured]) -> str:
    """As a table."""
    lines = ["migrations  server      read  plan all  plan none  introspect  verify   (ms)"]
    lines += [
        f"{one.migrations:10,}  {one.server:9} {one.read:6,.0f} {one.plan_all:9,.0f} {one.plan_none:10,.0f} "
        f"{one.introspect:11,.0f} {one.verify:7,.0f}"
        for one in measured
    ]
    return "\n".join(lines)


def as_json(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """As bench-results/bench.json has it."""
    return [asdict(one) for one in measured]
