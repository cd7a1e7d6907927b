"""Truth rows and the conditional writes that change them, as values.

Pure. A truth row is changed only on condition that it is still as it was seen, and only in the
cells that differ, so that each cell keeps the time of its last change. Columns that a generation of
the schema lacks are neither written nor expected.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mailmend.model.errors import MailmendError
from mailmend.model.ids import MessageId, ModSeq, Uid
from mailmend.model.operations import Change, ChangeIf, PutIfAbsent, RemoveIf, Seen
from mailmend.model.table import Row, Table
from mailmend.repair.store.flags import FlagsChange, SystemFlag, flags_of
from mailmend.repair.store.message import MessageKey, NewMail


@dataclass(frozen=True, slots=True)
class BlobIds:
    """Where the two halves of a mail's content are kept."""

    header: str
    body: str


@dataclass(frozen=True, slots=True)
class Position:
    """What a message gets in a mailbox: its place, its first modseq, the time of saving."""

    place: MessageKey
    modseq: ModSeq
    saved_at: datetime


def content_row(table: Table, message_id: MessageId, mail: NewMail, blobs: BlobIds) -> Row:
    """The content row of a mail, in the live table's columns. Attachments are assigned as a whole."""
    row = {
        "messageid": message_id,
        "internaldate": mail.internal_date,
        "bodystartoctet": len(mail.header),
        "bodyoctets": len(mail.body),
        "fullcontentoctets": mail.octets,
        "headercontent": blobs.header,
        "bodycontent": blobs.body,
        "attachments": tuple(attachment.as_cell() for attachment in mail.attachments) or None,
    }
    return _live(table, row)


def truth_row(truth: Table, mail: NewMail, blobs: BlobIds, position: Position) -> Row:
    """The truth row of an arriving mail, in the live table's columns."""
    row = {
        "messageid": position.place.message_id,
        "mailboxid": position.place.mailbox_id,
        "uid": position.place.uid,
        "threadid": mail.thread_id or position.place.message_id,
        "modseq": position.modseq,
        "flaguser": False,
        **mail.flags.as_row(),
        "internaldate": mail.internal_date,
        "save_date": position.saved_at,
        "bodystartoctet": len(mail.header),
        "fullcontentoctets": mail.octets,
        "headercontent": blobs.header,
    }
    return _live(truth, row)


def copied_row(row: Row, position: Position) -> Row:
    r"""The truth row of a copy: the same message at another place, \\Recent there, saved now."""
    changed = {
        "mailboxid": position.place.mailbox_id,
        "uid": position.place.uid,
        "modseq": position.modseq,
        "save_date": position.saved_at,
        SystemFlag.RECENT.value: True,
    }
    known = {name: value for name, value in changed.items() if name in row}
    return {**row, **known}


def renumbered_row(row: Row, uid: Uid) -> Row:
    """The same row under another uid: the first one was taken, or hidden by a deletion."""
    return {**row, "uid": uid}


def place_of(row: Row) -> MessageKey:
    return MessageKey(row["messageid"], row["mailboxid"], row["uid"])


def flagged_row(row: Row, change: FlagsChange, modseq: ModSeq) -> Row | None:
    """The truth row after a change of flags, or None where nothing changes."""
    before = flags_of(row)
    after = change.applied_to(before)
    if after == before:
        return None
    return {**row, **after.as_row(), "modseq": modseq}


def insert_of(truth: Table, row: Row) -> PutIfAbsent:
    """The conditional insert of a truth row; empty sets stay unset, since writing one leaves a tombstone."""
    return PutIfAbsent(truth, _unset_empty(truth, row))


def change_between(truth: Table, before: Row, after: Row) -> Change:
    """The plain write from one truth row to the other: only the cells that differ."""
    add, take = _differing(truth, before, after)
    cells = {name: after[name] for name in truth.plain if name in after and after[name] != before.get(name)}
    return Change(truth, truth.key_of(before), cells, add, take)


def guarded_change(truth: Table, before: Row, after: Row) -> ChangeIf:
    """The same write, on condition that the row is still as it was seen.

    Raises:
        MailmendError: the row has no cell to compare.
    """
    plain = change_between(truth, before, after)
    guard = guard_of(truth, before)
    if all(cell is None for cell in guard.values()):
        raise MailmendError(
            f"the row of {truth.spelling} at {plain.key} is torn: it has no cell by which it could be recognised",
            mend="Delete it: nothing but its key is left. `mailmend check messages` lists such rows as TORN.",
        )
    return ChangeIf(truth, plain.key, guard, plain.assign, plain.add, plain.take)


def guarded_removal(truth: Table, seen: Row) -> RemoveIf:
    """The delete of one row, on condition that it is still as it was seen."""
    return RemoveIf(truth, truth.key_of(seen), guard_of(truth, seen))


def guard_of(truth: Table, seen: Row) -> Row:
    """The cells of the condition: the modseq; with a null modseq also a column that is not null.

    `IF modseq = null` also holds for an absent row: alone it would bring a deleted row back.
    """
    modseq = seen.get("modseq")
    if modseq is not None:
        return {"modseq": modseq}
    for column in truth.regular:
        if not column.is_collection and seen.get(column.name) is not None:
            return {"modseq": None, column.name: seen[column.name]}
    return {"modseq": None}


def stamp_after(now: int, seen: Seen) -> int:
    """A stamp later than all that was seen: for a delete (docs/design.md, "Write path")."""
    if seen.newest is None:
        return now
    return max(now, seen.newest + 1)


def stamp_between(before: Seen | None, floor: int) -> int:
    """A stamp later than the earlier version and no later than the one that replaced it.

    Args:
        before: the version that a conditional write replaced, None for an insert.
        floor: microseconds; no node's clock was behind it when that write was sent.
    """
    if before is None:
        return floor
    replaced = before.written_at.get("modseq", before.newest)
    if replaced is None:
        return floor
    return max(floor, replaced + 1)


def _live(table: Table, row: Mapping[str, Any]) -> Row:
    return {name: row[name] for name in table.names if name in row}


def _unset_empty(truth: Table, row: Row) -> Row:
    empty = [name for name in truth.collections if not row.get(name)]
    if not empty:
        return row
    return {**row, **dict.fromkeys(empty)}


def _differing(table: Table, old: Row, new: Row) -> tuple[dict[str, frozenset[Any]], dict[str, frozenset[Any]]]:
    """For each set column the elements that only the new row has, and those that only the old one has."""
    add = {}
    take = {}
    for name in table.collections:
        was = frozenset(old.get(name) or ())
        is_ = frozenset(new.get(name) or ())
        if is_ - was:
            add[name] = is_ - was
        if was - is_:
            take[name] = was - is_
    return add, take
