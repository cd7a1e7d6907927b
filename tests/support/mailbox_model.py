"""What mail there must be, as plain dictionaries: the record that every store is held to, whatever happens to it.

A change that was acknowledged has happened. One that failed, or whose writer was killed, has happened or not, but not
by half: a move may leave the message in both mailboxes, never in none.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from mailmend.model.ids import MailboxId
from mailmend.model.operations import ChangeIf, Conditional, PutIfAbsent, RemoveIf
from mailmend.model.table import Row
from mailmend.repair.store.message import Flags, FlagsChange, MessageKey, NewMail, Stored, SystemFlag, flags_of
from mailmend.repair.store.message_store import MessageStore
from mailmend.repair.store.plans import place_of

Mailboxes = Mapping[MessageKey, Flags]
"""Every message at its place, with its flags."""


class Operation(Protocol):
    """One operation of a writer."""

    def act(self, store: MessageStore) -> Stored: ...

    def outcomes(self, before: Mailboxes, found: Mailboxes) -> Iterator[Mailboxes]:
        """What may stand afterwards, the whole change last; `found` names places that nobody could foresee."""
        ...


@dataclass(frozen=True, slots=True)
class Add:
    """A mail arrives."""

    mailbox: MailboxId
    mail: NewMail

    def act(self, store: MessageStore) -> Stored:
        return store.add(self.mailbox, self.mail)

    def outcomes(self, before: Mailboxes, found: Mailboxes) -> Iterator[Mailboxes]:
        yield before
        yield _with_new(before, found, self.mailbox, self.mail.flags)


@dataclass(frozen=True, slots=True)
class Copy:
    """A message is copied."""

    place: MessageKey
    mailbox: MailboxId

    def act(self, store: MessageStore) -> Stored:
        return store.copy(self.place, self.mailbox)

    def outcomes(self, before: Mailboxes, found: Mailboxes) -> Iterator[Mailboxes]:
        yield before
        yield _with_new(before, found, self.mailbox, _copied(before[self.place]), self.place)


@dataclass(frozen=True, slots=True)
class Move:
    """A message is moved."""

    place: MessageKey
    mailbox: MailboxId

    def act(self, store: MessageStore) -> Stored:
        return store.move(self.place, self.mailbox)

    def outcomes(self, before: Mailboxes, found: Mailboxes) -> Iterator[Mailboxes]:
        copied = _with_new(before, found, self.mailbox, _copied(before[self.place]), self.place)
        arrived = [one for one in copied if one.mailbox_id == self.mailbox and one.message_id == self.place.message_id]
        yield before
        yield copied
        if any(one != self.place for one in arrived):
            yield _without(copied, self.place)


@dataclass(frozen=True, slots=True)
class Delete:
    """A message is deleted."""

    place: MessageKey

    def act(self, store: MessageStore) -> Stored:
        return store.delete(self.place)

    def outcomes(self, before: Mailboxes, found: Mailboxes) -> Iterator[Mailboxes]:  # noqa: ARG002 - nothing new can arise
        yield before
        yield _without(before, self.place)


@dataclass(frozen=True, slots=True)
class SetFlags:
    """A message's flags change."""

    place: MessageKey
    change: FlagsChange

    def act(self, store: MessageStore) -> Stored:
        return store.set_flags(self.place, self.change)

    def outcomes(self, before: Mailboxes, found: Mailboxes) -> Iterator[Mailboxes]:  # noqa: ARG002 - nothing new can arise
        yield before
        yield {**before, self.place: self.change.applied_to(before[self.place])}


def landed_on(before: Mailboxes, write: Conditional) -> Mailboxes:
    """What stands after a change of the truth that was under way for long."""
    match write:
        case PutIfAbsent():
            return {**before, place_of(write.row): flags_of(write.row)}
        case ChangeIf():
            place = MessageKey(*write.key)
            row = {**before[place].as_row(), **write.assign}
            user = before[place].user | write.add.get("userflags", frozenset())
            return {**before, place: flags_of({**row, "userflags": user - write.take.get("userflags", frozenset())})}
        case RemoveIf():
            return _without(before, MessageKey(*write.key))


def _with_new(
    before: Mailboxes, found: Mailboxes, mailbox: MailboxId, flags: Flags, of: MessageKey | None = None
) -> dict[MessageKey, Flags]:
    new = [place for place in found if place not in before and place.mailbox_id == mailbox]
    if of is not None:
        new = [place for place in new if place.message_id == of.message_id]
    return {**before, **dict.fromkeys(new[:1], flags)}


def _without(before: Mailboxes, gone: MessageKey) -> dict[MessageKey, Flags]:
    return {place: flags for place, flags in before.items() if place != gone}


def _copied(flags: Flags) -> Flags:
    return Flags(flags.system | {SystemFlag.RECENT}, flags.user)


def mailboxes_of(truths: Iterable[Row]) -> dict[MessageKey, Flags]:
    return {place_of(row): flags_of(row) for row in truths}
