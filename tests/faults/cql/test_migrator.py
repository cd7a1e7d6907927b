"""Migrations on three nodes: two appliers at once, holders killed at each step, nodes that are down or paused."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

from mailmend.cql.applying import ensure_ledger
from mailmend.cql.driver.contact import Contact
from mailmend.cql.driver.nodes import CassandraNodes, ask_every_node
from mailmend.cql.driver.session import CassandraCluster, connect
from mailmend.cql.introspect import live_schema
from mailmend.cql.migrate.history import History
from mailmend.cql.migrate.migrator import Agreement
from mailmend.cql.schema.difference import differences
from mailmend.cql.schema.migration_plan import declared_by
from mailmend.cql.schema.migrations import MigrationState, StatementState
from mailmend.model.catalog.ledger import LEDGER_TABLES
from mailmend.repair.clock import SystemClock
from mailmend.repair.ledger.leases import Leases
from tests.support.commands import CommandLine, command_line, contact_of
from tests.support.migrating import EVERYTHING_ALLOWED, SHOP, folder, written
from tests.support.servers import CassandraServer, ThreeNodes

pytestmark = [pytest.mark.cassandra, pytest.mark.thorough]

TTL_SECONDS = 20
"""As short as a lease may be that outlives a statement of nine seconds."""

STEPS = 10
"""From taking over a migration to the end of its first statement: each write and each statement, before and after."""

_RACES_MAX = 5

EVERYWHERE = "CREATE KEYSPACE {} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}"


@contextmanager
def opened(nodes: ThreeNodes) -> Iterator[CassandraCluster]:
    with connect(contact_of(CassandraServer(nodes.hosts[0], nodes.port))) as cluster:
        yield cluster


def started(host: str, nodes: ThreeNodes, home: Path, shop: Path, names: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "mailmend",
            "schema",
            "apply",
            "--migrations",
            str(shop),
            "--replication-factor",
            "3",
        ],
        env={
            **os.environ,
            **names,
            **EVERYTHING_ALLOWED,
            "HOME": str(home),
            "MAILMEND_HOST": host,
            "MAILMEND_PORT": str(nodes.port),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_at_once_and_holders_killed_at_each_step(three_nodes: ThreeNodes, tmp_path: Path) -> None:
    """One works, the other says who does; the ledger's tables are the same on every node, though both made them.

    Then appliers are killed one after the other, each a step later than the one before; the last lease ends by time.
    """
    shop = written(tmp_path / "shop")
    ledger = _raced(three_nodes, tmp_path, shop)
    killed = f"{ledger}_killed"
    with opened(three_nodes) as cluster:
        answers = ask_every_node(
            cluster, "SELECT table_name, id FROM system_schema.tables WHERE keyspace_name = ?", (ledger,)
        )
        made = [{(row["table_name"], row["id"]) for row in one.rows} for one in answers]
        assert len(made) == 3
        assert made[0] == made[1] == made[2]
        assert {table for table, _ in made[0]} == {table.name for table in LEDGER_TABLES}
        cluster.execute_ddl(EVERYWHERE.format(killed))
        _kill_at_each_step(cluster, three_nodes, shop, killed, ledger)
        mailmend = command_line(
            tmp_path,
            CassandraServer(three_nodes.hosts[1], three_nodes.port),
            MAILMEND_KEYSPACE=killed,
            MAILMEND_LEDGER_KEYSPACE=ledger,
            **EVERYTHING_ALLOWED,
        )
        _applied_once_the_lease_has_ended(mailmend, shop)
        assert differences(declared_by(folder()), live_schema(cluster, killed)) == ()
        history = History(cluster.keyspace(ledger), SystemClock(), killed, "a test", "0.1.0")
        assert [one.state for one in history.entries()] == [MigrationState.APPLIED] * len(SHOP)
        assert {one.state for number in range(1, 5) for one in history.statements(number)} == {StatementState.DONE}


def _raced(nodes: ThreeNodes, home: Path, shop: Path) -> str:
    """Two appliers of one keyspace, of which one meets the other at work; the name of their ledger.

    On a busy machine one may have ended before the other begins, and both succeed: then they are sent once more.
    """
    for _ in range(_RACES_MAX):
        name = nodes.keyspace()
        names = {"MAILMEND_KEYSPACE": name, "MAILMEND_LEDGER_KEYSPACE": f"{name}_ledger"}
        both = [started(host, nodes, home, shop, names) for host in nodes.hosts[:2]]
        said = [one.communicate(timeout=300) for one in both]
        winner, loser = sorted(range(2), key=lambda at: both[at].returncode)
        if both[loser].returncode == 0:
            assert "Nothing was missing." in said[0][0] + said[1][0], said
            continue
        assert [both[winner].returncode, both[loser].returncode] == [0, 3], said
        assert f"is held by {said_owner(both[winner])}" in said[loser][1], said
        assert "applied 0004_pre_places.cql" in said[winner][0]
        return names["MAILMEND_LEDGER_KEYSPACE"]
    pytest.fail("the two never met")


def said_owner(process: subprocess.Popen[str]) -> str:
    from mailmend.admin.frame.cluster import owner_name  # noqa: PLC0415 - as the process itself does

    return owner_name().replace(f"pid {os.getpid()}", f"pid {process.pid}")


def _kill_at_each_step(cluster: CassandraCluster, nodes: ThreeNodes, shop: Path, keyspace: str, ledger: str) -> None:
    leases = Leases(cluster.keyspace(ledger), SystemClock(), "a test")
    arguments = [nodes.hosts[2], str(nodes.port), keyspace, ledger, str(shop), str(TTL_SECONDS)]
    command = [sys.executable, "-m", "tests.support.migration_crashing", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin
        assert program.stdout
        for step in range(1, STEPS + 1):
            program.stdin.write(f"{step}\n")
            program.stdin.flush()
            assert program.stdout.readline() == "killed\n"
            assert (leases.holder(f"schema {keyspace}")) is not None
            if step < STEPS:
                leases.force_release(f"schema {keyspace}", "it was killed")
        program.stdin.close()


def _applied_once_the_lease_has_ended(mailmend: CommandLine, shop: Path) -> None:
    refusals = 0
    while True:
        ended = mailmend("schema", "apply", "--migrations", str(shop))
        if ended.code == 0:
            break
        refusals += 1
        assert (ended.code, "is held by pid " in ended.err) == (3, True), ended.err
        assert refusals < 200
    assert refusals > 0
    assert "applied" in ended.out


def test_a_node_that_is_down_or_paused(three_nodes: ThreeNodes, tmp_path: Path) -> None:
    """Down: told, and waited for only on demand; it has the schema when it is back. Paused: named, nothing goes on."""
    shop, name = written(tmp_path / "shop"), three_nodes.keyspace()
    ledger = f"{name}_ledger"
    server = CassandraServer(three_nodes.hosts[0], three_nodes.port)
    names = {"MAILMEND_KEYSPACE": name, "MAILMEND_LEDGER_KEYSPACE": ledger}
    mailmend = command_line(tmp_path, server, **names, **EVERYTHING_ALLOWED)
    patient = ("schema", "apply", "--migrations", str(shop))
    apply = (*patient, "--agreement-timeout", "2s")
    with opened(three_nodes) as cluster:
        cluster.execute_ddl(EVERYWHERE.format(name))
        ensure_ledger(cluster, ledger, name)
    three_nodes.stop(3)

    required = mailmend(*apply, "--require-all-nodes")
    reported = mailmend(*patient, "--to", "0002", "--json")

    assert (required.code, three_nodes.hosts[2] in required.err) == (3, True), required.err
    assert "--require-all-nodes" in required.err
    assert (reported.code, reported.json["nodes_down"]) == (0, [three_nodes.hosts[2]]), reported.err
    three_nodes.start(3)
    with opened(three_nodes) as cluster:
        returned = Agreement(CassandraNodes(cluster), SystemClock(), 90, require_all=True).wait("after it returned")
        assert len(returned.up) == 3
        with three_nodes.paused(3), patch("mailmend.admin.frame.cluster.Contact", partial(Contact, request_seconds=3)):
            paused = mailmend(*apply)  # within seconds: taken for down by the others, it would not count any more
        assert (paused.code, f"{three_nodes.hosts[2]} has given no answer" in paused.err) == (3, True), paused.err
        assert "mailmend runbook show schema-disagreement" in paused.err
        assert live_schema(cluster, name).table("places") is None
    three_nodes.start_all()
    ended = mailmend(*patient)
    assert ended.code == 0, ended.err
    with opened(three_nodes) as cluster:
        assert live_schema(cluster, name).table("places") is not None
