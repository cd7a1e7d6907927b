"""Migrations on a real server: planned, applied, killed and resumed, refused, taken over, left alone."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mailmend.cql import applying
from mailmend.cql.applying import ensure_ledger
from mailmend.cql.driver.nodes import CassandraNodes
from mailmend.cql.driver.session import CassandraCluster, Keyspace, connect
from mailmend.cql.introspect import keyspace_exists, live_schema
from mailmend.cql.migrate.files import shipped
from mailmend.cql.migrate.history import History
from mailmend.cql.migrate.migrator import Agreement, Migrator
from mailmend.cql.migrate.rollout import RolloutRequest
from mailmend.cql.row_statements import Operation
from mailmend.cql.schema.difference import differences
from mailmend.cql.schema.migration_plan import declared_by
from mailmend.cql.schema.migrations import MigrationState, StatementState
from mailmend.model.catalog.ledger import SCHEMA_MIGRATION, SCHEMA_UNLOCK
from mailmend.model.catalog.mail import SCHEMA
from mailmend.model.keyspace import Schema
from mailmend.model.table import Row
from mailmend.repair.clock import SystemClock
from mailmend.repair.ledger.leases import Leases
from tests.support.applying import apply_schema
from tests.support.commands import CommandLine, command_line, contact_of
from tests.support.keyspaces import dropped
from tests.support.migrating import EVERYTHING_ALLOWED, SHOP, folder, written
from tests.support.migration_twin import Killed
from tests.support.progress import SilentProgress
from tests.support.servers import CassandraServer
from tests.support.surrounded import SurroundedTables

pytestmark = pytest.mark.cassandra

NAMES = list(SHOP)
STATEMENTS = sum(len(one.statements) for one in folder())
ONE_COPY = {f"MAILMEND_SCHEMA_{command}_REPLICATION_FACTOR": "1" for command in ("PLAN", "APPLY")}
EMPTY = "CREATE KEYSPACE {} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"


@pytest.fixture(scope="module")
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    with connect(contact_of(cassandra)) as opened:
        yield opened


@pytest.fixture(scope="module")
def ledger(cassandra: CassandraServer, cluster: CassandraCluster) -> Iterator[str]:
    name = f"{cassandra.keyspace()}_ledger"
    cluster.execute_ddl(EMPTY.format(name))
    ensure_ledger(cluster, name, name)
    yield name
    dropped(cluster, (name,))


@pytest.fixture
def keyspace(cassandra: CassandraServer, cluster: CassandraCluster) -> Iterator[str]:
    """A name that no keyspace has; dropped afterwards, with the ledger beside it if there is one."""
    name = cassandra.keyspace()
    yield name
    dropped(cluster, (name, f"{name}_ledger"))


@pytest.fixture
def mailmend(cassandra: CassandraServer, keyspace: str, ledger: str, tmp_path: Path) -> CommandLine:
    names = {"MAILMEND_KEYSPACE": keyspace, "MAILMEND_LEDGER_KEYSPACE": ledger}
    return command_line(tmp_path, cassandra, **names, **ONE_COPY, **EVERYTHING_ALLOWED)


@pytest.fixture
def alone(mailmend: CommandLine, keyspace: str) -> CommandLine:
    return replace(mailmend, environment={**mailmend.environment, "MAILMEND_LEDGER_KEYSPACE": f"{keyspace}_ledger"})


def test_the_whole_way_as_an_operator_goes_it(
    alone: CommandLine, cluster: CassandraCluster, keyspace: str, tmp_path: Path
) -> None:
    """Plan, dry run, apply in two goes, history, apply again: each says what it did, and what is left."""
    mailmend = alone
    shop = ("--migrations", str(written(tmp_path / "shop")))
    planned = mailmend("schema", "plan", *shop, "--json")
    assert (planned.code, len(planned.json["plan"]), planned.json["exit"]) == (1, 10, 1)
    assert planned.json["create_keyspace"].startswith(f"CREATE KEYSPACE IF NOT EXISTS {keyspace}")
    assert {one["risk"] for one in planned.json["plan"]} >= {"none"}
    assert mailmend("schema", "apply", *shop, "--dry-run").code == 0
    assert not keyspace_exists(cluster, keyspace)
    assert not keyspace_exists(cluster, f"{keyspace}_ledger")

    first = mailmend("schema", "apply", *shop, "--phase", "pre", "--json")
    assert (first.code, first.json["applied"], first.json["left"]) == (0, NAMES[:2], NAMES[2:])
    assert first.json["created"][:3] == [f"keyspace {keyspace}", "type place", "table orders"]
    risky = {one["cql"].split(" ")[0:5][-1]: one for one in mailmend("schema", "plan", *shop, "--json").json["plan"]}
    assert risky["total;"]["risk"] == "data loss"

    nothing_allowed = dict.fromkeys(EVERYTHING_ALLOWED, "")
    refused = mailmend("schema", "apply", *shop, **nothing_allowed)
    assert (refused.code, "--allow data-loss,resurrection\n" in refused.err) == (5, True), refused.err
    rest = mailmend("schema", "apply", *shop, "--allow", "data-loss,resurrection", **nothing_allowed)
    assert (rest.code, "applied 0004_pre_places.cql" in rest.out) == (0, True), rest.err
    assert "0003_post_no_totals.cql (of 2)" in rest.err
    document = mailmend("schema", "history", "--json").json
    assert [(one["migration"], one["state"]) for one in document["migrations"]] == [(name, "applied") for name in NAMES]
    assert (document["holder"], document["unlocks"], document["statements"]) == (None, [], [])
    assert "0001_pre_orders.cql" in mailmend("schema", "history").out

    again = mailmend("schema", "apply", *shop, "--json")
    assert (again.code, again.json["applied"], again.json["statements"]) == (0, [], [])
    assert mailmend("schema", "plan", *shop).code == 0
    assert differences(declared_by(folder()), live_schema(cluster, keyspace)) == ()
    (row,) = cluster.query(f"SELECT customer, writetime(customer) AS at FROM {keyspace}.orders")
    (begun,) = cluster.query(
        f"SELECT cql FROM {keyspace}_ledger.schema_statement WHERE keyspacename = ? AND number = 2 AND position = 2",
        (keyspace,),
    )
    assert begun["cql"].endswith(f"USING TIMESTAMP {row['at']}")


class KilledServer:
    """The cluster, seen by appliers each of whom is killed right before, or right after, its first new statement."""

    def __init__(self, cluster: CassandraCluster, *, after: bool) -> None:
        self.cluster = cluster
        self.release_version = cluster.release_version
        self.after = after
        self.dead = False
        self.sent: list[str] = []

    def query(self, text: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        return self.cluster.query(text, values)

    def execute_ddl(self, text: str, seconds: float = 30.0, agreed: float = 30.0) -> None:
        new = text not in self.sent
        self.sent.append(text)
        if new and not self.after:
            self._die()
        self.cluster.execute_ddl(text, seconds, agreed)
        if new and self.after:
            self._die()

    def replication_of(self, keyspace: str) -> Mapping[str, str]:
        return self.cluster.replication_of(keyspace)

    def settle(self) -> None:
        self.cluster.settle()

    def _die(self) -> None:
        self.dead = True
        raise Killed


def migrator(server: KilledServer, ledger: Keyspace, keyspace: str) -> Migrator:
    def alive(_: Operation, carry_out: Callable[[], Any]) -> Any:
        if server.dead:
            raise Killed
        return carry_out()

    clock, rows = SystemClock(), SurroundedTables(ledger, alive)
    history = History(rows, clock, keyspace, "a test", "0.1.0")
    leases = Leases(rows, clock, "a test")
    agreement = Agreement(CassandraNodes(server.cluster), clock)
    return Migrator(server, clock, agreement, SilentProgress(), history, lambda _: history, lambda: leases)


@pytest.mark.parametrize("after", [False, True], ids=["before each statement", "after each statement"])
def test_killed_at_every_statement_it_ends_at_the_same(
    cluster: CassandraCluster, keyspace: str, ledger: str, *, after: bool
) -> None:
    """Each applier gets one statement further than the one before; none takes effect twice."""
    cluster.execute_ddl(EMPTY.format(keyspace))
    rows = cluster.keyspace(ledger)
    leases = Leases(rows, SystemClock(), "a test")
    server, kills = KilledServer(cluster, after=after), 0
    while server.dead or not kills:
        server.dead = False
        try:
            migrator(server, rows, keyspace).roll_out(RolloutRequest(keyspace, folder(), ours=False))
        except Killed:
            kills += 1
            leases.force_release(f"schema {keyspace}", "it was killed")
    assert kills == STATEMENTS
    assert differences(declared_by(folder()), live_schema(cluster, keyspace)) == ()
    history = History(rows, SystemClock(), keyspace, "a test", "0.1.0")
    assert {one.state for one in history.entries()} == {MigrationState.APPLIED}
    statements = [one for number in range(1, 5) for one in history.statements(number)]
    assert [one.state for one in statements] == [StatementState.DONE] * STATEMENTS
    (row,) = cluster.query(
        "SELECT id FROM system_schema.tables WHERE keyspace_name = ? AND table_name = 'orders'", (keyspace,)
    )
    assert row["id"] == statements[1].attempt


def test_what_the_server_refuses_is_reported_in_its_own_words_and_can_be_mended(
    mailmend: CommandLine, keyspace: str, tmp_path: Path
) -> None:
    wrong = {**SHOP, NAMES[2]: "ALTER TABLE orders WITH compaction = {'class': 'com.example.NoSuchStrategy'};\n"}
    shop = ("--migrations", str(written(tmp_path / "shop", wrong)))
    refused = mailmend("schema", "apply", *shop)
    assert refused.code == 3, refused.err
    assert "0003_post_no_totals.cql, line 5: the server would not" in refused.err
    assert "NoSuchStrategy" in refused.err
    document = mailmend("schema", "history", "--json").json
    assert [one["state"] for one in document["migrations"]] == ["applied", "applied", "running"]
    (statement,) = document["statements"]
    assert statement["state"] == "failed"
    assert "NoSuchStrategy" in statement["error"]
    assert "No process is at work" in mailmend("schema", "history").out

    written(tmp_path / "shop")
    assert mailmend("schema", "apply", *shop, "--json").json["applied"] == NAMES[2:]


def test_a_keyspace_made_before_there_was_a_history_is_taken_over(
    mailmend: CommandLine, cluster: CassandraCluster, keyspace: str
) -> None:
    """What is there counts as applied; what an interrupted apply of then had not made yet is run."""
    apply_schema(cluster, keyspace)
    for table in ("messagedeleted", "blobparts"):
        cluster.execute_ddl(f"DROP TABLE {keyspace}.{table}")

    taken = mailmend("schema", "apply", "--json")

    assert (taken.code, taken.json["baseline"]) == (0, ["0001_pre_messages.cql", "0002_pre_counters.cql"])
    assert taken.json["created"] == ["table messageDeleted", "table blobParts"]
    assert taken.json["drift"] == []
    document = mailmend("schema", "history", "--json").json["migrations"]
    assert [one["state"] for one in document] == ["baseline"] * 2 + ["applied"] * (len(shipped()) - 2)
    assert mailmend("schema", "plan").code == 0
    assert differences(SCHEMA, live_schema(cluster, keyspace)) == ()


def test_a_ledger_that_is_made_again_is_empty(
    cluster: CassandraCluster, keyspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of its tables, which are made like all others."""
    monkeypatch.setattr(applying, "LEDGER", Schema((), (SCHEMA_UNLOCK, SCHEMA_MIGRATION)))
    cluster.execute_ddl(EMPTY.format(keyspace))
    ids: list[list[Any]] = []
    for _ in range(2):
        ensure_ledger(cluster, f"{keyspace}_ledger", keyspace)
        rows = cluster.query(
            "SELECT table_name, id FROM system_schema.tables WHERE keyspace_name = ?", (f"{keyspace}_ledger",)
        )
        ids.append(sorted((row["table_name"], row["id"]) for row in rows))
        history = History(cluster.keyspace(f"{keyspace}_ledger"), SystemClock(), keyspace, "a test", "0.1.0")
        assert history.unlocks() == ()
        history.unlocked("nobody", json.dumps("a test"))
        dropped(cluster, (f"{keyspace}_ledger",))
        cluster._prepared.clear()
    assert ids[0] == ids[1]
