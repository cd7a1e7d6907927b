"""The rows of verdicts: what each may do, where it is found, and which page and which command help."""

import re

import pytest

from mailmend.model.catalog.mail_queue import QUEUE_TABLES
from mailmend.model.projections.verdicts import (
    BY_POLICY,
    HARMLESS,
    MENDABLE,
    NEEDS_SCAN,
    OVER_VERDICTS,
    QUEUE_VERDICTS,
    ROW_VERDICTS,
    SETTLED,
    Verdict,
)
from tests.support.checkout import CHECKOUT

REFERENCE = (CHECKOUT / "docs" / "cli.md").read_text(encoding="utf-8")


def test_every_verdict_has_one_row() -> None:
    assert {*ROW_VERDICTS, *QUEUE_VERDICTS} == set(Verdict)
    assert not ROW_VERDICTS.keys() & QUEUE_VERDICTS.keys()


def test_verdicts_are_grouped_by_what_may_be_done_about_them() -> None:
    assert {Verdict.PROJECT, Verdict.AMEND, Verdict.WITHDRAW} == MENDABLE
    assert {Verdict.LOST_CONTENT, Verdict.LEAK} == BY_POLICY
    assert {Verdict.AGREE, Verdict.FIXED} == SETTLED
    assert {Verdict.PROJECT, Verdict.WITHDRAW} == NEEDS_SCAN
    assert {Verdict.LEAK, Verdict.FINISHED, Verdict.ORPHAN_MARK} == HARMLESS
    assert {Verdict.OVER, Verdict.BEFORE_CONTENT} == OVER_VERDICTS


def test_only_a_start_that_is_behind_or_was_moved_back_is_moved() -> None:
    moved = {verdict for verdict, row in QUEUE_VERDICTS.items() if row.moves_start}

    assert moved == {Verdict.START_BEHIND, Verdict.START_MOVED_BACK}


def test_a_repair_of_queues_mends_all_but_what_holds_mails_and_marks() -> None:
    mended = {verdict for verdict, row in QUEUE_VERDICTS.items() if row.by_repair}

    assert QUEUE_VERDICTS.keys() - mended == {
        Verdict.FINISHED,
        Verdict.STRANDED,
        Verdict.OVERSTAYED,
        Verdict.BLOBS_GONE,
        Verdict.ORPHAN_MARK,
    }


@pytest.mark.parametrize("verdict", QUEUE_VERDICTS)
def test_a_verdict_on_a_queue_is_found_in_one_of_its_tables(verdict: Verdict) -> None:
    assert QUEUE_VERDICTS[verdict].table in {table.spelling for table in QUEUE_TABLES}


@pytest.mark.parametrize("verdict", QUEUE_VERDICTS)
def test_a_verdict_on_a_queue_has_a_page_and_a_command_that_exist(verdict: Verdict) -> None:
    row = QUEUE_VERDICTS[verdict]

    assert (CHECKOUT / "runbooks" / f"{row.runbook}.md").is_file()
    if row.mended:
        system, task, *_ = row.mended.split()
        assert f"\n## mailmend {system} {task}\n" in REFERENCE


def test_what_no_repair_mends_by_default_has_a_command_of_its_own_or_none() -> None:
    """What is finished goes with its slice, which a sweep removes."""
    mended = {verdict: row.mended for verdict, row in QUEUE_VERDICTS.items() if not row.by_repair}

    assert mended == {
        Verdict.FINISHED: "",
        Verdict.STRANDED: "queue sweep QUEUE",
        Verdict.OVERSTAYED: "queue reconcile QUEUE",
        Verdict.BLOBS_GONE: "queue reconcile QUEUE",
        Verdict.ORPHAN_MARK: "repair queues --marks empty",
    }


def test_what_a_repair_of_queues_mends_names_that_command() -> None:
    assert {row.mended for row in QUEUE_VERDICTS.values() if row.by_repair} == {"repair queues"}


@pytest.mark.parametrize("verdict", QUEUE_VERDICTS)
def test_the_reference_tells_what_a_verdict_on_a_queue_counts(verdict: Verdict) -> None:
    line = rf"^{verdict.value} +{re.escape(QUEUE_VERDICTS[verdict].meaning)}$"

    assert re.search(line, REFERENCE, re.MULTILINE)
