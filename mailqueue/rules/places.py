"""Places of messages in a topic, and what a subscription has acknowledged of them. Pure.

A topic has one partition, or several; each is a row of ledgers, each of those a row of entries. So the places of one
partition are in the order in which the broker took their messages, for any publisher and any clock.
Source: Pulsar's message ids and its managed cursors.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

from mailmend.model.errors import BadPayload

EntryPosition = tuple[int, int]
"""Ledger and entry."""

UNPARTITIONED: Final = -1
"""The partition of every message of a topic that has none."""

BEFORE_ALL: Final[EntryPosition] = (-1, -1)
"""Before the first message of a partition."""

_PLACE: Final = re.compile(r"(\d{1,19}):(-?\d{1,19}):(-?\d{1,10})")
_RANGE: Final = re.compile(r"\((\d+):(-?\d+)\.\.(\d+):(-?\d+)\]")


@dataclass(frozen=True, slots=True, order=True)
class MessagePlace:
    """Where a message is."""

    partition: int
    ledger: int
    entry: int

    @property
    def position(self) -> EntryPosition:
        return (self.ledger, self.entry)

    def __str__(self) -> str:
        """As Pulsar and James write it: ledger:entry:partition."""
        return f"{self.ledger}:{self.entry}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse what `str` makes.

        Raises:
            BadPayload: it is no place.
        """
        found = _PLACE.fullmatch(text)
        if not found:
            raise BadPayload("the place of a message is not ledger:entry:partition")
        ledger, entry, partition = map(int, found.groups())
        return cls(partition, ledger, entry)


@dataclass(frozen=True, slots=True, order=True)
class TopicPlace:
    """Where a message is, in which of a namespace's topics."""

    topic: str
    place: MessagePlace


@dataclass(frozen=True, slots=True)
class PartitionBacklog:
    """What a subscription has acknowledged of one partition.

    Attributes:
        acked_to: up to there, all of it.
        acked: behind that, stretches: each begins behind its first position and ends with its second; in order.
        last: the last message that the partition holds.
        count: how many messages are not acknowledged.
        unacked: how many of them consumers have in their hands.
        consumers: how many consumers the subscription has.
        added, consumed: how many messages were published and acknowledged, since the broker serves the topic.
        writes_to: the ledger that takes what is published; another one at the latest when a broker begins to serve
            the topic.
    """

    acked_to: EntryPosition
    acked: tuple[tuple[EntryPosition, EntryPosition], ...]
    last: EntryPosition
    count: int = 0
    unacked: int = 0
    consumers: int = 0
    added: int = 0
    consumed: int = 0
    writes_to: int = 0

    @property
    def count_at_least(self) -> int:
        """How many messages are not acknowledged at least: the broker answers twice, while traffic goes on."""
        return min(self.count, self.added - self.consumed)

    @property
    def done_to(self) -> EntryPosition:
        """Up to where all is acknowledged; where nothing is left, that is the end."""
        if self.count:
            return self.acked_to
        return max(self.acked_to, self.last)

    def holds(self, position: EntryPosition) -> bool:
        """Whether a message there is not acknowledged."""
        return self.acked_to < position and self.acked_until(position) is None

    def acked_until(self, position: EntryPosition) -> EntryPosition | None:
        """The end of the acknowledged stretch that holds the position; None where it is in none."""
        index = bisect_left(self.acked, position, key=lambda stretch: stretch[1])
        if index < len(self.acked) and self.acked[index][0] < position:
            return self.acked[index][1]
        return None


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a subscription has not acknowledged, of each partition by its number.

    Attributes:
        missing: partitions that the topic has by its number of them, and that are not there.
    """

    partitions: Mapping[int, PartitionBacklog] = field(default_factory=dict)
    missing: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return sum(partition.count for partition in self.partitions.values())

    @property
    def unacked(self) -> int:
        return sum(partition.unacked for partition in self.partitions.values())

    @property
    def consumers(self) -> int:
        """How many consumers there are: each has one at every partition."""
        return max((partition.consumers for partition in self.partitions.values()), default=0)

    @property
    def added(self) -> int:
        return sum(partition.added for partition in self.partitions.values())

    @property
    def consumed(self) -> int:
        return sum(partition.consumed for partition in self.partitions.values())

    @property
    def stretches(self) -> int:
        """How many stretches of what is acknowledged the broker has to remember of one partition, the most."""
        return max((len(partition.acked) for partition in self.partitions.values()), default=0)

    @classmethod
    def of(cls, places: Iterable[MessagePlace]) -> Self:
        """One that holds these messages, and none else."""
        by_partition: dict[int, list[EntryPosition]] = {}
        for place in sorted(set(places)):
            by_partition.setdefault(place.partition, []).append(place.position)
        return cls({number: _of_these(positions) for number, positions in by_partition.items()})

    def follows(self, before: "Backlog") -> bool:
        """Whether what was acknowledged before still is, for sure.

        So it is where no broker began to serve the topic meanwhile, and the subscription was not
        set back.
        """
        for number, partition in self.partitions.items():
            earlier = before.partitions.get(number)
            if earlier is None:
                return False
            if partition.writes_to != earlier.writes_to or partition.acked_to < earlier.acked_to:
                return False
        return True

    def holds(self, place: MessagePlace) -> bool:
        partition = self.partitions.get(place.partition)
        return partition is not None and partition.holds(place.position)

    def until(self, later: "Backlog") -> "Backlog":
        """What was not acknowledged then, and what came until `later`."""
        partitions: dict[int, PartitionBacklog] = {}
        for number, partition in self.partitions.items():
            partitions[number] = replace(partition, last=later.partitions[number].last)
        return Backlog(partitions, self.missing)

    def held(self, places: Iterable[MessagePlace]) -> list[MessagePlace]:
        return [place for place in places if self.holds(place)]


def _of_these(positions: Sequence[EntryPosition]) -> PartitionBacklog:
    before = [(ledger, entry - 1) for ledger, entry in positions]
    stretches = []
    for behind, to in zip(positions, before[1:], strict=False):
        if behind < to:
            stretches.append((behind, to))
    return PartitionBacklog(before[0], tuple(stretches), positions[-1], len(positions))


def position_of(text: str) -> EntryPosition:
    """Ledger and entry as Pulsar's admin API writes them: 14:26.

    Raises:
        ValueError: it is neither.
    """
    ledger, entry = text.split(":")
    return (int(ledger), int(entry))


def stretches_of(text: str) -> tuple[tuple[EntryPosition, EntryPosition], ...]:
    """The stretches of what is acknowledged one by one, as Pulsar's admin API writes them: [(5:1..5:2],(5:3..5:4]]."""
    stretches = []
    for ledger, entry, last_ledger, last in _RANGE.findall(text):
        begin = (int(ledger), int(entry))
        end = (int(last_ledger), int(last))
        stretches.append((begin, end))
    return tuple(stretches)
