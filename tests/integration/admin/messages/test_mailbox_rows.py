"""`repair mailboxes` on a real Cassandra: a frozen user type is written whole, and taken back."""

from datetime import timedelta
from pathlib import Path

import pytest

import mailmend as library
from mailmend.model.catalog.mail import MAILBOX
from mailmend.model.projections.verdicts import Verdict
from tests.support.commands import QUICK, CommandLine
from tests.support.mail_states import MailKeyspace, emptied, register, shell_on
from tests.support.repairing import message
from tests.support.servers import CassandraServer

pytestmark = pytest.mark.cassandra

LOST = message(1)
RENAMED = message(2)
TWICE = message(3)


@pytest.fixture
def mail(shared_mail: MailKeyspace) -> MailKeyspace:
    keyspace = emptied(shared_mail)
    keyspace.refill()
    register(keyspace, 1, "Lost", row_says=None)
    register(keyspace, 2, "New name", row_says="Old name")
    register(keyspace, 3, "Before", row_says="After")
    register(keyspace, 3, "After", row_says="After")
    return keyspace


@pytest.fixture
def mailmend(cassandra: CassandraServer, mail: MailKeyspace, tmp_path: Path) -> CommandLine:
    return shell_on(cassandra, mail, tmp_path)


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.thorough])])
def test_rows_of_mailboxes_are_mended_and_put_back(mailmend: CommandLine, mail: MailKeyspace, engine: str) -> None:
    before = [mail.get(MAILBOX, (mailbox,)) for mailbox in (LOST, RENAMED, TWICE)]
    assert before[0] is None

    ended = mailmend("repair", "mailboxes", *QUICK, "--engine", engine, "--no-writers", "--json")

    assert ended.json["fixed"] == {"PROJECT": 1, "AMEND": 1}, ended.err
    assert (ended.code, ended.json["left"]) == (1, {"CLASH": 1})
    base = {"namespace": "#private", "user": "bob"}
    for mailbox, name in ((LOST, "Lost"), (RENAMED, "New name"), (TWICE, "After")):
        row = {"id": mailbox, "mailboxbase": base, "name": name, "uidvalidity": 1}
        assert mail.get(MAILBOX, (mailbox,)) == row
    named = [one["mailbox"] for one in ended.json["gone_mailboxes"]["first"]]
    assert named == [str(mail.mailbox)]

    undone = mailmend("undo", ended.json["run"], "--json")

    assert undone.json["fixed"] == {"PROJECT": 1, "AMEND": 1}, undone.err
    assert [mail.get(MAILBOX, (mailbox,)) for mailbox in (LOST, RENAMED, TWICE)] == before


def test_a_program_mends_them_and_puts_them_back(
    cassandra: CassandraServer, mail: MailKeyspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    before = [mail.get(MAILBOX, (mailbox,)) for mailbox in (LOST, RENAMED, TWICE)]
    settings: library.OpenSettings = {
        "host": cassandra.host,
        "port": cassandra.port,
        "keyspace": mail.name,
        "ledger_keyspace": f"{mail.name}_ledger",
    }

    with library.open(**settings) as opened:
        repaired = opened.repair_mailboxes(engine="local", delay=timedelta(), no_writers=True)
        mended = mail.get(MAILBOX, (LOST,))
        assert repaired.summary.run is not None
        undone = opened.undo(repaired.summary.run)

    assert repaired.summary.fixed == {Verdict.PROJECT: 1, Verdict.AMEND: 1}
    assert mended is not None
    assert repaired.gone_mailboxes is not None
    assert [gone.mailbox for gone in repaired.gone_mailboxes] == [mail.mailbox]
    assert undone.summary.fixed == {Verdict.PROJECT: 1, Verdict.AMEND: 1}
    assert [mail.get(MAILBOX, (mailbox,)) for mailbox in (LOST, RENAMED, TWICE)] == before
