"""What each kind of projection reads at a second look, and how its fix is taken back: by its own rules, row by row."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from mailmend.model.catalog.mail import APPLICABLE_FLAG, FIRST_UNSEEN, IMAP_UID, MESSAGE_ID, MESSAGE_V3, MESSAGES, PATHS
from mailmend.model.operations import Change, Conditional, Put, PutIfAbsent, Read, Remove, RemoveIf, Seen, Write
from mailmend.model.projections.family import within
from mailmend.model.projections.findings import Finding, Suspect, exactly
from mailmend.model.projections.look import Look
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Column, Row
from tests.support.repairing import LONG_AGO, MAILBOX, T, message, mirror_row, place, truth_row

MIRROR, UNSEEN, LABELS, COUNTS = MESSAGES.mirror, MESSAGES.filters[0], MESSAGES.unions[0], MESSAGES.counts[0]
RECENTS = MESSAGES.filters[2]
CONTENT = MESSAGES.projections[-1]
TRUTH = truth_row(1)
PLACE = place(TRUTH)
HELD = Seen({"mailboxid": MAILBOX, "userflags": frozenset({"a"})})


def look(kind: Projection, *truths: Row, projected: Seen | None = None, wanted: Any = None, **fields: Any) -> Look:
    """A place of that kind, as it is now."""
    keys: dict[str, tuple[Any, ...]] = {LABELS.name: (MAILBOX,), COUNTS.name: (MAILBOX,), CONTENT.name: (message(1),)}
    suspect = Suspect(kind.name, keys.get(kind.name, PLACE), Verdict.AMEND, wanted=wanted or {})
    return Look(suspect, MESSAGES.mirror, MESSAGES.content, kind, projected, truths=tuple(map(Seen, truths)), **fields)


class TestReading:
    """Where a second look begins, and what it needs."""

    def test_each_kind_reads_its_own_row_first(self) -> None:
        """With its times, for they decide; a union's may be younger without harm. A filter asks the mirror too."""
        assert MIRROR.near_reads(MIRROR, PLACE) == [Read(MESSAGE_ID, PLACE, times=True)]
        assert CONTENT.near_reads(MIRROR, (message(1),)) == [Read(MESSAGE_V3, (message(1),), times=True)]
        assert LABELS.near_reads(MIRROR, (MAILBOX,)) == [Read(APPLICABLE_FLAG, (MAILBOX,))]
        assert UNSEEN.near_reads(MIRROR, PLACE) == [
            Read(FIRST_UNSEEN, PLACE, times=True),
            Read(MESSAGE_ID, PLACE, times=True),
        ]

    def test_who_needs_the_content_beside_the_truth(self) -> None:
        """A union needs no content; content is judged by the truth alone; counters elsewhere."""
        kinds: tuple[Projection, ...] = (MIRROR, UNSEEN, LABELS, COUNTS, CONTENT)
        assert [one.needs_content for one in kinds] == [True, True, False, True, False]
        assert [one.by_row for one in kinds] == [True, True, True, False, True]

    def test_what_leads_to_the_truth(self) -> None:
        """The mirror's row does, and a content's own key; nothing else is known of it."""
        mirrored = Seen(mirror_row(TRUTH))
        assert MIRROR.lead_row(look(MIRROR, mirrored=mirrored)) == TRUTH
        assert UNSEEN.lead_row(look(UNSEEN, mirrored=mirrored)) == TRUTH
        assert UNSEEN.lead_row(look(UNSEEN)) == {}
        assert CONTENT.lead_row(look(CONTENT)) == {"messageid": message(1)}

    def test_which_columns_a_check_reads(self) -> None:
        """Keys, what is compared, and what is gathered; in the order of the table."""
        assert UNSEEN.read_columns == ("mailboxid", "uid")
        assert LABELS.read_columns == ("mailboxid", "userflags")
        assert COUNTS.read_columns == ("mailboxid", "count", "unseen")
        assert CONTENT.read_columns == ("messageid",)
        compared = {column.name for column in MIRROR.compared}
        assert [name for name in MIRROR.read_columns if name not in compared] == ["mailboxid", "uid"]
        assert set(MIRROR.read_columns) == {*compared, "mailboxid", "uid"}
        assert list(MIRROR.read_columns) == [name for name in MESSAGE_ID.names if name in MIRROR.read_columns]

    def test_which_columns_of_the_truth_decide(self) -> None:
        """Its keys, and what each kind asks of a row."""
        assert MIRROR.truth_columns == {"mailboxid", "uid"}
        assert PATHS.mirror.truth_columns == {"mailboxid", "namespace", "user", "mailboxname"}
        assert UNSEEN.truth_columns == {"mailboxid", "uid", "flagseen"}
        assert LABELS.truth_columns == {"mailboxid", "userflags"}
        assert COUNTS.truth_columns == {"mailboxid", "flagseen"}
        assert CONTENT.truth_columns == {"messageid"}

    def test_what_a_group_holds(self) -> None:
        """Nothing where its row has nothing."""
        assert LABELS.held(HELD.row) == ("a",)
        assert LABELS.held({"userflags": None}) == ()
        assert COUNTS.held({"count": 3, "unseen": None}) == (3, 0)

    def test_counters_stand_where_the_truth_allows(self) -> None:
        """From what is sure to what is possible, both included."""
        allowed = [within({"count": 2}, {"count": 1}, {"count": count}) for count in (None, 1, 2, 3, 4)]
        assert allowed == [False, False, True, True, False]
        assert within({"count": 0}, {"count": 0}, {})


def test_an_exact_removal_expects_every_plain_column() -> None:
    """Nulls too; sets follow the modseq."""
    expected = {name: TRUTH.get(name) for name in IMAP_UID.plain if name not in {"messageid", "mailboxid", "uid"}}
    assert exactly(IMAP_UID, TRUTH) == RemoveIf(IMAP_UID, IMAP_UID.key_of(TRUTH), expected)


def test_a_column_that_the_truth_lacks_is_left_alone() -> None:
    """An amended row keeps what nobody can rebuild."""
    wide = MESSAGE_ID.with_columns((*MESSAGE_ID.columns, Column("extra", "text")))
    assert replace(MIRROR, table=wide).row_of(TRUTH) == MIRROR.row_of(TRUTH)
    assert replace(MIRROR, table=wide).read_columns == MIRROR.read_columns


class TestLookingAt:
    """What the truth rows under the known keys tell."""

    def test_only_truths_that_claim_the_place_count(self) -> None:
        """The same message may stand elsewhere; whether it is whole is the first one's to say."""
        elsewhere, torn = Seen(truth_row(1, uid=9)), Seen({**TRUTH, "headercontent": None})
        for kind in (MIRROR, UNSEEN):
            found = kind.looked_at(look(kind), [elsewhere, Seen(TRUTH)], accept_torn=False)
            assert (found.truths, found.whole) == ((Seen(TRUTH),), True)
            assert not kind.looked_at(look(kind), [torn], accept_torn=False).whole
            assert kind.looked_at(look(kind), [torn], accept_torn=True).whole
            assert kind.looked_at(look(kind), [elsewhere], accept_torn=False).whole, "no truth is not a torn one"

    @pytest.mark.parametrize("contents", [{}, {(message(1),): {}}])
    def test_content_stands_beside_the_truth(self, contents: dict[tuple[UUID], Row]) -> None:
        """Or does not."""
        found = UNSEEN.looked_at(look(UNSEEN, contents=contents), [Seen(TRUTH)], accept_torn=False)
        assert found.has_content is bool(contents)

    def test_a_union_is_owed_what_the_scan_missed_and_what_its_truths_carry(self) -> None:
        """Torn ones too; of its own group."""
        rows = [Seen({**TRUTH, "userflags": frozenset({"a"})}), Seen({**TRUTH, "userflags": None})]
        other = Seen({**TRUTH, "mailboxid": message(7), "userflags": frozenset({"z"})})
        missed = {"userflags": frozenset({"b"})}
        found = LABELS.looked_at(look(LABELS, wanted=missed), [*rows, other], accept_torn=False)
        assert found.truths == (Seen({"userflags": frozenset({"a", "b"})}),)
        assert LABELS.wanted(found) == {"userflags": frozenset({"a", "b"})}
        assert MIRROR.wanted(found) == {}
        assert LABELS.looked_at(look(LABELS), [], accept_torn=False).truths == (Seen({"userflags": frozenset()}),)

    @pytest.mark.parametrize(
        ("kept", "rows", "last"), [({(message(1),)}, [], True), (set(), [], False), ({(message(1),)}, [TRUTH], False)]
    )
    def test_the_last_trace_of_a_message(self, kept: set[tuple[UUID]], rows: list[Row], last: bool) -> None:
        """Its content stands, and no truth row of it anywhere."""
        found = MIRROR.looked_at(
            look(MIRROR, contents={key: {} for key in kept}), list(map(Seen, rows)), accept_torn=False
        )
        assert found.last_trace is last

    @pytest.mark.parametrize(
        ("scanned", "known", "rows", "projected", "blind"),
        [
            (Verdict.PROJECT, False, [], None, True),
            (Verdict.PROJECT, True, [], None, False),
            (Verdict.WITHDRAW, False, [], None, False),
            (Verdict.CLASH, False, [TRUTH], mirror_row(TRUTH), True),
            (Verdict.AMEND, False, [TRUTH], mirror_row(TRUTH), False),
            (Verdict.AMEND, False, [TRUTH], None, True),
        ],
    )
    def test_a_look_is_blind_where_the_scan_saw_truths_that_nothing_leads_to(
        self, scanned: Verdict, known: bool, rows: list[Row], projected: Row | None, blind: bool
    ) -> None:
        """Unless what was found settles it."""
        before = look(MIRROR, projected=Seen(projected) if projected else None, contents={(message(1),): {}})
        keys = ((message(1),),) if known else ()
        before = replace(before, suspect=replace(before.suspect, verdict=scanned, truth_keys=keys))
        assert MIRROR.looked_at(before, list(map(Seen, rows)), accept_torn=False).blind is blind


OLD, OURS = ({"modseq": LONG_AGO}, {"modseq": T})
BEFORE, AFTER = Seen(mirror_row(TRUTH, modseq=0), OLD), Seen(mirror_row(TRUTH), OURS)


def image(kind: Projection, verdict: Verdict, projected: Seen | None, *truths: Row, **fields: Any) -> Finding:
    """What a run recorded before it wrote."""
    return Finding(look(kind).suspect, verdict, Verdict.FIXED, tuple(map(Seen, truths)), projected, **fields)


class TestTakingBack:
    """What undoes a fix, just above its stamp."""

    def test_a_row_returns_and_both_sides_are_reported_as_they_are_now(self) -> None:
        """Nothing is left of how the run ended."""
        recorded = replace(image(MIRROR, Verdict.AMEND, BEFORE, TRUTH), error="gone")
        back = MIRROR.take_back(recorded, look(MIRROR, TRUTH, projected=AFTER), T, None)
        put = Put(MESSAGE_ID, BEFORE.row, at=T + 1, clear=True)
        assert back == replace(recorded, projected=AFTER, result=None, error=None, writes=(put,))

    def test_what_stands_as_before_needs_nothing(self) -> None:
        """It was taken back already."""
        back = MIRROR.take_back(
            image(MIRROR, Verdict.AMEND, BEFORE, TRUTH), look(MIRROR, TRUTH, projected=BEFORE), T, None
        )
        assert (back.verdict, back.result, back.changes) == (Verdict.AGREE, None, ())

    @pytest.mark.parametrize(
        "now",
        [look(MIRROR, projected=AFTER), look(MIRROR, TRUTH, projected=Seen(AFTER.row, {"modseq": T + 9}))],
        ids=["truth", "row"],
    )
    def test_what_was_used_since_has_moved(self, now: Look) -> None:
        """On either side."""
        back = MIRROR.take_back(image(MIRROR, Verdict.AMEND, BEFORE, TRUTH), now, T, None)
        assert (back.verdict, back.result, back.changes) == (Verdict.AMEND, Verdict.MOVED, ())
        assert (back.truths, back.projected) == (now.truths, now.projected)

    def test_of_a_union_what_was_added_goes_and_what_was_taken_returns(self) -> None:
        """What others added stays, and what others took stays away (`e`); `b` was there before."""
        carried = {"userflags": frozenset({"a", "b", "d"})}
        before, now = (Seen({"mailboxid": MAILBOX, "userflags": frozenset(held)}) for held in ("bde", "abz"))
        recorded = image(LABELS, Verdict.AMEND, before, carried, error="gone")
        back = LABELS.take_back(recorded, look(LABELS, projected=now), T, None)
        assert back.writes == (
            Change(APPLICABLE_FLAG, (MAILBOX,), take={"userflags": frozenset("a")}, at=T + 1),
            Change(APPLICABLE_FLAG, (MAILBOX,), add={"userflags": frozenset("d")}, at=T + 1),
        )
        assert (back.projected, back.result, back.error) == (now, None, None)

    @pytest.mark.parametrize(
        ("before", "now", "change"),
        [("b", "ab", {"take": {"userflags": frozenset("a")}}), ("ab", "b", {"add": {"userflags": frozenset("a")}})],
    )
    def test_of_a_union_nothing_else_is_touched(self, before: str, now: str, change: dict[str, Any]) -> None:
        """Neither an empty set is added, nor one taken."""
        was, stands = (Seen({"userflags": frozenset(held)}) for held in (before, now))
        recorded = image(LABELS, Verdict.AMEND, was, {"userflags": frozenset("ab")})
        back = LABELS.take_back(recorded, look(LABELS, projected=stands), T, None)
        assert back.writes == (Change(APPLICABLE_FLAG, (MAILBOX,), at=T + 1, **change),)

    def test_of_a_union_that_stands_as_before_nothing_is_due(self) -> None:
        """It was taken back already; an image without truths tells of nothing that was added."""
        for recorded in (image(LABELS, Verdict.AMEND, HELD, {"userflags": frozenset("a")}),):
            now = look(LABELS, TRUTH, projected=HELD)
            back = LABELS.take_back(recorded, now, T, None)
            assert (back.verdict, back.writes, back.truths) == (Verdict.AGREE, (), now.truths)
        used = look(LABELS, projected=Seen({"userflags": frozenset("ab")}))
        assert LABELS.take_back(image(LABELS, Verdict.AMEND, HELD), used, T, None).writes == ()

    QUARANTINED = image(MIRROR, Verdict.LOST_CONTENT, None, TRUTH)
    RESTORED = image(MIRROR, Verdict.WITHDRAW, Seen(mirror_row(TRUTH)), last_trace=True)
    UNDONE = image(MIRROR, Verdict.LOST_CONTENT, None)

    @pytest.mark.parametrize(
        ("recorded", "now", "origin", "condition"),
        [
            (QUARANTINED, (), None, PutIfAbsent(IMAP_UID, TRUTH)),
            (QUARANTINED, ({**TRUTH, "modseq": 9},), None, Verdict.MOVED),
            (QUARANTINED, (TRUTH,), None, None),
            (RESTORED, (TRUTH,), None, exactly(IMAP_UID, TRUTH)),
            (RESTORED, ({**TRUTH, "flagseen": True},), None, Verdict.MOVED),
            (RESTORED, (TRUTH, truth_row(2, uid=1)), None, Verdict.MOVED),
            (RESTORED, (), None, None),
            (UNDONE, (TRUTH,), QUARANTINED, exactly(IMAP_UID, TRUTH)),
            (UNDONE, ({**TRUTH, "flagseen": True},), QUARANTINED, Verdict.MOVED),
            (UNDONE, (TRUTH,), None, Verdict.MOVED),
            (image(MIRROR, Verdict.AMEND, None, TRUTH), (), None, Verdict.MOVED),
        ],
    )
    def test_a_truth_returns_only_where_the_run_itself_changed_it(
        self, recorded: Finding, now: tuple[Row, ...], origin: Finding | None, condition: Conditional | Verdict | None
    ) -> None:
        """Conditionally: put where it is still absent, removed while it is exactly as the run left it."""
        back = MIRROR.take_back(recorded, look(MIRROR, *now), T, origin)
        assert (back.result or back.condition) == condition

    def test_a_row_of_a_filter_returns_whatever_became_of_a_quarantined_truth(self) -> None:
        """That is decided by the truth's own image."""
        recorded = image(UNSEEN, Verdict.LOST_CONTENT, Seen(FIRST_UNSEEN.key_row(PLACE)), TRUTH)
        back = UNSEEN.take_back(recorded, look(UNSEEN), T, None)
        assert back.writes == (Put(FIRST_UNSEEN, FIRST_UNSEEN.key_row(PLACE), at=T + 1, clear=True),)
        withdrawn = replace(recorded, verdict=Verdict.WITHDRAW)
        assert UNSEEN.truth_back(withdrawn, look(UNSEEN), None) is Verdict.MOVED
        assert UNSEEN.truth_back(withdrawn, look(UNSEEN, TRUTH), None) is None


@pytest.mark.parametrize(
    ("verdict", "write"),
    [
        (Verdict.PROJECT, Put(RECENTS.table, {"mailboxid": MAILBOX, "recent_mesage_uid": 1}, at=T)),
        (Verdict.WITHDRAW, Remove(RECENTS.table, PLACE, at=T)),
    ],
)
def test_a_row_that_is_all_key_is_put_under_its_own_names(verdict: Verdict, write: Write) -> None:
    """James's misspelt one too."""
    finding = Finding(Suspect(RECENTS.name, PLACE, verdict), verdict)
    assert RECENTS.key_row(finding, T) == replace(finding, writes=(write,))
