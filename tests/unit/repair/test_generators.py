"""Generators that are behind the numbers in use: found by a scan, raised and never lowered."""

from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from mailmend.cql.memory import MemoryTables
from mailmend.model.catalog.mail import MAILBOX, MAILBOX_PATH, MESSAGE_COUNTER, MESSAGES, MODSEQ
from mailmend.model.errors import AccessDenied, DoubtfulWrite, MailmendError, SchemaMismatch
from mailmend.model.ids import MailboxId
from mailmend.model.operations import ChangeIf, Put, PutIfAbsent, Read, Remove, Scan
from mailmend.model.table import Table
from mailmend.repair.joins.records import Spill, Workshop
from mailmend.repair.mending import generators
from mailmend.repair.mending.generators import BehindGenerator, Generators, GeneratorWatch
from tests.support.clock import VirtualClock, uuid_at
from tests.support.writing import Faults, on

BOB, EVE = MailboxId(uuid_at(0, 1)), MailboxId(uuid_at(0, 2))


class Place:
    """Tables with faults, and the generators over them."""

    def __init__(self) -> None:
        self.clock, self.faults = VirtualClock(), Faults()
        self.tables = MemoryTables(self.clock.micros, self.faults)
        (numbering,) = MESSAGES.numberings
        self.generators = Generators(self.tables, numbering, self.clock, "mail")

    def gave(self, mailbox: UUID, uid: int | None = None, modseq: int | None = None) -> None:
        for table, column, number in ((MESSAGE_COUNTER, "nextuid", uid), (MODSEQ, "nextmodseq", modseq)):
            if number is not None:
                self.tables.write(Put(table, {"mailboxid": mailbox, column: number}))

    def watched(
        self, *rows: tuple[UUID, int, int | None], spill: Spill | None = None
    ) -> list[tuple[str, UUID, int, int]]:
        watch = GeneratorWatch(self.generators, MESSAGES.mirror, spill)
        for mailbox, uid, modseq in rows:
            watch.add({"mailboxid": mailbox, "uid": uid, "modseq": modseq})
        found: list[tuple[str, UUID, int, int]] = []
        for behind in watch.end():
            assert behind.mailbox is not None
            found.append((behind.table, behind.mailbox, behind.last, behind.in_use))
        return found

    def last(self, table: Table, mailbox: UUID) -> int:
        (seen,) = self.tables.read(Read(table, (mailbox,)))
        number: int = seen.row[table.regular[0].name]
        return number


def test_generators_above_all_messages_are_fine() -> None:
    place = Place()
    place.gave(BOB, uid=3, modseq=9)
    assert place.watched((BOB, 1, 9), (BOB, 3, None)) == []


@pytest.mark.parametrize("in_memory", [1, 500])
def test_each_generator_is_compared_with_the_highest_number_of_its_mailbox(
    in_memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the truth come in any order, and more mailboxes than memory holds go to files."""
    monkeypatch.setattr(generators, "PENDING_MAX", in_memory)
    place = Place()
    place.gave(BOB, uid=5, modseq=2)
    place.gave(EVE, uid=2, modseq=1)

    with Workshop(tmp_path) as workshop:
        rows = (BOB, 30, 7), (EVE, 1, 1), (BOB, 4, 40), (EVE, 2, 1)
        found = place.watched(*rows, spill=Spill(workshop, "numbers"))

    assert found == [("messageCounter", BOB, 5, 30), ("modseq", BOB, 2, 40)]


def test_a_copy_without_a_truth_counts_by_the_numbers_in_its_key() -> None:
    """A repair withdraws such a row with its other cells; a program may have given its uid."""
    place = Place()
    place.gave(BOB, uid=5, modseq=5)
    watch = GeneratorWatch(place.generators, MESSAGES.mirror)

    watch.add_copy({"mailboxid": BOB, "uid": 7, "modseq": 9})

    assert [(behind.table, behind.in_use) for behind in watch.end()] == [("messageCounter", 7)]


BOBS_PATH = {"namespace": "#private", "user": "bob", "mailboxname": "INBOX", "mailboxid": BOB}
USES = {
    "another mailbox of the same table": Put(MESSAGE_COUNTER, {"mailboxid": EVE, "nextuid": 9}),
    "a mailbox of the other generator": Put(MODSEQ, {"mailboxid": EVE, "nextmodseq": 9}),
    "the path of a mailbox": Put(MAILBOX_PATH, BOBS_PATH),
    "the name of a mailbox": Put(MAILBOX, {"id": BOB, "name": "INBOX"}),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_generator_without_a_row_is_behind_where_anything_gives_numbers(use: Put) -> None:
    """Of a mailbox that was made after the backup, or of a table that was truncated: the next uid would be 1."""
    place = Place()
    place.tables.write(use)

    assert ("messageCounter", BOB, 0, 4) in place.watched((BOB, 4, None))
    assert ("modseq", BOB, 0, 6) in place.watched((BOB, 4, 6))


def test_messages_alone_need_no_generators() -> None:
    """A keyspace without mailboxes and generators: nobody adds a message to what has no name."""
    assert Place().watched((BOB, 4, 6)) == []


@pytest.mark.parametrize(
    ("error", "found"),
    [(AccessDenied("no"), [("messageCounter", BOB, 0, 4)]), (SchemaMismatch("mail", ("mailboxPathV3",)), [])],
    ids=["not allowed", "not there"],
)
def test_a_table_of_mailboxes_that_cannot_be_read_counts_as_used_and_one_that_is_not_there_does_not(
    error: MailmendError, found: list[object]
) -> None:
    place = Place()
    place.faults.fail(on(MAILBOX_PATH, Scan), error, times=10)
    assert place.watched((BOB, 4, None)) == found


@pytest.mark.parametrize("emptied", [MESSAGE_COUNTER, MODSEQ], ids=["messageCounter", "modseq"])
def test_the_statement_of_a_truncated_table_mends_it(emptied: Table) -> None:
    place = Place()
    place.gave(BOB, uid=4, modseq=6)
    place.tables.write(Remove(emptied, (BOB,)))

    watch = GeneratorWatch(place.generators, MESSAGES.mirror)
    watch.add({"mailboxid": BOB, "uid": 4, "modseq": 6})
    (behind,) = watch.end()

    number = {"messageCounter": 4, "modseq": 6}[emptied.spelling]
    column = emptied.regular[0].spelling
    assert behind.statement == (
        f"INSERT INTO mail.{emptied.spelling} (mailboxId, {column}) VALUES ({BOB}, {number}) IF NOT EXISTS;"
    )
    assert (place.generators.raised(behind).raised, place.last(emptied, BOB)) == (True, number)


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

    raised = place.generators.raised(BehindGenerator("messageCounter", (BOB,), last, 30, ""))

    assert (raised.raised, place.last(MESSAGE_COUNTER, BOB)) == (True, 30)


def test_a_generator_that_is_further_by_now_is_never_lowered() -> None:
    place = Place()
    place.gave(BOB, uid=44)

    assert place.generators.raised(BehindGenerator("messageCounter", (BOB,), 5, 30, "")).raised
    assert place.last(MESSAGE_COUNTER, BOB) == 44


def test_a_role_that_may_not_write_leaves_it() -> None:
    place = Place()
    place.gave(BOB, uid=5)
    place.faults.fail(on(MESSAGE_COUNTER, ChangeIf), AccessDenied("no"))

    assert not place.generators.raised(BehindGenerator("messageCounter", (BOB,), 5, 30, "")).raised


@pytest.mark.parametrize("spelled", ["mailboxId", "mailboxid"])
def test_a_generator_of_a_mailbox_is_named_by_it_however_its_column_is_spelled(spelled: str) -> None:
    behind = BehindGenerator("modseq", (BOB,), 1, 2, "", columns=(spelled,))

    assert behind.kept == {"table": "modseq", "mailbox": str(BOB), "last": 1, "in_use": 2, "raised": False}


def test_a_generator_of_other_groups_is_named_by_their_columns_as_text() -> None:
    key = ("a", datetime(2026, 1, 2, tzinfo=UTC), b"\xff")
    behind = BehindGenerator("last", key, 1, 2, "", columns=("shop", "day", "hash"))

    assert behind.kept["group"] == {"shop": "a", "day": "2026-01-02T00:00:00.000+00:00", "hash": "0xff"}
