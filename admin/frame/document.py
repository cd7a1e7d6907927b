"""The content of a result, apart from its form: `admin.frame.presenter` writes it.

A chart in it is numbers: findings by verdict, by the time at which their rows were written, and
over runs. `report.html` draws them, with nothing but its own elements.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from mailmend.model.errors import ExitCode
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.decisions.left_sample import LeftKeys

BARS_MAX: Final = 60

_STEPS: Final = (1, 6, 24, 24 * 7, 24 * 30, 24 * 365)
"""Hours that one bar may stand for."""

_HOURS_KNOWN: Final = range(24 * 365 * 1000)
"""Hours since 1970 that a calendar has, and more than anybody needs."""


class Bar(NamedTuple):
    """A bar that is made of verdicts, by their names."""

    label: str
    counts: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars below a title; upright ones stand side by side in the order of time.

    Attributes:
        unit: what a bar stands for.
    """

    title: str
    bars: Sequence[Bar]
    unit: str = ""
    upright: bool = False

    @property
    def most(self) -> int:
        return max((bar.total for bar in self.bars), default=0)

    @property
    def legend(self) -> tuple[str, ...]:
        """The verdicts that occur, in one order everywhere."""
        return in_order(name for bar in self.bars for name, count in bar.counts.items() if count)

    @property
    def blocks(self) -> Iterator["Block"]:
        """Every part of every bar, in percent of the chart's length, from where bars begin."""
        for at, bar in enumerate(self.bars):
            begins = 0.0
            for verdict in self.legend:
                if count := bar.counts.get(verdict, 0):
                    size = 100 * count / self.most
                    text = f"{verdict} {count:,}"
                    if bar.label != verdict:
                        text = f"{bar.label}: {text}"
                    yield Block(at, round(begins, 3), round(size, 3), verdict, text)
                    begins += size


class Block(NamedTuple):
    """A part of a bar: the bar's place, where the part begins and how long it is (percent), and what it says."""

    bar: int
    begins: float
    size: float
    verdict: str
    text: str


def in_order(verdicts: Iterable[str]) -> tuple[str, ...]:
    """The verdicts in one order, each once; verdicts of blobs, which have names of their own, come last."""
    found = set(verdicts)
    known = [verdict.value for verdict in Verdict if verdict.value in found]
    return (*known, *sorted(found.difference(known)))


def by_verdict(counts: Mapping[str, int]) -> Iterator[Chart]:
    bars = [Bar(name, {name: counts[name]}) for name in in_order(counts) if counts[name]]
    if bars:
        yield Chart("Findings by verdict", bars)


def by_time(hours: Mapping[tuple[int, Verdict], int]) -> Iterator[Chart]:
    """A chart by the hour at which rows of findings were last written: what went wrong once, or every night."""
    known = {(hour, kind): count for (hour, kind), count in hours.items() if hour in _HOURS_KNOWN}
    if not known:
        return
    first = min(hour for hour, _ in known)
    last = max(hour for hour, _ in known)
    step = _step_between(first, last)
    found = {number: Counter[str]() for number in range(first // step, last // step + 1)}
    for (hour, verdict), count in known.items():
        found[hour // step][verdict.value] += count
    bars = [Bar(_hour_text(number * step, step), counts) for number, counts in found.items()]
    unit = {1: "an hour", 6: "six hours", 24: "a day"}.get(step, f"{step // 24:,} days")
    yield Chart("When their rows were last written (UTC)", bars, f"a bar is {unit}", upright=True)


def _step_between(first: int, last: int) -> int:
    """The hours of one bar: as few as the number of bars allows."""
    for step in _STEPS:
        if last // step - first // step < BARS_MAX:
            return step
    return 1 + (last - first) // (BARS_MAX - 1)


def over_runs(title: str, runs: Sequence[tuple[str, Mapping[str, int]]]) -> Iterator[Chart]:
    """Runs with their numbers, the oldest first; the last ones only."""
    bars = [Bar(label, counts) for label, counts in runs[-BARS_MAX:]]
    if any(bar.total for bar in bars):
        yield Chart(title, bars, "a bar is a run", upright=True)


def _hour_text(hour: int, step: int) -> str:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(hours=hour)
    if step % 24 == 0:
        return f"{at:%Y-%m-%d}"
    return f"{at:%Y-%m-%d %H}:00"


NUMERIC = frozenset({"count", "found", "fixed", "put back", "left", "rows", "rows read", "differ"})
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
        short_ids: columns of ids that commands take by their beginnings; a narrow terminal shows
            only these.
        level: the title's level as a heading.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[GridCell]]
    wrapped: frozenset[str] = frozenset()
    paper_columns: int = 120
    level: int = 2
    short_ids: frozenset[str] = frozenset()


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
