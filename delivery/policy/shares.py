"""The servers that deliver one queue, and the parts that they have of its limits: together never more than the limit.

A server has a place among the servers: each has an equal part, and what is left over goes one each
to some of them, by turns that differ from counter to counter. So a limit below the number of
servers belongs to some of them only. While the servers change, a server has the least of what its
places before and after give it.

Each server has a membership, which lives as long as its heartbeat, and all servers have one list of
members: who shares the limits. Every list has a number, its epoch. A server adopts a list once what
it is delivering fits in its share there; until all servers of the list before have adopted it, or
have lost their memberships, each has the least of its shares in both. Only then is there a next
list. So at every instant the shares together are at most the limit, whichever server is late or
dead.

Source: docs/adr/0043.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from hashlib import blake2b
from typing import Final, NewType, Self
from uuid import UUID

from mailmend.delivery.policy.policy import CounterKey, CounterPolicy, Threshold
from mailmend.delivery.policy.rates import LONG_AGO, DeliveryRate, RateAlgorithm
from mailmend.delivery.policy.remembered import (
    KEPT_FROM,
    CounterName,
    KeptRates,
    SavedRate,
    policy_names,
)
from mailmend.delivery.policy.sub_queues import UNKNOWN, CounterEntry

_CHANGES_MAX: Final = 32
"""Of changes that are remembered; before them a server counts as one without a share."""


@dataclass(frozen=True, slots=True)
class LimitShare:
    """A server's part of each limit.

    Attributes:
        places: its number from 0, and how many servers there are; of several the least part counts.
            None is no part.
    """

    places: tuple[tuple[int, int], ...] = ()

    def of(self, limit: int, turn: int) -> int:
        """The part of a limit; `turn` moves what is left over from server to server."""
        parts = (limit // count + ((number - turn) % count < limit % count) for number, count in self.places)
        return min(parts, default=0)

    @property
    def servers(self) -> int:
        """Among how many it is shared at most; 0: it has no part."""
        return max((count for _, count in self.places), default=0)

    def least(self, other: Self) -> Self:
        """The least of both."""
        if not self.places or not other.places:
            return type(self)()
        return type(self)(tuple(dict.fromkeys((*self.places, *other.places))))


NO_SHARE: Final = LimitShare()
WHOLE: Final = LimitShare(((0, 1),))


def turn_of(policy: CounterPolicy, key: CounterKey) -> int:
    """Whose turn it is to have what is left over of a counter's limits: the same in every process."""
    text = "\0".join((*(field.value for field in policy.fields), *key))
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogateescape"), digest_size=4).digest(), "big")


def shared(threshold: Threshold, share: LimitShare, turn: int) -> Threshold:
    """A server's own limits. Where it has no part of one of them, none begins there.

    Connections of each server are as many times further apart as there are servers.
    """
    if not threshold.is_shared:
        return threshold
    if not share.places:
        return Threshold(0, stop=threshold.stop)
    concurrency = threshold.concurrency
    if concurrency is not None:
        concurrency = share.of(concurrency, turn)
    rate = threshold.rate
    if rate:
        count = share.of(rate.count, turn)
        if not count:
            return Threshold(0, stop=threshold.stop)
        rate = DeliveryRate(count, rate.interval)
    apart = None
    if threshold.connect_interval:
        apart = threshold.connect_interval * share.servers
    return Threshold(concurrency, rate, apart, threshold.stop)


ShareChanges = tuple[tuple[int, LimitShare], ...]
"""Shares, oldest first, each from an instant on."""


class ServerShare:
    """The share of one server, over time, and whether it may begin anything that counts against a shared limit.

    Attributes:
        gate: counts what counts against any shared limit; lets none begin while it is closed.
        kept: the rates that are kept over a restart; None: none are.
        number: of the last change of the share.
    """

    def __init__(self) -> None:
        self.gate = CounterEntry((-2, ()), closed_until=UNKNOWN)
        self._had: list[tuple[int, LimitShare]] = [(LONG_AGO, NO_SHARE)]
        self._holds_until = LONG_AGO
        self._names: tuple[str, ...] = ()
        self.kept: KeptRates | None = None
        self.number = 0

    @property
    def now(self) -> LimitShare:
        return self._had[-1][1]

    @property
    def changes(self) -> ShareChanges:
        """The share over time, oldest first: from when on it was which; the first was it before that."""
        return tuple(self._had)

    def know(self, policies: Sequence[CounterPolicy]) -> None:
        """Let these be the policies whose numbers counters name."""
        self._names = policy_names(policies)

    def resume(self, changes: ShareChanges, number: int, saved: Mapping[CounterName, SavedRate], now: int) -> None:
        """Go on where an earlier process of this server was: with its share, and with what it left of rates.

        All this by the clock of this process, which must have counted nothing yet.
        """
        self._had = list(changes)
        self.number = number
        self.kept = KeptRates(saved, now)

    def change(self, share: LimitShare, now: int, *, spent: bool) -> None:
        """Have another share from now on; not `spent`: it is as if it had always had this one."""
        kept = [(LONG_AGO, share)]
        if spent:
            kept = [*self._had, (now, share)][-_CHANGES_MAX:]
        if kept[0][0] != LONG_AGO:
            kept = [(LONG_AGO, NO_SHARE), *kept]
        self._had = kept
        self.number += 1

    def hold_until(self, at: int, now: int) -> None:
        """Open the gate until then, or close it where that is past."""
        self._holds_until = at
        self.gate.closed_until = LONG_AGO
        self.check(now)

    def check(self, now: int) -> None:
        """Close the gate where its time is over."""
        if now >= self._holds_until:
            self.gate.closed_until = UNKNOWN

    def limit(
        self,
        entry: CounterEntry,
        policy: CounterPolicy,
        algorithm: RateAlgorithm,
        now: int,
        *,
        gain_spent: bool = False,
    ) -> None:
        """Set the limits of a counter by the share of now; `gain_spent`: what a rate gains counts as spent now."""
        self._set(entry, policy, algorithm, [(now, self.now)], spent=gain_spent)

    def limit_new(self, entry: CounterEntry, policy: CounterPolicy, algorithm: RateAlgorithm) -> None:
        """Set the limits of a counter as if it had been there all the time: gains were spent when they came.

        So was what an earlier process may have spent. Of a rate that it kept, its row says how
        much, and knows of all changes of the share up to its number.
        """
        saved = None
        resumed_at = None
        if self.kept:
            saved = self.kept.saved.get(self._name(entry))
            resumed_at = self.kept.resumed_at
        known = 0
        if saved:
            known = len(self._had) - max(0, self.number - saved.number)
        self._set(entry, policy, algorithm, self._had[:1], spent=False)
        self._set(entry, policy, algorithm, self._had[1 : max(1, known)], spent=True)
        is_known = saved is not None and known > 0 and saved.algorithm is algorithm
        if saved and is_known and resumed_at is not None and entry.threshold.rate:
            entry.take_up(saved.state(resumed_at), algorithm, resumed_at)
        self._set(entry, policy, algorithm, self._had[max(1, known) :], spent=True)
        if entry.shared and resumed_at is not None:
            for number, state in enumerate(entry.rates):
                if number > 0 or entry.memory is None or (saved and not is_known):
                    state.spend(state.rate.count, max(resumed_at, self._had[-1][0]))

    def _set(
        self,
        entry: CounterEntry,
        policy: CounterPolicy,
        algorithm: RateAlgorithm,
        changes: list[tuple[int, LimitShare]],
        *,
        spent: bool,
    ) -> None:
        key = entry.place[1]
        threshold = policy.threshold(key) or Threshold()
        turn = 0
        if threshold.is_shared:
            turn = turn_of(policy, key)
        for at, share in changes:
            entry.limit(shared(threshold, share, turn), algorithm, at, gain_spent=spent)
        entry.shared = threshold.is_shared
        self._keep(entry)
        entry.elsewhere = threshold.concurrency != 0 and entry.threshold.concurrency == 0

    def _keep(self, entry: CounterEntry) -> None:
        """Keep its rate over a restart, or no longer."""
        rate = entry.threshold.rate
        before = entry.memory
        is_kept = self.kept is not None and entry.shared and rate is not None and rate.interval >= KEPT_FROM
        entry.memory = None
        if self.kept and is_kept:
            entry.memory = self.kept.memory(before, self._name(entry), entry.place, entry.rates[0])
        elif before is not None:
            before.forget()

    def _name(self, entry: CounterEntry) -> CounterName:
        number, key = entry.place
        return self._names[number], key

    def fits(self, entry: CounterEntry, policy: CounterPolicy, share: LimitShare) -> bool:
        """Whether what is being delivered under a counter fits in a share of its limits."""
        threshold = policy.threshold(entry.place[1])
        if threshold is None or not threshold.cluster or not threshold.concurrency:
            return True
        return entry.delivering <= share.of(threshold.concurrency, turn_of(policy, entry.place[1]))


ServerName = NewType("ServerName", str)
"""A server of a queue, the same over its restarts."""

NOTHING_ADOPTED = -1


class MembershipState(Enum):
    """What a member does."""

    SERVING = "serving"
    ENDED = "ended"


class ShareState(Enum):
    """The state of a server's share of limits; the value is its name in metrics."""

    HAS_SHARE = "shares"
    WAITS = "waits"
    CUT_OFF = "cut_off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """That a server is there, as in its row.

    Attributes:
        claim: drawn by the process that took it: only that one may renew it.
        owner: the process, for people.
        process: the same, for those on its host who would know whether it has ended; empty: that is
            unknown.
        adopted: the epoch of the last list of members that it has adopted.
        since: when it was taken.
        seen_at: the last heartbeat; both by the holder's clock, for people.
    """

    name: ServerName
    claim: UUID
    owner: str
    process: str = ""
    adopted: int = NOTHING_ADOPTED
    state: MembershipState = MembershipState.SERVING
    since: datetime
    seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedMembership:
    """What a server's next process needs to know before it goes on counting rates where this one was.

    Attributes:
        claim: of the membership of the process that wrote it: only that one changes it.
        span: under which the rows of its counters are; another one, where the process before could
            not be followed.
        epoch: of the last list of members that it went by.
        changes: of its share, in microseconds of the wall clock; `number` is the number of the
            last.
        stamp: below the stamps of all rows of this process, above the stamps of earlier processes.
        seen: the wall clock, which is not earlier for a process that follows.
    """

    claim: UUID
    span: UUID
    epoch: int
    changes: ShareChanges
    number: int
    stamp: int
    seen: int

    def goes_on(self, members: "Members", name: ServerName) -> bool:
        """Whether no other server had its share since, or could have had it."""
        since = members.since.get(name)
        return since is not None and since <= self.epoch <= members.epoch <= self.epoch + 1


@dataclass(frozen=True, slots=True)
class Members:
    """Who shares the limits of a queue.

    Attributes:
        epoch: 1 or more.
        since: the members in the order of their places; each with the epoch of the first list since
            which it has been a member without a gap.
        before: the members of the list before, in their order.
    """

    epoch: int
    since: Mapping[ServerName, int]
    before: tuple[ServerName, ...] = ()

    def is_complete(self, memberships: Mapping[ServerName, Membership]) -> bool:
        """Whether no server follows the list before any more; memberships were read after this list was there."""
        return all(_goes_by(memberships.get(name), self.epoch) for name in self.before)

    def share(self, name: ServerName, *, complete: bool) -> LimitShare:
        """The share of a server; `complete`: it has adopted this list itself, and no server follows another."""
        now = _share_among(tuple(self.since), name)
        is_new = self.since.get(name) == self.epoch
        if complete or (is_new and not self.before):
            return now
        before = NO_SHARE
        if not is_new:
            before = _share_among(self.before, name)
        return now.least(before)

    def place(self, name: ServerName) -> LimitShare:
        """What the server has once all have adopted this list."""
        return _share_among(tuple(self.since), name)

    def next(
        self, memberships: Mapping[ServerName, Membership], absent: Collection[ServerName] = ()
    ) -> "Members | None":
        """The list that is due: all with a membership, without servers that have been absent for long enough.

        None: no server came or went, or a server still follows the list before this one.
        """
        if not self.is_complete(memberships):
            return None
        stay = {name: since for name, since in self.since.items() if name in memberships or name not in absent}
        new = list[ServerName]()
        for name in sorted(memberships):
            if name not in stay and memberships[name].state is MembershipState.SERVING:
                new.append(name)
        if not new and len(stay) == len(self.since):
            return None
        epoch = self.epoch + 1
        return Members(epoch, {**stay, **dict.fromkeys(new, epoch)}, tuple(self.since))


def first_members(memberships: Collection[ServerName]) -> Members:
    return Members(1, dict.fromkeys(sorted(memberships), 1))


def _goes_by(membership: Membership | None, epoch: int) -> bool:
    return membership is None or membership.state is MembershipState.ENDED or membership.adopted >= epoch


def _share_among(names: tuple[ServerName, ...], name: ServerName) -> LimitShare:
    if name not in names:
        return NO_SHARE
    return LimitShare(((names.index(name), len(names)),))
