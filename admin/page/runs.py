"""The pages of runs: a list, and one run with its findings, both rows side by side."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final
from uuid import UUID

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster
from mailmend.admin.frame.document import Part, by_verdict
from mailmend.admin.frame.examples import Affected, Example, mailbox_in, owners_of
from mailmend.admin.frame.kinds import parse_run
from mailmend.admin.frame.run_scopes import RunScope
from mailmend.admin.frame.verdict_texts import meaning_of, steps_grid
from mailmend.admin.messages.affected_document import findings_parts
from mailmend.admin.messages.run_findings import position_in, token_of
from mailmend.admin.messages.runs import explainer_of, scope_of_run
from mailmend.admin.messages.trend import by_name, run_json
from mailmend.admin.page.table import PageData, PageRequest, WebPage
from mailmend.model.catalog.mail import MAILBOX_PATH, PRIVATE
from mailmend.model.errors import WrongUse
from mailmend.model.operations import Level, Read
from mailmend.model.projections.findings import Finding
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.texts import keyspace_option
from mailmend.repair.ledger.runs import FindingPosition, Ledger, Run, RunState
from mailmend.repair.mending.undo import NOT_UNDONE

RUNS_SHOWN: Final = 50
FINDINGS_SHOWN: Final = 20
FINDINGS_READ_MAX: Final = 5_000
"""At most this many findings are read for one page; a page that a filter leaves empty leads on."""


def look_at_list(data: PageData, asked: PageRequest) -> Mapping[str, Any]:
    """A page of runs, the newest first, from the run `after` on."""
    state = _choice(asked, "state", [state.value for state in RunState])
    command = asked.text("command")
    ledger = data.opened.existing_ledger()
    runs = list[Run]()
    known: Sequence[Run] = ()
    if ledger:
        known = list(ledger.newest_runs(data.keyspace))
        wanted = []
        for run in known:
            if state in ("", run.state.value) and command in ("", run.command):
                wanted.append(run)
        runs = list(islice(_after(wanted, asked.text("after")), RUNS_SHOWN + 1))
    more = ""
    if len(runs) > RUNS_SHOWN:
        more = asked.link("/runs", after=str(runs[RUNS_SHOWN - 1].id))
    return {
        "runs": runs[:RUNS_SHOWN],
        "total": len(known),
        "by_name": by_name,
        "states": [state.value for state in RunState],
        "run_commands": sorted({run.command for run in known}),
        "more": more,
        "newest": first_page(asked, "/runs"),
    }


def _after(runs: Sequence[Run], last: str) -> Iterator[Run]:
    """The runs after one, the newest first; all of them where that one is not kept."""
    ids = [str(run.id) for run in runs]
    first = 0
    if last in ids:
        first = ids.index(last) + 1
    yield from runs[first:]


def first_page(asked: PageRequest, path: str) -> str:
    """Where the first page is; "" on the first page."""
    if not asked.text("after"):
        return ""
    return asked.link(path, after="")


def _choice(asked: PageRequest, name: str, known: Sequence[str]) -> str:
    """A parameter that has one of these values; "" where it was not given.

    Raises:
        WrongUse: it has another one.
    """
    given = asked.text(name)
    if given and given not in known:
        raise WrongUse(f"{name} is one of: {', '.join(known)}")
    return given


@dataclass(frozen=True, slots=True)
class FindingFilter:
    """Which findings of a run are shown; each empty condition takes all.

    Attributes:
        mailboxes: None: any, and findings without a mailbox.
    """

    verdict: str = ""
    projection: str = ""
    mailboxes: frozenset[UUID] | None = None

    def takes(self, finding: Finding, scope: RunScope) -> bool:
        if self.verdict not in ("", finding.verdict.value):
            return False
        if self.projection not in ("", finding.suspect.projection):
            return False
        if self.mailboxes is None:
            return True
        projection = scope.projections.get(finding.suspect.projection)
        return mailbox_in(finding, projection) in self.mailboxes


@dataclass(frozen=True, slots=True)
class FindingsPage:
    """Findings of one page, and where the next page begins; None: there are no more."""

    findings: Sequence[Finding]
    following: FindingPosition | None
    read: int


def findings_page(
    ledger: Ledger, run: Run, scope: RunScope, wanted: FindingFilter, after: FindingPosition | None
) -> FindingsPage:
    """As many findings as a page shows; it reads at most `FINDINGS_READ_MAX`."""
    shown = list[Finding]()
    last = after
    read = 0
    for place, finding in ledger.findings_after(run.id, after):
        if len(shown) == FINDINGS_SHOWN or read == FINDINGS_READ_MAX:
            return FindingsPage(shown, last, read)
        read += 1
        last = place
        is_kept = finding.verdict is not Verdict.AGREE or finding.error is not None
        if is_kept and wanted.takes(finding, scope):
            shown.append(finding)
    return FindingsPage(shown, None, read)


def look_at_run(data: PageData, asked: PageRequest) -> Mapping[str, Any]:
    opened = data.opened
    named = parse_run(asked.path["run"])
    ledger = opened.known_ledger(named)
    run = ledger.get(ledger.id_of(named))
    remarks = list[str]()
    scope = scope_of_run(run, opened, Caller(remark=remarks.append))
    wanted = _filter_of(asked, opened, run)
    page = findings_page(ledger, run, scope, wanted, position_of(asked.text("after")))
    findings = list(map(explainer_of(run, scope), page.findings))
    parts = list[Part]()
    lines = list[FindingLine]()
    if asked.visitor.operates:
        parts = _side_by_side(findings, opened, run, scope, remarks)
    else:
        lines = [_line(finding, scope) for finding in findings]
    counts = run.summary.get("findings")
    kinds = {}
    if isinstance(counts, dict):
        for name, numbers in counts.items():
            if isinstance(numbers, dict):
                kinds[name] = _known(numbers)
    sums = list[Part]()
    if any(kinds.values()):
        sums.append(steps_grid(kinds, run.keyspace, scope=scope))
    path = f"/runs/{run.id}"
    more = ""
    if page.following:
        more = asked.link(path, after=token_of(page.following))
    return {
        "title": f"Run of {run.command}",
        "run": run,
        "facts": _facts(run),
        "by_name": by_name,
        "sums": sums,
        "charts": list(by_verdict(by_name(run, "findings"))),
        "parts": parts,
        "lines": lines,
        "remarks": remarks,
        "verdicts": [verdict.value for verdict in Verdict if verdict is not Verdict.AGREE],
        "projections": sorted(scope.projections),
        "read": page.read,
        "shown": len(findings),
        "more": more,
        "first": first_page(asked, path),
        "undo": _undo(run),
    }


def _known(numbers: Mapping[str, int]) -> dict[Verdict, int]:
    names = Verdict.__members__
    return {names[name]: number for name, number in numbers.items() if name in names}


def _undo(run: Run) -> str:
    if run.command in NOT_UNDONE:
        return ""
    return f"mailmend undo {run.id} {keyspace_option(run.keyspace)} --dry-run"


def _facts(run: Run) -> list[tuple[str, str]]:
    """What was asked for, and how it ended; sums have tables of their own."""
    fields = run_json(run)
    options = fields.pop("options")
    summary = fields.pop("summary")
    facts = {name: value for name, value in fields.items() if name != "as_of"}
    facts |= {f"option {name}": value for name, value in options.items()}
    facts |= {name: value for name, value in summary.items() if not isinstance(value, dict | list)}
    return [(name, str(value)) for name, value in facts.items() if value not in (None, "")]


def _filter_of(asked: PageRequest, opened: OpenCluster, run: Run) -> FindingFilter:
    verdict = _choice(asked, "verdict", [verdict.value for verdict in Verdict])
    mailboxes: frozenset[UUID] | None = None
    mailbox = asked.text("mailbox")
    user = asked.text("user")
    if user and not asked.visitor.operates:
        what = "a token with the role read cannot look for users"
        raise WrongUse(what, mend="Name a mailbox by its id.")
    if user:
        path = Read(MAILBOX_PATH, (PRIVATE, user), Level.LOCAL_QUORUM)
        rows = opened.cluster.keyspace(run.keyspace).read(path)
        mailboxes = frozenset(seen.row["mailboxid"] for seen in rows)
    if mailbox:
        try:
            named = frozenset({UUID(mailbox)})
        except ValueError:
            what = f"mailbox is an id, and {mailbox!r} is not"
            raise WrongUse(what, mend="Leave it out, or name a user.") from None
        if mailboxes is not None:
            named &= mailboxes
        mailboxes = named
    return FindingFilter(verdict, asked.text("projection"), mailboxes)


def position_of(text: str) -> FindingPosition | None:
    """Where a page of findings ended, as its link says.

    Raises:
        WrongUse: no link says that.
    """
    if not text:
        return None
    return position_in(text)


def _side_by_side(
    findings: Sequence[Finding], opened: OpenCluster, run: Run, scope: RunScope, remarks: list[str]
) -> list[Part]:
    """Both rows of each finding, below the owner and the path of the mailbox."""
    examples = []
    for finding in findings:
        mailbox = None
        if scope.is_mail:
            mailbox = mailbox_in(finding, scope.projections.get(finding.suspect.projection))
        examples.append(Example(finding, mailbox, scope.is_mail))
    mailboxes = [example.mailbox for example in examples if example.mailbox]
    owners = owners_of(lambda: opened.cluster.keyspace(run.keyspace), mailboxes, remarks.append)
    parts = findings_parts(examples, Affected(owners=owners), run.keyspace, scope, whole=False)
    return list(parts)[1:]  # their common heading


@dataclass(frozen=True, slots=True)
class FindingLine:
    """A finding without any value of its rows, for a visitor who must not see mail."""

    projection: str
    verdict: str
    meaning: str
    mailbox: str
    result: str


def _line(finding: Finding, scope: RunScope) -> FindingLine:
    projection = finding.suspect.projection
    mailbox = ""
    if scope.is_mail:
        found = mailbox_in(finding, scope.projections.get(projection))
        mailbox = str(found or "")
    result = "as found"
    if finding.result:
        result = finding.result.value
    meaning = meaning_of(finding.verdict, scope)
    return FindingLine(projection, finding.verdict.value, meaning, mailbox, result)


LIST: Final = WebPage(
    path="/runs",
    title="Runs",
    menu="Runs",
    template="runs.html",
    look=look_at_list,
)
ONE: Final = WebPage(
    path="/runs/{run}",
    title="Run",
    template="run.html",
    look=look_at_run,
    below=LIST.path,
)
