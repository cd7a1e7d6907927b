"""The findings of a run, page by page: for servers, whose callers look at a few of many."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from uuid import UUID

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import open_cluster
from mailmend.admin.frame.document import Document
from mailmend.admin.frame.output import finding_json
from mailmend.admin.frame.run_scopes import RunScope
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.messages.runs import explainer_of, scope_of_run
from mailmend.model.errors import WrongUse
from mailmend.model.projections.findings import Finding
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Table
from mailmend.repair.ledger.before_images import BROKEN
from mailmend.repair.ledger.runs import FindingPosition, Ledger, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFindingsRequest:
    """A page of a run's findings.

    Attributes:
        limit: the largest number of findings.
        after: the position where the page before ended; None: the first page.
        verdict, result: only findings with these; None: any.
        only_keys: whether rows of declared tables, which may hold anything, show only their keys.
    """

    connection: ConnectionSettings
    run: UUID
    limit: int
    after: FindingPosition | None = None
    verdict: Verdict | None = None
    result: Verdict | None = None
    only_keys: bool = False


@dataclass(frozen=True, slots=True)
class RunFindings:
    """The page; `next` is where the next page begins behind, None on the last one."""

    request: RunFindingsRequest
    run: Run
    scope: RunScope
    found: tuple[Finding, ...]
    next: FindingPosition | None = None
    tables: Mapping[str, Table] = field(default_factory=dict)


def run_findings(request: RunFindingsRequest, caller: Caller) -> RunFindings:
    """Read a page of findings.

    Raises:
        UnknownRun: no such run is kept.
    """
    with open_cluster(request.connection) as opened:
        ledger = opened.known_ledger(request.run)
        run = ledger.get(request.run)
        scope = scope_of_run(run, opened, caller)
        wanted = _wanted(ledger, run, request)
        page = list(islice(wanted, request.limit + 1))
    behind = None
    if len(page) > request.limit:
        behind = page[request.limit - 1][0]
    explained = explainer_of(run, scope)
    found = tuple(explained(finding) for _, finding in page[: request.limit])
    tables = dict[str, Table]()
    if not scope.is_mail:
        tables = {name: projection.table for name, projection in scope.projections.items()}
    return RunFindings(request, run, scope, found, behind, tables)


def _wanted(
    ledger: Ledger,
    run: Run,
    request: RunFindingsRequest,
) -> Iterator[tuple[FindingPosition, Finding]]:
    for position, finding in ledger.findings_after(run.id, request.after):
        if request.verdict in (None, finding.verdict) and request.result in (None, finding.result):
            yield position, finding


def findings_document(page: RunFindings) -> Document:
    found = [_finding_json(page, finding) for finding in page.found]
    behind = None
    if page.next:
        behind = token_of(page.next)
    return Document({"run": str(page.run.id), "findings": found, "next": behind})


def _finding_json(page: RunFindings, finding: Finding) -> dict[str, Any]:
    shown = finding_json(finding, page.tables)
    if page.request.only_keys and not page.scope.is_mail:
        table = page.tables.get(finding.suspect.projection)
        names = set[str]()
        if table:
            names.update(table.key_names)
        for seen in (*shown["truths"], shown["projected"]):
            if seen:
                seen["row"] = {name: value for name, value in seen["row"].items() if name in names}
    return shown


def token_of(position: FindingPosition) -> str:
    """The position as opaque text."""
    text = json.dumps([position.bucket, position.projection, position.key], separators=(",", ":"))
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def position_in(token: str) -> FindingPosition:
    """Read such a text.

    Raises:
        WrongUse: it is not the token of a position.
    """
    try:
        bucket, projection, key = json.loads(urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return FindingPosition(int(bucket), str(projection), str(key))
    except BROKEN as error:
        mend = "Take `next` of the page before."
        raise WrongUse(f"{token!r} is not a position among findings", mend=mend) from error
