"""The store, the journal of lags and the loader on a real Cassandra."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from mailmend.cql.driver.session import Keyspace
from mailmend.cql.row_statements import Operation
from mailmend.mailqueue.blobs.object_storage import open_files
from mailmend.model.blobs import Blobs
from mailmend.model.catalog.mail import IMAP_UID, MAILBOX, MESSAGE_COUNTER, MESSAGE_ID, MESSAGE_V3
from mailmend.model.errors import TimedOut
from mailmend.model.ids import MailboxId, MessageId
from mailmend.model.operations import Change, Read, Remove, Scan, Write
from mailmend.model.projections.findings import Finding
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.clock import SystemClock, Timing
from mailmend.repair.ledger.lags import LagJournal, Spool
from mailmend.repair.mending.runner import repair_lags
from mailmend.repair.store.loading import Folder, Loader
from mailmend.repair.store.mail_files import kind_of
from mailmend.repair.store.mailboxes import Mailboxes
from mailmend.repair.store.message import Attachment, FlagsChange, FlagsMode, flags_of, parse_flags
from mailmend.repair.store.message_store import MessageStore
from mailmend.repair.store.writes import StampSource, WriterSettings
from tests.support.awkward import AWKWARD, NO_MAIL, mbox_of
from tests.support.mail_states import MailKeyspace, emptied, ledger_of
from tests.support.progress import SilentProgress
from tests.support.repairing import Workplace
from tests.support.surrounded import SurroundedTables
from tests.support.writing import LagList, mail

SETTINGS = (*(WriterSettings(stamp=stamp) for stamp in StampSource), WriterSettings(strong=False))


@dataclass(frozen=True, slots=True)
class Office:
    """A mail keyspace, its ledger, and what works on them."""

    mail: Keyspace
    ledger: Keyspace
    clock: SystemClock
    place: Workplace
    blobs: Blobs
    lags: LagList

    def store(self, settings: WriterSettings = SETTINGS[0], tables: Any = None) -> MessageStore:
        return MessageStore(tables or self.mail, self.blobs, self.lags, self.clock, settings=settings)

    def mailbox(self) -> MailboxId:
        return MailboxId(self.clock.new_uuid())

    def rows(self, table: Any, mailbox: MailboxId) -> list[Any]:
        return [row for row in self.mail.scan(Scan(table, table.names)) if row["mailboxid"] == mailbox]


@pytest.fixture(scope="module")
def office(shared_mail: MailKeyspace, tmp_path_factory: pytest.TempPathFactory) -> Office:
    tables, ledger = emptied(shared_mail).tables, ledger_of(shared_mail)
    clock = SystemClock()
    place = Workplace(tables, ledger, clock, tables.cluster)
    return Office(tables, ledger, clock, place, open_files(tmp_path_factory.mktemp("blobs")), LagList())


def change(mode: str, *words: str) -> FlagsChange:
    return FlagsChange(FlagsMode(mode), parse_flags(words))


@pytest.mark.parametrize("settings", SETTINGS, ids=["strong", "by floor", "by clock", "plain"])
def test_a_life_of_changes_leaves_no_drift(office: Office, settings: WriterSettings) -> None:
    """Everything that a message goes through, on real tables, agrees in every projection."""
    inbox, archive = office.mailbox(), office.mailbox()
    with office.store(settings) as store:
        first = store.add(inbox, mail("one", r"\Recent", "work"))
        store.set_flags(first.place, change("add", r"\Seen", "später"))
        store.set_flags(first.place, change("replace", r"\Deleted", "später", "urgent"))
        store.set_flags(first.place, change("remove", "später"))
        copied = store.copy(first.place, archive)
        moved = store.move(first.place, archive)
        store.delete(copied.place)
        many = store.add_all(inbox, [mail(str(number), r"\Seen") for number in range(30)])
    assert office.place.drift() == []
    (row,) = office.rows(IMAP_UID, archive)
    assert row["uid"] == moved.uid
    assert flags_of(row) == parse_flags([r"\Deleted", r"\Recent", "urgent"])
    assert [one.uid for one in many] == list(range(2, 32))
    assert office.lags.suspects == []


def test_projections_carry_the_truths_own_time(office: Office) -> None:
    """Every cell of the mirror has the WRITETIME of the truth's modseq, after an insert and after a change."""
    inbox = office.mailbox()
    with office.store() as store:
        stored = store.add(inbox, mail("one", "work"))
        for words in ((r"\Seen",), ("other",)):
            truth = office.mail.read(Read(IMAP_UID, stored.place.key, times=True))[0]
            mirrored = office.mail.read(Read(MESSAGE_ID, (inbox, stored.uid), times=True))[0]
            assert set(mirrored.written_at.values()) == {truth.written_at["modseq"]}
            store.set_flags(stored.place, change("add", *words))


def test_many_threads_on_one_mailbox(office: Office) -> None:
    inbox = office.mailbox()
    with office.store() as store, ThreadPoolExecutor(8) as pool:
        stored = list(pool.map(lambda number: store.add(inbox, mail(str(number))), range(48)))
        target = stored[0].place
        list(pool.map(lambda word: store.set_flags(target, change("add", word)), [f"k{n}" for n in range(12)]))
        list(pool.map(lambda one: store.set_flags(one.place, change("add", r"\Seen")), stored))
        list(pool.map(lambda one: store.delete(one.place), stored[40:]))
    assert sorted(one.uid for one in stored) == list(range(1, 49))
    rows = {row["uid"]: row for row in office.rows(IMAP_UID, inbox)}
    assert len(rows) == 40
    assert all(row["flagseen"] for row in rows.values())
    assert rows[target.uid]["userflags"] == {f"k{n}" for n in range(12)}
    assert office.place.drift() == []


def test_two_stores_do_not_know_of_each_other(office: Office) -> None:
    """Two processes on one mailbox: what each remembers of its numbers is corrected by the condition."""
    inbox = office.mailbox()
    with office.store() as one, office.store() as other, ThreadPoolExecutor(4) as pool:
        stored = list(pool.map(lambda number: (one, other)[number % 2].add(inbox, mail()), range(24)))
    assert sorted(message.uid for message in stored) == list(range(1, 25))
    assert office.mail.read(Read(MESSAGE_COUNTER, (inbox,)))[0].row["nextuid"] >= 24
    assert office.place.drift() == []


def test_a_replayed_add_does_not_double_its_attachments(office: Office) -> None:
    whole = replace(mail(), attachments=(Attachment("a1", "x.pdf", "cid", is_inline=True),))
    whole = replace(whole, message_id=MessageId(office.clock.new_uuid()))
    assert whole.message_id is not None
    inbox = office.mailbox()
    with office.store() as store:
        store.add(inbox, whole)
        store.add(inbox, whole)
        assert store.content(whole.message_id) == whole.header + whole.body
    (seen,) = office.mail.read(Read(MESSAGE_V3, (whole.message_id,)))
    assert len(seen.row["attachments"]) == 1


def test_a_tombstone_from_the_future_is_noticed(office: Office) -> None:
    inbox, message_id = office.mailbox(), MessageId(office.clock.new_uuid())
    office.mail.write(Remove(IMAP_UID, (message_id, inbox, 1), at=office.clock.micros() + 3_600_000_000))
    with office.store() as store:
        stored = store.add(inbox, replace(mail(), message_id=message_id))
    assert stored.uid == 2
    assert len(office.rows(IMAP_UID, inbox)) == 1


def test_a_row_without_modseq_is_changed_on_its_other_columns(office: Office) -> None:
    """`IF modseq = null AND …` works on a real server, and a gone row does not come back."""
    inbox = office.mailbox()
    with office.store() as store:
        stored = store.add(inbox, mail())
        office.mail.write(Change(IMAP_UID, stored.place.key, {"modseq": None}))
        assert store.set_flags(stored.place, change("add", r"\Seen")).modseq == 2


def cut(operation: Operation, carry_out: Callable[[], Any]) -> Any:
    if isinstance(operation, Write) and operation.table is MESSAGE_ID:
        raise TimedOut("cut")
    return carry_out()


def test_lags_are_journalled_spooled_and_mended(office: Office, tmp_path: Path) -> None:
    """In the ledger and in a local file: one call drains, mends exactly them, and forgets them."""
    inbox, spool = office.mailbox(), Spool(tmp_path, "mail")
    journal = LagJournal(office.ledger, "mail", office.clock, spool)
    with MessageStore(SurroundedTables(office.mail, cut), office.blobs, journal, office.clock) as store:
        stored = store.add(inbox, mail("lags", "work"))
        assert stored.lagged
        spool.append([])
        assert store.set_flags(stored.place, change("add", r"\Seen")).lagged
    found: list[Finding] = []
    timing = Timing(no_writers=True)
    summary = repair_lags(journal, office.mail, office.place.order(timing), office.place.tools(timing), found.append)
    assert [one.result for one in found] == [Verdict.FIXED]
    assert summary.fixed[Verdict.PROJECT] == 1
    assert list(journal.due(office.clock.micros())) == []
    assert spool.files() == []
    assert office.place.drift() == []


def test_an_mbox_is_loaded(office: Office, tmp_path: Path) -> None:
    """Awkward mail from a file into a mailbox that is made for it; the bytes come back, nothing drifts."""
    lone = {name for name, content in AWKWARD.items() if b"\r" in content.replace(b"\r\n", b"")}
    mails = {name: content for name, content in AWKWARD.items() if name not in lone | NO_MAIL}
    (tmp_path / "mbox").write_bytes(mbox_of(mails))
    folder = Folder(tmp_path / "mbox", kind_of(tmp_path / "mbox"), office.mail.name, "bob@peer.example", "INBOX")
    mailboxes = Mailboxes(office.mail, office.clock)
    inbox = mailboxes.ensure("bob@peer.example", "INBOX")
    assert mailboxes.ensure("bob@peer.example", "INBOX") == inbox
    assert office.mail.read(Read(MAILBOX, (inbox,)))[0].row["name"] == "INBOX"
    with office.store() as store:
        loaded = Loader(store, office.clock, tmp_path / "state", SilentProgress(), lambda _: None).load(folder, inbox)
        contents = [store.content(row["messageid"]) for row in office.rows(IMAP_UID, inbox)]
    assert loaded.stored == len(mails) == len(contents)
    assert sum(map(len, contents)) == loaded.octets
    assert office.place.drift() == []
