"""Reading what partitions of topics hold, in order, without taking any of it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import Final

from mailmend.mailqueue.concurrency import finished
from mailmend.mailqueue.pulsar.broker.client import PulsarClient, TopicReader
from mailmend.mailqueue.pulsar.broker.topics import StoredMessage
from mailmend.mailqueue.rules.places import (
    BEFORE_ALL,
    UNPARTITIONED,
    Backlog,
    EntryPosition,
    MessagePlace,
    PartitionBacklog,
)

SEEK_BEYOND: Final = 500
"""From how many acknowledged messages in a row on a reader jumps over them."""

PartitionNamed = Callable[[int], str]
"""The full name of a topic's partition, by its number."""


async def held_messages(
    client: PulsarClient, named: PartitionNamed, backlog: Backlog, after: MessagePlace | None = None
) -> AsyncGenerator[StoredMessage]:
    """The messages that a backlog holds, those after a place."""
    for number, partition in sorted(backlog.partitions.items()):
        if after is not None and number < after.partition:
            continue
        behind = partition.acked_to
        if after is not None and number == after.partition:
            behind = max(behind, after.position)
        if behind >= partition.last:
            continue
        async with client.reader(named(number), behind) as reader:
            while message := await reader.next(number):
                position = message.place.position
                if position > partition.last:
                    break
                if partition.holds(position):
                    yield message
                elif end := _worth_a_seek(partition, position):
                    await reader.skip(end)


async def followed(client: PulsarClient, named: PartitionNamed, there: Backlog) -> "PulsarFollowing":
    """Follow a topic from what a backlog holds on."""
    readers = dict[int, TopicReader]()
    try:
        for number, partition in there.partitions.items():
            readers[number] = await client.open_reader(named(number), partition.acked_to)
    except BaseException:
        await finished(_all_closed(readers.values()))
        raise
    return PulsarFollowing(client, named, there, readers)


class PulsarFollowing:
    """A reader of each partition, those that are added included. Implements `Following` of `topics`."""

    def __init__(
        self, client: PulsarClient, named: PartitionNamed, there: Backlog, readers: dict[int, TopicReader]
    ) -> None:
        self._client = client
        self._named = named
        self._there = there
        self._readers = readers
        self._found: list[StoredMessage] = []

    async def news(self) -> list[StoredMessage]:
        async with aclosing(self.each()) as messages:
            async for message in messages:
                self._found.append(message)
        found = self._found
        self._found = []
        return found

    async def each(self) -> AsyncGenerator[StoredMessage]:
        for number in await self._client.partitions(self._named(UNPARTITIONED)):
            if number not in self._readers:
                self._readers[number] = await self._client.open_reader(self._named(number), BEFORE_ALL)
        for number, reader in self._readers.items():
            partition = self._there.partitions.get(number)
            while message := await reader.next(number):
                position = message.place.position
                if partition is None or position > partition.last or partition.holds(position):
                    yield message
                elif end := _worth_a_seek(partition, position):
                    await reader.skip(end)

    async def close(self) -> None:
        await finished(_all_closed(self._readers.values()))


async def _all_closed(readers: Iterable[TopicReader]) -> None:
    await asyncio.gather(*(reader.close() for reader in readers), return_exceptions=True)


def _worth_a_seek(partition: PartitionBacklog, position: EntryPosition) -> EntryPosition | None:
    """The end of the acknowledged stretch there, if it is far."""
    end = partition.acked_until(position)
    if end is None or (end[0] == position[0] and end[1] - position[1] < SEEK_BEYOND):
        return None
    return end
