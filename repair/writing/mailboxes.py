"""Mailboxes, as far as storing mail needs them: found by path, created where there is none.

The path registry is the truth of paths, and a conditional insert decides who creates a mailbox; the `mailbox` row
follows from it. Both are written again when a mailbox is asked for whose second row is missing, so a creation that was
killed half-way is completed by the next one.
"""

from contextlib import suppress
from uuid import UUID

from model.catalog.mail import MAILBOX, MAILBOX_PATH
from model.errors import DoubtfulWrite, MailmendError
from model.ids import MailboxId
from model.instants import MICROS
from model.operations import Level, Put, PutIfAbsent, Read, Seen
from model.ports import Clock, Tables
from model.schema.table import Row
from repair.retries import Retries

PRIVATE = "#private"
"""The namespace of users' own mailboxes."""

_UID_VALIDITY_MAX = 2**31 - 1


class Mailboxes:
    """The mailboxes of one keyspace."""

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._tables, self._clock = tables, clock
        self._retries = Retries(clock)

    def find(self, user: str, name: str, namespace: str = PRIVATE) -> MailboxId | None:
        seen = self._path(user, name, namespace)
        return _id_of(seen.row) if seen else None

    def ensure(self, user: str, name: str, namespace: str = PRIVATE) -> MailboxId:
        """The mailbox of that path, created if necessary.

        Raises:
            CannotReach: one of its two rows could not be written; another call completes it.
        """
        seen = self._path(user, name, namespace) or self._create(user, name, namespace)
        if not self._tables.read(Read(MAILBOX, (seen.row["mailboxid"],))):
            self._retries.call(lambda: self._tables.write(_mailbox_of(seen)))
        return _id_of(seen.row)

    def _path(self, user: str, name: str, namespace: str) -> Seen | None:
        read = Read(MAILBOX_PATH, (namespace, user, name), Level.SERIAL, times=True)
        rows = self._retries.call(lambda: self._tables.read(read))
        return rows[0] if rows else None

    def _create(self, user: str, name: str, namespace: str) -> Seen:
        """Register the path; a second caller gets the first one's mailbox."""
        row = {
            "namespace": namespace,
            "user": user,
            "mailboxname": name,
            "mailboxid": self._clock.new_uuid(),
            "uidvalidity": self._clock.micros() // MICROS % _UID_VALIDITY_MAX + 1,
        }
        for _ in range(self._retries.policy.retries):
            with suppress(DoubtfulWrite):  # the SERIAL read decides
                self._tables.attempt(PutIfAbsent(MAILBOX_PATH, row))
            if seen := self._path(user, name, namespace):
                return seen
        raise MailmendError(
            f"the path of mailbox {name!r} of {user!r} was registered and does not show",
            mend="Most likely a deletion from a clock that runs ahead hides it: compare the clocks, try again later.",
        )


def _id_of(path: Row) -> MailboxId:
    mailbox_id: UUID = path["mailboxid"]
    return MailboxId(mailbox_id)


def _mailbox_of(path: Seen) -> Put:
    """The mailbox row of a path, with the path's time."""
    row = {
        "id": path.row["mailboxid"],
        "mailboxbase": {"namespace": path.row["namespace"], "user": path.row["user"]},
        "name": path.row["mailboxname"],
        "uidvalidity": path.row["uidvalidity"],
    }
    return Put(MAILBOX, row, at=path.newest)
