"""Which mails of a queue a consumer holds, and which wait in the backlog of their sub-queue. Pure.

A consumer holds a bounded number of mails of each sub-queue; what comes beyond waits in its
backlog, in a table. So a sub-queue that does not move takes neither the broker's prefetch nor the
consumer's memory from others. No rule here asks why a sub-queue does not move: its mails in hand
wait for their policies, and when they leave, the next ones come.

Tenants have equal shares of the room, and the sub-queues of a tenant equal shares of the tenant's.
A sub-queue that has
no mail in hand may have one beyond its share: the first mail of each shows whether the sub-queue
moves.
Source: docs/adr/0081.
"""

import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Self, TypeVar

from mailmend.model.errors import BadPayload

T = TypeVar("T")

KEPT_FREE: Final = 4
"""A quarter of the room is for tenants that come later, and a quarter of a tenant's share for its
other sub-queues."""

FIRST_MAILS: Final = 10
"""How many times the room the mails in hand may take together with first mails that are beyond
their share."""


@dataclass(frozen=True, slots=True, order=True)
class SubQueueName:
    """What the mails of a backlog have in common.

    Attributes:
        tenant: "" for mails without one.
        rest: of the tenant's mails, which; such as the domain of their recipients.
    """

    tenant: str
    rest: str

    @property
    def text(self) -> str:
        """As a table has it."""
        return json.dumps([self.tenant, self.rest], ensure_ascii=False)

    @classmethod
    def of(cls, text: str) -> Self:
        """The name that a table has.

        Raises:
            BadPayload: the text is no name.
        """
        parts = None
        with suppress(ValueError):
            parts = json.loads(text)
        match parts:
            case [str(tenant), str(rest)]:
                return cls(tenant, rest)
            case _:
                raise BadPayload(f"{text[:100]!r} is no name of a sub-queue")


@dataclass(slots=True)
class Windows:
    """The mails that one consumer has in hand, by sub-queue.

    Attributes:
        room: for how many mails there is room.
    """

    room: int
    _in_hand: Counter[SubQueueName] = field(default_factory=Counter)
    _by_tenant: Counter[str] = field(default_factory=Counter)
    _sub_queues: Counter[str] = field(default_factory=Counter)
    _backlogs: dict[SubQueueName, None] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """How many mails are in hand."""
        return self._in_hand.total()

    def in_hand(self, name: SubQueueName) -> int:
        """How many mails of the sub-queue are in hand."""
        return self._in_hand[name]

    def has_backlog(self, name: SubQueueName) -> bool:
        """Whether mails of the sub-queue wait in its backlog."""
        return name in self._backlogs

    def admits(self, name: SubQueueName) -> bool:
        """Whether a mail of the broker is taken in hand; the mails of a backlog come first."""
        return not self.has_backlog(name) and self.space(name) > 0

    def space(self, name: SubQueueName) -> int:
        """How many more mails of the sub-queue may be in hand."""
        sub_queue_share, tenant_share = self._shares(name)
        of_sub_queue = sub_queue_share - self._in_hand[name]
        of_tenant = tenant_share - self._by_tenant[name.tenant]
        left = min(of_sub_queue, of_tenant)
        if left <= 0 and not self._in_hand[name]:
            return int(self._takes_first(name.tenant))
        return max(0, left)

    def wanted(self, name: SubQueueName) -> int:
        """How many mails to fetch from the backlog; 0 while more than half of its share is in hand."""
        sub_queue_share, _ = self._shares(name)
        if not self.has_backlog(name) or 2 * self._in_hand[name] > sub_queue_share:
            return 0
        return self.space(name)

    def take(self, name: SubQueueName) -> None:
        """Count one more mail in hand."""
        if not self._in_hand[name]:
            self._sub_queues[name.tenant] += 1
        self._in_hand[name] += 1
        self._by_tenant[name.tenant] += 1

    def leave(self, name: SubQueueName) -> None:
        """Count one mail less in hand."""
        _count_down(self._in_hand, name)
        _count_down(self._by_tenant, name.tenant)
        if not self._in_hand[name]:
            _count_down(self._sub_queues, name.tenant)

    def begin_backlog(self, name: SubQueueName) -> None:
        """Note that mails of the sub-queue wait in its backlog."""
        self._backlogs.setdefault(name)

    def end_backlog(self, name: SubQueueName) -> None:
        """Note that its backlog is empty."""
        self._backlogs.pop(name, None)

    def next_backlog(self) -> SubQueueName | None:
        """The sub-queue whose backlog was asked longest ago; None without a backlog."""
        name = next(iter(self._backlogs), None)
        if name is not None:
            del self._backlogs[name]
            self._backlogs[name] = None
        return name

    @property
    def backlogs(self) -> tuple[SubQueueName, ...]:
        """The sub-queues with a backlog."""
        return tuple(self._backlogs)

    def _shares(self, name: SubQueueName) -> tuple[int, int]:
        """The shares of the sub-queue and of its tenant, as if both had a mail in hand."""
        tenants = len(self._by_tenant) + (name.tenant not in self._by_tenant)
        sub_queues = self._sub_queues[name.tenant] + (not self._in_hand[name])
        tenant_share = _share(self.room, tenants)
        return _share(tenant_share, sub_queues), tenant_share

    def _takes_first(self, tenant: str) -> bool:
        """Whether one more sub-queue of the tenant may have its first mail in hand."""
        tenants = len(self._by_tenant) + (tenant not in self._by_tenant)
        most = _share(FIRST_MAILS * self.room, tenants)
        return self._by_tenant[tenant] < most


def _share(room: int, among: int) -> int:
    return max(1, (room - room // KEPT_FREE) // among)


def _count_down(counts: Counter[T], name: T) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
