"""In which forms a result is wanted, and what a command line lends a service while it works."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from admin.cli.asking import asking_on, number_on
from admin.present.document import Document
from admin.present.mending import finding_json, findings_file
from admin.present.presenter import show, stderr_console, write_json, write_report
from admin.progress import progress_on
from admin.services.caller import Caller, ignore
from admin.whole_files import refuse_unwritable, write_text
from model.errors import WrongUse
from model.projections.findings import Finding
from repair.clock import SystemClock

STDOUT: Final = Path("-")


@dataclass(frozen=True, slots=True)
class Output:
    """The output forms that were asked for.

    Attributes:
        findings: where every finding goes as a line of JSON; on stdout (-) nothing else does.
    """

    as_json: bool = False
    report: Path | None = None
    findings: Path | None = None

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
                examples=not self.as_json or self.report is not None,
                item=(lambda item: write_json(item_json(item))) if item_json else ignore,
                remark=lambda line: click.echo(line, err=True),
                ask=asking_on(progress, console),
                number=None if self.as_json else number_on(progress),
                stdout_is_json=self.as_json,
            )

    def show(self, document: Document) -> int:
        if self.as_json and document.json is None:
            raise WrongUse("what was asked for has no form as JSON", mend="Leave --json out.")
        for file, text in document.files.items():
            write_text(file, text)
        if self.as_json and document.json is not None and self.findings != STDOUT:
            write_json(document.json)
        elif not self.as_json and self.findings != STDOUT:
            show(document)
        if self.report:
            write_report(self.report, document, SystemClock().micros())
            click.echo(f"Report: {self.report}", err=True)
        if self.findings and self.findings != STDOUT:
            click.echo(f"Findings: {self.findings}", err=True)
        for line in (*document.remarks, *(() if self.as_json else document.hints)):
            click.echo(line, err=True)
        return int(document.exit)

    @contextmanager
    def _findings(self) -> Iterator[Callable[[Finding], None]]:
        if self.findings is None:
            yield ignore
        elif self.findings == STDOUT:
            yield lambda outcome: write_json(finding_json(outcome))
        else:
            with findings_file(self.findings) as write:
                yield write
