"""What befalls operations on the twins: put there as their `surround`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mailmend.model.errors import BlobsUnreachable, TimedOut
from mailmend.model.operations import Conditional, Put, Read, Scan, Write
from mailmend.model.table import Table
from tests.support.memory_blobs import BlobCall, BlobVerb
from tests.support.queues import TwinQueue

When = Callable[[Any], bool]


def passing(_: Any, carry_out: Callable[[], Any]) -> Any:
    return carry_out()


@dataclass(slots=True)
class Strike:
    """Befalls some operations; alone it only notes them.

    Attributes:
        when: which operations.
        error: what is raised instead of an answer.
        done: whether what gets no answer is carried out.
        do: what happens right before the operation.
        then: what happens right after it.
        skip: how many pass before the first.
        times: how many it befalls at most.
        struck: those that it befell.
    """

    when: When
    error: BaseException | None = None
    done: bool = False
    do: Callable[[], object] | None = None
    then: Callable[[], object] | None = None
    skip: int = 0
    times: int = 1_000_000
    struck: list[Any] = field(default_factory=list)

    def __call__(self, operation: Any, carry_out: Callable[[], Any]) -> Any:
        if not self.times or not self.when(operation):
            return carry_out()
        if self.skip:
            self.skip -= 1
            return carry_out()
        self.times -= 1
        self.struck.append(operation)
        if self.do:
            self.do()
        answer = carry_out() if self.error is None or self.done else None
        if self.then:
            self.then()
        if self.error is not None:
            raise self.error
        return answer


@dataclass(slots=True)
class Refusing:
    """What a queue's servers do not do: installed on its twins, taken off by `mend`.

    Attributes:
        tables: which operations get no answer.
        blobs: which calls get none.
        done_all_the_same: whether what got no answer was carried out.
    """

    twin: TwinQueue
    tables: When = lambda _: False
    blobs: When = lambda _: False
    done_all_the_same: bool = False

    def __post_init__(self) -> None:
        done = self.done_all_the_same
        self.twin.memory.surround = Strike(self.tables, TimedOut("no answer from the tables"), done)
        self.twin.blobs.store.surround = Strike(self.blobs, BlobsUnreachable("no answer from the blobs"), done)

    def mend(self) -> None:
        self.twin.memory.surround = self.twin.blobs.store.surround = passing


def of(kinds: Any, *tables: Table) -> When:
    """Operations of some kinds, on some tables (whole, or some of their columns) or on any."""
    names = {table.name for table in tables}
    return lambda operation: isinstance(operation, kinds) and (not tables or operation.table.name in names)


def refusing(table: Table, *, done: bool = False) -> Strike:
    """Writes into a table get no answer; they may be done all the same."""
    return Strike(writes_of(table), TimedOut("no answer"), done)


def interrupted_after(table: Table) -> Strike:
    """Ctrl-C once, right after a row was put there: it is written, and nobody has noted so yet."""
    return Strike(of(Put, table), KeyboardInterrupt(), done=True, times=1)


def writes_of(table: Table) -> When:
    return of(Write | Conditional, table)


def reads_of(table: Table) -> When:
    return of(Read | Scan, table)


def everything_of(*tables: Table) -> When:
    return of(object, *tables)


def verb(*verbs: BlobVerb) -> Callable[[BlobCall], bool]:
    return lambda call: call.verb in verbs
