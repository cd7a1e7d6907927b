"""From a mail in its queue to a server of mail on loopback, as its transport says: addresses, names, logins, keys."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from mailmend.delivery.mail.attempts import NextHop
from mailmend.delivery.mail.hooks import TryDelivery
from mailmend.delivery.policy.engine import PickupEngine
from mailmend.delivery.policy.orders import Suspension
from mailmend.delivery.policy.policy import PickupField, pattern_of
from mailmend.delivery.server.hooks import DeliveryHooks
from mailmend.delivery.server.serving import DeliveryServer
from mailmend.delivery.settings import DeliverySettings
from mailmend.delivery.smtp.outgoing.relay import SmtpRelay
from mailmend.delivery.transports import (
    ConnectionReuse,
    DeliveryProtocol,
    SmtpLogin,
    SourceAddress,
    StageTimeouts,
    TlsLevel,
    Transport,
    TransportHop,
)
from mailmend.mailqueue.codec import attribute
from mailmend.mailqueue.memory import MemoryMailQueue
from mailmend.mailqueue.rules.mails import Mail
from mailmend.model.ids import QueueName
from mailmend.repair.clock import SystemClock
from tests.support.deliveries import CONTENT, LATER, DeliverySite, TableHops
from tests.support.smtp_sink import SmtpSink, say
from tests.unit.delivery.test_dkim import ED25519, is_verified, signer
from tests.unit.delivery.test_journalling import ENDED

LIMIT_SECONDS = 30
HELD = Suspension("all", {})


@dataclass
class SendingScene:
    """A queue in memory, a server with its own clock, and a server of mail that takes all."""

    sink: SmtpSink = field(default_factory=SmtpSink)
    hooks: DeliveryHooks | None = None
    queue: MemoryMailQueue = field(init=False)
    server: DeliveryServer = field(init=False)

    def __post_init__(self) -> None:
        self.queue = MemoryMailQueue(QueueName("outgoing"), SystemClock())

    async def put(self, transport: str = "", content: bytes = CONTENT) -> None:
        attributes = {"transportid": attribute(transport)} if transport else {}
        await self.queue.enqueue(Mail("m", ("bob@one.example",), sender="a@b.example", attributes=attributes), content)

    @asynccontextmanager
    async def delivering(self, **transports: Transport) -> AsyncIterator[None]:
        async with self.sink.running():
            relay, stop = SmtpRelay("client.example"), asyncio.Event()
            self.server = DeliveryServer(
                name="server",
                queue=self.queue,
                next_hops=TableHops({"one.example": [NextHop("mx.one.example", "127.0.0.1", self.sink.port)]}),
                relay=relay,
                engine=PickupEngine(()),
                clock=SystemClock(),
                settings=DeliverySettings(reporter="client.example"),
                hooks=self.hooks,
            )
            self.server.send_by({name.replace("others", "*"): said for name, said in transports.items()})
            serving = asyncio.ensure_future(self.server.serve(stop))
            try:
                yield
            finally:
                stop.set()
                await serving
                await relay.close()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not holds():  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.005)

    async def sent(self, number: int = 1) -> None:
        """Wait until so many mails were taken."""
        await self.until(lambda: len(self.sink.mails) >= number)


def source(last: int, helo: str = "") -> SourceAddress:
    return SourceAddress(f"127.0.0.{last}", helo)


async def test_the_mails_of_a_transport_are_sent_from_its_addresses_by_its_names() -> None:
    """Other mails as the transport of all others says; addresses take turns."""
    scene = SendingScene()
    bulk = Transport(sources=(source(11, "bulk1.example"), source(12, "bulk2.example")))
    for transport in ("bulk", "bulk", "", "alerts"):
        await scene.put(transport)

    async with scene.delivering(bulk=bulk, others=Transport(sources=(source(20, "out.example"),))):
        await scene.sent(4)

    assert sorted(mail.peer for mail in scene.sink.mails) == ["127.0.0.11", "127.0.0.12", "127.0.0.20", "127.0.0.20"]
    names = [line for line in scene.sink.lines if line.startswith("EHLO")]
    assert sorted(names) == ["EHLO bulk1.example", "EHLO bulk2.example", "EHLO out.example", "EHLO out.example"]


async def test_a_suspended_address_of_a_transport_leaves_its_mails_to_the_others() -> None:
    """As the rotation would have taken it for each second mail; other domains go from both."""
    site = DeliverySite()
    pool = Transport(sources=(SourceAddress("192.0.2.1"), SourceAddress("192.0.2.2")))
    for domain in ("gmail.com", "example.org") * 4:
        await site.put(f"bob@{domain}", attributes={"transportid": attribute("pool")})
    wanted = {PickupField.LOCAL_IP: "192.0.2.1", PickupField.RECIPIENT_DOMAIN: "gmail.com"}
    patterns = {named: (pattern_of(named, text),) for named, text in wanted.items()}

    async def read() -> None:
        site.server.limit((), (Suspension("not gmail", patterns),))
        site.server.send_by({"pool": pool})

    await site.serve(600, beside=read())

    used = {(one.recipients[0].domain, one.source.address) for _, one in site.relay.attempts}
    assert used == {("gmail.com", "192.0.2.2"), ("example.org", "192.0.2.1"), ("example.org", "192.0.2.2")}


async def test_mails_of_a_transport_go_to_its_server_as_its_user_and_signed() -> None:
    """Whatever DNS says of their domain."""
    scene = SendingScene(SmtpSink(extensions=("AUTH PLAIN",), passwords={"ann": "hunter2"}))
    other = SmtpSink(host="127.0.0.9")
    author = b"From: ann@example.org\r\nSubject: hello\r\n\r\nBody.\r\n"
    await scene.put("partner", author)
    await scene.put("", author)

    async with other.running(), scene.delivering(others=Transport(signer=signer(ED25519))):
        login = SmtpLogin("ann", password="hunter2")
        partner = Transport(next_hop=TransportHop("127.0.0.1", scene.sink.port, login), signer=signer(ED25519))
        scene.server.next_hops.table["one.example"] = [other.hop()]  # type: ignore[attr-defined]
        scene.server.send_by({"partner": partner})
        await scene.until(lambda: bool(scene.sink.mails and other.mails))

    (signed,), (plain,) = scene.sink.mails, other.mails
    assert (signed.user, is_verified(signed.content)) == ("ann", True)
    assert (plain.user, plain.content) == ("", author)


async def test_a_server_that_a_hook_names_gets_no_password() -> None:
    """The login is for the transport's own server."""
    sink = SmtpSink(extensions=("AUTH PLAIN",), passwords={"ann": "hunter2"})
    scene = SendingScene(sink)
    scene.hooks = DeliveryHooks(clock=SystemClock(), pre=lambda _: TryDelivery(host="127.0.0.1", port=sink.port))
    hop = TransportHop("127.0.0.8", 9, SmtpLogin("ann", password="hunter2"))
    await scene.put("partner")

    async with scene.delivering(partner=Transport(next_hop=hop)):
        await scene.sent()

    assert not any(line.startswith("AUTH") for line in sink.lines)


NONE, OPTIONAL, REQUIRED, VERIFIED = TlsLevel


@pytest.mark.parametrize(
    ("said", "others", "option", "host", "level"),
    [
        (None, None, OPTIONAL, "192.0.2.1", VERIFIED),
        (None, None, REQUIRED, "192.0.2.1", VERIFIED),
        (None, None, NONE, "192.0.2.1", VERIFIED),
        (OPTIONAL, REQUIRED, REQUIRED, "192.0.2.1", VERIFIED),
        (REQUIRED, None, OPTIONAL, "192.0.2.1", REQUIRED),
        (None, REQUIRED, OPTIONAL, "192.0.2.1", REQUIRED),
        (VERIFIED, REQUIRED, NONE, "192.0.2.1", VERIFIED),
        (None, None, OPTIONAL, "127.0.0.1", OPTIONAL),
        (None, None, NONE, "127.0.0.1", NONE),
    ],
)
async def test_a_password_goes_to_a_server_whose_certificate_is_trusted(
    said: TlsLevel | None, others: TlsLevel | None, option: TlsLevel, host: str, level: TlsLevel
) -> None:
    """Unless the file itself says that any certificate will do, or the server is this machine."""
    site = DeliverySite()
    hop = TransportHop(host, 25, SmtpLogin("ann", password="hunter2"))
    await site.put("bob@one.example", attributes={"transportid": attribute("partner")})

    async def read() -> None:
        site.server.send_by({"*": Transport(tls=others), "partner": Transport(tls=said, next_hop=hop)})

    await site.serve(30, beside=read(), tls=option)

    ((_, sent),) = site.relay.attempts
    assert (sent.login, sent.tls) == (hop.login, level)


async def test_a_hook_may_choose_the_transport() -> None:
    """By the field that policies count by."""
    scene = SendingScene()
    fields = {PickupField.TRANSPORT_ID: "bulk"}
    scene.hooks = DeliveryHooks(clock=SystemClock(), pre=lambda _: TryDelivery(fields=fields))
    await scene.put()

    async with scene.delivering(bulk=Transport(sources=(source(11),))):
        await scene.sent()

    assert scene.sink.mails[0].peer == "127.0.0.11"


async def test_rejected_credentials_hold_up_no_other_mail(caplog: pytest.LogCaptureFixture) -> None:
    """The mail comes again later; one of another transport goes meanwhile."""
    repeated = [say("535 5.7.8 what is hunter2, or AGFubgBodW50")] * 100
    scene = SendingScene(SmtpSink({"AUTH": repeated}, extensions=("AUTH PLAIN",)))
    await scene.put("partner")
    await scene.put()
    caplog.set_level("INFO")

    async with scene.delivering():
        hop = TransportHop("127.0.0.1", scene.sink.port, SmtpLogin("ann", password="hunter2"))
        scene.server.send_by({"partner": Transport(next_hop=hop)})
        await scene.sent()
        await scene.until(lambda: any(line.startswith("AUTH") for line in scene.sink.lines))
        await asyncio.sleep(0.05)

    waiting = [listed.queued.mail async for listed in scene.queue.browse()]
    assert [mail.attributes.get("transportid") for mail in waiting] == [attribute("partner")]
    logged = [vars(record).get("why") for record in caplog.records]
    assert any("our login at the server failed: 535 5.7.8 (" in str(why) for why in logged)
    shown = f"{waiting} {[vars(record) for record in caplog.records]}"
    assert "hunter2" not in shown
    assert "AGFub" not in shown


async def test_a_mail_that_waits_goes_as_a_file_says_that_was_read_meanwhile() -> None:
    """One whose addresses have changed comes again at once, and counts no retry."""
    site = DeliverySite()
    await site.put("bob@one.example", attributes={"transportid": attribute("bulk")})

    async def reloaded() -> None:
        await site.clock.pause(30)
        site.server.send_by({"bulk": Transport(sources=(SourceAddress("192.0.2.2"),), tls=TlsLevel.REQUIRED)})
        await site.clock.pause(30)
        site.server.engine.lift("all", site.server._work.nanos())
        site.server._woken.set()

    async def held() -> None:
        site.server.engine.suspend(HELD, site.server._work.nanos())
        await reloaded()

    await site.serve(600, beside=held())

    ((_, attempt),) = site.relay.attempts
    assert (attempt.source.address, attempt.tls) == ("192.0.2.2", TlsLevel.REQUIRED)
    assert site.relay.had == ["bob@one.example"]


async def test_a_file_may_be_read_anew_while_the_server_closes() -> None:
    """What waited has ended here then, as the other recipient of its mail was delivered to."""
    site = DeliverySite()
    named = PickupField.RECIPIENT_DOMAIN
    await site.put("bob@one.example", "cy@two.example", attributes={"transportid": attribute("bulk")})

    async def held() -> None:
        site.server.limit((), (Suspension("two", {named: (pattern_of(named, "two.example"),)}),))

    await site.serve(10, beside=held())
    site.server.send_by({"bulk": Transport(sources=(SourceAddress("192.0.2.2"),))})

    assert [mail.recipients for mail in await site.mails()] == [("cy@two.example",)]


LMTP = Transport(protocol=DeliveryProtocol.LMTP)
WISHED = {"dsn-notify": attribute({"bob@one.example": "SUCCESS"})}


async def test_what_a_transport_sends_by_lmtp_has_arrived() -> None:
    """The reports say so: the server is the recipients' own."""
    site = DeliverySite()
    await site.put("bob@one.example", attributes={**WISHED, "transportid": attribute("mailboxes")})
    await site.put("bob@one.example", attributes=WISHED)

    async def read() -> None:
        site.server.send_by({"mailboxes": LMTP})

    await site.serve(600, beside=read())

    assert sorted(action for _, action in site.relay.reports()) == ["delivered", "relayed"]


@pytest.mark.parametrize(("said", "action"), [(LMTP, "delivered"), (Transport(), "relayed")])
async def test_what_the_journal_knows_as_delivered_is_reported_by_its_transport(said: Transport, action: str) -> None:
    """A server was killed between its delivery and its report: the mail is not sent again."""
    site = DeliverySite(journals=True)
    await site.put("bob@one.example", attributes={**WISHED, "transportid": attribute("mailboxes")})

    async def read() -> None:
        site.server.send_by({"mailboxes": said})

    await site.serve(600, dies_at=ENDED, beside=read())
    await site.serve(600, beside=read())

    assert site.relay.had.count("bob@one.example") == 1
    assert site.relay.reports() == [("bob@one.example", action)]


async def test_an_attempt_has_the_time_limits_and_connections_of_its_transport() -> None:
    site = DeliverySite()
    timeouts, reuse = StageTimeouts(connect=timedelta(seconds=7)), ConnectionReuse(3)
    said = Transport(timeouts=timeouts, reuse=reuse, protocol=DeliveryProtocol.LMTP)
    site.relay.scripts["bob@one.example"] = [LATER]
    await site.put("bob@one.example", attributes={"transportid": attribute("bulk")})

    async def read() -> None:
        site.server.send_by({"bulk": said})

    await site.serve(30, beside=read())

    ((_, attempt),) = site.relay.attempts
    assert (attempt.timeouts, attempt.reuse, attempt.protocol) == (timeouts, reuse, DeliveryProtocol.LMTP)


@pytest.mark.parametrize(("mails", "connections"), [(1, 3), (2, 2), (3, 1)])
async def test_connections_are_kept_as_a_transport_says(mails: int, connections: int) -> None:
    """The option of the server keeps none here."""
    scene = SendingScene()

    async with scene.delivering(others=Transport(reuse=ConnectionReuse(mails, timedelta(seconds=60)))):
        for number in range(1, 4):
            await scene.put()
            await scene.sent(number)
            await scene.until(lambda: not scene.server._tasks.attempts)

    assert scene.sink.connections == connections
