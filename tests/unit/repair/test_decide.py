"""The tables of verdicts: total, and each line of the design's table true for every combination that it speaks of."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest

from mailmend.model.projections.content import Content
from mailmend.model.projections.family import Filter
from mailmend.model.projections.group import Group
from mailmend.model.projections.projection import Mirror
from mailmend.model.projections.verdicts import (
    DETECTED,
    MENDABLE,
    ContentSymptoms,
    FilterSymptoms,
    GroupSymptoms,
    MirrorSymptoms,
    Verdict,
)

MIRROR, FILTER, GROUP, CONTENT = Mirror.verdicts, Filter.verdicts, Group.verdicts, Content.verdicts


@pytest.mark.parametrize(
    ("table", "symptoms"),
    [(MIRROR, MirrorSymptoms), (FILTER, FilterSymptoms), (GROUP, GroupSymptoms), (CONTENT, ContentSymptoms)],
)
def test_every_combination_of_symptoms_has_a_verdict(table: Mapping[Any, Verdict], symptoms: Any) -> None:
    """A total table: nothing that a scan can see is left without a judgement."""
    combinations = {symptoms(*bits) for bits in product((False, True), repeat=len(symptoms._fields))}
    assert set(table) == combinations


@pytest.mark.parametrize("table", [MIRROR, FILTER, GROUP, CONTENT])
def test_the_tables_iterate_in_the_order_of_their_bits(table: Mapping[Any, Verdict]) -> None:
    """Spark indexes a literal array by the bits, first field lowest: the order is a contract."""
    for index, symptoms in enumerate(table):
        assert index == sum(bit << place for place, bit in enumerate(symptoms))


def verdicts(table: Mapping[Any, Verdict], **seen: bool) -> set[Verdict]:
    """The verdicts of every combination that agrees with what was seen; a truth says what its mirror row is."""
    if table is MIRROR:
        seen.setdefault("says", True)
    return {
        verdict
        for symptoms, verdict in table.items()
        if all(getattr(symptoms, field) is value for field, value in seen.items())
    }


SOUND = {"in_truth": True, "clash": False, "has_content": True, "whole": True}


def test_a_sound_truth_without_projection_is_projected() -> None:
    """PROJECT: the user sees the mail over JMAP and not over IMAP."""
    assert verdicts(MIRROR, **SOUND, in_projection=False) == {Verdict.PROJECT}


def test_rows_that_differ_are_amended_and_rows_that_agree_are_left() -> None:
    """AMEND or AGREE, by the compared columns alone."""
    assert verdicts(MIRROR, **SOUND, in_projection=True, rows_agree=False) == {Verdict.AMEND}
    assert verdicts(MIRROR, **SOUND, in_projection=True, rows_agree=True) == {Verdict.AGREE}


def test_a_projection_without_truth_is_withdrawn_whatever_else_is_seen() -> None:
    """WITHDRAW: stale uids and half-written rows too."""
    assert verdicts(MIRROR, in_truth=False, in_projection=True) == {Verdict.WITHDRAW}


def test_two_truths_at_one_place_are_never_guessed_about() -> None:
    """CLASH: neither inserted, nor overwritten, nor deleted."""
    assert verdicts(MIRROR, in_truth=True, clash=True) == {Verdict.CLASH}


@pytest.mark.parametrize("in_projection", [False, True])
def test_a_truth_that_cannot_say_what_its_row_is_leaves_it(in_projection: bool) -> None:
    assert verdicts(MIRROR, in_truth=True, says=False, in_projection=in_projection) == {Verdict.AGREE}


def test_lost_content_never_spreads() -> None:
    """A truth whose content is gone is reported, present in the projection or not, torn or not."""
    assert verdicts(MIRROR, in_truth=True, clash=False, has_content=False) == {Verdict.LOST_CONTENT}


def test_a_torn_truth_is_never_projected() -> None:
    """What a lost delete left behind is no mail."""
    assert verdicts(MIRROR, in_truth=True, clash=False, has_content=True, whole=False) == {Verdict.TORN}


def test_nothing_on_either_side_needs_nothing() -> None:
    """An absent pair agrees."""
    assert verdicts(MIRROR, in_truth=False, in_projection=False) == {Verdict.AGREE}


def test_a_filter_holds_exactly_the_rows_that_are_wanted() -> None:
    """Sound truths: wanted and absent is inserted, present and unwanted is deleted, the rest agrees."""
    assert verdicts(FILTER, **SOUND, wanted=True, in_projection=False) == {Verdict.PROJECT}
    assert verdicts(FILTER, **SOUND, wanted=False, in_projection=True) == {Verdict.WITHDRAW}
    assert verdicts(FILTER, **SOUND, wanted=True, in_projection=True) == {Verdict.AGREE}
    assert verdicts(FILTER, **SOUND, wanted=False, in_projection=False) == {Verdict.AGREE}


def test_a_filter_row_without_truth_is_withdrawn() -> None:
    """A listed uid that no message has."""
    assert verdicts(FILTER, in_truth=False, in_projection=True) == {Verdict.WITHDRAW}
    assert verdicts(FILTER, in_truth=False, in_projection=False) == {Verdict.AGREE}


@pytest.mark.parametrize("doubt", [{"clash": True}, {"has_content": False}, {"whole": False}])
def test_a_truth_in_doubt_leaves_its_filters_as_they_are(doubt: dict[str, bool]) -> None:
    """The mirror reports the doubt, once; the filters neither gain nor lose a row by it."""
    assert verdicts(FILTER, in_truth=True, **doubt) == {Verdict.AGREE}


def test_a_group_is_mended_only_where_it_falls_short() -> None:
    """A superset of flags is fine; a missing row is inserted, a short one amended."""
    assert GROUP[GroupSymptoms(in_projection=True, covered=True)] is Verdict.AGREE
    assert GROUP[GroupSymptoms(in_projection=False, covered=True)] is Verdict.AGREE
    assert GROUP[GroupSymptoms(in_projection=False, covered=False)] is Verdict.PROJECT
    assert GROUP[GroupSymptoms(in_projection=True, covered=False)] is Verdict.AMEND


def test_content_that_nobody_names_is_a_leak_and_nothing_else_is() -> None:
    """The reverse, a truth without content, is told by the mirror."""
    leaks = [seen for seen, verdict in CONTENT.items() if verdict is Verdict.LEAK]
    assert leaks == [ContentSymptoms(in_truth=False, in_projection=True)]
    assert set(CONTENT.values()) == {Verdict.LEAK, Verdict.AGREE}


def test_only_what_a_scan_can_see_is_ever_decided() -> None:
    """The verdicts of the second look are never given by the first."""
    decided = {verdict for table in (MIRROR, FILTER, GROUP, CONTENT) for verdict in table.values()}
    assert decided == {*DETECTED, Verdict.AGREE}
    assert set(DETECTED) >= MENDABLE


def test_a_verdict_is_called_in_reports_as_it_is_called_here() -> None:
    """The names stand in the JSON, in the ledger and in Spark's frames: a contract."""
    assert [verdict.value for verdict in Verdict] == [verdict.name for verdict in Verdict]
