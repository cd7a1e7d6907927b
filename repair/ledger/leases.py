"""One holder at a time: a lease is one conditional row that lives as long as its heartbeat.

Row repairs are safe by their stamp T even without a lease; counters and schema changes are safe by the lease alone, so
it is checked (`TakenLease.check`) before each statement. Each heartbeat rewrites all columns of the row with the time
to live (else the holder's name would expire), and a doubtful answer is settled by a SERIAL read, which finishes what
the conditional write left open. A killed holder's lease expires.
"""

import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from mailmend.model.catalog.ledger import REPAIR_LEASE
from mailmend.model.errors import DoubtfulWrite, LeaseHeld, LeaseLost, MailmendError
from mailmend.model.instants import instant_of
from mailmend.model.operations import Applied, ChangeIf, Level, PutIfAbsent, Read, RemoveIf
from mailmend.model.ports import Clock, Tables
from mailmend.model.table import Row
from mailmend.repair.clock import SKEW_SECONDS
from mailmend.repair.log_fields import with_log_fields

_LOG = logging.getLogger("mailmend.leases")

TTL_SECONDS = 60
"""How long a lease outlives its last heartbeat."""


def sure_seconds(ttl_seconds: float) -> float:
    """The least time, in seconds, that a lease still has just before its next heartbeat, by `TakenLease.check`."""
    return ttl_seconds * (1 - 1 / _BEATS_PER_TTL) - EXPIRY_SLACK.total_seconds()


_BEATS_PER_TTL = 4

EXPIRY_SLACK = timedelta(seconds=1 + SKEW_SECONDS)
"""Servers expire by whole seconds and their own clocks, so we stop relying on a lease this much earlier."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease that is held, as in its row.

    Attributes:
        token: unique for this holding; drawn at each acquisition.
        owner: the holder, for people: host, process, command.
        lives_until: when it ends unless renewed, by the monotonic clock of the process that holds it, in seconds; for
            every other process it has ended. The wall clock may be set back, `expires_at` is for people.
    """

    name: str
    token: UUID
    owner: str
    purpose: str
    acquired_at: datetime
    expires_at: datetime
    lives_until: float = field(default=-math.inf, compare=False, repr=False)


@dataclass(slots=True)
class TakenLease:
    """A lease that we hold: the heartbeat keeps it; call `check` before each statement that relies on it."""

    lease: Lease
    clock: Clock
    lost: MailmendError | None = None

    def check(self, seconds: float = 0.0) -> None:
        """Check that the lease is ours and will be for `seconds`.

        Raises:
            LeaseLost: it is not, or the cluster cannot tell.
        """
        if self.lost is not None:
            raise LeaseLost(f"the lease {self.lease.name!r} was lost: {self.lost.what}", mend=_MEND_LOST) from self.lost
        left = self.lease.lives_until - self.clock.monotonic() - EXPIRY_SLACK.total_seconds()
        if left < seconds:
            raise LeaseLost(
                f"the lease {self.lease.name!r} has {left:.1f} s left, {seconds:g} s are needed",
                mend=_MEND_LOST,
            )


_MEND_LOST = "What was done so far is in the ledger; begin again with the same command."


@dataclass(frozen=True, slots=True)
class Leases:
    """The leases of the ledger keyspace.

    Args:
        tables: the ledger keyspace.
        owner: this process, for people.
        ttl_seconds: how long a lease outlives its last heartbeat.
    """

    tables: Tables
    clock: Clock
    owner: str
    ttl_seconds: int = TTL_SECONDS

    def acquire(self, name: str, purpose: str) -> Lease:
        """Take the lease.

        Raises:
            LeaseHeld: another holds it; the message says who, since when and until when.
        """
        now = self.clock.micros()
        lease = Lease(
            name, self.clock.new_uuid(), self.owner, purpose, instant_of(now), self._expiry(now), self._lives_until()
        )
        answer = self._taken(PutIfAbsent(REPAIR_LEASE, _row_of(lease), ttl_seconds=self.ttl_seconds), lease)
        if not answer.applied:
            raise _held(name, answer.current)
        _LOG.info("lease taken", extra={"lease": name, "purpose": purpose})
        return lease

    def renew(self, lease: Lease) -> Lease:
        """Renew the lease: all columns are rewritten with the TTL, which counts from before the write was sent.

        Raises:
            LeaseLost: another process holds it now, or no process.
        """
        renewed = replace(lease, expires_at=self._expiry(self.clock.micros()), lives_until=self._lives_until())
        cells = dict(_row_of(renewed))
        del cells["name"]
        expected = {"claim": lease.token}
        write = ChangeIf(REPAIR_LEASE, (lease.name,), expected, assign=cells, ttl_seconds=self.ttl_seconds)
        try:
            if self.tables.attempt(write).applied:
                return renewed
        except DoubtfulWrite:
            pass  # the row is read below
        standing = self.holder(lease.name)
        if standing is None or standing.token != lease.token:
            raise _lost(lease, standing)
        lives_until = lease.lives_until
        if standing.expires_at == renewed.expires_at:  # the write has arrived
            lives_until = renewed.lives_until
        return replace(standing, lives_until=lives_until)

    def release(self, lease: Lease) -> None:
        """Release the lease; where it is no longer ours or the cluster does not answer, its row expires."""
        try:
            self.tables.attempt(RemoveIf(REPAIR_LEASE, (lease.name,), {"claim": lease.token}))
            _LOG.info("lease released", extra={"lease": lease.name})
        except MailmendError as error:
            _LOG.warning("lease left to expire", extra={"lease": lease.name, "error": error.what})

    def force_release(self, name: str, reason: str) -> Lease | None:
        """End a lease by force, on a person's order; its holder notices at the next heartbeat.

        Returns:
            The ended lease, with the reason after its purpose, for the log; None where there was none.
        """
        held = self.holder(name)
        if held is None:
            return None
        answer = self.tables.attempt(RemoveIf(REPAIR_LEASE, (name,), {"claim": held.token}))
        if not answer.applied:
            return None
        return replace(held, purpose=f"{held.purpose} (ended by {self.owner}: {reason})")

    def holder(self, name: str) -> Lease | None:
        """The current lease, by a SERIAL read; None where the lease is free."""
        seen = self.tables.read(Read(REPAIR_LEASE, (name,), Level.SERIAL))
        if not seen:
            return None
        return _lease_of(seen[0].row)

    def standing(self, names: Sequence[str]) -> dict[str, Lease]:
        """The leases of these names that are held, by name; not read at SERIAL, so for display only."""
        leases = {}
        for name in names:
            for seen in self.tables.read(Read(REPAIR_LEASE, (name,))):
                if seen.row.get("claim"):
                    leases[seen.row["name"]] = _lease_of(seen.row)
        return leases

    @contextmanager
    def held(self, name: str, purpose: str, *, beating: bool = True) -> Iterator[TakenLease]:
        """The lease while the body runs, kept by a heartbeat thread.

        Raises:
            LeaseHeld: another holds it.
        """
        held = TakenLease(self.acquire(name, purpose), self.clock)
        stopped = threading.Event()
        thread = threading.Thread(
            target=with_log_fields(self._beat), args=(held, stopped.wait), name=f"lease {name}", daemon=True
        )
        if beating:
            thread.start()
        try:
            yield held
        finally:
            stopped.set()
            if beating:
                thread.join()
            self.release(held.lease)

    def _beat(self, held: TakenLease, wait: Callable[[float], bool]) -> None:
        """Renew until stopped or lost; tries again while the cluster is unreachable and the lease may live."""
        while not wait(self.ttl_seconds / _BEATS_PER_TTL):
            if not beat_once(self, held):
                return

    def _taken(self, write: PutIfAbsent, wanted: Lease) -> Applied:
        """The write's answer; where it is doubtful, a SERIAL read decides."""
        try:
            return self.tables.attempt(write)
        except DoubtfulWrite:
            standing = self.holder(wanted.name)
            if standing is None:
                return Applied(applied=False)
            return Applied(standing.token == wanted.token, _row_of(standing))

    def _expiry(self, now: int) -> datetime:
        return instant_of(now) + timedelta(seconds=self.ttl_seconds)

    def _lives_until(self) -> float:
        return self.clock.monotonic() + self.ttl_seconds


def beat_once(leases: Leases, held: TakenLease) -> bool:
    """One heartbeat; False when the lease is lost for good."""
    try:
        held.lease = leases.renew(held.lease)
    except LeaseLost as lost:
        held.lost = lost
    except MailmendError as error:
        if held.lease.lives_until <= leases.clock.monotonic():
            held.lost = error
        _LOG.info("lease not renewed just now", extra={"lease": held.lease.name, "error": error.what})
    if held.lost:
        _LOG.warning("lease lost", extra={"lease": held.lease.name, "error": held.lost.what})
    return held.lost is None


def _held(name: str, row: Row | None) -> LeaseHeld:
    if not row or row.get("claim") is None:
        return LeaseHeld(f"the lease {name!r} could not be taken just now", mend="Begin again in a moment.")
    lease = _lease_of(row)
    return LeaseHeld(
        f"the lease {name!r} is held by {lease.owner} for {lease.purpose}, since {lease.acquired_at:%Y-%m-%d %H:%M:%S} "
        f"until {lease.expires_at:%Y-%m-%d %H:%M:%S} UTC unless renewed",
        mend="Wait until it ends; where its holder was killed, it frees itself at that time.",
    )


def _lost(lease: Lease, standing: Lease | None) -> LeaseLost:
    owner = "nobody"
    if standing is not None:
        owner = standing.owner
    return LeaseLost(f"the lease {lease.name!r} is held by {owner} now", mend=_MEND_LOST)


def _row_of(lease: Lease) -> dict[str, object]:
    return {
        "name": lease.name,
        "claim": lease.token,
        "owner": lease.owner,
        "purpose": lease.purpose,
        "acquiredat": lease.acquired_at,
        "expiresat": lease.expires_at,
    }


def _lease_of(row: Row) -> Lease:
    return Lease(row["name"], row["claim"], row["owner"], row["purpose"], row["acquiredat"], row["expiresat"])
