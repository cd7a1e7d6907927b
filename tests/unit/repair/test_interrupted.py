"""The sums of a run that was cut short: from its ledger, and where that says nothing yet, from the rows."""

import pytest

from mailmend.model.catalog.mail import FIRST_UNSEEN, MESSAGE_ID, MESSAGES
from mailmend.model.operations import Put, Seen
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.mending.runner import fix_shows, mended_so_far
from tests.support.repairing import MAILBOX, T, World, message, mirror_row, truth_row

OLD = Seen({"uid": 1}, {"modseq": T - 9})


def image(verdict: Verdict = Verdict.PROJECT, projected: Seen | None = None) -> Finding:
    return Finding(Suspect(MESSAGE_ID.spelling, (MAILBOX, 1), verdict, ((message(1),),)), verdict, projected=projected)


@pytest.mark.parametrize(
    ("before", "seen", "shows"),
    [
        (None, None, False),
        (None, OLD, True),
        (None, Seen({"uid": 1}, {}), True),
        (OLD, None, True),
        (OLD, OLD, False),
        (OLD, Seen({"uid": 1}, {"modseq": T}), True),
        (OLD, Seen({"uid": 1}, {"modseq": T + 1}), False),
    ],
)
def test_a_row_that_appeared_went_or_bears_the_runs_stamp_was_mended(
    before: Seen | None, seen: Seen | None, *, shows: bool
) -> None:
    assert fix_shows(image(projected=before), seen, T) is shows


def test_settled_fixes_count_as_they_stand_and_others_by_their_rows() -> None:
    """Of three images one is settled, one was written, one was not; the ledger then knows the second as well."""
    world = World()
    run = world.ledger.start("mail", "repair", T, {})
    names = [one.name for one in MESSAGES.projections]
    assert MESSAGE_ID.spelling in names
    images = [
        Finding(Suspect(MESSAGE_ID.spelling, (MAILBOX, uid), Verdict.PROJECT, ((message(uid),),)), Verdict.PROJECT)
        for uid in (1, 2, 3)
    ]
    beside = Finding(
        Suspect(FIRST_UNSEEN.spelling, (MAILBOX, 9), Verdict.LOST_CONTENT), Verdict.LOST_CONTENT, projected=OLD
    )
    world.ledger.record(run.id, T, [*images, beside])
    world.ledger.settle(run.id, [images[0].ended(Verdict.FIXED)])
    world.mail.write(Put(MESSAGE_ID, mirror_row(truth_row(2)), at=T))

    assert mended_so_far(world.ledger, run, world.mail, (MESSAGES,)) == {Verdict.PROJECT: 2}
    results = {one.suspect.key[1]: one.result for one in world.ledger.findings(run.id)}
    assert results == {1: Verdict.FIXED, 2: Verdict.FIXED, 3: None, 9: None}
