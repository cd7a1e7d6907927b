"""Reads of single rows, and small writes of one partition, joined into few requests. Pure.

A request costs more than the small row that it brings: joined, ten times as many rows are read in
the same time (measured with the driver on one node). Only reads that say so (`Read.joinable`) are
joined, so that large rows and partitions never share an answer; SERIAL reads cannot be.

A request costs more than the small row that it carries, on both sides. An unlogged batch of one
partition is one mutation: a node neither logs it apart nor limits its size as it does with batches
over partitions. Only writes that say so (`Put.joinable`) are joined.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from mailmend.cql.row_statements import values_of
from mailmend.model.errors import CannotReach, MailmendError
from mailmend.model.operations import Level, Put, Read, Remove, Seen, Write

KEYS_MAX = 50
"""The largest number of keys in one request, as one replica without an answer fails them all."""

RowsOrError = Sequence[Seen] | MailmendError


@dataclass(frozen=True, slots=True)
class JoinedRead:
    """A request, and the indexes of the caller's reads that it answers."""

    read: Read
    places: tuple[int, ...]


def read_joined(
    reads: Sequence[Read], ask: Callable[[Sequence[Read]], list[RowsOrError]], replica_of: Callable[[Read], Hashable]
) -> list[RowsOrError]:
    """The answer to each read, in order; reads that a joined request could not answer are sent alone.

    `ask` sends requests and gives their answers, in order; only reads whose partitions `replica_of` finds on the same
    replica are joined.
    """
    if not any(read.joinable for read in reads):
        return ask(reads)
    requests = list(_joined(reads, replica_of))
    answers: dict[int, RowsOrError] = {}
    for request, answer in zip(requests, ask([waiting.read for waiting in requests]), strict=True):
        answers |= _parted(request, reads, answer)
    return _completed(reads, answers, ask)


def _joined(reads: Sequence[Read], replica_of: Callable[[Read], Hashable]) -> Iterable[JoinedRead]:
    groups: dict[Hashable, list[int]] = {}
    for place, read in enumerate(reads):
        groups.setdefault(_group(read, replica_of, place), []).append(place)
    for places in groups.values():
        for start in range(0, len(places), KEYS_MAX):
            some = places[start : start + KEYS_MAX]
            request = reads[some[0]]
            last = dict.fromkeys(reads[place].key[-1] for place in some)
            if len(last) > 1:
                request = replace(request, key=request.key[:-1], among=tuple(last))
            yield JoinedRead(request, tuple(some))


def _group(read: Read, replica_of: Callable[[Read], Hashable], place: int) -> Hashable:
    """What reads have in common that one request can answer; its own place for one that is sent alone."""
    if not read.joinable or read.among or read.level is Level.SERIAL:
        return place
    whole_partition = len(read.key) == len(read.table.partition)
    return (id(read.table), read.key[:-1], read.level, read.times, read.columns, whole_partition and replica_of(read))


def _parted(request: JoinedRead, reads: Sequence[Read], answer: RowsOrError) -> dict[int, RowsOrError]:
    """Each read's rows; nothing where the request failed, or brought a row that no read asked for."""
    if not request.read.among:
        return dict.fromkeys(request.places, answer)
    if isinstance(answer, MailmendError):
        return {}
    table = request.read.table
    width = len(request.read.key) + 1
    own: dict[tuple[object, ...], list[Seen]] = {reads[place].key: [] for place in request.places}
    for seen in answer:
        rows = own.get(table.key_of(seen.row)[:width])
        if rows is None:
            return {}
        rows.append(seen)
    return {place: own[reads[place].key] for place in request.places}


WRITES_MAX = 50
BYTES_MAX = 32 * 1024
"""The approximate largest size of the values of one request; a larger single write is sent alone."""

PARTITIONS_MAX = 10
"""The most partitions of one request; above, nodes warn (`unlogged_batch_across_partitions_warn_threshold`)."""


@dataclass(frozen=True, slots=True)
class JoinedWrite:
    """Writes of one partition, or of partitions on one replica, that are sent as one request."""

    writes: tuple[Write, ...]


def write_joined(
    writes: Sequence[Write],
    send: Callable[[Sequence[Write | JoinedWrite]], list[MailmendError | None]],
    replica_of: Callable[[Write], Hashable],
) -> list[MailmendError | None]:
    """The error of each write, or None, in order; `send` sends requests and returns their errors.

    Only removals of whole partitions that `replica_of` finds on the same replica are joined over partitions.

    A request without an answer is not sent again write by write: they would go to the same replicas. One that is
    refused is, so that each write has its own answer.
    """
    if not any(map(_is_joinable, writes)):
        return send(writes)
    groups = list(_groups(writes, replica_of))
    requests: list[Write | JoinedWrite] = []
    for places in groups:
        if len(places) > 1:
            requests.append(JoinedWrite(tuple(writes[place] for place in places)))
        else:
            requests.append(writes[places[0]])
    answers: dict[int, MailmendError | None] = {}
    for places, answer in zip(groups, send(requests), strict=True):
        if len(places) == 1 or answer is None or isinstance(answer, CannotReach):
            answers |= dict.fromkeys(places, answer)
    return _completed(writes, answers, send)


Asked = TypeVar("Asked")
Answered = TypeVar("Answered")


def _completed(
    asked: Sequence[Asked], answers: Mapping[int, Answered], send: Callable[[Sequence[Asked]], list[Answered]]
) -> list[Answered]:
    """The answers in order; what has no answer yet is sent alone."""
    alone = [place for place in range(len(asked)) if place not in answers]
    late = dict(zip(alone, send([asked[place] for place in alone]), strict=True))
    every = {**answers, **late}
    return [every[place] for place in sorted(every)]


def _groups(writes: Sequence[Write], replica_of: Callable[[Write], Hashable]) -> Iterator[list[int]]:
    """The places of the writes that share a request."""
    growing: dict[Hashable, tuple[list[int], int]] = {}
    for place, write in enumerate(writes):
        if not _is_joinable(write):
            yield [place]
            continue
        whole = isinstance(write, Remove) and len(write.key) == len(write.table.partition)
        if whole:
            group: Hashable = (id(write.table), replica_of(write))
            most = PARTITIONS_MAX
        else:
            group = partition_of(write)
            most = WRITES_MAX
        size = size_of(values_of(write, None))
        places, total = growing.get((whole, group), ([], 0))
        if places and (len(places) == most or total + size > BYTES_MAX):
            yield places
            places = []
            total = 0
        places.append(place)
        growing[whole, group] = (places, total + size)
    for places, _ in growing.values():
        yield places


def _is_joinable(write: Write) -> bool:
    return getattr(write, "joinable", False)


def partition_of(write: Write) -> Hashable:
    """What writes of one partition have in common."""
    table = write.table
    if isinstance(write, Put):
        return (id(table), *table.partition_of(write.row))
    return (id(table), *write.key[: len(table.partition)])


def size_of(value: object) -> int:
    """The approximate size of a value on its way to a node, in bytes."""
    match value:
        case str() if not value.isascii():
            return len(value.encode(errors="replace"))
        case str() | bytes():
            return len(value)
        case Mapping():
            return sum(map(size_of, value)) + sum(map(size_of, value.values()))
        case tuple() | list() | set() | frozenset():
            return sum(map(size_of, value))
        case _:
            return 16
