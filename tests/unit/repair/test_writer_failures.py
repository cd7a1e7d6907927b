"""The store over tables in memory: what becomes of an operation when the world misbehaves."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mailmend.cql.row_statements import Operation
from mailmend.model.catalog.mail import (
    APPLICABLE_FLAG,
    FIRST_UNSEEN,
    IMAP_UID,
    MAILBOX_COUNTERS,
    MAILBOX_RECENTS,
    MESSAGE_DELETED,
    MESSAGE_ID,
    MESSAGES,
    MODSEQ,
)
from mailmend.model.errors import AccessDenied, CannotReach, Contended, DoubtfulWrite, MailmendError, TimedOut
from mailmend.model.ids import MessageId, ModSeq
from mailmend.model.operations import Change, ChangeIf, Count, Put, PutIfAbsent, Read, Remove, RemoveIf
from mailmend.repair.store.message import Stored
from mailmend.repair.store.writes import StampSource, WriterSettings
from tests.support.clock import START
from tests.support.writing import SEEN, Desk, change, mail, on

SILENCE = TimedOut("no answer")
DOUBT = DoubtfulWrite("no answer to a conditional write")
WAYS = pytest.mark.parametrize(
    "settings",
    [
        WriterSettings(),
        WriterSettings(stamp=StampSource.FLOOR),
        WriterSettings(stamp=StampSource.CLOCK),
        WriterSettings(strong=False),
    ],
    ids=["strong", "by floor", "by clock", "plain"],
)
DONE = pytest.mark.parametrize("done", [True, False], ids=["it happened", "it did not"])


def once(desk: Desk, kind: type[ChangeIf | RemoveIf], happen: Callable[[], Stored], *, after: bool = False) -> None:
    """Let another writer come before (or after) the next conditional write of the truth."""
    due = [happen]

    def interfere(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        if not (due and isinstance(operation, kind) and operation.table is IMAP_UID):
            return carry_out()
        other = due.pop()
        if not after:
            other()
            return carry_out()
        answer = carry_out()
        other()
        return answer

    desk.tables.surround = interfere


@pytest.mark.parametrize(
    "table", [MESSAGE_ID, FIRST_UNSEEN, MAILBOX_RECENTS, MESSAGE_DELETED, APPLICABLE_FLAG], ids=lambda one: one.spelling
)
def test_a_passing_failure_is_retried(desk: Desk, table: object) -> None:
    """Five failures in a row of any projection are overcome, with waits from 10 ms to 1 s."""
    desk.faults.fail(lambda one: one.table is table, SILENCE, times=5)
    stored = desk.store.add(desk.inbox, mail("one", r"\Recent", r"\Deleted", "work"))
    assert not stored.lagged
    assert desk.drift() == []
    assert len(desk.clock.slept) == 5
    assert all(0.010 <= wait <= 1.0 for wait in desk.clock.slept)


def test_flag_updates_and_deletes_are_retried_too(desk: Desk, stored: Stored) -> None:
    """James retries inserts only; here every projection write is."""
    desk.faults.fail(on(MESSAGE_ID, Put), SILENCE, times=3)
    assert not desk.store.set_flags(stored.place, SEEN).lagged
    desk.faults.fail(on(MESSAGE_ID, Remove), SILENCE, times=3)
    assert not desk.store.delete(stored.place).lagged
    assert desk.drift() == []


def test_what_outlives_its_retries_is_a_lag(desk: Desk) -> None:
    desk.faults.fail(on(MESSAGE_ID), SILENCE, times=6)
    stored = desk.store.add(desk.inbox, mail())
    assert stored.lagged
    (suspect,) = desk.lags.suspects
    assert (suspect.projection, suspect.key) == ("messageIdTable", (desk.inbox, stored.uid))
    assert suspect.truth_keys == ((stored.message_id,),)
    assert desk.lags.causes == [SILENCE.what]
    assert desk.drift() == ["messageIdTable PROJECT"]


def test_a_lag_that_nobody_takes_is_reported_to_the_caller(desk: Desk) -> None:
    one, two = desk.store.add_all(desk.inbox, [mail(), mail()])
    assert (one.lagged, one.journalled) == (False, True)
    desk.lags.full = True
    desk.faults.fail(on(MESSAGE_ID), AccessDenied("not yours"), times=5)

    flagged = desk.store.set_flags(one.place, SEEN)
    moved = desk.store.move(two.place, desk.archive)
    deleted = desk.store.delete(flagged.place)

    assert [(stored.lagged, stored.journalled) for stored in (flagged, moved, deleted)] == [(True, False)] * 3
    assert desk.lags.suspects == []


def test_one_half_of_a_move_that_nobody_took_note_of_is_enough(desk: Desk, stored: Stored) -> None:
    desk.faults.fail(on(MESSAGE_ID, Remove), AccessDenied("not yours"))
    desk.faults.fail(on(MESSAGE_ID, Put, Change), AccessDenied("not yours"))
    usual = desk.tables.surround

    def fill(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        desk.lags.full = desk.lags.full or isinstance(operation, RemoveIf)
        return usual(operation, carry_out)

    desk.tables.surround = fill
    moved = desk.store.move(stored.place, desk.archive)

    assert (moved.lagged, moved.journalled, len(desk.lags.suspects)) == (True, False, 1)


def test_a_doubtful_truth_that_nobody_takes_note_of_is_reported_with_the_error(desk: Desk) -> None:
    desk.lags.full = True
    desk.faults.doubt(on(IMAP_UID, PutIfAbsent), DOUBT, done=True)
    desk.faults.fail(lambda one: isinstance(one, Read) and one.table is IMAP_UID, SILENCE, times=6)

    with pytest.raises(CannotReach, match="mailmend check messages"):
        desk.store.add(desk.inbox, mail())


def test_a_refused_projection_is_a_lag_at_once(desk: Desk) -> None:
    desk.faults.fail(on(FIRST_UNSEEN), AccessDenied("not yours"))
    assert desk.store.add(desk.inbox, mail()).lagged
    assert desk.clock.slept == []
    assert desk.lags.names == {"firstUnseen"}


@DONE
def test_a_count_is_sent_once(desk: Desk, *, done: bool) -> None:
    desk.faults.doubt(on(MAILBOX_COUNTERS, Count), DOUBT, done=done)
    stored = desk.store.add(desk.inbox, mail())
    assert stored.lagged
    assert [(one.projection, one.key) for one in desk.lags.suspects] == [("mailboxCounters", (desk.inbox,))]
    assert sum(isinstance(one, Count) for one in desk.faults.seen) == 1
    assert desk.counters(desk.inbox) == ((1, 1) if done else (0, 0))


def test_a_batch_that_cannot_be_counted_lags_as_a_whole(desk: Desk) -> None:
    desk.faults.doubt(on(MAILBOX_COUNTERS, Count), DOUBT, done=False)
    assert all(one.lagged for one in desk.store.add_all(desk.inbox, [mail(), mail()]))


def test_a_failure_in_a_batch_keeps_the_others() -> None:
    desk = Desk(WriterSettings(threads=1))
    desk.faults.fail(on(IMAP_UID, PutIfAbsent), AccessDenied("not yours"))
    with pytest.raises(AccessDenied):
        desk.store.add_all(desk.inbox, [mail("one"), mail("two"), mail("three")])
    assert len(desk.rows(IMAP_UID)) == 2
    assert desk.drift() == []


@DONE
def test_a_doubtful_insert_is_settled(desk: Desk, *, done: bool) -> None:
    """A timed-out insert is asked about at SERIAL: there it is, or a new uid is taken; never twice in the mailbox."""
    desk.faults.doubt(on(IMAP_UID, PutIfAbsent), DOUBT, done=done)
    stored = desk.store.add(desk.inbox, mail())
    assert stored.uid == (1 if done else 2)
    assert len(desk.rows(IMAP_UID)) == 1
    assert desk.drift() == []


@DONE
def test_a_doubtful_flag_change_is_settled(desk: Desk, stored: Stored, *, done: bool) -> None:
    desk.faults.doubt(on(IMAP_UID, ChangeIf), DOUBT, done=done)
    flagged = desk.store.set_flags(stored.place, SEEN)
    assert flagged.modseq == (2 if done else 3)
    assert not flagged.lagged
    assert desk.counters(desk.inbox) == (1, 0)
    assert desk.drift() == []


def test_an_overtaken_doubtful_change_is_recounted(desk: Desk, stored: Stored) -> None:
    other = Desk(clock=desk.clock)
    other.store._tables = other.tables = desk.tables

    def overtake() -> None:
        current = desk.truth(stored.place)
        assert current is not None
        desk.tables.attempt(ChangeIf(IMAP_UID, stored.place.key, {"modseq": current["modseq"]}, {"modseq": 77}))

    desk.faults.doubt(on(IMAP_UID, ChangeIf), DOUBT, done=True, then=overtake)
    flagged = desk.store.set_flags(stored.place, SEEN)
    assert flagged.lagged
    assert desk.lags.names == {"mailboxCounters"}
    assert not any(word.startswith(("messageIdTable", "firstUnseen")) for word in desk.drift())


@DONE
def test_a_doubtful_delete_is_settled(desk: Desk, stored: Stored, *, done: bool) -> None:
    desk.faults.doubt(on(IMAP_UID, RemoveIf), DOUBT, done=done)
    deleted = desk.store.delete(stored.place)
    assert deleted.lagged is done
    assert desk.rows(IMAP_UID) == desk.rows(MESSAGE_ID) == desk.rows(FIRST_UNSEEN) == []
    assert desk.lags.names == ({"mailboxCounters"} if done else set())


def test_a_truth_write_without_any_answer_is_looked_at_later(desk: Desk) -> None:
    """When not even the SERIAL read answers, the caller gets the error, and every place is journalled."""
    desk.faults.doubt(on(IMAP_UID, PutIfAbsent), DOUBT, done=True)
    desk.faults.fail(lambda one: isinstance(one, Read) and one.table is IMAP_UID, SILENCE, times=6)
    with pytest.raises(CannotReach):
        desk.store.add(desk.inbox, mail())
    assert {"messageIdTable", "firstUnseen", "mailboxCounters"} <= desk.lags.names


def test_an_unreadable_stamp_makes_a_lag(desk: Desk, stored: Stored) -> None:

    def fail_reads() -> None:
        desk.faults.fail(lambda one: isinstance(one, Read) and one.table.name == IMAP_UID.name, SILENCE, times=6)

    def starts(operation: object) -> bool:
        if isinstance(operation, ChangeIf) and operation.table.name == IMAP_UID.name and not desk.faults.pending:
            fail_reads()
        return False

    desk.faults.pending.clear()
    original = desk.faults.__call__
    desk.tables.surround = lambda operation, carry_out: (starts(operation), original(operation, carry_out))[1]
    flagged = desk.store.set_flags(stored.place, SEEN)
    assert flagged.lagged
    assert desk.lags.names == {"messageIdTable", "firstUnseen", "mailboxCounters"}
    mirrored = desk.mirror(stored.place)
    assert mirrored is not None
    assert not mirrored["flagseen"]


def test_a_stamp_that_grew_old_is_never_sent(desk: Desk) -> None:
    """A writer that was held up past A journals a lag instead of writing under its old stamp (docs/design.md)."""

    def held_up(operation: object, carry_out: object) -> object:
        answer = desk.faults(operation, carry_out)  # type: ignore[arg-type]
        if isinstance(operation, PutIfAbsent) and operation.table.name == IMAP_UID.name:
            desk.clock.advance(30)
        return answer

    desk.tables.surround = held_up
    stored = desk.store.add(desk.inbox, mail())
    assert stored.lagged
    assert desk.rows(MESSAGE_ID) == []
    assert "messageIdTable" in desk.lags.names


def test_retries_end_before_the_stamp_is_too_old() -> None:
    desk = Desk(WriterSettings(stamp_age_seconds=10.1, write_seconds=10.0))
    desk.faults.fail(on(MESSAGE_ID), SILENCE, times=50)
    assert desk.store.add(desk.inbox, mail()).lagged
    assert desk.clock.micros() - START < 200_000


@WAYS
def test_a_later_writer_wins(settings: WriterSettings) -> None:
    desk = Desk(settings)
    stored = desk.store.add(desk.inbox, mail())
    late: list[Put | Change] = []

    def hold(operation: object, carry_out: object) -> object:
        if isinstance(operation, Put | Change) and operation.table is MESSAGE_ID and not late:
            late.append(operation)
            return None
        return carry_out()  # type: ignore[operator]

    desk.tables.surround = hold
    desk.store.set_flags(stored.place, SEEN)
    desk.store.set_flags(stored.place, change("replace", r"\Flagged"))
    desk.tables.write(late[0])
    assert desk.drift() == []


def test_another_writer_between_change_and_read_back_is_projected(desk: Desk, stored: Stored) -> None:
    once(desk, ChangeIf, lambda: desk.store.set_flags(stored.place, change("add", r"\Deleted")), after=True)
    desk.store.set_flags(stored.place, SEEN)
    row = desk.truth(stored.place)
    assert row is not None
    assert row["flagseen"]
    assert row["flagdeleted"]
    assert desk.drift() == []


def test_a_delete_between_change_and_read_back_stays_a_delete(desk: Desk, stored: Stored) -> None:
    once(desk, ChangeIf, lambda: desk.store.delete(stored.place), after=True)
    desk.store.set_flags(stored.place, SEEN)
    assert desk.rows(MESSAGE_ID) == desk.rows(FIRST_UNSEEN) == []
    assert desk.counters(desk.inbox) == (0, 0)


def test_a_lost_race_is_run_again(desk: Desk, stored: Stored) -> None:
    once(desk, ChangeIf, lambda: desk.store.set_flags(stored.place, change("add", "work")))
    desk.store.set_flags(stored.place, SEEN)
    row = desk.truth(stored.place)
    assert row is not None
    assert row["flagseen"]
    assert row["userflags"] == {"work"}
    assert desk.drift() == []


def test_endless_races_end() -> None:
    """A message that others change all the time makes an error, after a bounded number of rounds."""
    desk = Desk(WriterSettings(rounds_max=4))
    stored = desk.store.add(desk.inbox, mail())

    def interfere(operation: object, carry_out: object) -> object:
        if isinstance(operation, ChangeIf) and operation.table is IMAP_UID and operation.assign.get("modseq") != -1:
            expected = operation.expected["modseq"]
            desk.tables._attempt(ChangeIf(IMAP_UID, stored.place.key, {"modseq": expected}, {"modseq": expected + 100}))
        return carry_out()  # type: ignore[operator]

    desk.tables.surround = interfere
    with pytest.raises(Contended):
        desk.store.set_flags(stored.place, SEEN)


def test_a_hidden_insert_takes_a_new_uid(desk: Desk) -> None:
    whole = replace(mail(), message_id=MessageId(desk.clock.new_uuid()))
    assert whole.message_id is not None
    future = desk.clock.micros() + 3_600_000_000
    desk.tables.write(Remove(IMAP_UID, (whole.message_id, desk.inbox, 1), at=future))
    stored = desk.store.add(desk.inbox, whole)
    assert stored.uid == 2
    assert desk.drift() == []
    assert desk.counters(desk.inbox) == (1, 1)


def test_a_message_that_stays_hidden_is_said_so(desk: Desk) -> None:
    """James deletes all uids of a message in a mailbox at once; from the future, no uid helps, and that is said."""
    whole = replace(mail(), message_id=MessageId(desk.clock.new_uuid()))
    assert whole.message_id is not None
    future = desk.clock.micros() + 3_600_000_000
    desk.tables.write(Remove(IMAP_UID, (whole.message_id, desk.inbox), at=future))
    with pytest.raises(Contended, match="does not show"):
        desk.store.add(desk.inbox, whole)


def test_a_delete_is_stamped_past_all_that_was_seen(desk: Desk) -> None:
    ahead = Desk(clock=type(desk.clock)(desk.clock.micros() + 5_000_000))
    stored = ahead.store.add(desk.inbox, mail())
    ahead.tables._micros = desk.clock.micros  # the deleting client's clock is five seconds behind
    ahead.store._truth.clock = desk.clock  # type: ignore[misc]
    ahead.store.delete(stored.place)
    assert ahead.rows(MESSAGE_ID) == ahead.rows(FIRST_UNSEEN) == []


def test_a_move_that_fails_half_way_says_where_the_message_is(desk: Desk, stored: Stored) -> None:
    desk.faults.fail(on(IMAP_UID, RemoveIf), AccessDenied("not yours"))
    with pytest.raises(MailmendError) as caught:
        desk.store.move(stored.place, desk.archive)
    assert "both mailboxes" in caught.value.__notes__[0]
    assert len(desk.rows(IMAP_UID)) == 2
    assert desk.drift() == []


def test_a_move_of_what_others_took_keeps_the_copy(desk: Desk, stored: Stored) -> None:
    once(desk, RemoveIf, lambda: desk.store.delete(stored.place))
    moved = desk.store.move(stored.place, desk.archive)
    assert [row["mailboxid"] for row in desk.rows(IMAP_UID)] == [desk.archive]
    assert moved.mailbox_id == desk.archive


def test_rows_without_modseq_can_be_changed_and_not_brought_back(desk: Desk, stored: Stored) -> None:
    """A row from James without a modseq is guarded by another column: once deleted it stays so."""
    desk.tables.write(Change(IMAP_UID, stored.place.key, {"modseq": None}))
    flagged = desk.store.set_flags(stored.place, SEEN)
    assert flagged.modseq == ModSeq(2)
    guards = [one for one in desk.faults.seen if isinstance(one, ChangeIf) and one.table is IMAP_UID]
    assert len(guards[-1].expected) == 2
    assert desk.drift() == []


def test_completing_an_add_journals_what_may_be_missing(desk: Desk, stored: Stored) -> None:
    assert desk.store.complete(stored.message_id, desk.inbox)
    assert {"messageIdTable", "mailboxCounters"} <= desk.lags.names
    assert not desk.store.complete(stored.message_id, desk.archive)


def test_a_stored_answer_knows_its_place(desk: Desk, stored: Stored) -> None:
    assert isinstance(stored, Stored)
    assert stored.place.key == MESSAGES.truth.key_of(desk.rows(IMAP_UID)[0])
    assert desk.rows(MODSEQ)[0]["nextmodseq"] == stored.modseq
    desk.store.close()
