"""A server of DNS on loopback, by UDP and TCP, that answers from a table; it counts what it is asked."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dns import flags, message, name, rcode, rdatatype, rrset
from dns.rcode import Rcode

HOST = "127.0.0.1"
SOA = "ns.example. admin.example. 1 3600 600 86400 {}"


@dataclass
class DnsTwin:
    """The server.

    Attributes:
        records: lines of a zone (such as `10 mx.example.`) by name and type, without the dot at the name's end. A name
            that is nowhere in it does not exist.
        failing: the answer to questions for these names, or for a type of these names, whatever is in `records`; None
            is silence.
        follows: whether it answers with what aliases stand for, too.
        by_tcp: what of it came by TCP.
        holding: whether answers by UDP wait in `held` until `release`.
        truncating: types of which it tells nothing by UDP but that the answer is too long.
        ttl_seconds: of every record.
        missing_ttl_seconds: of the news that there is none.
        host, port: where it listens; port 0 is any that is free.
    """

    records: Mapping[tuple[str, str], Sequence[str]]
    failing: Mapping[Any, Rcode | None] = field(default_factory=dict)
    follows: bool = True
    truncating: frozenset[str] = frozenset()
    ttl_seconds: int = 300
    missing_ttl_seconds: int = 60
    host: str = HOST
    port: int = 0
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_tcp: Counter[tuple[str, str]] = field(default_factory=Counter)
    holding: bool = False
    held: list[Callable[[], None]] = field(default_factory=list)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["DnsTwin"]:
        server, transport = await self._listening()
        try:
            yield self
        finally:
            transport.close()
            server.close()
            await server.wait_closed()

    async def _listening(self) -> tuple[asyncio.Server, asyncio.DatagramTransport]:
        """On one port, which another socket may have by UDP alone."""
        wanted = self.port
        while True:
            server = await asyncio.start_server(self._by_tcp, self.host, wanted)
            self.port = server.sockets[0].getsockname()[1]
            try:
                transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                    lambda: _Answering(self), local_addr=(self.host, self.port)
                )
            except OSError:
                server.close()
                if wanted:
                    raise
            else:
                return server, transport

    def release(self) -> None:
        """Answer what was held, and from now on at once."""
        self.holding = False
        for answer in self.held:
            answer()

    async def _by_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = int.from_bytes(await reader.readexactly(2))
        question = message.from_wire(await reader.readexactly(length))
        reply = self.answer(question)
        self.by_tcp[_asked(question)] += 1
        if reply:
            wire = reply.to_wire()
            writer.write(len(wire).to_bytes(2) + wire)
        writer.close()
        await writer.wait_closed()

    def answer_by_udp(self, question: message.Message) -> message.Message | None:
        _, kind = _asked(question)
        if kind in self.truncating:
            reply = message.make_response(question)
            reply.flags |= flags.TC
            return reply
        return self.answer(question)

    def answer(self, question: message.Message) -> message.Message | None:
        host, kind = _asked(question)
        self.asked[host, kind] += 1
        reply = message.make_response(question)
        reply.flags |= flags.RA
        failing = next((one for one in ((host, kind), host) if one in self.failing), None)
        if failing is not None:
            code = self.failing[failing]
            if code is None:
                return None
            reply.set_rcode(code)
            return reply
        for _ in range(8):
            reply.answer += [self._rrset(host, one) for one in dict.fromkeys((kind, "CNAME")) if self._has(host, one)]
            if self._has(host, kind) or not self._has(host, "CNAME") or not self.follows:
                break
            host = self.records[host, "CNAME"][0].removesuffix(".")
        if not self._has(host, kind) and (self.follows or not reply.answer):
            exists = any(host == one or one.endswith(f".{host}") for one, _ in self.records)
            reply.set_rcode(rcode.NOERROR if exists else rcode.NXDOMAIN)
            soa = SOA.format(self.missing_ttl_seconds)
            reply.authority = [rrset.from_text("example.", self.missing_ttl_seconds, "IN", "SOA", soa)]
        return reply

    def _has(self, host: str, kind: str) -> bool:
        return (host, kind) in self.records

    def _rrset(self, host: str, kind: str) -> rrset.RRset:
        return rrset.from_text(name.from_text(host), self.ttl_seconds, "IN", kind, *self.records[host, kind])


def _asked(question: message.Message) -> tuple[str, str]:
    [asked] = question.question
    return asked.name.to_text(omit_final_dot=True).lower(), rdatatype.to_text(asked.rdtype)


class _Answering(asyncio.DatagramProtocol):
    def __init__(self, twin: DnsTwin) -> None:
        self._twin = twin
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        reply = self._twin.answer_by_udp(message.from_wire(data))
        if reply is None:
            return
        answer = partial(self._transport.sendto, reply.to_wire(), addr)
        if self._twin.holding:
            self._twin.held.append(answer)
        else:
            answer()
