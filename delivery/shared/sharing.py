"""A server's part of the limits that all servers of a queue share: its membership, and the lists of members.

It can where both are of one boot of one kernel and of one space of process ids: what the kernel
does not know there has ended, and with it its connections. A number that another process has since,
a user's processes that others may not see, one whose parent has not waited for it yet, another
host, another container: then that is unknown.

There is no leader: each server keeps its own membership, reads the list of members and the
memberships, adopts what it can, and proposes the next list where a server came or went. A server
that could not keep its membership begins nothing more under shared limits well before others may
think that it is dead, and breaks off what is under way there just before they do. It goes by its
own clock that never goes back; `DRIFT` is how much slower than others' that may be.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

from mailmend.delivery.ledger.servers import MEMBERSHIP_SECONDS, LedgerRates, LedgerServers
from mailmend.delivery.policy.engine import PickupEngine
from mailmend.delivery.policy.shares import (
    NO_SHARE,
    NOTHING_ADOPTED,
    Members,
    Membership,
    MembershipState,
    ServerName,
    ShareState,
    first_members,
)
from mailmend.delivery.policy.sub_queues import ActiveMail
from mailmend.delivery.shared.remembering import RememberedRates
from mailmend.mailqueue.concurrency import paused
from mailmend.model.errors import MailmendError, ServerNameTaken
from mailmend.model.ids import QueueName
from mailmend.model.instants import instant_of, nanos_in, nanos_of
from mailmend.model.ports import Clock
from mailmend.repair.ledger.leases import EXPIRY_SLACK

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_SPACE: Final = Path("/proc/self/ns/pid")
"""Its inode is one space's at a time: where it is another's by now, all processes of the first have ended."""


def own_process() -> str:
    """What this process is called on this host; empty where the system does not tell."""
    try:
        return f"{_BOOT.read_text('ascii').strip()} {_SPACE.stat().st_ino} {os.getpid()}"
    except (OSError, UnicodeError):
        return ""


def has_ended(process: str) -> bool:
    """Whether a process, as it called itself, is surely no more."""
    place, _, number = process.rpartition(" ")
    if not place or place != own_process().rpartition(" ")[0] or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)  # sends nothing
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


_LOG: Final = logging.getLogger("mailmend.delivery")

EVERY: Final = timedelta(seconds=5)
"""How long after a heartbeat the next one is due."""

HURRY: Final = timedelta(seconds=1)
"""The same, while servers come or go."""

DRIFT: Final = timedelta(seconds=1)
"""How much less than other clocks ours may go on in a membership's time: more than 1 in 100 is no clock's fault."""

BEGINS_FOR: Final = timedelta(seconds=MEMBERSHIP_SECONDS / 2)
"""For how long after a heartbeat anything begins under shared limits."""

ENDS_AFTER: Final = timedelta(seconds=MEMBERSHIP_SECONDS) - EXPIRY_SLACK - DRIFT
"""How long after a heartbeat what is still under way there is broken off."""

ABSENT_FOR: Final = EVERY
"""How long a membership is missed before its server leaves the list: it may just be coming again."""

_NAMES_MAX: Final = 1000


@dataclass(slots=True, kw_only=True, eq=False)
class SharedLimits:
    """Has the engine of one server keep to its share of the limits.

    Attributes:
        name: of the server; another number follows it where the name is another live server's,
            unless it `insists`.
        owner: this process, for people.
        process: the same, for `has_ended`, which says of another one whether it is surely no more.
        wake: called when others may be picked than before.
        break_off: called when what is under way under shared limits must end at once.
        rates: keeps them over a restart.
        membership: None until there is one, and after it was lost.
        members: the last list that was read.
        alone: no other server is there.
        renewed_at: when the last heartbeat that succeeded was sent, in nanoseconds of the engine's
            clock.
    """

    queue: QueueName
    ledger: LedgerServers
    engine: PickupEngine
    clock: Clock
    name: ServerName
    insists: bool
    owner: str
    wake: Callable[[], None]
    break_off: Callable[[], None]
    process: str = field(default_factory=own_process)
    has_ended: Callable[[str], bool] = has_ended
    rates: RememberedRates = field(init=False)
    membership: Membership | None = None
    members: Members | None = None
    renewed_at: int | None = None
    alone: bool = True
    _last: ServerName | None = None
    _claim: UUID | None = None
    _known: int | None = None
    _absent_since: dict[ServerName, int] = field(default_factory=dict)
    _refused_since: int | None = None
    _settled: bool = False
    _failing: bool = False

    def __post_init__(self) -> None:
        self.rates = RememberedRates(
            queue=self.queue,
            ledger=LedgerRates(self.ledger.tables, self.ledger.keyspace),
            engine=self.engine,
            clock=self.clock,
            nanos=self._nanos,
            wake=self.wake,
        )

    async def keep_current(self, stop: asyncio.Event) -> None:
        """Keep the membership and follow the list until a stop signal; where the ledger fails, try again.

        Raises:
            ServerNameTaken: another live server has the name.
        """
        beside = [asyncio.ensure_future(work) for work in (self._watch(stop), self.rates.keep_current(stop))]
        try:
            while not stop.is_set():
                try:
                    while await self.turn():
                        pass
                except ServerNameTaken:
                    raise
                except Exception as error:  # noqa: BLE001 - what has no limits goes on whatever the ledger holds
                    self._say_once(error)
                else:
                    self._failing = False
                rest = HURRY
                if self._settled:
                    rest = EVERY
                await paused(self.clock, rest, stop)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    async def turn(self) -> bool:
        """One heartbeat, and one look at the list; whether another look at once will find more.

        Raises:
            ServerNameTaken: another live server has the name.
            CannotReach: the ledger does not answer; the membership lives on for its time.
        """
        if self.membership is None:
            is_member = await self._take()
        else:
            is_member = await self._renew(self.membership)
        if not is_member:
            return False
        members = await self.ledger.members(self.queue)
        memberships = await self.ledger.memberships(self.queue)
        membership = self.membership
        if membership is None or (found := memberships.get(membership.name)) is None or found.claim != membership.claim:
            self.lose()
            return True
        if members is None:
            self._known = 0
            return await self.ledger.change_members(self.queue, first_members(memberships))
        self._known = await self.rates.take_up(membership, members, self._known)
        adopts = self._follow(members, memberships, membership)
        await self.rates.note(membership, members)
        if adopts:
            return await self._renew(replace(membership, adopted=members.epoch))
        following = members.next(memberships, self._absent(members, memberships))
        return following is not None and await self.ledger.change_members(self.queue, following)

    async def end(self) -> None:
        """Say that nothing is under way here any more; where the ledger does not answer, it expires."""
        if self.membership is None:
            return
        now = self._nanos()
        membership = self.membership
        self.engine.hold_until(now, now)
        await self.rates.end()
        try:
            await self.ledger.end(self.queue, replace(membership, seen_at=instant_of(self.clock.micros())))
        except MailmendError as error:
            _LOG.warning("the membership of this server is left to expire", extra={"error": error.what})
        self.membership = None

    def lose(self) -> None:
        """Another server has the membership, or none: nothing goes on that counts on it."""
        now = self._nanos()
        event = "the membership of this server was lost: it begins nothing under shared limits"
        _LOG.warning(event, extra=self._shown)
        self.engine.hold_until(now, now)
        self.break_off()
        self.membership = None
        self._settled = False

    def misplaced(self) -> list[ActiveMail]:
        """Mails that wait here, and that other servers of the queue may send."""
        if self.alone:
            return []
        return list(self.engine.elsewhere())

    @property
    def state(self) -> ShareState:
        if self.membership is None and self.members is None:
            return ShareState.WAITS
        if self.membership is None or self._nanos() >= (self.renewed_at or 0) + nanos_in(BEGINS_FOR):
            return ShareState.CUT_OFF
        if self._settled:
            return ShareState.HAS_SHARE
        return ShareState.WAITS

    def check(self) -> None:
        """Break off what is under way where the server may be taken for dead at any moment."""
        if self.renewed_at is not None and self._nanos() >= self.renewed_at + nanos_in(ENDS_AFTER):
            self.break_off()

    def _follow(self, members: Members, memberships: Mapping[ServerName, Membership], membership: Membership) -> bool:
        """Have the share that a list gives now; whether it can be adopted, and was not yet."""
        now = self._nanos()
        since = members.since.get(membership.name)
        is_first = members.epoch == 1 and self._known == 0
        if not is_first and (self._known is None or since is None or since > self._known):
            self.engine.have(NO_SHARE, now)
        complete = members.is_complete(memberships)
        self.engine.have(members.share(membership.name, complete=complete), now, spent=not is_first)
        self.engine.hold_until((self.renewed_at or 0) + nanos_in(BEGINS_FOR), now)
        if members != self.members:
            shown = {"epoch": members.epoch, "servers": len(members.since), **self._shown}
            _LOG.info("limits are shared among other servers than before", extra=shown)
        self.members = members
        self._known = members.epoch
        others = [other for other in memberships.values() if other.name != membership.name]
        self.alone = all(other.state is MembershipState.ENDED for other in others)
        self._settled = complete and since is not None and membership.adopted >= members.epoch
        self.wake()
        return membership.adopted < members.epoch and self.engine.fits(members.place(membership.name))

    def _absent(self, members: Members, memberships: Mapping[ServerName, Membership]) -> frozenset[ServerName]:
        """Members whose memberships have been missed for long enough."""
        now = self._nanos()
        absent_since = dict[ServerName, int]()
        for name in members.since:
            if name not in memberships:
                absent_since[name] = self._absent_since.get(name, now)
        self._absent_since = absent_since
        return frozenset(name for name, at in self._absent_since.items() if now - at >= nanos_in(ABSENT_FOR))

    async def _take(self) -> bool:
        """Take a membership; False: none yet.

        Raises:
            ServerNameTaken: its name is another's, who has shown a sign of life for longer than a
                dead one would.
        """
        self._claim = self._claim or self.clock.random_uuid()
        for name in self._names():
            sent = self._nanos()
            now = instant_of(self.clock.micros())
            wanted = Membership(
                name=name,
                claim=self._claim,
                owner=self.owner,
                process=self.process,
                adopted=NOTHING_ADOPTED,
                since=now,
                seen_at=now,
            )
            found = await self.ledger.take(self.queue, wanted, self.has_ended)
            if found is None:
                return False
            if found.claim == wanted.claim:
                self._refused_since = None
                self._last = name
                self._claim = None
                self.membership = found
                if found is not wanted:  # it was taken before, by an attempt of ours whose answer was lost
                    return await self._renew(found)
                self.renewed_at = sent
                return True
            if self.insists:
                self._refuse(found, sent)
        return False

    def _names(self) -> Iterator[ServerName]:
        yield self._last or self.name
        if not self.insists:
            yield self.name
            yield from (ServerName(f"{self.name}-{number}") for number in range(2, _NAMES_MAX))

    def _refuse(self, found: Membership, now: int) -> None:
        if self._refused_since is None:
            self._refused_since = now
            _LOG.info("the name of this server is another's", extra={"server": found.name, "owner": found.owner})
        if now - self._refused_since > nanos_in(timedelta(seconds=MEMBERSHIP_SECONDS) + EXPIRY_SLACK):
            raise ServerNameTaken(
                f"the server {found.name!r} of {self.queue} is alive: {found.owner}",
                mend="Give each server of a queue a name of its own, with --server.",
            )

    async def _renew(self, membership: Membership) -> bool:
        """One heartbeat; where another server has the membership, or none, it is lost."""
        sent = self._nanos()
        renewed = replace(membership, seen_at=instant_of(self.clock.micros()))
        if await self.ledger.renew(self.queue, renewed):
            self.membership = renewed
            self.renewed_at = sent
            return True
        self.lose()
        return False

    async def _watch(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self.check()
            await paused(self.clock, HURRY, stop)

    def _say_once(self, error: Exception) -> None:
        if not self._failing:
            trace: Exception | None = error
            if isinstance(error, MailmendError):
                trace = None
            _LOG.warning("the membership of this server cannot be kept", extra={"error": str(error)}, exc_info=trace)
        self._failing = True

    def _nanos(self) -> int:
        return nanos_of(self.clock.monotonic())

    @property
    def servers(self) -> int:
        """How many share the limits, by the list that was read last."""
        if self.members is None:
            return 0
        return len(self.members.since)

    @property
    def _shown(self) -> dict[str, object]:
        return {"server": self.name, "queue": self.queue}
