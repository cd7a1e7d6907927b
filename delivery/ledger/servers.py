"""The servers that deliver a queue, in the ledger: their memberships, the list of members, and rates over a restart.

A membership is one conditional row that lives as long as its heartbeat: only its holder renews it, all
columns of it, and a claim that fails touches nothing. The list of members is one conditional row that is
changed from one epoch to the next. All reads are SERIAL, and so is the order of what is done: a
server that took a membership before it read the list is seen by each server that reads the
memberships after it changed the list.

What a server keeps of rates has a row for the server, which only the process that has claimed it changes, and one for
each counter. Rows of counters are plain writes with stamps of their own, which go up from write to write and from
process to process, whatever the clocks say: a write that arrives late changes nothing that was written after it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from mailmend.delivery.policy.rates import LONG_AGO, SECOND
from mailmend.delivery.policy.remembered import CounterName, SavedRate
from mailmend.delivery.policy.shares import (
    LimitShare,
    Members,
    Membership,
    MembershipState,
    RememberedMembership,
    ServerName,
    ShareChanges,
)
from mailmend.model.catalog.ledger import (
    DELIVERY_LIFE,
    DELIVERY_RATE,
    DELIVERY_SERVER,
    DELIVERY_VIEW,
)
from mailmend.model.errors import DoubtfulWrite, MailmendError
from mailmend.model.ids import QueueName
from mailmend.model.operations import Applied, ChangeIf, Conditional, Level, Put, PutIfAbsent, Read
from mailmend.model.ports import AsyncTables
from mailmend.model.table import Row

MEMBERSHIP_SECONDS: Final = 60
"""How long a membership outlives its last heartbeat."""


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
        self, queue: QueueName, membership: Membership, has_ended: Callable[[str], bool] = lambda _: False
    ) -> Membership | None:
        """Take a membership that is free, or whose server has ended; the row as it is then, maybe another's.

        Args:
            queue: the queue that is delivered.
            membership: as it is to be.
            has_ended: whether a process is surely no more, whatever its membership says.

        Returns:
            None: it was let go of just now.
        """
        key = (self.keyspace, queue, membership.name)
        row = DELIVERY_SERVER.key_row(key) | _cells(membership)
        answer = await self._attempt(PutIfAbsent(DELIVERY_SERVER, row, MEMBERSHIP_SECONDS), membership, queue)
        if answer.applied:
            return membership
        if (held := _membership(answer.current)) is None:
            return None
        if held.state is MembershipState.SERVING and not has_ended(held.process):
            return held
        expected = {"claim": held.claim, "state": held.state.value}
        change = ChangeIf(DELIVERY_SERVER, key, expected, _cells(membership), ttl_seconds=MEMBERSHIP_SECONDS)
        answer = await self._attempt(change, membership, queue)
        if not answer.applied:
            return None
        return membership

    async def renew(self, queue: QueueName, membership: Membership) -> bool:
        """Keep a membership from now on as it is here; False: another server has it now, or no server."""
        key = (self.keyspace, queue, membership.name)
        expected = {"claim": membership.claim}
        change = ChangeIf(DELIVERY_SERVER, key, expected, _cells(membership), ttl_seconds=MEMBERSHIP_SECONDS)
        return (await self._attempt(change, membership, queue)).applied

    async def end(self, queue: QueueName, membership: Membership) -> bool:
        """Say that the server has ended: nothing is under way, and a server of its name may follow it at once."""
        return await self.renew(queue, replace(membership, state=MembershipState.ENDED))

    async def memberships(self, queue: QueueName) -> Mapping[ServerName, Membership]:
        """All that live, by name."""
        seen = await self.tables.read(Read(DELIVERY_SERVER, (self.keyspace, queue), Level.SERIAL))
        found = dict[ServerName, Membership]()
        for stored in seen:
            membership = _membership(stored.row)
            if membership:
                found[membership.name] = membership
        return found

    async def members(self, queue: QueueName) -> Members | None:
        """The list that holds; None: no server ever shared the limits of this queue."""
        seen = await self.tables.read(Read(DELIVERY_VIEW, (self.keyspace, queue), Level.SERIAL))
        if not seen:
            return None
        return _members(seen[0].row)

    async def change_members(self, queue: QueueName, members: Members) -> bool:
        """Have this list follow the one before it; False: another one did."""
        key = (self.keyspace, queue)
        cells = {
            "epoch": members.epoch,
            "members": tuple(members.since),
            "since": tuple(members.since.values()),
            "before": members.before,
        }
        change: Conditional = ChangeIf(DELIVERY_VIEW, key, {"epoch": members.epoch - 1}, cells)
        if members.epoch == 1:
            change = PutIfAbsent(DELIVERY_VIEW, DELIVERY_VIEW.key_row(key) | cells)
        return (await self.tables.attempt(change)).applied

    async def _attempt(self, write: Conditional, wanted: Membership, queue: QueueName) -> Applied:
        """The write's answer; where it is doubtful, a SERIAL read decides."""
        try:
            return await self.tables.attempt(write)
        except DoubtfulWrite:
            key = (self.keyspace, queue, wanted.name)
            seen = await self.tables.read(Read(DELIVERY_SERVER, key, Level.SERIAL))
            row = None
            if seen:
                row = seen[0].row
            found = _membership(row)
            if found is None or (found.claim == wanted.claim and _cells(found) != _cells(wanted)):
                raise  # it lives on as it was, or expired meanwhile: the next heartbeat says more
            return Applied(found.claim == wanted.claim, row)


def _cells(membership: Membership) -> dict[str, object]:
    return {
        "claim": membership.claim,
        "owner": membership.owner,
        "process": membership.process,
        "adopted": membership.adopted,
        "state": membership.state.value,
        "since": _to_millis(membership.since),
        "seenat": _to_millis(membership.seen_at),
    }


def _to_millis(at: datetime) -> datetime:
    """As precise as the tables keep it."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def _membership(row: Row | None) -> Membership | None:
    if row is None or row.get("claim") is None:
        return None
    return Membership(
        name=ServerName(row["server"]),
        claim=row["claim"],
        owner=row["owner"],
        process=row["process"] or "",
        adopted=row["adopted"],
        state=MembershipState(row["state"]),
        since=row["since"],
        seen_at=row["seenat"],
    )


def _members(row: Row) -> Members:
    names_and_epochs = zip(row["members"] or (), row["since"] or (), strict=True)
    return Members(
        row["epoch"],
        {ServerName(name): since for name, since in names_and_epochs},
        tuple(ServerName(name) for name in row["before"] or ()),
    )


_KEPT_INTERVALS: Final = 3
_KEPT_BESIDES: Final = 10 * 86_400
"""A row is kept for some intervals and days: what it says is over after one interval, unless its server writes anew."""

_TTL_MAX: Final = 10 * 365 * 86_400


@dataclass(frozen=True, slots=True)
class SavedRow:
    """A counter's row.

    Attributes:
        seen: when it was made, in microseconds of the wall clock.
        stamp: later rows of a counter have higher ones.
    """

    name: CounterName
    rate: SavedRate
    seen: int
    stamp: int = 0


@dataclass(frozen=True, slots=True)
class LedgerRates:
    """The rates of one mail keyspace's queues.

    Args:
        tables: the ledger keyspace.
        keyspace: the name of the mail keyspace.

    Every method may raise `CannotReach`.
    """

    tables: AsyncTables
    keyspace: str

    async def remembered(self, queue: QueueName, server: ServerName) -> RememberedMembership | None:
        """What the last process of a server left; None: none did, or nothing that can be read."""
        seen = await self.tables.read(Read(DELIVERY_LIFE, (self.keyspace, queue, server), Level.SERIAL))
        if not seen:
            return None
        return _remembered(seen[0].row)

    async def change(
        self, queue: QueueName, server: ServerName, before: UUID | None, remembered: RememberedMembership
    ) -> bool:
        """Set a server's row while it equals the claim's row; None: while it is missing. False: it is another's."""
        key = (self.keyspace, queue, server)
        cells = _remembered_cells(remembered)
        write: Conditional = ChangeIf(DELIVERY_LIFE, key, {"claim": before}, cells)
        if before is None:
            write = PutIfAbsent(DELIVERY_LIFE, DELIVERY_LIFE.key_row(key) | cells)
        try:
            return (await self.tables.attempt(write)).applied
        except DoubtfulWrite:
            if await self.remembered(queue, server) == remembered:
                return True
            raise

    async def saved(self, queue: QueueName, server: ServerName, span: UUID) -> Sequence[SavedRow]:
        """All counters of a span.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: one of them is not as it was written.
        """
        seen = await self.tables.read(Read(DELIVERY_RATE, (self.keyspace, queue, server, span)))
        return [_saved(stored.row) for stored in seen]

    async def save(
        self, queue: QueueName, server: ServerName, span: UUID, rows: Sequence[SavedRow]
    ) -> list[MailmendError | None]:
        """Write some counters; for each, why it may not have been written."""
        return await self.tables.write_all([self._put((self.keyspace, queue, server, span), row) for row in rows])

    def _put(self, partition: tuple[Any, ...], one: SavedRow) -> Put:
        policy, key = one.name
        row = DELIVERY_RATE.key_row((*partition, policy, json.dumps(key)))
        cells = {"state": one.rate.encoded(), "seenmicros": one.seen}
        ttl = min(_KEPT_INTERVALS * (one.rate.rate.interval // SECOND + 1) + _KEPT_BESIDES, _TTL_MAX)
        return Put(DELIVERY_RATE, row | cells, at=one.stamp, ttl_seconds=ttl)


def _remembered_cells(remembered: RememberedMembership) -> dict[str, object]:
    changes = list[tuple[int | None, tuple[tuple[int, int], ...]]]()
    for at, share in remembered.changes:
        if at == LONG_AGO:
            changes.append((None, share.places))
        else:
            changes.append((at, share.places))
    return {
        "claim": remembered.claim,
        "span": remembered.span,
        "epoch": remembered.epoch,
        "changes": json.dumps(changes),
        "number": remembered.number,
        "stamp": remembered.stamp,
        "seenmicros": remembered.seen,
    }


def _remembered(row: Row) -> RememberedMembership:
    return RememberedMembership(
        claim=row["claim"],
        span=row["span"],
        epoch=row["epoch"],
        changes=_changes(row["changes"]),
        number=row["number"],
        stamp=row["stamp"],
        seen=row["seenmicros"],
    )


def _changes(text: str) -> ShareChanges:
    changes = list[tuple[int, LimitShare]]()
    for at, places in json.loads(text):
        share = LimitShare(tuple((number, count) for number, count in places))
        if at is None:
            changes.append((LONG_AGO, share))
        else:
            changes.append((at, share))
    return tuple(changes)


def _saved(row: Row) -> SavedRow:
    key = tuple(str(part) for part in json.loads(row["counter"]))
    return SavedRow((row["policy"], key), SavedRate.decoded(row["state"]), row["seenmicros"])
