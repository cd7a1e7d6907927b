"""Taking back as laws: whatever was broken, mended and used since, undo gives back the old row or leaves the user's."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.catalog.mail import IMAP_UID, MESSAGE_ID, MESSAGES
from mailmend.model.ids import RunId
from mailmend.model.operations import Change, Put, Remove, Seen
from mailmend.model.projections.findings import Finding, Suspect, row_back
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Row
from mailmend.repair.mending.undo import UndoSettings, UndoTools, known_again, undo
from tests.support.clock import START
from tests.support.progress import SilentProgress
from tests.support.repairing import T, World, message, mirror_row, mirror_suspect, place, truth_row

DAMAGES: Sequence[str] = ("missing", "wrong", "stale")
USES: Sequence[str] = ("none", "flag", "remove", "rewrite", "truth")


def damaged(world: World, number: int, damage: str) -> tuple[Row, Suspect]:
    """A message that is not projected, projected wrongly, or projected without a truth."""
    truth = truth_row(number, userflags=frozenset({"a"}))
    match damage:
        case "missing":
            world.message(truth, projected=False)
            return truth, mirror_suspect(truth, Verdict.PROJECT)
        case "wrong":
            world.message(truth, projected=False)
            world.put(MESSAGE_ID, mirror_row(truth, modseq=0, flagseen=True, userflags=frozenset({"b"})))
            return truth, mirror_suspect(truth, Verdict.AMEND)
        case _:
            world.put(MESSAGE_ID, mirror_row(truth))
            return truth, mirror_suspect(truth, Verdict.WITHDRAW, known=False)


def use(world: World, truth: Row, how: str) -> None:
    """What a user does with the message after the run."""
    match how:
        case "flag":
            world.mail.write(Change(MESSAGE_ID, place(truth), assign={"flagflagged": True}, at=START))
        case "remove":
            world.mail.write(Remove(MESSAGE_ID, place(truth), at=START))
        case "rewrite":
            world.mail.write(Put(MESSAGE_ID, mirror_row(truth, modseq=77), at=START, clear=True))
        case "truth":
            world.mail.write(Put(IMAP_UID, {**truth, "modseq": 5}, at=START))
        case _:
            pass


def mirror(world: World, truth: Row) -> Row | None:
    """The mirror's row at the truth's place."""
    seen = world.get(MESSAGE_ID, place(truth))
    return seen.row if seen else None


def taken_back(world: World, run: RunId) -> RunId:
    """Undo a run; the run that this was."""
    tools = UndoTools(world.mail, world.ledger, world.clock, SilentProgress())
    summary = undo(UndoSettings(run, "mail", (MESSAGES,)), tools, lambda _: None)
    assert summary.failed == 0
    assert summary.run is not None
    return summary.run


messages = st.lists(st.tuples(st.sampled_from(DAMAGES), st.sampled_from(USES)), min_size=1, max_size=6)


@given(messages)
def test_undo_returns_the_old_row_or_leaves_the_users(stories: list[tuple[str, str]]) -> None:
    """Unused rows stand as they stood before the run; of used ones every cell that the user wrote stands as written."""
    world = World()
    rows = [damaged(world, number, damage) for number, (damage, _) in enumerate(stories, start=1)]
    broken = [mirror(world, truth) for truth, _ in rows]
    world.revisit([suspect for _, suspect in rows])
    for (truth, _), (_, how) in zip(rows, stories, strict=True):
        use(world, truth, how)
    used = [mirror(world, truth) for truth, _ in rows]

    taken_back(world, world.run)

    for (truth, _), (_, how), before, since in zip(rows, stories, broken, used, strict=True):
        assert mirror(world, truth) == (before if how == "none" else since)


@given(st.lists(st.sampled_from(DAMAGES), min_size=1, max_size=5), st.integers(1, 4))
def test_undo_and_redo_swing_between_two_states(stories: list[str], times: int) -> None:
    """However often: an even number of times gives the mended rows, an odd one the broken ones."""
    world = World()
    rows = [damaged(world, number, damage) for number, damage in enumerate(stories, start=1)]
    broken = [mirror(world, truth) for truth, _ in rows]
    world.revisit([suspect for _, suspect in rows])
    mended = [mirror(world, truth) for truth, _ in rows]

    run = world.run
    for _ in range(times):
        run = taken_back(world, run)

    assert [mirror(world, truth) for truth, _ in rows] == (broken if times % 2 else mended)


KEY = (message(1), 1)


@pytest.mark.parametrize(
    ("before", "now", "writes"),
    [
        (None, None, []),
        ({"modseq": (1, 5)}, {"modseq": (1, 5)}, []),
        (None, {"modseq": (1, T)}, ["Remove"]),
        ({"modseq": (1, 5)}, None, ["Put"]),
        ({"modseq": (1, 5)}, {"modseq": (2, T)}, ["Put"]),
        ({"modseq": (1, 5), "uid": (1, 5)}, {"modseq": (2, T), "uid": (1, 5)}, ["Put"]),
        (None, {"modseq": (1, T + 1)}, None),
        (None, {"modseq": (1, 5)}, None),
        ({"modseq": (1, 5)}, {"modseq": (2, 5)}, None),
        ({"modseq": (1, 5)}, {"modseq": (2, T), "flagseen": (True, T + 9)}, None),
        ({"modseq": (1, 5)}, {"modseq": (2, T), "flagseen": (True, 3)}, None),
    ],
)
def test_a_row_goes_back_only_where_every_cell_is_the_runs_or_as_it_was(
    before: Mapping[str, Any] | None, now: Mapping[str, Any] | None, writes: list[str] | None
) -> None:
    """A single cell of another time, younger or older, is somebody's use; the write lies just above the run's."""
    found = row_back(MESSAGE_ID, KEY, cells(before), cells(now), T)

    if writes is None:
        assert not isinstance(found, tuple)
    else:
        assert isinstance(found, tuple)
        assert [type(one).__name__ for one in found] == writes
        assert {getattr(one, "at", None) for one in found} <= {T + 1}


def cells(stories: Mapping[str, Any] | None) -> Seen | None:
    """A row of (value, time) cells, under the key."""
    if stories is None:
        return None
    row = MESSAGE_ID.key_row(KEY) | {name: value for name, (value, _) in stories.items()}
    return Seen(row, {name: at for name, (_, at) in stories.items()})


def test_an_image_leads_back_to_every_truth_that_it_tells_of() -> None:
    """By the scan, by the truths that were read, by the projection's row: each once, though its rows may be gone."""
    scanned, read, projected = (truth_row(number) for number in (1, 2, 3))
    suspect = mirror_suspect(scanned, Verdict.AMEND)
    image = Finding(suspect, Verdict.AMEND, truths=(Seen(read), Seen(scanned)), projected=Seen(mirror_row(projected)))

    known = known_again(image, MESSAGES.mirror)

    assert known.truth_keys == ((message(1),), (message(2),), (message(3),))
    assert (known.key, known.projection) == (suspect.key, suspect.projection)
