"""The tables for asyncio: no request blocks the loop, and a bounded number is in flight at once.

The driver's callback ends single requests, without a thread for each; many at once go through the
session's own window in one thread.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from mailmend.cql.driver.gathering import GatheredWrites
from mailmend.cql.driver.joined import JoinedWrite
from mailmend.cql.row_statements import Operation
from mailmend.model.errors import MailmendError
from mailmend.model.operations import Applied, Conditional, Put, Read, Scan, Seen, Write
from mailmend.model.table import Row

if TYPE_CHECKING:
    from mailmend.cql.driver.session import Keyspace, PendingRequest

IN_FLIGHT = 256
"""The most single requests of one `AsyncKeyspace` in flight; more of them wait."""


class AsyncKeyspace:
    """The tables of one keyspace on a cluster. Implements `model.ports.AsyncTables`."""

    def __init__(self, keyspace: "Keyspace", in_flight: int = IN_FLIGHT) -> None:
        self._keyspace = keyspace
        self._turns = asyncio.Semaphore(in_flight)
        self._gathered = GatheredWrites(self._sent_together, keyspace.replica_of, self._turns)

    async def read(self, read: Read) -> Sequence[Seen]:
        seen: Sequence[Seen] = await self._one(read)
        return seen

    async def read_all(self, reads: Sequence[Read]) -> list[Sequence[Seen] | MailmendError]:
        if not reads:
            return []
        return await asyncio.to_thread(self._keyspace.read_all, reads)

    async def scan(self, scan: Scan) -> AsyncIterator[Row]:
        request = await self._launched(scan)
        await _landed(request)
        while True:
            rows = request.page()
            more = request.in_pages
            if more:
                request.ask_next_page()
            for row in rows:
                yield row
            if not more:
                return
            await _landed(request)

    async def write(self, write: Write) -> None:
        """A `joinable` insert may share its request with others that are under way."""
        if not isinstance(write, Put) or not write.joinable:
            await self._one(write)
            return
        if not self._keyspace.knows(write):  # its shape finds its replica: the server is asked
            await asyncio.to_thread(self._keyspace.replica_of, write)
        error = await self._gathered.add(write)
        if error is not None:
            raise error

    async def write_all(self, writes: Sequence[Write]) -> list[MailmendError | None]:
        if not writes:
            return []
        return await asyncio.to_thread(self._keyspace.write_all, writes)

    async def attempt(self, write: Conditional) -> Applied:
        applied: Applied = await self._one(write)
        return applied

    async def _sent_together(self, writes: Sequence[Put]) -> MailmendError | None:
        request: Operation | JoinedWrite = writes[0]
        if len(writes) > 1:
            request = JoinedWrite(tuple(writes))
        pending = await self._launched(request)
        await _landed(pending)
        error: MailmendError | None = pending.result()
        return error

    async def _one(self, operation: Operation) -> Any:
        async with self._turns:
            request = await self._launched(operation)
            await _landed(request)
        if request.in_pages:
            answer = await asyncio.to_thread(request.result)
        else:
            answer = request.result()
        if isinstance(answer, MailmendError):
            raise answer
        return answer

    async def _launched(self, operation: Operation | JoinedWrite) -> "PendingRequest":
        """Preparing a shape asks the server, so its first launch runs in a thread, not in the loop."""
        if self._keyspace.knows(operation):
            return self._keyspace.launch(operation)
        return await asyncio.to_thread(self._keyspace.launch, operation)


async def _landed(request: "PendingRequest") -> None:
    loop = asyncio.get_running_loop()
    landed = loop.create_future()
    request.call_back(lambda: _tell(loop, landed))
    await landed


def _tell(loop: asyncio.AbstractEventLoop, landed: asyncio.Future[None]) -> None:
    """Called in the driver's thread; no caller waits any more where the loop is closed."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(_wake, landed)


def _wake(landed: asyncio.Future[None]) -> None:
    if not landed.done():  # the waiting task may have been cancelled
        landed.set_result(None)
