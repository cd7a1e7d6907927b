"""In which forms a result is wanted, and what a command line lends a service while it works."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from admin.cli.asking import asking_on, number_on
from admin.present.document import Document
from admin.present.mending import finding_json, findings_file
from admin.present.presenter import exit_meaning, show, stderr_console, write_json, write_report
from admin.progress import progress_on
from admin.services.caller import Caller, ignore
from admin.whole_files import refuse_unwritable, write_text
from model.errors import ExitCode, MailmendError, ResultUnwritten, WrongUse
from model.projections.findings import Finding
from repair.clock import SystemClock

STDOUT: Final = Path("-")


@dataclass(frozen=True, slots=True)
class Output:
    """The output forms that were asked for.

    Attributes:
        anonymous: whether users and their mailboxes' paths are left out.
        findings: where every finding goes as a line of JSON; on stdout (-) nothing else does.
    """

    as_json: bool = False
    report: Path | None = None
    findings: Path | None = None
    anonymous: bool = False

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
            finding = stack.enter_context(self._findings())
            progress = stack.enter_context(progress_on(console, SystemClock()))
            yield Caller(
                progress,
                finding,
                item=(lambda item: write_json(item_json(item))) if item_json else ignore,
                remark=lambda line: click.echo(line, err=True),
                ask=asking_on(progress, console),
                number=None if self.as_json else number_on(progress),
                report=self.report is not None,
                anonymous=self.anonymous,
                stdout_is_json=self.as_json,
            )

    def show(self, document: Document, unwritten: Sequence[MailmendError] = ()) -> int:
        """Write the result wherever it was asked for; where a place refuses it, it stands on stderr.

        Args:
            document: the result.
            unwritten: what was refused already, while it came.
        """
        if self.as_json and document.json is None:
            raise WrongUse("what was asked for has no form as JSON", mend="Leave --json out.")
        refused = list(unwritten)
        for write in self._writes(document):
            try:
                write()
            except (ResultUnwritten, WrongUse) as error:
                refused.append(error)
        if self.findings and self.findings != STDOUT and not unwritten:
            click.echo(f"Findings: {self.findings}", err=True)
        for line in (*document.remarks, *(() if self.as_json else document.hints)):
            click.echo(line, err=True)
        return _on_stderr(document, refused) if refused else int(document.exit)

    def _writes(self, document: Document) -> Iterator[Callable[[], None]]:
        for file, text in document.files.items():
            yield partial(write_text, file, text)
        if self.findings != STDOUT:
            yield partial(write_json, document.json) if self.as_json else partial(show, document)
        if self.report:
            yield partial(_write_report, self.report, document)

    @contextmanager
    def _findings(self) -> Iterator[Callable[[Finding], None]]:
        if self.findings is None:
            yield ignore
        elif self.findings == STDOUT:
            yield lambda outcome: write_json(finding_json(outcome))
        else:
            with findings_file(self.findings) as write:
                yield write


def _write_report(file: Path, document: Document) -> None:
    write_report(file, document, SystemClock().micros())
    click.echo(f"Report: {file}", err=True)


def _on_stderr(document: Document, refused: Sequence[MailmendError]) -> int:
    show(document, stderr_console())
    for error in refused:
        click.echo(f"mailmend: {error}", err=True)
    code = int(document.exit)
    click.echo(f"The result stands above; written, it would have ended with {code} ({exit_meaning(code)}).", err=True)
    return int(ExitCode.PARTLY_FAILED)
