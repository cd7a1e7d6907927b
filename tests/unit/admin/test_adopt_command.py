"""`mailmend schema adopt` and `plan --from-model` as a person and a script see them, before anything is written."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from mailmend.admin.frame.cluster import OpenCluster
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.main import run
from mailmend.cql.schema.generations import JAMES_3_8, JAMES_3_9
from mailmend.model.catalog.mail import SCHEMA
from mailmend.model.keyspace import Schema
from mailmend.model.table import Column, Compaction, Kind
from mailmend.repair.clock import SystemClock
from tests.support.schema_twin import SchemaTwin
from tests.support.schemas import columns_of, served, with_columns, without_tables

JAMES = served(JAMES_3_9.schema)
LEVELED = replace(
    JAMES, tables=tuple(replace(one, compaction=Compaction("LeveledCompactionStrategy")) for one in JAMES.tables)
)
UNFOLLOWED = with_columns(
    JAMES, "imapuidtable", [one for one in columns_of(JAMES, "imapuidtable") if one.name != "save_date"]
)
OTHER = with_columns(JAMES, "modseq", (Column("id", "uuid", Kind.PARTITION), Column("nextmodseq", "bigint")))


@pytest.fixture
def twin(monkeypatch: pytest.MonkeyPatch) -> SchemaTwin:
    held = SchemaTwin(
        james=JAMES,
        old=served(JAMES_3_8.schema),
        leveled=LEVELED,
        unfollowed=UNFOLLOWED,
        half=without_tables(JAMES, "modseq"),
        other=OTHER,
        ours=served(SCHEMA, made_here=True),
        empty=Schema((), ()),
    )

    @contextmanager
    def opened(connection: ConnectionSettings) -> Iterator[OpenCluster]:
        yield OpenCluster(connection, held, SystemClock())  # type: ignore[arg-type]

    for module in ("plan", "apply", "verify", "migrating", "adopt"):
        monkeypatch.setattr(f"mailmend.admin.schema.{module}.open_cluster", opened)
    monkeypatch.setattr("mailmend.cql.driver.nodes.sizes_in", lambda *_: {})
    monkeypatch.setenv("MAILMEND_HOST", "127.0.0.1")
    return held


@pytest.mark.parametrize(
    ("keyspace", "expected"),
    [
        ("james", (0, "adoptable", "would be adopted as generation 3.9")),
        ("old", (0, "adoptable", "would be adopted as generation 3.8.1")),
        ("ours", (0, "made by mailmend", "needs no adoption")),
        ("half", (2, "half made", "mailmend schema apply --complete --keyspace half")),
        ("other", (2, "unknown shape", "in another shape")),
        ("empty", (2, "no mail", "mailmend schema apply --keyspace empty")),
    ],
)
def test_each_standing_is_reported_with_its_exit_code_and_the_next_step(
    twin: SchemaTwin, capsys: pytest.CaptureFixture[str], keyspace: str, expected: tuple[int, str, str]
) -> None:
    code, standing, reported = expected
    assert run(["schema", "adopt", "--keyspace", keyspace, "--dry-run"]) == code
    assert reported in capsys.readouterr().out
    assert run(["schema", "adopt", "--keyspace", keyspace, "--dry-run", "--json"]) == code
    found = json.loads(capsys.readouterr().out)
    assert (found["standing"], found["exit"], found["adopted"], found["dry_run"]) == (standing, code, False, True)
    assert bool(found["against"]) is (standing in {"half made", "unknown shape", "no mail"})
    assert twin.carried_out == []


def test_what_stands_against_it_is_shown(twin: SchemaTwin, capsys: pytest.CaptureFixture[str]) -> None:
    run(["schema", "adopt", "--keyspace", "other", "--dry-run"])
    output = capsys.readouterr().out
    assert "Against it" in output
    assert "different key" in output


def test_upgrade_notes_that_are_due_are_printed_as_cql_with_their_risk(
    twin: SchemaTwin, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only CQL stands outside of comments, so a note's lines can be piped into cqlsh."""
    run(["schema", "adopt", "--keyspace", "unfollowed", "--dry-run"])
    lines = capsys.readouterr().out.splitlines()
    assert "ALTER TABLE unfollowed.imapUidTable ADD save_date timestamp;" in lines
    assert "--   run it with: mailmend schema apply --optional save-date --keyspace unfollowed" in lines
    (drift,) = [line for line in lines if line.startswith("drift: missing column: imapUidTable.save_date")]
    assert drift.endswith("mailmend schema apply --optional save-date --keyspace unfollowed")

    run(["schema", "adopt", "--keyspace", "leveled", "--dry-run", "--json"])
    optional = {one["name"]: one for one in json.loads(capsys.readouterr().out)["optional"]}
    tuning = optional["tune-mail-compaction"]
    assert {one["risk"] for one in tuning["plan"]} == {"rewrite"}
    assert tuning["statements"] == [one["cql"] for one in tuning["plan"]]
    assert (tuning["since"], tuning["source"]) == ("2020-03-18", "JAMES-3121")


def test_forgetting_without_a_ledger_says_that_there_is_nothing(
    twin: SchemaTwin, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["schema", "adopt", "--keyspace", "james", "--forget"]) == 0
    assert "nothing to forget" in capsys.readouterr().out
    assert twin.carried_out == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["adopt", "--forget", "--write-schema-version", "12"], "exclude each other"),
        (["adopt", "--keyspace", "nowhere"], "mailmend schema apply --keyspace nowhere"),
        (["adopt", "--write-schema-version", "many"], "--write-schema-version"),
        (["plan", "--include-options", "--keyspace", "james"], "--from-model"),
        (["plan", "--newest", "--keyspace", "james"], "--from-model"),
        (["plan", "--from-model", "--keyspace", "nowhere"], "mailmend schema apply --keyspace nowhere"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "expected",
)
def test_wrong_use_is_refused_with_what_to_do(
    twin: SchemaTwin, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    assert run(["schema", *arguments]) == 2
    assert expected in capsys.readouterr().err
    assert twin.carried_out == []


def test_a_plan_from_the_model_is_cql_with_comments(twin: SchemaTwin, capsys: pytest.CaptureFixture[str]) -> None:
    """What is there to do: exit code 1; what is for a person stands as a comment."""
    assert run(["schema", "plan", "--from-model", "--keyspace", "unfollowed"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "ALTER TABLE unfollowed.imapUidTable ADD save_date timestamp;" in lines
    assert all(line.startswith(("--", "ALTER TABLE")) for line in lines if line)

    assert run(["schema", "plan", "--from-model", "--keyspace", "other"]) == 1
    output = capsys.readouterr().out
    assert all(line.startswith("--") for line in output.splitlines() if line)
    assert "by hand, modseq" in output

    assert run(["schema", "plan", "--from-model", "--keyspace", "james"]) == 0
    assert "as the model says" in capsys.readouterr().out


def test_options_are_in_a_plan_only_on_request(twin: SchemaTwin, capsys: pytest.CaptureFixture[str]) -> None:
    """Marked as what rewrites its table; a compaction that is named is the one proposed."""
    assert run(["schema", "plan", "--from-model", "--keyspace", "ours"]) == 0
    capsys.readouterr()
    arguments = ["schema", "plan", "--from-model", "--include-options", "--compaction", "leveled", "--json"]
    assert run([*arguments, "--keyspace", "ours"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["from_model"] is True
    assert [one["owner"] for one in found["plan"]] == ["imapUidTable", "messageIdTable", "messageV3"]
    assert {one["risk"] for one in found["plan"]} == {"rewrite"}
    assert all("LeveledCompactionStrategy" in cql for cql in found["statements"])


def test_the_newest_generation_is_planned_on_request(twin: SchemaTwin, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "plan", "--from-model", "--newest", "--keyspace", "old", "--json"]) == 1
    statements = json.loads(capsys.readouterr().out)["statements"]
    assert any("thread_2" in cql for cql in statements)
    assert not any(" DROP " in cql for cql in statements)
    run(["schema", "plan", "--from-model", "--newest", "--include-drops", "--keyspace", "old", "--json"])
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert {one["risk"] for one in plan if " DROP " in one["cql"]} == {"data loss"}
