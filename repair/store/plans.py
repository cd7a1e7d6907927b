"""A change of the truth as values: truth rows, their conditional writes, and what follows for the projections.

Pure, and driven by the declarations of a Family: no table of the mail keyspace is named here.

A truth row is changed only on condition that it is still as it was seen, and only in the cells that
differ, so that each cell keeps the time of its last change. Columns that a generation of the schema
lacks are neither written nor expected.

The mirror is written whole with every change of flags, not only in the columns that changed: all
writes of one row carry the time of the truth's own change, so per cell the latest truth wins in any
order of arrival, the next write heals a lost one, and a change whose insert was lost makes no half
row. A delete carries a later time than all of them, so none that is still in flight brings anything
back. Set columns are changed element by element: assigning them would leave a range tombstone in
the row each time (JAMES-3626).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from mailmend.model.errors import MailmendError
from mailmend.model.ids import MessageId, ModSeq, Uid
from mailmend.model.operations import Change, ChangeIf, Count, Put, PutIfAbsent, Remove, RemoveIf, Seen, Write
from mailmend.model.projections.family import Family
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.projection import Mirror, Projection
from mailmend.model.projections.valued import Valued
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row, Table, names_of
from mailmend.repair.store.message import FlagsChange, MessageKey, NewMail, SystemFlag, flags_of

MODSEQ_COLUMN: Final = "modseq"
"""The column of mail that changes with every change of a row of truth."""


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


def guarded_change(truth: Table, before: Row, after: Row, version: str | None) -> ChangeIf:
    """The same write, on condition that the row is still as it was seen.

    Raises:
        MailmendError: the row has no cell to compare.
    """
    plain = change_between(truth, before, after)
    guard = guard_of(truth, before, version)
    if version is not None and all(cell is None for cell in guard.values()):
        raise MailmendError(
            f"the row of {truth.spelling} at {plain.key} is torn: it has no cell by which it could be recognised",
            mend="Delete it: nothing but its key is left. `mailmend check messages` lists such rows as TORN.",
        )
    return ChangeIf(truth, plain.key, guard, plain.assign, plain.add, plain.take)


def guarded_removal(truth: Table, seen: Row, version: str | None) -> RemoveIf:
    """The delete of one row, on condition that it is still as it was seen."""
    return RemoveIf(truth, truth.key_of(seen), guard_of(truth, seen, version))


def guard_of(truth: Table, seen: Row, version: str | None) -> Row:
    """The cells of the condition: the version; with a null version also a column that is not null.

    `IF modseq = null` also holds for an absent row: alone it would bring a deleted row back.

    Args:
        truth: the table.
        seen: the row.
        version: the column that changes with every change of a row, such as the modseq; None: no
            column does, and every cell is in the condition. A row without cells has to exist.
    """
    if version is None:
        cells = {name: seen.get(name) for name in names_of(truth.regular)}
        emptied = {name: None for name in truth.collections if not cells[name]}
        guard = {**cells, **emptied}
        if all(cell is None for cell in guard.values()):
            return {}  # the row has its key alone, and need only exist
        return guard
    if seen.get(version) is not None:
        return {version: seen[version]}
    for column in truth.regular:
        if not column.is_collection and seen.get(column.name) is not None:
            return {version: None, column.name: seen[column.name]}
    return {version: None}


def stamp_after(now: int, seen: Seen) -> int:
    """A stamp later than all that was seen: for a delete (docs/design.md, "Write path")."""
    if seen.newest is None:
        return now
    return max(now, seen.newest + 1)


def stamp_between(before: Seen | None, floor: int, version: str | None) -> int:
    """A stamp later than the earlier version and no later than the one that replaced it.

    Args:
        before: the version that a conditional write replaced, None for an insert.
        floor: microseconds; no node's clock was behind it when that write was sent.
        version: as for `guard_of`.
    """
    if before is None:
        return floor
    replaced = written_at(before, version)
    if replaced is None:
        return floor
    return max(floor, replaced + 1)


def written_at(seen: Seen, version: str | None) -> int | None:
    """When the row got its version, in microseconds; without one, the newest visible time."""
    if version is None:
        return seen.newest
    return seen.written_at.get(version, seen.newest)


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


@dataclass(frozen=True, slots=True)
class Consequence:
    """One projection write that a change of the truth demands."""

    projection: Projection
    write: Write

    @property
    def key(self) -> Key:
        if isinstance(self.write, Put):
            return self.write.table.key_of(self.write.row)
        return self.write.key

    @property
    def is_shared_removal(self) -> bool:
        """Whether it removes a row that other truth rows may demand."""
        if not isinstance(self.write, Remove) or not isinstance(self.projection, Mirror):
            return False
        return self.projection.claims.are_compared

    def suspect(self, keys: tuple[Key, ...]) -> Suspect:
        """The suspect to journal when this write failed."""
        match self.write:
            case Put():
                return Suspect(self.projection.name, self.key, Verdict.PROJECT, keys)
            case Remove():
                return Suspect(self.projection.name, self.key, Verdict.WITHDRAW, keys)
            case Change(add=add):
                return Suspect(self.projection.name, self.key, Verdict.AMEND, keys, self.projection.owed(add))
            case Count():
                return Suspect(self.projection.name, self.key, Verdict.AMEND)


def truth_keys(family: Family, row: Row) -> tuple[Key, ...]:
    """A truth row's partition key, by which a second look finds the truth."""
    return (family.truth.partition_of(row),)


def suspects_of(family: Family, row: Row) -> tuple[Suspect, ...]:
    """The projections of a truth row, for a row whose change is uncertain."""
    keys = truth_keys(family, row)
    suspects = []
    mirror = family.mirror
    for part in mirror.unnested(row):
        if mirror.is_demanded_by(part):
            suspects.append(Suspect(mirror.name, mirror.key_of(part), Verdict.AMEND, keys))
    for filtered in family.filters:
        if filtered.is_demanded_by(row):
            suspects.append(Suspect(filtered.name, filtered.key_of(row), Verdict.AMEND, keys))
    for union in family.unions:
        elements = frozenset(row.get(union.column) or ())
        if elements and union.is_demanded_by(row):
            suspects.append(Suspect(union.name, union.key_of(row), Verdict.AMEND, keys, {union.column: elements}))
    valued: tuple[Valued, ...] = (*family.numbers, *family.bounds)
    for group in valued:
        if group.is_demanded_by(row):
            suspects.append(Suspect(group.name, group.key_of(row), Verdict.AMEND))
    suspects += [recount.suspect(()) for recount in recounts_for(family, row)]
    return tuple(suspects)


def writes_for(family: Family, before: Row | None, after: Row | None, stamp: int) -> tuple[Consequence, ...]:
    """The projection writes of one change of one truth row, under one stamp; no counters.

    Args:
        family: the declarations.
        before: the truth row before the change, or None for an insert.
        after: the truth row after it, or None for a delete.
        stamp: microseconds; the time of the truth's change.
    """
    demanded = []
    for projection in family.projections:
        for write in projection.writes_for(before, after, stamp):
            demanded.append(Consequence(projection, write))
    return tuple(demanded)


def counts_for(family: Family, before: Row | None, after: Row | None) -> tuple[Consequence, ...]:
    """What a change of one truth row adds to counters of one group, or of two: sent once."""
    found = []
    for counts in family.counts:
        groups: dict[Key, Counter[str]] = {}
        for row, sign in ((after, 1), (before, -1)):
            key = counts.key_demanded_by(row)
            if key is not None and row is not None:
                group = groups.setdefault(key, Counter())
                for name, number in counts.deltas_of(row).items():
                    group[name] += sign * number
        for key, group in groups.items():
            changed = _without_zeros(group)
            if changed:
                found.append(Consequence(counts, Count(counts.table, key, changed)))
    return tuple(found)


def _without_zeros(deltas: Mapping[str, int]) -> dict[str, int]:
    return {name: delta for name, delta in deltas.items() if delta}


def recounts_for(family: Family, row: Row) -> tuple[Consequence, ...]:
    """The counters of a row's group, to be counted again."""
    recounts = []
    for counts in family.counts:
        if counts.is_demanded_by(row):
            recounts.append(Consequence(counts, Count(counts.table, counts.key_of(row), {})))
    return tuple(recounts)


def merged_counts(consequences: Iterable[Consequence]) -> tuple[Consequence, ...]:
    """One count per group, so that a batch adds to each counter once."""
    single = tuple(consequences)
    if len(single) == 1:
        return single
    sums: dict[tuple[str, Key], tuple[Projection, Table, Counter[str]]] = {}
    for consequence in single:
        assert isinstance(consequence.write, Count)
        _, _, total = sums.setdefault(
            (consequence.projection.name, consequence.key), (consequence.projection, consequence.write.table, Counter())
        )
        total.update(consequence.write.deltas)
    found = []
    for (_, key), (projection, table, total) in sums.items():
        deltas = _without_zeros(total)
        if deltas:
            found.append(Consequence(projection, Count(table, key, deltas)))
    return tuple(found)
