"""The store over tables in memory: what each operation writes."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from mailmend.mailqueue.blobs.stores import split
from mailmend.model.catalog.mail import (
    APPLICABLE_FLAG,
    FIRST_UNSEEN,
    IMAP_UID,
    MAILBOX_RECENTS,
    MESSAGE_COUNTER,
    MESSAGE_DELETED,
    MESSAGE_ID,
    MESSAGE_V3,
)
from mailmend.model.errors import BlobsUnreachable, UnknownMessage
from mailmend.model.ids import MessageId, Uid
from mailmend.model.instants import MICROS
from mailmend.model.operations import Count, Put, Read, Remove, Seen
from mailmend.repair.store.message import Attachment, MessageKey, Stored
from mailmend.repair.store.writes import StampSource, WriterSettings
from tests.support.clock import START
from tests.support.stored_forms import CHUNK, encrypted, packed
from tests.support.writing import SEEN, Desk, change, mail

PLAIN = WriterSettings(strong=False)
BY_CLOCK = WriterSettings(stamp=StampSource.CLOCK)
BY_FLOOR = WriterSettings(stamp=StampSource.FLOOR)
WAYS = pytest.mark.parametrize(
    "settings", [WriterSettings(), BY_FLOOR, BY_CLOCK, PLAIN], ids=["strong", "by floor", "by clock", "plain"]
)


@WAYS
def test_an_added_message_is_everywhere(settings: WriterSettings) -> None:
    """Truth, mirror, filters, union, counters and content agree; the first uid and modseq are 1."""
    desk = Desk(settings)
    stored = desk.store.add(desk.inbox, mail("hi", r"\Recent", r"\Deleted", "work"))
    assert (stored.uid, stored.modseq, stored.lagged) == (1, 1, False)
    assert desk.drift() == []
    for table in (IMAP_UID, MESSAGE_ID, MESSAGE_V3, FIRST_UNSEEN, MAILBOX_RECENTS, MESSAGE_DELETED, APPLICABLE_FLAG):
        assert len(desk.rows(table)) == 1, table.spelling
    assert desk.counters(desk.inbox) == (1, 1)
    assert desk.store.content(stored.message_id) == b"Subject: hi\r\n\r\nbody\r\n"


@WAYS
def test_a_life_of_changes_leaves_no_drift(settings: WriterSettings) -> None:
    desk = Desk(settings)
    first = desk.store.add(desk.inbox, mail("one", "work"))
    for what in (SEEN, change("replace", r"\Flagged", "later"), change("remove", "later"), change("add", r"\Deleted")):
        desk.store.set_flags(first.place, what)
        assert desk.drift() == []
    copied = desk.store.copy(first.place, desk.archive)
    moved = desk.store.move(first.place, desk.archive)
    assert desk.drift() == []
    assert desk.counters(desk.inbox) == (0, 0)
    assert desk.counters(desk.archive) == (2, 2)
    for stored in (copied, moved):
        desk.store.delete(stored.place)
    assert desk.rows(IMAP_UID) == desk.rows(MESSAGE_ID) == desk.rows(FIRST_UNSEEN) == []
    assert desk.counters(desk.archive) == (0, 0)
    assert len(desk.rows(MESSAGE_V3)) == 1, "content is left to the collection of leaks"


def test_numbers_go_up_and_modseqs_too(desk: Desk) -> None:
    one, two = desk.store.add(desk.inbox, mail()), desk.store.add(desk.inbox, mail())
    flagged = desk.store.set_flags(one.place, SEEN)
    assert (one.uid, two.uid) == (1, 2)
    assert (one.modseq, two.modseq, flagged.modseq) == (1, 2, 3)


def test_a_batch_gets_consecutive_uids_and_one_modseq(desk: Desk) -> None:
    stored = desk.store.add_all(desk.inbox, [mail(str(number)) for number in range(20)])
    assert [one.uid for one in stored] == list(range(1, 21))
    assert {one.modseq for one in stored} == {1}
    asked = [operation.table.name for operation in desk.faults.seen]
    counts = [operation for operation in desk.faults.seen if isinstance(operation, Count)]
    assert desk.drift() == []
    assert len(counts) == 1
    assert asked.count(MESSAGE_COUNTER.name) == 2  # read, insert
    assert desk.store.add_all(desk.inbox, []) == []


def test_a_copy_is_recent_and_saved_now(desk: Desk) -> None:
    original = desk.store.add(desk.inbox, mail("one", r"\Seen"))
    desk.clock.advance(60)
    copied = desk.store.copy(original.place, desk.archive)
    old, new = desk.truth(original.place), desk.truth(copied.place)
    assert old is not None
    assert new is not None
    assert new["flagrecent"]
    assert new["flagseen"]
    assert new["save_date"] - old["save_date"] >= timedelta(seconds=60)
    assert (new["headercontent"], new["threadid"]) == (old["headercontent"], old["threadid"])
    assert len(desk.rows(MESSAGE_V3)) == 1


def test_a_change_of_nothing_writes_nothing(desk: Desk) -> None:
    stored = desk.store.add(desk.inbox, mail("one", r"\Seen"))
    desk.faults.seen.clear()
    again = desk.store.set_flags(stored.place, SEEN)
    assert again == stored
    assert [type(operation) for operation in desk.faults.seen] == [Read]


def reads_of(desk: Desk) -> int:
    return sum(isinstance(one, Read) and one.table.name == IMAP_UID.name for one in desk.faults.seen)


@pytest.mark.parametrize(("settings", "added", "flagged"), [(WriterSettings(), 1, 2), (BY_FLOOR, 0, 1)])
def test_a_floor_saves_the_read_after(settings: WriterSettings, added: int, flagged: int) -> None:
    desk = Desk(settings)
    stored = desk.store.add(desk.inbox, mail())
    assert reads_of(desk) == added
    desk.store.set_flags(stored.place, SEEN)
    assert reads_of(desk) == added + flagged
    assert desk.drift() == []


def test_a_floor_is_past_the_version_before_and_below_the_truth() -> None:
    desk = Desk(BY_FLOOR)
    stored = desk.store.add(desk.inbox, mail())
    times = []
    for number in range(5):
        before = desk.store.look(stored.place).written_at["modseq"]
        desk.store.set_flags(stored.place, change("replace", str(number)))
        (mirror,) = desk.tables.read(Read(MESSAGE_ID, (desk.inbox, stored.uid), times=True))
        assert before < mirror.written_at["modseq"] <= desk.store.look(stored.place).written_at["modseq"]
        times.append(mirror.written_at["modseq"])
        desk.clock.advance(number * 3)
    assert times == sorted(set(times))


def test_a_copy_by_floor_is_looked_for() -> None:
    desk = Desk(BY_FLOOR)
    stored = desk.store.add(desk.inbox, mail())
    desk.tables.write(Remove(IMAP_UID, (stored.message_id, desk.archive, 1), at=START + 10**9))
    copied = desk.store.copy(stored.place, desk.archive)
    assert copied.uid == 2
    assert desk.drift() == []


def test_a_floor_shortens_the_time_in_which_its_writes_are_sent() -> None:
    usual = WriterSettings()
    assert usual.send_micros - BY_FLOOR.send_micros == BY_FLOOR.skew_seconds * MICROS
    assert BY_FLOOR.send_micros > 0


@pytest.mark.parametrize(("settings", "reads"), [(WriterSettings(), 1), (BY_FLOOR, 0)])
def test_what_the_caller_has_seen_is_not_read_again(settings: WriterSettings, reads: int) -> None:
    desk = Desk(settings)
    stored = desk.store.add(desk.inbox, mail("one", "work"))
    seen = desk.store.look(stored.place)
    desk.faults.seen.clear()
    desk.store.set_flags(stored.place, SEEN, seen)
    assert reads_of(desk) == reads
    assert desk.drift() == []


@WAYS
def test_what_the_caller_saw_may_be_stale(settings: WriterSettings) -> None:
    desk = Desk(settings)
    stored = desk.store.add(desk.inbox, mail())
    seen = desk.store.look(stored.place)
    desk.store.set_flags(stored.place, change("add", "work"))
    desk.store.set_flags(stored.place, SEEN, seen)
    truth = desk.truth(stored.place)
    assert truth is not None
    assert (truth["flagseen"], truth["userflags"]) == (True, frozenset({"work"}))
    assert desk.counters(desk.inbox) == (1, 0)
    assert desk.drift() == []


def test_a_stale_look_cannot_make_a_change_seem_done(desk: Desk) -> None:
    stored = desk.store.add(desk.inbox, mail("one", r"\Seen"))
    seen = desk.store.look(stored.place)
    desk.store.set_flags(stored.place, change("remove", r"\Seen"))
    assert desk.store.set_flags(stored.place, SEEN, seen).modseq == 3
    assert desk.drift() == []


def test_a_look_at_another_place_or_without_times_is_not_believed() -> None:
    desk = Desk(BY_FLOOR)
    one, two = desk.store.add(desk.inbox, mail("one", "work")), desk.store.add(desk.inbox, mail("two"))
    desk.faults.seen.clear()
    desk.store.set_flags(two.place, SEEN, desk.store.look(one.place))
    desk.store.set_flags(one.place, SEEN, Seen(desk.store.look(one.place).row))
    assert reads_of(desk) == 4
    assert desk.drift() == []


def test_a_message_that_is_gone_since_the_caller_looked_stays_gone(desk: Desk, stored: Stored) -> None:
    seen = desk.store.look(stored.place)
    desk.store.delete(stored.place)
    with pytest.raises(UnknownMessage):
        desk.store.set_flags(stored.place, SEEN, seen)
    with pytest.raises(UnknownMessage):
        desk.store.look(stored.place)
    assert desk.rows(IMAP_UID) == []


def test_attachments_are_assigned_whole(desk: Desk) -> None:
    whole = replace(mail(), attachments=(Attachment("a1", "x.pdf"),), message_id=MessageId(desk.clock.new_uuid()))
    for _ in range(2):
        desk.store.add(desk.inbox, whole)
    (content,) = desk.rows(MESSAGE_V3)
    assert len(content["attachments"]) == 1


def test_what_is_not_there_cannot_be_changed(desk: Desk) -> None:
    nowhere = MessageKey(MessageId(desk.clock.new_uuid()), desk.inbox, Uid(1))
    for attempt in (
        lambda: desk.store.set_flags(nowhere, SEEN),
        lambda: desk.store.copy(nowhere, desk.archive),
        lambda: desk.store.move(nowhere, desk.archive),
        lambda: desk.store.delete(nowhere),
        lambda: desk.store.content(nowhere.message_id),
    ):
        with pytest.raises(UnknownMessage):
            attempt()


def test_a_content_of_another_length_than_its_row_says_is_not_handed_out(desk: Desk, stored: Stored) -> None:
    """Encrypted bytes whose salt looks like text: their form alone does not tell."""
    (row,) = desk.rows(MESSAGE_V3)
    asyncio.run(desk.blobs.keep(row["bodycontent"], encrypted(b"body\r\n", salt=b"s" * 39)))

    with pytest.raises(BlobsUnreachable, match=r"has 80 bytes, and its row says 24"):
        desk.store.content(stored.message_id)


def test_a_packed_message_is_read(desk: Desk, stored: Stored) -> None:
    (row,) = desk.rows(MESSAGE_V3)
    content = desk.store.content(stored.message_id)
    chunk, (header, body) = packed(split(content))
    asyncio.run(desk.blobs.keep(CHUNK, chunk))
    desk.tables.write(Put(MESSAGE_V3, {"messageid": row["messageid"], "headercontent": header, "bodycontent": body}))

    assert desk.store.content(stored.message_id) == content


def test_a_message_is_found_by_its_number(desk: Desk, stored: Stored) -> None:
    """IMAP knows mailbox and uid; the mirror leads to the rest."""
    assert desk.store.find(desk.inbox, stored.uid) == stored.place
    assert desk.store.find(desk.inbox, Uid(9)) is None


def test_a_delete_takes_exactly_one_of_two_copies(desk: Desk) -> None:
    one = desk.store.add(desk.inbox, mail())
    two = desk.store.copy(one.place, desk.inbox)
    desk.store.delete(one.place)
    assert desk.truth(one.place) is None
    assert desk.truth(two.place) is not None
    assert desk.drift() == []
