"""Each verdict has words, a colour and, where a person has to act, a page."""

from mailmend.admin.frame.verdict_texts import MEANINGS, RUNBOOKS, STYLES
from mailmend.model.projections.verdicts import Verdict


def test_each_verdict_has_a_meaning_and_a_style() -> None:
    assert [verdict for verdict in Verdict if verdict not in MEANINGS or verdict not in STYLES] == []


def test_each_verdict_that_is_not_settled_has_a_runbook() -> None:
    assert {verdict for verdict in Verdict if verdict not in RUNBOOKS} == {Verdict.AGREE, Verdict.FIXED}
