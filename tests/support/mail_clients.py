"""Clients that hand over mails, word by word, and a listener on loopback that takes them into a queue in memory."""

import asyncio
import smtplib
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from mailmend.delivery.settings import ListenAddress, ListenerSettings
from mailmend.delivery.smtp.incoming.listener import ListenerTls, MailListener
from mailmend.delivery.smtp.incoming.users import ListenerUsers
from mailmend.delivery.transports import DeliveryProtocol
from mailmend.mailqueue.memory import MemoryMailQueue
from mailmend.mailqueue.rules.mails import Mail
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.repair.clock import SystemClock

HOST = "127.0.0.1"
LIMIT_SECONDS = 20.0
MAIL = "MAIL FROM:<ann@example.org>"
RCPT = "RCPT TO:<bob@example.com>"


def handed_over(port: int, recipient: str, content: bytes) -> None:
    """From ann@example.org, by a client of its own, as soon as somebody listens.

    A test may stop the server as soon as it has the mail, so it may say 421 to QUIT, or be gone.
    """
    with closing(client_of(lambda: smtplib.SMTP(HOST, port, "client.example", timeout=LIMIT_SECONDS))) as client:
        client.sendmail("ann@example.org", [recipient], content)
        with suppress(smtplib.SMTPServerDisconnected):
            assert client.quit()[0] in {221, 421}


def client_of(connected: Callable[[], smtplib.SMTP]) -> smtplib.SMTP:
    """A client that is connected as soon as somebody listens."""
    until = time.monotonic() + LIMIT_SECONDS
    while True:
        try:
            return connected()
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


class ShiftedClock(SystemClock):
    """The clock of this machine, which a test sets ahead.

    Attributes:
        ahead: seconds.
    """

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class SlowQueue(MemoryMailQueue):
    """A queue whose enqueueing can be held up, or fail; `began` is set once one is under way.

    Attributes:
        error: of every mail.
        errors: of mails to a recipient.
    """

    def __init__(self) -> None:
        self.shifted = ShiftedClock()
        super().__init__(QueueName("outgoing"), self.shifted)
        self.began, self.goes_on = asyncio.Event(), asyncio.Event()
        self.goes_on.set()
        self.error: Exception | None = None
        self.errors: dict[str, Exception] = {}

    async def enqueue(self, mail: Mail, content: bytes, **when: Any) -> EnqueueId:
        self.began.set()
        await self.goes_on.wait()
        if error := self.error or next((self.errors[one] for one in mail.recipients if one in self.errors), None):
            raise error
        return await super().enqueue(mail, content, **when)


@dataclass
class MailClient:
    """A connection to the listener; every wait has an end."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def reply(self) -> str:
        """The next reply, its lines joined; "" once the connection has ended."""
        lines = list[str]()
        async with asyncio.timeout(LIMIT_SECONDS):
            while line := (await self.reader.readline()).decode():
                lines.append(line.rstrip("\r\n"))
                if line[3:4] != "-":
                    break
        return "\n".join(lines)

    def send(self, *lines: str) -> None:
        self.write("".join(f"{line}\r\n" for line in lines).encode("utf-8", "surrogateescape"))

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def say(self, *lines: str) -> str:
        """What is answered to the last of these lines."""
        answer = ""
        for line in lines:
            self.send(line)
            answer = await self.reply()
        return answer

    async def hand_over(self, content: bytes, *envelope: str) -> str:
        """What is answered to the end of a mail."""
        asked = await self.say(*(envelope or (MAIL, RCPT)), "DATA")
        assert asked.startswith("354"), asked
        self.write(content + b".\r\n")
        return await self.reply()

    def end_input(self) -> None:
        """Say nothing more, and go on listening."""
        self.writer.write_eof()

    def reset(self) -> None:
        """Break the connection off, so that the other side reads an error."""
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def rest(self) -> list[str]:
        """All replies until the connection ends."""
        replies = list[str]()
        while reply := await self.reply():
            replies.append(reply)
        return replies

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


@dataclass
class MailEntrance:
    """A listener, its queue, and the clients that a test opened."""

    listener: MailListener
    queue: SlowQueue
    stop: asyncio.Event
    serving: asyncio.Task[None]
    clients: list[MailClient] = field(default_factory=list)

    @property
    def port(self) -> int:
        return self.listener.places[0].port

    async def client(self, greeting: str = "EHLO client.example", address: str = HOST) -> MailClient:
        """One that was greeted, and has said its name unless that is ""; `address` is its own, a loopback one."""
        client = MailClient(*await asyncio.open_connection(HOST, self.port, local_addr=(address, 0)))
        self.clients.append(client)
        if greeting:
            await client.reply()
            await client.say(greeting)
        return client

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not condition():  # noqa: ASYNC110 - nothing tells when it holds
                await asyncio.sleep(0)

    def passes(self, span: timedelta) -> None:
        """That much time passes, and all connections look at it."""
        self.queue.shifted.ahead += span.total_seconds()
        for connection in tuple(self.listener.connections.open):
            connection._timeout_cb()

    async def mails(self) -> Sequence[tuple[Mail, bytes]]:
        return [(one.queued.mail, await self.queue.content(one)) async for one in self.queue.browse()]

    async def contents(self) -> Sequence[bytes]:
        """What stands behind our own header field, which has three lines."""
        return [content.split(b"\r\n", 3)[3] for _, content in await self.mails()]


@asynccontextmanager
async def entrance(
    protocol: DeliveryProtocol = DeliveryProtocol.SMTP,
    *,
    tls: ListenerTls | None = None,
    secured: bool = False,
    users: ListenerUsers | None = None,
    **changes: Any,
) -> AsyncIterator[MailEntrance]:
    """A listener with one address; `secured` is by TLS from the first byte, and `changes` are settings."""
    settings = ListenerSettings(host_name="in.example", addresses=(ListenAddress(HOST, 0, protocol, secured=secured),))
    queue, stop = SlowQueue(), asyncio.Event()
    chosen = replace(settings, **{"grace": timedelta(seconds=LIMIT_SECONDS), **changes})
    listener = MailListener(queue=queue, clock=queue.clock, settings=chosen, tls=tls, users=users)
    await listener.open()
    made = MailEntrance(listener, queue, stop, asyncio.ensure_future(listener.serve(stop)))
    try:
        yield made
    finally:
        for client in made.clients:
            await client.close()
        stop.set()
        await made.serving
