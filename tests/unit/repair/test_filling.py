"""`--torn fill`: a torn truth row gets from its content what it lacks, where its mirror row names it."""

from collections.abc import Callable
from typing import Any

import pytest

from mailmend.cql.row_statements import Operation
from mailmend.model.catalog.mail import IMAP_UID, MESSAGE_ID, MESSAGE_V3
from mailmend.model.instants import MICROS
from mailmend.model.operations import Change, ChangeIf, Put
from mailmend.model.projections.findings import Finding
from mailmend.model.projections.verdicts import Verdict, Why
from mailmend.model.table import Row
from mailmend.repair.decisions.recheck import reason_of
from tests.support.clock import START
from tests.support.repairing import LONG_AGO, World, mirror_row, mirror_suspect, place, truth_row

LACKING = ("internaldate", "bodystartoctet", "fullcontentoctets", "headercontent")
NULLS: dict[str, Any] = dict.fromkeys(LACKING)
WHOLE = truth_row(flagseen=True)
TORN = {**WHOLE, **NULLS}


def with_content(world: World, **columns: Any) -> None:
    """The message's content has the cells that the truth row lacks."""
    cells = {name: WHOLE[name] for name in LACKING}
    world.put(MESSAGE_V3, {"messageid": WHOLE["messageid"], **cells, **columns})


def filled(world: World, truth: Row = TORN) -> Finding:
    (found,) = world.revisit([mirror_suspect(truth, Verdict.TORN)], fill_torn=True)
    return found


def test_truth_and_mirror_get_what_the_content_has(world: World) -> None:
    world.message(TORN)
    with_content(world)

    found = filled(world)

    assert (found.verdict, found.result, found.error) == (Verdict.TORN, Verdict.FIXED, None)
    assert world.seen(IMAP_UID, IMAP_UID.key_of(WHOLE)).row == WHOLE
    assert world.seen(MESSAGE_ID, place(WHOLE)).row == mirror_row(WHOLE)


def test_a_cell_that_the_truth_has_stays_as_it_is(world: World) -> None:
    """Content is the same for all copies of a message; a copy's own cell is not replaced."""
    own = {**WHOLE, "internaldate": None, "headercontent": "2_2_other"}
    world.message(own)
    with_content(world)

    assert filled(world, own).result is Verdict.FIXED
    assert world.seen(IMAP_UID, IMAP_UID.key_of(own)).row == {**own, "internaldate": WHOLE["internaldate"]}


def test_nothing_is_filled_where_no_option_says_so(world: World) -> None:
    world.message(TORN)
    with_content(world)
    written = world.watch_writes()

    (found,) = world.revisit([mirror_suspect(TORN, Verdict.TORN)])

    assert (found.verdict, found.result, written) == (Verdict.TORN, None, [])


def no_mirror(world: World) -> None:
    world.remove(MESSAGE_ID, place(TORN), at=LONG_AGO + 1)


def half_a_mirror(world: World) -> None:
    """What a change of flags leaves behind that came after a delete."""
    no_mirror(world)
    world.mail.write(Change(MESSAGE_ID, place(TORN), {"flagseen": True, "modseq": 1}, at=LONG_AGO + 2))


def content_lacks_it(world: World) -> None:
    with_content(world, headercontent=None)
    world.mail.write(Change(MESSAGE_V3, (TORN["messageid"],), {"headercontent": None}, at=LONG_AGO + 1))


def no_modseq(world: World) -> None:
    """A cell that no content has."""
    world.mail.write(Change(IMAP_UID, IMAP_UID.key_of(TORN), {"modseq": None}, at=LONG_AGO + 1))


@pytest.mark.parametrize("happen", [no_mirror, half_a_mirror, content_lacks_it, no_modseq])
def test_a_row_that_may_be_the_rest_of_a_deleted_message_is_left_with_the_reason(
    world: World, happen: Callable[[World], None]
) -> None:
    world.message(TORN)
    with_content(world)
    happen(world)
    written = world.watch_writes()

    found = filled(world)

    policy = world.policy(fill_torn=True)
    reason = reason_of(found, policy, START, world.families[0].mirror)
    assert (found.verdict, found.result, written) == (Verdict.TORN, None, [])
    assert reason is not None
    assert reason.why is Why.NO_WHOLE_ROW


def test_a_row_that_its_writer_may_still_complete_is_left(world: World) -> None:
    young = {**truth_row(born=START - 3600 * MICROS), **NULLS}
    world.message(young)
    world.put(MESSAGE_V3, {**{name: WHOLE[name] for name in LACKING}, "messageid": young["messageid"]})

    found = filled(world, young)

    assert (found.verdict, found.result) == (Verdict.TORN, None)


def test_a_row_that_expires_is_left(world: World) -> None:
    """A filled cell would outlive the row."""
    world.message(TORN, projected=False)
    world.mail.write(Put(IMAP_UID, TORN, at=LONG_AGO + 1, ttl_seconds=10**9))
    world.project(TORN)
    with_content(world)

    assert filled(world).result is None


def test_a_truth_that_was_changed_after_t_has_moved(world: World) -> None:
    world.message(TORN, at=START - MICROS)
    with_content(world)

    assert filled(world).result is Verdict.MOVED


def test_a_change_just_before_the_fill_wins(world: World) -> None:
    world.message(TORN)
    with_content(world)

    def user_changes_first(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        if isinstance(operation, ChangeIf):
            world.memory.surround = lambda _, plain: plain()
            world.put(IMAP_UID, {**TORN, "modseq": 2, "flagflagged": True}, at=START)
        return carry_out()

    world.memory.surround = user_changes_first

    assert filled(world).result is Verdict.MOVED
    assert world.seen(MESSAGE_ID, place(TORN)).row == mirror_row(TORN)
