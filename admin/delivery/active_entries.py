"""Active recipients that a command changes: what is ordered of them, what servers answer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from mailmend.admin.delivery.connections import existing_orders, made_orders
from mailmend.admin.frame.caller import Caller
from mailmend.admin.queue.connections import QueueConnections
from mailmend.delivery.ledger.intents import IntentStage, LedgerIntents
from mailmend.delivery.mail.entries import EntryAction, EntryChange, EntryId, QueuedEntry
from mailmend.model.catalog.ledger import DELIVERY_INTENT, DELIVERY_POLICIES
from mailmend.model.errors import AccessDenied

TAKES_BACK: Final[Mapping[EntryAction, EntryAction]] = {
    EntryAction.RELEASE: EntryAction.HOLD,
    EntryAction.RETRY: EntryAction.DEFER,
}
"""What is taken back where it is ordered of an active recipient, which is tried anyway."""

PAUSES: Final = (1.0, 2.0, 4.0)
"""Seconds between looks for answers: together longer than servers rest between two readings."""

_TOGETHER: Final = 500
_LOOKED_AT_MAX: Final = 5_000
"""More entries than these are looked at once, at the end."""

_NOT_BEGUN: Final = frozenset({IntentStage.ORDERED, IntentStage.AFTER_ATTEMPT})


@dataclass(frozen=True, slots=True)
class LeftEntry:
    """A recipient that was left alone, as its attempt was under way."""

    id: EntryId
    recipient: str


@dataclass(frozen=True, slots=True)
class IntentAnswers:
    """What servers have made of orders.

    Attributes:
        heeded: the entries of which the change was carried out.
        left: the entries whose attempts were under way.
        unanswered: how many no server has had in hand, or looked at, by now.
    """

    heeded: Sequence[EntryId] = ()
    left: Sequence[LeftEntry] = ()
    unanswered: int = 0


class ActiveEntries:
    """The active entries of which one command orders a change.

    Args:
        change: what is ordered.
        after_attempt: the change also follows an attempt that is under way.
    """

    def __init__(
        self,
        connections: QueueConnections,
        caller: Caller,
        change: EntryChange,
        *,
        after_attempt: bool,
    ) -> None:
        self._connections = connections
        self._caller = caller
        self._queue = connections.settings.name
        self._change = change
        self._stage = IntentStage.ORDERED
        if after_attempt:
            self._stage = IntentStage.AFTER_ATTEMPT
        self._recipients = dict[EntryId, str]()
        self._new = dict[EntryId, EntryChange]()
        self._gone = list[EntryId]()
        self._denied = False
        self._known: LedgerIntents | None = None

    @property
    def count(self) -> int:
        """Of how many entries the change is ordered, or would be."""
        return len(self._recipients)

    async def choose(self, active: Sequence[QueuedEntry]) -> Sequence[QueuedEntry]:
        """The entries of which the change is to be ordered; each is chosen once."""
        new = [entry for entry in active if entry.entry.id not in self._recipients]
        if not new or self._denied:
            return []
        taken_back = TAKES_BACK.get(self._change.action)
        if taken_back is None:
            return new
        readable = await self._readable()
        if readable is None:
            self._denied = True
            return []
        chosen = list[QueuedEntry]()
        mails = list(dict.fromkeys(entry.entry.id.mail for entry in new))
        known = await readable.find(self._queue, mails)
        for entry in new:
            intent = known.get(entry.entry.id)
            if intent and intent.stage in _NOT_BEGUN and intent.change.action is taken_back:
                chosen.append(entry)
        return chosen

    async def _readable(self) -> LedgerIntents | None:
        """Where orders are, as far as there are some that may be read; looked for once."""
        if self._known is not None:
            return self._known
        orders = existing_orders(self._connections, DELIVERY_INTENT)
        try:
            if orders and await orders.intents.are_there(self._queue):
                self._known = orders.intents
        except AccessDenied as error:
            self._caller.remark(f"No order of active recipients is taken back: {error.what}")
        return self._known

    def as_ordered(self, chosen: Sequence[QueuedEntry]) -> Sequence[QueuedEntry]:
        """The entries as a copy keeps them: the order does not hold for what is put back."""
        kept = list[QueuedEntry]()
        for queued in chosen:
            changed_at = self._change.after(queued.entry).at
            kept.append(replace(queued, entry=replace(queued.entry, changed_at=changed_at)))
        return kept

    def forget(self, changed: Iterable[QueuedEntry]) -> None:
        """Take back what was ordered of entries that have been changed in their queue."""
        for queued in changed:
            if self._recipients.pop(queued.entry.id, None) is not None:
                self._gone.append(queued.entry.id)

    async def order(self, chosen: Iterable[QueuedEntry], *, dry_run: bool) -> None:
        """Order the change of these entries: `flush` tells the ledger the rest."""
        for queued in chosen:
            entry = queued.entry
            self._recipients[entry.id] = entry.recipient
            self._new[entry.id] = self._change.after(entry)
        if len(self._new) >= _TOGETHER:
            await self.flush(dry_run=dry_run)

    async def flush(self, *, dry_run: bool) -> None:
        """Have the ledger know what is ordered.

        Raises:
            AccessDenied: the ledger may not be written; entries that nothing would end, now or
                after an attempt, are left alone instead.
        """
        new = self._new
        self._new = {}
        if dry_run or not new:
            return
        try:
            await self._write(new)
        except AccessDenied as error:
            if self._change.action.is_final or self._stage is IntentStage.AFTER_ATTEMPT:
                raise
            self._denied = True
            self._recipients.clear()
            self._caller.remark(f"What is active is left alone: it cannot be ordered: {error.what}")

    async def answers(self) -> IntentAnswers:
        """What servers have answered after a few seconds; nothing where no server is at work."""
        if self._change.action in TAKES_BACK:
            return IntentAnswers(heeded=list(self._recipients))
        if self._gone:
            await self._intents.remove(self._queue, self._gone)
        wants_answers = self.count > 0 and self._stage is IntentStage.ORDERED
        if not wants_answers or not await self._is_served():
            return IntentAnswers(unanswered=self.count)
        self._caller.progress.stage("wait for the servers")
        heeded = list[EntryId]()
        left = list[LeftEntry]()
        unanswered = list(self._recipients)
        pauses: Sequence[float] = PAUSES
        if len(unanswered) > _LOOKED_AT_MAX:
            pauses = (sum(PAUSES),)
        for seconds in pauses:
            await self._connections.clock.pause(seconds)
            asked = unanswered
            unanswered = []
            mails = list(dict.fromkeys(entry.mail for entry in asked))
            found = await self._intents.find(self._queue, mails)
            for entry in asked:
                intent = found.get(entry)
                if intent is None or intent.stage is IntentStage.HEEDED:
                    heeded.append(entry)
                elif intent.stage is IntentStage.LEFT:
                    left.append(LeftEntry(entry, self._recipients[entry]))
                else:
                    unanswered.append(entry)
            if not unanswered:
                break
        return IntentAnswers(heeded, left, len(unanswered))

    async def _write(self, new: Mapping[EntryId, EntryChange]) -> None:
        if self._change.action in TAKES_BACK:
            await self._intents.remove(self._queue, new.keys())
        else:
            await self._intents.put(self._queue, new, self._change.at, self._stage)

    @cached_property
    def _intents(self) -> LedgerIntents:
        """The orders in the ledger, whose tables are looked for once."""
        return made_orders(self._connections).intents

    async def _is_served(self) -> bool:
        """Whether a server of deliveries is at work, or was a moment ago."""
        orders = existing_orders(self._connections, DELIVERY_POLICIES)
        return orders is not None and bool(await orders.policies.of(self._queue))
