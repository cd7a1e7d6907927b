"""Mailboxes with a past: messages that arrived over months and were read, flagged or deleted some time later.

Every write carries the time at which it would have happened. All follows from the seed.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

from mailmend.model.catalog.mail import IMAP_UID, MESSAGE_ID
from mailmend.model.operations import Change, Put, Write
from mailmend.model.table import Row

DAY = 86_400_000_000
"""Microseconds."""

_EPOCH_100NS = 0x01B21DD213814000
_VERSION_1 = 0x1000
_VARIANT = 0x8000_0000_0000_0000


def time_uuid(micros: int, number: int) -> UUID:
    """A version-1 UUID of that instant; `number` tells those of one instant apart."""
    ticks = micros * 10 + _EPOCH_100NS
    high = ((ticks & 0xFFFFFFFF) << 32) | ((ticks >> 32) & 0xFFFF) << 16 | _VERSION_1 | (ticks >> 48) & 0x0FFF
    return UUID(int=high << 64 | _VARIANT | number)


def histories(
    mailboxes: int, per_mailbox: int, *, days: float, until: int, seed: int = 1
) -> Iterator[tuple[Write, ...]]:
    """The writes of each message, the truth's and the projection's: its addition, and mostly one change of flags.

    Most are read within hours; one in ten is changed at any later time.
    """
    chance, born = Random(seed), until - int(days * DAY)
    for box in range(mailboxes):
        mailbox = time_uuid(born, box)
        arrivals = sorted(chance.randrange(born, until) for _ in range(per_mailbox))
        for uid, at in enumerate(arrivals, start=1):
            yield _message(mailbox, uid, at, _changed(chance, at, until), number=box * per_mailbox + uid)


def _changed(chance: Random, at: int, until: int) -> int | None:
    kind = chance.random()
    if kind < 0.1:
        return None
    later = chance.randrange(at, until) if kind < 0.2 else at + int(chance.expovariate(1 / 6) * DAY / 24)
    return later if later < until else None


def _message(mailbox: UUID, uid: int, at: int, changed: int | None, *, number: int) -> tuple[Write, ...]:
    row = _row(mailbox, uid, at, number)
    added = tuple(Put(table, row, at=at) for table in (IMAP_UID, MESSAGE_ID))
    if changed is None:
        return added
    flags = {"flagseen": True, "flagflagged": number % 9 == 0, "modseq": uid + 1}
    return (*added, *(Change(table, table.key_of(row), assign=flags, at=changed) for table in (IMAP_UID, MESSAGE_ID)))


def _row(mailbox: UUID, uid: int, at: int, number: int) -> Row:
    date, message = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at // 1000), time_uuid(at, number)
    flags = {f"flag{name}": False for name in ("answered", "deleted", "draft", "flagged", "recent", "seen")}
    return {
        "mailboxid": mailbox,
        "uid": uid,
        "messageid": message,
        "threadid": message,
        "modseq": uid,
        **flags,
        "userflags": frozenset({"$Forwarded"}) if number % 10 == 0 else frozenset(),
        "internaldate": date,
        "save_date": date,
        "bodystartoctet": 1234,
        "fullcontentoctets": 2_000 + number % 100_000,
        "headercontent": f"1_692_{number:064x}",
    }
