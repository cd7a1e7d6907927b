"""From an entry to its end: where its mail goes, the hooks around an attempt, and one server after the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from delivery.held_mails import HeldMail
from delivery.hooks import DeliveryHooks
from delivery.settings import DeliverySettings
from delivery.smart_host import SmartHost
from model.delivery.attempts import (
    AttemptStage,
    DeliveryAttempt,
    DeliveryProtocol,
    EnvelopeRecipient,
    MailEnvelope,
    NextHop,
    NoNextHop,
    RecipientResult,
    SourceAddress,
)
from model.delivery.entries import (
    HELD_FOR,
    DeliveryEntry,
    EndedEntry,
    EntryEnd,
    EntryOrder,
    EntryStage,
    OrderKind,
)
from model.delivery.hooks import (
    BounceRecipient,
    DeleteRecipient,
    HoldRecipient,
    HookedAttempt,
    HookedRecipient,
    PutOffDelivery,
    TryDelivery,
)
from model.instants import MICROS, instant_of
from model.pickup.engine import Picked, PickupEngine
from model.pickup.policy import PickupField
from model.pickup.sub_queues import ActiveMail
from model.ports import Clock, MailRelay, NextHops

MICRO_NANOS: Final = 1_000

_OF_THE_SERVER: Final = frozenset({AttemptStage.CONNECT, AttemptStage.TLS, AttemptStage.GREETING})
"""Where an attempt ends that says nothing of the mail: the next server may be tried."""


@dataclass(slots=True, eq=False)
class ReadyEntry:
    """An entry that waits to be picked.

    Attributes:
        hops: the servers that take its mail; it is counted by the first of them.
        wanted: what the hook before delivery wants otherwise.
        counted: as what it waits in the engine.
    """

    held: HeldMail
    entry: DeliveryEntry
    wanted: TryDelivery
    sources: Sequence[SourceAddress]
    hops: Sequence[NextHop] = ()
    counted: ActiveMail | None = None

    @property
    def recipient(self) -> str:
        return self.wanted.recipient or self.entry.recipient

    @property
    def domain(self) -> str:
        return self.recipient.rpartition("@")[2].lower()

    def active(self, hop: NextHop) -> ActiveMail:
        """The entry as the policies count it with this server."""
        values = {
            **self.held.mail.fields,
            **self.wanted.fields,
            PickupField.RECIPIENT_DOMAIN: self.domain,
            PickupField.REMOTE_MX: hop.host,
            PickupField.REMOTE_IP: hop.address,
        }
        normal = {one: one.normal(value) for one, value in values.items()}
        return ActiveMail(
            self.held.name_of(self.entry.id.number), normal, self.addresses_for(hop), self.held.mail.urgent
        )

    def addresses_for(self, hop: NextHop) -> tuple[str, ...]:
        """Our addresses of the family of the server's."""
        return tuple(one.address for one in self.sources if one.reaches(hop))

    def attempt(self, hop: NextHop, source: str, settings: DeliverySettings) -> DeliveryAttempt:
        mail, wanted = self.held.mail, self.wanted
        recipients = (EnvelopeRecipient(self.recipient, self.entry.wish),)
        envelope = MailEnvelope(wanted.sender or mail.sender, recipients, mail.envelope_id, mail.returned)
        origin = next(one for one in self.sources if one.address == source)
        return DeliveryAttempt(envelope, hop, origin, wanted.tls or settings.tls, settings.protocol)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryAttempts:
    """Takes entries through their stages; the picking between is the server's.

    Attributes:
        wake: called when others may be picked.
    """

    next_hops: NextHops
    relay: MailRelay
    engine: PickupEngine
    clock: Clock
    settings: DeliverySettings
    hooks: DeliveryHooks
    wake: Callable[[], None]

    async def prepared(self, held: HeldMail, entry: DeliveryEntry) -> ReadyEntry | EndedEntry:
        """The entry with the servers that take its mail; or how it has ended, without an attempt."""
        wanted = await self.hooks.before(self._seen(held, entry))
        if not isinstance(wanted, TryDelivery):
            return self._decided(held, entry, wanted)
        ready = ReadyEntry(held, entry, wanted, wanted.sources or self.settings.sources)
        if entry.id.number in held.active:
            ready.entry = held.move(entry.id.number, EntryStage.DNS)
        try:
            known = SmartHost(wanted.host, wanted.port) if wanted.host else self.next_hops
            hops = await known.of(ready.domain)
        except NoNextHop as error:
            end = EntryEnd.FAILED if error.reply.permanent else EntryEnd.REFUSED
            ended = EndedEntry(ready.entry, end, self.now(), error.reply.status, error.reply.text)
            return await self._after(held, ended, None)
        ready.hops = [one for one in hops if ready.addresses_for(one)]
        if not ready.hops:
            why = "none of our addresses reaches its servers"
            ended = EndedEntry(ready.entry, EntryEnd.REFUSED, self.now(), "4.4.4", why)
            return await self._after(held, ended, None)
        return ready

    async def ended(self, ready: ReadyEntry, picked: Picked) -> EndedEntry:
        """How an entry ends: one server after the other is tried, as far as the limits of each allow it at once."""
        held, begun, number = ready.held, picked, ready.entry.id.number
        entry = ready.entry = held.move(number, EntryStage.DELIVERING)
        for place, hop in enumerate(ready.hops, 1):
            try:
                attempt = ready.attempt(hop, begun.source, self.settings)
                (result,) = await self.relay.deliver(attempt, held.dequeued.content)
            finally:
                self.engine.end(begun, self.nanos())
                self.wake()
            entry = replace(entry, reply="" if result.reply.ours else str(result.reply), host=result.host)
            if result.stage not in _OF_THE_SERVER or place == len(ready.hops):
                entry = replace(entry, stage=held.move(number, EntryStage.POST_DELIVERY).stage)
                return await self._after(held, self._judged(result, entry), result.stage)
            following = self.engine.admit(ready.active(ready.hops[place]), self.nanos())
            if following is None:
                break
            begun = following
        return EndedEntry(entry, EntryEnd.RETURNED, self.now(), wait=held.away)

    def now(self) -> datetime:
        return instant_of(self.clock.micros())

    def nanos(self) -> int:
        """Of the clock that never goes back."""
        return round(self.clock.monotonic() * MICROS) * MICRO_NANOS

    def _judged(self, result: RecipientResult, entry: DeliveryEntry) -> EndedEntry:
        reply = result.reply
        end = EntryEnd.FAILED if reply.permanent else EntryEnd.REFUSED
        if result.delivered:
            end = EntryEnd.DELIVERED
        why = reply.text if reply.ours else ""
        arrived = self.settings.protocol is DeliveryProtocol.LMTP
        return EndedEntry(entry, end, self.now(), reply.status, why, result.tells and not arrived, arrived)

    async def _after(self, held: HeldMail, ended: EndedEntry, stage: AttemptStage | None) -> EndedEntry:
        entry, seen = ended.entry, self._seen(held, ended.entry)
        schedule = self.settings.schedule(held.mail.transport)
        is_last = schedule.after(entry.refusals + 1, ended.at, seen.expires_at, 0.0) is None
        attempt = HookedAttempt(seen, ended.end, ended.status, entry.reply, ended.why, entry.host, stage, is_last)
        decided = await self.hooks.after(attempt)
        return ended if decided is None else self._decided(held, entry, decided, ended.status)

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
                wait = held.away if decision.delay is None else decision.delay
                return EndedEntry(entry, EntryEnd.RETURNED, self.now(), status, decision.reason, wait=wait)
            case HoldRecipient(reason):
                held_now = replace(entry, order=EntryOrder(OrderKind.HOLD, "a hook", reason, self.now()))
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
        )
