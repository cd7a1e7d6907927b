"""`mailmend load` and `repair lags`: real files in, the sums out, and nothing twice."""

from pathlib import Path
from uuid import UUID

import pytest

from mailmend.model.catalog.mail import MESSAGE_COUNTER, MESSAGE_ID, MESSAGE_V3
from mailmend.model.operations import Change, Scan
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.clock import SystemClock
from mailmend.repair.ledger.lags import LagJournal
from mailmend.repair.ledger.runs import Ledger
from tests.support.commands import QUICK, CommandLine
from tests.support.mail_states import MailKeyspace, emptied, ledger_of, shell_on
from tests.support.object_stores import S3
from tests.support.repairing import mirror_suspect
from tests.support.servers import CassandraServer

pytestmark = pytest.mark.cassandra

LETTER = "From ann Thu Jan  1 00:00:00 2026\nSubject: one\n\nhello\n\n"
TO_INBOX = ("--user", "ann", "--mailbox", "INBOX")


@pytest.fixture
def keyspace(shared_mail: MailKeyspace) -> MailKeyspace:
    return emptied(shared_mail)


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


def test_a_generator_that_was_set_back_costs_no_mail(
    mailmend: CommandLine, keyspace: MailKeyspace, tmp_path: Path
) -> None:
    """As after `messageCounter` was restored: found, raised, and never given out again by a load."""
    first = tmp_path / "first.mbox"
    second = tmp_path / "second.mbox"
    first.write_text(LETTER * 3)
    second.write_text(LETTER.replace("hello", "later"))
    mailmend("load", str(first), *TO_INBOX)
    before = mirrored(keyspace)
    mailbox = next(iter(before))[0]

    set_back(keyspace, mailbox)
    checked = mailmend("check", "messages", *QUICK, "--json")
    loaded = mailmend("load", str(second), *TO_INBOX, "--json")
    after = mirrored(keyspace)
    set_back(keyspace, mailbox)
    mended = mailmend("repair", "messages", *QUICK, "--json")
    clean = mailmend("check", "messages", *QUICK)

    behind = {found["table"]: (found["last"], found["in_use"]) for found in checked.json["generators"]}
    assert (checked.code, behind["messageCounter"]) == (1, (1, max(uid for _, uid in before)))
    assert (loaded.code, loaded.json["stored"]) == (0, 1), loaded.err
    assert {place: after[place] for place in before} == before, "no row was written over"
    assert len(after) == len(before) + 1
    assert [found["raised"] for found in mended.json["generators"]] == [True], mended.err
    assert clean.code == 0
    assert "denormalised tables were not looked at" in clean.out


def mirrored(keyspace: MailKeyspace) -> dict[tuple[UUID, int], UUID]:
    """The messages at the places of all mailboxes."""
    scan = Scan(MESSAGE_ID, ("mailboxid", "uid", "messageid"))
    return {(row["mailboxid"], row["uid"]): row["messageid"] for row in keyspace.tables.scan(scan)}


def set_back(keyspace: MailKeyspace, mailbox: UUID) -> None:
    keyspace.tables.write(Change(MESSAGE_COUNTER, (mailbox,), {"nextuid": 1}))


@pytest.mark.object_store
def test_contents_go_where_those_of_the_messages_are(
    mailmend: CommandLine, keyspace: MailKeyspace, s3: S3, tmp_path: Path
) -> None:
    """Once they are in a bucket, whose keys the environment has, no load puts any into the tables unasked."""
    mboxes = [tmp_path / f"{number}.mbox" for number in range(3)]
    for mbox in mboxes:
        mbox.write_text(LETTER)
    keys = {"AWS_ACCESS_KEY_ID": s3.access_key, "AWS_SECRET_ACCESS_KEY": s3.secret_key}
    where = ("--blobs", f"s3://{s3.bucket().bucket}?endpoint={s3.endpoint}")

    first = mailmend("load", str(mboxes[0]), *TO_INBOX, *where, "--json", **keys)
    refused = mailmend("load", str(mboxes[1]), *TO_INBOX)
    second = mailmend("load", str(mboxes[1]), *TO_INBOX, *where, "--json", **keys)
    elsewhere = mailmend("load", str(mboxes[2]), *TO_INBOX, "--blobs", (tmp_path / "kept").as_uri())
    ids = {row["headercontent"] for row in keyspace.tables.scan(Scan(MESSAGE_V3, ("headercontent",)))}

    assert [(one.code, one.json["stored"]) for one in (first, second)] == [(0, 1)] * 2, (first.err, second.err)
    assert (refused.code, "0 have their content in its tables" in refused.err) == (2, True), refused.err
    assert (elsewhere.code, "is it the store that is read for this keyspace?" in elsewhere.err) == (0, True)
    assert len(ids) == 1, "ids are made of the bytes where nothing says otherwise"


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
    with_ledger = Ledger(ledger_of(keyspace), SystemClock())
    journal = LagJournal(with_ledger.tables, keyspace.name, SystemClock())
    journal.journal([mirror_suspect(lagging, Verdict.PROJECT)], "no node answered")

    dry = mailmend("repair", "lags", "--delay", "0", "--dry-run", "--json")
    assert (dry.code, dry.json["due"], keyspace.mirror(lagging)) == (1, {"PROJECT": 1}, None), dry.err

    mended = mailmend("repair", "lags", "--delay", "0", "--json")
    assert (mended.code, mended.json["fixed"], mended.json["scanned"]) == (0, {"PROJECT": 1}, {}), mended.err
    assert (keyspace.mirror(lagging) is None, keyspace.mirror(other) is None) == (False, True)
    assert mailmend("repair", "lags", "--delay", "0", "--dry-run", "--json").json["suspects"] == 0
