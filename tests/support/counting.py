"""A mail keyspace whose counters are wrong, and a mender of counters."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

from mailmend.cql.memory import MemoryTables
from mailmend.cql.row_statements import Operation
from mailmend.model.catalog.mail import MAILBOX_COUNTERS, MESSAGES
from mailmend.model.errors import DoubtfulWrite
from mailmend.model.ids import RunId
from mailmend.model.operations import Count, Read
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.clock import Timing
from mailmend.repair.ledger.leases import Leases, TakenLease
from mailmend.repair.mending.counters import CounterMender
from tests.support.clock import START, VirtualClock
from tests.support.repairing import MAILBOX, World, truth_row
from tests.support.striking import Strike, of

COUNTS = MESSAGES.counts[0]

SUSPECT = Suspect(COUNTS.name, (MAILBOX,), Verdict.AMEND)


def _nothing() -> None:
    """Nothing happens."""


class EventfulClock(VirtualClock):
    """While somebody sleeps, something may happen."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], None] = _nothing

    def sleep(self, seconds: float) -> None:
        """Let the hand jump, and the thing happen once."""
        super().sleep(seconds)
        happens = self.meanwhile
        self.meanwhile = _nothing
        happens()


@dataclass(slots=True)
class Counting(World):
    """A mail keyspace with a mender of counters."""

    clock: EventfulClock = field(default_factory=EventfulClock)
    leases: Leases = field(init=False)
    undone_by: RunId = field(init=False)

    def __post_init__(self) -> None:
        World.__post_init__(self)
        self.leases = Leases(self.ledger.tables, self.clock, "us@here")

    def count(self, count: int, unseen: int, mailbox: UUID = MAILBOX) -> None:
        self.mail.write(Count(MAILBOX_COUNTERS, (mailbox,), {"count": count, "unseen": unseen}))

    def counters(self, mailbox: UUID = MAILBOX) -> tuple[int, int] | None:
        rows = self.mail.read(Read(MAILBOX_COUNTERS, (mailbox,)))
        return (rows[0].row["count"], rows[0].row["unseen"]) if rows else None

    def mender(self, timing: Timing | None = None) -> CounterMender:
        return CounterMender(self.mail, "mail", (MESSAGES,), self.clock, timing or Timing(), self.ledger, self.leases)

    def mend(self, *suspects: Suspect, held: TakenLease | None = None, **policy: Any) -> list[Finding]:
        """What becomes of suspects, besides the mailbox's own."""
        seen = (SUSPECT, *suspects)
        return list(self.mender().revisit(lambda: iter(seen), self.policy(**policy), held))

    def undo(self, run: RunId | None = None) -> Finding:
        """Take back the one delta of a run."""
        images = self.ledger.findings(run or self.run)
        self.undone_by = self.ledger.start("mail", "undo", START, {}, undoes=run or self.run).id
        (back,) = self.mender().undo(images, self.policy(run=self.undone_by))
        return back

    def lose_counts(self) -> None:
        """No delta arrives from now on, and nobody says so."""
        self.surround(Strike(of(Count), DoubtfulWrite("no answer in time")))

    def surround(self, surround: Callable[[Operation, Callable[[], Any]], Any]) -> None:
        """What happens to every operation on the mail keyspace."""
        cast("MemoryTables", self.mail).surround = surround


def three_messages(count: int, unseen: int) -> Counting:
    """Two unseen messages and a seen one, and counters that say otherwise."""
    world = Counting()
    for number in (1, 2, 3):
        world.message(truth_row(number, flagseen=number == 3))
    world.count(count, unseen)
    return world
