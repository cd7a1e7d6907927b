"""The tables in memory for asyncio."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from mailmend.model.errors import MailmendError
from mailmend.model.operations import Applied, Conditional, Read, Scan, Seen, Write
from mailmend.model.ports import Tables
from mailmend.model.table import Row


class InTurn:
    """Blocking tables as asynchronous ones; other tasks run before each answer."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def read(self, read: Read) -> Sequence[Seen]:
        await asyncio.sleep(0)
        return self._tables.read(read)

    async def read_all(self, reads: Sequence[Read]) -> list[Sequence[Seen] | MailmendError]:
        await asyncio.sleep(0)
        return self._tables.read_all(reads)

    async def scan(self, scan: Scan) -> AsyncIterator[Row]:
        await asyncio.sleep(0)
        for row in self._tables.scan(scan):
            yield row
            await asyncio.sleep(0)

    async def write(self, write: Write) -> None:
        await asyncio.sleep(0)
        self._tables.write(write)

    async def write_all(self, writes: Sequence[Write]) -> list[MailmendError | None]:
        await asyncio.sleep(0)
        return self._tables.write_all(writes)

    async def attempt(self, write: Conditional) -> Applied:
        await asyncio.sleep(0)
        return self._tables.attempt(write)
