"""Counters: mended only in a quiet moment, once, under a lease."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from mailmend.cql.memory import MemoryTables
from mailmend.cql.row_statements import Operation
from mailmend.model.catalog.mail import IMAP_UID
from mailmend.model.errors import DoubtfulWrite, NotEnoughReplicas
from mailmend.model.operations import Change, Count, Level, Read, Scan
from mailmend.model.projections.findings import Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.clock import Timing
from mailmend.repair.ledger.before_images import key_text
from mailmend.repair.ledger.leases import Leases, TakenLease
from mailmend.repair.mending.counters import GROUPS_AT_ONCE, LEASE_SECONDS
from tests.support.clock import START, uuid_at
from tests.support.counting import COUNTS, SUSPECT, Counting, three_messages
from tests.support.progress import SilentProgress
from tests.support.repairing import MAILBOX, mirror_suspect, truth_row
from tests.support.striking import Strike, of, passing
from tests.support.writing import LagList

GAP = Timing().look_gap_seconds


@pytest.fixture
def world() -> Counting:
    return three_messages(5, 1)


def test_counters_that_are_wrong_are_mended_by_one_delta(world: Counting) -> None:
    (outcome,) = world.mend()
    assert (outcome.verdict, outcome.result, outcome.error) == (Verdict.AMEND, Verdict.FIXED, None)
    assert world.counters() == (3, 2)
    assert sum(world.clock.slept) == GAP
    (recorded,) = world.ledger.findings(world.run)
    assert recorded == outcome
    assert recorded.projected is not None
    assert recorded.projected.row["count"] == 5


def test_a_missing_row_is_projected() -> None:
    world = Counting()
    world.message(truth_row(1))
    (outcome,) = world.mend()
    assert (outcome.verdict, outcome.result) == (Verdict.PROJECT, Verdict.FIXED)
    assert world.counters() == (1, 1)


def test_counters_that_settled_by_themselves_are_left() -> None:
    world = three_messages(3, 2)
    (outcome,) = world.mend()
    assert (outcome.verdict, outcome.result) == (Verdict.AGREE, None)
    assert list(world.ledger.findings(world.run)) == []
    assert world.clock.slept == []  # nothing to compare a second look with


@pytest.mark.parametrize(("changes", "confirmed"), [({}, 3), ({"run": None}, 0), ({"serial": False}, 0)])
def test_only_the_look_that_decides_a_delta_reads_the_truth_at_serial(changes: dict[str, Any], confirmed: int) -> None:
    world, reads = three_messages(5, 3), Strike(of(Read, IMAP_UID))
    world.surround(reads)
    world.mend(**changes)
    assert [one.level for one in reads.struck] == [Level.QUORUM] * (6 - confirmed) + [Level.SERIAL] * confirmed


def test_a_second_run_finds_nothing_more() -> None:
    world = three_messages(9, 9)
    world.mend()
    (again,) = world.mend()
    assert again.verdict is Verdict.AGREE
    assert world.counters() == (3, 2)


def test_a_message_that_arrives_between_the_looks_leaves_it_to_the_next_run(world: Counting) -> None:

    def arrive() -> None:
        world.message(truth_row(4), at=world.clock.micros())

    world.clock.meanwhile = arrive
    (outcome,) = world.mend()
    assert outcome.result is Verdict.MOVED
    assert world.counters() == (5, 1)


def test_a_flag_that_changes_back_and_forth_between_the_looks_is_noticed(world: Counting) -> None:
    row = truth_row(1)

    def flip() -> None:
        key = IMAP_UID.key_of(row)
        world.mail.write(Change(IMAP_UID, key, assign={"flagseen": False, "modseq": 1}, at=world.clock.micros()))

    world.clock.meanwhile = flip
    (outcome,) = world.mend()
    assert outcome.result is Verdict.MOVED


def test_an_increment_between_the_looks_leaves_it_to_the_next_run(world: Counting) -> None:
    world.clock.meanwhile = lambda: world.count(1, 0)
    (outcome,) = world.mend()
    assert outcome.result is Verdict.MOVED
    assert world.counters() == (6, 1)


def test_rows_that_do_not_agree_come_first(world: Counting) -> None:
    hidden = world.message(truth_row(4), projected=False)
    (outcome,) = world.mend(mirror_suspect(hidden, Verdict.PROJECT))
    assert (outcome.verdict, outcome.result) == (Verdict.AMEND, None)
    assert world.counters() == (5, 1)


def test_a_projection_without_truth_makes_the_counters_wait_too() -> None:
    world = three_messages(4, 3)
    world.project(truth_row(4))
    (outcome,) = world.mend()
    assert (outcome.verdict, outcome.result) == (Verdict.AMEND, None)
    assert world.counters() == (4, 3)


@pytest.mark.parametrize(("found", "becomes"), [((2, 1), (3, 2)), ((3, 2), (3, 2)), ((4, 3), (4, 3)), ((9, 9), (4, 3))])
def test_a_truth_without_content_may_be_counted_or_not(found: tuple[int, int], becomes: tuple[int, int]) -> None:
    world = three_messages(*found)
    lost = world.message(truth_row(4), projected=False, content=False)
    (outcome,) = world.mend(mirror_suspect(lost, Verdict.LOST_CONTENT))
    assert outcome.verdict is (Verdict.AGREE if found == becomes else Verdict.AMEND)
    assert world.counters() == becomes


def test_a_torn_truth_may_be_counted_or_not_unless_it_is_accepted() -> None:
    """`--torn accept` makes it a message like any other."""
    world = three_messages(3, 2)
    torn = world.message(truth_row(4, headercontent=None))
    assert world.mend(mirror_suspect(torn, Verdict.TORN))[0].verdict is Verdict.AGREE
    assert world.mend(accept_torn=True)[0].result is Verdict.FIXED
    assert world.counters() == (4, 3)


def test_other_mailboxes_of_the_same_message_are_not_counted() -> None:
    world = three_messages(4, 2)
    world.message(truth_row(1, mailboxid=uuid_at(START, 99), uid=7))
    assert world.mend()[0].result is Verdict.FIXED
    assert world.counters() == (3, 2)


def test_a_check_looks_twice_and_writes_nothing_at_all(world: Counting) -> None:
    written = world.watch_writes()
    (outcome,) = world.mend(run=None)
    assert (outcome.verdict, outcome.result, outcome.due) == (Verdict.AMEND, None, True)
    assert written == []


def test_what_was_not_asked_for_is_only_reported(world: Counting) -> None:
    """`--only WITHDRAW`."""
    (outcome,) = world.mend(only=frozenset({Verdict.WITHDRAW}))
    assert (outcome.verdict, outcome.result, outcome.due) == (Verdict.AMEND, None, False)
    assert world.counters() == (5, 1)


def test_many_mailboxes_share_one_wait() -> None:
    world = Counting()
    mailboxes = [uuid_at(START, 1000 + number) for number in range(GROUPS_AT_ONCE + 5)]
    for number, mailbox in enumerate(mailboxes):
        world.message(truth_row(number + 1, mailboxid=mailbox))
    suspects = [Suspect(COUNTS.name, (mailbox,), Verdict.PROJECT) for mailbox in mailboxes]
    outcomes = list(world.mender().revisit(lambda: iter(suspects), world.policy()))
    assert [outcome.result for outcome in outcomes] == [Verdict.FIXED] * len(mailboxes)
    assert sum(world.clock.slept) == 2 * GAP


def test_the_wait_between_two_looks_is_a_stage_that_says_for_what_and_how_long(world: Counting) -> None:
    progress = SilentProgress()

    list(world.mender().revisit(lambda: iter([SUSPECT]), world.policy(), progress=progress))

    assert progress.stages == {
        "waiting for writes under way before the second look at counters, in seconds": GAP,
        "second look at counters": None,
    }
    assert progress.steps == GAP


def test_without_writers_nobody_waits(world: Counting) -> None:
    (outcome,) = world.mender(Timing(no_writers=True)).revisit(lambda: [SUSPECT], world.policy())
    assert outcome.result is Verdict.FIXED
    assert sum(world.clock.slept) == 0


@pytest.mark.parametrize(
    ("no_writers", "writes", "looks"), [(True, False, 1), (True, True, 2), (False, False, 2)], ids=str
)
def test_who_writes_nothing_where_nobody_writes_looks_once(
    world: Counting, no_writers: bool, writes: bool, looks: int
) -> None:
    """And sees the same: what is wrong, by how much, and whether its rows agree."""
    asked, suspect = list[Operation](), replace(SUSPECT, wanted={"count": 3, "unseen": 2})

    def noted(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        asked.append(operation)
        return carry_out()

    world.surround(noted)
    policy = world.policy() if writes else world.policy(run=None)
    (outcome,) = world.mender(Timing(no_writers=no_writers)).revisit(lambda: [suspect], policy)

    assert sum(isinstance(one, Scan) for one in asked) == looks
    assert (outcome.verdict, outcome.suspect.wanted, outcome.due) == (
        Verdict.AMEND,
        {"count": 3, "unseen": 2},
        not writes,
    )
    world.project(truth_row(4))
    (waiting,) = world.mender(Timing(no_writers=no_writers)).revisit(lambda: [SUSPECT], world.policy(run=None))
    assert waiting.due is False


def test_two_mailboxes_are_looked_at_side_by_side() -> None:
    """While one waits for its answers, the other is summed up."""
    world, both = Counting(), threading.Barrier(2, timeout=10)
    mailboxes = [uuid_at(START, 1000 + number) for number in range(4)]
    for number, mailbox in enumerate(mailboxes):
        world.message(truth_row(number + 1, mailboxid=mailbox))

    def meeting(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        if isinstance(operation, Scan):
            both.wait()
        return carry_out()

    world.surround(meeting)
    suspects = [Suspect(COUNTS.name, (mailbox,), Verdict.PROJECT) for mailbox in mailboxes]
    found = world.mender().revisit(lambda: iter(suspects), world.policy(run=None))

    assert [(one.suspect.key, one.error) for one in found] == [((mailbox,), None) for mailbox in mailboxes]


def test_a_doubtful_count_is_sent_once_and_reported(world: Counting) -> None:
    counts = Strike(of(Count), DoubtfulWrite("no answer in time"), done=True)
    world.surround(counts)
    (outcome,) = world.mend()
    assert "may or may not" in (outcome.error or "")
    assert len(counts.struck) == 1
    (recorded,) = world.ledger.findings(world.run)
    assert recorded.error == outcome.error
    assert world.mend()[0].verdict is Verdict.AGREE
    assert len(counts.struck) == 1


@pytest.mark.parametrize(("full", "by"), [(False, "repair lags"), (True, "next check")])
def test_a_doubtful_count_is_journalled_for_a_recount(world: Counting, full: bool, by: str) -> None:
    """`repair lags` counts the mailbox again, once; where nobody could keep that, the next check does."""
    lags = LagList()
    lags.full = full

    world.lose_counts()
    (outcome,) = replace(world.mender(), lags=lags).revisit(lambda: [SUSPECT], world.policy())

    assert by in (outcome.error or "")
    assert lags.suspects == ([] if full else [SUSPECT])
    world.surround(passing)
    assert [one.result for one in world.mender().revisit(lambda: lags.suspects, world.policy())] == (
        [] if full else [Verdict.FIXED]
    )


def test_nothing_is_sent_when_its_before_image_is_not_safe(world: Counting) -> None:
    no_ledger = Strike(lambda one: "finding" in one.table.name, NotEnoughReplicas("two of three replicas are down"))
    cast("MemoryTables", world.ledger.tables).surround = no_ledger
    (outcome,) = world.mend()
    assert "before-image" in (outcome.error or "")
    assert world.counters() == (5, 1)


def test_a_mailbox_that_another_mends_is_left_to_it(world: Counting) -> None:
    """Two runs overshoot (docs/design.md, "Counters"): each mailbox has one mender at a time."""
    theirs = Leases(world.ledger.tables, world.clock, "them@there")
    name = f"counters mail {COUNTS.name} " + '[{"uuid":"' + str(MAILBOX) + '"}]'
    lease = replace(theirs, ttl_seconds=LEASE_SECONDS).acquire(name, "mending counters")
    (outcome,) = world.mend()
    assert "them@there" in (outcome.error or "")
    theirs.release(lease)
    assert world.mend()[0].result is Verdict.FIXED


def test_leases_are_given_back(world: Counting) -> None:
    world.mend()
    world.clock.meanwhile = lambda: world.count(1, 0)
    assert [outcome.error for outcome in (*world.mend(), *world.mend())] == [None, None]


def test_a_lost_lease_of_the_keyspace_stops_the_delta(world: Counting) -> None:
    held = TakenLease(world.leases.acquire("repair mail", "repair"), world.clock)
    world.clock.meanwhile = lambda: world.clock.advance(60)
    (outcome,) = world.mend(held=held)
    assert "repair mail" in (outcome.error or "")
    assert world.counters() == (5, 1)


def test_a_lease_lost_half_way_stops_before_the_next_delta() -> None:
    world, other = three_messages(5, 1), uuid_at(START, 99)
    world.count(7, 7, other)
    held = TakenLease(world.leases.acquire("repair mail", "repair"), world.clock)

    def lose() -> None:
        held.lost = NotEnoughReplicas("the heartbeat got no answer for a minute")

    world.surround(Strike(of(Count), then=lose))
    first, second = world.mend(Suspect(COUNTS.name, (other,), Verdict.AMEND), held=held)
    assert first.result is Verdict.FIXED
    assert "the heartbeat got no answer" in (second.error or "")
    assert (world.counters(), world.counters(other)) == ((3, 2), (7, 7))


def test_a_mailbox_that_cannot_be_read_stops_no_other(world: Counting) -> None:
    other, reads = uuid_at(START, 99), of(Read)
    broken = NotEnoughReplicas("two of three replicas are down")
    world.surround(Strike(lambda one: reads(one) and one.key == (MAILBOX,), broken))
    world.count(7, 7, other)
    first, second = world.mend(Suspect(COUNTS.name, (other,), Verdict.AMEND))
    assert first.error is not None
    assert second.result is Verdict.FIXED


def test_a_mailboxs_lease_that_was_taken_over_between_the_looks_stops_the_delta(world: Counting) -> None:
    theirs = replace(Leases(world.ledger.tables, world.clock, "them@there"), ttl_seconds=LEASE_SECONDS)
    name = f"counters mail {COUNTS.name} {key_text((MAILBOX,))}"

    def take_over() -> None:
        theirs.force_release(name, "it hangs")
        theirs.acquire(name, "mending counters")

    world.clock.meanwhile = take_over
    (outcome,) = world.mend()
    assert "them@there" in (outcome.error or "")
    assert world.counters() == (5, 1)


def test_a_lease_that_ran_out_between_the_looks_stops_the_delta(world: Counting) -> None:
    world.clock.meanwhile = lambda: world.clock.advance(LEASE_SECONDS)
    (outcome,) = world.mend()
    assert "held by nobody" in (outcome.error or "")
    assert world.counters() == (5, 1)


def test_leases_are_given_back_when_a_person_stops_the_wait(world: Counting) -> None:

    def interrupt() -> None:
        raise KeyboardInterrupt

    world.clock.meanwhile = interrupt
    with pytest.raises(KeyboardInterrupt):
        world.mend()
    world.clock.meanwhile = lambda: None
    assert world.mend()[0].result is Verdict.FIXED
