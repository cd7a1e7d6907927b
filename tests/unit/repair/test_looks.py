"""The second look: what is read, in which order and at which level, and what an answer that fails does."""

from collections.abc import Callable
from typing import Any

import pytest

from mailmend.cql.row_statements import Operation
from mailmend.model.catalog.mail import APPLICABLE_FLAG, FIRST_UNSEEN, IMAP_UID, MESSAGE_ID, MESSAGE_V3, MESSAGES
from mailmend.model.errors import MailmendError, WrongUse
from mailmend.model.operations import Level, Read
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.look import Look
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.mending.second_look import SecondLook
from tests.support.repairing import MAILBOX, World, message, mirror_row, mirror_suspect, place, truth_row
from tests.support.writing import Faults


@pytest.fixture
def world() -> World:
    """An empty mail keyspace with a run under way."""
    return World()


def watch(world: World) -> list[Operation]:
    """Everything that is asked of the mail from now on, in order: reads alone, as looking has it."""
    faults = Faults()
    world.memory.surround = faults
    return faults.seen


def looks(world: World, **policy: Any) -> SecondLook:
    """What looks again at the world."""
    return SecondLook(world.mail, world.families, world.policy(**policy), world.clock)


def seen(found: Look | MailmendError) -> Look:
    """A look that succeeded."""
    assert isinstance(found, Look)
    return found


class TestOrder:
    """What is read last is never older than what is read first (model-checked)."""

    def test_the_projection_comes_first_and_the_truth_last(self, world: World) -> None:
        """For a whole batch: a row that is projected in between cannot pass for one that lacks its truth."""
        suspects = [mirror_suspect(world.message(truth_row(number)), Verdict.AMEND) for number in range(1, 6)]
        reads = watch(world)

        looks(world).at(suspects)

        waves = [read.table.name for read in reads]
        assert waves == [MESSAGE_ID.name] * 5 + [MESSAGE_V3.name] * 5 + [IMAP_UID.name] * 5

    def test_a_look_reads_at_quorum_and_is_confirmed_by_the_truth_at_serial(self, world: World) -> None:
        """SERIAL finishes what a conditional write left open, but is a request for each row."""
        suspect = mirror_suspect(world.message(truth_row()), Verdict.AMEND)
        reads = watch(world)

        found = looks(world).at([suspect])
        assert {read.level for read in reads if isinstance(read, Read)} == {Level.QUORUM}
        reads.clear()
        assert looks(world).confirmed(found) == found

        assert [(read.table.name, read.level) for read in reads if isinstance(read, Read)] == [
            (IMAP_UID.name, Level.SERIAL)
        ]

    def test_only_what_is_about_to_be_written_is_confirmed(self, world: World) -> None:
        wrong, right = (world.message(truth_row(number)) for number in (1, 2))
        world.put(MESSAGE_ID, mirror_row(wrong, flagseen=True))
        suspects = [mirror_suspect(one, Verdict.AMEND) for one in (wrong, right)]
        reads = watch(world)

        world.revisit(suspects, run=None)
        assert not [read for read in reads if isinstance(read, Read) and read.level is Level.SERIAL]
        world.revisit(suspects)

        confirmed = [read.key for read in reads if isinstance(read, Read) and read.level is Level.SERIAL]
        assert confirmed == [(wrong["messageid"],)]

    def test_a_truth_that_shows_at_serial_only_keeps_its_projection(self, world: World) -> None:
        truth = truth_row()
        world.message(truth)
        hidden = world.memory.surround

        def undecided(operation: Operation, carry_out: Callable[[], Any]) -> Any:
            if isinstance(operation, Read) and operation.table is IMAP_UID and operation.level is Level.QUORUM:
                return []
            return hidden(operation, carry_out)

        world.memory.surround = undecided
        (found,) = world.revisit([mirror_suspect(truth, Verdict.WITHDRAW)])

        assert (found.verdict, found.result) == (Verdict.AGREE, None)
        assert world.get(MESSAGE_ID, place(truth)) is not None

    def test_where_nothing_is_conditional_nothing_is_confirmed(self, world: World) -> None:
        suspect = mirror_suspect(world.message(truth_row()), Verdict.AMEND)
        quiet = looks(world, serial=False)
        found = quiet.at([suspect])
        reads = watch(world)

        assert quiet.confirmed(found) == found

        assert not reads

    def test_a_union_that_says_what_it_lacks_needs_no_truth(self, world: World) -> None:
        """A union only grows: what it wanted once it may always be given."""
        reads = watch(world)
        wanted = {"userflags": frozenset({"x"})}

        (found,) = looks(world).at([Suspect("applicableFlag", (MAILBOX,), Verdict.PROJECT, wanted=wanted)])

        assert [read.table.name for read in reads] == [APPLICABLE_FLAG.name]
        assert seen(found).verdict is Verdict.PROJECT


class TestLeads:
    """Every known way to the truth is gone."""

    def test_a_projection_leads_to_another_truth_than_the_scan_saw(self, world: World) -> None:
        """Both are read: two truths of one place clash, whichever of them was known."""
        world.message(truth_row(1, uid=5))
        other = world.message(truth_row(2, uid=5), projected=False)

        (found,) = looks(world).at([mirror_suspect(other, Verdict.PROJECT)])

        assert {seen.row["messageid"] for seen in seen(found).truths} == {message(1), message(2)}
        assert seen(found).verdict is Verdict.CLASH

    def test_a_truth_that_moved_elsewhere_does_not_claim_the_place(self, world: World) -> None:
        """Same message, other uid."""
        world.put(IMAP_UID, truth_row(1, uid=9))
        world.put(MESSAGE_ID, mirror_row(truth_row(1, uid=5)))

        (found,) = looks(world).at([mirror_suspect(truth_row(1, uid=5), Verdict.WITHDRAW, known=False)])

        assert seen(found).truths == ()
        assert seen(found).verdict is Verdict.WITHDRAW
        assert not seen(found).last_trace

    def test_a_filter_finds_its_truth_through_the_mirror(self, world: World) -> None:
        """Its own row names no message."""
        truth = world.message(truth_row(1, flagseen=True))
        world.put(FIRST_UNSEEN, FIRST_UNSEEN.key_row(place(truth)))

        (found,) = looks(world).at([Suspect("firstUnseen", place(truth), Verdict.WITHDRAW)])

        assert [seen.row["messageid"] for seen in seen(found).truths] == [message(1)]

    def test_a_truth_that_no_key_leads_to_leaves_the_scans_verdict(self, world: World) -> None:
        """The scan saw a truth and said nothing of where: better blind than wrong."""
        (found,) = looks(world).at([mirror_suspect(truth_row(1), Verdict.PROJECT, known=False)])

        assert seen(found).blind

    def test_the_last_trace_of_a_message_is_reported(self, world: World) -> None:
        """Content stands, no truth of the message does anywhere; one in another mailbox is enough to be none."""
        lost, copied = truth_row(1), truth_row(2)
        for truth in (lost, copied):
            world.message(truth)
            world.remove(IMAP_UID, IMAP_UID.key_of(truth), at=world.as_of)
        world.put(IMAP_UID, truth_row(2, mailboxid=message(99), uid=50), at=world.as_of + 1)
        suspects = [mirror_suspect(truth, Verdict.WITHDRAW, known=False) for truth in (lost, copied)]

        assert [seen(found).last_trace for found in looks(world).at(suspects)] == [True, False]


class TestFailures:
    """One look that fails spoils no other."""

    @pytest.mark.parametrize("table", [MESSAGE_ID, MESSAGE_V3, IMAP_UID], ids=lambda table: table.name)
    def test_an_unanswered_read_stays_in_its_place(self, world: World, table: Any) -> None:
        """Whichever side it is: in order, with its reason, and nothing is guessed from the other sides."""
        truths = [world.message(truth_row(number)) for number in (1, 2, 3)]
        keys = {MESSAGE_ID.name: place(truths[1]), MESSAGE_V3.name: (message(2),), IMAP_UID.name: (message(2),)}
        world.fail_in_mail(
            lambda one: isinstance(one, Read) and one.table.name == table.name and one.key == keys[table.name]
        )

        first, second, third = looks(world).at([mirror_suspect(truth, Verdict.AMEND) for truth in truths])

        assert isinstance(second, MailmendError)
        assert [seen(one).verdict for one in (first, third)] == [Verdict.AGREE] * 2

    def test_a_projection_that_is_unknown_by_now_is_named(self, world: World) -> None:
        """A suspect of an older release's journal."""
        (found,) = looks(world).at([Suspect("longGone", (1,), Verdict.AMEND)])

        assert isinstance(found, WrongUse)
        assert "longGone" in str(found)

    def test_companions_that_cannot_be_read_are_an_error(self, world: World) -> None:
        """A truth row is only removed together with all that follows from it."""
        truth = world.message(truth_row())
        (found,) = looks(world).at([mirror_suspect(truth, Verdict.LOST_CONTENT)])
        world.fail_in_mail(lambda one: one.table.name == FIRST_UNSEEN.name)

        assert isinstance(looks(world).with_companions(seen(found)), MailmendError)


def test_counters_are_looked_at_elsewhere() -> None:
    """Everything else is looked at here, names that nobody knows included."""
    found = {
        one.name: SecondLook(World().mail, (MESSAGES,), World().policy(), World().clock) for one in MESSAGES.projections
    }
    visited = {name for name, look in found.items() if look.visits(Suspect(name, (), Verdict.AMEND))}

    assert set(found) - visited == {one.name for one in MESSAGES.counts}
