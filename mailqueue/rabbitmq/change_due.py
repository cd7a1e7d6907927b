"""Delayed mails change where they are: their envelopes, and when they are due; their bytes and ids stay.

The changed row is put before the old one goes, in a turn at the old one's partition, in which nothing moves from there.
Whatever is interrupted between the two leaves two rows of one mail: it comes when the first of them is due, and its
mark, as long as it lives, drops the second. So a change that was killed may not hold, but no mail is lost, and none is
delivered twice while marks live; the same command again completes it.
"""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from mailmend.mailqueue.concurrency import all_of, finished, in_batches
from mailmend.mailqueue.queue import Changed, ChangedMail, MailChange, OnRemoved, Unremoved
from mailmend.mailqueue.rabbitmq.move_due import AT_ONCE, FAILURES_MAX, MoverTurns
from mailmend.mailqueue.rabbitmq.parts import Parts
from mailmend.mailqueue.rabbitmq.remove import CALLED_AT_ONCE
from mailmend.mailqueue.rabbitmq.view.due_mails import DueMail, DueMails, DuePartition
from mailmend.mailqueue.rules.mails import Listed
from mailmend.model.errors import MailmendError

_MILLISECOND: Final = timedelta(milliseconds=1)
_AGAIN: Final = "Type the same again in a minute: what was changed stays changed."


@dataclass(slots=True)
class DueChange:
    """One change of the delayed mails of a queue; `on_change` and `on_changed` as in `mailqueue.queue.MailQueue`."""

    parts: Parts
    due: DueMails
    turns: MoverTurns
    change: MailChange
    on_change: OnRemoved | None
    on_changed: Callable[[Listed], None] | None
    dry_run: bool
    count: int = 0
    failed: list[Unremoved] = field(default_factory=list)

    async def carried_out(self) -> Changed:
        """Change what is to be changed, partition by partition; ends after too many failures."""
        async with aclosing(self.due.partitions(self.parts.queue)) as partitions:
            async for partition in partitions:
                if len(self.failed) >= FAILURES_MAX:
                    break
                await self._changed_in(partition)
        return Changed(self.count, tuple(self.failed))

    async def _changed_in(self, partition: DuePartition) -> None:
        """Nothing is waited for, and no turn taken, where nothing is to be changed."""
        mails = self.due.unmarked_under(self.parts.queue, partition)
        async with aclosing(mails), aclosing(in_batches(mails, AT_ONCE)) as batches:
            async for some in batches:
                meant = self._meant(some)
                if not meant:
                    continue
                if self.dry_run:
                    self._note([was for was, _ in meant])
                    continue
                async with self.turns.patiently(lambda: self.turns.at_partition(partition), _AGAIN):
                    there = await self._still_there(partition, some)
                    await finished(self._batch_changed(self._meant(there)))
                if len(self.failed) >= FAILURES_MAX:
                    return

    def _meant(self, some: Sequence[DueMail]) -> list[tuple[DueMail, ChangedMail]]:
        asked = ((due, self.change(due.listed)) for due in some)
        return [(due, to_be) for due, to_be in asked if to_be]

    async def _still_there(self, partition: DuePartition, some: Sequence[DueMail]) -> list[DueMail]:
        """The mails that were not moved before the turn was ours."""
        first = some[0].due_at
        last = some[-1].order
        found = list[DueMail]()
        async with aclosing(self.due.under(self.parts.queue, partition, (first - _MILLISECOND,))) as mails:
            async for mail in mails:
                found.append(mail)
                if mail.order >= last:
                    break
        known = {mail.order for mail in some}
        return [mail for mail in found if mail.order in known]

    async def _batch_changed(self, meant: Sequence[tuple[DueMail, ChangedMail]]) -> None:
        if self.on_change is not None:
            on_change = self.on_change
            await all_of(meant, lambda one: _call(on_change, one[0].listed), CALLED_AT_ONCE)
        placed = await all_of(meant, lambda one: self._put(*one), AT_ONCE)
        moved = [was for (was, _), now in zip(meant, placed, strict=True) if now]
        errors = await self.due.remove_all(self.parts.queue, moved)
        self.failed += [_failed(was, error) for was, error in zip(moved, errors, strict=True) if error]
        self._note([was for (was, _), now in zip(meant, placed, strict=True) if now])

    async def _put(self, was: DueMail, to_be: ChangedMail) -> DueMail | None:
        """Where it lies now; None where it could not be put there, and is as it was.

        Never where it lay: by a clock behind ours a row cannot be written over, only removed.
        """
        listed = replace(was.listed, queued=replace(was.listed.queued, mail=to_be.mail), due_at=to_be.due_at)
        try:
            placed = await self.due.put(self.parts.queue, listed, again=True)
            if placed.order == was.order:
                listed = replace(listed, due_at=was.due_at + _MILLISECOND)
                placed = await self.due.put(self.parts.queue, listed, again=True)
        except MailmendError as error:
            self.failed.append(_failed(was, error))
            return None
        return placed

    def _note(self, changed: Sequence[DueMail]) -> None:
        self.count += len(changed)
        if self.on_changed is not None:
            for was in changed:
                self.on_changed(was.listed)


async def _call(on_change: OnRemoved, listed: Listed) -> None:
    await on_change(listed)


def _failed(was: DueMail, error: MailmendError) -> Unremoved:
    return Unremoved(was.enqueue_id, error.what)
