"""`mailmend schema history` and `force-unlock`: every field of the JSON, and what a person reads off the tables."""

import sys
from pathlib import Path

import pytest
from rich.console import Console

from mailmend.admin.frame import presenter
from mailmend.model.errors import AccessDenied
from mailmend.repair.ledger.leases import TTL_SECONDS
from tests.support.commands import CommandLine
from tests.support.migrating import SHOP, folder, written
from tests.support.migration_cluster import MigrationCluster, migration_cluster

FILES = list(SHOP)
NEW = ("--replication-factor", "1")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MigrationCluster:
    monkeypatch.setattr("mailmend.admin.schema.migrating.owner_name", lambda: "carol@ops pid 7")
    monkeypatch.setattr("mailmend.admin.schema.migrating.version", lambda _: "1.2.3")
    return migration_cluster(monkeypatch)


@pytest.fixture
def shop(tmp_path: Path) -> tuple[str, ...]:
    return "--migrations", str(written(tmp_path / "shop")), *NEW


def test_each_migration_is_reported_with_every_field(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    """Checksum and chain as in the folder; times in UTC, to the millisecond."""
    mailmend("schema", "apply", *shop, "--to", "2")
    document = mailmend("schema", "history", "--json").json
    assert list(document) == ["keyspace", "migrations", "statements", "holder", "unlocks", "exit"]
    assert document["migrations"] == [
        {
            "migration": str(one.file),
            "number": one.number,
            "phase": "pre",
            "state": "applied",
            "statements": 3,
            "done": 3,
            "checksum": one.checksum,
            "chain": one.chain,
            "started_at": "2026-08-29T10:40:00.000Z",
            "ended_at": "2026-08-29T10:40:00.000Z",
            "owner": "carol@ops pid 7",
            "version": "1.2.3",
            "note": None,
        }
        for one in folder()[:2]
    ]
    assert (document["statements"], document["holder"], document["unlocks"], document["exit"]) == ([], None, [], 0)


def test_what_has_not_ended_is_reported_statement_by_statement(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    """As it was sent, where it stopped, and in the server's own words why."""
    cluster.refuses = "by_label"
    failed = mailmend("schema", "apply", *shop)
    assert failed.code == 3
    document = mailmend("schema", "history", "--json").json
    assert [(one["migration"], one["state"], one["done"]) for one in document["migrations"]] == [
        (FILES[0], "applied", 3),
        (FILES[1], "running", 1),
    ]
    assert document["migrations"][1]["ended_at"] is None
    added, indexed = document["statements"]
    assert added == {
        "number": 2,
        "position": 0,
        "state": "done",
        "cql": "ALTER TABLE shop.orders ADD label text",
        "started_at": "2026-08-29T10:40:00.000Z",
        "ended_at": "2026-08-29T10:40:00.000Z",
        "error": None,
    }
    assert (indexed["position"], indexed["state"]) == (1, "failed")
    assert indexed["cql"] == "CREATE INDEX by_label ON shop.orders (label)"
    assert indexed["error"] == "the server would not: by_label"
    assert indexed["error"] in failed.err


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_a_person_reads_who_did_what_when_and_how_far(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    """A table of migrations; one of the statements where something has not ended, and what goes on from there."""
    cluster.refuses = "by_label"
    mailmend("schema", "apply", *shop)
    lines = mailmend("schema", "history").out.splitlines()
    words = [cells(line) for line in lines]
    assert lines[0].strip() == "Schema of shop"
    assert ["migration", "state", "done", "when", "by"] in words
    assert [FILES[0], "applied", "3/3", "2026-08-29 10:40:00", "carol@ops pid 7"] in words
    assert [FILES[1], "running", "1/3", "2026-08-29 10:40:00", "carol@ops pid 7"] in words
    assert any(line.strip() == "Statements of what has not ended" for line in lines)
    assert ["migration", "statement", "state", "what", "error"] in words
    assert ["0002", "1", "done", "ALTER TABLE shop.orders ADD label text"] in words
    assert any(one[:3] == ["0002", "2", "failed"] and one[-1] == "the server would not: by_label" for one in words)
    assert lines[-1] == "No process is at work. To go on: mailmend schema apply --migrations DIR --keyspace shop"


@pytest.mark.parametrize("columns", [80, 120])
def test_no_word_of_a_history_is_cut(
    cluster: MigrationCluster,
    mailmend: CommandLine,
    shop: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
) -> None:
    """A cell that is too long takes several lines, whatever the width of the terminal."""
    cluster.refuses = "by_label"
    mailmend("schema", "apply", *shop)
    cluster.held_by("deploy@apply-7f9c pid 12045")
    reason = "the evacuation of the rack had ended before anybody had looked whether the pod was gone"
    mailmend("schema", "force-unlock", "--reason", reason, "--yes")
    cluster.held_by("deploy@apply-7f9c pid 12045")
    monkeypatch.setattr(presenter, "stdout_console", lambda _: Console(file=sys.stdout, width=columns))
    said = mailmend("schema", "history").out.split()
    for word in (*reason.split(), "deploy@apply-7f9c", "carol@ops", "by_label", "shop.orders", FILES[1]):
        assert word in said, word


def test_the_folder_of_the_migrations_stands_in_what_comes_next(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    """As a page says it: `--migrations DIR` goes with every command, and without it our own would be applied."""
    cluster.refuses = "by_label"
    mailmend("schema", "apply", *shop)
    folder_option = shop[:2]
    again = f"mailmend schema {{}} --migrations {shop[1]} --keyspace shop"
    assert again.format("apply") in mailmend("schema", "history", *folder_option).out
    assert again.format("apply").replace(shop[1], "DIR") in mailmend("schema", "verify").out, "ours would be refused"
    cluster.held_by("dave@db pid 9")
    ended = mailmend("schema", "force-unlock", "--reason", "gone", "--yes", *folder_option)
    assert (ended.code, again.format("plan") in ended.err) == (0, True)


def test_our_own_migrations_need_no_folder(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    cluster.refuses = "messageIdTable"
    assert mailmend("schema", "apply", *NEW, "--keyspace", "mail").code == 3
    output = mailmend("schema", "history", "--keyspace", "mail").out
    assert "No process is at work. To go on: mailmend schema apply --keyspace mail" in output


def test_a_history_that_has_ended_is_a_table_and_nothing_more(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    """Nothing to go on with, nobody at work, nothing ended by force."""
    mailmend("schema", "apply", *shop)
    out = mailmend("schema", "history").out
    assert all(name in out for name in FILES)
    for absent in ("Nobody", "At work", "Ended by force", "Statements of", "Baseline"):
        assert absent not in out


def test_a_baseline_says_why_it_was_never_run(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    """Once, however many migrations it covers; they are not counted as done statements."""
    assert mailmend("schema", "apply").code == 0
    for name in ("schema_migration", "schema_statement"):
        cluster.tables["mailmend"]._tables.pop(name, None)
    assert mailmend("schema", "apply").code == 0
    out = mailmend("schema", "history").out
    assert out.count("Baseline: there before the history began.") == 1
    (first, *_) = mailmend("schema", "history", "--json").json["migrations"]
    assert (first["state"], first["note"]) == ("baseline", "there before the history began")
    (line,) = [line for line in out.splitlines() if first["migration"] in line]
    assert cells(line)[1:3] == ["baseline", "2026-08-29 10:40:00"]


def test_who_is_at_work_is_reported_for_people_and_scripts(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    """Since when, until when unless renewed, and for what; until the lease has ended by itself."""
    mailmend("schema", "apply", *shop, "--to", "1")
    cluster.held_by("dave@db pid 9")
    assert mailmend("schema", "history", "--json").json["holder"] == {
        "owner": "dave@db pid 9",
        "purpose": "schema apply",
        "since": "2026-08-29T10:40:00.000Z",
        "until": "2026-08-29T10:41:00.000Z",
    }
    out = mailmend("schema", "history").out
    assert out.splitlines()[-1] == "At work: dave@db pid 9, until 2026-08-29 10:41:00 UTC unless renewed."
    cluster.clock.advance(TTL_SECONDS + 1)
    assert mailmend("schema", "history", "--json").json["holder"] is None


def test_reading_a_history_writes_nothing(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    mailmend("schema", "apply", *shop)
    cluster.forget()
    mailmend("schema", "history")
    mailmend("schema", "history", "--json")
    assert cluster.untouched


def test_the_history_of_a_keyspace_is_its_own(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    """Two keyspaces share a ledger, and another ledger knows neither."""
    mailmend("schema", "apply", *shop, "--to", "1")
    mailmend("schema", "apply", *shop, "--keyspace", "depot")
    assert len(mailmend("schema", "history", "--json").json["migrations"]) == 1
    assert len(mailmend("schema", "history", "--keyspace", "depot", "--json").json["migrations"]) == 4
    elsewhere = mailmend("schema", "history", "--ledger-keyspace", "elsewhere")
    assert (elsewhere.code, "shop has no history" in elsewhere.out) == (0, True)


def test_a_lease_ended_by_force_leaves_its_reason(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    """Whose it was, who ended it, when and why; the latest stands in the history for whoever looks next."""
    mailmend("schema", "apply", *shop, "--to", "1")
    leases = cluster.held_by("dave@db pid 9")
    ended = mailmend("schema", "force-unlock", "--reason", "  pod apply-7 was evicted ", "--yes", "--json")
    assert (ended.code, ended.err) == (0, "")
    assert ended.json == {"keyspace": "shop", "ended": "dave@db pid 9, since 2026-08-29 10:40:00 UTC", "exit": 0}
    assert leases.holder("schema shop") is None
    (unlock,) = mailmend("schema", "history", "--json").json["unlocks"]
    assert unlock == {
        "at": "2026-08-29T10:40:00.000Z",
        "holder": "dave@db pid 9, since 2026-08-29 10:40:00 UTC",
        "by": "carol@ops pid 7",
        "reason": "pod apply-7 was evicted",
    }
    out = mailmend("schema", "history").out
    assert "Ended by force" in out
    (line,) = [line for line in out.splitlines() if "evicted" in line]
    assert cells(line)[0] == "2026-08-29 10:40:00"
    assert mailmend("schema", "apply", *shop).code == 0, "the way is free"


def test_a_person_reads_whose_lease_was_ended(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    """In a sentence; a second time nobody holds it, and nothing is written down."""
    mailmend("schema", "apply", *shop, "--to", "1")
    cluster.held_by("dave@db pid 9")
    unlock = ("schema", "force-unlock", "--reason", "gone", "--yes")
    ended = mailmend(*unlock)
    assert ended.out == "Ended the lease of dave@db pid 9, since 2026-08-29 10:40:00 UTC.\n"
    assert ended.err.startswith("Next: mailmend schema plan --migrations DIR --keyspace shop ")
    cluster.forget()
    assert mailmend(*unlock).out == "The lease is free.\n"
    assert mailmend(*unlock, "--json").json == {"keyspace": "shop", "ended": None, "exit": 0}
    assert cluster.untouched
    assert len(mailmend("schema", "history", "--json").json["unlocks"]) == 1


@pytest.mark.parametrize("command", [("--yes",), (), ("--json",)], ids=" ".join)
def test_where_there_is_no_ledger_there_is_no_lease_to_end(
    cluster: MigrationCluster, mailmend: CommandLine, command: tuple[str, ...]
) -> None:
    ended = mailmend("schema", "force-unlock", "--reason", "gone", *command)
    assert (ended.code, ended.err) == (0, "")
    assert (cluster.untouched, cluster.keyspaces) == (True, {})


@pytest.mark.parametrize("reason", ["", "  ", "\t\n"])
def test_a_reason_is_words(cluster: MigrationCluster, mailmend: CommandLine, reason: str) -> None:
    """An empty one is refused before any cluster is asked; so is none."""
    refused = mailmend("schema", "force-unlock", "--reason", reason, "--yes")
    assert (refused.code, "the reason is empty" in refused.err) == (2, True)
    assert mailmend("schema", "force-unlock", "--yes").code == 2
    assert cluster.contacts == []


def test_nobody_ends_a_lease_unasked(cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]) -> None:
    """A script says --yes; the refusal tells who holds it, since when, and for what."""
    mailmend("schema", "apply", *shop, "--to", "1")
    leases = cluster.held_by("dave@db pid 9")
    cluster.forget()
    refused = mailmend("schema", "force-unlock", "--reason", "gone")
    assert (refused.code, refused.out) == (2, "")
    assert "dave@db pid 9 has held it since 2026-08-29 10:40:00 UTC, for schema apply" in refused.err
    assert "--yes" in refused.err
    assert leases.holder("schema shop") is not None
    assert cluster.untouched


def test_an_apply_that_finds_another_at_work_names_the_way_out(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    """Exit code 3; who it is, how to see how far it is, and what ends it when it surely is gone."""
    mailmend("schema", "apply", *shop, "--to", "1")
    cluster.held_by("dave@db pid 9")
    cluster.forget()
    held = mailmend("schema", "apply", *shop)
    assert (held.code, held.out, cluster.carried_out) == (3, "", [])
    for said in (
        "held by dave@db pid 9 for schema apply",
        "mailmend schema history --keyspace shop",
        "mailmend schema force-unlock --keyspace shop --reason 'its holder is gone: ...'",
    ):
        assert said in held.err


def test_who_may_not_read_the_ledger_is_reported(
    cluster: MigrationCluster, mailmend: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = AccessDenied("the role may not read system_schema.tables", mend="Grant it.")
    cluster.fails = denied
    for command in (("history",), ("force-unlock", "--reason", "gone", "--yes")):
        ended = mailmend("schema", *command)
        assert (ended.code, ended.out, "may not read" in ended.err) == (4, "", True)
