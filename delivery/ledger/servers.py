"""The servers that deliver a queue, in the ledger: their seats, and the view of who shares the limits.

A seat is one conditional row that lives as long as its heartbeat: only its holder renews it, all
columns of it, and a claim that fails touches nothing. The view is one conditional row that is
changed from one epoch to the next. All reads are SERIAL, and so is the order of what is done: a
server that took a seat before it read the view is seen by each server that reads the seats after it
changed the view.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from mailmend.delivery.policy.servers import SeatState, ServerName, ServerSeat, ServerView
from mailmend.model.catalog.ledger import DELIVERY_SERVER, DELIVERY_VIEW
from mailmend.model.errors import DoubtfulWrite
from mailmend.model.ids import QueueName
from mailmend.model.operations import Applied, ChangeIf, Conditional, Level, PutIfAbsent, Read
from mailmend.model.ports import AsyncTables
from mailmend.model.table import Row

SEAT_SECONDS: Final = 60
"""How long a seat outlives its last heartbeat."""


@dataclass(frozen=True, slots=True)
class LedgerServers:
    """The servers of one mail keyspace's queues.

    Args:
        tables: the ledger keyspace.
        keyspace: the name of the mail keyspace.

    Every method may raise `CannotReach`; after that it is unknown whether something was written.
    """

    tables: AsyncTables
    keyspace: str

    async def take(
        self, queue: QueueName, seat: ServerSeat, has_ended: Callable[[str], bool] = lambda _: False
    ) -> ServerSeat | None:
        """Take a seat that is free, or whose server has ended; the seat as it is then, which may be another's.

        Args:
            queue: the queue that is delivered.
            seat: as it is to be.
            has_ended: whether a process is surely no more, whatever its seat says.

        Returns:
            None: it was let go of just now.
        """
        key = (self.keyspace, queue, seat.name)
        row = DELIVERY_SERVER.key_row(key) | _cells(seat)
        answer = await self._attempt(PutIfAbsent(DELIVERY_SERVER, row, SEAT_SECONDS), seat, queue)
        if answer.applied:
            return seat
        if (held := _seat(answer.current)) is None:
            return None
        if held.state is SeatState.SERVING and not has_ended(held.process):
            return held
        expected = {"claim": held.claim, "state": held.state.value}
        change = ChangeIf(DELIVERY_SERVER, key, expected, _cells(seat), ttl_seconds=SEAT_SECONDS)
        answer = await self._attempt(change, seat, queue)
        return seat if answer.applied else None

    async def renew(self, queue: QueueName, seat: ServerSeat) -> bool:
        """Keep a seat from now on as it is here; False: another server has it now, or no server."""
        key = (self.keyspace, queue, seat.name)
        expected = {"claim": seat.claim}
        change = ChangeIf(DELIVERY_SERVER, key, expected, _cells(seat), ttl_seconds=SEAT_SECONDS)
        return (await self._attempt(change, seat, queue)).applied

    async def end(self, queue: QueueName, seat: ServerSeat) -> bool:
        """Say that the server has ended: nothing of it is under way, and who has its name may take its seat at once."""
        return await self.renew(queue, replace(seat, state=SeatState.ENDED))

    async def seats(self, queue: QueueName) -> Mapping[ServerName, ServerSeat]:
        """All that live, by name."""
        seen = await self.tables.read(Read(DELIVERY_SERVER, (self.keyspace, queue), Level.SERIAL))
        found = (_seat(stored.row) for stored in seen)
        return {seat.name: seat for seat in found if seat}

    async def view(self, queue: QueueName) -> ServerView | None:
        """The view that holds; None: no server ever shared the limits of this queue."""
        seen = await self.tables.read(Read(DELIVERY_VIEW, (self.keyspace, queue), Level.SERIAL))
        return _view(seen[0].row) if seen else None

    async def change_view(self, queue: QueueName, view: ServerView) -> bool:
        """Have this view follow the one before it; False: another one did."""
        key = (self.keyspace, queue)
        cells = {
            "epoch": view.epoch,
            "members": tuple(view.members),
            "since": tuple(view.members.values()),
            "before": view.before,
        }
        change: Conditional = ChangeIf(DELIVERY_VIEW, key, {"epoch": view.epoch - 1}, cells)
        if view.epoch == 1:
            change = PutIfAbsent(DELIVERY_VIEW, DELIVERY_VIEW.key_row(key) | cells)
        return (await self.tables.attempt(change)).applied

    async def _attempt(self, write: Conditional, wanted: ServerSeat, queue: QueueName) -> Applied:
        """The write's answer; where it is doubtful, a SERIAL read decides."""
        try:
            return await self.tables.attempt(write)
        except DoubtfulWrite:
            key = (self.keyspace, queue, wanted.name)
            seen = await self.tables.read(Read(DELIVERY_SERVER, key, Level.SERIAL))
            row = seen[0].row if seen else None
            found = _seat(row)
            if found is None or (found.claim == wanted.claim and _cells(found) != _cells(wanted)):
                raise  # it lives on as it was, or expired meanwhile: the next heartbeat says more
            return Applied(found.claim == wanted.claim, row)


def _cells(seat: ServerSeat) -> dict[str, object]:
    return {
        "claim": seat.claim,
        "owner": seat.owner,
        "process": seat.process,
        "adopted": seat.adopted,
        "state": seat.state.value,
        "since": _to_millis(seat.since),
        "seenat": _to_millis(seat.seen_at),
    }


def _to_millis(at: datetime) -> datetime:
    """As precise as the tables keep it."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def _seat(row: Row | None) -> ServerSeat | None:
    if row is None or row.get("claim") is None:
        return None
    return ServerSeat(
        name=ServerName(row["server"]),
        claim=row["claim"],
        owner=row["owner"],
        process=row["process"] or "",
        adopted=row["adopted"],
        state=SeatState(row["state"]),
        since=row["since"],
        seen_at=row["seenat"],
    )


def _view(row: Row) -> ServerView:
    members = zip(row["members"] or (), row["since"] or (), strict=True)
    return ServerView(
        row["epoch"],
        {ServerName(name): since for name, since in members},
        tuple(ServerName(name) for name in row["before"] or ()),
    )
