"""One message or mailbox at once, without any scan by Spark: over tables in memory."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from mailmend.model.catalog.mail import (
    APPLICABLE_FLAG,
    FIRST_UNSEEN,
    IMAP_UID,
    MAILBOX_COUNTERS,
    MAILBOX_PATH,
    MESSAGE_COUNTER,
    MESSAGE_DELETED,
    MESSAGE_ID,
    MESSAGE_V3,
    MESSAGES,
    PATHS,
)
from mailmend.model.errors import MailmendError, TimedOut, WrongUse
from mailmend.model.ids import MailboxId, MessageId
from mailmend.model.operations import Count, Read, Scan, Seen
from mailmend.model.ports import Tables
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Row
from mailmend.repair.mending.engine import RepairSettings
from mailmend.repair.mending.limits import BURST_SECONDS, Pace
from mailmend.repair.scanners import lookup as online
from mailmend.repair.scanners.lookup import (
    Target,
    Targeted,
    TargetMailboxes,
    TargetMessages,
    TargetSuspects,
    mailboxes_of,
)
from mailmend.repair.store.mailboxes import BadName
from tests.support.clock import uuid_at
from tests.support.progress import SilentProgress
from tests.support.repairing import LONG_AGO, MAILBOX, World, content_row, message, mirror_row, place, truth_row

HERE = TargetMailboxes((MailboxId(MAILBOX),))
SCANNED = TargetMailboxes((MailboxId(MAILBOX),), scan=True)
ELSEWHERE = uuid_at(77, 77)


def found(world: World, target: Target) -> TargetSuspects:
    """What a look at the target finds."""
    engine = Targeted(world.mail, world.ledger, world.clock, target)
    return engine.detect(RepairSettings("mail", (MESSAGES, PATHS)), SilentProgress())


def reported(detection: TargetSuspects) -> set[tuple[str, Any, Verdict]]:
    """Suspects as (projection, last part of the key, verdict)."""
    return {(one.projection, one.key[-1], one.verdict) for one in detection.suspects()}


def only(*numbers: int) -> TargetMessages:
    return TargetMessages(tuple(MessageId(message(number)) for number in numbers))


class TestMessages:
    """A message is exact: the truth is keyed by it."""

    def test_everything_that_follows_from_its_truths_is_found(self, world: World) -> None:
        truth = world.message(truth_row(1, userflags=frozenset({"x"}), flagdeleted=True), projected=False)
        world.message({**truth_row(1, uid=5), "mailboxid": ELSEWHERE})

        detection = found(world, only(1))

        assert reported(detection) == {
            ("messageIdTable", 1, Verdict.PROJECT),
            ("firstUnseen", 1, Verdict.PROJECT),
            ("messageDeleted", 1, Verdict.PROJECT),
            ("applicableFlag", MAILBOX, Verdict.PROJECT),
        }
        assert detection.counts["messageIdTable"] == {Verdict.PROJECT: 1}
        assert (truth["messageid"],) in next(detection.suspects()).truth_keys

    def test_a_sound_message_gives_nothing(self, world: World) -> None:
        world.message(truth_row(1))
        world.message(truth_row(2), projected=False)

        assert reported(found(world, only(1))) == set()

    def test_a_message_without_truth_is_a_leak(self, world: World) -> None:
        world.put(MESSAGE_V3, content_row(message(1)))

        assert reported(found(world, only(1))) == {("messageV3", message(1), Verdict.LEAK)}

    def test_what_is_found_is_mended_like_any_suspect(self, world: World) -> None:
        truth = world.message(truth_row(1, userflags=frozenset({"x"})), projected=False)

        outcomes = list(found(world, only(1)).revisit(world.policy(), SilentProgress()))

        assert {one.result for one in outcomes} == {Verdict.FIXED}
        assert world.get(MESSAGE_ID, place(truth)) is not None
        assert reported(found(world, only(1))) == set()

    def test_rows_that_name_it_without_any_truth_are_found_where_one_looks(self, world: World) -> None:
        world.message(truth_row(1))
        world.put(MESSAGE_ID, mirror_row(truth_row(1, uid=9)))
        world.put(MESSAGE_ID, mirror_row({**truth_row(1, uid=5), "mailboxid": ELSEWHERE}))
        world.put(MESSAGE_ID, mirror_row(truth_row(2)))
        target = only(1)

        here = replace(target, mailboxes=(MailboxId(MAILBOX),))
        everywhere = replace(target, scan=True)

        assert reported(found(world, target)) == set()
        assert reported(found(world, here)) == {("messageIdTable", 9, Verdict.WITHDRAW)}
        assert reported(found(world, everywhere)) == {
            ("messageIdTable", 9, Verdict.WITHDRAW),
            ("messageIdTable", 5, Verdict.WITHDRAW),
        }

    def test_such_a_row_is_withdrawn_and_the_sound_one_stays(self, world: World) -> None:
        truth = world.message(truth_row(1))
        world.put(MESSAGE_ID, mirror_row(truth_row(1, uid=9)))

        outcomes = found(world, replace(only(1), scan=True)).revisit(world.policy(), SilentProgress())

        assert [one.result for one in outcomes] == [Verdict.FIXED]
        assert world.get(MESSAGE_ID, (MAILBOX, 9)) is None
        assert world.get(MESSAGE_ID, place(truth)) is not None

    def test_what_it_cannot_see_is_said(self) -> None:
        assert "--scan" in (only(1).unseen() or "")
        assert "--mailbox" in (only(1).unseen() or "")
        assert "--mailbox" not in (replace(only(1), mailboxes=HERE.ids).unseen() or "--mailbox")
        assert replace(only(1), scan=True).unseen() is None
        assert "--scan" in (HERE.unseen(1) or "")
        assert HERE.unseen(0) is None

    def test_a_read_that_fails_ends_the_look(self, world: World) -> None:
        world.message(truth_row(1))
        world.fail_in_mail(lambda operation: operation.table.name == MESSAGE_ID.name)

        with pytest.raises(TimedOut):
            found(world, only(1))


class TestMailboxes:
    """A mailbox shows what its own partitions show."""

    def test_different_and_superfluous_rows_are_found_missing_ones_are_not(self, world: World) -> None:
        """AMEND and WITHDRAW; a truth that is not projected takes a scan."""
        damage(world)

        assert reported(found(world, HERE)) == {
            ("messageIdTable", 2, Verdict.AMEND),
            ("messageIdTable", 3, Verdict.WITHDRAW),
            ("firstUnseen", 3, Verdict.WITHDRAW),
            ("mailboxCounters", MAILBOX, Verdict.PROJECT),
        }

    def test_with_a_scan_missing_rows_are_found_too(self, world: World) -> None:
        damage(world)
        world.put(FIRST_UNSEEN, FIRST_UNSEEN.key_row((MAILBOX, 99)))

        assert reported(found(world, SCANNED)) == {
            ("messageIdTable", 1, Verdict.PROJECT),
            ("firstUnseen", 1, Verdict.PROJECT),
            ("messageIdTable", 2, Verdict.AMEND),
            ("messageIdTable", 3, Verdict.WITHDRAW),
            ("firstUnseen", 3, Verdict.WITHDRAW),
            ("firstUnseen", 99, Verdict.WITHDRAW),
            ("mailboxCounters", MAILBOX, Verdict.PROJECT),
        }

    @pytest.mark.parametrize(
        ("given", "shown", "halves", "gaps"),
        [
            (None, (), (), 0),
            (None, (1, 2, 3), (), 0),
            (None, (1, 3), (), 1),
            (3, (1, 2, 3), (), 0),
            (4, (1, 2, 3), (), 1),
            (9, (), (), 9),
            (3, (1, 2), (3,), 1),
        ],
    )
    def test_uids_that_were_given_and_that_no_row_shows_are_gaps(
        self, world: World, given: int | None, shown: Sequence[int], halves: Sequence[int], gaps: int
    ) -> None:
        """A message may stand there that only the truth knows; a row that names no message hides one as well."""
        for uid in shown:
            world.message(truth_row(uid))
        for uid in halves:
            world.put(MESSAGE_ID, {"mailboxid": MAILBOX, "uid": uid, "flagseen": True})
        if given is not None:
            world.put(MESSAGE_COUNTER, {"mailboxid": MAILBOX, "nextuid": given})

        assert (found(world, HERE).gaps, found(world, SCANNED).gaps) == (gaps, 0)

    def test_counters_that_fit_are_no_suspects(self, world: World) -> None:
        world.message(truth_row(1))
        world.mail.write(Count(MAILBOX_COUNTERS, (MAILBOX,), {"count": 1, "unseen": 1}))

        assert reported(found(world, SCANNED)) == set()

    def test_filters_follow_a_truth_that_was_found(self, world: World) -> None:
        wrong = world.message(truth_row(1, flagseen=True))
        world.put(FIRST_UNSEEN, FIRST_UNSEEN.key_row(place(wrong)))
        world.remove(MESSAGE_DELETED, place(wrong), at=LONG_AGO + 1)
        stale = truth_row(2)
        world.project(stale)

        assert reported(found(world, HERE)) == {
            ("firstUnseen", 1, Verdict.WITHDRAW),
            ("messageIdTable", 2, Verdict.WITHDRAW),
            ("firstUnseen", 2, Verdict.WITHDRAW),
            ("mailboxCounters", MAILBOX, Verdict.PROJECT),
        }

    def test_a_truth_under_another_projection_is_found_by_a_scan(self, world: World) -> None:
        world.message(truth_row(1, uid=5))
        world.put(MESSAGE_ID, mirror_row(truth_row(2, uid=5)), at=LONG_AGO + 1)

        assert ("messageIdTable", 5, Verdict.AMEND) in reported(found(world, SCANNED))
        assert not [one for one in reported(found(world, SCANNED)) if one[2] is Verdict.WITHDRAW]

    def test_two_truths_of_one_place_clash(self, world: World) -> None:
        world.message(truth_row(1, uid=5))
        world.message(truth_row(2, uid=5), projected=False)

        verdicts = {one[2] for one in reported(found(world, SCANNED)) if one[0] == "messageIdTable"}
        assert verdicts == {Verdict.CLASH}

    def test_user_flags_of_all_messages_are_wanted_together(self, world: World) -> None:
        for number in (1, 2):
            world.message(truth_row(number, userflags=frozenset({f"f{number}"})))

        (suspect,) = (one for one in found(world, HERE).suspects() if one.projection == APPLICABLE_FLAG.spelling)

        assert suspect.wanted == {"userflags": {"f1", "f2"}}

    def test_half_a_row_names_no_truth_and_is_left_without_a_scan(self, world: World) -> None:
        truth = world.message(truth_row(1), projected=False)
        world.put(MESSAGE_ID, {"mailboxid": MAILBOX, "uid": 1, "flagseen": True})
        world.put(FIRST_UNSEEN, FIRST_UNSEEN.key_row(place(truth)))
        world.mail.write(Count(MAILBOX_COUNTERS, (MAILBOX,), {"count": 1, "unseen": 1}))

        detection = found(world, HERE)
        left = list(detection.revisit(world.policy(all_truths=False), SilentProgress()))

        assert {(one.projection, one.verdict) for one in detection.suspects()} == {
            ("messageIdTable", Verdict.WITHDRAW),
            ("firstUnseen", Verdict.WITHDRAW),
            ("mailboxCounters", Verdict.AMEND),
        }
        assert [(one.verdict, one.result) for one in left] == [(Verdict.WITHDRAW, None)] * 2
        assert reported(found(world, SCANNED)) == {("messageIdTable", 1, Verdict.AMEND)}

    def test_what_was_read_is_counted(self, world: World) -> None:
        """In James's spelling of the tables."""
        world.message(truth_row(1))

        assert found(world, HERE).scanned == {"messageIdTable": 1, "firstUnseen": 1}
        assert found(world, SCANNED).scanned["imapUidTable"] == 1


class TestBounds:
    """A mailbox may be large: its rows pass through in pieces, and what looks wrong has a limit."""

    def test_a_large_mailbox_is_paged(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(online, "ROWS_AT_ONCE", 3)
        monkeypatch.setattr(online, "BATCH_SUSPECTS", 3)
        monkeypatch.setattr(online._FamilyLook, "_look_at_counters", lambda *_: None)  # they page by themselves
        for number in range(1, 11):
            world.project(truth_row(number))
        paging = Paging(world.mail)

        engine = Targeted(paging, world.ledger, world.clock, HERE)
        detection = engine.detect(RepairSettings("mail", (MESSAGES,)), SilentProgress())

        assert len([one for one in detection.suspects() if one.projection == "messageIdTable"]) == 10
        assert paging.drawn_ahead <= 3
        assert detection.scanned == {"messageIdTable": 10, "firstUnseen": 10}

    def test_too_many_suspects_end_the_look_with_what_to_type(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(online, "SUSPECTS_MAX", 3)
        for number in range(1, 5):
            world.project(truth_row(number))

        with pytest.raises(WrongUse, match="more than 3 rows"):
            found(world, HERE)

    def test_rows_come_no_faster_than_the_pace(self, world: World) -> None:
        """`--rows-per-second` holds for what is paged and for what is looked at."""
        for number in range(1, 21):
            world.message(truth_row(number))
        meter, tables = world.metered(), Pace(10, world.clock).over(world.mail)

        engine = Targeted(tables, world.ledger, world.clock, replace(only(1), scan=True))
        engine.detect(RepairSettings("mail", (MESSAGES,)), SilentProgress())

        assert sum(world.clock.slept) == pytest.approx(meter.rows / 10, abs=BURST_SECONDS)


class Paging:
    """Tables that notice how far a scan is read ahead of the reads by key that look at its rows."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._ahead = self.drawn_ahead = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tables, name)

    def read_all(self, reads: Sequence[Read]) -> list[Sequence[Seen] | MailmendError]:
        """The rows so far are being looked at."""
        self._ahead = 0
        return self._tables.read_all(reads)

    def scan(self, scan: Scan) -> Iterator[Row]:
        for row in self._tables.scan(scan):
            self._ahead += 1
            self.drawn_ahead = max(self.drawn_ahead, self._ahead)
            yield row


class TestUsers:
    """A user's mailboxes are those registered under the user's paths."""

    def test_all_mailboxes_of_a_user_are_named(self, world: World) -> None:
        register(world, "bob", ["INBOX", "Sent"])
        register(world, "eve", ["INBOX"])

        assert len(mailboxes_of(world.mail, "bob")) == 2

    def test_a_user_without_any_is_refused(self, world: World) -> None:
        register(world, "bob", ["INBOX"])
        with pytest.raises(WrongUse, match=r"'bobb' has no mailbox\nDid you mean 'bob'\?"):
            mailboxes_of(world.mail, "bobb")
        with pytest.raises(WrongUse, match="See which users have"):
            mailboxes_of(world.mail, "somebody.else")

    def test_users_are_named_in_any_case(self, world: World) -> None:
        """Also one whose path another program wrote in capitals: that mail can be mended, though James never asks."""
        register(world, "bob", ["INBOX"])
        register(world, "Bob", ["Sent"])

        assert (len(mailboxes_of(world.mail, "BOB")), len(mailboxes_of(world.mail, "Bob"))) == (1, 2)

    @pytest.mark.parametrize("user", ["", "a b", "a@b@c"])
    def test_users_that_james_cannot_know_are_refused(self, world: World, user: str) -> None:
        with pytest.raises(BadName):
            mailboxes_of(world.mail, user)


def damage(world: World) -> None:
    """One message not projected, one projected wrongly, one projected without truth; one sound elsewhere."""
    world.message(truth_row(1), projected=False)
    wrong = world.message(truth_row(2))
    world.put(MESSAGE_ID, mirror_row(wrong, modseq=9), at=LONG_AGO + 1)
    world.project(truth_row(3))
    world.put(IMAP_UID, {**truth_row(4), "mailboxid": ELSEWHERE})


def register(world: World, user: str, names: Iterable[str]) -> None:
    for number, name in enumerate(names):
        row = {"namespace": "#private", "user": user, "mailboxname": name, "mailboxid": uuid_at(5, number)}
        world.put(MAILBOX_PATH, row)
