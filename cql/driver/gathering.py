"""Small writes of one event loop that are under way at the same time, sent as few requests.

A request costs a node and this process more than the small row that it carries. While a request is
in flight, further `joinable` writes wait for the next one and share it. A write that finds no
request in flight goes at once, so a quiet process waits for nothing. A request that takes longer
than `PATIENCE_SECONDS` no longer holds up the next one.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Final, NamedTuple

from mailmend.cql.driver.joined import BYTES_MAX, PARTITIONS_MAX, WRITES_MAX, partition_of, size_of
from mailmend.model.errors import AccessDenied, CannotReach, MailmendError, NotEnoughReplicas
from mailmend.model.operations import Put

PATIENCE_SECONDS: Final = 0.02
"""How long a request may hold up writes that came after it."""

BYTES_OVER_PARTITIONS_MAX: Final = 4 * 1024
"""The approximate largest size of a request over partitions: nodes warn of batches above 5 KiB
(`batch_size_warn_threshold`)."""

CELL_BYTES: Final = 24
"""What a node counts for each cell without its value: its stamp, and the times of its expiry."""

_Answer = MailmendError | None
Send = Callable[[Sequence[Put]], Awaitable[_Answer]]


class WaitingWrite(NamedTuple):
    """A write, and the future of its answer."""

    write: Put
    answer: "asyncio.Future[_Answer]"


class _Lane:
    """The writes of one replica."""

    def __init__(self) -> None:
        self.waiting = deque[WaitingWrite]()
        self.in_flight: set[asyncio.Task[None]] = set()
        self.timer: asyncio.TimerHandle | None = None


class GatheredWrites:
    """Sends writes together. All calls are made in one event loop.

    Args:
        send: sends writes as one request; its error, or None.
        turns: how many requests are in flight at once, other ones too. A write whose caller is
            cancelled before its turn is not sent.
        replica_of: the node that is asked first for the partition of a write. Only writes of the
            same node share a request.
    """

    def __init__(
        self,
        send: Send,
        replica_of: Callable[[Put], Hashable],
        turns: asyncio.Semaphore | None = None,
    ) -> None:
        self._send = send
        self._turns = turns or asyncio.Semaphore(WRITES_MAX)
        self._replica_of = replica_of
        self._lanes: dict[Hashable, _Lane] = {}

    async def add(self, write: Put) -> _Answer:
        """The error of the write, or None. A write whose caller is cancelled may be sent or not."""
        answer: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        replica = self._replica_of(write)
        lane = self._lanes.setdefault(replica, _Lane())
        lane.waiting.append(WaitingWrite(write, answer))
        if not lane.in_flight:
            self._begin(lane)
        self._be_patient(lane)
        return await answer

    def _be_patient(self, lane: _Lane) -> None:
        """What waits has a timer, also behind a request that hangs."""
        if lane.waiting and lane.timer is None:
            loop = asyncio.get_running_loop()
            lane.timer = loop.call_later(PATIENCE_SECONDS, self._lose_patience, lane)

    def _begin(self, lane: _Lane) -> None:
        taken = taken_together(lane.waiting)
        if not taken:
            return
        task = asyncio.ensure_future(self._carried_out(taken))
        lane.in_flight.add(task)
        task.add_done_callback(lambda ended: self._go_on(lane, ended))

    def _go_on(self, lane: _Lane, ended: "asyncio.Task[None]") -> None:
        lane.in_flight.discard(ended)
        if lane.timer is not None:
            lane.timer.cancel()
            lane.timer = None
        if lane.waiting:
            self._begin(lane)
        self._be_patient(lane)

    def _lose_patience(self, lane: _Lane) -> None:
        lane.timer = None
        self._begin(lane)
        self._be_patient(lane)

    async def _carried_out(self, taken: Sequence[WaitingWrite]) -> None:
        try:
            await self._answered(taken)
        except Exception as failure:  # noqa: BLE001 - the callers that wait get it
            for _, answer in taken:
                if not answer.done():
                    answer.set_exception(failure)
        finally:
            for _, answer in taken:
                answer.cancel()  # nothing where it has its answer

    async def _answered(self, taken: Sequence[WaitingWrite]) -> None:
        """A cancelled caller may undo its write: a later request would overwrite the undo."""
        async with self._turns:
            wanted = [waiting for waiting in taken if not waiting.answer.done()]
            if not wanted:
                return
            error = await self._send([waiting.write for waiting in wanted])
        if error is None or len(wanted) == 1 or not _is_refusal(error):
            for waiting in wanted:
                _settle(waiting, error)
            return
        for waiting in wanted:  # the request was refused: each write alone has its own answer
            await self._answered([waiting])


def _is_refusal(error: MailmendError) -> bool:
    """Whether nodes took none of it: one missing right, or one partition's replicas, fail all."""
    if isinstance(error, AccessDenied | NotEnoughReplicas):
        return True
    return not isinstance(error, CannotReach)


def _settle(waiting: WaitingWrite, error: _Answer) -> None:
    if not waiting.answer.done():  # the waiting caller may have been cancelled
        waiting.answer.set_result(error)


def taken_together(waiting: "deque[WaitingWrite]") -> list[WaitingWrite]:
    """Take from the head of the queue what one request may carry; at least one where any waits.

    A request has one write of a row: two of the same request would have the same stamp. Writes
    without a caller are dropped.
    """
    taken = list[WaitingWrite]()
    rows = set[Hashable]()
    partitions = set[Hashable]()
    total = 0
    while waiting and len(taken) < WRITES_MAX:
        write, answer = waiting[0]
        if answer.done():
            waiting.popleft()
            continue
        row = _row_of(write)
        grown = partitions | {partition_of(write)}
        total += request_bytes(write)
        if taken and (row in rows or not _fits(len(grown), total)):
            break
        taken.append(waiting.popleft())
        rows.add(row)
        partitions = grown
    return taken


def request_bytes(write: Put) -> int:
    """The approximate size that a node counts: the values, and what it keeps with each cell."""
    cells = 0
    for value in write.row.values():
        cells += 1
        if isinstance(value, Mapping | list | set | frozenset):  # a cell for each element
            cells += len(value)
    return size_of(list(write.row.values())) + cells * CELL_BYTES


def _row_of(write: Put) -> Hashable:
    return (id(write.table), *write.table.key_of(write.row))


def _fits(partitions: int, total: int) -> bool:
    """Whether one request may have this number of partitions and of bytes."""
    most = BYTES_MAX
    if partitions > 1:
        most = BYTES_OVER_PARTITIONS_MAX
    return partitions <= PARTITIONS_MAX and total <= most
