"""A network that fails on purpose, between an actor and its tables: what every promise about failures is tried with.

An actor (a writer, a repair) is killed before or after a write, and nothing of it goes on; a write times out and was
done, or was not, or is done later: a plain one within the time that one write may take, a conditional one when somebody
next looks at its partition at SERIAL, as Paxos has it. Reads time out too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from mailmend.cql.row_statements import Operation
from mailmend.model.errors import DoubtfulWrite, NotEnoughReplicas, TimedOut
from mailmend.model.instants import MICROS
from mailmend.model.operations import Conditional, Count, Level, Put, PutIfAbsent, Read, Scan, Write
from mailmend.model.ports import Clock, Tables
from mailmend.model.table import Key
from tests.support.surrounded import SurroundedTables

WRITE_SECONDS = 10.0
"""How long after it was sent a plain write may still arrive: as long as the store lets one write take."""


class Killed(BaseException):
    """The process ends here: no clause of the product may catch it and go on."""


class Kind(Enum):
    """What happens to an operation."""

    KILLED_BEFORE = "the process is killed before it"
    KILLED_AFTER = "the process is killed after it"
    REFUSED = "too few replicas, nothing is done"
    LOST = "timed out, and not done"
    DONE = "timed out, but done"
    LATE = "timed out, and done later"
    DEAF = "a read times out"


@dataclass(frozen=True, slots=True)
class Mishap:
    """Befalls the operations number `first`, `first + 1`, ... (`times` of them) of those on a table, or on any."""

    kind: Kind
    first: int
    times: int = 1
    table: str | None = None

    def befalls(self, operation: Operation) -> bool:
        """Whether the operation is one of its kind: a read, or a write, on its table."""
        reading = isinstance(operation, Read | Scan)
        return reading is (self.kind is Kind.DEAF) and self.table in (None, operation.table.spelling)


@dataclass(slots=True)
class Network:
    """What is under way between all actors and their tables."""

    clock: Clock
    flying: list[tuple[int, Tables, Write]] = field(default_factory=list)
    accepted: dict[tuple[str, Key], tuple[Tables, Conditional]] = field(default_factory=dict)
    landed: list[Conditional] = field(default_factory=list)
    tick: Callable[[], None] = lambda: None

    def delay(self, tables: Tables, write: Write | Conditional) -> None:
        if isinstance(write, Write):
            self.flying.append((self.clock.micros() + round(WRITE_SECONDS * MICROS), tables, write))
        else:
            self.accepted[_partition(write)] = (tables, write)

    def pass_by(self, operation: Operation) -> None:
        self.tick()
        self.arrive(self.clock.micros())
        if not isinstance(operation, Scan) and (isinstance(operation, Conditional) or _is_serial(operation)):
            self._finish(_partition(operation))

    def arrive(self, until: int) -> None:
        due = [one for one in self.flying if one[0] <= until]
        self.flying = [one for one in self.flying if one[0] > until]
        for _, tables, write in due:
            tables.write(write)

    def calm_down(self) -> None:
        self.arrive(2**63)
        for partition in list(self.accepted):
            self._finish(partition)

    def _finish(self, partition: tuple[str, Key]) -> None:
        found = self.accepted.pop(partition, None)
        if found is not None and found[0].attempt(found[1]).applied:
            self.landed.append(found[1])


@dataclass(slots=True)
class Actor:
    """One process: its mishaps to come, and whether it is dead.

    Attributes:
        late: whether a late write is done at last, or lost.
        before_each: happens before each of its operations.
        before_write: happens before each of its writes, after that.
    """

    network: Network
    late: bool = True
    mishaps: Sequence[Mishap] = ()
    before_each: Callable[[], None] = lambda: None
    before_write: Callable[[], None] = lambda: None
    dead: bool = False
    _counts: list[int] = field(default_factory=list)

    def arm(self, mishaps: Sequence[Mishap]) -> None:
        self.mishaps, self._counts = mishaps, [0] * len(mishaps)

    def befalls(self, operation: Operation) -> Kind | None:
        if self.dead:
            raise Killed
        found = None
        for place, mishap in enumerate(self.mishaps):
            if mishap.befalls(operation):
                number = self._counts[place]
                self._counts[place] += 1
                if mishap.first <= number < mishap.first + mishap.times:
                    found = found or mishap.kind
        return found

    def die(self) -> None:
        self.dead = True
        raise Killed


def wire(tables: Tables, actor: Actor) -> SurroundedTables:
    return SurroundedTables(tables, lambda operation, carry_out: _passed(tables, actor, operation, carry_out))


def _passed(tables: Tables, actor: Actor, operation: Operation, carry_out: Callable[[], Any]) -> Any:
    writing = isinstance(operation, Write | Conditional)
    actor.before_each()
    if writing:
        actor.before_write()
    kind = actor.befalls(operation)
    actor.network.pass_by(operation)
    if kind is None or (writing and kind is Kind.DEAF):
        return carry_out()
    if not isinstance(operation, Write | Conditional):
        raise TimedOut("a read got no answer")
    match kind:
        case Kind.KILLED_BEFORE:
            actor.die()
        case Kind.KILLED_AFTER:
            carry_out()
            actor.die()
        case Kind.REFUSED:
            raise NotEnoughReplicas("too few replicas were alive")
        case Kind.DONE:
            carry_out()
        case Kind.LATE if actor.late:
            actor.network.delay(tables, operation)
        case _:
            pass  # lost
    raise DoubtfulWrite("no answer in time") if isinstance(operation, Count | Conditional) else TimedOut("no answer")


def alongside(tables: Tables, twin: Tables) -> SurroundedTables:
    """Tables whose writes are repeated on a twin: what would have become of it without those who write elsewhere."""

    def both(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        if isinstance(operation, Conditional):
            answer = twin.attempt(operation)
            assert carry_out() == answer
            return answer
        if isinstance(operation, Write):
            twin.write(operation)
        return carry_out()

    return SurroundedTables(tables, both)


def _is_serial(operation: Operation) -> bool:
    return isinstance(operation, Read) and operation.level is Level.SERIAL


def _partition(operation: Read | Write | Conditional) -> tuple[str, Key]:
    table = operation.table
    key = table.key_of(operation.row) if isinstance(operation, Put | PutIfAbsent) else operation.key
    return table.name, key[: len(table.partition)]
