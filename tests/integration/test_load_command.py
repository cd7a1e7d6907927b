"""`mailmend load` and `repair lags`: real files in, the sums out, and nothing twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from model.projections.verdicts import Verdict
from repair.clock import SystemClock
from repair.ledger.lags import LagJournal
from repair.ledger.runs import Ledger
from tests.support.commands import CommandLine
from tests.support.keyspaces import LEDGER, created
from tests.support.mail_states import MailKeyspace, keyspace_of_its_own, shell_on
from tests.support.repairing import mirror_suspect
from tests.support.servers import CassandraServer

pytestmark = pytest.mark.cassandra

LETTER = "From ann Thu Jan  1 00:00:00 2026\nSubject: one\n\nhello\n\n"
TO_INBOX = ("--user", "ann", "--mailbox", "INBOX")
QUICK = ("--engine", "local", "--delay", "0")


@pytest.fixture(scope="module")
def keyspace(cassandra: CassandraServer) -> Iterator[MailKeyspace]:
    with keyspace_of_its_own(cassandra, "load") as keyspace:
        created(keyspace.tables.cluster, f"{keyspace.name}_ledger", LEDGER)
        yield keyspace


@pytest.fixture
def mailmend(cassandra: CassandraServer, keyspace: MailKeyspace, tmp_path: Path) -> CommandLine:
    return shell_on(cassandra, keyspace, tmp_path)


def test_an_mbox_is_loaded_once(mailmend: CommandLine, tmp_path: Path) -> None:
    mbox = tmp_path / "archive.mbox"
    mbox.write_text(LETTER * 3)

    first = mailmend("load", str(mbox), *TO_INBOX, "--json")
    assert (first.code, first.json["stored"], first.json["lagged"]) == (0, 3, 0), first.err
    assert mailmend("check", *QUICK).code == 0

    second = mailmend("load", str(mbox), *TO_INBOX)
    assert (second.code, "already" in second.err) == (2, True)
    assert mailmend("load", str(mbox), *TO_INBOX, "--again", "--json").json["stored"] == 3


def test_a_refused_message_is_named_and_the_rest_stored(mailmend: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "letters"
    folder.mkdir()
    (folder / "good.eml").write_text("Subject: x\n\nhello\n")
    (folder / "gone.eml").symlink_to(tmp_path / "nowhere")

    ended = mailmend("load", str(folder), *TO_INBOX, "--json")

    assert (ended.code, ended.json["stored"], ended.json["refused"]) == (3, 1, 1)
    assert "gone.eml" in ended.err


def test_lags_are_mended_without_a_scan_and_forgotten(mailmend: CommandLine, keyspace: MailKeyspace) -> None:
    """A dry run tells them and keeps them; the repair mends exactly them; afterwards none is left."""
    keyspace.refill()
    lagging, other = keyspace.truths[:2]
    keyspace.lose_projection(lagging)
    keyspace.lose_projection(other)
    with_ledger = Ledger(keyspace.tables.cluster.keyspace(f"{keyspace.name}_ledger"), SystemClock())
    journal = LagJournal(with_ledger.tables, keyspace.name, SystemClock())
    journal.journal([mirror_suspect(lagging, Verdict.PROJECT)], "no node answered")

    dry = mailmend("repair", "lags", "--delay", "0", "--dry-run", "--json")
    assert (dry.code, dry.json["due"], keyspace.mirror(lagging)) == (1, {"PROJECT": 1}, None), dry.err

    mended = mailmend("repair", "lags", "--delay", "0", "--json")
    assert (mended.code, mended.json["fixed"], mended.json["scanned"]) == (0, {"PROJECT": 1}, {}), mended.err
    assert (keyspace.mirror(lagging) is None, keyspace.mirror(other) is None) == (False, True)
    assert mailmend("repair", "lags", "--delay", "0", "--dry-run", "--json").json["suspects"] == 0
