"""`mailmend schema adopt` and `apply --optional` from end to end: what is written, shown, taken back, never touched."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mailmend.cql.migrate.files import shipped
from mailmend.cql.schema.generations import JAMES_3_8, JAMES_3_9
from mailmend.model.catalog.james_tables import SCHEMA_VERSION
from mailmend.model.operations import Level, Put, Scan
from mailmend.repair.clock import SystemClock
from tests.support.commands import CommandLine, command_line
from tests.support.migration_cluster import MigrationCluster, migration_cluster
from tests.support.schemas import columns_of, served, with_columns, without_tables

JAMES = served(JAMES_3_9.schema)
UNFOLLOWED = with_columns(
    JAMES, "imapuidtable", [one for one in columns_of(JAMES, "imapuidtable") if one.name != "save_date"]
)
ALTERED = "ALTER TABLE mail.imapUidTable ADD save_date timestamp;"
MIGRATIONS = [str(one.file) for one in shipped()]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MigrationCluster:
    monkeypatch.setattr("mailmend.admin.schema.migrating.owner_name", lambda: "carol@ops pid 7")
    monkeypatch.setattr("mailmend.admin.schema.migrating.version", lambda _: "1.2.3")
    return migration_cluster(monkeypatch, mail=JAMES)


@pytest.fixture
def mailmend(tmp_path: Path) -> CommandLine:
    return command_line(tmp_path, None, MAILMEND_HOST="10.0.0.1", MAILMEND_KEYSPACE="mail")


def versions(cluster: MigrationCluster) -> Iterator[Any]:
    return (row["value"] for row in cluster.keyspace("mail").scan(Scan(SCHEMA_VERSION, ("value",), Level.QUORUM)))


def stands(cluster: MigrationCluster, value: int) -> None:
    key = SystemClock().new_uuid()
    cluster.keyspace("mail").write(Put(SCHEMA_VERSION, {"key": key, "value": value}))


def test_an_adoption_is_rows_of_the_ledger_and_nothing_else(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    """The mail keyspace is as it was, byte for byte of its schema; what was written is told whole."""
    ended = mailmend("schema", "adopt", "--json")
    document = ended.json
    assert (ended.code, ended.err) == (0, "")
    assert list(document) == [
        "keyspace",
        "generation",
        "made_here",
        "drift",
        "notes",
        "exit",
        "standing",
        "adopted",
        "against",
        "baseline",
        "optional",
        "schema_version",
        "dry_run",
    ]
    assert (document["standing"], document["generation"], document["made_here"]) == ("adoptable", "3.9", False)
    assert (document["adopted"], document["dry_run"], document["schema_version"], document["exit"]) == (
        True,
        False,
        None,
        0,
    )
    baseline = document["baseline"]
    assert set(baseline) == {"generation", "fingerprint", "migrations", "adopted_at", "owner", "version"}
    assert (baseline["owner"], baseline["version"], baseline["migrations"]) == ("carol@ops pid 7", "1.2.3", MIGRATIONS)
    assert cluster.keyspaces["mail"] is JAMES
    assert not [one for one in cluster.carried_out if "mailmend." not in one]
    assert "mail" not in cluster.tables, "no row of the mail was read or written"


def test_an_adopted_keyspace_is_known_to_every_command(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    """Its history is the baseline, verify names it, and there is nothing left to apply."""
    first = mailmend("schema", "adopt")
    assert first.out.startswith("mail: is adopted as generation 3.9. Nothing in it was altered.\n")
    assert f"; {len(MIGRATIONS)} migrations count as done." in first.out
    history = mailmend("schema", "history", "--json").json["migrations"]
    assert [(one["migration"], one["state"], one["note"]) for one in history] == [
        (file, "baseline", "adopted as 3.9") for file in MIGRATIONS
    ]
    assert "Adopted 2026-08-29 as generation 3.9, fingerprint " in mailmend("schema", "verify").out
    assert mailmend("schema", "verify", "--json").json["adopted"] is True
    assert mailmend("schema", "plan").code == 0
    cluster.forget()
    assert mailmend("schema", "apply").code == 0
    assert cluster.untouched


def test_adopting_again_changes_nothing_and_says_when_it_was(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    mailmend("schema", "adopt")
    cluster.forget()
    again = mailmend("schema", "adopt")
    assert again.code == 0
    assert "mail was adopted before, on 2026-08-29 10:40 UTC by carol@ops pid 7: nothing was changed." in again.out
    assert "mailmend schema adopt --forget --keyspace mail" in again.out
    document = mailmend("schema", "adopt", "--json").json
    assert (document["standing"], document["adopted"], document["baseline"]["owner"]) == (
        "adopted",
        False,
        "carol@ops pid 7",
    )
    assert cluster.untouched


def test_an_adoption_can_be_forgotten(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    """First shown, then done, then there is nothing more to forget; the mail never notices."""
    mailmend("schema", "adopt")
    cluster.forget()
    shown = mailmend("schema", "adopt", "--forget", "--dry-run")
    assert (shown.code, shown.out) == (0, "mail: the adoption as 3.9 would be forgotten.\n")
    document = mailmend("schema", "adopt", "--forget", "--dry-run", "--json").json
    assert (document["dry_run"], document["forgotten"]["generation"], document["exit"]) == (True, "3.9", 0)
    assert cluster.untouched

    done = mailmend("schema", "adopt", "--forget")
    assert done.out == "mail: the adoption as 3.9 is forgotten; mailmend schema adopt takes it over again.\n"
    assert mailmend("schema", "history", "--json").json["migrations"] == []
    assert mailmend("schema", "adopt", "--forget", "--json").json == {
        "keyspace": "mail",
        "forgotten": None,
        "dry_run": False,
        "exit": 0,
    }
    assert mailmend("schema", "adopt", "--dry-run", "--json").json["standing"] == "adoptable"
    assert cluster.keyspaces["mail"] is JAMES


def test_nobody_adopts_or_forgets_while_the_schema_is_being_changed(
    cluster: MigrationCluster, mailmend: CommandLine
) -> None:
    mailmend("schema", "adopt")
    mailmend("schema", "adopt", "--forget")
    cluster.held_by("dave@db pid 9", "mail")
    for arguments in ((), ("--forget",)):
        held = mailmend("schema", "adopt", *arguments)
        assert (held.code, held.out, "held by dave@db pid 9" in held.err) == (3, "", True)
        assert "mailmend schema force-unlock --keyspace mail --reason" in held.err
        assert mailmend("schema", "adopt", *arguments, "--dry-run").code == 0
    assert mailmend("schema", "history", "--json").json["migrations"] == []


@pytest.mark.parametrize(("keyspace", "code"), [("half", 2), ("old", 0)])
def test_what_is_not_whole_is_not_adopted(
    cluster: MigrationCluster, mailmend: CommandLine, keyspace: str, code: int
) -> None:
    cluster.keyspaces["half"], cluster.replications["half"] = without_tables(JAMES, "modseq"), {"class": "x"}
    cluster.keyspaces["old"], cluster.replications["old"] = served(JAMES_3_8.schema), cluster.replications["mail"]
    ended = mailmend("schema", "adopt", "--keyspace", keyspace, "--write-schema-version", "12")
    assert ended.code == code
    assert ("mailmend" in cluster.keyspaces) is (code == 0)
    assert cluster.untouched is (code != 0)


def test_the_version_of_james_is_written_only_when_asked_for(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    """With what it was before, what James then takes for done, and the CQL that takes it back."""
    stands(cluster, 13)
    mailmend("schema", "adopt")
    assert list(versions(cluster)) == [13]
    cluster.forget()

    shown = mailmend("schema", "adopt", "--write-schema-version", "15", "--dry-run")
    assert "James's schema version: before 13; 15 would be written." in shown.out
    assert "James will take its own data migrations (13 to 14, 14 to 15) for done and never run them." in shown.out
    assert "Undo: cqlsh" not in shown.out
    assert cluster.untouched

    written = mailmend("schema", "adopt", "--write-schema-version", "15", "--json").json["schema_version"]
    assert set(written) == {"before", "assumed", "after", "written", "caution", "undo"}
    assert (written["before"], written["assumed"], written["after"], written["written"]) == (13, 13, 15, True)
    assert "13 to 14, 14 to 15" in written["caution"]
    assert written["undo"].startswith("DELETE FROM mail.schemaversion WHERE key = ")
    assert sorted(versions(cluster)) == [13, 15]

    again = mailmend("schema", "adopt", "--write-schema-version", "15")
    assert "before 15; 15 is there already." in again.out
    assert sorted(versions(cluster)) == [13, 15]


def test_where_no_version_stands_james_assumes_its_oldest(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    ended = mailmend("schema", "adopt", "--write-schema-version", "12")
    assert "James's schema version: before none, so James assumes 12; 12 was written." in ended.out
    assert 'Undo: cqlsh -e "DELETE FROM mail.schemaversion WHERE key = ' in ended.out
    assert "never run them" not in ended.out
    assert list(versions(cluster)) == [12]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [("7", "knows the schema versions 12 to 15, not 7"), ("13", "the keyspace has schema version 14")],
)
def test_a_version_that_james_would_not_read_is_refused_before_anything_is_adopted(
    cluster: MigrationCluster, mailmend: CommandLine, wanted: str, expected: str
) -> None:
    stands(cluster, 14)
    cluster.forget()
    refused = mailmend("schema", "adopt", "--write-schema-version", wanted)
    assert (refused.code, refused.out, expected in refused.err) == (2, "", True)
    assert cluster.untouched


def test_an_upgrade_note_is_shown_run_and_then_done(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    """One by name, and nothing but it; the same lease and ledger as any change."""
    cluster.keyspaces["mail"] = UNFOLLOWED
    optional = ("schema", "apply", "--optional", "save-date")
    shown = mailmend(*optional, "--dry-run")
    assert (shown.code, cluster.untouched) == (0, True)
    assert [line for line in shown.out.splitlines() if line and not line.startswith("--")] == [ALTERED]
    assert "-- optional: save-date (2022-12-01, JAMES-3754)" in shown.out

    document = mailmend(*optional, "--dry-run", "--json").json
    assert list(document) == [
        "name",
        "since",
        "source",
        "why",
        "undo",
        "caution",
        "plan",
        "statements",
        "keyspace",
        "optional",
        "sent",
        "exit",
    ]
    assert (document["statements"], document["sent"], document["exit"]) == ([ALTERED], [], 0)
    assert [set(one) for one in document["plan"]] == [{"cql", "risk", "risks", "why"}]
    assert cluster.untouched

    done = mailmend(*optional)
    assert (done.code, done.out) == (0, f"done: {ALTERED}\n")
    assert [one for one in cluster.carried_out if "mailmend." not in one] == [ALTERED]
    cluster.forget()
    again = mailmend(*optional)
    assert (again.code, again.out) == (0, "mail: nothing of save-date is left to do.\n")
    assert mailmend(*optional, "--json").json["sent"] == []
    assert mailmend(*optional, "--dry-run").out == "mail: nothing of save-date is left to do.\n"
    assert cluster.untouched


def test_what_an_upgrade_note_sent_is_reported_to_scripts(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    cluster.keyspaces["mail"] = UNFOLLOWED
    document = mailmend("schema", "apply", "--optional", "save-date", "--json").json
    assert (document["keyspace"], document["optional"], document["name"]) == ("mail", "save-date", "save-date")
    assert document["sent"] == document["statements"] == [ALTERED]


def test_the_advice_of_verify_mends_a_note_that_was_not_followed(
    cluster: MigrationCluster, mailmend: CommandLine
) -> None:
    cluster.keyspaces["mail"] = UNFOLLOWED
    (drift,) = mailmend("schema", "verify", "--json").json["drift"]
    assert drift["mend"] == "mailmend schema apply --optional save-date --keyspace mail"
    assert mailmend(*drift["mend"].split()[1:]).code == 0
    assert mailmend("schema", "verify").code == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--optional", "save-dates"), "there is no optional migration 'save-dates'"),
        (("--optional", "save-date", "--keyspace", "nowhere"), "keyspace 'nowhere' does not exist"),
    ],
    ids=["name", "keyspace"],
)
def test_a_note_that_cannot_be_run_is_refused(
    cluster: MigrationCluster, mailmend: CommandLine, arguments: tuple[str, ...], expected: str
) -> None:
    refused = mailmend("schema", "apply", *arguments)
    assert (refused.code, refused.out, expected in refused.err, cluster.untouched) == (2, "", True, True)
    assert ("thread-id" in refused.err) is ("nowhere" not in refused.err)


def test_while_another_is_at_work_no_note_is_run(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    mailmend("schema", "adopt")
    cluster.held_by("dave@db pid 9", "mail")
    cluster.keyspaces["mail"] = UNFOLLOWED
    cluster.forget()
    held = mailmend("schema", "apply", "--optional", "save-date")
    assert (held.code, held.out, cluster.carried_out) == (3, "", [])
    assert "held by dave@db pid 9" in held.err
    assert "mailmend schema force-unlock --keyspace mail --reason" in held.err


def test_somebodys_own_column_stands_in_nobodys_way(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    """It is adopted as drift, which is told with what mends it; the exit code is that of the adoption."""
    labelled = next(one for one in JAMES.tables if one.name == "modseq")
    column = replace(labelled.columns[-1], spelling="label", type="text")
    cluster.keyspaces["mail"] = with_columns(JAMES, "modseq", (*labelled.columns, column))
    ended = mailmend("schema", "adopt")
    assert ended.code == 0
    assert "drift: unexpected column: modseq.label" in ended.out
    assert "leave it (before-images keep it)" in ended.out
    assert mailmend("schema", "verify").code == 1
