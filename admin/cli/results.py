"""What a check or repair does with its outcomes: examples for people, lines for scripts, a report, an exit code."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from admin.findings_file import findings_file
from admin.output import show_summary, stdout_console, summary_json, write_json
from admin.report import refuse_unwritable, render_report, write_report
from admin.samples import Samples
from model.ports import Clock
from repair.decisions.findings import Outcome, Summary

C = TypeVar("C", bound=Callable[..., Any])

_FILE = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True)
class Wanted:
    """In which forms the caller wants the results."""

    as_json: bool = False
    report: Path | None = None
    findings: Path | None = None


def result_options(command: C) -> C:
    """`--json`, `--report` and `--findings`; the command receives `as_json`, `report` and `findings`."""
    command = click.option(
        "--findings", type=_FILE, metavar="FILE", help="Write every finding as a line of JSON: keys, rows, times."
    )(command)
    command = click.option("--report", type=_FILE, metavar="FILE.html", help="Write a report as one HTML file.")(
        command
    )
    return click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")(command)


@dataclass(slots=True)
class Gatherer:
    """Takes each outcome as it comes: keeps a few, writes all to a file if one is wanted."""

    samples: Samples = field(default_factory=Samples)
    write: Callable[[Outcome], None] | None = None

    def __call__(self, outcome: Outcome) -> None:
        """One more outcome."""
        self.samples.add(outcome)
        if self.write:
            self.write(outcome)


@contextmanager
def gathering(wanted: Wanted) -> Iterator[Gatherer]:
    """A gatherer whose file, if one is wanted, is known to be writable before hours of work begin."""
    if wanted.report:
        refuse_unwritable(wanted.report)
    with ExitStack() as stack:
        write = stack.enter_context(findings_file(wanted.findings)) if wanted.findings else None
        yield Gatherer(write=write)


def present(summary: Summary, samples: Samples, wanted: Wanted, clock: Clock) -> int:
    """Show the results in every wanted form and return the exit code."""
    if wanted.as_json:
        write_json(summary_json(summary))
    else:
        show_summary(summary, samples, stdout_console())
    if wanted.report:
        write_report(wanted.report, render_report(summary, samples, clock.micros()))
        click.echo(f"Report: {wanted.report}", err=True)
    if wanted.findings:
        click.echo(f"Findings: {wanted.findings}", err=True)
    return int(summary.exit)
