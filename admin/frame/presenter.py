"""The one presenter: it writes any document as JSON for scripts, as tables for people, or as one HTML file."""

import io
import json
import os
import sys
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from jinja2 import Environment, PackageLoader, StrictUndefined
from rich import markdown
from rich.console import Console
from rich.text import Text

from mailmend.admin.frame.document import (
    COMMANDS,
    DIFFERS,
    NUMERIC,
    Chart,
    Document,
    Grid,
    GridCell,
    Heading,
    Line,
    Markdown,
    Part,
    RunbookLink,
    Styled,
    Verbatim,
    Wrapped,
)
from mailmend.admin.frame.pager import pager_words, write_to_pager
from mailmend.admin.frame.runbooks import page_named
from mailmend.admin.frame.tables import print_grid, text_of_cell
from mailmend.admin.frame.whole_files import mode_for_owner, to_stdout, write_text
from mailmend.model.errors import ExitCode
from mailmend.model.instants import MICROS
from mailmend.model.texts import escaped_json, printable

PAPER_COLUMNS = 120
"""The width of tables that go to a file or a mail, where no terminal sets it."""

_GROUP = 3
"""The level of headings above which a terminal leaves a line free."""

_COLUMNS_MIN = 40
"""Paragraphs are not broken more narrowly than this."""


class _OutputConsole(Console):
    """A console that leaves the exit code to the command: Rich itself ends with 1, the code for drift."""

    def on_broken_pipe(self) -> None:
        """Raise the BrokenPipeError that Rich is handling."""
        raise  # noqa: PLE0704 - Rich calls this method in its except clause


class _MessageConsole(Console):
    """A console for messages, which become silent when their reader goes away."""

    def on_broken_pipe(self) -> None:
        """Write nothing more."""
        self.quiet = True


def stdout_console(paper_columns: int = PAPER_COLUMNS) -> Console:
    if sys.stdout.isatty():
        return _OutputConsole(file=sys.stdout, highlight=False, soft_wrap=False)
    return _OutputConsole(file=sys.stdout, highlight=False, soft_wrap=True, width=paper_columns)


def stderr_console() -> Console:
    return _MessageConsole(file=sys.stderr, highlight=False)


def write_json(document: Any, stream: TextIO | None = None) -> None:
    line = escaped_json(json.dumps(document, ensure_ascii=False, default=str)) + "\n"
    if stream is not None:
        stream.write(line)
        return
    with to_stdout():
        sys.stdout.write(line)


def show(document: Document, console: Console | None = None, *, paged: bool = False) -> None:
    """Write a document for people, on stdout where no console is given.

    Args:
        document: what is written.
        console: where it goes.
        paged: whether a text that is longer than the terminal goes to a pager.
    """
    if console is not None:
        _show(document, console)
        return
    with to_stdout():
        widths = (part.paper_columns for part in document.body if isinstance(part, Grid))
        stdout = stdout_console(max(widths, default=PAPER_COLUMNS))
        # Rich also calls a pipe a terminal where FORCE_COLOR is set.
        pages = paged and sys.stdout.isatty() and not stdout.is_dumb_terminal
        if not (pages and _show_in_pager(document, stdout)):
            _show(document, stdout)


def _show_in_pager(document: Document, terminal: Console) -> bool:
    """Show a long document in the pager.

    Returns:
        False where the document fits on the terminal, or where there is no pager.
    """
    words = pager_words(os.environ)
    if not words:
        return False
    kept = io.StringIO()
    colours: Any = terminal.color_system  # rich gives its name, and takes literals of it
    console = Console(
        file=kept,
        force_terminal=True,
        width=terminal.width,
        color_system=colours,
        highlight=False,
    )
    _show(document, console)
    text = kept.getvalue()
    if text.count("\n") < terminal.height:
        return False
    try:
        write_to_pager(words, text)
    except OSError:
        return False
    return True


def _show(document: Document, console: Console) -> None:
    for part in document.body:
        _show_part(part, console)


def _show_part(part: Part, console: Console) -> None:
    match part:
        case Grid():
            print_grid(part, console)
        case Wrapped():
            for line in wrapped_lines(part, console.width):
                console.print(line, soft_wrap=True, markup=False)
        case Heading():
            text = printable(part.text)
            if part.level == _GROUP:
                text = f"\n{text}"
            console.print(Text(text, "bold"), soft_wrap=True)
        case Markdown() if console.is_terminal:
            console.print(markdown.Markdown(printable(part.text)))
        case Markdown() | Verbatim():
            console.file.write(printable(part.text))
        case Chart():
            pass
        case Line():
            pieces = map(text_of_cell, part.pieces)
            console.print(Text.assemble(*pieces), soft_wrap=True)
        case _:
            console.print(text_of_cell(part), soft_wrap=True)


def wrapped_lines(part: Wrapped, width: int) -> list[str]:
    return textwrap.wrap(
        printable(part.text),
        max(width, _COLUMNS_MIN),
        initial_indent=part.lead,
        subsequent_indent=" " * len(part.lead),
        break_long_words=False,
    )


def write_report(file: Path, document: Document, now_micros: int) -> None:
    """Write the document as one HTML file that opens anywhere, offline; whole, or not at all.

    It may name people: a new file is for its owner alone, one that was there keeps its permissions.

    Raises:
        WrongUse, ResultUnwritten: it cannot be written there; what lay there before is untouched.
    """
    write_text(file, html_of(document, now_micros), mode_for_owner(file), masked=False)


def html_of(document: Document, now_micros: int) -> str:
    """The document as HTML; all text from the keyspace is escaped."""
    parts = document.report
    if parts is None:
        parts = document.body
    return (
        _templates()
        .get_template("report.html")
        .render(
            document=document,
            parts=[html_part(part) for part in parts],
            pages=[page_named(name) for name in _runbooks_in(parts)],
            numeric=NUMERIC,
            commands=COMMANDS,
            differs=DIFFERS,
            outcome=exit_meaning(document.exit),
            written_at=datetime.fromtimestamp(now_micros / MICROS, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
            version=version("mailmend"),
        )
    )


@cache
def _templates() -> Environment:
    """Made once in a process: it keeps the template that it has compiled."""
    return Environment(
        loader=PackageLoader("mailmend.admin.frame", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )


def _runbooks_in(parts: Sequence[Part]) -> list[str]:
    """The names of the runbooks to which cells lead: each once, in the order of the cells."""
    named: dict[str, None] = {}
    for part in parts:
        if isinstance(part, Grid):
            for cell in chain.from_iterable(part.rows):
                if isinstance(cell, RunbookLink):
                    named[cell.runbook] = None
    return list(named)


def html_part(part: Part) -> dict[str, Any]:
    """A part as templates take it: `table` with `rows`, `heading`, `chart`, or else `text`."""
    found: dict[str, Any] = {"table": None, "heading": None, "chart": None}
    match part:
        case Grid():
            return found | {"table": part, "rows": [[_html_cell(cell) for cell in row] for row in part.rows]}
        case Heading():
            return found | {"heading": part}
        case Chart():
            return found | {"chart": part}
        case Line():
            return found | {"text": "".join(text_of_cell(piece).plain for piece in part.pieces)}
        case str():
            return found | {"text": printable(part)}
        case _:
            return found | {"text": printable(part.text)}


def _html_cell(cell: GridCell) -> dict[str, str]:
    shown = {"text": text_of_cell(cell).plain, "style": "", "runbook": ""}
    if isinstance(cell, Styled):
        shown["style"] = cell.style
    if isinstance(cell, RunbookLink):
        shown["runbook"] = cell.runbook
    return shown


def exit_meaning(code: int) -> str:
    meanings: dict[int, str] = {
        ExitCode.FINE: "fine",
        ExitCode.DRIFT: "drift",
        ExitCode.WRONG_USE: "wrong use",
        ExitCode.PARTLY_FAILED: "partly failed",
        ExitCode.CANNOT_REACH: "cannot reach",
        ExitCode.NOT_ALLOWED: "not allowed",
    }
    return meanings.get(code, "ended by a signal")
