"""Readers and producers of Pulsar's client whose broker does not do what it should."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from pulsar import MessageId

from mailmend.mailqueue.pulsar.client import PulsarClient, TopicReader
from mailmend.mailqueue.pulsar.settings import PulsarSettings
from mailmend.mailqueue.pulsar.topics import TopicMessage
from mailmend.model.errors import BrokerUnreachable
from tests.support.clock import VirtualClock

SETTINGS = PulsarSettings("pulsar://p:6650", "http://p:8080", answer_seconds=0.01)


class SilentReader:
    """It says that there is a message, and gives none."""

    closed = False

    async def has_message_available(self) -> bool:
        return True

    async def read_next(self) -> Any:
        await asyncio.Event().wait()

    async def close(self) -> None:
        self.closed = True


async def test_a_message_that_never_comes_ends_the_reading() -> None:
    silent = SilentReader()
    reader = TopicReader(PulsarClient(SETTINGS, VirtualClock()), silent)

    with pytest.raises(BrokerUnreachable, match="a message did not come") as away:
        async with asyncio.timeout(10):
            await reader.next(0)
    await reader.close()

    assert "pulsar-admin brokers healthcheck" in away.value.mend
    assert silent.closed


@dataclass(eq=False)
class Producer:
    """It confirms what it is given once it may. It has no `flush`: the library's own may never end."""

    events: list[str]
    name: str
    may_confirm: asyncio.Event = field(default_factory=asyncio.Event)
    connected: bool = True

    def is_connected(self) -> bool:
        return self.connected

    async def send(self, content: bytes, **_: Any) -> MessageId:
        self.events.append(f"{self.name} has {content!r}")
        await self.may_confirm.wait()
        self.events.append(f"{self.name} confirms")
        return MessageId(0, 1, 1)

    async def close(self) -> None:
        self.events.append(f"{self.name} is closed")


async def test_a_producer_that_has_lost_its_broker_is_closed_once_it_has_confirmed_what_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, events = PulsarClient(SETTINGS, VirtualClock()), list[str]()
    old, new = Producer(events, "the old one"), Producer(events, "the new one")
    producers = iter((old, new))

    async def made(_: str) -> Any:
        return next(producers)

    monkeypatch.setattr(client, "_new_producer", made)
    first = asyncio.ensure_future(client.publish("topic", TopicMessage("a")))
    await asyncio.sleep(0.01)
    old.connected = False
    new.may_confirm.set()
    await client.publish("topic", TopicMessage("b"))
    old.may_confirm.set()
    await first
    await asyncio.wait(client._parting, timeout=10)

    assert events == [
        "the old one has 'a'",
        "the new one has 'b'",
        "the new one confirms",
        "the old one confirms",
        "the old one is closed",
    ]
