"""The only module that imports aio-pika: a connection renewed when lost, channels, its errors.

Nothing of the library leaves this module. What it raises becomes `BrokerUnreachable` and its kinds,
or, where another step follows, a value: a queue that is not there is None, a publish has an
`Answer`.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

import aio_pika
from aio_pika import exceptions
from aio_pika.abc import AbstractConnection
from aio_pika.connection import make_url
from aiormq import ChannelAccessRefused, ChannelLockedResource, ConnectionNotAllowed, abc, spec

from mailmend.mailqueue.broker_tls import context_of, tls_error
from mailmend.mailqueue.rabbitmq.broker.settings import ROUTING_KEY, Argument, BrokerSettings, Host
from mailmend.model.errors import BrokerDenied, BrokerUnreachable, MailmendError, TopologyMismatch
from mailmend.repair.retries import AsyncRetries

_GONE = (exceptions.AMQPError, OSError, RuntimeError, EOFError)
"""What the library raises when no broker answers, or not as agreed; a channel that is closed is a RuntimeError."""

_DENIED = (
    ChannelAccessRefused,
    ConnectionNotAllowed,
    exceptions.AuthenticationError,
    exceptions.ProbableAuthenticationError,
)

_AT_THE_LIMIT = "limit"
"""What the broker says when there are too many connections just now: that passes."""

_NOT_OPENED = "Connection.OpenOk"
"""What the library awaited when the broker refused the virtual host; the broker's own reason is lost there."""


def is_gone(error: Exception) -> bool:
    """Whether it is the library's error; a broker that hangs up between two frames raises a bare `Exception`."""
    return isinstance(error, _GONE) or type(error) is Exception


def ours(error: Exception, settings: BrokerSettings) -> MailmendError:
    if isinstance(error, ChannelLockedResource):
        return TopologyMismatch(
            f"a queue at {settings.place} is another connection's own: {reason_of(error)}",
            mend="See whose it is: rabbitmqctl list_queues name owner_pid exclusive",
        )
    if isinstance(error, _DENIED) and _AT_THE_LIMIT not in reason_of(error):
        return BrokerDenied(
            f"RabbitMQ at {settings.place} refuses the user {settings.username!r}: {reason_of(error)}",
            mend="Look at the user, the password and the permissions on the virtual host.",
        )
    if _AT_THE_LIMIT in reason_of(error):
        return BrokerUnreachable(
            f"RabbitMQ at {settings.place} takes no more of us just now: {reason_of(error)}",
            mend="Close what is not needed (rabbitmqctl list_connections user name channels), or raise the limit.",
        )
    if _NOT_OPENED in reason_of(error):
        return BrokerUnreachable(
            f"RabbitMQ at {settings.place} knows the user {settings.username!r}, and opens the virtual host to it not "
            "now: it is not there, is not for this user, or has as many connections as it may (the broker's log tells)",
            mend="See: rabbitmqctl list_vhosts; list_permissions -p V; list_vhost_limits -p V; list_user_limits",
        )
    return tls_error(reason_of(error), f"RabbitMQ at {settings.place}") or unreachable(settings, reason_of(error))


def unreachable(settings: BrokerSettings, reason: str) -> BrokerUnreachable:
    return BrokerUnreachable(
        f"RabbitMQ at {settings.place} does not answer: {reason}",
        mend="Look whether it runs (rabbitmq-diagnostics status), and at host, port and TLS.",
    )


def why_closed(closing: "asyncio.Future[Any]") -> str:
    if closing.cancelled():
        return "it was closed"
    return reason_of(closing.exception())


def reason_of(error: BaseException | None) -> str:
    """The library's own text; its errors carry no credentials."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__


T = TypeVar("T")

_LOG = logging.getLogger("mailmend.queue")

for _library in ("aio_pika", "aiormq"):
    logging.getLogger(_library).addHandler(logging.NullHandler())  # what they log is raised or logged by us


class Answer(Enum):
    """The outcome of a publish."""

    CONFIRMED = "confirmed"
    REFUSED = "the broker refused it"
    RETURNED = "no queue is bound to the exchange"
    MISSING = "the exchange is not there"
    DENIED = "we may not publish there"
    BLOCKED = "the broker blocks publishers because of an alarm: it is short of memory or of disk"
    """Nothing was sent."""
    STUCK = "the broker has blocked publishers, because of an alarm, before it confirmed this message"
    LATE = "the confirm did not come in time"
    LOST = "the connection was lost before the confirm came"
    UNSENT = "the connection was lost before the message was sent"


@dataclass(frozen=True, slots=True)
class DeclaredQueue:
    """A queue that is there, as a passive declaration tells."""

    ready: int
    consumers: int


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message as it came."""

    tag: int
    body: bytes
    headers: Mapping[str, object]
    redelivered: bool


class Channel:
    """A channel. Every method raises `BrokerUnreachable` when it is closed, and closes it when no answer comes."""

    def __init__(self, channel: abc.AbstractChannel, settings: BrokerSettings) -> None:
        self._channel = channel
        self._settings = settings
        self._seconds = settings.answer_seconds

    @property
    def is_closed(self) -> bool:
        return self._channel.is_closed or not self._channel.connection.is_opened

    async def publish(self, exchange: str, body: bytes, headers: Mapping[str, Argument]) -> Answer:
        """Publish as James does, and wait for the confirm; raises nothing but a cancellation."""
        sent = False
        before = _cancellings()
        properties = spec.Basic.Properties(
            content_type="text/plain", delivery_mode=2, priority=0, headers=dict(headers)
        )
        try:
            async with asyncio.timeout(self._settings.publish_confirm_seconds):
                await self._channel.connection.ready()  # while publishers are blocked it waits here: nothing was sent
                sent = True
                await self._channel.basic_publish(
                    body, exchange=exchange, routing_key=ROUTING_KEY, properties=properties, mandatory=True
                )
        except asyncio.CancelledError:
            if _cancellings() > before:
                raise
            return Answer.LOST
        except Exception as error:
            if not is_gone(error):
                raise
            if not sent:
                return Answer.BLOCKED
            answer = _answer_to(error, exchange)
            if answer is Answer.LATE and not await _is_open(self._channel.connection):
                return Answer.STUCK
            return answer
        return Answer.CONFIRMED

    async def find_exchange(self, name: str) -> bool:
        """Whether it exists; if not, the broker closes the channel."""
        return await self._found(self._channel.exchange_declare(name, passive=True, timeout=self._seconds)) is not None

    async def find_queue(self, name: str) -> DeclaredQueue | None:
        """The queue; None where it is missing: then the broker closes the channel."""
        declared = await self._found(self._channel.queue_declare(name, passive=True, timeout=self._seconds))
        if declared is None:
            return None
        return DeclaredQueue(declared.message_count or 0, declared.consumer_count or 0)

    async def declare_exchange(self, name: str) -> str | None:
        """Make it, direct and durable; the reason if the broker refuses, which closes the channel."""
        return await self._made(
            self._channel.exchange_declare(name, exchange_type="direct", durable=True, timeout=self._seconds)
        )

    async def declare_queue(self, name: str, arguments: Mapping[str, Argument]) -> str | None:
        """Make it, durable; the reason if the broker refuses, which closes the channel."""
        return await self._made(
            self._channel.queue_declare(name, durable=True, arguments=dict(arguments), timeout=self._seconds)
        )

    async def bind(self, queue: str, exchange: str) -> None:
        with self._our_errors():
            await self._channel.queue_bind(queue, exchange, ROUTING_KEY, timeout=self._seconds)

    async def limit(self, prefetch: int) -> None:
        """Limit how many messages are unacked for each consumer that is added from now on."""
        with self._our_errors():
            await self._channel.basic_qos(prefetch_count=prefetch, timeout=self._seconds)

    async def consume(self, queue: str, receive: Callable[[Incoming], None]) -> None:
        async def deliver(message: abc.DeliveredMessage) -> None:
            receive(_incoming(message))

        with self._our_errors():
            await self._channel.basic_consume(queue, deliver, timeout=self._seconds)

    def on_lost(self, tell: Callable[[str], None]) -> None:
        """Call `tell` with the reason when the channel closes or the broker cancels a consumer."""
        self._channel.on_consumer_cancel_callbacks.add(lambda _frame: tell("the broker took the consumer away"))
        self._channel.closing.add_done_callback(lambda closing: tell(why_closed(closing)))

    async def ack(self, tag: int) -> None:
        """Tell the broker that a message is done; the broker does not confirm it."""
        await self._settle(self._channel.basic_ack(tag))

    async def nack(self, tag: int, *, requeue: bool) -> None:
        """Requeue a message, or dead-letter it; the broker does not confirm it."""
        await self._settle(self._channel.basic_nack(tag, requeue=requeue))

    async def close(self) -> None:
        """Close it: unacked messages go back to their queues. Never raises.

        A blocked connection would never answer, so it is closed with its connection.
        """
        if not self.is_closed and await _is_open(self._channel.connection):
            with _silence():
                async with asyncio.timeout(self._seconds):
                    await self._channel.close()

    async def _settle(self, settling: Awaitable[None]) -> None:
        with self._our_errors():
            async with asyncio.timeout(self._seconds):
                await settling

    async def _found(self, looking: Awaitable[T]) -> T | None:
        with self._our_errors():
            try:
                return await looking
            except exceptions.ChannelNotFoundEntity:
                return None

    async def _made(self, declaring: Awaitable[object]) -> str | None:
        with self._our_errors():
            try:
                await declaring
            except exceptions.ChannelPreconditionFailed as error:
                return reason_of(error)
        return None

    def _our_errors(self) -> Any:
        return _our_errors(self._settings)


class Link:
    """A connection to the first host that answers, renewed by the next caller after it was lost.

    Publishers and consumers have one each: a broker that is short of memory or disk stops reading from those that
    publish, and acks must not wait behind them.

    Args:
        settings: where and who.
        purpose: what it is for, as operators see it among the broker's connections.
        retries: how often, and with which back-off, all hosts are tried again before the broker counts as away.
    """

    def __init__(self, settings: BrokerSettings, purpose: str, retries: AsyncRetries) -> None:
        self._settings = settings
        self._purpose = purpose
        self._retries = retries
        self._connection: AbstractConnection | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self.is_closed = False
        """Whether we closed it: there will be no other."""
        self.generation = 0
        """How many connections were made: what was looked up on an earlier one may not hold any more."""

    async def channel(self, *, confirms: bool = False) -> Channel:
        """A new channel, on a new connection if needed; with `confirms` for publishing."""

        async def open_one() -> Channel:
            connection = await self._connected()
            with _our_errors(self._settings):
                async with asyncio.timeout(self._settings.answer_seconds):
                    opened = await connection.channel(publisher_confirms=confirms, on_return_raises=confirms)
            return Channel(opened, self._settings)

        return await self.steadily(open_one)

    async def steadily(self, step: Callable[[], Awaitable[T]]) -> T:
        """The result of a repeatable step, which is repeated once if the connection was lost unnoticed."""
        before = self._connection
        try:
            return await step()
        except BrokerUnreachable:
            if before is None or self._live() is _transport(before):
                raise
        return await step()

    async def product(self) -> str:
        properties: Mapping[str, Any] = (await self._connected()).server_properties
        return f"{properties.get('product', 'a broker')} {properties.get('version', 'of no version')}"

    async def takes(self, seconds: float = 0) -> bool:
        """Whether the broker accepts publishes within this number of seconds; True where there is no connection yet.

        An alarm blocks a connection that publishes until it is lifted; nothing at all is sent over it meanwhile.
        """
        live = self._live()
        return live is None or await _is_open(live, seconds)

    async def close(self) -> None:
        self.is_closed = True
        live = self._live()
        connection = self._connection
        if live is not None and connection is not None:
            self._connection = None
            await self._hang_up(connection)
        ending = set(self._leaving)
        if self._dialling is not None:
            ending.add(self._dialling)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def _connected(self) -> abc.AbstractConnection:
        """The connection; of many callers that need a new one, one dials and all get its result."""
        while (live := self._live()) is None:
            if self.is_closed:
                raise BrokerUnreachable(f"the connection to {self._settings.place} was closed by us")
            if self._dialling is None or self._dialling.done():
                self._dialling = asyncio.create_task(self._retries.call(self._dial), name=f"dial {self._purpose}")
                self._dialling.add_done_callback(self._dialled)
            dialling = self._dialling
            await asyncio.wait((dialling,))
            if not dialling.cancelled():
                dialling.result()
        return live

    def _live(self) -> abc.AbstractConnection | None:
        live = _transport(self._connection)
        if live is None or not live.is_opened:
            return None
        return live

    def _dialled(self, dialling: asyncio.Task[None]) -> None:
        if not dialling.cancelled():
            dialling.exception()  # whoever waits has it; where all were cancelled nobody asks

    async def _dial(self) -> None:
        self._leave()
        reasons: list[BrokerUnreachable] = []
        for host in self._settings.hosts:
            try:
                with _our_errors(self._settings):
                    self._connection = await self._dial_host(host)
            except BrokerUnreachable as error:
                reasons.append(error)
            else:
                self.generation += 1
                fields = {"host": host.name, "port": host.port, "tls": self._settings.tls is not None}
                _LOG.info("connected to the broker", extra={**fields, "purpose": self._purpose})
                return
        for reason in reasons:
            if isinstance(reason, BrokerDenied):
                raise reason
        raise reasons[-1]

    async def _dial_host(self, host: Host) -> AbstractConnection:
        """A connection that fails is closed here: the library leaves it to the collector, in any thread."""
        settings = self._settings
        asked: dict[str, Any] = {"heartbeat": settings.heartbeat_seconds, "name": f"mailmend {self._purpose}"}
        url = make_url(
            host=host.name,
            port=host.port,
            login=settings.username,
            password=settings.password,
            virtualhost=settings.vhost,
            ssl=settings.tls is not None,
            **asked,
        )
        connection = aio_pika.Connection(url, ssl_context=await _context(settings), **asked)
        try:
            await connection.connect(timeout=settings.answer_seconds)
        except BaseException:
            await connection.close()
            raise
        return connection

    def _leave(self) -> None:
        """Close a lost connection in the background: the library waits for the other end, which may be gone."""
        connection = self._connection
        self._connection = None
        if connection is not None:
            leaving = asyncio.create_task(self._hang_up(connection), name=f"leave {self._purpose}")
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def _hang_up(self, connection: AbstractConnection) -> None:
        with _silence():
            async with asyncio.timeout(self._settings.answer_seconds):
                await connection.close()


def _transport(connection: AbstractConnection | None) -> abc.AbstractConnection | None:
    if connection is None or connection.transport is None:
        return None
    return connection.transport.connection


async def _is_open(connection: abc.AbstractConnection, seconds: float = 0) -> bool:
    """Whether the broker does not block it, now or within this number of seconds."""
    try:
        async with asyncio.timeout(seconds):
            await connection.ready()
    except TimeoutError:
        return False
    return True


async def _context(settings: BrokerSettings) -> ssl.SSLContext | None:
    if settings.tls is None:
        return None
    return await asyncio.to_thread(context_of, settings.tls)


def _incoming(message: abc.DeliveredMessage) -> Incoming:
    assert message.delivery_tag is not None
    headers = message.header.properties.headers or {}
    return Incoming(message.delivery_tag, message.body, headers, bool(message.redelivered))


_ANSWERS: Mapping[type[Exception], Answer] = {
    TimeoutError: Answer.LATE,
    exceptions.PublishError: Answer.RETURNED,
    exceptions.DeliveryError: Answer.REFUSED,
    exceptions.ChannelInvalidStateError: Answer.UNSENT,
}
_ANSWERS_ABOUT: Mapping[type[Exception], Answer] = {
    exceptions.ChannelNotFoundEntity: Answer.MISSING,
    ChannelAccessRefused: Answer.DENIED,
}
"""These close the channel for all its users: where another request is the cause, the broker may have passed ours on."""


def _answer_to(error: Exception, exchange: str) -> Answer:
    about_ours = f"'{exchange}'" in str(error)
    return _ANSWERS.get(type(error)) or (about_ours and _ANSWERS_ABOUT.get(type(error))) or Answer.LOST


@contextmanager
def _our_errors(settings: BrokerSettings) -> Iterator[None]:
    before = _cancellings()
    try:
        yield
    except asyncio.CancelledError as error:
        if _cancellings() > before:
            raise
        raise unreachable(settings, "the connection was closed") from error
    except Exception as error:
        if isinstance(error, MailmendError) or not is_gone(error):
            raise
        raise ours(error, settings) from error


@contextmanager
def _silence() -> Iterator[None]:
    """Suppress errors while closing: a lost connection raises them."""
    before = _cancellings()
    try:
        yield
    except asyncio.CancelledError:
        if _cancellings() > before:
            raise
    except Exception as error:
        if not is_gone(error):
            raise


def _cancellings() -> int:
    """How often our task was cancelled; the library raises CancelledError for its own timeouts too."""
    task = asyncio.current_task()
    if task is None:
        return 0
    return task.cancelling()
