"""A server of DNS on loopback that answers from a table; it counts what it is asked."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
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
        failing: the answer to questions for these names, whatever is in `records`; None is silence.
        ttl_seconds: of every record.
        missing_ttl_seconds: of the news that there is none.
    """

    records: Mapping[tuple[str, str], Sequence[str]]
    failing: dict[str, Rcode | None] = field(default_factory=dict)
    ttl_seconds: int = 300
    missing_ttl_seconds: int = 60
    port: int = 0
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["DnsTwin"]:
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: _Answering(self), local_addr=(HOST, self.port)
        )
        self.port = transport.get_extra_info("sockname")[1]
        try:
            yield self
        finally:
            transport.close()

    def answer(self, question: message.Message) -> message.Message | None:
        [asked] = question.question
        host, kind = asked.name.to_text(omit_final_dot=True).lower(), rdatatype.to_text(asked.rdtype)
        self.asked[host, kind] += 1
        reply = message.make_response(question)
        reply.flags |= flags.RA
        if host in self.failing:
            code = self.failing[host]
            if code is None:
                return None
            reply.set_rcode(code)
            return reply
        for _ in range(8):
            reply.answer += [self._rrset(host, one) for one in dict.fromkeys((kind, "CNAME")) if self._has(host, one)]
            if self._has(host, kind) or not self._has(host, "CNAME"):
                break
            host = self.records[host, "CNAME"][0].removesuffix(".")
        if not self._has(host, kind):
            exists = any(host == one or one.endswith(f".{host}") for one, _ in self.records)
            reply.set_rcode(rcode.NOERROR if exists else rcode.NXDOMAIN)
            soa = SOA.format(self.missing_ttl_seconds)
            reply.authority = [rrset.from_text("example.", self.missing_ttl_seconds, "IN", "SOA", soa)]
        return reply

    def _has(self, host: str, kind: str) -> bool:
        return (host, kind) in self.records

    def _rrset(self, host: str, kind: str) -> rrset.RRset:
        return rrset.from_text(name.from_text(host), self.ttl_seconds, "IN", kind, *self.records[host, kind])


class _Answering(asyncio.DatagramProtocol):
    def __init__(self, twin: DnsTwin) -> None:
        self._twin = twin
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        reply = self._twin.answer(message.from_wire(data))
        if reply:
            self._transport.sendto(reply.to_wire(), addr)
