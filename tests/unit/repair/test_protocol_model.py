"""The protocol of repairs, explored: no order of events lets a repair harm what users wrote, unless a rule is broken.

The model (`tests.support.protocol`) runs the product's own code for writing, looking again, mending and undoing. Each
rule is shown to be needed: without the margin, with the recheck in the wrong order, or without reading back, the same
explorations find a story that goes wrong.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

import pytest

from mailmend.model.operations import Change, Lasting, Put
from mailmend.model.projections.findings import Finding
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.decisions import recheck
from mailmend.repair.mending import fixer
from mailmend.repair.mending.fixer import Mending
from tests.support.protocol import Setting, Story
from tests.support.protocol_stories import every_story, stories
from tests.support.thorough import first_of, share

STORIES = share(160)
"""Random stories of each setting from each seed: a few seconds for all of them in `make test`."""

MOST = 2_000
"""Stories with a broken rule, of which the first one that goes wrong is the last one that is told."""

DAMAGES = ("absent", "sound", "not projected", "amended", "stale", "filter missing", "filter stale")
FUTURE = ("hidden", "filter ahead", "mirror ahead")

RULES = Setting(users=("ours", "james"), skew=3, stamp_age=1, margin=5, delay=0)
"""B = 5 > S + A = 4, and no delay at all: safety must not come from waiting."""

DELETE = Setting(
    users=("james",), changes=("delete",), damages=("sound",), skew=1, stamp_age=0, margin=2, horizon=0, filters=False
)
"""Somebody deletes as James does, the truth and its projection in parallel, while a repair looks."""

INSERT = replace(DELETE, users=("ours",), changes=("insert",), damages=("absent",), margin=0)
"""Somebody inserts; only one change, so that the order of the recheck is all that protects it."""

EXHAUSTED = {
    "delete, scanned by the local engine": replace(DELETE, scan_in_order=True),
    "insert, scanned by the local engine": replace(INSERT, scan_in_order=True),
    "delete, scanned in any order": DELETE,
    "insert, scanned in any order": INSERT,
}
"""Small stories of which every one is told; those of a scan in any order, some thousands, in `make test-all`."""

SETTINGS = {
    "whole and absent": RULES,
    "both of us": replace(RULES, users=("ours", "ours")),
    "both of James": replace(RULES, users=("james", "james")),
    "damaged": replace(RULES, damages=DAMAGES),
    "stamps grow old": replace(RULES, stamp_age=4, margin=8, damages=DAMAGES),
    "clocks far ahead": replace(RULES, damages=FUTURE),
    "two repairs": replace(RULES, repairs=2, damages=DAMAGES),
    "with a delay": replace(RULES, delay=4, damages=DAMAGES),
    "three changes": replace(RULES, users=("ours", "james", "ours"), damages=("sound",)),
}


FLOOR = replace(RULES, users=("floor", "floor"), nodes=True, margin=8)
"""A floor is S old when it is taken, so that A is S + 1 = 4 here: B = 8 > S + A = 7."""

SETTINGS |= {
    "floors": FLOOR,
    "floors, damaged": replace(FLOOR, damages=DAMAGES),
    "floors beside read stamps": replace(FLOOR, users=("floor", "ours", "floor"), damages=("sound",)),
    "floors beside James": replace(FLOOR, users=("floor", "james")),
}

PLANNED = replace(RULES, repairs=0, plans=1, horizon=40)
"""A repair that is planned, and applied at once or long after, twice, perhaps killed in between, while users write."""

SETTINGS |= {
    "planned": replace(PLANNED, damages=DAMAGES),
    "planned, clocks far ahead": replace(PLANNED, damages=FUTURE),
    "planned, stamps grow old": replace(PLANNED, stamp_age=4, margin=8, damages=DAMAGES),
    "two plans beside a repair": replace(PLANNED, plans=2, repairs=1, damages=DAMAGES),
    "planned, three changes": replace(PLANNED, users=("ours", "james", "ours"), damages=("sound",)),
}

STAGED = replace(RULES, apart=10, horizon=40, damages=DAMAGES)
"""A scan that rests between its segments for longer than B, while users change what was read and what was not."""

SETTINGS |= {
    "segments hours apart": STAGED,
    "segments hours apart, clocks far ahead": replace(STAGED, damages=FUTURE),
    "a staged scan is killed and gone on with": replace(STAGED, attempts=3),
    "two staged scans, both of us": replace(STAGED, attempts=2, repairs=2, users=("ours", "ours")),
}

EXPIRING = replace(
    RULES, users=("ours", "james"), damages=DAMAGES, lives=(None, 3, 6), lifetime=5, skew=3, margin=6, horizon=20
)
"""Rows of the beginning expire, with or without a TTL of their own, while users write rows that expire too.

A tick is half a second: rows expire between the looks, between look and write, and between write and undo.
"""

SETTINGS |= {
    "rows expire": replace(EXPIRING, users=("ours",)),
    "rows expire, two repairs": replace(EXPIRING, users=(), repairs=2),
    "rows expire after a plan": replace(EXPIRING, users=("ours",), repairs=0, plans=1, horizon=40, lives=(None, 3, 12)),
}

WHOLE = {
    "rows expire, both users": EXPIRING,
    "rows expire, two repairs, both users": replace(EXPIRING, repairs=2),
    "rows expire without a default": replace(EXPIRING, users=(), lifetime=None, repairs=2),
    "rows expire, segments apart": replace(EXPIRING, apart=6, horizon=40, lives=(None, 6, 12)),
}
"""More settings, for `make test-all`."""

UNDONE = replace(EXPIRING, users=(), undo=True)
"""A repair is taken back by any host, sooner or later, and perhaps the undo is taken back too."""

ALONE = Setting(users=("ours",) * 3, skew=3, stamp_age=1, nodes=True, repairs=0, damages=("sound", "absent"))
"""Nobody repairs: whatever is wrong in the end our own writers did."""


def harmed(stories: Iterable[Story]) -> Story | None:
    """The first story in which a repair did harm."""
    return next((story for story in stories if story.harm), None)


def _without_expiry(write: Lasting, now: int) -> Lasting:
    return replace(write, expires_at=None) if isinstance(write, Put | Change) else write


def text(story: Story | None) -> str:
    """A story that can be read in a failure."""
    return "" if story is None else "\n".join(story.log)


class TestRules:
    """With every rule kept."""

    @pytest.mark.parametrize("name", first_of([*SETTINGS, *WHOLE], len(SETTINGS)))
    def test_no_story_at_random_ends_badly(self, name: str, story_seed: int) -> None:
        """No harm, nothing said to be fixed that is not, and one quiet repair converges."""
        for story in stories((SETTINGS | WHOLE)[name], STORIES, story_seed):
            assert not story.harm, text(story)
            assert not story.false_fixed, text(story)
            assert not story.unsettled, text(story)
            assert not [one.error for one in story.outcomes if one.error], text(story)
            assert not story.unapproved, text(story)
            assert not story.outlived, text(story)

    @pytest.mark.parametrize(
        "setting",
        [
            replace(RULES, lossy=True, damages=DAMAGES),
            replace(RULES, undo=True, repairs=2, users=("ours", "ours"), damages=DAMAGES),
        ],
        ids=["writes get lost or come twice", "repairs are taken back"],
    )
    def test_what_is_lost_or_taken_back_is_mended_by_a_quiet_run(self, setting: Setting, story_seed: int) -> None:
        """Such writes leave drift by themselves; the next run says the truth about it and mends it."""
        for story in stories(setting, STORIES, story_seed):
            assert not story.false_fixed, text(story)
            assert not story.unsettled, text(story)

    def test_no_undo_brings_back_what_has_expired(self, story_seed: int) -> None:
        """A row that is restored ends with its before-image, whenever it is restored."""
        for story in stories(UNDONE, 2 * STORIES, story_seed):
            assert not story.outlived, text(story)
            assert not story.unsettled, text(story)

    @pytest.mark.parametrize("name", first_of(EXHAUSTED, 2))
    def test_every_order_of_one_change_and_one_repair_is_harmless(self, name: str) -> None:
        """Exhaustively: all orders of a small story."""
        stories = list(every_story(EXHAUSTED[name], most=6000))

        assert text(harmed(stories)) == ""
        assert len(stories) > 100

    @pytest.mark.parametrize(
        "users", [("ours",) * 3, ("floor",) * 3, ("floor", "ours", "floor")], ids=["read back", "floor", "both"]
    )
    def test_our_own_writers_alone_leave_no_drift(self, users: tuple[str, ...], story_seed: int) -> None:
        """Three changes at once, with clocks of writers and nodes that differ, and writes that arrive in any order."""
        for story in stories(replace(ALONE, users=users), 4 * STORIES, story_seed):
            assert not story.drift, text(story)

    @pytest.mark.parametrize(
        "names", [("damaged", "clocks far ahead"), ("planned", "planned, clocks far ahead")], ids=["at once", "planned"]
    )
    def test_the_stories_are_worth_telling(self, names: tuple[str, str]) -> None:
        """Every kind of fix and of restraint occurs in them."""
        kinds = {(verdict, Verdict.FIXED) for verdict in (Verdict.PROJECT, Verdict.AMEND, Verdict.WITHDRAW)}
        kinds |= {(Verdict.PROJECT, Verdict.MOVED), (Verdict.WITHDRAW, Verdict.HIDDEN)}
        if "planned" not in names:  # what is ahead is not due, so no plan has it
            kinds.add((Verdict.WITHDRAW, Verdict.AHEAD))
        pairs = (stories(SETTINGS[name], 250) for name in names)
        for story in chain.from_iterable(zip(*pairs, strict=True)):
            kinds -= {(one.verdict, one.result) for one in story.outcomes}
            if not kinds:
                break

        assert kinds == set()


class TestBrokenRules:
    """With one rule broken, the same explorations find what it protects from."""

    def test_without_the_margin_a_deleted_message_comes_back(self) -> None:
        """T as of the scan by a fast clock: the projection outlives its truth."""
        story = harmed(every_story(replace(DELETE, margin=0, scan_in_order=True), most=6000))

        assert story is not None
        assert story.harm == {"messageIdTable": Verdict.WITHDRAW}

    def test_with_the_truth_read_first_an_insert_is_withdrawn(self) -> None:
        """The truth appears between the two reads, and its projection seems to have none."""
        story = harmed(every_story(replace(INSERT, variant="truth first"), most=6000))

        assert story is not None
        assert story.harm == {"messageIdTable": Verdict.PROJECT}

    def test_with_the_t_of_its_last_segment_a_staged_scan_takes_a_new_message_from_the_unseen(self) -> None:
        """Inserted after the truth was read, its mirror's row lost: nothing leads to its truth, only T spares it."""
        first = replace(STAGED, users=("ours",), changes=("insert",), damages=("absent",), lossy=True)

        late = harmed(stories(replace(first, variant="late T"), MOST))

        assert late is not None
        assert late.harm == {"firstUnseen": Verdict.PROJECT}
        assert text(harmed(stories(first, 2 * STORIES))) == ""

    def test_floors_that_believe_the_clocks_too_much_drift(self) -> None:
        """A stamp above the truth's own time outlives the change that follows."""
        setting = replace(ALONE, users=("floor",) * 3, believed=0)

        assert any(story.drift for story in stories(setting, MOST))

    def test_stamps_of_the_clock_drift(self) -> None:
        """Why they are not the default: the skew of clocks is enough."""
        assert any(story.drift for story in stories(replace(ALONE, users=("clock",) * 3), MOST))

    def test_floors_need_their_age_in_the_margin(self) -> None:
        """A margin that forgets that a floor is born S old lets a repair overwrite a newer change."""
        setting = replace(FLOOR, margin=RULES.margin, damages=DAMAGES)

        assert harmed(stories(setting, MOST)) is not None

    def test_a_plan_without_digests_does_what_nobody_approved(self) -> None:
        """T alone keeps users' writes; it does not keep a verdict from turning into another one."""
        setting = replace(SETTINGS["planned"], variant="no digests")

        assert any(story.unapproved for story in stories(setting, MOST))

    def test_a_plan_that_is_applied_as_of_now_harms(self) -> None:
        """Whoever applies it may have a fast clock: T is the plan's own, or lies before the looks of now."""
        setting = replace(PLANNED, damages=DAMAGES, variant="as of now")

        assert harmed(stories(setting, MOST)) is not None

    def test_fixes_that_do_not_expire_outlive_their_truth(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A fix without a TTL has the default one of its table, from now on."""
        monkeypatch.setattr(fixer, "lasting", _without_expiry)

        assert any(story.outlived for story in stories(replace(EXPIRING, users=()), MOST))

    def test_pairs_that_expire_about_now_must_not_be_mended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The truth is read last, and has expired where its projection had not."""
        monkeypatch.setattr(recheck, "_expires_now", lambda *_: False)

        assert harmed(stories(EXPIRING, MOST)) is not None

    def test_without_reading_back_hidden_fixes_pass_for_fixed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A tombstone or a key-only row from the future shows no time."""

        def believe(_: Mending, attempts: list[Finding]) -> list[Finding]:
            return attempts

        monkeypatch.setattr(Mending, "_read_back", believe)

        assert any(story.false_fixed for story in stories(SETTINGS["clocks far ahead"], MOST))
