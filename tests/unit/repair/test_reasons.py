"""Why a run leaves a row: one case for each reason."""

from dataclasses import replace
from uuid import uuid1

import pytest

from mailmend.model.catalog.mail import MESSAGES, PATHS
from mailmend.model.ids import RunId
from mailmend.model.instants import MICROS
from mailmend.model.operations import Seen
from mailmend.model.projections.findings import Finding, RepairPolicy, Suspect
from mailmend.model.projections.projection import Projection
from mailmend.model.projections.verdicts import DAY_MICROS, Reason, Verdict, Why
from mailmend.repair.decisions.recheck import reason_of
from tests.support.clock import uuid_at
from tests.support.small_family import SMALL

NOW = 1_760_000_000 * MICROS
T = NOW - 90 * MICROS
MIRROR, UNSEEN, COUNTS, CONTENT = MESSAGES.mirror, MESSAGES.filters[0], MESSAGES.counts[0], MESSAGES.content
NO_PATH = "no path is registered for this mailbox"
POLICY = RepairPolicy(run=RunId(uuid1()), as_of=T, margin_seconds=30)
MAILBOX, OLD, YOUNG = uuid_at(NOW, 1), uuid_at(NOW - 2 * DAY_MICROS, 2), uuid_at(NOW - DAY_MICROS + MICROS, 3)


def finding(verdict: Verdict, result: Verdict | None = None, *, at: int = 1, message: object = OLD) -> Finding:
    truth = Seen({"messageid": message, "mailboxid": MAILBOX, "uid": 7}, {"modseq": at})
    return Finding(Suspect(MIRROR.name, (MAILBOX, 7), verdict), verdict, result, (truth,))


@pytest.mark.parametrize(
    ("found", "changes", "projection", "reason"),
    [
        (finding(Verdict.AGREE), {}, MIRROR, None),
        (finding(Verdict.AMEND, Verdict.FIXED), {}, MIRROR, None),
        (replace(finding(Verdict.AMEND), error="no answer"), {}, MIRROR, None),
        (
            finding(Verdict.AMEND, Verdict.MOVED, at=T + 12 * MICROS),
            {},
            MIRROR,
            Reason(Why.TOO_YOUNG, 12 * MICROS, T + 42 * MICROS),
        ),
        (finding(Verdict.AMEND, Verdict.MOVED, at=T), {}, MIRROR, Reason(Why.CHANGED)),
        (
            replace(finding(Verdict.AMEND, Verdict.MOVED), suspect=Suspect("", (), Verdict.AMEND, planned="digest")),
            {},
            MIRROR,
            Reason(Why.OTHER_THAN_PLANNED),
        ),
        (finding(Verdict.AMEND, Verdict.AHEAD, at=NOW - 1), {}, MIRROR, Reason(Why.AHEAD, 0, NOW - 1 + 30 * MICROS)),
        (replace(finding(Verdict.AMEND, Verdict.MOVED), truths=()), {}, COUNTS, Reason(Why.CHANGED)),
        (
            finding(Verdict.AMEND, Verdict.AHEAD, at=NOW + 60 * MICROS),
            {},
            MIRROR,
            Reason(Why.AHEAD, 60 * MICROS, NOW + 90 * MICROS),
        ),
        (finding(Verdict.AMEND, Verdict.HIDDEN), {}, MIRROR, Reason(Why.HIDDEN)),
        (replace(finding(Verdict.AMEND), due=True), {"run": None}, MIRROR, Reason(Why.DUE)),
        (finding(Verdict.CLASH), {}, MIRROR, Reason(Why.TWO_TRUTHS)),
        (finding(Verdict.TORN), {}, MIRROR, Reason(Why.HALF_A_TRUTH)),
        (finding(Verdict.LOST_CONTENT), {}, MIRROR, Reason(Why.NEEDS_ORPHANS)),
        (
            finding(Verdict.LOST_CONTENT, message=YOUNG),
            {"orphans": "quarantine"},
            MIRROR,
            Reason(Why.YOUNGER_THAN_A_DAY, None, NOW + MICROS),
        ),
        (finding(Verdict.LOST_CONTENT), {"orphans": "quarantine"}, MIRROR, Reason(Why.NO_WHOLE_ROW)),
        (finding(Verdict.LEAK), {}, CONTENT, Reason(Why.NEEDS_LEAKS)),
        (
            replace(
                finding(Verdict.LEAK),
                suspect=Suspect("messageV3", (OLD,), Verdict.LEAK),
                projected=Seen({"messageid": OLD, "bodycontent": "1_body"}, {"bodycontent": NOW - DAY_MICROS}),
            ),
            {"leaks": "collect"},
            CONTENT,
            Reason(Why.YOUNGER_THAN_A_DAY, None, NOW),
        ),
        (
            replace(finding(Verdict.LEAK), suspect=Suspect("messageV3", ("no uuid",), Verdict.LEAK), truths=()),
            {"leaks": "collect"},
            CONTENT,
            Reason(Why.AGE_UNKNOWN),
        ),
        (
            finding(Verdict.WITHDRAW),
            {},
            PATHS.mirror,
            Reason(Why.ONLY_REPORTED, said=NO_PATH),
        ),
        (finding(Verdict.AMEND), {"only": frozenset({Verdict.PROJECT})}, UNSEEN, Reason(Why.NEEDS_ONLY)),
        (finding(Verdict.WITHDRAW), {"dangling": "report"}, MIRROR, Reason(Why.NEEDS_DANGLING)),
        (finding(Verdict.AMEND), {}, COUNTS, Reason(Why.ROWS_DIFFER)),
        (finding(Verdict.AMEND), {}, SMALL.counts[0], Reason(Why.GROUP_DIFFERS, columns=("box",))),
        (finding(Verdict.AMEND), {"all_truths": False}, SMALL.counts[0], Reason(Why.NEEDS_SCAN)),
        (
            replace(finding(Verdict.WITHDRAW), last_trace=True),
            {"dangling": "restore"},
            MIRROR,
            Reason(Why.NO_WHOLE_ROW),
        ),
        (finding(Verdict.WITHDRAW), {"dangling": "restore"}, MIRROR, Reason(Why.NOT_SETTLED)),
        (finding(Verdict.WITHDRAW), {"all_truths": False}, UNSEEN, Reason(Why.NEEDS_SCAN)),
        (finding(Verdict.AMEND), {"all_truths": False}, COUNTS, Reason(Why.NEEDS_SCAN)),
    ],
)
def test_what_stays_says_why(
    found: Finding, changes: dict[str, object], projection: Projection, reason: Reason | None
) -> None:
    policy = replace(POLICY, **changes)  # type: ignore[arg-type]
    assert reason_of(found, policy, NOW, projection) == reason


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (Reason(Why.TOO_YOUNG, 1), "too young by 1 s"),
        (Reason(Why.TOO_YOUNG, 119 * MICROS), "too young by 119 s"),
        (Reason(Why.TOO_YOUNG, 120 * MICROS), "too young by 2 min"),
        (Reason(Why.CHANGED), "changed while it was looked at"),
        (
            Reason(Why.GROUP_DIFFERS, columns=("team", "day")),
            "rows with the same team, day differ: counters are mended once they agree",
        ),
    ],
)
def test_a_reason_says_by_how_much(reason: Reason, text: str) -> None:
    assert reason.text == text
