"""What a second look leads to, kind by kind: exactly these writes, under exactly these conditions, and nothing else."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from mailmend.model.catalog.mail import APPLICABLE_FLAG, FIRST_UNSEEN, IMAP_UID, MESSAGE_ID, MESSAGE_V3, MESSAGES, PATHS
from mailmend.model.operations import Change, Put, PutIfAbsent, Remove, Seen, Write
from mailmend.model.projections.findings import Finding, RepairPolicy, Suspect, exactly
from mailmend.model.projections.look import Look
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.verdicts import MENDABLE, Verdict, older_than_a_day
from mailmend.model.table import Key, Row
from mailmend.repair.decisions.recheck import fixed_at, judge, rule
from tests.support.clock import START, uuid_at
from tests.support.repairing import LONG_AGO, MAILBOX, T, World, content_row, mirror_row, place, truth_row

MIRROR, UNSEEN, LABELS, COUNTS, CONTENT = (
    MESSAGES.mirror,
    MESSAGES.filters[0],
    MESSAGES.unions[0],
    MESSAGES.counts[0],
    MESSAGES.content,
)
POLICY = RepairPolicy(World().run, T, 5.0, MENDABLE)
DRY = replace(POLICY, run=None)
TRUTH = truth_row(1, userflags=frozenset({"a", "b"}))
PLACE = place(TRUTH)
DAY_MICROS = 86_400_000_000
AHEAD = START + 6_000_000
"""Beyond the skew of 5 s: no honest clock wrote that."""


def seen(row: Row, at: int = LONG_AGO) -> Seen:
    """A row as it was read: written at one time, but for what is key in either table."""
    return Seen(row, {name: at for name, cell in row.items() if cell is not None and name not in {"mailboxid", "uid"}})


def look(kind: Projection | None, scanned: Verdict, key: Key, *truths: Row, at: int = LONG_AGO, **fields: Any) -> Look:
    """A suspect of that kind, with the truth rows that were found."""
    assert kind is not None
    suspect = Suspect(kind.name, key, scanned)
    return Look(
        suspect, MESSAGES.mirror, MESSAGES.content, kind, truths=tuple(seen(truth, at) for truth in truths), **fields
    )


def at_mirror(*truths: Row, projected: Row | None = None, at: int = LONG_AGO, **fields: Any) -> Look:
    """A look at the mirror."""
    row = seen(projected, at) if projected else None
    return look(MIRROR, Verdict.AMEND, PLACE, *truths, at=at, projected=row, **fields)


def unfit(**fields: Any) -> Look:
    """A truth without its content; nobody has touched it for long."""
    return at_mirror(TRUTH, projected=mirror_row(TRUTH), has_content=False, **fields)


LACKING = at_mirror(TRUTH)
WRONG = at_mirror(TRUTH, projected=mirror_row(TRUTH, modseq=9))
STALE = at_mirror(projected=mirror_row(TRUTH))
HELD = seen({"mailboxid": MAILBOX, "userflags": frozenset({"b", "c"})})
LISTED = Seen(UNSEEN.table.key_row(PLACE))
PATH = Seen({"namespace": "#private", "user": "u", "mailboxname": "INBOX", "mailboxid": MAILBOX, "uidvalidity": 1})
SPILT = look(CONTENT, Verdict.LEAK, (TRUTH["messageid"],), projected=seen(content_row(TRUTH["messageid"])))
MIRRORED = Put(MESSAGE_ID, mirror_row(TRUTH), at=T, clear=True)

FIXES: list[tuple[str, Look, Verdict, Write]] = [
    ("mirror lacks it", LACKING, Verdict.PROJECT, MIRRORED),
    ("mirror differs", WRONG, Verdict.AMEND, MIRRORED),
    ("mirror has too much", STALE, Verdict.WITHDRAW, Remove(MESSAGE_ID, PLACE, at=T)),
    (
        "filter lacks it",
        look(UNSEEN, Verdict.PROJECT, PLACE, TRUTH),
        Verdict.PROJECT,
        Put(FIRST_UNSEEN, {"mailboxid": MAILBOX, "uid": 1}, at=T),
    ),
    (
        "filter has too much",
        look(UNSEEN, Verdict.WITHDRAW, PLACE, projected=LISTED),
        Verdict.WITHDRAW,
        Remove(FIRST_UNSEEN, PLACE, at=T),
    ),
    (
        "union lacks its row",
        look(LABELS, Verdict.PROJECT, (MAILBOX,), TRUTH),
        Verdict.PROJECT,
        Change(APPLICABLE_FLAG, (MAILBOX,), add={"userflags": frozenset({"a", "b"})}, at=T),
    ),
    (
        "union lacks an element",
        look(LABELS, Verdict.AMEND, (MAILBOX,), TRUTH, projected=HELD),
        Verdict.AMEND,
        Change(APPLICABLE_FLAG, (MAILBOX,), add={"userflags": frozenset({"a"})}, at=T),
    ),
]


NAMES = [name for name, *_ in FIXES]


@pytest.mark.parametrize(("found", "verdict", "write"), [fix[1:] for fix in FIXES], ids=NAMES)
def test_a_run_writes_what_mends_it_as_of_t(found: Look, verdict: Verdict, write: Write) -> None:
    """One write, and both sides beside it as they were seen; a dry run says that it would, and has nothing to write."""
    mended = Finding(found.suspect, verdict, truths=found.truths, projected=found.projected, writes=(write,))
    assert rule(found, POLICY, START) == mended
    assert rule(found, DRY, START) == replace(mended, writes=(), due=True)


@pytest.mark.parametrize(("found", "verdict"), [fix[1:3] for fix in FIXES], ids=NAMES)
def test_only_what_is_asked_for_is_mended(found: Look, verdict: Verdict) -> None:
    """`--only` with another verdict leaves it, also one that nothing mends."""
    for other in (*(MENDABLE - {verdict}), Verdict.CLASH):
        ruled = rule(found, replace(POLICY, only=frozenset({other})), START)
        assert (ruled.verdict, ruled.due, ruled.changes) == (verdict, False, ())


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (at_mirror(TRUTH, TRUTH), Verdict.CLASH),
        (at_mirror(TRUTH, whole=False), Verdict.TORN),
        (unfit(), Verdict.LOST_CONTENT),
        (SPILT, Verdict.LEAK),
        (look(COUNTS, Verdict.AMEND, (MAILBOX,), TRUTH), Verdict.PROJECT),
        (at_mirror(TRUTH, projected=mirror_row(TRUTH)), Verdict.AGREE),
        (
            Look(
                Suspect(PATHS.mirror.name, (MAILBOX,), Verdict.WITHDRAW),
                PATHS.mirror,
                PATHS.content,
                PATHS.mirror,
                projected=Seen(PATHS.mirror.row_of(PATH.row)),
            ),
            Verdict.WITHDRAW,
        ),
    ],
)
def test_the_rest_is_only_reported(found: Look, verdict: Verdict) -> None:
    """Unless the policy says otherwise; mailboxes without a path always, counters elsewhere."""
    assert rule(found, POLICY, START) == Finding(found.suspect, verdict, truths=found.truths, projected=found.projected)


def test_dangling_rows_of_a_mirror_may_be_reported_only() -> None:
    """Rows of a filter are withdrawn all the same: they lead to no content."""
    policy = replace(POLICY, dangling="report")
    listed = look(UNSEEN, Verdict.WITHDRAW, PLACE, projected=LISTED)
    assert not rule(STALE, policy, START).changes
    assert rule(WRONG, policy, START).changes
    assert rule(listed, policy, START).changes


class TestSomeTruths:
    """Runs that did not scan every row of truth, as of one mailbox."""

    policy = replace(POLICY, all_truths=False)

    def test_a_row_of_the_mirror_goes_where_the_truth_that_it_leads_to_is_gone(self) -> None:
        led = replace(STALE, mirrored=STALE.projected)
        assert rule(led, self.policy, START).writes == (Remove(MESSAGE_ID, PLACE, at=T),)

    def test_a_row_that_leads_to_no_truth_stays(self) -> None:
        """A row of a filter leads nowhere, even where the mirror has a row that does."""
        listed = look(UNSEEN, Verdict.WITHDRAW, PLACE, projected=LISTED, mirrored=STALE.projected)
        for found in (STALE, listed):
            assert rule(found, self.policy, START).changes == ()
            assert rule(found, POLICY, START).changes != ()

    def test_a_known_truth_is_projected_all_the_same(self) -> None:
        assert rule(LACKING, self.policy, START).writes == (MIRRORED,)


class TestLastTraces:
    """Projections that alone lead to content that stands."""

    def test_a_last_trace_is_restored_where_that_is_asked_for(self) -> None:
        """Conditionally: nobody else may have put it there meanwhile; the projection stays as it is."""
        found = at_mirror(projected=mirror_row(TRUTH), last_trace=True)
        restored = rule(found, replace(POLICY, dangling="restore"), START)
        assert (restored.condition, restored.writes) == (PutIfAbsent(IMAP_UID, TRUTH), ())
        assert restored.last_trace
        assert rule(found, POLICY, START).writes == (Remove(MESSAGE_ID, PLACE, at=T),)

    def test_other_dangling_rows_go_even_then(self) -> None:
        """There is nothing to restore."""
        restoring = replace(POLICY, dangling="restore")
        assert rule(STALE, restoring, START).writes == (Remove(MESSAGE_ID, PLACE, at=T),)

    def test_a_half_written_row_restores_nothing(self) -> None:
        """It would be a torn truth; it is reported."""
        half = at_mirror(projected=mirror_row(TRUTH, headercontent=None), last_trace=True)
        assert not rule(half, replace(POLICY, dangling="restore"), START).changes

    def test_only_what_dangles_is_a_last_trace(self) -> None:
        """A row that its truth differs from is none."""
        assert not rule(replace(WRONG, last_trace=True), POLICY, START).last_trace


class TestQuarantine:
    """Truth rows without content, on demand."""

    policy = replace(POLICY, orphans="quarantine")

    def test_the_truth_goes_while_it_is_as_it_was_seen_and_all_that_follows_with_it(self) -> None:
        """Each row with a before-image of its own."""
        found = unfit(companions=((UNSEEN, LISTED),))
        ruled = rule(found, self.policy, START)
        assert ruled.condition == exactly(IMAP_UID, TRUTH)
        assert ruled.writes == (Remove(MESSAGE_ID, PLACE, at=T), Remove(FIRST_UNSEEN, PLACE, at=T))
        (beside,) = ruled.beside
        assert beside.suspect == Suspect("firstUnseen", PLACE, found.suspect.verdict)
        assert (beside.verdict, beside.projected) == (Verdict.LOST_CONTENT, LISTED)

    def test_a_mirror_row_of_another_message_stays(self) -> None:
        """It is not this truth's."""
        ruled = rule(replace(unfit(), projected=seen(mirror_row(truth_row(2, uid=1)))), self.policy, START)
        assert ruled.condition == exactly(IMAP_UID, TRUTH)
        assert ruled.writes == ()

    @pytest.mark.parametrize(("at", "result"), [(T, None), (T + 1, Verdict.MOVED)])
    def test_what_changed_after_t_has_moved(self, at: int, result: Verdict | None) -> None:
        """Removing it is no overwriting, yet somebody is at work there."""
        ruled = rule(unfit(at=at), self.policy, START)
        assert (ruled.result, bool(ruled.changes)) == (result, result is None)
        dry = rule(unfit(at=at), replace(self.policy, run=None), START)
        assert (dry.result, dry.due) == (result, result is None)

    def test_a_truth_without_any_time_is_as_old_as_its_message(self) -> None:
        """Where no time can be read, none is after T."""
        timeless = replace(unfit(), truths=(Seen(TRUTH),), projected=None)
        assert rule(timeless, self.policy, START).result is None

    def test_it_is_never_younger_than_a_day(self) -> None:
        """By its message's birth."""
        young = truth_row(1, born=START - DAY_MICROS)
        assert not rule(at_mirror(young, has_content=False), self.policy, START).changes

    def test_a_truth_of_keys_alone_is_never_removed(self) -> None:
        """Its removal could be conditional on nothing."""
        bare = {name: TRUTH[name] for name in ("messageid", "mailboxid", "uid")}
        assert not rule(at_mirror(bare, has_content=False), self.policy, START).changes


class TestLeaks:
    """Content that no truth names, on demand."""

    policy = replace(POLICY, leaks="collect")

    def test_a_leak_is_removed(self) -> None:
        """By its own key, as of T."""
        assert rule(SPILT, self.policy, START).writes == (Remove(MESSAGE_V3, SPILT.key, at=T),)

    @pytest.mark.parametrize(("at", "collected"), [(START - DAY_MICROS - 1, True), (START - DAY_MICROS, False)])
    def test_it_is_never_younger_than_a_day(self, at: int, collected: bool) -> None:
        """By the row's own time too."""
        written = replace(SPILT, projected=seen(content_row(TRUTH["messageid"]), at))
        assert bool(rule(written, self.policy, START).changes) is collected

    def test_content_without_any_time_is_as_old_as_its_message(self) -> None:
        """Where no time can be read."""
        assert rule(replace(SPILT, projected=Seen({})), self.policy, START).changes

    def test_what_a_run_collects_beside_is_mended_as_ever(self) -> None:
        """The policy of leaks is about leaks."""
        assert rule(WRONG, self.policy, START).changes


class TestTimes:
    """What was written when."""

    def test_a_cell_ahead_of_all_clocks_is_left_or_beaten_just_above_it(self) -> None:
        """Left, unless `--beat-ahead` asks for it; a dry run says so."""
        found = at_mirror(TRUTH, projected=mirror_row(TRUTH, modseq=9), at=AHEAD)
        beating = replace(POLICY, beat_ahead=True)
        assert (rule(found, POLICY, START).result, rule(found, POLICY, START).changes) == (Verdict.AHEAD, ())
        beaten = rule(found, beating, START)
        assert (beaten.result, beaten.writes) == (None, (replace(MIRRORED, at=AHEAD + 1),))
        assert fixed_at(beaten, T) == AHEAD + 1, "an undo finds the stamp"
        assert rule(found, replace(beating, run=None), START).due
        stale = at_mirror(projected=mirror_row(TRUTH), at=AHEAD)
        assert rule(stale, beating, START).writes == (Remove(MESSAGE_ID, PLACE, at=AHEAD + 1),)

    @pytest.mark.parametrize("at", [T + 1, START + 5_000_000], ids=["after T", "within the skew"])
    def test_what_moved_is_not_beaten(self, at: int) -> None:
        """A user wrote that."""
        found = at_mirror(TRUTH, projected=mirror_row(TRUTH, modseq=9), at=at)
        ruled = rule(found, replace(POLICY, beat_ahead=True), START)
        assert (ruled.verdict, ruled.result, ruled.changes) == (Verdict.AMEND, Verdict.MOVED, ())

    def test_what_this_run_mended_already_is_fixed_under_the_scans_verdict(self) -> None:
        """A task that was retried; without a run, somebody else's write bears that stamp."""
        found = at_mirror(TRUTH, projected=mirror_row(TRUTH), at=T)
        assert judge(found, T, START, 0) is Verdict.FIXED
        again, dry = rule(found, POLICY, START), rule(found, DRY, START)
        assert (again.verdict, again.result, again.changes) == (Verdict.AMEND, Verdict.FIXED, ())
        assert (dry.verdict, dry.result, dry.due) == (Verdict.AGREE, None, False)

    def test_a_look_that_saw_less_than_the_scan_leaves_the_scans_verdict(self) -> None:
        """Whatever it seems to show."""
        ruled = rule(replace(STALE, blind=True), POLICY, START)
        assert (ruled.verdict, ruled.result, ruled.changes) == (Verdict.AMEND, None, ())

    def test_the_stamp_of_what_is_removed_by_policy_is_t(self) -> None:
        """Nothing lies ahead of it: it would have moved."""
        image = Finding(SPILT.suspect, Verdict.LEAK, truths=(seen(TRUTH, T + 5),))
        assert fixed_at(image, T) == T
        assert fixed_at(replace(image, verdict=Verdict.AMEND), T) == T + 6
        assert fixed_at(replace(image, verdict=Verdict.AMEND, truths=(seen(TRUTH, T),)), T) == T
        assert fixed_at(replace(image, verdict=Verdict.AMEND, truths=(Seen(TRUTH),)), T) == T
        assert fixed_at(replace(image, verdict=Verdict.AMEND, truths=(), projected=seen(TRUTH, T + 7)), T) == T + 8

    def test_a_day_is_over_when_it_is_over(self) -> None:
        """To the microsecond; the youngest part of a key decides."""
        assert older_than_a_day((uuid_at(START - DAY_MICROS - 1),), START)
        assert not older_than_a_day((uuid_at(START - DAY_MICROS),), START)
        assert not older_than_a_day((uuid_at(START - DAY_MICROS - 1), uuid_at(START)), START)
        assert not older_than_a_day((UUID(int=7, version=4), "text"), START), "no key that tells its age"
