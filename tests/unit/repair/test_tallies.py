"""One look at a mailbox's counters: as a plain sum over its truth rows would have it, and comparable with the next."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.cql.memory import MemoryTables
from mailmend.cql.row_statements import Operation
from mailmend.model.catalog.mail import IMAP_UID, MAILBOX_COUNTERS, MESSAGE_ID, MESSAGE_V3, MESSAGES
from mailmend.model.errors import TimedOut
from mailmend.model.operations import Change, Count, Put, Read, Scan
from mailmend.repair.joins.records import Spill
from mailmend.repair.mending import counter_reads as tallies
from mailmend.repair.mending.counter_reads import Tallies, Tally
from tests.support.clock import START, uuid_at
from tests.support.repairing import MAILBOX, World, message, mirror_row, place, truth_row

COUNTS = MESSAGES.counts[0]
BESIDE = {(MAILBOX,): tuple((message(number),) for number in range(1, 8))}


@dataclass(frozen=True, slots=True)
class Letter:
    """A message as a mailbox may hold it."""

    seen: bool = False
    content: bool = True
    whole: bool = True
    projected: bool = True

    @property
    def doubtful(self) -> bool:
        """Whether it may be counted or not."""
        return not (self.content and self.whole)


LETTERS = st.lists(st.builds(Letter, st.booleans(), st.booleans(), st.booleans(), st.booleans()), max_size=7)


def mailbox_of(letters: list[Letter], counters: tuple[int, int] | None = None) -> World:
    """A mailbox of such letters, and what its counters say."""
    world = World()
    for number, letter in enumerate(letters, start=1):
        truth = truth_row(number, flagseen=letter.seen, headercontent="1_1_header" if letter.whole else None)
        world.message(truth, projected=letter.projected, content=letter.content)
    if counters is not None:
        world.mail.write(Count(MAILBOX_COUNTERS, (MAILBOX,), {"count": counters[0], "unseen": counters[1]}))
    return world


def look(world: World, letters: int = 7, *, accept_torn: bool = False) -> Tally:
    """A look that knows every truth, projected or not, as a scan would tell it."""
    beside = {group: leads[:letters] for group, leads in BESIDE.items()}
    return Tallies(world.mail, MESSAGES, COUNTS, world.policy(accept_torn=accept_torn), beside).look((MAILBOX,))


def asked_of(world: World) -> list[Any]:
    """Whatever is asked of the mail keyspace from now on."""
    asked = list[Any]()

    def noted(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        asked.append(operation)
        return carry_out()

    cast("MemoryTables", world.mail).surround = noted
    return asked


@given(LETTERS, st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)), st.booleans())
def test_a_look_sums_as_one_would_by_hand(
    letters: list[Letter], counters: tuple[int, int] | None, accept_torn: bool
) -> None:
    tally = look(mailbox_of(letters, counters), accept_torn=accept_torn)

    sure = [one for one in letters if one.content and (one.whole or accept_torn)]
    open_ = [one for one in letters if one not in sure]
    assert tally.sure == {"count": len(sure), "unseen": sum(not one.seen for one in sure)}
    assert tally.uncertain == {"count": len(open_), "unseen": sum(not one.seen for one in open_)}
    assert tuple(tally.counters.values()) == (counters or (0, 0))
    assert tally.settled == all(one.projected for one in sure)


@given(LETTERS, st.sets(st.integers(1, 9)), st.sets(st.integers(1, 9)), st.integers(0, 3))
def test_a_large_mailbox_is_summed_from_files_as_from_memory(
    letters: list[Letter], stale: set[int], twice: set[int], most: int
) -> None:
    world = mailbox_of(letters, (1, 1))
    for number in stale:
        world.put(MESSAGE_ID, mirror_row(truth_row(number, uid=number + 20)))
        world.put(MESSAGE_ID, {"mailboxid": MAILBOX, "uid": number + 40, "flagseen": True})
    for number in twice:
        world.message(truth_row(number, uid=number + 60))
    held = look(world)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tallies, "ROWS_MAX", most)
        patched.setattr(tallies, "Spill", partial(Spill, part_bytes_max=300))
        spilled, again = look(world), look(world)

    assert (spilled.sure, spilled.uncertain, spilled.settled) == (held.sure, held.uncertain, held.settled)
    assert spilled.same_as(again)


@given(LETTERS, st.booleans())
def test_a_look_that_does_not_compare_counts_the_same_from_fewer_cells(letters: list[Letter], spilled: bool) -> None:
    world = mailbox_of(letters, (1, 1))
    whole, asked = look(world), asked_of(world)
    with pytest.MonkeyPatch.context() as patched:
        if spilled:
            patched.setattr(tallies, "ROWS_MAX", 1)
            patched.setattr(tallies, "Spill", partial(Spill, part_bytes_max=300))
        few = Tallies(world.mail, MESSAGES, COUNTS, world.policy(), BESIDE).look((MAILBOX,), compare=False)

    assert few.same_as(whole)
    assert (few.sure, few.uncertain, few.settled) == (whole.sure, whole.uncertain, False)
    assert {one.table.name: one.columns for one in asked if one.table in (MESSAGE_ID, MESSAGE_V3, IMAP_UID)} == {
        "messageidtable": ("messageid",),
        "messagev3": (),
        "imapuidtable": ("modseq", "flagseen", "internaldate", "bodystartoctet", "fullcontentoctets", "headercontent"),
    }


@given(LETTERS, st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_a_first_look_reads_contents_only_where_they_could_change_the_deltas(
    letters: list[Letter], counters: tuple[int, int] | None
) -> None:
    world = mailbox_of(letters, counters)
    whole, asked = look(world), asked_of(world)
    first = Tallies(world.mail, MESSAGES, COUNTS, world.policy(), {}).first((MAILBOX,))
    known = {one.key[0] for one in asked if one.table is IMAP_UID}
    contents = sum(one.table is MESSAGE_V3 for one in asked)

    if all(letter.projected for letter in letters):
        assert (first.deltas, first.counters) == (whole.deltas, whole.counters)
    assert contents == (len(known) if first.contents else 0)
    whole_ones = [letter for letter in letters if letter.whole and letter.projected]
    most = (len(whole_ones), sum(not letter.seen for letter in whole_ones))
    assert first.contents == any(value < wanted for value, wanted in zip(counters or (0, 0), most, strict=True))


@pytest.mark.parametrize(("wanted", "looks"), [({}, 2), ({"count": 2, "unseen": 2}, 1), ({"count": 1}, 2)])
def test_what_a_scan_wanted_spares_a_second_reading(wanted: dict[str, int], looks: int) -> None:
    world = mailbox_of([Letter(), Letter()], (1, 1))
    asked = asked_of(world)
    tally = Tallies(world.mail, MESSAGES, COUNTS, world.policy(), {}).first((MAILBOX,), wanted)

    assert (tally.contents, tally.deltas) == (True, {"count": 1, "unseen": 1})
    assert sum(one.table is IMAP_UID for one in asked) == 2 * looks


def test_contents_of_truths_that_the_mirror_lacks_are_read_all_the_same() -> None:
    """Only so is a mailbox settled whose lost message is rightly not projected."""
    world = mailbox_of([Letter(), Letter(content=False, projected=False)], (3, 3))
    tally = Tallies(world.mail, MESSAGES, COUNTS, world.policy(), BESIDE).look((MAILBOX,), contents=False)

    assert (tally.settled, tally.deltas) == (True, {"count": -1, "unseen": -1})


@given(LETTERS)
def test_two_looks_at_the_same_mailbox_are_the_same(letters: list[Letter]) -> None:
    world = mailbox_of(letters, (0, 0))
    first, second = look(world), look(world, letters=len(letters))

    assert first.same_as(second)
    world.mail.write(Count(MAILBOX_COUNTERS, (MAILBOX,), dict.fromkeys(first.sure, 0) | first.deltas))
    assert look(world).deltas == {}


@pytest.mark.parametrize("change", ["arrives", "leaves", "is flagged", "is rewritten as it was", "loses its content"])
def test_any_change_of_the_truth_shows_between_two_looks(change: str) -> None:
    world = mailbox_of([Letter(), Letter()], (2, 2))
    before = look(world)
    truth, now = truth_row(1), START
    match change:
        case "arrives":
            world.message(truth_row(3), at=now)
        case "leaves":
            world.remove(IMAP_UID, IMAP_UID.key_of(truth), at=now)
        case "is flagged":
            world.mail.write(Change(IMAP_UID, IMAP_UID.key_of(truth), assign={"flagflagged": True}, at=now))
        case "is rewritten as it was":
            world.mail.write(Put(IMAP_UID, truth, at=now))
        case _:
            world.remove(MESSAGE_V3, (truth["messageid"],), at=now)

    assert not before.same_as(look(world))


def test_a_row_that_differs_or_dangles_keeps_a_mailbox_unsettled() -> None:
    agreeing, differing, dangling = mailbox_of([Letter()]), mailbox_of([Letter()]), mailbox_of([Letter()])
    differing.put(MESSAGE_ID, mirror_row(truth_row(1), modseq=9), at=START)
    dangling.project(truth_row(5))

    assert [look(one).settled for one in (agreeing, differing, dangling)] == [True, False, False]


def test_only_the_mailboxs_own_rows_are_counted() -> None:
    world = mailbox_of([Letter()])
    world.put(IMAP_UID, truth_row(1, mailboxid=uuid_at(START, 99), uid=4))
    world.put(IMAP_UID, truth_row(1, uid=8))

    assert look(world).sure == {"count": 2, "unseen": 2}


@pytest.mark.parametrize("table", [MAILBOX_COUNTERS, MESSAGE_ID, MESSAGE_V3, IMAP_UID], ids=lambda table: table.name)
def test_a_look_that_is_not_whole_is_none(table: object) -> None:
    world = mailbox_of([Letter(), Letter()])
    world.fail_in_mail(lambda one: isinstance(one, Read | Scan) and one.table is table)

    with pytest.raises(TimedOut):
        look(world)


def test_a_half_written_row_leads_nowhere_and_is_not_settled() -> None:
    world = mailbox_of([Letter()])
    world.put(MESSAGE_ID, {"mailboxid": MAILBOX, "uid": 9, "flagseen": True})

    tally = look(world)

    assert (tally.sure["count"], tally.settled) == (1, False)
    assert world.get(MESSAGE_ID, place(truth_row(9))) is not None
