"""The content of a result, apart from its form: `admin.frame.presenter` writes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mailmend.admin.frame.charts import Chart
from mailmend.model.errors import ExitCode
from mailmend.repair.decisions.left_sample import LeftKeys

NUMERIC = frozenset({"count", "found", "fixed", "left", "rows"})
"""Columns of numbers: aligned to the right."""

PROSE = frozenset({"meaning", "how it came about", "why"})
"""Columns of sentences: they may take several lines."""

COMMANDS = frozenset({"next"})
"""Columns of commands to type."""

DIFFERS = "bold red"
"""The style of what differs from its neighbour."""


class Styled(NamedTuple):
    """A piece of text that a terminal shows in a style of rich's, like "red" or "bold"."""

    text: str
    style: str


class Line(NamedTuple):
    """A line of several pieces."""

    pieces: Sequence[str | Styled]


class Wrapped(NamedTuple):
    """A paragraph, wrapped to the available width; later lines are indented to the first word after the lead."""

    lead: str
    text: str


class Heading(NamedTuple):
    """The heading of the parts that follow; 1 is the highest level."""

    text: str
    level: int = 2


class RunbookLink(NamedTuple):
    """The name of a runbook's page; a report brings the page along and leads there."""

    runbook: str


class Markdown(NamedTuple):
    """A page of Markdown: rendered on a terminal, and left as it is elsewhere."""

    text: str


class Verbatim(NamedTuple):
    """A text that is written byte for byte, its newlines included."""

    text: str


GridCell = str | Styled | RunbookLink


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows under named columns.

    Attributes:
        wrapped: columns that may take several lines, in addition to `PROSE`.
        paper_columns: the width, in characters, where there is no terminal.
        level: the title's level as a heading.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[GridCell]]
    wrapped: frozenset[str] = frozenset()
    paper_columns: int = 120
    level: int = 2


Part = str | Styled | Line | Wrapped | Heading | Markdown | Verbatim | Grid | Chart


@dataclass(frozen=True, slots=True)
class Document:
    """A result, ready to be written.

    Attributes:
        json: one object for scripts; its names are a contract (docs/design.md). None: nothing is written.
        body: what a person reads, in this order, on stdout; charts stand in reports only.
        remarks: sentences on stderr, in every form.
        hints: sentences on stderr that scripts do not get.
        title: of a report.
        report: what a report has in place of the body; None: the body.
        files: further texts to write.
        left_sample: of the findings that a run left, those that the next one is to know again.
    """

    json: Mapping[str, Any] | None = None
    body: Sequence[Part] = ()
    exit: int = ExitCode.FINE
    remarks: Sequence[str] = ()
    hints: Sequence[str] = ()
    title: str = ""
    report: Sequence[Part] | None = None
    files: Mapping[Path, str] = field(default_factory=dict)
    left_sample: LeftKeys = field(default_factory=dict)
