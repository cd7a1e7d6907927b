"""Uids and modseqs: in order, never twice, whoever asks and whatever times out."""

from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from mailmend.cql.memory import MemoryTables
from mailmend.model.catalog.mail import MESSAGE_COUNTER
from mailmend.model.errors import AccessDenied, CannotReach, Contended, DoubtfulWrite
from mailmend.model.ids import MailboxId
from mailmend.model.operations import ChangeIf, PutIfAbsent, Read
from mailmend.repair.retries import Retries
from mailmend.repair.store.mailboxes import Sequence
from tests.support.clock import VirtualClock, uuid_at
from tests.support.writing import Faults, on

MAILBOX = MailboxId(uuid_at(0, 1))
OTHER = MailboxId(uuid_at(0, 2))
DOUBT = DoubtfulWrite("no answer")


class Place:
    """Tables with faults, and sequences over them."""

    def __init__(self) -> None:
        self.clock, self.faults = VirtualClock(), Faults()
        self.tables = MemoryTables(self.clock.micros, self.faults)

    def uids(self, rounds_max: int = 100) -> Sequence:
        """A sequence as one process has it."""
        return Sequence(self.tables, MESSAGE_COUNTER, Retries(self.clock), rounds_max)


def test_the_first_number_is_one() -> None:
    """As in James: the row holds the last number that was given out, and there is none before the first."""
    place = Place()
    assert place.uids().take(MAILBOX) == 1
    assert place.tables.read(Read(MESSAGE_COUNTER, (MAILBOX,)))[0].row["nextuid"] == 1


def test_numbers_follow_each_other_per_mailbox() -> None:
    uids = Place().uids()
    assert [uids.take(MAILBOX), uids.take(MAILBOX, 5), uids.take(MAILBOX), uids.take(OTHER)] == [1, 2, 7, 1]


def test_it_goes_on_from_what_james_left() -> None:
    place = Place()
    place.tables.attempt(PutIfAbsent(MESSAGE_COUNTER, {"mailboxid": MAILBOX, "nextuid": 40}))
    assert place.uids().take(MAILBOX) == 41


def test_the_only_writer_reads_once() -> None:
    place = Place()
    uids = place.uids()
    uids.take(MAILBOX)
    place.faults.seen.clear()
    uids.take(MAILBOX)
    assert [type(one) for one in place.faults.seen] == [ChangeIf]


def test_two_processes_never_get_the_same() -> None:
    place = Place()
    one, other = place.uids(), place.uids()
    assert [uids.take(MAILBOX) for uids in (one, other, one, one, other)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("done", [True, False], ids=["it happened", "it did not"])
@pytest.mark.parametrize("kind", [PutIfAbsent, ChangeIf], ids=["the first", "a later one"])
def test_a_doubtful_answer_loses_a_number_at_most(kind: type, *, done: bool) -> None:
    place = Place()
    uids = place.uids()
    given = [] if kind is PutIfAbsent else [uids.take(MAILBOX)]
    place.faults.doubt(on(MESSAGE_COUNTER, kind), DOUBT, done=done)
    given += [uids.take(MAILBOX), uids.take(MAILBOX)]
    assert given == sorted(set(given))
    assert given[-1] == len(given) + done


def test_threads_share_without_doubles() -> None:
    uids = Place().uids()
    with ThreadPoolExecutor(8) as pool:
        given = list(pool.map(lambda _: uids.take(MAILBOX), range(200)))
    assert sorted(given) == list(range(1, 201))


def test_waiting_threads_are_served_together() -> None:
    place = Place()
    uids = place.uids()
    first: list[int] = []
    pool = ThreadPoolExecutor(8)
    later: list[Future[int]] = []

    def crowd(operation: object, carry_out: object) -> object:
        if isinstance(operation, ChangeIf) and not later:
            later.extend(pool.submit(uids.take, MAILBOX) for _ in range(6))
            while len(uids._queues[MAILBOX].waiting) < 6:
                pass
        return place.faults(operation, carry_out)  # type: ignore[arg-type]

    uids.take(MAILBOX)
    place.tables.surround = crowd
    first.append(uids.take(MAILBOX))
    given = sorted([*first, *(future.result() for future in later)])
    pool.shutdown()
    assert given == [2, 3, 4, 5, 6, 7, 8]
    assert sum(isinstance(one, ChangeIf) for one in place.faults.seen) == 2


def test_a_failure_is_the_callers_own() -> None:
    place = Place()
    uids = place.uids()
    place.faults.fail(on(MESSAGE_COUNTER, PutIfAbsent), AccessDenied("not yours"))
    with pytest.raises(AccessDenied):
        uids.take(MAILBOX)
    assert uids.take(MAILBOX) == 1
    assert uids._queues == {}


def test_an_unreachable_cluster_is_said() -> None:
    place = Place()
    place.faults.fail(lambda one: isinstance(one, Read), CannotReach("gone"), times=6)
    with pytest.raises(CannotReach):
        place.uids().take(MAILBOX)


def test_rounds_are_bounded() -> None:
    """When others win every round, an error says so."""
    place = Place()
    uids = place.uids(rounds_max=3)
    for _ in range(3):
        place.faults.doubt(on(MESSAGE_COUNTER, PutIfAbsent, ChangeIf), DOUBT, done=False)
    with pytest.raises(Contended, match="nextuid"):
        uids.take(MAILBOX)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently used mailboxes are forgotten."""
    monkeypatch.setattr("mailmend.repair.store.mailboxes.MAILBOXES_REMEMBERED", 10)
    uids = Place().uids()
    for number in range(15):
        uids.take(MailboxId(uuid_at(1, number)))
    assert len(uids._last) == 10
