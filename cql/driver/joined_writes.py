"""Small writes of one partition, and removals of partitions on one replica, joined into few requests; pure.

A request costs more than the small row that it carries, on both sides. An unlogged batch of one partition is one
mutation: a node neither logs it apart nor limits its size as it does with batches over partitions. Only writes that say
so (`Put.joinable`) are joined.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mailmend.cql.row_statements import values_of
from mailmend.model.errors import CannotReach, MailmendError
from mailmend.model.operations import Put, Remove, Write

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
    if not any(_is_joinable(write) for write in writes):
        return send(writes)
    groups = list(_groups(writes, replica_of))
    requests = [JoinedWrite(tuple(writes[at] for at in some)) if len(some) > 1 else writes[some[0]] for some in groups]
    answers: dict[int, MailmendError | None] = {}
    for places, answer in zip(groups, send(requests), strict=True):
        if len(places) == 1 or answer is None or isinstance(answer, CannotReach):
            answers |= dict.fromkeys(places, answer)
    alone = [place for place in range(len(writes)) if place not in answers]
    answers |= zip(alone, send([writes[place] for place in alone]), strict=True)
    return [answers[place] for place in range(len(writes))]


def _groups(writes: Sequence[Write], replica_of: Callable[[Write], Hashable]) -> Iterator[list[int]]:
    """The places of the writes that share a request."""
    growing: dict[Hashable, tuple[list[int], int]] = {}
    for place, write in enumerate(writes):
        if not _is_joinable(write):
            yield [place]
            continue
        whole = isinstance(write, Remove) and len(write.key) == len(write.table.partition)
        group = (id(write.table), replica_of(write)) if whole else _partition_of(write)
        most = PARTITIONS_MAX if whole else WRITES_MAX
        size = _size_of(values_of(write, None))
        places, total = growing.get((whole, group), ([], 0))
        if places and (len(places) == most or total + size > BYTES_MAX):
            yield places
            places = []
            total = 0
        places.append(place)
        growing[whole, group] = (places, total + size)
    yield from (places for places, _ in growing.values())


def _is_joinable(write: Write) -> bool:
    return getattr(write, "joinable", False)


def _partition_of(write: Write) -> Hashable:
    table = write.table
    if isinstance(write, Put):
        return (id(table), *(write.row[column.name] for column in table.partition))
    return (id(table), *write.key[: len(table.partition)])


def _size_of(value: object) -> int:
    match value:
        case str() | bytes():
            return len(value)
        case Mapping():
            return sum(map(_size_of, value)) + sum(map(_size_of, value.values()))
        case tuple() | list() | set() | frozenset():
            return sum(map(_size_of, value))
        case _:
            return 16
