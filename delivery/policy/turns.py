"""Who has the next turn, by weights: the source addresses of a mail, and the tenants of all mails.

A mail may use few addresses, and each time others of them are free: all that are free are compared. Tenants may be
thousands, that come and go: each has its next turn due at a time that only turns move on, by less the more it weighs,
and the earliest is found without a look at the others (start-time fair queueing; Goyal, Vin, Cheng 1996). So of two
tenants that always have something, neither is ever ahead of the other by more than one turn of each, by weight.
Source: docs/design.md, "Pickup" (7).
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from math import lcm
from types import MappingProxyType
from typing import Final, Generic, TypeVar

WEIGHT_MAX: Final = 100
"""The weight of a tenant; the least is 1, which is also the default."""

NO_WEIGHTS: Final[Mapping[str, int]] = MappingProxyType({})

WHOLE_TURN: Final = lcm(*range(1, WEIGHT_MAX + 1))
"""How much later a tenant that weighs 1 has its next turn; each weight divides it, so nothing is ever rounded."""

CREDIT_MAX: Final = WHOLE_TURN
"""How much of the time that has passed without it a tenant may make up for when it is back.

A tenant leaves one place while its only sub-queue has its turn in another. Without this credit it
would lose there what the others gain meanwhile: a weight of 3 came to a weight of 2.
"""

_SWEPT_FROM: Final = 16

T = TypeVar("T", bound=Hashable)


class SourcePool:
    """Takes source addresses in turn, by weight; addresses of little weight come evenly among the others."""

    def __init__(self, sources: Iterable[str]) -> None:
        self._weights = Counter(sources)
        self._credit = Counter[str]()

    def choose(self, usable: Sequence[str]) -> str:
        chosen = self.next_of(usable)
        for name in usable:
            self._credit[name] += self._weights[name]
        self._credit[chosen] -= sum(self._weights[name] for name in usable)
        return chosen

    def next_of(self, usable: Sequence[str]) -> str:
        """The one that would be chosen."""
        return max(usable, key=lambda one: self._credit[one] + self._weights[one])


@dataclass(slots=True, eq=False)
class TenantTurn(Generic[T]):
    """What one tenant has in one place, in turn.

    Attributes:
        due_at: when the next turn is due, in the time of that place.
        is_queued: it is among those whose turn may begin.
        has_begun: its turn goes on.
    """

    tenant: str
    due_at: int
    things: OrderedDict[T, None] = field(default_factory=OrderedDict)
    is_queued: bool = False
    has_begun: bool = False


class TenantTurns(Generic[T]):
    """Tenants in turn, and what each of them has in turn: a turn costs the logarithm of how many tenants there are.

    A tenant whose turn has begun has no other one until that ends. Only what is spent moves time
    on: a turn that comes to nothing costs nothing, and a tenant that had more than others is behind
    them even after all were gone. A tenant that is back has the turns that it missed, and at most a
    whole turn's worth of them, however long it was away.
    """

    __slots__ = ("_due", "_now", "_numbers", "_sweep_from", "_tenants")

    def __init__(self) -> None:
        self._tenants: dict[str, TenantTurn[T]] = {}
        self._due: list[tuple[int, int, TenantTurn[T]]] = []
        self._now = 0
        self._numbers = count()
        self._sweep_from = _SWEPT_FROM

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Tenants, and how many things each has."""
        return ((tenant.tenant, len(tenant.things)) for tenant in self._tenants.values())

    def add(self, tenant: str, thing: T) -> None:
        """A tenant who comes anew is neither behind the others nor ahead of them."""
        found = self._tenants.get(tenant) or self._new(tenant)
        found.things[thing] = None
        if not found.is_queued and not found.has_begun:
            self._push(found)

    def discard(self, tenant: str, thing: T) -> None:
        del self._tenants[tenant].things[thing]

    def any_due(self) -> bool:
        """Whether a turn may begin."""
        while self._due:
            due_at, _, found = self._due[0]
            if not found.things:
                heappop(self._due)
                found.is_queued = False
                self._forget(found)
            elif due_at < found.due_at:
                heapreplace(self._due, self._numbered(found))
            else:
                return True
        return False

    def begin(self) -> TenantTurn[T] | None:
        """The turn of the tenant that has waited longest by weight; None where no other tenant has anything."""
        if not self.any_due():
            return None
        found = heappop(self._due)[2]
        found.is_queued = False
        found.has_begun = True
        return found

    def spend(self, tenant: str, spent: int, *, alone: bool) -> None:
        """Something was taken, in a turn that goes on or without one; alone: no other tenant wanted it."""
        found = self._tenants.get(tenant) or self._new(tenant)
        if found.due_at > self._now and (alone or found.has_begun):
            self._now = found.due_at
        found.due_at += spent

    def end(self, found: TenantTurn[T], spent: int = 0) -> None:
        """A turn has ended; where nothing was spent, the next one is due already."""
        found.has_begun = False
        if spent:
            self._now = max(self._now, found.due_at)
            found.due_at += spent
        if found.things:
            self._push(found)
        else:
            self._forget(found)

    def end_of(self, tenant: str) -> None:
        """A turn of this tenant has ended."""
        self.end(self._tenants[tenant])

    def clear(self) -> None:
        """No tenant has anything any more, and no turn goes on; a tenant that had more than others is remembered."""
        self._due.clear()
        for found in list(self._tenants.values()):
            found.things.clear()
            found.is_queued = found.has_begun = False
            self._forget(found)

    def _new(self, tenant: str) -> TenantTurn[T]:
        if len(self._tenants) >= self._sweep_from:
            self._sweep()
        found = self._tenants[tenant] = TenantTurn[T](tenant, self._now)
        return found

    def _push(self, found: TenantTurn[T]) -> None:
        found.due_at = max(found.due_at, self._now - CREDIT_MAX)
        found.is_queued = True
        heappush(self._due, self._numbered(found))

    def _numbered(self, found: TenantTurn[T]) -> tuple[int, int, TenantTurn[T]]:
        """Among tenants due at the same time, the one that has waited longest is first."""
        return found.due_at, next(self._numbers), found

    def _is_as_new(self, found: TenantTurn[T]) -> bool:
        if found.things or found.has_begun:
            return False
        return found.due_at == self._now or found.due_at <= self._now - CREDIT_MAX

    def _forget(self, found: TenantTurn[T]) -> None:
        if self._is_as_new(found):
            del self._tenants[found.tenant]

    def _sweep(self) -> None:
        """Forget all that would be the same if they came anew; the result is how many may come before the next time."""
        self._due = [turn for turn in self._due if not self._is_as_new(turn[2])]
        heapify(self._due)
        self._tenants = {name: tenant for name, tenant in self._tenants.items() if not self._is_as_new(tenant)}
        self._sweep_from = max(_SWEPT_FROM, 2 * len(self._tenants))
