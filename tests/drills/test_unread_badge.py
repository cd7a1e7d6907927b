"""runbooks/flags-differ.md: bob's badge says 7 where nothing is unread, and one message he has read is shown as new."""

import re
import shlex
from pathlib import Path

import pytest

from mailmend.admin.frame.runbooks import page_named
from mailmend.model.catalog.mail import FIRST_UNSEEN, MAILBOX_COUNTERS, MAILBOX_PATH, MAILBOX_RECENTS, MESSAGE_DELETED
from mailmend.model.operations import Count, Put
from mailmend.model.table import Row
from tests.support.commands import Ended
from tests.support.mail_states import MailKeyspace, emptied, shell_on
from tests.support.servers import CassandraServer

pytestmark = pytest.mark.cassandra

NO_MESSAGE = 99
ALONE = (FIRST_UNSEEN, MESSAGE_DELETED, MAILBOX_RECENTS)


@pytest.fixture(scope="module")
def keyspace(shared_mail: MailKeyspace) -> MailKeyspace:
    return emptied(shared_mail)


def test_what_his_mailboxes_show_is_mended_at_once_and_the_rest_is_named(
    cassandra: CassandraServer, keyspace: MailKeyspace, tmp_path: Path
) -> None:
    """A row whose message is there is judged by its truth; a row alone, and a counter, need the whole truth.

    `$MAILBOX` is what the page's SELECT answers; once it is `--user bob` in its place, as the page says.
    """
    mailmend = shell_on(cassandra, keyspace, tmp_path)
    keyspace.refill()
    path = {"namespace": "#private", "user": "bob", "mailboxname": "INBOX", "mailboxid": keyspace.mailbox}
    keyspace.tables.write(Put(MAILBOX_PATH, {**path, "uidvalidity": 1}))
    read = next(truth for truth in keyspace.truths if truth["flagseen"])
    for table, uid in ((FIRST_UNSEEN, read["uid"]), *((table, NO_MESSAGE) for table in ALONE)):
        keyspace.tables.write(Put(table, table.key_row((keyspace.mailbox, uid))))
    keyspace.tables.write(Count(MAILBOX_COUNTERS, (keyspace.mailbox,), {"unseen": 5}))

    page = page_named("flags-differ")
    (select,) = re.findall("cqlsh> (SELECT .+;)", page.section("Check"))
    (found,) = keyspace.tables.cluster.query(select.replace("apache_james", keyspace.name))

    def typed(command: str) -> Ended:
        named = command.replace("$MAILBOX", str(found["mailboxid"])).replace("$KEYSPACE", keyspace.name)
        local = ("--engine", "local", "--delay", "0s")
        return mailmend(*shlex.split(named, comments=True)[1:], *local)

    (look,) = page.commands("Check")
    mend, scan, *_ = page.commands("Do")
    assert typed(look).code == 1

    mended = typed(f"{mend.replace('--mailbox $MAILBOX', '--user bob')} --max-fixes 9")
    assert (mended.code, _unseen(keyspace, read), _alone(keyspace)) == (1, None, [True, True, True])
    assert f"--keyspace {keyspace.name} --engine local --delay 0s --no-writers --max-fixes 9 --user bob --scan" in (
        re.sub(r"\s+", " ", mended.out)
    )

    assert typed(scan).code == 0
    counted = keyspace.get(MAILBOX_COUNTERS, (keyspace.mailbox,))
    assert (_alone(keyspace), counted and counted["unseen"]) == ([False, False, False], 2)
    (check,) = page.commands("Verify")
    assert (typed(check).code, typed(mend).code) == (0, 0)


def _unseen(keyspace: MailKeyspace, truth: Row) -> Row | None:
    return keyspace.get(FIRST_UNSEEN, (keyspace.mailbox, truth["uid"]))


def _alone(keyspace: MailKeyspace) -> list[bool]:
    return [keyspace.get(table, (keyspace.mailbox, NO_MESSAGE)) is not None for table in ALONE]
