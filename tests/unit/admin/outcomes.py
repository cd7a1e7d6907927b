"""Summaries and outcomes to show in tests."""

from collections import Counter
from datetime import UTC, datetime
from uuid import UUID

from mailmend.model.ids import RunId
from mailmend.model.operations import Seen
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.ledger.runs import RunKind
from mailmend.repair.mending.engine import RepairResult

RUN = RunId(UUID("6e0ab5e0-8d1c-11f0-8000-000000000001"))
MAILBOX = UUID("6e0ab5e0-8d1c-11f0-8000-000000000002")
MESSAGE = UUID("6e0ab5e0-8d1c-11f0-8000-000000000003")


def outcome(
    verdict: Verdict = Verdict.AMEND,
    result: Verdict | None = None,
    *,
    uid: int = 7,
    last_trace: bool = False,
    error: str | None = None,
) -> Finding:
    truth = Seen({"messageid": MESSAGE, "userflags": frozenset({"b", "a"}), "flagseen": True}, {"flagseen": 42})
    projected = Seen({"mailboxid": MAILBOX, "uid": uid, "internaldate": datetime(2026, 1, 2, tzinfo=UTC)})
    suspect = Suspect("messageIdTable", (MAILBOX, uid), verdict)
    return Finding(suspect, verdict, result, (truth,), projected, last_trace=last_trace, error=error)


def check_summary(exit_code: int = 1) -> RepairResult:
    return RepairResult(
        keyspace="apache_james",
        kind=RunKind.CHECK,
        scanned={"imapUidTable": 1500, "messageIdTable": 1490},
        findings={
            "messageIdTable": Counter({Verdict.PROJECT: 10, Verdict.LOST_CONTENT: 2}),
            "messageV3": Counter({Verdict.LEAK: 83}),
        },
        suspects=95,
        seconds={"scan": 1.25, "delay": 60.0, "recheck": 0.5},
        exit=exit_code,
    )


def repair_summary() -> RepairResult:
    return RepairResult(
        keyspace="apache_james",
        kind=RunKind.MESSAGES,
        run=RUN,
        scanned={"imapUidTable": 1500},
        findings={"messageIdTable": Counter({Verdict.PROJECT: 10, Verdict.WITHDRAW: 3})},
        suspects=13,
        fixed=Counter({Verdict.PROJECT: 9, Verdict.WITHDRAW: 3}),
        left=Counter({Verdict.PROJECT: 1}),
        moved=1,
        last_traces=2,
        seconds={"scan": 1.0},
        exit=1,
    )
