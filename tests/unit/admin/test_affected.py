"""Whose mail it is and how its rows differ: in reports and in `runs show`, within bounds, and nowhere else."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.admin.frame import examples as kept
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.document import Document
from mailmend.admin.frame.examples import MAILBOXES_AT_ONCE, Affected, Examples, MailboxFindings, Owner, owners_of
from mailmend.admin.frame.presenter import html_of
from mailmend.admin.frame.runbooks import pages
from mailmend.admin.frame.verdict_texts import RUNBOOKS, next_command, runbook_of
from mailmend.admin.messages.affected_document import (
    affected_json,
    findings_parts,
    mailboxes_part,
    value_text,
    written_text,
)
from mailmend.cql.memory import MemoryTables
from mailmend.model.catalog.ledger import LEDGER_TABLES
from mailmend.model.catalog.mail import MAILBOX, PROJECTIONS
from mailmend.model.errors import AccessDenied, MailmendError
from mailmend.model.operations import Put, Read, Scan, Seen
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import MENDABLE, QUEUE_VERDICTS, Verdict
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import QUICK, CommandLine
from tests.support.mail_states import MailKeyspace, register
from tests.support.repairing import message
from tests.support.writing import Faults
from tests.unit.admin import outcomes
from tests.unit.admin.outcomes import outcome


def name_mailbox(tables: MemoryTables, mailbox: UUID, user: str, name: str, namespace: str = "#private") -> None:
    tables.write(Put(MAILBOX, {"id": mailbox, "mailboxbase": {"namespace": namespace, "user": user}, "name": name}))


def ignore(_: str) -> None:
    """No remark is expected."""


class TestOwners:
    """User and path of mailboxes, looked up in bounded batches."""

    def test_batches_are_bounded_and_those_without_a_row_stay_unknown(self) -> None:
        asked = list[int]()

        class Watched(MemoryTables):
            def read_all(self, reads: Sequence[Read]) -> list[Sequence[Seen] | MailmendError]:
                asked.append(len(reads))
                return super().read_all(reads)

        tables = Watched(lambda: 1)
        ids = [message(number) for number in range(2 * MAILBOXES_AT_ONCE + 1)]
        for number, one in enumerate(ids[1:]):
            name_mailbox(tables, one, "bob", f"box {number}", "#private" if number else "#shared")

        owners = owners_of(lambda: tables, [*ids, *ids], ignore)

        assert asked == [MAILBOXES_AT_ONCE, MAILBOXES_AT_ONCE, 1]
        assert ids[0] not in owners
        assert (owners[ids[1]], owners[ids[2]]) == (Owner("bob", "#shared:box 0"), Owner("bob", "box 1"))

    def test_who_may_not_be_asked_for_is_remarked_and_hides_nothing_else(self) -> None:
        said = list[str]()

        def refused() -> MemoryTables:
            raise AccessDenied("no SELECT on mailbox")

        assert owners_of(refused, [message(1)], said.append) == {}
        assert said == ["The owners of the mailboxes are not known: no SELECT on mailbox."]


class TestBounds:
    """A report stays small whatever was found."""

    def test_mailboxes_and_hours_are_counted_apart_up_to_a_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kept, "MAILBOXES_MAX", 3)
        monkeypatch.setattr(kept, "MAILBOXES_SHOWN", 2)
        monkeypatch.setattr(kept, "HOURS_MAX", 1)
        examples = Examples(Caller(anonymous=True))
        for number in [1, 2, 2, 3, 4, 5]:
            verdict = Verdict.AMEND if number < 4 else Verdict.PROJECT
            examples.add(Finding(Suspect("messageIdTable", (message(number), 1), verdict), verdict))
        examples.add(outcome(Verdict.WITHDRAW))
        examples.add(outcome(Verdict.AMEND))

        affected = examples.affected(lambda: MemoryTables(lambda: 1))

        assert list(affected.mailboxes)[:1] == [message(2)]
        assert (len(affected.mailboxes), affected.elsewhere) == (2, 5)
        assert affected.hours == {(0, Verdict.WITHDRAW): 1}

    def test_what_is_mended_is_not_left_and_paths_have_no_repair(self) -> None:
        examples = Examples()
        examples.add(outcome(Verdict.AMEND, Verdict.FIXED))
        examples.add(outcome(Verdict.WITHDRAW, uid=8))
        path = Suspect("mailbox", (outcomes.MAILBOX,), Verdict.PROJECT)
        examples.add(Finding(path, Verdict.PROJECT))

        found = examples.mailboxes[outcomes.MAILBOX]

        assert (found.counts, found.left) == (
            Counter({Verdict.AMEND: 1, Verdict.WITHDRAW: 1, Verdict.PROJECT: 1}),
            Counter({Verdict.WITHDRAW: 1, Verdict.PROJECT: 1}),
        )
        assert found.due == {Verdict.WITHDRAW}


@pytest.fixture
def drift(mail: MailKeyspace, cluster: ClusterTwin) -> UUID:
    """Bob's INBOX, in which one message is missing and another one differs; and a path that differs."""
    register(mail, 1, "INBOX", row_says="INBOX", mailbox=mail.mailbox)
    register(mail, 2, "Letters", row_says="Old letters")
    mail.lose_projection(mail.truths[0])
    mail.lose_flag_update(mail.truths[1])
    cluster.clock.advance(1)
    return mail.mailbox


def text_of(report: Path) -> str:
    """Without the runbooks, which tell of a bob of their own."""
    return report.read_text().split('<section class="runbook"')[0]


class TestReport:
    """`--report` of a check or repair."""

    def test_it_says_whose_mail_it_is_and_shows_both_rows(
        self, mailmend: CommandLine, drift: UUID, tmp_path: Path
    ) -> None:
        ended = mailmend("check", *QUICK, "--report", str(tmp_path / "r.html"))

        report = text_of(tmp_path / "r.html")
        assert f"<h3>bob, INBOX ({drift})</h3>" in report
        assert f"mailmend repair messages --keyspace mail --mailbox {drift} --scan --dry-run" in report
        assert "<mark>≠ flagFlagged</mark>" in report
        row = re.search(r"<tr>[^\n]*≠ flagFlagged[^\n]*", report)
        assert row
        assert re.findall("<mark>(true|false)</mark>", row[0]) == ["true", "false"]
        assert len(re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}", row[0])) == 2
        assert "bob" not in ended.out + ended.err  # a scheduled check's output goes to a log

    def test_anonymous_names_nobody(self, mailmend: CommandLine, drift: UUID, tmp_path: Path) -> None:
        """Neither the owners nor the paths that differ."""
        mailmend("check", *QUICK, "--report", str(tmp_path / "r.html"), "--anonymous")

        report = text_of(tmp_path / "r.html")
        assert str(drift) in report
        assert "<mark>left out</mark>" in report
        for name in ("bob", "INBOX", "Letters", "Old letters"):
            assert name not in report, name

    @pytest.mark.usefixtures("drift")
    def test_an_anonymous_repair_repeats_no_name_that_was_typed(self, mailmend: CommandLine, tmp_path: Path) -> None:
        ended = mailmend(
            "repair", "messages", "--delay", "0", "--user", "bob", "--dry-run", "--anonymous",
            "--report", str(tmp_path / "r.html"),
        )  # fmt: skip

        assert "--user NAME" in ended.out
        assert "bob" not in ended.out + text_of(tmp_path / "r.html")

    @pytest.mark.usefixtures("drift")
    def test_the_pages_that_verdicts_lead_to_come_along(self, mailmend: CommandLine, tmp_path: Path) -> None:
        """At night, without a network: every link leads to a place in the file."""
        mailmend("check", *QUICK, "--report", str(tmp_path / "r.html"))

        report = (tmp_path / "r.html").read_text()
        linked, there = re.findall('href="#([^"]+)"', report), re.findall('id="([^"]+)"', report)
        assert set(linked) == set(there) != set()

    def test_owners_that_cannot_be_read_leave_ids(
        self, mailmend: CommandLine, cluster: ClusterTwin, drift: UUID, tmp_path: Path
    ) -> None:
        faults = Faults()
        cluster.keyspace("mail").surround = faults
        faults.fail(
            lambda one: isinstance(one, Read) and one.table.name == "mailbox" and not one.times,
            AccessDenied("no SELECT on mailbox"),
            times=100,
        )

        ended = mailmend("check", "messages", *QUICK, "--report", str(tmp_path / "r.html"))

        assert (ended.code, f"<h3>Mailbox {drift}</h3>" in text_of(tmp_path / "r.html")) == (1, True)
        assert "The owners of the mailboxes are not known: no SELECT on mailbox." in ended.err


class TestRunsShow:
    """One run, as a person and a script read it."""

    @pytest.fixture
    def run(self, mailmend: CommandLine, drift: UUID) -> str:  # noqa: ARG002 - what there is to mend
        return str(mailmend("repair", "messages", *QUICK, "--user", "bob", "--scan", "--json").json["run"])

    def test_it_says_whose_mail_it_is_and_what_differed(self, mailmend: CommandLine, run: str, drift: UUID) -> None:
        shown = mailmend("runs", "show", run).out

        assert f"bob, INBOX ({drift})" in shown
        assert re.search(r"≠ flagFlagged +true +2026-\S+ \S+ +false +2026-\S+ \S+", shown)
        assert "flagSeen" not in shown.split("AMEND in messageIdTable")[1].split("PROJECT in")[0]  # does not differ

    def test_what_was_left_leads_to_its_page_and_the_next_command(
        self, mailmend: CommandLine, mail: MailKeyspace, cluster: ClusterTwin, tmp_path: Path
    ) -> None:
        mail.lose_content(mail.truths[2])
        cluster.clock.advance(1)
        run = mailmend("repair", "messages", *QUICK, "--json").json["run"]

        shown = mailmend("runs", "show", run, "--report", str(tmp_path / "r.html")).out

        next_ = "mailmend repair messages --keyspace mail --only LOST_CONTENT --orphans quarantine --dry-run"
        assert f"Left, LOST_CONTENT 1: mailmend runbook show content-is-lost; next: {next_}" in shown
        assert '<a href="#runbook-content-is-lost">' in text_of(tmp_path / "r.html")

    def test_a_script_gets_mailboxes_and_what_is_left(self, mailmend: CommandLine, run: str, drift: UUID) -> None:
        shown = mailmend("runs", "show", run, "--json").json
        nobody = mailmend("runs", "show", run, "--json", "--anonymous").json

        counts = {"mailbox": str(drift), "findings": {"PROJECT": 1, "AMEND": 1}, "left": {}}
        assert shown["mailboxes"] == [counts | {"user": "bob", "path": "INBOX"}]
        assert shown["in_other_mailboxes"] == 0
        assert nobody["mailboxes"] == [counts]

    def test_a_report_of_a_run_shows_whole_rows(self, mailmend: CommandLine, run: str, tmp_path: Path) -> None:
        mailmend("runs", "show", run, "--report", str(tmp_path / "r.html"))

        report = text_of(tmp_path / "r.html")
        assert "bob, INBOX" in report
        assert "headerContent" in report
        assert "FIXED" in report

    def test_the_ledger_holds_nobodys_name(self, mailmend: CommandLine, cluster: ClusterTwin, run: str) -> None:
        """Not even that of `--user`: mailboxes stand there by their ids."""
        tables = cluster.keyspace("mailmend")

        rows = [row for table in LEDGER_TABLES for row in tables.scan(Scan(table, table.names))]

        assert len(rows) > 2
        assert "bob" not in str(rows)
        options = mailmend("runs", "show", run, "--json", "--anonymous").json["options"]
        assert options["mailbox"] and "user" not in options  # noqa: PT018 - one sentence


class TestVerdicts:
    """What each verdict leads to."""

    def test_every_verdict_that_asks_something_leads_to_a_page_that_exists(self) -> None:
        names = {page.name for page in pages()}

        assert set(RUNBOOKS) == set(Verdict) - {Verdict.AGREE, Verdict.FIXED}
        assert set(RUNBOOKS.values()) <= names
        assert {runbook_of(name, one) for name in PROJECTIONS for one in MENDABLE} <= names

    def test_every_next_command_writes_nothing(self) -> None:
        for verdict in Verdict:
            command = next_command("messageIdTable", verdict, "mail", "--engine local")
            looks = not command or "--dry-run" in command or "check" in command
            assert looks or verdict in QUEUE_VERDICTS, command
        assert next_command("mailbox", Verdict.WITHDRAW, "mail") == ""
        assert next_command("mailbox", Verdict.AMEND, "mail").endswith(" --dry-run")
        assert "--engine local" in next_command("messageIdTable", Verdict.AMEND, "mail", "--engine local")


def examples_of(*findings: Finding) -> Examples:
    examples = Examples()
    for one in findings:
        examples.add(one)
    return examples


class _Tags(HTMLParser):
    """Collects elements, and what their attributes run or fetch."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] += 1
        self.attributes |= {name for name, _ in attrs}


MARKUP = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["<script>x()</script>", '"><img src=x onerror=x()>', "</td></table>", "{{ 7*7 }}", "'&amp;<b>"]),
)


@given(user=MARKUP, path=MARKUP, cell=MARKUP, error=MARKUP)
def test_whatever_names_and_rows_hold_is_text(user: str, path: str, cell: str, error: str) -> None:
    """The same elements and attributes as with harmless names."""

    def rendered(user: str, path: str, cell: str, error: str) -> _Tags:
        found = outcome(error=error or None)
        truth = {**found.truths[0].row, "headercontent": cell, "userflags": frozenset({cell})}
        changed = Finding(
            found.suspect,
            found.verdict,
            truths=(type(found.truths[0])(truth),),
            projected=found.projected,
            error=found.error,
        )
        counts = MailboxFindings(Counter({Verdict.AMEND: 1}))
        affected = Affected({outcomes.MAILBOX: counts}, owners={outcomes.MAILBOX: Owner(user, path)})
        examples = examples_of(changed).sorted()
        parts = (*mailboxes_part(affected, "mail"), *findings_parts(examples, affected, "mail", whole=True))
        return _Tags(html_of(Document(report=parts), 0))

    odd, plain = rendered(user, path, cell or "x", error or "x"), rendered("bob", "INBOX", "x", "x")

    assert (odd.seen, odd.attributes) == (plain.seen, plain.attributes)


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (None, ""),
        (1_790_000_000_123_456, "2026-09-21 14:13:20.123456"),
        (2**62, f"{2**62} µs"),
        (-(2**63), f"{-(2**63)} µs"),
    ],
)
def test_a_time_of_writing_is_shown_to_the_microsecond(micros: int | None, text: str) -> None:
    assert written_text(micros) == text


def test_values_are_one_line_without_control_characters() -> None:
    assert value_text(frozenset({"b", "a\x1b[2J"})) == "{a\N{REPLACEMENT CHARACTER}[2J, b}"
    assert (value_text(None), value_text(True), value_text(())) == ("null", "true", "[]")


def test_json_of_nobody_is_json() -> None:
    affected = Affected({message(1): MailboxFindings(Counter({Verdict.AMEND: 2}))}, elsewhere=3)

    assert json.loads(json.dumps(affected_json(affected)))["mailboxes"][0]["user"] is None
