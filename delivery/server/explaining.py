"""The state of a recipient whose mail a server has: its stage, what it waits for, and its source address."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mailmend.delivery.mail.entries import DeliveryEntry, EndedEntry, EntryChange, EntryStage
from mailmend.delivery.policy.engine import Picked, PickupEngine
from mailmend.delivery.policy.explaining import (
    NextSource,
    SourceExplanation,
    explain_by,
    next_source,
)
from mailmend.delivery.policy.policy import CounterKey
from mailmend.delivery.policy.sub_queues import ActiveMail
from mailmend.delivery.server.held_mails import HeldMail
from mailmend.delivery.server.ready_entries import ReadyEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryStanding:
    """The state of an entry at this moment.

    Attributes:
        held: its mail.
        counted: as what it waits to be picked, or is being delivered; None at other stages.
        sources: what holds for it at each address that it may be sent from; () where it does not wait.
        goes: from where it would be sent, and when; None where that is unknown, or where it does
            not wait.
        ahead: mails that are counted as it is and come before it.
        waits_on: policies' numbers and keys, or -1 and the id of a suspension, by which it may be woken; () where its
            turn comes.
        picked: its delivery, which goes on.
        ended: how it has ended here; its mail waits for other recipients.
        after_attempt: what is ordered of it for when its attempt has ended.
    """

    held: HeldMail
    entry: DeliveryEntry
    counted: ActiveMail | None = None
    sources: tuple[SourceExplanation, ...] = ()
    goes: NextSource | None = None
    ahead: int = 0
    waits_on: Sequence[tuple[int, CounterKey]] = ()
    picked: Picked | None = None
    ended: EndedEntry | None = None
    after_attempt: EntryChange | None = None


def standings_of(
    name: str, mails: Iterable[HeldMail], ready: Mapping[str, ReadyEntry], engine: PickupEngine, now: int
) -> list[EntryStanding]:
    """The entries of a mail by any of its ids, or one as `mail:number`; `ready` has waiting entries, by their name."""
    standings = list[EntryStanding]()
    for held in mails:
        entries = [*held.active.values(), *(ended.entry for ended in held.ended)]
        for entry in entries:
            if name in held.names_of(entry):
                waiting = ready.get(held.name_of(entry.id.number))
                standings.append(_standing_of(held, entry, waiting, engine, now))
    return standings


def _standing_of(
    held: HeldMail, entry: DeliveryEntry, ready: ReadyEntry | None, engine: PickupEngine, now: int
) -> EntryStanding:
    """The state of an entry of a mail; `ready` is there while it waits."""
    number = entry.id.number
    for ended in held.ended:
        if ended.entry.id.number == number:
            return EntryStanding(held=held, entry=entry, ended=ended)
    if entry.stage is EntryStage.WAITING and ready and ready.counted:
        queue = engine.place_of(ready.counted)
        sources = explain_by(engine, ready.counted, now)
        ahead = 0
        waits_on: Sequence[tuple[int, CounterKey]] = ()
        if queue:
            ahead = queue.ahead_of(ready.counted)
            waits_on = [wait.place for wait in queue.waits_on]
        return EntryStanding(
            held=held,
            entry=entry,
            counted=ready.counted,
            sources=sources,
            goes=next_source(engine, ready.counted, sources),
            ahead=ahead,
            waits_on=waits_on,
        )
    picked = engine.delivering(held.name_of(number))
    if picked is None:
        return EntryStanding(held=held, entry=entry)
    return EntryStanding(held=held, entry=entry, picked=picked, counted=picked.mail)
