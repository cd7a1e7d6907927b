"""Reads of single rows or small partitions, joined into few requests by IN; pure.

A request costs more than the small row that it brings: joined, ten times as many rows are read in the same time
(measured with the driver on one node). Only reads that say so (`Read.joinable`) are joined, so that large rows and
partitions never share an answer; SERIAL reads cannot be.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from mailmend.model.errors import MailmendError
from mailmend.model.operations import Level, Read, Seen

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
    alone = [place for place in range(len(reads)) if place not in answers]
    answers |= zip(alone, ask([reads[place] for place in alone]), strict=True)
    return [answers[place] for place in range(len(reads))]


def _joined(reads: Sequence[Read], replica_of: Callable[[Read], Hashable]) -> Iterable[JoinedRead]:
    groups: dict[Hashable, list[int]] = {}
    for place, read in enumerate(reads):
        groups.setdefault(_group(read, replica_of, place), []).append(place)
    for places in groups.values():
        for start in range(0, len(places), KEYS_MAX):
            some = places[start : start + KEYS_MAX]
            first = reads[some[0]]
            last = dict.fromkeys(reads[place].key[-1] for place in some)
            joined = replace(first, key=first.key[:-1], among=tuple(last)) if len(last) > 1 else first
            yield JoinedRead(joined, tuple(some))


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
