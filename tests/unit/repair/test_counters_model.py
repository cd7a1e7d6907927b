"""The rule of two looks against writers in every phase of a change: a counter is never made wrong (docs/design.md).

Each change takes its number, if it needs one, and reaches the truth, then its mirror, then the counters, each at a time
of its own but none later than A after the first; the mender's reads fall anywhere in between. When everything has
arrived, the counters are either right, or as wrong as they were before the mender came.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mailmend.cql.memory import MemoryTables
from mailmend.cql.row_statements import Operation
from mailmend.model.catalog.mail import IMAP_UID, MAILBOX_COUNTERS, MESSAGE_COUNTER, MESSAGE_ID, MESSAGE_V3, MESSAGES
from mailmend.model.instants import MICROS
from mailmend.model.operations import Count, Put, Read, Remove
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.clock import Timing
from mailmend.repair.ledger.leases import Leases
from mailmend.repair.mending.counters import CounterMender
from tests.support.clock import START, VirtualClock
from tests.support.repairing import MAILBOX, World, content_row, mirror_row, truth_row
from tests.support.thorough import few_or

A = 20.0
STANDING = 3
SUSPECT = Suspect("mailboxCounters", (MAILBOX,), Verdict.AMEND)


@dataclass(frozen=True, slots=True)
class Move:
    """A message that comes or goes: when its truth changes, in seconds after the first look; the rest is later."""

    comes: bool
    at: float
    mirror_after: float
    counters_after: float


moves = st.builds(Move, st.booleans(), st.floats(-30, 50), st.floats(0, A), st.floats(0, A))


class TravellingClock(VirtualClock):
    """Whatever is due happens while time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.due: list[tuple[int, Callable[[], None]]] = []

    def sleep(self, seconds: float) -> None:
        """Pass the time, and let happen what falls into it, in order."""
        end = self.micros() + round(seconds * MICROS)
        while self.due and self.due[0][0] <= end:
            at, happen = self.due.pop(0)
            self.advance((at - self.micros()) / MICROS)
            happen()
        self.advance((end - self.micros()) / MICROS)


@dataclass(slots=True)
class Mailbox(World):
    """A mailbox with a few messages, writers on their way, and counters that may be wrong."""

    clock: TravellingClock = field(default_factory=TravellingClock)
    handed_out: int = STANDING

    def begin(self, drift: int, changes: Sequence[Move]) -> None:
        """Messages, counters that are off by `drift`, and every step of every change in the order of time."""
        numbers = range(1, STANDING + 1)
        for number in numbers:
            self.message(truth_row(number))
        count = STANDING + drift
        self.mail.write(Count(MAILBOX_COUNTERS, (MAILBOX,), {"count": count, "unseen": count}))
        steps = [step for number, move in enumerate(changes) for step in self._steps(number, move)]
        self.clock.due = sorted(((START + round(at * MICROS), happen) for at, happen in steps), key=lambda one: one[0])
        self.clock.advance(-40)
        self.clock.sleep(40)

    def _steps(self, number: int, move: Move) -> list[tuple[float, Callable[[], None]]]:
        row = truth_row(100 + number) if move.comes else truth_row(1 + number % STANDING)
        if not move.comes and number >= STANDING:
            return []
        sign = 1 if move.comes else -1
        delta = Count(MAILBOX_COUNTERS, (MAILBOX,), {"count": sign, "unseen": sign})

        def truth() -> None:
            if move.comes:
                self.mail.write(Put(MESSAGE_V3, content_row(row["messageid"])))
            self.mail.write(Put(IMAP_UID, row) if move.comes else Remove(IMAP_UID, IMAP_UID.key_of(row)))

        def generators() -> None:
            self.handed_out += 1
            self.mail.write(Put(MESSAGE_COUNTER, {"mailboxid": MAILBOX, "nextuid": self.handed_out}))

        def mirror() -> None:
            gone = Remove(MESSAGE_ID, MESSAGES.mirror.key_of(row))
            self.mail.write(Put(MESSAGE_ID, mirror_row(row)) if move.comes else gone)

        numbered = [(move.at, generators)] if move.comes else []
        return [
            *numbered,
            (move.at, truth),
            (move.at + move.mirror_after, mirror),
            (move.at + move.counters_after, lambda: self.mail.write(delta)),
        ]

    def mend(self, timing: Timing, seconds_per_read: float) -> None:
        """One round of the mender; every read takes a while, in which the writers go on."""
        leases = Leases(self.ledger.tables, self.clock, "us")
        mender = CounterMender(self.mail, "mail", (MESSAGES,), self.clock, timing, self.ledger, leases)

        def slowly(operation: Operation, carry_out: Callable[[], Any]) -> Any:
            if isinstance(operation, Read):
                self.clock.sleep(seconds_per_read)
            return carry_out()

        cast("MemoryTables", self.mail).surround = slowly
        list(mender.revisit(lambda: [SUSPECT], self.policy()))
        self.clock.sleep(1000)

    def error(self) -> tuple[int, int]:
        """How far the counters are from the truth, once everything has arrived."""
        (row,) = self.mail.read(Read(MAILBOX_COUNTERS, (MAILBOX,)))
        shown = len(self.mail.read(Read(MESSAGE_ID, (MAILBOX,))))
        return row.row["count"] - shown, row.row["unseen"] - shown


@settings(max_examples=few_or(150, 40), suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(-2, 2), st.lists(moves, max_size=4), st.sampled_from([0.0, 0.01, 0.5]))
@example(0, [Move(comes=True, at=-0.1, mirror_after=0, counters_after=A)], 0.0)
@example(1, [Move(comes=False, at=-0.1, mirror_after=A, counters_after=A)], 0.0)
# One goes and another comes, which the mirror does not show yet: the counters are as they were, and not wrong.
@example(0, [Move(False, 0.0, 0.0, 1.0), Move(True, 2.0, A, 0.0)], 0.0)
def test_counters_are_never_made_wrong(drift: int, changes: list[Move], seconds_per_read: float) -> None:
    mailbox = Mailbox()
    mailbox.begin(drift, changes)
    mailbox.mend(Timing(), seconds_per_read)
    assert mailbox.error() in {(0, 0), (drift, drift)}


def test_in_a_quiet_mailbox_they_are_made_right() -> None:
    for drift in (-2, 1):
        mailbox = Mailbox()
        mailbox.begin(drift, [])
        mailbox.mend(Timing(), 0.01)
        assert mailbox.error() == (0, 0)


def test_two_looks_at_once_would_make_them_wrong() -> None:
    mailbox = Mailbox()
    mailbox.begin(0, [Move(comes=True, at=-0.1, mirror_after=0, counters_after=A)])
    mailbox.mend(Timing(no_writers=True), 0.0)
    assert mailbox.error() == (1, 1)
