"""From a mail in its queue to the server that DNS names: a server of DNS and a server of mail on loopback."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from dns import rcode

from mailmend.delivery.mail.attempts import NextHop
from mailmend.delivery.policy.engine import PickupEngine
from mailmend.delivery.server.serving import DeliveryServer
from mailmend.delivery.settings import DeliverySettings
from mailmend.delivery.smtp.outgoing.addresses import LOOPBACK, OwnHost, ip_of
from mailmend.delivery.smtp.outgoing.dns import DnsNextHops, DnsSettings
from mailmend.delivery.smtp.outgoing.relay import SmtpRelay
from mailmend.mailqueue.memory import MemoryMailQueue
from mailmend.mailqueue.rules.mails import Mail
from mailmend.model.ids import QueueName
from mailmend.repair.clock import SystemClock
from tests.support.dns_twin import HOST, DnsTwin
from tests.support.smtp_sink import SmtpSink

CONTENT = b"Subject: hello\r\n\r\nBody.\r\n"
LIMIT_SECONDS = 30
OWN = OwnHost(addresses=frozenset({ip_of("127.0.0.77")}), has=lambda _: False)


@dataclass(frozen=True)
class AtPort:
    """Implements `delivery.mail.attempts.NextHops`: servers that listen at a port of a test."""

    hops: DnsNextHops
    port: int

    async def of(self, domain: str) -> Sequence[NextHop]:
        return [replace(hop, port=self.port) for hop in await self.hops.of(domain)]


async def test_a_domain_is_served_and_one_that_is_this_host_is_reported_at_the_first_pass() -> None:
    """The zones of a report: the first has an address, though its name does not exist for IPv6."""
    zone = {
        ("nx6.test", "MX"): ["10 mx.nx6.test."],
        ("mx.nx6.test", "A"): [HOST],
        ("loop1.test", "MX"): ["10 here.test."],
        ("here.test", "A"): ["127.0.0.77"],
        ("sender.test", "A"): [HOST],
    }
    clock, sink = SystemClock(), SmtpSink()
    queue = MemoryMailQueue(QueueName("outgoing"), clock)
    for domain in ("nx6.test", "loop1.test"):
        await queue.enqueue(Mail(domain, (f"bob@{domain}",), sender="ann@sender.test"), CONTENT)

    async with DnsTwin(zone, {("mx.nx6.test", "AAAA"): rcode.NXDOMAIN}).running() as dns, sink.running():
        settings = DnsSettings((HOST,), dns.port, timedelta(seconds=LIMIT_SECONDS), own=OWN, internal=LOOPBACK)
        relay, stop = SmtpRelay("client.example"), asyncio.Event()
        server = DeliveryServer(
            name="server",
            queue=queue,
            next_hops=AtPort(DnsNextHops(clock, settings), sink.port),
            relay=relay,
            engine=PickupEngine(()),
            clock=clock,
            settings=DeliverySettings(reporter="client.example"),
        )
        serving = asyncio.ensure_future(server.serve(stop))
        async with asyncio.timeout(LIMIT_SECONDS):
            while (await queue.size()).mails:  # noqa: ASYNC110 - nothing tells when it is empty
                await asyncio.sleep(0)
        stop.set()
        await serving
        await relay.close()

    received = {mail.recipients[0].split()[1]: mail.content for mail in sink.mails}
    assert received.keys() == {"TO:<bob@nx6.test>", "TO:<ann@sender.test>"}
    assert received["TO:<bob@nx6.test>"] == CONTENT
    assert (
        b"Final-Recipient: rfc822; bob@loop1.test\r\nAction: failed\r\nStatus: 5.4.6"
        in received["TO:<ann@sender.test>"]
    )
