"""The servers that deliver one queue, and the order in which they take up each other's coming and going.

Each server has a membership, which lives as long as its heartbeat, and all servers have one list of
members: who shares the limits. Every list has a number, its epoch. A server adopts a list once what
it is delivering fits in its share there; until all servers of the list before have adopted it, or
have lost their memberships, each has the least of its shares in both. Only then is there a next
list. So at every instant the shares together are at most the limit, whichever server is late or
dead.
Source: docs/adr/0043.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import NewType
from uuid import UUID

from mailmend.delivery.policy.shares import NO_SHARE, LimitShare, ShareChanges

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
        process: the same, for those on its host who would know whether it has ended; empty: that is unknown.
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
        span: under which the rows of its counters are; another one, where the process before could not be followed.
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
        since: the members in the order of their places; each with the epoch of the first list since which
            it has been a member without a gap.
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
