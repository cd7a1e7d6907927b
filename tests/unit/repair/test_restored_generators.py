"""A generator that is behind, as after its table was restored from a backup: no number in use is given out again."""

from dataclasses import replace

import pytest

from mailmend.model.catalog.mail import IMAP_UID, MESSAGE_COUNTER, MESSAGE_ID, MODSEQ
from mailmend.model.errors import Contended
from mailmend.model.ids import MessageId
from mailmend.model.operations import Change, Put, Read, Remove
from mailmend.repair.store.message import Stored
from mailmend.repair.store.writes import WriterSettings
from tests.support.writing import SEEN, Desk, change, mail

SEEN_NO_MORE = change("remove", r"\Seen")
STRONG_OR_PLAIN = pytest.mark.parametrize("strong", [True, False], ids=["strong", "plain"])


def restored(desk: Desk, uid: int | None = None, modseq: int | None = None) -> None:
    """Set the inbox's generators back, as of the clock: what a restored backup does to whoever writes next."""
    for table, column, number in ((MESSAGE_COUNTER, "nextuid", uid), (MODSEQ, "nextmodseq", modseq)):
        if number == 0:
            desk.tables.write(Remove(table, (desk.inbox,)))
        elif number is not None:
            desk.tables.write(Change(table, (desk.inbox,), {column: number}))


def generator(desk: Desk, table: object) -> int:
    (seen,) = desk.tables.read(Read(table, (desk.inbox,)))  # type: ignore[arg-type]
    (column,) = (name for name in seen.row if name != "mailboxid")
    number: int = seen.row[column]
    return number


def filled(desk: Desk, number: int = 8) -> list[Stored]:
    return desk.store.add_all(desk.inbox, [mail(f"old {place}") for place in range(number)])


def subjects(desk: Desk) -> dict[int, bytes]:
    """The content of each message that the mirror shows, by uid."""
    rows = [row for row in desk.rows(MESSAGE_ID) if row["mailboxid"] == desk.inbox]
    return {row["uid"]: desk.store.content(row["messageid"]) for row in rows}


@STRONG_OR_PLAIN
@pytest.mark.parametrize("uid", [0, 1, 5, 7])
@pytest.mark.parametrize("fresh", [True, False], ids=["a new process", "the same process"])
def test_a_uid_that_exists_is_not_given_again(uid: int, *, strong: bool, fresh: bool) -> None:
    desk = Desk(WriterSettings(strong=strong))
    before = filled(desk)
    contents = subjects(desk)
    restored(desk, uid=uid)
    if fresh:
        desk.restart()

    added = desk.store.add_all(desk.inbox, [mail("new 1"), mail("new 2")])

    assert [one.uid for one in added] == [9, 10]
    assert generator(desk, MESSAGE_COUNTER) == 10
    assert {uid: content for uid, content in subjects(desk).items() if uid <= len(before)} == contents
    assert desk.drift() == []


def test_a_uid_of_a_deleted_message_below_the_highest_is_not_given_again() -> None:
    desk = Desk()
    *_, gone, _, _ = filled(desk)
    desk.store.delete(gone.place)
    restored(desk, uid=gone.uid - 1)
    desk.restart()

    assert desk.store.add(desk.inbox, mail()).uid == 9


def test_a_place_that_is_taken_although_the_generator_said_otherwise_is_left_alone() -> None:
    """The generator was set back to exactly the number that this process took last."""
    desk = Desk()
    filled(desk)
    other = {"mailboxid": desk.inbox, "uid": 9, "messageid": desk.clock.new_uuid(), "modseq": 7}
    desk.tables.write(Put(MESSAGE_ID, other))

    added = desk.store.add(desk.inbox, mail("new"))

    assert added.uid == 10
    (seen,) = desk.tables.read(Read(MESSAGE_ID, (desk.inbox, 9)))
    assert (seen.row["messageid"], seen.row["modseq"]) == (other["messageid"], 7)


def test_a_half_written_row_takes_its_place_too() -> None:
    desk = Desk()
    desk.tables.write(Change(MESSAGE_ID, (desk.inbox, 3), {"flagseen": True}))

    assert desk.store.add(desk.inbox, mail()).uid == 4


def test_a_place_of_the_same_message_is_free_for_it() -> None:
    """A retry of an add whose mirror row is there: the message is no stranger at its own place."""
    desk = Desk()
    *_, last = filled(desk)
    message_id = MessageId(desk.clock.new_uuid())
    desk.tables.write(Put(MESSAGE_ID, {"mailboxid": desk.inbox, "uid": last.uid + 1, "messageid": message_id}, at=1))

    added = desk.store.add(desk.inbox, replace(mail(), message_id=message_id))

    assert added.uid == last.uid + 1
    assert desk.drift() == []


def test_a_copy_gets_a_uid_above_all_of_its_mailbox() -> None:
    desk = Desk()
    filled(desk)
    source = desk.store.add(desk.archive, mail("copied"))
    restored(desk, uid=2)
    desk.restart()

    assert desk.store.copy(source.place, desk.inbox).uid == 9


@STRONG_OR_PLAIN
def test_a_modseq_that_exists_is_not_given_again(*, strong: bool) -> None:
    desk = Desk(WriterSettings(strong=strong))
    *_, last = filled(desk, 3)
    for _ in range(4):
        last = desk.store.set_flags(last.place, SEEN)
        last = desk.store.set_flags(last.place, SEEN_NO_MORE)
    highest = last.modseq
    restored(desk, modseq=1)
    desk.restart()

    added = desk.store.add(desk.inbox, mail("new"))

    assert added.modseq == highest + 1
    assert generator(desk, MODSEQ) == highest + 1


def test_flags_get_a_modseq_above_that_of_their_message() -> None:
    desk = Desk()
    first, *_ = filled(desk, 3)
    for flags in (SEEN, SEEN_NO_MORE, SEEN, SEEN_NO_MORE):
        first = desk.store.set_flags(first.place, flags)
    restored(desk, modseq=1)
    desk.restart()

    assert desk.store.set_flags(first.place, SEEN).modseq == first.modseq + 1


def test_places_that_stay_taken_end_in_words() -> None:
    """Nothing of another message is overwritten, however often the place turns out to be taken."""
    desk = Desk(WriterSettings(numbers_max=3))
    usual = desk.tables.surround

    def always_taken(operation: object, carry_out: object) -> object:
        if isinstance(operation, Read) and operation.table.name == MESSAGE_ID.name and operation.among:
            stranger = {"mailboxid": desk.inbox, "uid": operation.among[0], "messageid": desk.clock.new_uuid()}
            desk.tables._put(MESSAGE_ID, stranger, desk.clock.micros(), None, clear=False)
        return usual(operation, carry_out)  # type: ignore[arg-type]

    desk.tables.surround = always_taken
    with pytest.raises(Contended, match="under any of 3 uids"):
        desk.store.add(desk.inbox, mail())
    assert desk.rows(IMAP_UID) == []
