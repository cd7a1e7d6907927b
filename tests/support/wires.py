"""A wire between a client and a server that tests cut or hold: what is on it then is lost, or late."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_CHUNK_BYTES = 65536


class Wire:
    """Passes bytes on between whoever connects to `port` and the server behind it, both in this event loop."""

    def __init__(self, host: str, port: int) -> None:
        self._behind = (host, port)
        self._ends: set[asyncio.StreamWriter] = set()
        self._passing: set[asyncio.Task[None]] = set()
        self._answers = asyncio.Event()
        self._answers.set()
        self.port = 0
        self.dials = 0
        """How many connections were made over it."""
        self.sent_bytes = 0
        """How much clients sent."""
        self.dead = False
        """Whether whoever connects is hung up on at once."""

    def cut(self) -> None:
        """End every connection at once; new ones can be had."""
        for end in tuple(self._ends):
            end.transport.abort()

    def hold_answers(self) -> None:
        """What the server says is kept back until `let_answers`; what clients say is passed on."""
        self._answers.clear()

    def let_answers(self) -> None:
        """Pass on what was kept back, and all that comes."""
        self._answers.set()

    async def end(self) -> None:
        self.let_answers()
        self.cut()
        for task in tuple(self._passing):
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.dials += 1
        self._ends.add(writer)
        if self.dead:
            writer.transport.abort()
            return
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._behind)
        except OSError:
            writer.transport.abort()
            return
        self._ends.add(server_writer)
        for passing in (self._there(reader, server_writer, writer), self._back(server_reader, writer, server_writer)):
            task = asyncio.ensure_future(passing)
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)

    async def _there(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, end: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await source.read(_CHUNK_BYTES):
                self.sent_bytes += len(chunk)
                sink.write(chunk)
                await sink.drain()
        self._hang_up(sink, end)

    async def _back(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, end: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await source.read(_CHUNK_BYTES):
                await self._answers.wait()
                sink.write(chunk)
                await sink.drain()
        self._hang_up(sink, end)

    def _hang_up(self, *ends: asyncio.StreamWriter) -> None:
        for end in ends:
            self._ends.discard(end)
            end.close()


@asynccontextmanager
async def wire_to(host: str, port: int) -> AsyncIterator[Wire]:
    """A wire to the server there, on a port of its own."""
    wire = Wire(host, port)
    server = await asyncio.start_server(wire.connected, "127.0.0.1", 0)
    wire.port = server.sockets[0].getsockname()[1]
    try:
        yield wire
    finally:
        server.close()
        await wire.end()
        await server.wait_closed()
