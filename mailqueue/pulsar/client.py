"""The one door to Pulsar's own client: connections, producers, consumers, readers; its errors as our own.

The client has threads of its own and calls back from them into the event loop. A receive that is cancelled loses the
message that comes for it, until its consumer is closed: so nobody cancels one, but to close its consumer. An
acknowledgement is sent some 100 ms after it is given, or when its consumer is closed.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Collection
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final, TypeVar

import _pulsar
import pulsar
from pulsar import asyncio as pulsar_async

from mailqueue.broker_tls import tls_error
from mailqueue.concurrency import finished
from mailqueue.pulsar.settings import PulsarAuth, PulsarSettings
from mailqueue.pulsar.topics import StoredMessage, TopicMessage
from model.errors import BrokerDenied, BrokerUnreachable, MailmendError, PublishFailed
from model.queue.places import EntryPosition, MessagePlace
from model.queue.slices import EPOCH

T = TypeVar("T")

AT_ONCE: Final = 500
"""How many messages of one topic are published at once; the client refuses more than 1000."""

READ_AHEAD: Final = 200

GIVEN_BACK_MS: Final = 1_000
"""After how many milliseconds a message that was given back comes again, as with James."""

_SCHEMA: Final = pulsar.schema.StringSchema()
_MILLISECOND: Final = timedelta(milliseconds=1)
_DENIED: Final = frozenset({_pulsar.Result.AuthenticationError, _pulsar.Result.AuthorizationError})
_REFUSED: Final = frozenset(
    {
        _pulsar.Result.ProducerBlockedQuotaExceededError,
        _pulsar.Result.ProducerBlockedQuotaExceededException,
        _pulsar.Result.MessageTooBig,
        _pulsar.Result.InvalidMessage,
        _pulsar.Result.NotAllowedError,
        _pulsar.Result.TopicTerminated,
    }
)

PulsarConsumer = Any
"""The library's own, which has no types."""


class PulsarClient:
    """Pulsar's client for one event loop; connects when it is first asked for something."""

    def __init__(self, settings: PulsarSettings) -> None:
        self._settings = settings
        self._opened: pulsar_async.Client | None = None
        self._producers: dict[str, asyncio.Task[pulsar_async.Producer]] = {}
        self._room: dict[str, asyncio.Semaphore] = {}

    async def publish(self, topic: str, message: TopicMessage) -> MessagePlace:
        producer = await self._producer(topic)
        async with self._room.setdefault(topic, asyncio.Semaphore(AT_ONCE)):
            try:
                sent = await producer.send(
                    message.payload,
                    properties=dict(message.properties) or None,
                    event_timestamp=message.event_at,
                    deliver_at=message.deliver_at,
                )
            except pulsar_async.PulsarException as error:
                raise self._unpublished(error, topic) from error
        return MessagePlace(sent.partition(), sent.ledger_id(), sent.entry_id())

    async def subscribe(self, topic: str, subscription: str, prefetch: int) -> PulsarConsumer:
        """A shared consumer that is given up to `prefetch` messages beforehand; 0: only what is asked for."""
        return await self.asked(
            self._client().subscribe(
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
        """Acknowledge by place, whoever has them; with the end of this the broker has it."""
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
            await self.asked(
                self._client().create_reader(topic, _id_of(behind), schema=_SCHEMA, receiver_queue_size=READ_AHEAD)
            ),
        )

    @asynccontextmanager
    async def exclusive_producer(self, topic: str) -> AsyncGenerator[bool]:
        """Be the one producer of a topic; False: another is."""
        try:
            producer = await self._client().create_producer(
                topic, access_mode=_pulsar.ProducerAccessMode.Exclusive, batching_enabled=False
            )
        except pulsar_async.PulsarException as error:
            if error.error() not in {_pulsar.Result.ProducerFenced, _pulsar.Result.ProducerBusy}:
                raise self.ours(error) from error
            yield False
            return
        try:
            yield True
        finally:
            await finished(self.asked(producer.close()))

    async def close(self) -> None:
        for task in self._producers.values():
            task.cancel()
        await asyncio.gather(*self._producers.values(), return_exceptions=True)
        self._producers.clear()
        opened, self._opened = self._opened, None
        if opened is not None:
            await finished(self._closed(opened))

    async def _closed(self, opened: pulsar_async.Client) -> None:
        try:
            await self.asked(opened.close())
        except MailmendError:
            opened.shutdown()

    async def asked(self, asking: Awaitable[T]) -> T:
        try:
            return await asking
        except pulsar_async.PulsarException as error:
            raise self.ours(error) from error

    async def _producer(self, topic: str) -> pulsar_async.Producer:
        """The one producer of a topic; one that could not be made is made anew."""
        task = self._producers.get(topic)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = asyncio.ensure_future(self._new_producer(topic))
            self._producers[topic] = task
        return await asyncio.shield(task)

    async def _new_producer(self, topic: str) -> pulsar_async.Producer:
        return await self.asked(
            self._client().create_producer(
                topic,
                schema=_SCHEMA,
                batching_enabled=False,
                send_timeout_millis=round(self._settings.publish_seconds * 1000),
            )
        )

    def _client(self) -> pulsar_async.Client:
        if self._opened is None:
            settings, tls = self._settings, self._settings.tls
            files = (
                {
                    "tls_trust_certs_file_path": str(tls.ca) if tls.ca else None,
                    "tls_certificate_file_path": str(tls.certificate) if tls.certificate else None,
                    "tls_private_key_file_path": str(tls.key) if tls.key else None,
                    "tls_validate_hostname": True,
                }
                if tls
                else {}
            )
            self._opened = pulsar_async.Client(
                settings.service,
                authentication=_authentication(settings),
                operation_timeout_seconds=round(settings.answer_seconds),
                logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
                **files,
            )
        return self._opened

    def _unpublished(self, error: pulsar_async.PulsarException, topic: str) -> MailmendError:
        if error.error() in _REFUSED:
            return PublishFailed(
                f"Pulsar at {self._settings.place} refuses a message for {topic}: {_reason_of(error)}",
                mend="Look at the backlog and its quota: pulsar-admin topics stats TOPIC; topics get-backlog-quotas.",
            )
        if error.error() == _pulsar.Result.Timeout:
            return PublishFailed(
                f"Pulsar at {self._settings.place} did not confirm a message for {topic} within "
                f"{self._settings.publish_seconds:g} s",
                doubtful=True,
            )
        return self.ours(error)

    def ours(self, error: pulsar_async.PulsarException) -> MailmendError:
        place, reason = self._settings.place, _reason_of(error)
        if error.error() in _DENIED:
            return BrokerDenied(
                f"Pulsar at {place} refuses us: {reason}",
                mend="Look at the token or the user and password, and at the permissions on the namespace.",
            )
        return tls_error(reason, f"Pulsar at {place}") or BrokerUnreachable(
            f"Pulsar at {place} does not answer: {reason}",
            mend="Look whether it runs (pulsar-admin brokers healthcheck), and at host, port and TLS.",
        )


class TopicReader:
    """Messages of one partition, in order."""

    def __init__(self, client: PulsarClient, reader: pulsar_async.Reader) -> None:
        self._client, self._reader = client, reader

    async def next(self, partition: int) -> StoredMessage | None:
        """The next message that is there now; None: there is none."""
        if not await self._client.asked(self._reader.has_message_available()):
            return None
        return stored_of(await self._client.asked(self._reader.read_next()), partition)

    async def close(self) -> None:
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


def _reason_of(error: pulsar_async.PulsarException) -> str:
    words = str(error).partition(": ")[2]
    return words or error.error().name
