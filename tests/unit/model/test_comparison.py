"""Both rows of a finding side by side: what differs, as the verdict compares it, and when each cell was written."""

from typing import Any
from uuid import uuid1

import pytest

from mailmend.admin.frame.examples import TRUTHS_SHOWN, mailbox_in
from mailmend.admin.messages.affected_document import Comparison, compared
from mailmend.model.catalog.mail import MESSAGES, PATHS, PROJECTIONS
from mailmend.model.operations import Seen
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import Verdict
from tests.support.repairing import MAILBOX, message, mirror_row, truth_row

MIRROR = MESSAGES.mirror
UNSEEN, (UNION,), (COUNTS,) = MESSAGES.filters[0], MESSAGES.unions, MESSAGES.counts


def comparison_of(finding: Finding) -> Comparison:
    return compared(finding, PROJECTIONS[finding.suspect.projection])


def differing(found: Comparison) -> set[str]:
    return {column.name for column in found.columns if column.differs}


def of_mirror(verdict: Verdict, *truths: Seen, projected: Seen | None = None) -> Finding:
    return Finding(Suspect("messageIdTable", (MAILBOX, 1), verdict), verdict, truths=truths, projected=projected)


def test_a_mirror_differs_in_what_its_verdict_compares_and_each_cell_has_its_time() -> None:
    truth = truth_row(modseq=5, flagseen=None, userflags=frozenset({"work"}))
    row = mirror_row(truth, modseq=4, flagseen=False, userflags=None)

    found = comparison_of(of_mirror(Verdict.AMEND, Seen(truth, {"modseq": 20}), projected=Seen(row, {"modseq": 10})))

    assert found.sides == ("imapUidTable", "messageIdTable")
    assert differing(found) == {"modSeq", "userFlags"}  # a null flag is an unset one
    (modseq,) = (column for column in found.columns if column.name == "modSeq")
    assert (modseq.values, modseq.written_at) == ((5, 4), (20, 10))
    assert [column.name for column in found.columns][:3] == ["mailboxId", "uid", "messageId"]
    assert "save_date" not in {column.name for column in found.columns}  # null in both


@pytest.mark.parametrize(("verdict", "present"), [(Verdict.PROJECT, (True, False)), (Verdict.WITHDRAW, (False, True))])
def test_one_row_alone_stands_beside_nothing(verdict: Verdict, present: tuple[bool, ...]) -> None:
    truths = (Seen(truth_row()),) if present[0] else ()
    projected = Seen(mirror_row(truth_row())) if present[1] else None

    found = comparison_of(of_mirror(verdict, *truths, projected=projected))

    assert (found.present, differing(found)) == (present, set())
    assert all(column.values[present.index(False)] == "" for column in found.columns)


def test_rows_that_clash_stand_beside_each_other_a_few_of_them() -> None:
    truths = [Seen(truth_row(number, uid=1)) for number in range(1, 9)]

    found = comparison_of(of_mirror(Verdict.CLASH, *truths))

    assert found.sides == ("imapUidTable",) * TRUTHS_SHOWN + ("messageIdTable",)
    assert differing(found) == {"messageId", "threadId"}  # a null thread is the message's own


@pytest.mark.parametrize(
    ("seen", "stands", "differs"), [(True, True, {"flagSeen"}), (False, True, set()), (False, False, set())]
)
def test_a_filter_shows_the_column_that_decides(*, seen: bool, stands: bool, differs: set[str]) -> None:
    """`firstUnseen` has no more than a key: by standing there it says that the message is unseen."""
    truth, key = truth_row(flagseen=seen), (MAILBOX, 1)
    projected = Seen(UNSEEN.table.key_row(key)) if stands else None
    finding = Finding(Suspect("firstUnseen", key, Verdict.WITHDRAW), Verdict.WITHDRAW, None, (Seen(truth),), projected)

    found = comparison_of(finding)

    assert {column.name for column in found.columns} == {"mailboxId", "uid", "flagSeen"}
    assert differing(found) == differs


def test_a_union_differs_by_what_it_lacks_only() -> None:
    def found(*flags: str) -> set[str]:
        rows = ((Seen({"userflags": frozenset({"a", "b"})}),), Seen({"mailboxid": MAILBOX, "userflags": {*flags}}))
        return differing(
            comparison_of(Finding(Suspect(UNION.name, (MAILBOX,), Verdict.AMEND), Verdict.AMEND, None, *rows))
        )

    assert (found("a"), found("a", "b", "c")) == ({"userFlags"}, set())


def test_counters_stand_beside_what_was_counted() -> None:
    def found(**counted: Any) -> Comparison:
        suspect = Suspect(COUNTS.name, (MAILBOX,), Verdict.AMEND, wanted=counted)
        row = Seen({"mailboxid": MAILBOX, "count": 4, "unseen": None})
        return comparison_of(Finding(suspect, Verdict.AMEND, projected=row))

    assert differing(found(count=3, unseen=0)) == {"count"}
    assert found(count=4, unseen=0).present == (False, True)  # its rows differ: nothing was counted


def test_a_path_is_compared_under_the_names_of_the_mailbox() -> None:
    truth = {"namespace": "#private", "user": "bob", "mailboxname": "Sent", "mailboxid": MAILBOX, "uidvalidity": 1}
    row = PATHS.mirror.row_of(truth) | {"name": "Old"}
    suspect = Suspect("mailbox", (MAILBOX,), Verdict.AMEND)

    found = comparison_of(Finding(suspect, Verdict.AMEND, None, (Seen(truth, {"mailboxname": 7}),), Seen(row)))

    assert differing(found) == {"name"}
    (name,) = (column for column in found.columns if column.name == "name")
    assert (name.values, name.written_at) == (("Sent", "Old"), (7, None))


@pytest.mark.parametrize(
    ("projection", "key", "mailbox"),
    [
        ("messageIdTable", (MAILBOX, 1), MAILBOX),
        ("mailboxRecents", (MAILBOX, 1), MAILBOX),
        ("mailboxCounters", (MAILBOX,), MAILBOX),
        ("mailbox", (MAILBOX,), MAILBOX),
        ("messageV3", (message(1),), None),
        ("enqueuedMailsV4", ("spool", uuid1(), 1), None),
    ],
)
def test_a_finding_is_in_a_mailbox_or_in_none(projection: str, key: tuple[object, ...], mailbox: object) -> None:
    finding = Finding(Suspect(projection, key, Verdict.AMEND), Verdict.AMEND)

    assert mailbox_in(finding, PROJECTIONS.get(projection)) == mailbox
