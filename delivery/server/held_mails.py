"""Mails that were taken from their queue and have not left it: what still waits, what has ended, and how they leave."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Final
from uuid import UUID

from mailmend.delivery.ledger.intents import EntryIntent, IntentStage
from mailmend.delivery.mail.attempts import JournalledAttempt
from mailmend.delivery.mail.entries import (
    DeliveryEntry,
    EndedEntry,
    EntryChange,
    EntryEnd,
    EntryId,
    EntryStage,
    OutgoingMail,
)
from mailmend.delivery.mail.envelopes import mail_again, plain_attributes, with_bytes, without_notes
from mailmend.delivery.mail.notices import RecipientNotice, ReportReader, StatusNotification
from mailmend.delivery.mail.settling import (
    MailSettlement,
    RetrySchedule,
    all_as_ordered,
    as_ordered,
)
from mailmend.delivery.policy.policy import PickupField
from mailmend.delivery.policy.sub_queues import UNKNOWN
from mailmend.mailqueue.queue import Dequeued, MailQueue
from mailmend.mailqueue.rules.mails import Mail
from mailmend.model.durations import LOOK_AGAIN, BackOff
from mailmend.model.errors import CannotReach, MailmendError, WrongUse
from mailmend.model.ids import EnqueueId, put_off_id, report_id
from mailmend.model.ports import Clock
from mailmend.model.texts import noted, without_addresses

_LOG: Final = logging.getLogger("mailmend.delivery")

_AWAY: Final = BackOff(timedelta(minutes=1), timedelta(minutes=30))
_ELSEWHERE: Final = BackOff(timedelta(seconds=2), timedelta(minutes=1))

_MANY: Final = 500
"""Mails of more recipients are put together outside the event loop, whose server has a membership to keep."""

LeavingStep = Callable[[], Awaitable[object]]


@dataclass(slots=True, eq=False)
class HeldMail:
    """A mail that was taken from its queue and is unacked.

    Attributes:
        active: its entries that have not ended, by their number.
        taken_at: in nanoseconds of the monotonic clock.
        expires_at: the same for its expiry.
        begun: attempts whose content may have been sent and whose end the journal does not have, by number.
        checked: numbers of entries that have not ended by the journal.
        heard: how entries end, by number, unless the hook behind delivery decides otherwise: it was
            asked about each of them, and is asked once.
        given: attributes that hooks set, and its queue does not know yet: kept with what comes again.
    """

    dequeued: Dequeued
    mail: OutgoingMail
    active: dict[int, DeliveryEntry]
    taken_at: int
    expires_at: int
    ended: list[EndedEntry] = field(default_factory=list)
    begun: dict[int, JournalledAttempt] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    checked: set[int] = field(default_factory=set)
    heard: dict[int, EndedEntry] = field(default_factory=dict)

    @property
    def may_have_been_had(self) -> bool:
        """Whether a server may have had it in this passage.

        The broker says so; or it was delayed, as movers of delayed mails may publish one twice.
        """
        dequeued = self.dequeued
        return dequeued.redelivered or dequeued.attempts > 0 or self.mail.id != dequeued.enqueue_id

    def may_expire(self, entry: DeliveryEntry) -> bool:
        """Whether an entry may end by its age: not while it may have been delivered.

        Once the journal has been asked, it is known.
        """
        if entry.stage.is_attempted:
            return False
        return not self.may_have_been_had or entry.id.number in self.checked

    def give(self, attributes: Mapping[str, str]) -> None:
        """Set attributes of the mail."""
        if attributes:
            own = plain_attributes(self.dequeued.mail)
            given = {**self.given, **attributes}
            self.given = {name: text for name, text in given.items() if own.get(name) != text}

    def custom_values(self, custom: Iterable[PickupField]) -> dict[PickupField, str]:
        """The attributes of these names, which rules and hooks set; a hook's before the mail's own."""
        fields = list(custom)
        if not fields:
            return {}
        attributes = {**plain_attributes(self.dequeued.mail), **self.given}
        return {named: attributes[named.value] for named in fields if named.value in attributes}

    @property
    def changed(self) -> bool:
        """Whether something of it is not as its queue has it."""
        return bool(self.given) or any(entry.end is not EntryEnd.RETURNED or entry.changed for entry in self.ended)

    @property
    def away(self) -> timedelta:
        """For how long it goes back to the queue: longer each time that there was no room for it."""
        return _AWAY.wait(self.dequeued.attempts + 1)

    @property
    def elsewhere(self) -> timedelta:
        """For how long it goes back to the queue so that another server may take it."""
        return _ELSEWHERE.wait(self.dequeued.attempts + 1)

    def name_of(self, number: int) -> str:
        """An entry while it is held: of this passage of its mail through the queue."""
        return f"{self.dequeued.enqueue_id}:{number}"

    def names_of(self, entry: DeliveryEntry) -> frozenset[str]:
        """The ids by which an entry is found: ids of its mail, at first and now, and of the entry."""
        number = entry.id.number
        first = str(self.mail.id)
        present = str(self.dequeued.enqueue_id)
        return frozenset({first, present, f"{first}:{number}", f"{present}:{number}"})

    @property
    def waits(self) -> bool:
        """Whether each of its recipients that are left waits to be picked."""
        return bool(self.active) and all(entry.stage is EntryStage.WAITING for entry in self.active.values())

    def move(self, number: int, stage: EntryStage) -> DeliveryEntry:
        entry = self.active[number] = self.active[number].moved(stage)
        return entry

    def is_unpicked(self, number: int) -> bool:
        """Whether an entry has not ended, and may still be picked."""
        entry = self.active.get(number)
        return entry is not None and not entry.stage.is_attempted

    def follow(self, number: int) -> None:
        """Have an entry at the hook behind its attempt, or behind its wait for one."""
        entry = self.active.get(number)
        if entry is not None and entry.stage is not EntryStage.POST_DELIVERY:
            self.move(number, EntryStage.POST_DELIVERY)

    def heed(self, changes: Mapping[int, EntryChange], schedule: RetrySchedule, now: datetime) -> None:
        """Let entries that have ended, and would come again, end as it was ordered meanwhile."""
        if not changes:
            return
        before = self.ended
        self.ended = all_as_ordered(self.mail, before, changes, schedule, now)
        for was, ended in zip(before, self.ended, strict=True):
            if ended is not was:
                log_ended(ended)

    def end(self, ended: EndedEntry) -> bool:
        """Take an entry's end down; whether it was the last one."""
        del self.active[ended.entry.id.number]
        self.ended.append(ended)
        return not self.active


def as_intended(
    mails: Iterable[HeldMail], intents: Mapping[EntryId, EntryIntent], now: datetime
) -> tuple[Sequence[tuple[HeldMail, EndedEntry]], Mapping[EntryId, IntentStage]]:
    """How entries that wait end by what was ordered of them, and answers to the orders."""
    ends = list[tuple[HeldMail, EndedEntry]]()
    answers = dict[EntryId, IntentStage]()
    for held in mails:
        for entry in held.active.values():
            intent = intents.get(entry.id)
            if intent is None or not intent.stage.is_in_force:
                continue
            if entry.stage.is_attempted:
                if intent.stage is not IntentStage.AFTER_ATTEMPT:
                    answers[entry.id] = IntentStage.LEFT
                continue
            ended = None
            if entry.id.number in held.checked:
                ended = as_ordered(held.mail, entry, intent.change, now)
            if ended:
                ends.append((held, ended))
                answers[entry.id] = IntentStage.HEEDED
    return ends, answers


def ends_of_waiting(
    mails: Iterable[HeldMail], now: int, longest: int, crowded: int | None
) -> tuple[Sequence[tuple[HeldMail, DeliveryEntry, EntryEnd]], int]:
    """How entries end that wait no longer, and when to look again; spans are in nanoseconds.

    Args:
        mails: all that are held.
        now: the present, in nanoseconds of the monotonic clock.
        longest: how long a mail may wait.
        crowded: after how long half of the mails that only wait give way; None: there is room.
    """
    ends = list[tuple[HeldMail, EntryEnd]]()
    stay = list[HeldMail]()
    for held in mails:
        if held.expires_at <= now:
            ends.append((held, EntryEnd.EXPIRED))
        elif held.taken_at + longest <= now:
            ends.append((held, EntryEnd.RETURNED))
        else:
            stay.append(held)
    look_at = UNKNOWN
    if crowded is not None:
        idle = [held for held in stay if held.waits and held.taken_at + crowded <= now]
        ends += [(held, EntryEnd.RETURNED) for held in idle[: (len(idle) + 1) // 2]]
        look_at = now + crowded
    for held in stay:
        look_at = min(look_at, held.expires_at, held.taken_at + longest)
    ended = list[tuple[HeldMail, DeliveryEntry, EntryEnd]]()
    for held, end in ends:
        for entry in held.active.values():
            ends_now = not entry.stage.is_attempted
            if end is EntryEnd.EXPIRED:
                ends_now = held.may_expire(entry)
            if ends_now:
                ended.append((held, entry, end))
    return ended, look_at


@dataclass(slots=True, eq=False)
class RecipientTurns:
    """Recipients that are still to be prepared: mails take turns, with one recipient each."""

    _mails: deque[tuple[HeldMail, deque[DeliveryEntry]]] = field(default_factory=deque)

    def add(self, held: HeldMail, entries: Iterable[DeliveryEntry]) -> None:
        """Have these recipients of a mail prepared too."""
        self._mails.append((held, deque(entries)))

    def next(self) -> tuple[HeldMail, DeliveryEntry] | None:
        """The next recipient that still waits; None where none is left."""
        while self._mails:
            held, left = self._mails.popleft()
            if not left:
                continue
            entry = left.popleft()
            self._mails.append((held, left))
            if held.is_unpicked(entry.id.number):
                return held, entry
        return None

    def clear(self) -> None:
        """Forget all: the server ends."""
        self._mails.clear()


@dataclass(frozen=True, slots=True)
class MailDepartures:
    """How mails leave their queue: every step is durable before the next, and the ack is the last.

    Whatever ends this in between, the mail is in the queue still, and comes again whole.

    Attributes:
        reporter: the name of this host, in reports to senders.
        postmaster: the address that is told of reports that cannot be delivered; "" for no notice.
        lost_reports: how many could not be, by who was told.
        unacked: mails whose ack alone has failed: they come again, and need nothing else.
        stuck: mails whose next step failed, and is tried again.
    """

    queue: MailQueue
    clock: Clock
    reporter: str
    postmaster: str = ""
    lost_reports: Counter[ReportReader] = field(default_factory=Counter)
    unacked: set[EnqueueId] = field(default_factory=set)
    stuck: set[EnqueueId] = field(default_factory=set)

    async def leave(self, held: HeldMail, settlement: MailSettlement, now: datetime) -> None:
        """Carry the steps out; where the queue does not answer it is asked again and again, but for the last one."""
        if held.ended and not held.changed:
            await self._give_back(held, min(settlement.again) - now)
            return
        try:
            await self._carry_out(deque([*self._again(held, settlement), *self._report(held, settlement, now)]), held)
        except WrongUse as error:
            _log_failure("a mail cannot be put off, and becomes a dead letter", held, error)
            await held.dequeued.reject()
            return
        finally:
            self.stuck.discard(held.dequeued.enqueue_id)
        await self.ack(held.dequeued)

    async def _carry_out(self, steps: deque[LeavingStep], held: HeldMail) -> None:
        for tries in count(1):
            try:
                while steps:
                    await steps[0]()
                    steps.popleft()
            except WrongUse:
                raise
            except MailmendError as error:
                _log_failure("a mail cannot be settled yet", held, error)
            except Exception:  # noqa: BLE001 - as where a module cannot be read for want of a descriptor
                _LOG.exception("a mail cannot be settled yet", extra={"mail": str(held.mail.id)})
            else:
                return
            self.stuck.add(held.dequeued.enqueue_id)
            await self.clock.pause(LOOK_AGAIN.wait(tries).total_seconds())

    async def ack(self, dequeued: Dequeued) -> None:
        try:
            await dequeued.ack()
        except Exception as error:  # noqa: BLE001 - the mail comes again, and then it is acked at once
            shown = {"mail": str(dequeued.enqueue_id), "error": _what(error)}
            _LOG.warning("an ack failed", extra=shown, exc_info=not isinstance(error, MailmendError))
            self.unacked.add(dequeued.enqueue_id)
        else:
            self.unacked.discard(dequeued.enqueue_id)

    async def _give_back(self, held: HeldMail, wait: timedelta) -> None:
        """Nothing of the mail has changed: it is delayed as it is, its bytes stay where they are."""
        note = None
        for entry in held.ended:
            if entry.why:
                note = noted(entry.why)
                break
        try:
            await held.dequeued.retry(max(wait, timedelta(seconds=1)), note)
        except Exception as error:  # noqa: BLE001 - the broker has it again
            _log_failure("a mail comes again at once", held, error)

    def _again(self, held: HeldMail, settlement: MailSettlement) -> Iterable[LeavingStep]:
        """Recipients that the journal knows come apart from others: the same ones come together after a crash."""
        journalled = {ended.entry.id.number for ended in held.ended if ended.journalled}
        for at, entries in settlement.again.items():
            known = list[DeliveryEntry]()
            others = list[DeliveryEntry]()
            for entry in entries:
                if entry.id.number in journalled:
                    known.append(entry)
                else:
                    others.append(entry)
            for some in filter(None, (known, others)):
                yield partial(self._put_off, held, some, at)

    async def _put_off(self, held: HeldMail, entries: Sequence[DeliveryEntry], at: datetime) -> None:
        """Put a mail into its queue again, for these recipients; if need be, without the notes about it.

        Its id follows from this passage: a server that is killed between this and the ack does it again, for one mail.
        """
        mail = held.dequeued.mail
        content = held.dequeued.content
        known_as = put_off_id(held.dequeued.enqueue_id, [entry.id.number for entry in entries])
        build = partial(mail_again, mail, held.mail, entries, held.given)
        if len(entries) > _MANY:
            again = await asyncio.to_thread(build)
        else:
            again = build()
        again = with_bytes(again, content)
        try:
            await self.queue.enqueue(again, content, at=at, known_as=known_as, was_queued=True)
        except CannotReach:
            raise
        except (MailmendError, ValueError, TypeError) as error:  # the latter two: a store that cannot encode a text
            _log_failure("a mail is put off without the notes about it", held, error)
            plain = [without_notes(entry) for entry in entries]
            bare = with_bytes(mail_again(mail, held.mail, plain), content)
            await self.queue.enqueue(bare, content, at=at, known_as=known_as, was_queued=True)

    def _report(self, held: HeldMail, settlement: MailSettlement, now: datetime) -> Iterable[LeavingStep]:
        sender = held.mail.sender
        if settlement.notices and sender:
            known_as = report_id(held.dequeued.enqueue_id)
            yield partial(self._tell, held, self._notification(held, settlement.notices, sender, now, known_as))
        if settlement.untold:
            yield from self._about_lost_report(held, settlement.untold, now)

    def _notification(
        self, held: HeldMail, notices: Sequence[RecipientNotice], reader: str, now: datetime, known_as: EnqueueId
    ) -> StatusNotification:
        return StatusNotification(
            sender=reader,
            reporter=self.reporter,
            recipients=notices,
            content=held.dequeued.content,
            arrived_at=held.mail.first_seen_at,
            written_at=now,
            token=known_as.hex,
            envelope_id=held.mail.envelope_id,
            returned=held.mail.returned,
            to_postmaster=reader == self.postmaster,
        )

    async def _tell(self, held: HeldMail, report: StatusNotification) -> None:
        """Put a report into the queue; where its reader has no address that the queue takes, tell the postmaster."""
        try:
            await self._put_report(held, report)
        except WrongUse as error:
            _log_failure("a sender cannot be told", held, error)
            for step in self._about_lost_report(held, report.recipients, report.written_at):
                await step()

    async def _put_report(self, held: HeldMail, report: StatusNotification) -> None:
        state = held.dequeued.mail.state
        mail = Mail(f"report-{report.token}", (report.sender,), state=state, last_updated=report.written_at)
        known_as = EnqueueId(UUID(hex=report.token))
        await self.queue.enqueue(mail, report.rendered(), known_as=known_as)

    def _about_lost_report(
        self, held: HeldMail, notices: Sequence[RecipientNotice], now: datetime
    ) -> Iterable[LeavingStep]:
        """Count a report that cannot be delivered, and tell the postmaster, unless the postmaster did not get it."""
        is_its_own = all(notice.recipient.lower() == self.postmaster.lower() for notice in notices)
        reader = ReportReader.NOBODY
        if self.postmaster and not is_its_own:
            reader = ReportReader.POSTMASTER
        self.lost_reports[reader] += 1
        _LOG.error("a report could not be delivered", extra={"mail": str(held.mail.id), "told": reader.value})
        if reader is ReportReader.POSTMASTER:
            known_as = report_id(report_id(held.dequeued.enqueue_id))
            report = self._notification(held, notices, self.postmaster, now, known_as)
            yield partial(self._put_to_postmaster, held, report)

    async def _put_to_postmaster(self, held: HeldMail, report: StatusNotification) -> None:
        try:
            await self._put_report(held, report)
        except WrongUse as error:
            _log_failure("the postmaster cannot be told", held, error)


def _log_failure(event: str, held: HeldMail, error: Exception) -> None:
    _LOG.warning(event, extra={"mail": str(held.mail.id), "error": _what(error)})


def _what(error: Exception) -> str:
    if isinstance(error, MailmendError):
        return error.what
    return type(error).__name__


_EVENTS: Final = {
    EntryEnd.DELIVERED: "a recipient has the mail",
    EntryEnd.REFUSED: "a recipient was refused for now",
    EntryEnd.FAILED: "a recipient was refused for good",
    EntryEnd.EXPIRED: "a recipient was tried for long enough",
    EntryEnd.RETURNED: "a recipient goes back to the queue",
    EntryEnd.DELETED: "a recipient was given up, and nobody is told",
}


def log_ended(ended: EndedEntry) -> None:
    """One line for each end of an entry: ids, domain, server and reply; addresses in a reply are left out."""
    entry = ended.entry
    fields = {
        "mail": str(entry.id),
        "domain": entry.domain,
        "host": entry.host or None,
        "reply": without_addresses(entry.reply) or None,
        "refusals": entry.refusals,
        "why": ended.why or None,
    }
    _LOG.info(_EVENTS[ended.end], extra=fields)
