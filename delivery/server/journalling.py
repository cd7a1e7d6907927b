"""The journal of attempts as a server of deliveries keeps it, and what becomes of attempts without a known outcome.

Where a recipient may get a mail twice (`--uncertain retry`), deliveries go on without a journal that does not answer.
Where none may, no content is sent before the journal has its attempt, and an outcome is written until it is there.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final
from uuid import UUID

from mailmend.delivery.ledger.attempts import LedgerAttempts
from mailmend.delivery.mail.attempts import ENDS, JournalledAttempt, UncertainPolicy, decisive
from mailmend.delivery.mail.entries import (
    HELD_FOR,
    DeliveryEntry,
    EndedEntry,
    EntryAction,
    EntryChange,
    EntryEnd,
)
from mailmend.delivery.metrics import journal_samples
from mailmend.delivery.server.held_mails import HeldMail
from mailmend.model.durations import LOOK_AGAIN
from mailmend.model.errors import MailmendError
from mailmend.model.ids import QueueName
from mailmend.model.instants import instant_of
from mailmend.model.metrics import MetricSample
from mailmend.model.ports import Clock

_LOG: Final = logging.getLogger("mailmend.delivery")

_WORDS_LOST: Final = "its server said so to a process that has ended; the words are not kept"


@dataclass(slots=True, eq=False)
class AttemptJournal:
    """The journal of one server.

    Attributes:
        ledger: None: nothing is written, and nothing is known of earlier attempts.
        policy: what becomes of a recipient whose server may have the mail.
        server: the name of this process.
        uncertain: how many recipients the policy has decided on.
    """

    queue: QueueName
    ledger: LedgerAttempts | None
    policy: UncertainPolicy
    clock: Clock
    server: str
    uncertain: Counter[UncertainPolicy] = field(default_factory=Counter)
    _unwritten: set[UUID] = field(default_factory=set)
    _failing: bool = False

    def samples(self) -> Iterator[MetricSample]:
        """What monitoring is told of the journal at this moment."""
        answers = not self._failing
        unwritten = len(self._unwritten)
        yield from journal_samples(self.queue, self.uncertain, unwritten, answers=answers)

    async def begin(self, held: HeldMail, attempt: JournalledAttempt) -> None:
        """Keep an attempt durably before its content may be sent.

        Raises:
            MailmendError: it cannot be, and no recipient may get a mail twice.
        """
        try:
            if self.ledger:
                await self.ledger.put(self.queue, attempt)
        except MailmendError as error:
            self._say_once(error)
            if not self.policy.doubles:
                raise
            self._unwritten.add(attempt.id)
        else:
            self._answers()
        held.begun[attempt.entry.number] = attempt

    async def end(self, held: HeldMail, attempt: JournalledAttempt, *, doubtful: bool = False) -> None:
        """Keep how an attempt ended, before anything follows from it.

        Args:
            held: its mail.
            attempt: with its end.
            doubtful: whether the journal may have its beginning, although it did not say so.
        """
        begun = attempt.entry.number in held.begun
        is_written = begun and attempt.id not in self._unwritten
        self._unwritten.discard(attempt.id)
        for tries in count(1):
            try:
                if self.ledger and is_written:
                    await self.ledger.put_end(self.queue, attempt)
                elif self.ledger:
                    await self.ledger.put(self.queue, attempt)
            except MailmendError as error:
                self._say_once(error)
                if self.policy.doubles or not (begun or doubtful):
                    break
                await self.clock.pause(LOOK_AGAIN.wait(tries).total_seconds())
            else:
                self._answers()
                break
        held.begun.pop(attempt.entry.number, None)

    async def known_end(self, held: HeldMail, entry: DeliveryEntry) -> EndedEntry | None:
        """The outcome for a recipient whose mail a server had before; None: it is to be tried.

        Raises:
            MailmendError: that cannot be known, and no recipient may get a mail twice.
        """
        if not self.ledger or not held.may_have_been_had:
            return None
        try:
            attempts = await self.ledger.of(self.queue, entry.id.mail, entry.id.number)
        except MailmendError as error:
            self._say_once(error)
            if not self.policy.doubles:
                raise
            return None
        last = decisive(attempts, held.dequeued.enqueue_id)
        if last is None:
            return None
        if last.outcome is None:
            return self.doubted(entry, last)
        _LOG.info("an attempt of before has its outcome", extra=_fields(last) | {"outcome": last.outcome.value})
        end = ENDS[last.outcome]
        at = last.ended_at or last.started_at
        why = _WORDS_LOST
        if end is EntryEnd.DELIVERED:
            why = ""
        return EndedEntry(replace(entry, reply="", host=last.host), end, at, last.status, why, journalled=True)

    def doubted(self, entry: DeliveryEntry, attempt: JournalledAttempt) -> EndedEntry | None:
        """How a recipient ends whose server may have the mail; None: it is to be tried again."""
        self.uncertain[self.policy] += 1
        _LOG.warning("an attempt has no known outcome", extra=_fields(attempt) | {"policy": self.policy.value})
        now = instant_of(self.clock.micros())
        known = replace(entry, reply="", host=attempt.host)
        match self.policy:
            case UncertainPolicy.RETRY:
                return None
            case UncertainPolicy.HOLD:
                hold = EntryChange(action=EntryAction.HOLD, at=now, owner="delivery serve", reason=attempt.doubt)
                known = replace(known, order=hold)
                return EndedEntry(known, EntryEnd.RETURNED, now, why=attempt.doubt, wait=HELD_FOR, changed=True)
            case UncertainPolicy.ASSUME:
                why = "its answer was lost; it counts as delivered"
                return EndedEntry(known, EntryEnd.DELIVERED, now, "2.0.0", why)

    def _say_once(self, error: MailmendError) -> None:
        if not self._failing:
            what = "the journal is waited for"
            if self.policy.doubles:
                what = "deliveries go on without a journal"
            _LOG.error(what, extra={"error": str(error)})
        self._failing = True

    def _answers(self) -> None:
        if self._failing:
            _LOG.info("the journal answers again")
        self._failing = False


def _fields(attempt: JournalledAttempt) -> dict[str, str]:
    return {
        "mail": str(attempt.entry),
        "attempt": str(attempt.id),
        "host": attempt.host,
        "began": f"{attempt.started_at:%Y-%m-%d %H:%M:%S}",
        "server": attempt.server,
    }
