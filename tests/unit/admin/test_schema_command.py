"""`mailmend schema` as a person and a script see it: what is wrong, what mends it, what would be run."""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mailmend.admin.frame.cluster import OpenCluster
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.main import run
from mailmend.admin.schema.verify import mend_of, recognition_json
from mailmend.cql.driver import nodes as driver_nodes
from mailmend.cql.schema.difference import Aspect, Difference
from mailmend.cql.schema.generations import AUGUST_2026, recognise
from mailmend.model.table import Column
from tests.support.clock import VirtualClock
from tests.support.cluster_twin import ClusterTwin
from tests.support.schema_twin import SchemaTwin
from tests.support.schemas import columns_of, served, with_columns, without_tables

JAMES = served(AUGUST_2026.schema)
REBUILD = (
    "while nothing writes: cqlsh -e 'DROP TABLE mail.firstUnseen;' && mailmend schema apply --keyspace mail"
    " && mailmend repair messages --keyspace mail"
)


@pytest.fixture
def twin(monkeypatch: pytest.MonkeyPatch) -> SchemaTwin:
    clock = VirtualClock()
    held = ClusterTwin(clock, james=JAMES, broken=without_tables(JAMES, "firstunseen"))

    @contextmanager
    def opened(connection: ConnectionSettings) -> Iterator[OpenCluster]:
        yield OpenCluster(connection, held, clock)  # type: ignore[arg-type]

    monkeypatch.setattr(driver_nodes, "CassandraNodes", lambda cluster: cluster)
    for module in ("plan", "apply", "verify", "migrating", "adopt"):
        monkeypatch.setattr(f"mailmend.admin.schema.{module}.open_cluster", opened)
    monkeypatch.setenv("MAILMEND_HOST", "127.0.0.1")
    return held


@pytest.mark.parametrize(
    ("difference", "mend"),
    [
        (Difference(Aspect.MISSING_TABLE, "firstUnseen"), "mailmend schema apply --keyspace mail"),
        (Difference(Aspect.MISSING_TYPE, "attachments"), "mailmend schema apply --keyspace mail"),
        (
            Difference(Aspect.MISSING_COLUMN, "messageIdTable", "save_date", "timestamp"),
            "cqlsh -e 'ALTER TABLE mail.messageIdTable ADD save_date timestamp;'",
        ),
        (
            Difference(Aspect.UNEXPECTED_COLUMN, "modseq", "label", "", "text"),
            "leave it (before-images keep it), or: cqlsh -e 'ALTER TABLE mail.modseq DROP label;'",
        ),
        (
            Difference(Aspect.DIFFERENT_OPTION, "modseq", "gc_grace_seconds", "864000", "60"),
            "cqlsh -e 'ALTER TABLE mail.modseq WITH gc_grace_seconds = 864000;'",
        ),
        (
            Difference(Aspect.DIFFERENT_COLUMN, "imapUidTable", "uid", "bigint", "int"),
            "nothing in place: mailmend schema apply --keyspace ANOTHER, then copy the rows of mail.imapUidTable there",
        ),
        (
            Difference(Aspect.DIFFERENT_ORDER, "firstUnseen", "", "uid ASC", "uid DESC"),
            REBUILD,
        ),
    ],
    ids=lambda one: one.aspect.value if isinstance(one, Difference) else "mend",
)
def test_each_kind_of_drift_has_its_mend(difference: Difference, mend: str) -> None:
    """A command where there is one; the truth and the content are never to be dropped."""
    assert mend_of(difference, "mail", made_here=True) == mend


@pytest.mark.parametrize("owner", ["imapUidTable", "messageV3", "messageCounter", "modseq", "mailbox", "mailboxPathV3"])
@pytest.mark.parametrize("aspect", [Aspect.DIFFERENT_KEY, Aspect.DIFFERENT_ORDER, Aspect.DIFFERENT_COLUMN])
def test_only_what_can_be_rebuilt_is_ever_to_be_dropped(owner: str, aspect: Aspect) -> None:
    assert "DROP TABLE" not in mend_of(Difference(aspect, owner, "uid", "a", "b"), "mail", made_here=True)


def test_in_a_keyspace_of_james_creating_must_be_asked_for() -> None:
    missing = Difference(Aspect.MISSING_TABLE, "firstUnseen")
    assert mend_of(missing, "mail", made_here=False) == "mailmend schema apply --keyspace mail --complete"


def test_the_json_of_a_recognition() -> None:
    live = with_columns(JAMES, "modseq", (*columns_of(JAMES, "modseq"), Column("label", "text")))
    found = recognition_json("mail", recognise(without_tables(live, "blobs")))
    assert list(found) == ["keyspace", "generation", "made_here", "drift", "notes", "exit"]
    assert found["generation"] == "August 2026"
    assert found["made_here"] is False
    assert found["exit"] == 1
    assert found["drift"] == [
        {
            "aspect": "unexpected column",
            "table": "modseq",
            "subject": "label",
            "expected": "",
            "found": "text",
            "mend": "leave it (before-images keep it), or: cqlsh -e 'ALTER TABLE mail.modseq DROP label;'",
        }
    ]
    assert found["notes"] == [{"aspect": "missing table", "table": "blobs", "subject": "", "expected": "", "found": ""}]


def test_verify_of_a_right_keyspace(twin: SchemaTwin, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "verify", "--keyspace", "james"]) == 0
    assert "james: generation August 2026, not made by mailmend." in capsys.readouterr().out


def test_verify_of_a_broken_keyspace(twin: SchemaTwin, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, and the command that mends it on a line of its own, to be copied."""
    assert run(["schema", "verify", "--keyspace", "broken"]) == 1
    output = capsys.readouterr().out
    assert "Drift" in output
    assert "firstUnseen: mailmend schema apply --keyspace broken --complete" in output.splitlines()


def test_the_advice_mends(twin: SchemaTwin, capsys: pytest.CaptureFixture[str]) -> None:
    run(["schema", "verify", "--keyspace", "broken", "--json"])
    (drift,) = json.loads(capsys.readouterr().out)["drift"]
    assert run(shlex.split(drift["mend"])[1:]) == 0
    assert run(["schema", "verify", "--keyspace", "broken"]) == 0


def test_apply_withholds_in_a_keyspace_of_james(twin: SchemaTwin, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what it did not create, why, and how to have it; drift is left, so exit code 1."""
    assert run(["schema", "apply", "--keyspace", "broken"]) == 1
    output = capsys.readouterr().out
    assert "Not created in a keyspace that mailmend did not make (--complete does): table firstUnseen" in output
    assert twin.carried_out == []


def test_a_dry_run_prints_cql_and_runs_none(twin: SchemaTwin, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "apply", "--keyspace", "fresh", "--replication", "dc1=3", "--dry-run"]) == 0
    output = capsys.readouterr().out
    statements = "\n".join(line for line in output.splitlines() if not line.startswith("--")).split(";\n")
    assert statements[0].startswith("CREATE KEYSPACE IF NOT EXISTS fresh WITH replication = ")
    assert "'dc1': '3'" in statements[0]
    assert all(one.strip().startswith("CREATE ") for one in statements if one.strip())
    assert twin.carried_out == []


def test_a_dry_run_shows_what_is_withheld_as_comments(twin: SchemaTwin, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "apply", "--keyspace", "broken", "--dry-run"]) == 0
    output = capsys.readouterr().out
    assert "CREATE TABLE IF NOT EXISTS broken.firstUnseen" in output
    assert all(line.startswith("--") for line in output.splitlines())


def test_a_dry_run_as_json(twin: SchemaTwin, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "apply", "--keyspace", "broken", "--dry-run", "--complete", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert len(plan["statements"]) == 1
    assert plan["withheld"] == []


def test_apply_as_json(twin: SchemaTwin, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "apply", "--keyspace", "fresh", "--json"]) == 0
    applied = json.loads(capsys.readouterr().out)
    assert applied["created"][0] == "keyspace fresh"
    assert applied["made_here"] is True
    assert applied["drift"] == []
    assert run(["schema", "apply", "--keyspace", "fresh"]) == 0
    assert "Nothing was missing." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--replication", "dc1:3"], "is not a replication"),
        (["--replication-factor", "0"], "--replication-factor"),
        (["--replication-factor", "2", "--replication", "dc1=3"], "exclude each other"),
        (["--compaction", "lucky"], "--compaction"),
        (["--keyspace", "a-b"], "--keyspace"),
        (["--keyspace", "select"], "--keyspace"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "expected",
)
def test_wrong_use_is_refused(
    twin: SchemaTwin, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    assert run(["schema", "apply", *arguments]) == 2
    assert expected in capsys.readouterr().err
    assert twin.carried_out == []


def test_an_older_server_refuses_unified_before_anything_is_made(
    twin: SchemaTwin, capsys: pytest.CaptureFixture[str]
) -> None:
    twin.release_version = "4.1.10"
    assert run(["schema", "apply", "--keyspace", "fresh", "--compaction", "unified"]) == 2
    assert "--compaction leveled" in capsys.readouterr().err
    assert twin.carried_out == []


def test_verify_of_no_keyspace(twin: SchemaTwin, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "verify", "--keyspace", "nowhere"]) == 2
    assert "mailmend schema apply --keyspace nowhere" in capsys.readouterr().err
