"""In which forms a result is wanted, the file of findings, and what a service gets of a command."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import click

from mailmend.admin.frame.caller import Caller, ignore
from mailmend.admin.frame.document import Document
from mailmend.admin.frame.extras import imported
from mailmend.admin.frame.logs import echo, logged_progress
from mailmend.admin.frame.options import JOB
from mailmend.admin.frame.presenter import (
    exit_meaning,
    show,
    stderr_console,
    write_json,
    write_report,
)
from mailmend.admin.frame.terminal import asking_on, number_on, progress_on
from mailmend.admin.frame.whole_files import (
    mode_for_owner,
    named_when_refused,
    refuse_unwritable,
    whole_file,
    write_text,
)
from mailmend.cql.rows import encode
from mailmend.model.catalog.mail import PROJECTIONS
from mailmend.model.catalog.mail_queue import QUEUE_TABLES
from mailmend.model.errors import ExitCode, MailmendError, ResultUnwritten, WrongUse
from mailmend.model.operations import Seen
from mailmend.model.ports import Progress, Silent
from mailmend.model.projections.findings import Finding
from mailmend.model.projections.verdicts import Verdict
from mailmend.model.table import Key, Row, Table
from mailmend.repair.clock import SystemClock
from mailmend.repair.decisions.left_sample import LeftKeys

MetricsWriter = Callable[[int, Mapping[str, Any] | None, LeftKeys], None]
"""Writes a run's metrics: its exit code, the JSON of its result, and the sample of what it left."""

_TABLES: Mapping[str, Table] = {
    **{name: projection.table for name, projection in PROJECTIONS.items()},
    **{table.spelling: table for table in QUEUE_TABLES},
}


@contextmanager
def findings_file(
    file: Path, tables: Mapping[str, Table] = MappingProxyType({})
) -> Iterator[Callable[[Finding], None]]:
    """A function that writes each outcome as a line, unless the rows agreed after all.

    It holds rows of mails: a new file is for its owner alone, as a report is.

    Args:
        file: its name.
        tables: as for `finding_json`; may still be filled.

    Raises:
        WrongUse: the file cannot be written; nothing half written stays.
    """
    with whole_file(file, mode=mode_for_owner(file), masked=False) as stream:

        def write(outcome: Finding) -> None:
            if outcome.verdict is not Verdict.AGREE or outcome.error:
                line = json.dumps(finding_json(outcome, tables), ensure_ascii=False) + "\n"
                with named_when_refused(file):
                    stream.write(line)

        yield write


def finding_json(
    outcome: Finding,
    tables: Mapping[str, Table] = MappingProxyType({}),
) -> dict[str, Any]:
    """The finding in JSON's types; its key has column names of `tables`, else of the catalog."""
    projection = outcome.suspect.projection
    table = tables.get(projection) or _TABLES.get(projection)
    return {
        "projection": projection,
        "verdict": outcome.verdict.value,
        "result": outcome.result and outcome.result.value,
        "key": _key_json(table, outcome.suspect.key),
        "truths": [_seen_json(seen) for seen in outcome.truths],
        "projected": outcome.projected and _seen_json(outcome.projected),
        "last_trace": outcome.last_trace,
        "reason": outcome.reason and outcome.reason.text,
        "error": outcome.error,
    }


def _key_json(table: Table | None, key: Key) -> Any:
    if table is None:
        return [encode(value) for value in key]
    return _row_json(table.key_row(key))


def _seen_json(seen: Seen) -> dict[str, Any]:
    return {"row": _row_json(seen.row), "written_at": dict(seen.written_at)}


def _row_json(row: Row) -> dict[str, Any]:
    return {name: encode(value) for name, value in row.items()}


STDOUT: Final = Path("-")


@dataclass(frozen=True, slots=True)
class Output:
    """The output forms that were asked for.

    Attributes:
        anonymous: whether users and their mailboxes' paths are left out.
        findings: where every finding goes as a line of JSON; on stdout (-) nothing else does.
        metrics_file: where the run's metrics go, however it ends.
        quiet: whether a person sees results and errors only.
        no_progress: whether progress is left out.
        paged: whether a long result goes to a pager where stdout is a terminal.
    """

    as_json: bool = False
    report: Path | None = None
    findings: Path | None = None
    anonymous: bool = False
    metrics_file: Path | None = None
    quiet: bool = False
    no_progress: bool = False
    paged: bool = False

    @contextmanager
    def caller(self, item_json: Callable[[Any], Any] | None = None) -> Iterator[Caller]:
        """The caller for a service; checks first that files are writable, before hours of work.

        Args:
            item_json: what a line of JSON says of an item that the service gives.
        """
        if self.report:
            refuse_unwritable(self.report)
        console = stderr_console()
        with ExitStack() as stack:
            tables = dict[str, Table]()
            finding = stack.enter_context(self._findings(tables))
            progress: Progress = Silent()
            if not (self.quiet or self.no_progress):
                progress = stack.enter_context(progress_on(console, SystemClock()))
            logged = stack.enter_context(logged_progress(progress, SystemClock()))
            item: Callable[[Any], None] = ignore
            if item_json:
                item = partial(_write_item, item_json)
            number = None
            if not self.as_json:
                number = number_on(progress)
            yield Caller(
                logged,
                lambda found: _both(found, finding, logged.found),
                item=item,
                remark=echo,
                ask=asking_on(progress, console),
                number=number,
                report=self.report is not None,
                anonymous=self.anonymous,
                stdout_is_json=self.as_json,
                tables=tables,
            )

    @contextmanager
    def metrics_of(self, context: click.Context) -> Iterator[MetricsWriter | None]:
        """The file of the run's metrics, where one was asked for; where the run fails, it says so."""
        if self.metrics_file is None:
            yield None
            return
        with imported("mailmend.admin.metrics.declared:textfile_of")(self.metrics_file, *run_name(context)) as metrics:
            yield metrics.write

    def show(
        self, document: Document, unwritten: Sequence[MailmendError] = (), metrics: MetricsWriter | None = None
    ) -> int:
        """Write the result wherever it was asked for; where a place refuses it, it is on stderr.

        Args:
            document: the result.
            unwritten: what was refused already, while it came.
            metrics: written last, with the exit code.
        """
        if self.as_json and document.json is None:
            raise WrongUse("what was asked for has no form as JSON", mend="Leave --json out.")
        refused = list(unwritten)
        for write in self._writes(document):
            try:
                write()
            except (ResultUnwritten, WrongUse) as error:
                refused.append(error)
        self._show_remarks(document, wrote_findings=not unwritten)
        code = int(document.exit)
        if refused:
            code = _on_stderr(document, refused)
        if metrics:
            metrics(code, document.json, document.left_sample)
        return code

    def _show_remarks(self, document: Document, *, wrote_findings: bool) -> None:
        """What is said on stderr; with --quiet only the remarks on a result that is not fine."""
        if self.quiet and document.exit == ExitCode.FINE:
            return
        if self.findings and self.findings != STDOUT and wrote_findings and not self.quiet:
            echo(f"Findings: {self.findings}")
        for remark in document.remarks:
            echo(remark)
        if not (self.as_json or self.quiet):
            for hint in document.hints:
                echo(hint)

    def _writes(self, document: Document) -> Iterator[Callable[[], None]]:
        for file, text in document.files.items():
            yield partial(write_text, file, text)
        if self.findings != STDOUT:
            if self.as_json:
                yield partial(write_json, document.json)
            else:
                yield partial(show, document, paged=self.paged)
        if self.report:
            yield partial(self._write_report, self.report, document)

    def _write_report(self, file: Path, document: Document) -> None:
        write_report(file, document, SystemClock().micros())
        if not self.quiet:
            echo(f"Report: {file}")

    @contextmanager
    def _findings(self, tables: Mapping[str, Table]) -> Iterator[Callable[[Finding], None]]:
        if self.findings is None:
            yield ignore
        elif self.findings == STDOUT:
            yield lambda outcome: write_json(finding_json(outcome, tables))
        else:
            with findings_file(self.findings, tables) as write:
                yield write


def run_name(context: click.Context) -> tuple[str, str, str]:
    """The keyspace of a command, its words (with what it is about, and that it only looks), and the job it is of."""
    given = context.params
    words = context.command_path.split()[1:]
    for param in context.command.params:
        if isinstance(param, click.Argument) and param.name and given[param.name]:
            words.append(str(given[param.name]))
    if given.get("dry_run"):
        words.append("--dry-run")
    elif given.get("plan"):
        words.append("--plan")
    return given["keyspace"], " ".join(words), context.meta.get(JOB, "")


def _both(finding: Finding, *takers: Callable[[Finding], None]) -> None:
    for take in takers:
        take(finding)


def _write_item(item_json: Callable[[Any], Any], item: Any) -> None:
    write_json(item_json(item))


def _on_stderr(document: Document, refused: Sequence[MailmendError]) -> int:
    show(document, stderr_console())
    for error in refused:
        echo(f"mailmend: {error.message}")
    code = int(document.exit)
    echo(f"The result is above; written, it would have ended with {code} ({exit_meaning(code)}).")
    return int(ExitCode.PARTLY_FAILED)
