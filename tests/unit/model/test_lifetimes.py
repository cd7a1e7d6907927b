"""How long a row of a projection lasts: as long as its truth demands it. Instants are in seconds since 1970."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from mailmend.model.catalog.mail import APPLICABLE_FLAG, IMAP_UID, MESSAGE_DELETED, MESSAGE_ID, MESSAGES
from mailmend.model.operations import Change, Put, PutIfAbsent, Seen
from mailmend.model.projections.findings import Finding, RepairPolicy, Suspect
from mailmend.model.projections.look import Look
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Row
from tests.support.repairing import MAILBOX, T, message, mirror_row, place, truth_row
from tests.support.small_family import BY_BOX, LETTERS, SMALL

MIRROR, UNSEEN, DELETED, LABELS = MESSAGES.mirror, MESSAGES.filters[0], MESSAGES.filters[1], MESSAGES.unions[0]
POLICY = RepairPolicy(as_of=T)
TRUTH = truth_row(1)
PLACE = place(TRUTH)
LISTED = Seen(UNSEEN.table.key_row(PLACE))
SOON, LATER, LAST = 1_000, 2_000, 3_000


def lasting(row: Row, ends_at: int | None, **others: int | None) -> Seen:
    """A row whose cells expire at one instant, except the others; None: the cell does not expire."""
    instants = {name: ends_at for name, cell in row.items() if cell is not None and name not in KEYS} | others
    known = {name: instant for name, instant in instants.items() if instant is not None}
    return Seen(row, dict.fromkeys(instants, 1), expires_at=known)


KEYS = {"messageid", "mailboxid", "uid"}


def look(kind: Projection, *truths: Seen, projected: Seen | None = None, **fields: Any) -> Look:
    suspect = Suspect(kind.name, PLACE, Verdict.AMEND)
    if kind is LABELS:
        suspect = replace(suspect, key=(MAILBOX,))
    return Look(suspect, MIRROR, MESSAGES.content, kind, projected, truths=truths, **fields)


def finding(kind: Projection, verdict: Verdict) -> Finding:
    return Finding(look(kind).suspect, verdict)


class TestFilters:
    """Rows of a key alone, which show no TTL."""

    @pytest.mark.parametrize(
        ("truths", "mirrored", "ends_at"),
        [
            ([lasting(TRUTH, LATER)], lasting(mirror_row(TRUTH), SOON), LATER),
            ([lasting(TRUTH, LATER)], None, LATER),
            ([], lasting(mirror_row(TRUTH), SOON), SOON),
            ([lasting(TRUTH, None)], lasting(mirror_row(TRUTH), SOON), None),
            ([], None, None),
        ],
    )
    def test_the_row_of_a_filter_ends_with_the_truth_or_else_with_the_row_of_the_mirror(
        self, truths: list[Seen], mirrored: Seen | None, ends_at: int | None
    ) -> None:
        expected = {}
        if ends_at is not None:
            expected = {"mailboxid": ends_at, "uid": ends_at}

        found = UNSEEN.looked_at(look(UNSEEN, projected=LISTED, mirrored=mirrored), truths, accept_torn=False)

        assert found.projected is not None
        assert (found.projected, found.projected.expires_at) == (LISTED, expected)

    def test_a_filter_without_a_row_has_nothing_that_ends(self) -> None:
        found = UNSEEN.looked_at(look(UNSEEN), [lasting(TRUTH, LATER)], accept_torn=False)

        assert (found.projected, found.truths) == (None, (lasting(TRUTH, LATER),))

    @pytest.mark.parametrize(
        ("of_row", "of_flag", "ends_at"),
        [(LATER, SOON, SOON), (None, SOON, SOON), (LATER, LATER, LATER), (None, None, None)],
    )
    def test_a_new_row_ends_with_the_truth_or_sooner_with_the_flag_that_demands_it(
        self, of_row: int | None, of_flag: int | None, ends_at: int | None
    ) -> None:
        truth = lasting({**TRUTH, "flagdeleted": True}, of_row, flagdeleted=of_flag)

        mended = DELETED.fix(finding(DELETED, Verdict.PROJECT), look(DELETED, truth), POLICY, T)

        put = Put(MESSAGE_DELETED, MESSAGE_DELETED.key_row(PLACE), at=T, expires_at=ends_at)
        assert mended == replace(finding(DELETED, Verdict.PROJECT), writes=(put,))

    def test_a_new_row_that_an_unset_flag_demands_ends_with_the_truth_alone(self) -> None:
        """Given a flag that is false until SOON and null afterwards: both demand the row."""
        mended = UNSEEN.fix(
            finding(UNSEEN, Verdict.PROJECT), look(UNSEEN, lasting(TRUTH, LATER, flagseen=SOON)), POLICY, T
        )

        put = Put(UNSEEN.table, UNSEEN.table.key_row(PLACE), at=T, expires_at=LATER)
        assert mended == replace(finding(UNSEEN, Verdict.PROJECT), writes=(put,))


def holder(number: int, flags: str, ends_at: int | None, **others: int | None) -> Seen:
    """A truth row that holds the flags: one letter each."""
    return lasting(truth_row(number, userflags=frozenset(flags)), ends_at, **others)


def groups(found: Look) -> list[tuple[str, Mapping[str, int]]]:
    """The elements of a union that end together, as letters in order, and when."""
    return [("".join(sorted(seen.row["userflags"])), seen.expires_at) for seen in found.truths]


class TestUnions:
    """Elements of a set, each of which may end at another instant."""

    def test_an_element_ends_with_the_last_truth_that_holds_it(self) -> None:
        """Given `d`, which the scan missed and no known truth holds, and `c`, of which one truth stays."""
        holders = [holder(1, "abc", SOON), holder(2, "a", LATER), holder(3, "c", None)]
        begun = look(LABELS)
        begun = replace(begun, suspect=replace(begun.suspect, wanted={"userflags": frozenset("d")}))

        found = LABELS.looked_at(begun, holders, accept_torn=False)

        assert groups(found) == [("cd", {}), ("b", {"userflags": SOON}), ("a", {"userflags": LATER})]

    def test_where_every_element_ends_none_is_said_to_stay(self) -> None:
        found = LABELS.looked_at(look(LABELS), [holder(1, "ab", SOON)], accept_torn=False)

        assert groups(found) == [("ab", {"userflags": SOON})]

    def test_an_element_ends_with_its_set_and_before_cassandra_5_with_the_row(self) -> None:
        """Before Cassandra 5 a set shows neither its time nor its TTL."""
        shown = holder(1, "a", LATER, userflags=SOON)
        staying = holder(2, "b", LATER, userflags=None)
        hidden = Seen(truth_row(3, userflags=frozenset("c")), {"modseq": 1}, expires_at={"modseq": LAST})

        found = LABELS.looked_at(look(LABELS), [shown, staying, hidden], accept_torn=False)

        assert groups(found) == [("b", {}), ("a", {"userflags": SOON}), ("c", {"userflags": LAST})]

    def test_more_truths_of_the_group_may_prolong_what_it_lacks(self) -> None:
        """Truths of another mailbox prolong nothing, and a group without known truths stays."""
        begun = LABELS.looked_at(look(LABELS), [holder(1, "ab", SOON)], accept_torn=False)
        elsewhere = truth_row(3, userflags=frozenset("b"), mailboxid=message(9))

        found = LABELS.lasting(begun, [holder(1, "ab", SOON), holder(2, "az", LATER), lasting(elsewhere, LAST)])

        assert groups(found) == [("b", {"userflags": SOON}), ("a", {"userflags": LATER})]
        assert groups(LABELS.lasting(begun, [])) == [("ab", {})]

    def test_elements_that_end_together_are_added_by_one_write(self) -> None:
        """Elements that the group has already are not added again."""
        begun = look(LABELS, projected=Seen({"mailboxid": MAILBOX, "userflags": frozenset("x")}))
        holders = [holder(1, "abx", SOON), holder(2, "c", LATER), holder(3, "d", None)]
        found = LABELS.looked_at(begun, holders, accept_torn=False)

        mended = LABELS.fix(finding(LABELS, Verdict.AMEND), found, POLICY, T)

        additions = tuple(
            Change(APPLICABLE_FLAG, (MAILBOX,), add={"userflags": frozenset(flags)}, at=T, expires_at=ends_at)
            for flags, ends_at in (("d", None), ("ab", SOON), ("c", LATER))
        )
        assert mended == replace(finding(LABELS, Verdict.AMEND), writes=additions)

    def test_an_undo_adds_elements_for_the_time_that_they_had_left(self) -> None:
        image = replace(
            finding(LABELS, Verdict.AMEND),
            truths=(Seen({"userflags": frozenset("a")}, expires_at={"userflags": SOON}),),
            projected=Seen({"mailboxid": MAILBOX, "userflags": frozenset("a")}),
        )

        back = LABELS.take_back(image, look(LABELS), T, None)

        added = {"userflags": frozenset("a")}
        assert back.writes == (Change(APPLICABLE_FLAG, (MAILBOX,), add=added, at=T + 1, expires_at=SOON),)


class TestMirrors:
    """Rows whose cells end one by one."""

    def test_each_cell_ends_with_that_of_the_truth_and_the_key_with_the_whole_row(self) -> None:
        mended = MIRROR.fix(
            finding(MIRROR, Verdict.PROJECT), look(MIRROR, lasting(TRUTH, LATER, flagseen=SOON)), POLICY, T
        )

        row = mirror_row(TRUTH)
        del row["flagseen"]
        put = Put(MESSAGE_ID, row, at=T, clear=True, expires_at=LATER)
        flag = Change(MESSAGE_ID, PLACE, {"flagseen": False}, at=T, expires_at=SOON)
        assert mended == replace(finding(MIRROR, Verdict.PROJECT), writes=(put, flag))

    def test_a_row_stays_where_a_cell_of_the_truth_stays(self) -> None:
        mended = MIRROR.fix(
            finding(MIRROR, Verdict.AMEND), look(MIRROR, lasting(TRUTH, None, flagseen=SOON)), POLICY, T
        )

        row = mirror_row(TRUTH)
        del row["flagseen"]
        put = Put(MESSAGE_ID, row, at=T, clear=True)
        flag = Change(MESSAGE_ID, PLACE, {"flagseen": False}, at=T, expires_at=SOON)
        assert mended == replace(finding(MIRROR, Verdict.AMEND), writes=(put, flag))

    def test_a_truth_that_is_restored_lasts_as_long_as_the_row_that_led_to_it(self) -> None:
        """Given cells with other names in the mirror."""
        row = {"inbox": 5, "num": 1, "letter": 7, "words": frozenset("a"), "title": "hello", "size": 3}
        ends = {"letter": LATER, "words": SOON, "title": LATER, "size": LATER}
        suspect = Suspect(BY_BOX.spelling, (5, 1), Verdict.WITHDRAW)
        found = Look(suspect, SMALL.mirror, SMALL.content, SMALL.mirror, Seen(row, ends, expires_at=ends))
        withdrawn = Finding(suspect, Verdict.WITHDRAW)

        restored = SMALL.mirror.fix(withdrawn, replace(found, last_trace=True), replace(POLICY, dangling="restore"), T)

        letter = dict.fromkeys(LETTERS.names) | {"id": 7, "box": 5, "num": 1, "title": "hello", "size": 3}
        del letter["labels"]
        labels = Change(LETTERS, (7, 5, 1), {"labels": frozenset("a")}, expires_at=SOON)
        insert = PutIfAbsent(LETTERS, letter, expires_at=LATER, beside=(labels,))
        assert restored == replace(withdrawn, condition=insert)

    def test_rows_of_filters_that_go_with_their_truth_would_have_ended_with_it(self) -> None:
        """An undo gives them back until then."""
        found = look(MIRROR, lasting(TRUTH, LATER), companions=((UNSEEN, LISTED),), has_content=False)

        removed = MIRROR.fix(finding(MIRROR, Verdict.LOST_CONTENT), found, replace(POLICY, orphans="quarantine"), T)

        assert removed is not None
        (beside,) = removed.beside
        assert beside.projected is not None
        assert (beside.projected, beside.projected.expires_at) == (LISTED, {"mailboxid": LATER, "uid": LATER})

    def test_a_quarantined_truth_comes_back_for_the_time_that_it_had_left(self) -> None:
        image = replace(finding(MIRROR, Verdict.LOST_CONTENT), truths=(lasting(TRUTH, LATER, flagseen=SOON),))

        back = MIRROR.take_back(image, look(MIRROR), T, None)

        row = dict(TRUTH)
        del row["flagseen"]
        flag = Change(IMAP_UID, IMAP_UID.key_of(TRUTH), {"flagseen": False}, expires_at=SOON)
        assert back.condition == PutIfAbsent(IMAP_UID, row, expires_at=LATER, beside=(flag,))


@pytest.mark.parametrize(
    ("truths", "projected", "soonest"),
    [
        ([lasting(TRUTH, LAST, flagseen=LATER)], None, LATER),
        ([lasting(TRUTH, LAST)], lasting(mirror_row(TRUTH), LATER, modseq=SOON), SOON),
        ([lasting(TRUTH, LATER), lasting(TRUTH, SOON)], lasting(mirror_row(TRUTH), LAST), SOON),
        ([lasting(TRUTH, None)], lasting(mirror_row(TRUTH), None), None),
    ],
)
def test_a_look_knows_when_the_first_cell_of_either_side_ends(
    truths: list[Seen], projected: Seen | None, soonest: int | None
) -> None:
    assert look(MIRROR, *truths, projected=projected).soonest == soonest
