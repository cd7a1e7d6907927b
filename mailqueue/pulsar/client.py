"""The one door to Pulsar's own client: connections, producers, consumers, readers, its errors.

The client has threads of its own and calls back from them into the event loop. Where that fails, or
where they run when the interpreter ends, the process dies of SIGABRT: so no call back fails, what
is open at the end is shut, and the threads are waited for until they have let go of every call
back. A receive that is cancelled loses the message that comes for it, until its consumer is closed:
so a receive is cancelled only to close its consumer. An acknowledgement is sent some 100 ms after
it is given, or when its consumer is closed.

A producer that has lost its broker waits for it up to a minute, longer and longer, and does not say
why; a new one is answered at once: that the backlog quota is exceeded, for example.

Its own log is left unread: a logger of Python's would be called from its threads while the
interpreter ends; and a pipe would hold them up wherever its reader is slow. What matters for a
caller comes as the error of his call.
"""

import asyncio
import atexit
import os
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from threading import Event
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import _pulsar
import pulsar
from pulsar import asyncio as pulsar_async
from pulsar.asyncio import PulsarException

from mailmend.mailqueue.broker_tls import BrokerTls, context_of, tls_error
from mailmend.mailqueue.concurrency import finished
from mailmend.mailqueue.pulsar.call_backs import CallBack, Functools, tell
from mailmend.mailqueue.pulsar.settings import LOOK_AT_LOGIN, PulsarAuth, PulsarSettings
from mailmend.mailqueue.pulsar.topics import StoredMessage, TopicMessage
from mailmend.mailqueue.rules.places import EntryPosition, MessagePlace
from mailmend.mailqueue.rules.slices import EPOCH
from mailmend.model.errors import BrokerDenied, BrokerUnreachable, LeaseHeld, MailmendError, PublishFailed
from mailmend.model.ports import Clock

_DENIED: Final = frozenset({_pulsar.Result.AuthenticationError, _pulsar.Result.AuthorizationError})
_FULL: Final = frozenset(
    {_pulsar.Result.ProducerBlockedQuotaExceededError, _pulsar.Result.ProducerBlockedQuotaExceededException}
)
_PASSING: Final = frozenset(
    {
        _pulsar.Result.BrokerMetadataError,
        _pulsar.Result.ServiceUnitNotReady,
        _pulsar.Result.NotConnected,
        _pulsar.Result.TooManyLookupRequestException,
    }
)
_LOOK_AT_SCHEMA: Final = "The schema of the topic is to be STRING: pulsar-admin schemas get TOPIC"
_REFUSED: Final = {
    _pulsar.Result.MessageTooBig: "Look at maxMessageSize in broker.conf.",
    _pulsar.Result.InvalidMessage: _LOOK_AT_SCHEMA,
    _pulsar.Result.IncompatibleSchema: _LOOK_AT_SCHEMA,
    _pulsar.Result.NotAllowedError: "Look at the policies there: pulsar-admin namespaces policies NAMESPACE",
    _pulsar.Result.TopicTerminated: "The topic was terminated, and cannot be opened again.",
}


@dataclass(frozen=True, slots=True)
class PulsarFailures:
    """What went wrong with one Pulsar."""

    settings: PulsarSettings

    def of(self, error: PulsarException) -> MailmendError:
        reason = _reason_of(error)
        if error.error() in _DENIED:
            return BrokerDenied(
                f"{self._place} refuses us: {reason}",
                mend=LOOK_AT_LOGIN,
            )
        return tls_error(reason, self._place) or self.away(reason)

    def away(self, reason: str) -> BrokerUnreachable:
        return BrokerUnreachable(
            f"{self._place} does not answer: {reason}",
            mend="Look whether it runs (pulsar-admin brokers healthcheck), and at host, port, TLS and login: "
            "the client says of a login that is refused only that nothing came.",
        )

    def of_a_message(self, error: PulsarException, topic: str) -> MailmendError:
        """Of one that is surely not in the topic."""
        found = error.error()
        if found in _FULL:
            return PublishFailed(
                f"{self._place} takes no message for {topic}: its backlog quota is exceeded",
                mend="Have mails leave it, or allow more: pulsar-admin topics stats TOPIC; "
                "pulsar-admin namespaces get-backlog-quotas NAMESPACE",
            )
        if found in _REFUSED:
            return PublishFailed(
                f"{self._place} refuses a message for {topic}: {_reason_of(error)}", mend=_REFUSED[found]
            )
        return self.of(error)

    def of_a_sent_message(self, error: PulsarException, topic: str) -> MailmendError:
        """Of one that was given to a producer: whatever befell that, the topic may have it."""
        found = error.error()
        if found in _REFUSED:
            return self.of_a_message(error, topic)
        if is_fenced(error):
            return LeaseHeld(f"another process has taken over {topic}", mend="Run the same again in a while.")
        if found == _pulsar.Result.Timeout:
            return self.of_silence(topic)
        why = "its backlog quota is exceeded"
        if found not in _FULL:
            why = _reason_of(error)
        return PublishFailed(f"{self._place} did not confirm a message for {topic}: {why}", doubtful=True)

    def of_silence(self, topic: str) -> PublishFailed:
        within = f"within {self.settings.publish_seconds:g} s"
        return PublishFailed(f"{self._place} did not confirm a message for {topic} {within}", doubtful=True)

    @property
    def _place(self) -> str:
        return f"Pulsar at {self.settings.place}"


def is_fenced(error: PulsarException) -> bool:
    """Whether another producer has the topic for itself."""
    return error.error() in {_pulsar.Result.ProducerFenced, _pulsar.Result.ProducerBusy}


def is_passing(error: PulsarException) -> bool:
    """Whether a topic is on its way to a broker, rather than missing."""
    return error.error() in _PASSING


def _reason_of(error: PulsarException) -> str:
    words = str(error).partition(": ")[2]
    return words or error.error().name


T = TypeVar("T")

AT_ONCE: Final = 500
"""How many messages of one topic are published at once; the client refuses more than 1000."""

READ_AHEAD: Final = 200

ASKED_AGAIN_MAX: Final = 6
ASKED_AGAIN_SECONDS: Final = 0.2
"""A topic that is unloaded is served again after a second or two; each wait is longer by as much."""

GIVEN_BACK_MS: Final = 1_000
"""After how many milliseconds a message that was given back comes again, as with James."""

ENDLESS_SECONDS: Final = 2.0
"""How much later than the client's own timeout a message is given up."""

CLOSE_SECONDS_MAX: Final = 2.0
"""How long the end of the interpreter waits for a client that closes."""

_ONE_KEY: Final = "mailmend"


class _Texts(pulsar.schema.StringSchema):  # type: ignore[misc]
    """Bytes that are no text stay what they are, as text with half surrogates in it."""

    def encode(self, obj: str) -> bytes:
        return obj.encode(errors="surrogateescape")


_SCHEMA: Final = _Texts()
_MILLISECOND: Final = timedelta(milliseconds=1)

PulsarConsumer = Any
"""The library's own, which has no types."""


class PulsarClient:
    """Pulsar's client for one event loop; connects when it is first asked for something."""

    def __init__(self, settings: PulsarSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self.failures = PulsarFailures(settings)
        self._opened: pulsar_async.Client | None = None
        self._producers: dict[str, asyncio.Task[pulsar_async.Producer]] = {}
        self._sending = WeakKeyDictionary[pulsar_async.Producer, set[asyncio.Task[MessagePlace]]]()
        self._parting: set[asyncio.Task[None]] = set()
        self._room: dict[str, asyncio.Semaphore] = {}

    @property
    def settings(self) -> PulsarSettings:
        return self._settings

    async def publish(self, topic: str, message: TopicMessage) -> MessagePlace:
        async with self._room.setdefault(topic, asyncio.Semaphore(AT_ONCE)):
            try:
                producer = await self._producer(topic)
            except pulsar_async.PulsarException as error:
                raise self.failures.of_a_message(error, topic) from error
            try:
                async with asyncio.timeout(self._settings.publish_seconds + ENDLESS_SECONDS):
                    return await self._sent_by(producer, message)
            except TimeoutError:
                await self._give_up(topic, producer)
                raise self.failures.of_silence(topic) from None
            except pulsar_async.PulsarException as error:
                raise self.failures.of_a_sent_message(error, topic) from error

    async def partitions(self, topic: str) -> Sequence[int]:
        """The numbers that they have now, asked of the broker itself; none where the topic is not partitioned."""
        names = await self.patiently(lambda: self._client().get_topic_partitions(topic))
        if names == [topic]:
            return ()
        return range(len(names))

    async def subscribe(self, topic: str, subscription: str, prefetch: int) -> PulsarConsumer:
        """A shared consumer that is given up to `prefetch` messages beforehand; 0: only what is asked for."""
        return await self.patiently(
            lambda: self._client().subscribe(
                topic,
                subscription,
                consumer_type=pulsar.ConsumerType.Shared,
                schema=_SCHEMA,
                receiver_queue_size=prefetch,
                negative_ack_redelivery_delay_ms=GIVEN_BACK_MS,
                initial_position=pulsar.InitialPosition.Earliest,
            )
        )

    async def acknowledge(self, topic: str, subscription: str, positions: Collection[EntryPosition]) -> None:
        """Acknowledge by place, whichever consumer has them; when this returns, the broker has it."""
        consumer = await self.subscribe(topic, subscription, 0)
        try:
            for ledger, entry in positions:
                await self.asked(consumer.acknowledge(_id_of((ledger, entry))))
        finally:
            await finished(self.asked(consumer.close()))

    @asynccontextmanager
    async def reader(self, topic: str, behind: EntryPosition) -> AsyncGenerator["TopicReader"]:
        """Read what is behind a position; closed at the end, as an open one is kept by the broker."""
        reader = await self.open_reader(topic, behind)
        try:
            yield reader
        finally:
            await finished(reader.close())

    async def open_reader(self, topic: str, behind: EntryPosition) -> "TopicReader":
        return TopicReader(
            self,
            await self.patiently(
                lambda: self._client().create_reader(
                    topic, _id_of(behind), schema=_SCHEMA, receiver_queue_size=READ_AHEAD
                )
            ),
        )

    @asynccontextmanager
    async def exclusive_producer(self, topic: str) -> AsyncGenerator["ExclusiveProducer | None"]:
        """Be the one producer of a topic; None: another is."""
        try:
            producer = await self._new_producer(topic, _pulsar.ProducerAccessMode.Exclusive)
        except pulsar_async.PulsarException as error:
            if not is_fenced(error):
                raise self.failures.of(error) from error
            yield None
            return
        try:
            yield ExclusiveProducer(self.failures, producer, topic)
        finally:
            await finished(self.asked(producer.close()))

    async def close(self) -> None:
        tasks = (*self._producers.values(), *self._parting)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._producers.clear()
        opened = self._opened
        self._opened = None
        if opened is not None:
            await finished(self._closed(opened))
            atexit.unregister(self._end)

    async def _closed(self, opened: pulsar_async.Client) -> None:
        """Close it in a thread: the library's own calls back from one that may outlive the interpreter."""
        try:
            await asyncio.to_thread(opened._client.close)  # noqa: SLF001 - the one that calls nobody back
        except Exception:  # noqa: BLE001 - it is to end, whatever it says
            opened.shutdown()

    def _end(self) -> None:
        """Close the client when the interpreter ends and no event loop does so any more.

        Its `shutdown` alone would hold Python's lock, for which a thread may wait that is to end.
        """
        if self._opened is None:
            return
        closed = Event()
        client = self._opened._client  # noqa: SLF001 - the library's own needs an event loop
        client.close_async(CallBack(tell, closed))
        if not closed.wait(CLOSE_SECONDS_MAX):
            self._opened.shutdown()

    async def asked(self, asking: Awaitable[T]) -> T:
        try:
            return await asking
        except pulsar_async.PulsarException as error:
            raise self.failures.of(error) from error

    async def patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask again while a topic is on its way to a broker."""
        for tries in range(1, ASKED_AGAIN_MAX):
            try:
                return await ask()
            except pulsar_async.PulsarException as error:
                if not is_passing(error):
                    raise self.failures.of(error) from error
            await self._clock.pause(ASKED_AGAIN_SECONDS * tries)
        return await self.asked(ask())

    async def _producer(self, topic: str) -> pulsar_async.Producer:
        """The one producer of a topic; one that could not be made, or has lost its broker, is made anew."""
        task = self._producers.get(topic)
        if task is not None and task.done():
            if not task.cancelled() and not task.exception():
                made = task.result()
                if made.is_connected():
                    return made
                self._part_from(made)
            task = None
        if task is None:
            self._producers[topic] = task = asyncio.ensure_future(self._new_producer(topic))
        return await asyncio.shield(task)

    def _sent_by(self, producer: pulsar_async.Producer, message: TopicMessage) -> asyncio.Task[MessagePlace]:
        sending = self._sending.setdefault(producer, set())
        sending.add(task := asyncio.ensure_future(sent_by(producer, message)))
        task.add_done_callback(sending.discard)
        return task

    def _part_from(self, producer: pulsar_async.Producer) -> None:
        """Close it once it has confirmed, or given up, what was given to it.

        The library's own `flush` holds Python's lock while it waits for a lock of its threads. A
        thread that calls back waits for Python's lock: then the process hangs.
        """

        async def part() -> None:
            if sending := self._sending.get(producer):
                await asyncio.wait(sending, timeout=self._settings.publish_seconds + 1)
            with suppress(pulsar_async.PulsarException):
                await producer.close()

        task = asyncio.ensure_future(part())
        self._parting.add(task)
        task.add_done_callback(self._parting.discard)

    async def _give_up(self, topic: str, producer: pulsar_async.Producer) -> None:
        """Close a producer: one whose message the broker refuses with the connection sends it for ever."""
        task = self._producers.get(topic)
        if task and task.done() and not task.cancelled() and not task.exception() and task.result() is producer:
            del self._producers[topic]
        with suppress(MailmendError):
            await finished(self.asked(producer.close()))

    async def _new_producer(
        self, topic: str, access_mode: _pulsar.ProducerAccessMode = _pulsar.ProducerAccessMode.Shared
    ) -> pulsar_async.Producer:
        return await self._client().create_producer(
            topic,
            schema=_SCHEMA,
            access_mode=access_mode,
            batching_enabled=False,
            send_timeout_millis=round(self._settings.publish_seconds * 1000),
        )

    def _client(self) -> pulsar_async.Client:
        """The client.

        Raises:
            BadSettings: a TLS file cannot be used, which the library would show as silence.
        """
        if self._opened is None:
            settings = self._settings
            files: dict[str, Any] = {}
            if settings.tls:
                context_of(settings.tls)
                files = _tls_files(settings.tls)
            self._opened = pulsar_async.Client(
                settings.service,
                authentication=_authentication(settings),
                operation_timeout_seconds=round(settings.answer_seconds),
                logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
                **files,
            )
            atexit.register(self._end)
        return self._opened


class ExclusiveProducer:
    """Implements `mailqueue.pulsar.topics.TopicLease`."""

    def __init__(self, failures: PulsarFailures, producer: pulsar_async.Producer, topic: str) -> None:
        self._failures = failures
        self._producer = producer
        self._topic = topic

    async def publish(self, message: TopicMessage) -> MessagePlace:
        try:
            return await sent_by(self._producer, message, _ONE_KEY)
        except pulsar_async.PulsarException as error:
            raise self._failures.of_a_sent_message(error, self._topic) from error


async def sent_by(producer: pulsar_async.Producer, message: TopicMessage, key: str | None = None) -> MessagePlace:
    """Publish; messages of one key go to one partition."""
    found = await producer.send(
        message.payload,
        partition_key=key,
        properties=dict(message.properties) or None,
        event_timestamp=message.event_at,
        deliver_at=message.deliver_at,
    )
    return MessagePlace(found.partition(), found.ledger_id(), found.entry_id())


class TopicReader:
    """Messages of one partition, in order."""

    def __init__(self, client: PulsarClient, reader: pulsar_async.Reader) -> None:
        self._client = client
        self._reader = reader
        self._reading: asyncio.Future[pulsar.Message] | None = None

    async def next(self, partition: int) -> StoredMessage | None:
        """The next message that is there now; None: there is no message.

        Raises:
            BrokerUnreachable: it did not come in time, which the client itself would wait for without end.
        """
        if self._reading is None:
            if not await self._client.patiently(self._reader.has_message_available):
                return None
            self._reading = asyncio.ensure_future(self._reader.read_next())
        await asyncio.wait((self._reading,), timeout=self._client.settings.answer_seconds)
        if not self._reading.done():
            raise self._client.failures.away("a message did not come")
        reading = self._reading
        self._reading = None
        return stored_of(await self._client.asked(reading), partition)

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        await self._client.asked(self._reader.close())

    async def skip(self, to: EntryPosition) -> None:
        await self._client.asked(self._reader.seek(_id_of(to)))


def stored_of(message: pulsar.Message, partition: int) -> StoredMessage:
    found = message.message_id()
    return StoredMessage(
        MessagePlace(partition, found.ledger_id(), found.entry_id()),
        message.data(),
        message.properties(),
        EPOCH + message.publish_timestamp() * _MILLISECOND,
        message.event_timestamp(),
    )


def _id_of(position: EntryPosition) -> pulsar.MessageId:
    ledger, entry = position
    return pulsar.MessageId(-1, ledger, entry, -1)


def _tls_files(tls: BrokerTls) -> dict[str, Any]:
    """The client's options; without an authority it trusts the system's."""
    files: dict[str, Any] = {
        "tls_trust_certs_file_path": ssl.get_default_verify_paths().cafile,
        "tls_certificate_file_path": None,
        "tls_private_key_file_path": None,
        "tls_validate_hostname": True,
    }
    if tls.ca:
        files["tls_trust_certs_file_path"] = str(tls.ca)
    if tls.certificate:
        files["tls_certificate_file_path"] = str(tls.certificate)
    if tls.key:
        files["tls_private_key_file_path"] = str(tls.key)
    return files


def _authentication(settings: PulsarSettings) -> Any:
    match settings.auth:
        case PulsarAuth.TOKEN:
            return pulsar.AuthenticationToken(settings.password)
        case PulsarAuth.BASIC:
            return pulsar.AuthenticationBasic(settings.username, settings.password)
        case PulsarAuth.NONE:
            tls = settings.tls
            if tls and tls.certificate and tls.key:
                return pulsar.AuthenticationTLS(str(tls.certificate), str(tls.key))
            return None


pulsar_async.functools = Functools
# What is registered first runs last: by then each client is closed.
atexit.register(CallBack.wait_until_let_go)
