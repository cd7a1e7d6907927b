"""What people order for a queue's deliveries, in the ledger: what its tables have in common.

Few rows are there at once, in one partition for each queue. One that has an end expires soon after it, so nothing has
to be deleted, and a server whose clock is late sees it to its end.

Cassandra keeps the write with the later stamp, whichever came last. A host whose clock is ahead writes a row that a
removal with this host's time does not remove. So an order is stamped after what is seen, and is read back.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from mailmend.model.errors import MailmendError, Outweighed, raise_first
from mailmend.model.instants import MICROS
from mailmend.model.operations import Put, Read, Remove, Seen
from mailmend.model.ports import AsyncTables
from mailmend.model.table import Key, Table

KEPT_AFTER_END: Final = timedelta(minutes=1)
"""How long a row outlives what it orders, which ends by the clocks of its readers."""

AHEAD_SECONDS: Final = (0, 1, 60, 3_600, 86_400)
"""How far after now an order is stamped, in turn: the time of a removal that hides a row cannot be read."""


def kept_seconds(ends_at: datetime | None, now: datetime) -> int | None:
    """The time to live of a row that is written now; None: it stays."""
    if ends_at is None:
        return None
    return max(1, -(-(ends_at - now + KEPT_AFTER_END) // timedelta(seconds=1)))


def stamp_after(now_micros: int, seen: Sequence[Seen]) -> int:
    """Return the stamp of a write that outweighs what is seen: now, or 1 µs after the latest cell."""
    return max([now_micros, *(row.newest + 1 for row in seen if row.newest is not None)])


async def put_order(tables: AsyncTables, put: Put, now_micros: int) -> None:
    """Write a row so that it is in force, whatever clock wrote what was there.

    Raises:
        Outweighed: a removal by a clock more than a day ahead hides the row.
    """
    await put_orders(tables, [put], now_micros)


async def put_orders(tables: AsyncTables, puts: Sequence[Put], now_micros: int) -> None:
    """Write rows so that each of them is in force; the reads and the writes go out together.

    Raises:
        CannotReach: the ledger does not answer; some rows may be in force.
        Outweighed: a removal by a clock more than a day ahead hides a row.
    """
    left = list(puts)
    for seconds in AHEAD_SECONDS:
        reads = [Read(put.table, put.table.key_of(put.row), times=True) for put in left]
        stamped = []
        for put, answer in zip(left, await tables.read_all(reads), strict=True):
            at = stamp_after(now_micros + seconds * MICROS, found_in(answer))
            stamped.append(replace(put, at=at))
        raise_first(await tables.write_all(stamped))
        left = []
        for put, answer in zip(stamped, await tables.read_all(reads), strict=True):
            seen = found_in(answer)
            if not seen or seen[0].newest != put.at:
                left.append(put)
        if not left:
            return
    raise Outweighed("what was ordered is not in force", mend=Outweighed.MEND)


def found_in(answer: Sequence[Seen] | MailmendError) -> Sequence[Seen]:
    """Return the rows of one answer of `read_all`, or raise its error."""
    if isinstance(answer, MailmendError):
        raise answer
    return answer


async def remove_order(tables: AsyncTables, table: Table, key: Key, now_micros: int) -> None:
    """Remove a row so that it is gone, whatever clock wrote it.

    Raises:
        Outweighed: the row is still there: another host writes it again and again.
    """
    read = Read(table, key, times=True)
    for _ in AHEAD_SECONDS:
        seen = await tables.read(read)
        if not seen:
            return
        await tables.write(Remove(table, key, at=stamp_after(now_micros, seen)))
    if await tables.read(read):
        raise Outweighed("what was to be removed is still in force", mend=Outweighed.MEND)
