"""Truth rows as values: which cells an insert, a change and a copy write, and on what condition."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailmend.model.catalog.mail import IMAP_UID, MESSAGE_V3
from mailmend.model.errors import MailmendError
from mailmend.model.ids import MailboxId, MessageId, ModSeq, Uid
from mailmend.model.operations import Change, ChangeIf, PutIfAbsent, RemoveIf, Seen
from mailmend.model.table import Column
from mailmend.repair.store.message import (
    Attachment,
    Flags,
    FlagsChange,
    FlagsMode,
    MessageKey,
    NewMail,
    SystemFlag,
    flags_of,
    parse_flags,
    split_mail,
)
from mailmend.repair.store.plans import (
    MODSEQ_COLUMN,
    BlobIds,
    Position,
    change_between,
    content_row,
    copied_row,
    flagged_row,
    guard_of,
    guarded_change,
    guarded_removal,
    insert_of,
    place_of,
    renumbered_row,
    stamp_after,
    stamp_between,
    truth_row,
)
from tests.support import repairing
from tests.support.clock import uuid_at
from tests.support.writing import mail

NOW = datetime(2026, 5, 6, tzinfo=UTC)
PLACE = MessageKey(MessageId(uuid_at(0, 1)), MailboxId(uuid_at(0, 2)), Uid(3))
POSITION = Position(PLACE, ModSeq(4), NOW)
BLOBS = BlobIds("header blob", "body blob")
ATTACHED = Attachment("id", "a.txt", None, is_inline=False)

flags = st.builds(
    Flags,
    st.frozensets(st.sampled_from(list(SystemFlag))),
    st.frozensets(st.sampled_from(("a", "b", "c"))),
)
changes = st.builds(FlagsChange, st.sampled_from(FlagsMode), flags)


MAIL = NewMail(b"A: b\r\n\r\n", b"text", NOW - timedelta(days=1), parse_flags([r"\Seen", "work"]))
HALVES = {
    "internaldate": MAIL.internal_date,
    "bodystartoctet": 8,
    "fullcontentoctets": 12,
    "headercontent": "header blob",
}


def test_a_truth_row_has_what_every_insert_writes() -> None:
    """Every column of the newest generation, whole; a message that answers none is a thread of its own."""
    there = {"messageid": PLACE.message_id, "mailboxid": PLACE.mailbox_id, "uid": 3, "modseq": 4, "save_date": NOW}
    row = truth_row(IMAP_UID, MAIL, BLOBS, POSITION)
    assert row == {**there, "threadid": PLACE.message_id, **MAIL.flags.as_row(), **HALVES}
    assert place_of(row) == PLACE
    assert truth_row(IMAP_UID, replace(MAIL, thread_id=uuid_at(0, 5)), BLOBS, POSITION)["threadid"] == uuid_at(0, 5)


def test_a_content_row_says_where_both_halves_are_kept() -> None:
    """And what is attached; nothing rather than an empty list."""
    row = {"messageid": PLACE.message_id, **HALVES, "bodycontent": "body blob", "attachments": None}
    assert content_row(MESSAGE_V3, PLACE.message_id, MAIL, BLOBS) == row
    attached = replace(MAIL, attachments=(ATTACHED,))
    assert content_row(MESSAGE_V3, PLACE.message_id, attached, BLOBS)["attachments"] == (ATTACHED.as_cell(),)


def test_columns_that_the_live_table_lacks_are_not_written() -> None:
    """An older or newer generation of the schema is respected."""
    older = IMAP_UID.with_columns((*IMAP_UID.columns, Column("flagUser", "boolean"), Column("note", "text")))
    newer = IMAP_UID.with_columns(column for column in IMAP_UID.columns if column.name != "save_date")
    assert truth_row(older, mail(), BLOBS, POSITION)["flaguser"] is False
    assert "note" not in truth_row(older, mail(), BLOBS, POSITION)
    assert "save_date" not in truth_row(newer, mail(), BLOBS, POSITION)
    wide = MESSAGE_V3.with_columns((*MESSAGE_V3.columns, Column("bodyOctets", "bigint")))
    assert content_row(wide, PLACE.message_id, mail(), BLOBS)["bodyoctets"] == len(mail().body)


def test_an_empty_set_is_left_unset() -> None:
    """Writing an empty set would leave a tombstone in every row."""
    row = truth_row(IMAP_UID, mail(), BLOBS, POSITION)
    assert insert_of(IMAP_UID, row) == PutIfAbsent(IMAP_UID, {**row, "userflags": None})
    assert insert_of(IMAP_UID, {**row, "userflags": frozenset({"work"})}).row["userflags"] == {"work"}


def test_a_copy_differs_in_its_place_only() -> None:
    r"""Mailbox, uid, modseq, save date and \Recent; everything else stays."""
    row = truth_row(IMAP_UID, mail("x", r"\Seen"), BLOBS, POSITION)
    there = Position(
        MessageKey(PLACE.message_id, MailboxId(uuid_at(0, 9)), Uid(7)), ModSeq(8), datetime(2027, 1, 1, tzinfo=UTC)
    )
    copied = copied_row(row, there)
    assert {name for name in row if row[name] != copied[name]} == {
        "mailboxid",
        "uid",
        "modseq",
        "save_date",
        "flagrecent",
    }
    assert renumbered_row(copied, Uid(9))["uid"] == 9
    older = {name: cell for name, cell in row.items() if name != "save_date"}
    assert "save_date" not in copied_row(older, there)


@settings(deadline=None)
@given(flags, changes)
def test_a_change_makes_of_the_row_what_the_algebra_says(before: Flags, change: FlagsChange) -> None:
    """Applying the planned cells and elements to the old row gives the flags that the change demands."""
    row = {**repairing.truth_row(1), **before.as_row()}
    after = flagged_row(row, change, ModSeq(9))
    wanted = change.applied_to(before)
    if after is None:
        assert wanted == before
        return
    assert (flags_of(after), after["modseq"]) == (wanted, 9)
    assert wanted != before
    planned = change_between(IMAP_UID, row, after)
    cells = {**row, **planned.assign}
    sets = (cells["userflags"] | planned.add.get("userflags", frozenset())) - planned.take.get("userflags", frozenset())
    assert flags_of({**cells, "userflags": sets}) == wanted


@settings(deadline=None)
@given(flags, changes)
def test_only_cells_that_differ_are_written(before: Flags, change: FlagsChange) -> None:
    """The time of each cell stays the time of its own last change."""
    row = {**repairing.truth_row(1), **before.as_row()}
    after = flagged_row(row, change, ModSeq(9))
    if after is not None:
        planned = change_between(IMAP_UID, row, after)
        assert all(row[name] != value for name, value in planned.assign.items())
        assert "userflags" not in planned.assign


def test_a_change_is_guarded_by_the_modseq_that_was_seen() -> None:
    """Exactly this row, as it was seen; only cells that differ, sets element by element."""
    row = repairing.truth_row(1, modseq=5, threadid=uuid_at(0, 5), userflags=frozenset({"a", "b"}))
    after = {**row, "flagseen": True, "modseq": 6, "userflags": frozenset({"b", "c"})}
    elements = ({"userflags": frozenset({"c"})}, {"userflags": frozenset({"a"})})
    cells, guard, key = {"modseq": 6, "flagseen": True}, {"modseq": 5}, IMAP_UID.key_of(row)
    assert guarded_change(IMAP_UID, row, after, MODSEQ_COLUMN) == ChangeIf(IMAP_UID, key, guard, cells, *elements)
    assert change_between(IMAP_UID, row, {**row, "flagseen": True}) == Change(IMAP_UID, key, {"flagseen": True})
    assert guarded_removal(IMAP_UID, row, MODSEQ_COLUMN) == RemoveIf(IMAP_UID, key, guard)


def test_a_null_modseq_is_guarded_by_another_column_too() -> None:
    """`IF modseq = null` alone would also hold for a row that is gone; a set cannot be compared."""
    row = {"userflags": frozenset({"a"}), "internaldate": NOW, "headercontent": "x"}
    assert guard_of(IMAP_UID, row, MODSEQ_COLUMN) == {"modseq": None, "internaldate": NOW}


def test_a_row_of_nulls_cannot_be_guarded() -> None:
    """Nothing tells such a row from one that is gone: a change would make half a row of a deleted one."""
    row = dict.fromkeys(IMAP_UID.names) | {"messageid": PLACE.message_id, "mailboxid": PLACE.mailbox_id}
    row |= {"uid": 3}
    with pytest.raises(MailmendError, match="torn"):
        guarded_change(IMAP_UID, row, {**row, "flagseen": True, "modseq": 1}, MODSEQ_COLUMN)
    assert guarded_removal(IMAP_UID, row, MODSEQ_COLUMN).expected == {"modseq": None}


def test_a_stamp_lies_after_all_that_was_seen() -> None:
    """Now, or just above the newest cell where that lies ahead."""
    assert stamp_after(100, Seen({}, {})) == 100
    assert stamp_after(100, Seen({}, {"modseq": 50, "flagseen": 90})) == 100
    assert stamp_after(100, Seen({}, {"modseq": 500, "flagseen": 90})) == 501


def test_a_mail_is_split_where_its_body_begins() -> None:
    """The empty line belongs to the header; a mail without one is header alone."""
    assert split_mail(b"A: b\r\n\r\nbody") == (b"A: b\r\n\r\n", b"body")
    assert split_mail(b"A: b\n\nbody\r\n\r\nmore") == (b"A: b\n\n", b"body\r\n\r\nmore")
    assert split_mail(b"A: b\r\n") == (b"A: b\r\n", b"")
    assert split_mail(b"\nbody\n\n") == (b"\n", b"body\n\n")
    assert split_mail(b"") == (b"", b"")


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_splitting_loses_nothing(content: bytes) -> None:
    """Header and body together are the mail."""
    assert b"".join(split_mail(content)) == content


times = st.integers(0, 1000)


@given(before=times, later=st.integers(1, 1000), asked=times, skew=st.integers(0, 50), other=times)
def test_a_stamp_between_lies_past_the_version_before_and_no_later_than_the_next(
    before: int, later: int, asked: int, skew: int, other: int
) -> None:
    """Wherever a node's clock stands, as long as it is no further than the skew behind the writer's."""
    own = max(before + later, asked - skew)  # a node stamps past what stands, and by its own clock

    stamp = stamp_between(Seen({}, {"modseq": before, "flagseen": other}), asked - skew, MODSEQ_COLUMN)

    assert before < stamp <= own
    assert stamp >= asked - skew


def test_a_stamp_between_without_a_version_before_is_the_floor() -> None:
    """An insert; or a row of which no time can be read. A row without a modseq is as old as its newest cell."""
    assert stamp_between(None, 7, MODSEQ_COLUMN) == stamp_between(Seen({}, {}), 7, MODSEQ_COLUMN) == 7
    assert stamp_between(Seen({}, {"flagseen": 30}), 7, MODSEQ_COLUMN) == 31
