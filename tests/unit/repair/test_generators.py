"""Generators of uids and modseqs that are behind the messages: found by a scan, raised and never lowered."""

from uuid import UUID

import pytest

from cql.memory import MemoryTables
from model.catalog.mail import MESSAGE_COUNTER, MESSAGES, MODSEQ
from model.errors import AccessDenied, DoubtfulWrite
from model.ids import MailboxId
from model.operations import ChangeIf, Put, PutIfAbsent, Read
from model.schema.table import Table
from repair.mending import generators
from repair.mending.generators import BehindGenerator, Generators, GeneratorWatch
from tests.support.clock import VirtualClock, uuid_at
from tests.support.writing import Faults, on

BOB, EVE = MailboxId(uuid_at(0, 1)), MailboxId(uuid_at(0, 2))


class Place:
    """Tables with faults, and the generators over them."""

    def __init__(self) -> None:
        self.clock, self.faults = VirtualClock(), Faults()
        self.tables = MemoryTables(self.clock.micros, self.faults)
        self.generators = Generators(self.tables, MESSAGES, self.clock, "mail")

    def gave(self, mailbox: UUID, uid: int | None = None, modseq: int | None = None) -> None:
        for table, column, number in ((MESSAGE_COUNTER, "nextuid", uid), (MODSEQ, "nextmodseq", modseq)):
            if number is not None:
                self.tables.write(Put(table, {"mailboxid": mailbox, column: number}))

    def watched(self, *rows: tuple[UUID, int, int | None]) -> list[tuple[str, UUID, int, int]]:
        watch = GeneratorWatch(self.generators)
        for mailbox, uid, modseq in rows:
            watch.add({"mailboxid": mailbox, "uid": uid, "modseq": modseq})
        return [(one.table, one.mailbox, one.last, one.in_use) for one in watch.end()]

    def last(self, table: Table, mailbox: UUID) -> int:
        (seen,) = self.tables.read(Read(table, (mailbox,)))
        number: int = seen.row[table.regular[0].name]
        return number


def test_generators_above_all_messages_are_fine() -> None:
    place = Place()
    place.gave(BOB, uid=3, modseq=9)
    assert place.watched((BOB, 1, 9), (BOB, 3, None)) == []


@pytest.mark.parametrize("chunk", [1, 500])
def test_each_generator_is_compared_with_the_highest_number_of_its_mailbox(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generators, "PENDING_MAX", chunk)
    place = Place()
    place.gave(BOB, uid=5, modseq=2)
    place.gave(EVE, uid=2, modseq=1)

    found = place.watched((BOB, 30, 7), (EVE, 1, 1), (EVE, 2, 1), (BOB, 4, 40))

    assert found == [("messageCounter", BOB, 5, 30), *([("modseq", BOB, 2, 7)] * (chunk == 1)), ("modseq", BOB, 2, 40)]


def test_a_mailbox_without_a_generator_is_behind_where_others_have_one() -> None:
    """Of a mailbox that was made after the backup; a table without any row is not in use."""
    place = Place()
    assert place.watched((BOB, 4, None)) == []
    place.gave(EVE, uid=9)
    assert place.watched((BOB, 4, None), (EVE, 9, None)) == [("messageCounter", BOB, 0, 4)]


def test_a_generator_that_was_raised_meanwhile_is_fine() -> None:
    place = Place()
    place.gave(BOB, uid=5)
    usual = place.tables.surround

    def raised_between(operation: object, carry_out: object) -> object:
        answer = usual(operation, carry_out)  # type: ignore[arg-type]
        if isinstance(operation, Read) and operation.table.name == MESSAGE_COUNTER.name:
            place.tables._put(
                MESSAGE_COUNTER, {"mailboxid": BOB, "nextuid": 31}, place.clock.micros(), None, clear=False
            )
        return answer

    place.tables.surround = raised_between
    assert place.watched((BOB, 30, None)) == []


@pytest.mark.parametrize("last", [0, 5])
@pytest.mark.parametrize("doubt", [None, True, False], ids=["answered", "happened", "did not happen"])
def test_a_generator_is_raised_to_the_numbers_in_use(last: int, doubt: bool | None) -> None:
    place = Place()
    if last:
        place.gave(BOB, uid=last)
    if doubt is not None:
        kinds = (ChangeIf, PutIfAbsent)
        place.faults.doubt(on(MESSAGE_COUNTER, *kinds), DoubtfulWrite("no answer"), done=doubt)

    raised = place.generators.raised(BehindGenerator("messageCounter", BOB, last, 30, ""))

    assert (raised.raised, place.last(MESSAGE_COUNTER, BOB)) == (True, 30)


def test_a_generator_that_is_further_by_now_is_never_lowered() -> None:
    place = Place()
    place.gave(BOB, uid=44)

    assert place.generators.raised(BehindGenerator("messageCounter", BOB, 5, 30, "")).raised
    assert place.last(MESSAGE_COUNTER, BOB) == 44


def test_a_role_that_may_not_write_leaves_it() -> None:
    place = Place()
    place.gave(BOB, uid=5)
    place.faults.fail(on(MESSAGE_COUNTER, ChangeIf), AccessDenied("no"))

    assert not place.generators.raised(BehindGenerator("messageCounter", BOB, 5, 30, "")).raised
