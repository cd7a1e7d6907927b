"""From an entry to its end: where its mail goes, the hooks around an attempt, and one server after the other."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, cast

from mailmend.delivery.ledger.intents import IntentStage
from mailmend.delivery.mail.attempts import (
    OUTCOMES,
    AttemptOutcome,
    AttemptStage,
    BeforeContent,
    DeliveryAttempt,
    JournalledAttempt,
    MailRelay,
    NextHops,
    NoNextHop,
    RecipientResult,
)
from mailmend.delivery.mail.entries import (
    HELD_FOR,
    DeliveryEntry,
    EndedEntry,
    EntryAction,
    EntryChange,
    EntryEnd,
    EntryStage,
)
from mailmend.delivery.mail.envelopes import plain_attributes
from mailmend.delivery.mail.hooks import (
    AttemptState,
    BounceRecipient,
    DeleteRecipient,
    HoldRecipient,
    HookedAttempt,
    HookedRecipient,
    PutOffDelivery,
    TryDelivery,
)
from mailmend.delivery.mail.settling import as_ordered, ended_by, settlement_of
from mailmend.delivery.policy.automation import CountedPlaces
from mailmend.delivery.policy.engine import Picked, PickupEngine
from mailmend.delivery.policy.policy import PickupField
from mailmend.delivery.server.held_mails import HeldMail
from mailmend.delivery.server.hooks import DeliveryHooks
from mailmend.delivery.server.journalling import AttemptJournal
from mailmend.delivery.server.ready_entries import ReadyEntry
from mailmend.delivery.server.recent import RecentAttempts, SubQueueKey, key_of
from mailmend.delivery.settings import DeliverySettings, TransportsInForce
from mailmend.delivery.shared.orders import SharedOrders
from mailmend.delivery.transports import (
    DeliveryProtocol,
)
from mailmend.model.errors import MailmendError
from mailmend.model.instants import instant_of, nanos_of
from mailmend.model.ports import Clock

_NO_JOURNAL: Final = "the journal of attempts does not answer"

_AS_THE_SERVER_DOES: Final = TryDelivery()
"""Every recipient is tried like this where no hook wants otherwise."""

_OF_A_SERVER: Final = frozenset({AttemptState.ANSWERED, AttemptState.UNCERTAIN, AttemptState.LIMITED})
"""Where an entry has the host and the reply of this attempt; else they are of an earlier one."""

_OF_THE_SERVER: Final = frozenset({AttemptStage.CONNECT, AttemptStage.TLS, AttemptStage.GREETING})
"""Where an attempt ends without a reply about the mail: the next server may be tried."""


_REFUSALS: Final = frozenset({EntryEnd.REFUSED, EntryEnd.FAILED})
"""Ends that a reply of a server, or a sentence of ours instead, decides."""


def _transport_of(held: HeldMail, wanted: TryDelivery) -> str:
    """The transport by which a mail is sent: the one that the hook names, else the mail's own."""
    return wanted.fields.get(PickupField.TRANSPORT_ID, held.mail.transport)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryAttempts:
    """Takes entries through their stages; the picking between is the server's.

    Attributes:
        orders: what is ordered of entries for after an attempt, or before one; None: nothing is.
        wake: called when others may be picked.
        transports: how mails are sent.
        custom: the fields that the policies' file declares.
        trying: the attempts that are under way, each with its task.
        broken_off: the ones that were.
        recent: how the last ones ended.
    """

    next_hops: NextHops
    relay: MailRelay
    engine: PickupEngine
    clock: Clock
    settings: DeliverySettings
    hooks: DeliveryHooks
    journal: AttemptJournal
    orders: SharedOrders | None
    wake: Callable[[], None]
    transports: TransportsInForce
    custom: list[PickupField] = field(default_factory=list)
    trying: dict[Picked, asyncio.Task[Any]] = field(default_factory=dict)
    broken_off: set[Picked] = field(default_factory=set)
    recent: RecentAttempts = field(default_factory=RecentAttempts)

    def break_off(self) -> None:
        """Have every attempt end at once that counts against a shared limit; its recipient is tried again."""
        for picked, task in self.trying.items():
            if picked not in self.broken_off and self.engine.is_shared(picked):
                self.broken_off.add(picked)
                task.cancel()

    async def prepared(self, held: HeldMail, entry: DeliveryEntry) -> ReadyEntry | EndedEntry | None:
        """The entry with the servers that take its mail; or how it has ended, without an attempt.

        None: its wait was ended meanwhile, as it expired or by an order.
        """
        number = entry.id.number
        if not held.is_unpicked(number):
            return None
        ended = await self._known_end(held, entry)
        if ended is None:
            held.checked.add(number)
            ended = await self._as_ordered(held, entry)
        if ended or not held.is_unpicked(number):
            return ended
        wanted = _AS_THE_SERVER_DOES
        if self.hooks.pre is not None:
            result = await self.hooks.before(self._seen(held, entry))
            held.give(result.attributes)
            if not held.is_unpicked(number):
                return None
            if not isinstance(result.decision, TryDelivery):
                return self._decided(held, entry, result.decision)
            wanted = result.decision
        return await self._routed(held, held.move(number, EntryStage.DNS), wanted)

    async def _routed(
        self, held: HeldMail, entry: DeliveryEntry, wanted: TryDelivery
    ) -> ReadyEntry | EndedEntry | None:
        """As `prepared`, once it is known what the hook before delivery wants."""
        sending = self.transports.sending(_transport_of(held, wanted))
        ready = ReadyEntry(held, entry, wanted, sending)
        try:
            hops = await ready.known_hops(self.next_hops).of(ready.domain)
        except NoNextHop as error:
            end = EntryEnd.REFUSED
            if error.reply.permanent:
                end = EntryEnd.FAILED
            ended = EndedEntry(entry, end, self.now(), error.reply.status, error.reply.text)
            self.hooks.saw(error.reply, ready.fields(), set())
            return await self._unroutable(ready, ended)
        ready.hops = [hop for hop in hops if ready.addresses_for(hop)]
        if not ready.hops:
            why = "none of our addresses reaches its servers"
            ended = EndedEntry(entry, EntryEnd.REFUSED, self.now(), "4.4.4", why)
            return await self._unroutable(ready, ended)
        ready.ready_at = self.now()
        return ready

    async def _unroutable(self, ready: ReadyEntry, ended: EndedEntry) -> EndedEntry | None:
        """What the hook makes of it; None where its wait has ended meanwhile.

        Notices and logs do not repeat what a server said at an earlier attempt.
        """
        held = ready.held
        found = await self._unattempted(held, ended, None, AttemptState.UNROUTABLE)
        if found is None:
            return None
        found = replace(found, entry=replace(found.entry, reply="", host=""))
        self._note(held, found, key_of(ready.fields()))
        return found

    def outdated(self, ready: ReadyEntry) -> EndedEntry | None:
        """How an entry that waits ends, as its mail goes another way now.

        None: it waits on, or has ended meanwhile, as the server closes.
        """
        sending = self.transports.sending(_transport_of(ready.held, ready.wanted))
        before = (ready.sources, ready.next_hop)
        ready.sending = sending
        if (ready.sources, ready.next_hop) == before:
            return None
        held = ready.held
        why = "its transport has other addresses, or another server, now"
        entry = held.active.get(ready.entry.id.number)
        if entry is None:
            return None
        return EndedEntry(entry, EntryEnd.RETURNED, self.now(), why=why, wait=held.elsewhere)

    def declare(self, custom: Iterable[PickupField], waiting: Iterable[ReadyEntry]) -> None:
        """Count by these fields of a file from now on, also what waits already."""
        fields = list(custom)
        if fields != self.custom:
            self.custom[:] = fields
            for ready in waiting:
                self.count(ready)

    def count(self, ready: ReadyEntry) -> None:
        """Have an entry wait to be picked, as it is counted now."""
        if ready.counted:
            self.engine.remove(ready.counted, self.nanos())
        ready.counted = ready.active(ready.hops[0], self.custom)
        self.engine.add(ready.counted)

    async def ended(self, ready: ReadyEntry, picked: Picked) -> EndedEntry:
        """How an entry ends behind its attempts."""
        ended = await self._tried_all(ready, picked)
        self._note(ready.held, ended, key_of(picked.mail.values, picked.source))
        return ended

    def _note(self, held: HeldMail, ended: EndedEntry, key: SubQueueKey) -> None:
        again_at = None
        if ended.end is EntryEnd.REFUSED:
            schedule = self.settings.schedule(held.mail.transport)
            settlement = settlement_of(held.mail, [ended], schedule, self.now())
            again_at = min(settlement.again, default=None)
        self.recent.note(key, ended, again_at, self.nanos())

    async def _tried_all(self, ready: ReadyEntry, picked: Picked) -> EndedEntry:
        """How an entry ends: one server after the other is tried, as far as the limits of each allow it at once."""
        held = ready.held
        begun = picked
        number = ready.entry.id.number
        entry = held.active[number]
        counted: CountedPlaces = set()
        for place, hop in enumerate(ready.hops, 1):
            recorded = ready.recorded(self.clock.new_uuid(), begun, hop, self.journal.server)
            try:
                attempt = ready.attempt(hop, begun.source)
                before_content = partial(self.journal.begin, held, recorded)
                result = await self._tried(begun, attempt, held.dequeued.content, before_content)
            except MailmendError:
                break
            finally:
                self.engine.end(begun, self.nanos())
                self.wake()
            if result is None:
                why = "this server is cut off from the others"
                returned = EndedEntry(entry, EntryEnd.RETURNED, self.now(), why=why, wait=held.away)
                return await self._broken_off(held, returned, AttemptState.CUT_OFF)
            if not result.delivered:
                self.hooks.saw(result.reply, recorded.fields, counted)
            reply = ""
            if not result.reply.ours:
                reply = str(result.reply)
            entry = replace(entry, reply=reply, host=result.host)
            recorded = replace(recorded, ended_at=self.now(), stage=result.stage, status=result.reply.status)
            if result.stage not in _OF_THE_SERVER or place == len(ready.hops):
                entry = replace(entry, stage=held.move(number, EntryStage.POST_DELIVERY).stage)
                return await self._closed(ready, entry, result, recorded)
            await self.journal.end(held, replace(recorded, outcome=AttemptOutcome.RETURNED))
            following = self.engine.admit(ready.active(ready.hops[place], self.custom), self.nanos())
            if following is None:
                returned = EndedEntry(entry, EntryEnd.RETURNED, self.now(), wait=held.away)
                return await self.after(held, returned, result.stage, AttemptState.LIMITED)
            begun = following
            ready.ready_at = recorded.ended_at
        unsent = replace(recorded, ended_at=self.now(), outcome=AttemptOutcome.RETURNED, stage=AttemptStage.DATA)
        await self.journal.end(held, unsent, doubtful=True)
        returned = EndedEntry(entry, EntryEnd.RETURNED, self.now(), why=_NO_JOURNAL, wait=held.away)
        return await self.after(held, returned, AttemptStage.DATA, AttemptState.NO_JOURNAL)

    async def failed(self, held: HeldMail, number: int) -> EndedEntry | None:
        """How an entry ends by an error of ours; None where it has ended meanwhile.

        Where the hook was asked already it ends as without a hook: its server may have the mail.
        """
        entry = held.active.get(number)
        if entry is None:
            return None
        if number in held.heard:
            return held.heard[number]
        why = "something went wrong at our side"
        refused = EndedEntry(entry, EntryEnd.REFUSED, self.now(), "4.3.0", why)
        return await self._broken_off(held, refused, AttemptState.FAULT)

    async def _broken_off(self, held: HeldMail, otherwise: EndedEntry, state: AttemptState) -> EndedEntry:
        """As `cut_off`, and what the hook makes of that."""
        ended = self.cut_off(held, otherwise)
        if ended is not otherwise:
            state = AttemptState.UNCERTAIN
        return await self.after(held, ended, None, state)

    def cut_off(self, held: HeldMail, otherwise: EndedEntry) -> EndedEntry:
        """How an entry ends whose attempt came to no end here: `otherwise`, unless its server may have the mail."""
        begun = held.begun.pop(otherwise.entry.id.number, None)
        if begun is None:
            return otherwise
        return self.journal.doubted(otherwise.entry, begun) or otherwise

    async def _tried(
        self, begun: Picked, attempt: DeliveryAttempt, content: bytes, before_content: BeforeContent
    ) -> RecipientResult | None:
        """The result of an attempt; None: it was broken off."""
        task = self.trying[begun] = cast("asyncio.Task[Any]", asyncio.current_task())
        try:
            (result,) = await self.relay.deliver(attempt, content, before_content)
        except asyncio.CancelledError:
            if begun not in self.broken_off:
                raise
            task.uncancel()
            return None
        else:
            return result
        finally:
            del self.trying[begun]
            self.broken_off.discard(begun)

    def now(self) -> datetime:
        """In whole milliseconds, as the journal keeps it: what follows from it follows again after a crash."""
        micros = self.clock.micros()
        return instant_of(micros - micros % 1000)

    def nanos(self) -> int:
        """Of the clock that never goes back."""
        return nanos_of(self.clock.monotonic())

    async def _as_ordered(self, held: HeldMail, entry: DeliveryEntry) -> EndedEntry | None:
        """How it ends by what was ordered of it while its mail was on its way here; None: it is to be tried."""
        if not self.orders or not self.orders.intended:
            return None
        change = (await self.orders.intents_of(held.mail.id)).get(entry.id.number)
        if change is None or not held.is_unpicked(entry.id.number):
            return None
        ended = as_ordered(held.mail, entry, change, self.now())
        if ended:
            await self.orders.answer_intents({entry.id: IntentStage.HEEDED})
        return ended

    async def _expired(self, held: HeldMail, entry: DeliveryEntry) -> EndedEntry | None:
        """How it ends by its age, now that the journal has been asked; None: it is to be tried."""
        if held.expires_at > self.nanos():
            return None
        expired = EndedEntry(entry, EntryEnd.EXPIRED, self.now(), wait=held.away)
        return await self._unattempted(held, expired, None, AttemptState.EXPIRED)

    async def _known_end(self, held: HeldMail, entry: DeliveryEntry) -> EndedEntry | None:
        """How it has ended by the journal, where its mail was had before; None: it is to be tried."""
        try:
            known = await self.journal.known_end(held, entry)
        except MailmendError:
            returned = EndedEntry(entry, EntryEnd.RETURNED, self.now(), why=_NO_JOURNAL, wait=held.away)
            return await self._unattempted(held, returned, None, AttemptState.NO_JOURNAL)
        if known is None:
            return await self._expired(held, entry)
        if known.end is EntryEnd.RETURNED:
            return await self._unattempted(held, known, AttemptStage.DATA, AttemptState.UNCERTAIN)
        state = AttemptState.ANSWERED
        if known.end is EntryEnd.DELIVERED and known.why:
            state = AttemptState.UNCERTAIN
        arrived = known.end is EntryEnd.DELIVERED and not known.why
        if self.transports.sending(held.mail.transport).protocol is not DeliveryProtocol.LMTP:
            arrived = False
        known = replace(known, arrived=arrived)
        return await self._unattempted(held, known, AttemptStage.DATA, state)

    async def _closed(
        self,
        ready: ReadyEntry,
        entry: DeliveryEntry,
        result: RecipientResult,
        recorded: JournalledAttempt,
    ) -> EndedEntry:
        """How an entry ends behind an attempt; the journal has it before anything follows from it."""
        held = ready.held
        arrives = ready.sending.protocol is DeliveryProtocol.LMTP
        doubted = None
        state = AttemptState.ANSWERED
        if result.uncertain:
            state = AttemptState.UNCERTAIN
            doubted = self.journal.doubted(entry, recorded)
        at = recorded.ended_at or self.now()
        judged = ended = doubted or ended_by(result, entry, at, arrives=arrives)
        if ended.end is EntryEnd.RETURNED:
            await self.journal.end(held, recorded)
            return await self.after(held, ended, result.stage, state)
        delivered = ended.end is EntryEnd.DELIVERED
        if not delivered:
            ended = await self.after(held, ended, result.stage, state)
        if not doubted:
            recorded = replace(recorded, outcome=OUTCOMES[ended.end])
        await self.journal.end(held, recorded)
        if delivered:
            return await self.after(held, ended, result.stage, state)
        is_as_journalled = ended is judged and not doubted
        return replace(ended, journalled=is_as_journalled)

    async def _unattempted(
        self, held: HeldMail, ended: EndedEntry, stage: AttemptStage | None, state: AttemptState
    ) -> EndedEntry | None:
        """As `after`, for an entry that was being prepared; None where its wait has ended."""
        if held.is_unpicked(ended.entry.id.number):
            return await self.after(held, ended, stage, state)
        return None

    async def after(
        self, held: HeldMail, ended: EndedEntry, stage: AttemptStage | None, state: AttemptState
    ) -> EndedEntry:
        """How an entry ends by the hook behind an attempt, or behind a wait for one; as before without a hook."""
        if self.hooks.post is None:
            return ended
        entry = ended.entry
        held.follow(entry.id.number)
        held.heard[entry.id.number] = ended
        seen = self._seen(held, ended.entry)
        schedule = self.settings.schedule(held.mail.transport)
        is_last = schedule.after(entry.refusals + 1, ended.at, seen.expires_at, 0.0) is None
        reply = ""
        host = ""
        if state in _OF_A_SERVER:
            reply = entry.reply
            host = entry.host
        refused = ""
        if ended.end in _REFUSALS:
            refused = self.hooks.reactions.class_of(reply, ended.status, ended.why)
        attempt = HookedAttempt(
            recipient=seen,
            end=ended.end,
            status=ended.status,
            reply=reply,
            why=ended.why,
            host=host,
            stage=stage,
            is_last=is_last,
            reply_class=refused,
            state=state,
        )
        result = await self.hooks.after(attempt)
        held.give(result.attributes)
        if result.decision is None:
            return ended
        if state is not AttemptState.UNCERTAIN:
            return self._decided(held, entry, result.decision, ended.status)
        # In another passage through the queue: else the journal would hold it again for this attempt.
        decided = self._decided(held, replace(entry, order=None), result.decision, ended.status)
        return replace(decided, changed=True)

    def _decided(
        self,
        held: HeldMail,
        entry: DeliveryEntry,
        decision: PutOffDelivery | HoldRecipient | BounceRecipient | DeleteRecipient,
        status: str = "",
    ) -> EndedEntry:
        match decision:
            case PutOffDelivery(counts=True):
                return EndedEntry(entry, EntryEnd.REFUSED, self.now(), status, decision.reason, wait=decision.delay)
            case PutOffDelivery():
                wait = decision.delay
                if wait is None:
                    wait = held.away
                return EndedEntry(entry, EntryEnd.RETURNED, self.now(), status, decision.reason, wait=wait)
            case HoldRecipient(reason):
                hold = EntryChange(action=EntryAction.HOLD, at=self.now(), owner="a hook", reason=reason)
                held_now = replace(entry, order=hold)
                return EndedEntry(held_now, EntryEnd.RETURNED, self.now(), status, reason, wait=HELD_FOR, changed=True)
            case BounceRecipient():
                return EndedEntry(entry, EntryEnd.FAILED, self.now(), decision.status, decision.reason)
            case DeleteRecipient():
                return EndedEntry(entry, EntryEnd.DELETED, self.now(), status, decision.reason)

    def _seen(self, held: HeldMail, entry: DeliveryEntry) -> HookedRecipient:
        mail = held.mail
        return HookedRecipient(
            id=entry.id,
            sender=mail.sender,
            recipient=entry.recipient,
            fields=mail.fields,
            refusals=entry.refusals,
            reply=entry.reply,
            first_seen_at=mail.first_seen_at,
            expires_at=self.settings.schedule(mail.transport).expires_at(mail.first_seen_at, mail.expires_at),
            content_bytes=len(held.dequeued.content),
            attributes={**plain_attributes(held.dequeued.mail), **held.given},
        )
