"""Clients that end their input early, speak another protocol, or speak too soon, on loopback."""

import asyncio
import re
import socket
import ssl
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailmend.delivery.smtp.incoming.listener import ListenerTls
from mailmend.delivery.smtp.incoming.replies import FAULT
from mailmend.delivery.transports import DeliveryProtocol
from tests.support.certificates import Authority, authority
from tests.support.mail_clients import HOST, LIMIT_SECONDS, MAIL, RCPT, MailClient, MailEntrance, entrance
from tests.support.thorough import share

CONTENT = b"Subject: hello\r\n\r\nThe body.\r\n"
LMTP, SMTP = DeliveryProtocol.LMTP, DeliveryProtocol.SMTP
ENVELOPE = f"{MAIL}\r\n{RCPT}\r\nRCPT TO:<cy@example.com>\r\nDATA\r\n".encode()
WHOLE = ENVELOPE + CONTENT + b".\r\n"


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("tls"), "authority")


@pytest.fixture(scope="module")
def tls(trusted: Authority) -> ListenerTls:
    own = trusted.signed("in", f"IP:{HOST}")
    return ListenerTls(certificate=own.certificate, key=own.key)


# The end of the input


@pytest.mark.parametrize("protocol", DeliveryProtocol)
@pytest.mark.parametrize("is_slow", [False, True])
async def test_a_client_that_ends_its_input_behind_its_mail_is_answered(
    protocol: DeliveryProtocol, is_slow: bool
) -> None:
    """Also while the mail is put into the queue; once, whatever it sent."""
    async with entrance(protocol) as site:
        client = await site.client("LHLO a.example" if protocol is LMTP else "HELO a.example")
        if is_slow:
            site.queue.goes_on.clear()
        client.write(WHOLE)
        client.end_input()
        await asyncio.wait_for(site.queue.began.wait(), LIMIT_SECONDS)
        site.queue.goes_on.set()
        answers = await client.rest()
        assert await site.contents() == [CONTENT]
        assert not site.listener.connections.open

    ends = ["250 2.0.0"] * (2 if protocol is LMTP else 1)
    assert [answer[:9] for answer in answers] == ["250 2.1.0", "250 2.1.5", "250 2.1.5", "354 send ", *ends]


async def test_a_mail_of_a_client_that_ended_its_input_may_end_while_the_listener_ends() -> None:
    async with entrance() as site:
        client = await site.client()
        site.queue.goes_on.clear()
        client.write(WHOLE)
        client.end_input()
        await asyncio.wait_for(site.queue.began.wait(), LIMIT_SECONDS)
        site.stop.set()
        await site.until(lambda: site.listener.connections.stopping)
        site.queue.goes_on.set()
        answers = await client.rest()

    assert [answer[:9] for answer in answers[-2:]] == ["250 2.0.0", "421 4.3.2"]


@pytest.mark.parametrize("behind", [b"", b"QUIT\r\n", b"NOOP"])
async def test_all_that_came_before_the_end_of_the_input_is_answered(behind: bytes) -> None:
    """A command without its line end is none."""
    async with entrance() as site:
        client = await site.client()
        client.write(WHOLE + WHOLE + behind)
        client.end_input()
        answers = await client.rest()
        assert await site.contents() == [CONTENT, CONTENT]

    assert [answer[:3] for answer in answers] == ["250", "250", "250", "354", "250"] * 2 + ["221"] * (len(behind) == 6)


async def test_of_a_mail_whose_input_ended_before_it_nothing_is_kept() -> None:
    async with entrance() as site:
        client = await site.client()
        client.write(WHOLE[:-1])
        client.end_input()
        answers = await client.rest()
        assert await site.mails() == []

    assert [answer[:3] for answer in answers] == ["250", "250", "250", "354"]
    assert site.listener.connections.bytes_held == 0


class BlockingTls:
    """A client of TLS that ends its input as it likes: with `say_goodbye` by close_notify, else by TCP alone."""

    def __init__(self, port: int, trusted: Authority) -> None:
        self.socket = socket.create_connection((HOST, port), LIMIT_SECONDS)
        self.coming, self.going = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=trusted.file)
        self.layer = context.wrap_bio(self.coming, self.going, server_hostname=HOST)

    def step(self, function: Callable[[], object]) -> object:
        """Carry it out, and let bytes go and come until it is done; None once there are no more."""
        while True:
            try:
                return function()
            except ssl.SSLZeroReturnError:
                return None
            except ssl.SSLWantReadError:
                self.flush()
                data = self.socket.recv(65536)
                if not data:
                    return None
                self.coming.write(data)
            finally:
                self.flush()

    def flush(self) -> None:
        if data := self.going.read():
            self.socket.sendall(data)

    def begin_tls(self) -> None:
        self.step(self.layer.do_handshake)

    def end_input(self, *, say_goodbye: bool, close_tcp: bool) -> None:
        if say_goodbye:
            with pytest.raises(ssl.SSLWantReadError):  # the close_notify is written, and none has come
                self.layer.unwrap()
            self.flush()
        if close_tcp:
            self.socket.shutdown(socket.SHUT_WR)

    def rest(self) -> bytes:
        found = b""
        while data := self.step(lambda: self.layer.read(65536)):
            assert isinstance(data, bytes)
            found += data
        return found


@pytest.mark.parametrize("protocol", DeliveryProtocol)
@pytest.mark.parametrize(("say_goodbye", "close_tcp"), [(True, False), (False, True), (True, True)])
async def test_by_tls_too_a_client_that_ends_its_input_is_answered(
    trusted: Authority, tls: ListenerTls, protocol: DeliveryProtocol, say_goodbye: bool, close_tcp: bool
) -> None:
    """By close_notify, by TCP, or both, while its mail is put into the queue."""
    async with entrance(protocol, tls=tls, secured=True) as site:
        site.queue.goes_on.clear()
        loop, goes_on = asyncio.get_running_loop(), site.queue.goes_on

        def talk() -> bytes:
            client = BlockingTls(site.port, trusted)
            client.begin_tls()
            client.step(lambda: client.layer.read(1000))
            hello = b"LHLO a.example\r\n" if protocol is LMTP else b"EHLO a.example\r\n"
            client.layer.write(hello + WHOLE)
            client.flush()
            client.end_input(say_goodbye=say_goodbye, close_tcp=close_tcp)
            loop.call_soon_threadsafe(goes_on.set)
            with client.socket:
                return client.rest()

        said = await asyncio.wait_for(asyncio.to_thread(talk), LIMIT_SECONDS)
        await site.until(lambda: not site.listener.connections.open)
        assert await site.contents() == [CONTENT]

    assert said.count(b"250 2.0.0 taken as ") == (2 if protocol is LMTP else 1)


# Another protocol


@pytest.mark.parametrize(
    "request_",
    [
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 200\r\n\r\nEHLO me\r\n",
        b"GET /\r\nEHLO me\r\n",
        b"GET / HTTP/1.0\n\nEHLO me\n",
        b"CONNECT in.example:25 HTTP/1.1\r\n\r\nEHLO me\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"Host: 127.0.0.1\r\nEHLO me\r\n",
    ],
)
@pytest.mark.parametrize("greeting", ["", "EHLO client.example", "NOOP"])
async def test_a_client_that_speaks_another_protocol_hands_over_nothing(greeting: str, request_: bytes) -> None:
    """The connection ends with the first word that no client of SMTP says, and nothing behind it is heeded."""
    async with entrance() as site:
        client = await site.client(greeting)
        if not greeting:
            await client.reply()
        client.write(request_ + WHOLE)
        said = await client.rest()
        assert await site.mails() == []

    assert [answer[:9] for answer in said] == ["500 5.5.2"]


async def test_what_came_before_another_protocol_stays_taken() -> None:
    """A mail that was answered with 250 is in the queue."""
    async with entrance() as site:
        client = await site.client()
        client.write(WHOLE + b"GET / HTTP/1.1\r\n" + WHOLE)
        said = await client.rest()
        assert await site.contents() == [CONTENT]

    assert [answer[:9] for answer in said[-2:]] == ["250 2.0.0", "500 5.5.2"]


async def test_another_protocol_within_tls_hands_over_nothing(trusted: Authority, tls: ListenerTls) -> None:
    async with entrance(tls=tls) as site:
        client = await site.client()
        await client.say("STARTTLS")
        await client.writer.start_tls(ssl.create_default_context(cafile=trusted.file), server_hostname=HOST)
        client.write(b"POST / HTTP/1.1\r\n\r\nEHLO me\r\n" + WHOLE)
        assert [answer[:9] for answer in await client.rest()] == ["500 5.5.2"]
        assert await site.mails() == []


# Too soon


async def early(site: MailEntrance, sent: bytes) -> MailClient:
    """A client whose bytes are there before the listener knows of it."""
    connection = socket.create_connection((HOST, site.port), LIMIT_SECONDS)
    connection.sendall(sent)
    client = MailClient(*await asyncio.open_connection(sock=connection))
    site.clients.append(client)
    return client


@pytest.mark.parametrize("sent", [b"EHLO me\r\n" + WHOLE, b"E", b"GET / HTTP/1.1\r\n\r\n" + WHOLE])
async def test_a_client_that_speaks_before_the_greeting_is_refused(sent: bytes) -> None:
    """It does not read what it is answered, as one that another program uses for its own ends."""
    async with entrance() as site:
        client = await early(site, sent)
        said = await client.rest()
        assert await site.mails() == []

    assert [answer[:9] for answer in said] == ["554 5.5.1"]


async def test_a_client_may_send_commands_together_once_it_was_greeted() -> None:
    """With its EHLO too, as clients do that know the server."""
    async with entrance() as site:
        client = await site.client("")
        await client.reply()
        client.write(b"EHLO me\r\n" + WHOLE + WHOLE + b"QUIT\r\n")
        said = await client.rest()
        assert await site.contents() == [CONTENT, CONTENT]

    assert [answer[:3] for answer in said] == ["250", *["250", "250", "250", "354", "250"] * 2, "221"]


# Anything


REPLY = re.compile(r"[2-5][0-9]{2}[ -][\x20-\x7e]+(\n[2-5][0-9]{2}[ -][\x20-\x7e]+)*")
WORDS = st.one_of(
    st.sampled_from(
        ["EHLO a", "HELO [::1]", "LHLO", MAIL, RCPT, "DATA", "RSET", "MAIL FROM:<> SIZE=9", "RCPT TO:<x>"]
    ).map(lambda line: f"{line}\r\n".encode()),
    st.sampled_from(
        ["STARTTLS", "BDAT 10 LAST", "QUIT", "", "a\r\n.", ".", "\n.", "NOOP " + "x" * 3000, "help", "\0"]
    ).map(lambda line: f"{line}\r\n".encode()),
    st.sampled_from([b"RSET\n", b"VRFY \xff\xff\r\n", b"\r", b"\n"]),
    st.binary(max_size=30),
)


@given(st.lists(WORDS, max_size=20))
@settings(max_examples=share(60))
async def test_whatever_a_client_sends_is_answered_in_words_of_smtp(sent: list[bytes]) -> None:
    """Nothing fails by itself, and the connection ends with the client's input."""
    async with entrance() as site:
        client = await site.client("")
        said = [await client.reply()]
        client.write(b"".join(sent))
        client.end_input()
        said += await client.rest()
        await site.until(lambda: not site.listener.connections.open)

    assert str(FAULT) not in said
    assert not [answer for answer in said if not REPLY.fullmatch(answer)]
