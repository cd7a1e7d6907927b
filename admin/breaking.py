"""Breaks a mail keyspace in the ways that production breaks it: for the demo, for tests and for anyone's game day.

Pure: each kind of damage is a function from one truth row to the writes that do it, named with the verdict that a check
must then give. Never point it at mail that matters. Source: what crashes, lost deletes and resurrections did to James.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from model.catalog.mail import MESSAGES
from model.operations import Change, Count, Put, Remove, Write
from model.projections.family import Family
from model.projections.verdicts import Verdict
from model.schema.table import Row

_FAR_UID = 1_000_000
"""Uids above this are never handed out by a mailbox of a demo, so a row there belongs to nobody."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One kind of damage: its cause, the verdict that a check must give, and the writes that do it."""

    kind: str
    story: str
    expected: tuple[tuple[str, Verdict], ...]
    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class Breaker:
    """The tables as they are live, and the timestamp of every damaging write (microseconds)."""

    family: Family
    at: int

    def missing(self, truth: Row) -> Damage:
        """The process died between the write to the truth and the one to its projection."""
        return self._damage(
            "missing projection",
            "killed between two writes",
            ("messageIdTable", Verdict.PROJECT),
            Remove(self.family.mirror.table, self.family.mirror.key_of(truth), self.at),
        )

    def stale_flags(self, truth: Row) -> Damage:
        """A flag update reached the truth only."""
        return self._mirror_says(truth, "stale flags", "a flag update was lost", flagflagged=not truth["flagflagged"])

    def wrong_flag(self, truth: Row) -> Damage:
        """The projection carries a keyword that the truth never had."""
        change = Change(
            self.family.mirror.table,
            self.family.mirror.key_of(truth),
            add={"userflags": frozenset({"$wrong"})},
            at=self.at,
        )
        return self._damage("wrong keyword", "two updates crossed", ("messageIdTable", Verdict.AMEND), change)

    def stale_modseq(self, truth: Row) -> Damage:
        """The projection is one version behind."""
        return self._mirror_says(truth, "stale modseq", "an update was half applied", modseq=truth["modseq"] - 1)

    def stale_metadata(self, truth: Row) -> Damage:
        """The projection shows another date, which James's own repair never corrects."""
        earlier = truth["internaldate"] - timedelta(days=1)
        return self._mirror_says(truth, "stale date", "an old bug wrote it so", internaldate=earlier)

    def dangling(self, truth: Row) -> Damage:
        """A projection row without a truth: the same message under a uid that it no longer has."""
        row = dict(self.family.mirror.row_of(truth)) | {"uid": truth["uid"] + _FAR_UID}
        put = Put(self.family.mirror.table, row, self.at)
        return self._damage("dangling projection", "a delete lost its half", ("messageIdTable", Verdict.WITHDRAW), put)

    def half_written(self, truth: Row) -> Damage:
        """A flag update came after the delete: a row of two columns."""
        key = (truth["mailboxid"], truth["uid"] + 2 * _FAR_UID)
        change = Change(self.family.mirror.table, key, assign={"flagseen": True, "modseq": truth["modseq"]}, at=self.at)
        return self._damage("half-written row", "update after delete", ("messageIdTable", Verdict.WITHDRAW), change)

    def lost_content(self, truth: Row) -> Damage:
        """The content is gone while the truth still names it."""
        assert self.family.content is not None
        remove = Remove(self.family.content.table, self.family.content.key_of(truth), self.at)
        return self._damage(
            "lost content", "tombstones purged too early", ("messageIdTable", Verdict.LOST_CONTENT), remove
        )

    def torn(self, truth: Row) -> Damage:
        """A flag update resurrected a deleted truth row: only the columns of the update are left."""
        key = self.family.truth.key_of(truth)
        writes = (
            Remove(self.family.truth, key, self.at - 1),
            Change(self.family.truth, key, assign={"modseq": truth["modseq"]}, at=self.at),
        )
        return self._damage("torn truth", "a delete lost to a flag update", ("messageIdTable", Verdict.TORN), *writes)

    def clash(self, truth: Row) -> Damage:
        """Two messages claim one uid."""
        other = UUID(int=truth["messageid"].int ^ (1 << 33), version=1)
        put = Put(self.family.truth, dict(truth) | {"messageid": other, "threadid": other}, self.at)
        content = self._content_of(truth, other)
        return self._damage("clash", "a uid handed out twice", ("messageIdTable", Verdict.CLASH), put, *content)

    def filter_missing(self, truth: Row) -> Damage:
        """An unread message that is not counted among the unread."""
        seen = self.family.filters[0]
        remove = Remove(seen.table, seen.key_of(truth), self.at)
        return self._damage("unseen not listed", "an index write was lost", (seen.name, Verdict.PROJECT), remove)

    def filter_dangling(self, truth: Row) -> Damage:
        """A message listed as deleted that is not deleted."""
        deleted = self.family.filters[1]
        row = {mine: truth[theirs] for mine, theirs in deleted.key}
        put = Put(deleted.table, row, self.at)
        return self._damage("undeletable mail", "an index delete was lost", (deleted.name, Verdict.WITHDRAW), put)

    def counter(self, truth: Row) -> Damage:
        """A mailbox that counts a batch twice: further off than its messages in doubt can explain."""
        counts = self.family.counts[0]
        count = Count(counts.table, counts.key_of(truth), {"count": 50})
        return self._damage("wrong counter", "a batch was counted twice", (counts.name, Verdict.AMEND), count)

    def leak(self, truth: Row) -> Damage:
        """Content that no row names any more."""
        orphan = UUID(int=truth["messageid"].int ^ (1 << 34), version=1)
        return self._damage(
            "leaked content", "the cleanup never ran", ("messageV3", Verdict.LEAK), *self._content_of(truth, orphan)
        )

    def _content_of(self, truth: Row, message_id: UUID) -> tuple[Write, ...]:
        assert self.family.content is not None
        columns = ("internaldate", "bodystartoctet", "fullcontentoctets", "headercontent")
        row: dict[str, Any] = {"messageid": message_id} | {name: truth.get(name) for name in columns}
        return (Put(self.family.content.table, row, self.at),)

    def _mirror_says(self, truth: Row, kind: str, story: str, **columns: object) -> Damage:
        change = Change(self.family.mirror.table, self.family.mirror.key_of(truth), assign=columns, at=self.at)
        return self._damage(kind, story, ("messageIdTable", Verdict.AMEND), change)

    def _damage(self, kind: str, story: str, expected: tuple[str, Verdict], *writes: Write) -> Damage:
        return Damage(kind, story, (expected,), writes)


def _unseen(truth: Row) -> bool:
    return not truth["flagseen"]


def _undeleted(truth: Row) -> bool:
    return not truth["flagdeleted"]


def _any(_truth: Row) -> bool:
    return True


KINDS: tuple[tuple[Callable[[Breaker, Row], Damage], Callable[[Row], bool]], ...] = (
    (Breaker.missing, _any),
    (Breaker.stale_flags, _any),
    (Breaker.wrong_flag, _any),
    (Breaker.stale_modseq, _any),
    (Breaker.stale_metadata, _any),
    (Breaker.dangling, _any),
    (Breaker.half_written, _any),
    (Breaker.lost_content, _any),
    (Breaker.torn, _any),
    (Breaker.clash, _any),
    (Breaker.filter_missing, _unseen),
    (Breaker.filter_dangling, _undeleted),
    (Breaker.counter, _any),
    (Breaker.leak, _any),
)
"""Every kind of damage, with the rows that it fits."""


def break_one_by_one(truths: Sequence[Row], at: int, each: int = 1, family: Family = MESSAGES) -> list[Damage]:
    """Each kind of damage `each` times, no row hurt twice, in a fixed order.

    Args:
        truths: healthy truth rows; at least `each` x the number of kinds of them, or later kinds come short.
        at: stamp of the damaging writes in microseconds; later than the rows' own.
        each: how often each kind is done.
        family: the declarations, bound to the live tables.
    """
    breaker = Breaker(family, at)
    free = list(truths)
    damages: list[Damage] = []
    for damage, fits in KINDS:
        chosen = [row for row in free if fits(row)][:each]
        free = [row for row in free if row not in chosen]
        damages.extend(damage(breaker, row) for row in chosen)
    return damages
