"""How entries end without an attempt, or with one that the end of the server breaks off."""

from collections.abc import Iterable, Iterator

from mailmend.delivery.mail.entries import DeliveryEntry, EndedEntry, EntryEnd
from mailmend.delivery.mail.hooks import AttemptState
from mailmend.delivery.server.attempting import EntryAttempts
from mailmend.delivery.server.held_mails import HeldMail
from mailmend.delivery.server.ready_entries import ReadyEntry

EndAndState = tuple[EndedEntry, AttemptState]
"""How an entry ends, and what the hook behind delivery hears of that."""


def unpicked(work: EntryAttempts, held: HeldMail, entry: DeliveryEntry, end: EntryEnd) -> EndAndState:
    """How an entry ends that was not picked: it has expired, or goes back to the queue."""
    state = AttemptState.WAITED
    if end is EntryEnd.EXPIRED:
        state = AttemptState.EXPIRED
    return EndedEntry(entry, end, work.now(), wait=held.away), state


def misplaced(work: EntryAttempts, ready: ReadyEntry) -> EndAndState:
    """How an entry ends that waits for a limit of which only other servers have a part."""
    held = ready.held
    entry = held.active[ready.entry.id.number]
    why = "another server of the queue has this limit"
    ended = EndedEntry(entry, EntryEnd.RETURNED, work.now(), why=why, wait=held.elsewhere)
    return ended, AttemptState.ELSEWHERE


def left_over(
    work: EntryAttempts, mails: Iterable[HeldMail]
) -> Iterator[tuple[HeldMail, EndedEntry, AttemptState | None]]:
    """What goes back to the queue as the server stops, of mails that do not go back as they are.

    With a hook behind delivery that is also what an attempt was broken off of. Where the hook was
    asked, and did not answer in time, the entry ends as without a hook, and there is no state: it
    is not asked again.
    """
    at = work.now()
    for held in mails:
        entries = list(held.active.values())
        is_tried = any(entry.stage.is_attempted for entry in entries)
        if not held.ended and not (is_tried and work.hooks.post):
            continue
        for entry in entries:
            if known := held.heard.get(entry.id.number):
                yield held, known, None
                continue
            stopped = EndedEntry(entry, EntryEnd.RETURNED, at)
            ended = work.cut_off(held, stopped)
            state = AttemptState.STOPPING
            if ended is not stopped:
                state = AttemptState.UNCERTAIN
            yield held, ended, state
