"""`mailmend schema plan, apply, history, force-unlock` as a person and a script see them, on a server in memory."""

from pathlib import Path

import click
import pytest

from mailmend.repair.ledger.leases import Leases
from tests.support.commands import CommandLine, command_line
from tests.support.migrating import EVERYTHING_ALLOWED, SHOP
from tests.support.migration_cluster import MigrationCluster

NAMES = list(SHOP)


@pytest.fixture
def mailmend(tmp_path: Path) -> CommandLine:
    once = {f"MAILMEND_SCHEMA_{command}_REPLICATION_FACTOR": "1" for command in ("PLAN", "APPLY")}
    return command_line(
        tmp_path, None, MAILMEND_HOST="10.0.0.1", MAILMEND_KEYSPACE="shop", **once, **EVERYTHING_ALLOWED
    )


def test_a_plan_can_be_piped_into_cqlsh(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, str]
) -> None:
    """Statements whole, everything else a comment: why, what it risks, how big the table is."""
    mailmend("schema", "apply", *shop, "--to", "1")
    planned = mailmend("schema", "plan", *shop)
    assert planned.code == 1
    lines = planned.out.splitlines()
    assert "-- 0002_pre_labels.cql (pre): what the statements say." in lines
    assert any(line.startswith("-- risk: data loss") and "1,000 partitions" in line for line in lines)
    code = [line for line in lines if line and not line.startswith("--")]
    assert code[0] == "ALTER TABLE shop.orders ADD label text;"
    assert "INSERT INTO shop.orders" in "\n".join(code)


def test_a_plan_as_json(cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, str]) -> None:
    mailmend("schema", "apply", *shop, "--to", "2")
    planned = mailmend("schema", "plan", *shop, "--phase", "post", "--json").json
    dropped, changed = planned["plan"]
    assert dropped == {
        "migration": "0003_post_no_totals.cql",
        "number": 3,
        "phase": "post",
        "position": 0,
        "line": 5,
        "cql": "ALTER TABLE shop.orders DROP total;",
        "way": "run",
        "risk": "data loss",
        "risks": dropped["risks"],
        "why": dropped["why"],
        "estimate": "about 1,000 partitions, 4 KiB a copy (estimate from 3 of 3 nodes)",
    }
    assert (changed["estimate"], planned["create_keyspace"], planned["withheld"]) == (None, None, [])
    assert planned["left"] == [NAMES[3]]
    assert planned["stopped"].startswith("0004_pre_places.cql comes first")
    assert planned["statements"] == [dropped["cql"], changed["cql"]]


def test_what_a_killed_apply_left_is_said_in_plan_and_history(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, str]
) -> None:
    """What is run again, what is only written down; who was at it, and what goes on."""
    cluster.lost_answer_at = "ADD label"
    assert mailmend("schema", "apply", *shop).code == 4
    cluster.lost_answer_at = None
    planned = mailmend("schema", "plan", *shop)
    assert "-- its effect is there already: it is written into the history, and not run" in planned.out
    assert "-- ALTER TABLE shop.orders ADD label text" in planned.out
    ended = mailmend("schema", "history")
    assert "begun (the next apply looks" in ended.out
    assert "No process is at work. To go on: mailmend schema apply --migrations DIR --keyspace shop" in ended.out
    cluster.silent_at = "by_label"
    assert mailmend("schema", "apply", *shop).code == 4
    cluster.silent_at = None
    assert "-- begun by an apply that was interrupted, and not carried out" in mailmend("schema", "plan", *shop).out
    assert mailmend("schema", "apply", *shop).code == 0
    assert "every migration is applied" in mailmend("schema", "plan", *shop).out


@pytest.mark.parametrize("command", ["plan", "apply"])
def test_a_mistyped_name_does_not_become_a_keyspace(
    cluster: MigrationCluster, tmp_path: Path, shop: tuple[str, str], command: str
) -> None:
    """Whoever wants one says how many copies it shall have; only our own tables have a default."""
    plain = command_line(tmp_path, MAILMEND_HOST="10.0.0.1", MAILMEND_KEYSPACE="shpo")
    refused = plain("schema", command, *shop)
    assert (refused.code, "keyspace 'shpo' does not exist" in refused.err) == (2, True)
    assert "--replication" in refused.err
    assert cluster.keyspaces == {}
    assert plain("schema", "apply", *shop, "--replication", "dc1=3").code == 0


def test_a_keyspace_without_a_history_says_so(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    assert "shop has no history" in mailmend("schema", "history").out
    document = mailmend("schema", "history", "--json").json
    assert document == {
        "keyspace": "shop",
        "migrations": [],
        "statements": [],
        "holder": None,
        "unlocks": [],
        "exit": 0,
    }
    assert cluster.keyspaces == {}


def test_a_node_that_is_down_is_reported_on_stderr(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, str]
) -> None:
    cluster.down = ("10.0.0.3",)
    refused = mailmend("schema", "apply", *shop, "--require-all-nodes", "--agreement-timeout", "1s")
    assert (refused.code, "not every node is up" in refused.err) == (3, True)
    applied = mailmend("schema", "apply", *shop)
    assert (applied.code, "Down, and without this schema until they return" in applied.err) == (0, True)


@pytest.mark.parametrize(("limits", "code"), [("20s 10s", 2), ("20s 9s", 0), ("60s 30s", 0)])
def test_a_lease_that_may_end_before_a_statement_is_refused(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, str], limits: str, code: int
) -> None:
    """A heartbeat may be due, and clocks may differ, before it is looked at."""
    lease, statement = limits.split()
    ended = mailmend("schema", "apply", *shop, "--lease", lease, "--statement-timeout", statement)
    assert ended.code == code
    assert (code == 0) or "--lease" in ended.err


@pytest.mark.parametrize("answer", [True, False])
def test_on_a_terminal_the_lease_is_ended_only_when_a_person_says_so(
    cluster: MigrationCluster,
    mailmend: CommandLine,
    shop: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    answer: bool,
) -> None:
    mailmend("schema", "apply", *shop, "--to", "1")
    leases = Leases(cluster.keyspace("mailmend"), cluster.clock, "carol@ops pid 7")
    leases.acquire("schema shop", "schema apply")
    asked: list[str] = []

    def confirm(question: str, **_: object) -> bool:
        asked.append(question)
        return answer

    monkeypatch.setattr("mailmend.admin.frame.terminal.someone_is_there", lambda: True)
    monkeypatch.setattr(click, "confirm", confirm)
    ended = mailmend("schema", "force-unlock", "--reason", "evicted")
    assert ended.code == (0 if answer else 2)
    assert asked[0].startswith("carol@ops pid 7 has held it since 2026-")
    assert (leases.holder("schema shop") is None) is answer
    assert len(mailmend("schema", "history", "--json").json["unlocks"]) == answer


def test_an_old_server_without_the_compaction_is_not_touched(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    """The refusal comes before the keyspace, the ledger and the lease."""
    cluster.release_version = "4.1.10"
    refused = mailmend("schema", "apply", "--compaction", "unified")
    assert (refused.code, "UnifiedCompactionStrategy" in refused.err) == (2, True)
    assert cluster.keyspaces == {}
    assert mailmend("schema", "apply", "--compaction", "leveled").code == 0
    truth = cluster.keyspaces["shop"].table("imapuidtable")
    assert truth is not None
    assert truth.compaction is not None
    assert truth.compaction.strategy == "LeveledCompactionStrategy"
