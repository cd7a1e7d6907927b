"""What a check reads of a family, and what each kind demands, compares and shows of its rows."""

from dataclasses import replace
from typing import Any

import pytest

from mailmend.model.catalog.mail import MESSAGES, PATHS
from mailmend.model.operations import Level, Scan, Seen
from mailmend.model.projections.conditions import Condition
from mailmend.model.projections.family import projections_of
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.group import Shortfall
from mailmend.model.projections.look import Look
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Row, Table, columns
from tests.support.repairing import MAILBOX, mirror_row, truth_row
from tests.support.small_family import BY_BOX, COUNTS_OF_BOX, LABELS_OF_BOX, LETTERS, SMALL, TEXTS, UNSEEN_OF_BOX

MIRROR, UNSEEN, RECENTS = MESSAGES.mirror, MESSAGES.filters[0], MESSAGES.filters[2]
(LABELS,), (COUNTS,) = MESSAGES.unions, MESSAGES.counts
TRUTH = truth_row(1)


class TestReading:
    """Tables and columns that a check reads."""

    def test_a_check_reads_the_truth_first_and_then_every_projection(self) -> None:
        assert SMALL.truth is LETTERS
        assert SMALL.tables == (LETTERS, BY_BOX, UNSEEN_OF_BOX, LABELS_OF_BOX, COUNTS_OF_BOX, TEXTS)
        assert PATHS.tables == (PATHS.mirror.truth, PATHS.mirror.table)

    def test_a_check_reads_keys_and_what_verdicts_depend_on_and_no_other_column(self) -> None:
        """Given a truth with a note that no projection asks for."""
        assert SMALL.columns_read == {
            "letters": (LETTERS, ("id", "box", "num", "labels", "size", "seen", "title")),
            "byBox": (BY_BOX, ("inbox", "num", "title")),
            "unseenOfBox": (UNSEEN_OF_BOX, ("box", "num")),
            "labelsOfBox": (LABELS_OF_BOX, ("box", "labels")),
            "countsOfBox": (COUNTS_OF_BOX, ("box", "letters", "read")),
            "texts": (TEXTS, ("id",)),
        }

    def test_a_column_is_read_that_only_a_filter_or_only_a_counter_depends_on(self) -> None:
        plain = replace(SMALL, filters=(), counts=())

        assert "seen" not in plain.truth_columns
        assert "seen" in replace(plain, filters=SMALL.filters).truth_columns
        assert "seen" in replace(plain, counts=SMALL.counts).truth_columns

    def test_each_condition_is_known_once_whether_a_filter_or_a_counter_has_it(self) -> None:
        unseen, deleted, recent = (one.when for one in MESSAGES.filters)
        assert MESSAGES.conditions == (unseen, deleted, recent)
        assert replace(MESSAGES, filters=MESSAGES.filters[1:]).conditions == (deleted, recent, unseen)
        assert SMALL.conditions == (Condition("seen", value=False), Condition("seen", value=True))

    def test_projections_are_found_by_name_over_all_families(self) -> None:
        found = projections_of([SMALL, PATHS])

        assert list(found) == [
            "byBox",
            "unseenOfBox",
            "labelsOfBox",
            "countsOfBox",
            "texts",
            "mailbox",
        ]
        assert all(projection.name == name for name, projection in found.items())

    def test_columns_of_a_truth_that_a_condition_of_a_counter_asks_for(self) -> None:
        assert SMALL.counts[0].truth_columns == {"box", "seen"}
        assert replace(SMALL.counts[0], counters=(("letters", None),)).truth_columns == {"box"}


def small_look() -> Look:
    (union,) = SMALL.unions
    return Look(Suspect(union.name, (5,), Verdict.AMEND), SMALL.mirror, SMALL.content, union)


class TestMembersOfAGroup:
    """Truth rows of a group, by the rows of a mirror."""

    def test_they_are_read_from_the_mirror_that_keeps_a_group_together(self) -> None:
        (union,) = SMALL.unions

        assert union.members(small_look()) == Scan(BY_BOX, ("letter", "words"), Level.QUORUM, under=(5,))

    @pytest.mark.parametrize(
        ("mirrored", "key"),
        [
            (columns("letter int", regular="inbox int, num int, words set<text>"), (("letter", "id"),)),
            (columns("inbox int", "num int", regular="letter int"), (("inbox", "box"), ("num", "num"))),
            (columns("inbox int", "num int", regular="words set<text>"), (("inbox", "box"), ("num", "num"))),
        ],
        ids=["partitions of another column", "no set column", "no way to the truth"],
    )
    def test_no_other_mirror_leads_to_them(self, mirrored: Any, key: tuple[tuple[str, str], ...]) -> None:
        (union,) = SMALL.unions
        mirror = replace(SMALL.mirror, table=Table("byBox", mirrored), key=key)

        assert union.members(replace(small_look(), mirror=mirror)) is None


class TestDemands:
    """What truth rows demand of a group, and what its row lacks of that."""

    def test_two_truths_that_demand_one_element_count_as_the_smaller(self) -> None:
        """The order does not matter."""
        assert LABELS.together(2, 1) == LABELS.together(1, 2) == 1

    def test_counts_of_two_parts_add_up_with_what_is_uncertain_in_each(self) -> None:
        assert COUNTS.together((1, 20), (3, 40)) == (4, 60)

    def test_a_union_lacks_what_its_truths_demand_and_its_row_has_not(self) -> None:
        """More elements than demanded are no lack."""
        assert LABELS.lacking({"a": 1, "b": 2}, ("a", "z")) == Shortfall({"userflags": frozenset("b")}, (2,))
        assert LABELS.lacking({"a": 1}, ("a", "z")) is None
        assert LABELS.lacking({}, ()) is None

    @pytest.mark.parametrize(
        ("demands", "held", "lacks"),
        [
            ({"count": (2, 1), "unseen": (1, 0)}, (2, 1), False),
            ({"count": (2, 1), "unseen": (1, 0)}, (3, 1), False),
            ({"count": (2, 1), "unseen": (1, 0)}, (4, 1), True),
            ({"count": (2, 1), "unseen": (1, 0)}, (1, 1), True),
            ({"count": (2, 1), "unseen": (1, 0)}, (2, 2), True),
            ({"count": (2, 1), "unseen": (1, 0)}, (), True),
        ],
    )
    def test_counters_lack_something_outside_of_what_their_truths_allow(
        self, demands: dict[str, tuple[int, int]], held: tuple[int, ...], lacks: bool
    ) -> None:
        expected = None
        if lacks:
            expected = Shortfall({"count": 2, "unseen": 1})

        assert COUNTS.lacking(demands, held) == expected

    def test_a_counter_that_no_truth_demands_is_0(self) -> None:
        """A counter without a row is 0 too."""
        assert COUNTS.lacking({}, ()) is None
        assert COUNTS.lacking({}, (0, 0)) is None
        assert COUNTS.lacking({"count": (1, 0)}, (1, 1)) == Shortfall({"count": 1, "unseen": 0})
        assert COUNTS.lacking({}, (1, 0)) == Shortfall({"count": 0, "unseen": 0})

    def test_only_a_union_is_owed_the_elements_that_were_not_written(self) -> None:
        elements = {"userflags": frozenset("a")}

        assert LABELS.owed(elements) == elements
        assert [kind.owed(elements) for kind in (MIRROR, UNSEEN, COUNTS)] == [{}, {}, {}]


class TestDiffering:
    """Which columns two rows of a finding differ in, as the verdict compares them."""

    @pytest.mark.parametrize(
        ("kind", "truth", "other", "differs"),
        [
            (MIRROR, mirror_row(TRUTH), mirror_row(TRUTH), set()),
            (MIRROR, mirror_row(TRUTH), mirror_row(TRUTH, modseq=9, uid=8), {"modseq", "uid"}),
            (MIRROR, mirror_row(TRUTH, flagseen=None), mirror_row(TRUTH, flagseen=False), set()),
            (UNSEEN, {"flagseen": True}, {"uid": 1}, {"flagseen"}),
            (UNSEEN, {"flagseen": False}, {"uid": 1}, set()),
            (UNSEEN, {"flagseen": True}, {"flagseen": True}, set()),
            (UNSEEN, {"flagseen": True}, {"flagseen": None}, {"flagseen"}),
            (LABELS, {"userflags": {"a", "b"}}, {"userflags": {"a"}}, {"userflags"}),
            (LABELS, {"userflags": {"a"}}, {"userflags": {"a", "b"}}, set()),
            (LABELS, {"userflags": {"a"}}, {"userflags": None}, {"userflags"}),
            (LABELS, {"userflags": None}, {}, set()),
            (COUNTS, {"count": 3, "unseen": 1}, {"count": 3, "unseen": 1}, set()),
            (COUNTS, {"count": 3, "unseen": 1}, {"count": 4, "unseen": 2}, {"count", "unseen"}),
            (COUNTS, {"count": 0}, {"count": None, "unseen": 0}, set()),
        ],
    )
    def test_rows_differ_in_what_is_compared(self, kind: Projection, truth: Row, other: Row, differs: set[str]) -> None:
        assert kind.differing(truth, other) == differs


def shown(kind: Projection, *truths: Seen, projected: Seen | None = None, **wanted: int) -> tuple[Seen, ...]:
    """The truth rows of a finding in a mailbox, as they are shown next to the row of the projection."""
    keys = {COUNTS.name: (MAILBOX,)}
    suspect = Suspect(kind.name, keys.get(kind.name, (MAILBOX, 1)), Verdict.AMEND, wanted=wanted)
    return kind.truth_rows(Finding(suspect, Verdict.AMEND, truths=truths, projected=projected))


class TestTruthRows:
    """Truth rows, with columns named as in the projection."""

    def test_a_truth_is_shown_to_its_mirror_with_the_mirrors_names_and_its_own_times(self) -> None:
        letter = {"id": 7, "box": 5, "num": 1, "labels": frozenset("a"), "size": 3, "title": "x", "note": "y"}
        seen = Seen(letter, {"labels": 20, "note": 30})
        finding = Finding(Suspect("byBox", (5, 1), Verdict.AMEND), Verdict.AMEND, truths=(seen, Seen(letter)))

        row = {"inbox": 5, "num": 1, "letter": 7, "words": frozenset("a"), "title": "x", "size": 3}
        assert SMALL.mirror.truth_rows(finding) == (Seen(row, {"words": 20}), Seen(row))

    def test_a_truth_is_shown_to_a_filter_as_its_place_and_the_column_that_decides(self) -> None:
        row = {"mailboxid": MAILBOX, "recent_mesage_uid": 1, "flagrecent": False}

        found = shown(RECENTS, Seen(TRUTH, {"flagrecent": 20, "modseq": 30}), Seen(TRUTH, {"modseq": 30}))

        assert found == (Seen(row, {"flagrecent": 20}), Seen(row))

    def test_a_truth_is_shown_to_a_union_as_it_is(self) -> None:
        assert shown(LABELS, Seen(TRUTH)) == (Seen(TRUTH),)

    def test_what_was_counted_is_shown_to_counters_that_differ_from_it(self) -> None:
        row = {"mailboxid": MAILBOX, "count": 3, "unseen": 0}

        assert shown(COUNTS, projected=Seen({"count": 4, "unseen": None}), count=3, unseen=0) == (Seen(row),)
        assert shown(COUNTS, count=3, unseen=0) == (Seen(row),)

    def test_nothing_was_counted_where_counters_are_as_wanted(self) -> None:
        """Rows of the group differ then, and are not counted."""
        assert shown(COUNTS, projected=Seen({"count": 4, "unseen": None}), count=4, unseen=0) == ()
        assert shown(COUNTS) == ()
