"""What is kept of rates of a minute or more, so that a server that is started again goes on counting.

Nothing begins under such a rate that was not written down before: a counter's row has what began,
and how many more may begin before the next row, a fiftieth of the rate or one. What a crash leaves
in doubt is no more than that, and counts as spent. A counter without a row was not used. Rows hold
instants of the wall clock, in microseconds; in memory they are nanoseconds of the clock that never
goes back. Source: docs/adr/0044.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final, Self

from mailmend.delivery.policy.policy import CounterKey, CounterPolicy
from mailmend.delivery.policy.rates import LONG_AGO, SECOND, DeliveryRate, RateAlgorithm, RateState, Spent

KEPT_FROM: Final = 60 * SECOND
"""The shortest interval of a rate that is kept over restarts, in nanoseconds."""

AHEAD: Final = 50
"""One delivery in this number may begin before the next row; after that part of its interval one is due."""

Instants = Callable[[int], int]
"""From the instants of one clock to the instants of another."""

CounterName = tuple[str, CounterKey]
"""A counter over restarts: what its policy counts by, and its key."""


@dataclass(frozen=True, slots=True)
class SavedRate:
    """One counter's rate, as in its row.

    Attributes:
        spent: what began, as its algorithm reads it.
        ahead: how many more may have begun after that.
        number: of the last change of the server's share that this knows of.
    """

    algorithm: RateAlgorithm
    rate: DeliveryRate
    spent: Spent
    ahead: int
    number: int

    def moved(self, instants: Instants) -> Self:
        """The same by another clock."""
        return replace(self, spent=tuple((_moved(at, instants), many) for at, many in self.spent))

    def state(self, now: int) -> RateState:
        """What began, and what else may have begun until now."""
        found = self.algorithm.state(self.rate)
        found.take_up(self.spent)
        for _ in range(self.ahead):
            if found.next_at() > now:
                break
            found.begin(now)
        return found

    def encoded(self) -> str:
        rate = [self.rate.count, self.rate.interval]
        spent = list[tuple[int | None, int]]()
        for at, many in self.spent:
            if at == LONG_AGO:
                spent.append((None, many))
            else:
                spent.append((at, many))
        found = {
            "algorithm": self.algorithm.value,
            "rate": rate,
            "spent": spent,
            "ahead": self.ahead,
            "number": self.number,
        }
        return json.dumps(found, separators=(",", ":"))

    @classmethod
    def decoded(cls, text: str) -> Self:
        """As it was encoded.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it was not.
        """
        found = json.loads(text)
        spent = list[tuple[int, int]]()
        for at, many in found["spent"]:
            if at is None:
                spent.append((LONG_AGO, int(many)))
            else:
                spent.append((int(at), int(many)))
        rate = DeliveryRate(*map(int, found["rate"]))
        return cls(RateAlgorithm(found["algorithm"]), rate, tuple(spent), int(found["ahead"]), int(found["number"]))


@dataclass(slots=True, eq=False)
class CounterMemory:
    """How much of a counter's rate is written down.

    Attributes:
        name: of the counter over restarts.
        place: of the counter in its engine.
        rate: as it is written, or is to be.
        ahead: how many may begin before it is written anew.
        most: the greatest value of `ahead`.
        begun: since this process began; `saved` of them are in the row, -1: there is no row.
        saved_at: when the row was made.
        gone: the counter is no longer there.
    """

    kept: "KeptRates"
    name: CounterName
    place: tuple[int, CounterKey]
    state: RateState
    rate: DeliveryRate | None = None
    ahead: int = 0
    most: int = 1
    begun: int = 0
    saved: int = -1
    saved_at: int = LONG_AGO
    gone: bool = False

    def begin(self) -> None:
        self.begun += 1
        self.ahead -= 1
        self._sort()

    def forget(self) -> None:
        """Its counter is no longer there: its row is to say so."""
        self.gone = True
        if self.kept.living.get(self.name) is self:
            del self.kept.living[self.name]
        self.kept.unsaved.pop(self, None)
        self.kept.changed.pop(self, None)
        if self.saved >= 0:
            self.kept.closing[self.name] = self

    @property
    def may_begin(self) -> int:
        """How many the next row should let begin."""
        if self.gone:
            return 0
        return self.most

    def is_written(self, row: SavedRate, begun: int, now: int) -> None:
        """A row was made at that time, when this number had begun."""
        self.saved = begun
        if self.gone:
            if self.kept.closing.get(self.name) is self:
                del self.kept.closing[self.name]
            if row.ahead and self.name not in self.kept.living:
                self.kept.closing[self.name] = self
            return
        if row.rate != self.rate:
            return
        self.kept.unsaved.pop(self, None)
        self.kept.changed.pop(self, None)
        self.ahead = row.ahead - (self.begun - begun)
        self.saved_at = now
        self._sort()

    def _sort(self) -> None:
        if self.ahead <= self.most // 2:
            self.kept.unsaved[self] = None
        elif self.begun != self.saved:
            self.kept.changed[self] = None


@dataclass(slots=True, eq=False)
class KeptRates:
    """Which counters of this process have something to write, and what an earlier process has left.

    Attributes:
        saved: what it left, by the clock of this one.
        resumed_at: when that was taken up; None: there is nothing.
        living: all whose rates are kept.
        unsaved: those under which less than half of what might begin may begin until they are
            written.
        changed: other counters under which something began since.
        closing: counters that are not there any more, though their rows say that more may have
            begun.
    """

    saved: Mapping[CounterName, SavedRate] = field(default_factory=dict)
    resumed_at: int | None = None
    living: dict[CounterName, CounterMemory] = field(default_factory=dict)
    unsaved: dict[CounterMemory, None] = field(default_factory=dict)
    changed: dict[CounterMemory, None] = field(default_factory=dict)
    closing: dict[CounterName, CounterMemory] = field(default_factory=dict)

    def memory(
        self, before: CounterMemory | None, name: CounterName, place: tuple[int, CounterKey], state: RateState
    ) -> CounterMemory:
        """What is kept of a counter's rate from now on."""
        found = before
        if found is None or found.kept is not self:
            found = CounterMemory(self, name, place, state)
            self.living[name] = found
            self.closing.pop(name, None)
        found.place = place
        found.state = state
        found.most = max(1, state.rate.count // AHEAD)
        if found.rate != state.rate:
            found.rate = state.rate
            found.ahead = 0
            self.unsaved[found] = None
        return found

    def due(self, now: int, most: int) -> list[CounterMemory]:
        """The counters to be written now, up to a maximum; counters under which nothing begins come first."""
        urgent = sorted(self.unsaved, key=lambda one: one.ahead)
        late = list[CounterMemory]()
        for memory in self.changed:
            is_late = memory.saved_at + memory.state.rate.interval // AHEAD <= now
            if is_late and memory not in self.unsaved:
                late.append(memory)
        return [*urgent, *late, *self.closing.values()][:most]


def saved_rate(memory: CounterMemory, ahead: int, number: int) -> SavedRate:
    """A counter's row, by the clock of this process."""
    state = memory.state
    return SavedRate(RateAlgorithm.of(state), state.rate, state.spent(), ahead, number)


def policy_names(policies: Sequence[CounterPolicy]) -> tuple[str, ...]:
    """What each policy counts by, the same in every process; those that count alike have numbers."""
    found = list[str]()
    for policy in policies:
        groups = sorted((pickup_field.value, repr(some)) for pickup_field, some in policy.groups.items())
        text = repr(([pickup_field.value for pickup_field in policy.fields], groups))
        name = blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
        found.append(f"{name}-{sum(other.startswith(name) for other in found)}")
    return tuple(found)


def _moved(at: int, instants: Instants) -> int:
    if at == LONG_AGO:
        return at
    return instants(at)
