"""`repair mailboxes` on a real Cassandra: a frozen user type is written whole, and taken back."""

from pathlib import Path

import pytest

from mailmend.model.catalog.mail import MAILBOX
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


def test_rows_of_mailboxes_are_mended_and_put_back(mailmend: CommandLine, mail: MailKeyspace) -> None:
    before = [mail.get(MAILBOX, (mailbox,)) for mailbox in (LOST, RENAMED, TWICE)]
    assert before[0] is None

    ended = mailmend("repair", "mailboxes", *QUICK, "--no-writers", "--json")

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
