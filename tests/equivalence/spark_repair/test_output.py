"""Two engines, one output: what a person reads of a repair, and every finding, whichever engine mends."""

import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from mailmend.cql.driver.session import connect
from mailmend.model.catalog.mail import MAILBOX_COUNTERS, MESSAGE_ID, MESSAGE_V3
from mailmend.model.operations import Count, Put
from tests.support.commands import CommandLine, Ended, command_line, contact_of
from tests.support.keyspaces import dropped
from tests.support.mail_states import QUIET, MailKeyspace, mail_keyspace
from tests.support.repairing import content_row, message, mirror_row
from tests.support.servers import CassandraServer

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.cassandra, pytest.mark.spark, pytest.mark.usefixtures("spark")]

ENGINES = ("local", "spark")


NAME = f"G_Output_{uuid4().hex[:8]}"
KEYSPACE, LEDGER = f'"{NAME}"', f'"{NAME}_Ledger"'
"""As CQL spells them: names that need double quotes, so that Spark reads and mends such keyspaces too."""


@pytest.fixture(scope="module")
def mail(cassandra: CassandraServer) -> Iterator[MailKeyspace]:
    with connect(contact_of(cassandra)) as cluster:
        yield mail_keyspace(cluster, KEYSPACE)
        dropped(cluster, (KEYSPACE, LEDGER))


@pytest.fixture
def mailmend(cassandra: CassandraServer, tmp_path: Path) -> CommandLine:
    names = {"MAILMEND_KEYSPACE": KEYSPACE, "MAILMEND_LEDGER_KEYSPACE": LEDGER}
    return command_line(tmp_path, cassandra, **names, **QUIET)


def break_everything(mail: MailKeyspace) -> None:
    """The same every time; what a repair mends, what it leaves, and a leak."""
    mail.refill(9)
    mail.lose_projection(mail.truths[0])
    mail.lose_flag_update(mail.truths[1])
    mail.lose_content(mail.truths[2])
    mail.lose_truth(mail.truths[3])
    mail.tables.write(Put(MESSAGE_ID, mirror_row({**mail.truths[4], "uid": 99})))
    mail.tables.write(Put(MESSAGE_V3, content_row(message(77))))
    mail.tables.write(Count(MAILBOX_COUNTERS, (mail.mailbox,), {"unseen": 3}))


def findings_in(file: Path) -> list[str]:
    """One line for each, without times: each engine mends rows that were written anew."""
    return sorted(re.sub(r'"written_at": {[^}]*}', "", line) for line in file.read_text().splitlines())


def plain(text: str) -> str:
    """Without what differs from run to run."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-1[0-9a-f]{3}-[89ab][0-9a-f-]{16}", "UUID", text)
    return re.sub(r"\d+\.\d s|--engine \w+", "", text)


def looks(err: str) -> list[str]:
    """The stages and results of the second look; the scans before differ: Spark reads all tables at once."""
    lines = [line.partition("/s")[0] for line in err.splitlines()]
    return [re.sub(r", [\d,]+$", "", line) for line in lines if line.startswith(("look again", "counters"))]


@pytest.mark.parametrize(
    "command",
    [
        ("repair", "messages"),
        pytest.param(("repair", "messages", "--dry-run"), marks=pytest.mark.thorough),
        pytest.param(("check", "messages"), marks=pytest.mark.thorough),
    ],
    ids=" ".join,
)
def test_both_engines_say_the_same(
    mailmend: CommandLine, mail: MailKeyspace, tmp_path: Path, command: tuple[str, ...]
) -> None:
    ended: dict[str, Ended] = {}
    for engine in ENGINES:
        break_everything(mail)
        findings = str(tmp_path / f"{engine}.jsonl")
        ended[engine] = mailmend(*command, "--engine", engine, "--delay", "0", "--findings", findings)
    local, spark = (ended[engine] for engine in ENGINES)

    if command == ("repair", "messages"):
        assert mail.mirror(mail.truths[0]) is not None, "it was lost, and Spark wrote it"
    assert plain(spark.out) == plain(local.out)
    assert looks(spark.err) == looks(local.err)
    assert findings_in(tmp_path / "spark.jsonl") == findings_in(tmp_path / "local.jsonl")
