"""Somebody types ALTER TABLE ... DROP flagSeen, or DROP TABLE: both engines tell of drift; no repair writes there.

runbooks/schema-differs.md leads from what `check` says to where nothing is lacking.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailmend.admin.frame.runbooks import page_named
from mailmend.spark_repair import message_inconsistencies
from tests.support.commands import CommandLine, Ended
from tests.support.mail_states import MailKeyspace, keyspace_of_its_own, shell_on
from tests.support.servers import CassandraServer
from tests.support.thorough import first_of

pytestmark = [pytest.mark.cassandra, pytest.mark.spark]


@pytest.fixture(scope="module")
def keyspace(cassandra: CassandraServer) -> Iterator[MailKeyspace]:
    with keyspace_of_its_own(cassandra, "dropped_column") as keyspace:
        yield keyspace


@pytest.fixture
def mailmend(cassandra: CassandraServer, keyspace: MailKeyspace, tmp_path: Path) -> CommandLine:
    return shell_on(cassandra, keyspace, tmp_path)


@pytest.mark.parametrize("engine", first_of(["local", "spark"]))
def test_it_is_drift_until_it_is_back_or_left_out(
    mailmend: CommandLine, keyspace: MailKeyspace, request: pytest.FixtureRequest, engine: str
) -> None:
    """What Spark says of a dropped column, a table and a column below are enough to show."""
    if engine == "spark":
        request.getfixturevalue("spark")
    keyspace.refill()
    keyspace.tables.cluster.execute_ddl(f"ALTER TABLE {keyspace.name}.messageidtable DROP flagseen")

    checked = mailmend("check", "messages", "--engine", engine, "--delay", "0", "--json")
    repaired = mailmend("repair", "messages", "--engine", engine, "--delay", "0")

    assert (checked.code, repaired.code) == (1, 2), checked.err
    assert checked.json["missing_columns"] == [{"table": "messageIdTable", "column": "flagSeen"}]
    assert f"mailmend schema verify --keyspace {keyspace.name}" in repaired.err
    quick = ("--engine", "local", "--delay", "0", "--json")
    assert mailmend("check", "messages", *quick, "--without", "flagSeen").code == 0

    statement = re.search(r"ALTER TABLE \S*messageIdTable ADD [^;\n]+", mailmend("schema", "verify").out, re.IGNORECASE)
    assert statement, mailmend("schema", "verify").out
    keyspace.tables.cluster.execute_ddl(statement[0])

    assert mailmend("repair", "messages", *quick).json["fixed"] == {"AMEND": 2}
    assert mailmend("check", "messages", *quick).code == 0


@pytest.mark.parametrize(
    ("engine", "in_driver_max"),
    [
        pytest.param("local", None, id="local"),
        pytest.param("spark", 20_000, id="driver", marks=pytest.mark.thorough),
        pytest.param("spark", 0, id="executors", marks=pytest.mark.thorough),
    ],
)
def test_its_page_leads_from_what_a_check_says_to_no_drift(
    mailmend: CommandLine,
    keyspace: MailKeyspace,
    request: pytest.FixtureRequest,
    *,
    engine: str,
    in_driver_max: int | None,
) -> None:
    """Only by commands that the page names, and the one statement that `schema plan` shows."""
    if in_driver_max is not None:
        request.getfixturevalue("spark")
        request.getfixturevalue("monkeypatch").setattr(message_inconsistencies, "IN_DRIVER_MAX", in_driver_max)
    keyspace.refill()
    keyspace.tables.cluster.execute_ddl(f"ALTER TABLE {keyspace.name}.messageidtable DROP flagseen")
    page, run = page_named("schema-differs"), ""

    def typed(command: str) -> Ended:
        _, *words = shlex.split(command.replace("$KEYSPACE", keyspace.name).replace("$RUN", run), comments=True)
        with_it = ("--engine", engine, "--delay", "0s") if words[0] in {"check", "repair"} else ()
        return mailmend(*words, *with_it)

    verify, plan = page.commands("Check")
    _, repair = page.commands("Do")
    verified, check = page.commands("Verify")
    _, undo = page.commands("Undo")

    seen = typed(check)
    assert (seen.code, f"Missing in {keyspace.name}" in seen.out, "flagSeen" in seen.out) == (1, True, True)
    assert "mailmend schema verify" in seen.out + seen.err, "which the page is about"
    assert (typed(verify).code, "flagSeen" in typed(verify).out) == (1, True)
    (statement,) = re.findall(r"ALTER TABLE \S*messageIdTable ADD [^;\n]+", typed(plan).out, re.IGNORECASE)
    keyspace.tables.cluster.execute_ddl(statement)

    assert typed(repair).code == 0
    assert ("flagSeen" in typed(verified).out, typed(check).code) == (False, 0)
    run = mailmend("runs", "list", "--json").json["runs"][0]["run"]
    assert (typed(undo).code, typed(check).code) == (0, 1), "two messages are unread again where they were read"


@pytest.mark.parametrize("engine", first_of(["local", "spark"]))
def test_a_table_and_a_column_that_decides_are_drift_and_all_else_is_checked(
    mailmend: CommandLine, keyspace: MailKeyspace, request: pytest.FixtureRequest, engine: str
) -> None:
    """A run that was made before is not undone half."""
    if engine == "spark":
        request.getfixturevalue("spark")
    keyspace.refill()
    keyspace.lose_flag_update(keyspace.truths[0])
    quick = ("--engine", "local", "--delay", "0", "--json")
    run = mailmend("repair", "messages", *quick).json["run"]
    keyspace.lose_projection(keyspace.truths[1])
    keyspace.tables.cluster.execute_ddl(f"DROP TABLE {keyspace.name}.firstunseen")
    keyspace.tables.cluster.execute_ddl(f"ALTER TABLE {keyspace.name}.imapuidtable DROP flagdeleted")

    checked = mailmend("check", "messages", "--engine", engine, "--delay", "0", "--json")

    assert checked.code == 1, checked.err
    assert checked.json["findings"] == {"messageIdTable": {"PROJECT": 1}}
    assert checked.json["missing_tables"] == ["firstUnseen"]
    assert checked.json["missing_columns"] == [{"table": "imapUidTable", "column": "flagDeleted"}]
    assert checked.json["unseen"] == "Not looked at: firstUnseen, messageDeleted."
    for refused in (mailmend("repair", "messages", *quick), mailmend("undo", run)):
        assert (refused.code, "lacks firstUnseen, imapUidTable.flagDeleted" in refused.err) == (2, True), refused.err
    left_out = ("--without", "firstUnseen", "--without", "flagDeleted")
    assert mailmend("repair", "messages", *quick, *left_out).json["fixed"] == {"PROJECT": 1}

    plan = re.sub(r"--.*", "", mailmend("schema", "plan", "--from-model").out)
    for statement in re.findall(r"(?:ALTER|CREATE) TABLE \S*(?:imapUidTable|firstUnseen)\b[^;]+", plan):
        keyspace.tables.cluster.execute_ddl(statement)
    assert mailmend("repair", "messages", *quick).json["fixed"] == {"PROJECT": 2}
    assert mailmend("check", "messages", *quick).code == 0
