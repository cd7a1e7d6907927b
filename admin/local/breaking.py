"""Breaks a mail keyspace in the ways that production breaks it: for the demo, for tests and for anyone's game day.

Pure: each kind of damage is a function from one truth row to the writes that do it, named with the verdict that a check
must then give. Never point it at mail that matters. Source: what crashes, lost deletes and resurrections did to James.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from mailmend.model.catalog.mail import MESSAGES
from mailmend.model.operations import Change, Count, Put, Remove, Write
from mailmend.model.projections.family import Family
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Row

FAR_UID = 1_000_000
"""Uids above this are never handed out by a mailbox of a demo, so a row there has no owner."""

Writes = tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class DamageKind:
    """One kind of damage.

    Attributes:
        story: its cause.
        projection, verdict: what a check must find.
        writes: (live tables, truth row, timestamp in microseconds) -> the writes that do it.
        fits: which truth rows can be hurt so.
    """

    name: str
    story: str
    projection: str
    verdict: Verdict
    writes: Callable[[Family, Row, int], Writes]
    fits: Callable[[Row], bool] = lambda _: True


@dataclass(frozen=True, slots=True)
class Damage:
    """A damage done to one row."""

    kind: DamageKind
    writes: Writes


def _missing(family: Family, truth: Row, at: int) -> Writes:
    return (Remove(family.mirror.table, family.mirror.key_of(truth), at),)


def _stale_flags(family: Family, truth: Row, at: int) -> Writes:
    return _mirror_says(family, truth, at, flagflagged=not truth["flagflagged"])


def _wrong_keyword(family: Family, truth: Row, at: int) -> Writes:
    add = {"userflags": frozenset({"$wrong"})}
    return (Change(family.mirror.table, family.mirror.key_of(truth), add=add, at=at),)


def _stale_modseq(family: Family, truth: Row, at: int) -> Writes:
    return _mirror_says(family, truth, at, modseq=truth["modseq"] - 1)


def _stale_date(family: Family, truth: Row, at: int) -> Writes:
    """James's own repair never corrects it."""
    return _mirror_says(family, truth, at, internaldate=truth["internaldate"] - timedelta(days=1))


def _dangling(family: Family, truth: Row, at: int) -> Writes:
    """The same message under a uid that it no longer has."""
    return (Put(family.mirror.table, dict(family.mirror.row_of(truth)) | {"uid": truth["uid"] + FAR_UID}, at),)


def _half_written(family: Family, truth: Row, at: int) -> Writes:
    """A row of two columns."""
    key = (truth["mailboxid"], truth["uid"] + 2 * FAR_UID)
    return (Change(family.mirror.table, key, assign={"flagseen": True, "modseq": truth["modseq"]}, at=at),)


def _lost_content(family: Family, truth: Row, at: int) -> Writes:
    assert family.content is not None
    return (Remove(family.content.table, family.content.key_of(truth), at),)


def _torn(family: Family, truth: Row, at: int) -> Writes:
    """Only the columns of the flag update are left."""
    key = family.truth.key_of(truth)
    return (
        Remove(family.truth, key, at - 1),
        Change(family.truth, key, assign={"modseq": truth["modseq"]}, at=at),
    )


def _clash(family: Family, truth: Row, at: int) -> Writes:
    """Two messages claim one uid."""
    other = UUID(int=truth["messageid"].int ^ (1 << 33), version=1)
    put = Put(family.truth, dict(truth) | {"messageid": other, "threadid": other}, at)
    return (put, _content_of(family, truth, other, at))


def _unlisted(family: Family, truth: Row, at: int) -> Writes:
    unseen = family.filters[0]
    return (Remove(unseen.table, unseen.key_of(truth), at),)


def _undeletable(family: Family, truth: Row, at: int) -> Writes:
    """A message listed as deleted that is not deleted."""
    deleted = family.filters[1]
    return (Put(deleted.table, {mine: truth[theirs] for mine, theirs in deleted.key}, at),)


def _wrong_counter(family: Family, truth: Row, _at: int) -> Writes:
    """Further off than the messages in doubt can explain."""
    counts = family.counts[0]
    return (Count(counts.table, counts.key_of(truth), {"count": 50}),)


def _leaked(family: Family, truth: Row, at: int) -> Writes:
    return (_content_of(family, truth, UUID(int=truth["messageid"].int ^ (1 << 34), version=1), at),)


def _content_of(family: Family, truth: Row, message_id: UUID, at: int) -> Put:
    assert family.content is not None
    row: dict[str, Any] = {"messageid": message_id}
    for name in ("internaldate", "bodystartoctet", "fullcontentoctets", "headercontent"):
        row[name] = truth.get(name)
    return Put(family.content.table, row, at)


def _mirror_says(family: Family, truth: Row, at: int, **columns: object) -> Writes:
    return (Change(family.mirror.table, family.mirror.key_of(truth), assign=columns, at=at),)


def _unseen(truth: Row) -> bool:
    return not truth["flagseen"]


def _undeleted(truth: Row) -> bool:
    return not truth["flagdeleted"]


_MIRROR, (_UNSEEN, _DELETED, *_) = MESSAGES.mirror.name, [projection.name for projection in MESSAGES.filters]
WRONG_COUNTER = DamageKind(
    "wrong counter", "a batch was counted twice", MESSAGES.counts[0].name, Verdict.AMEND, _wrong_counter
)
KINDS: tuple[DamageKind, ...] = (
    DamageKind("missing projection", "killed between two writes", _MIRROR, Verdict.PROJECT, _missing),
    DamageKind("stale flags", "a flag update was lost", _MIRROR, Verdict.AMEND, _stale_flags),
    DamageKind("wrong keyword", "two updates crossed", _MIRROR, Verdict.AMEND, _wrong_keyword),
    DamageKind("stale modseq", "an update was half applied", _MIRROR, Verdict.AMEND, _stale_modseq),
    DamageKind("stale date", "an old bug wrote it so", _MIRROR, Verdict.AMEND, _stale_date),
    DamageKind("dangling projection", "a delete lost its half", _MIRROR, Verdict.WITHDRAW, _dangling),
    DamageKind("half-written row", "update after delete", _MIRROR, Verdict.WITHDRAW, _half_written),
    DamageKind("lost content", "tombstones purged too early", _MIRROR, Verdict.LOST_CONTENT, _lost_content),
    DamageKind("torn truth", "a delete lost to a flag update", _MIRROR, Verdict.TORN, _torn),
    DamageKind("clash", "a uid handed out twice", _MIRROR, Verdict.CLASH, _clash),
    DamageKind("unseen not listed", "an index write was lost", _UNSEEN, Verdict.PROJECT, _unlisted, _unseen),
    DamageKind("undeletable mail", "an index delete was lost", _DELETED, Verdict.WITHDRAW, _undeletable, _undeleted),
    WRONG_COUNTER,
    DamageKind("leaked content", "the cleanup never ran", "messageV3", Verdict.LEAK, _leaked),
)

MESSAGES_MIN = 60
"""How many healthy messages are enough for three damages of each kind."""


def break_one_by_one(truths: Sequence[Row], at: int, each: int = 1, family: Family = MESSAGES) -> list[Damage]:
    """Each kind of damage `each` times, no row hurt twice, in a fixed order.

    Args:
        truths: healthy truth rows; at least `each` x the number of kinds of them, or later kinds come short.
        at: stamp of the damaging writes in microseconds; later than the rows' own.
        each: how often each kind is done.
        family: the declarations, bound to the live tables.
    """
    free = list(truths)
    damages: list[Damage] = []
    for kind in KINDS:
        chosen = [row for row in free if kind.fits(row)][:each]
        free = [row for row in free if row not in chosen]
        for row in chosen:
            damages.append(Damage(kind, kind.writes(family, row, at)))
    return damages
