"""The life of a row as a picture: a column for each step of a recorded run, both rows below each other."""

from collections.abc import Iterator, Sequence
from typing import Final

from mailmend.model.catalog.mail import IMAP_UID, MESSAGE_ID
from mailmend.model.instants import MICROS
from tests.pictures.drawing import MARGIN, Place, opening, rectangle, text
from tests.pictures.row_run import Cell, Step

NAMES: Final = ("write", "drift", "check", "repair", "undo")
STORIES: Final = (
    ("the truth first,", "then the projection"),
    ("a flag is set, and its", "second write is lost"),
    ("scan, delay, recheck;", "nothing is written"),
    ("scan, delay, recheck,", "then a write as of T"),
    ("from the before-image,", "at T + 1 µs"),
)
COLUMN: Final = 196
GAP: Final = 14
LABELS: Final = 150
HEAD: Final = 92
CELL: Final = 76
TAIL: Final = 30
AXIS: Final = 96
_MINUTE: Final = 60
_HOUR: Final = 3600


def svg_of_steps(steps: Sequence[Step]) -> str:
    width = 2 * MARGIN + LABELS + len(steps) * (COLUMN + GAP) - GAP
    height = 2 * MARGIN + HEAD + 2 * (CELL + GAP) + TAIL + AXIS
    lines = list(opening("The life of a row: write, drift, check, repair as of T, undo", width, height))
    upper = MARGIN + HEAD
    lower = upper + CELL + GAP
    lines += _label(upper, IMAP_UID.spelling, "source of truth")
    lines += _label(lower, MESSAGE_ID.spelling, "projection")
    lines += _label(MARGIN - 16, "", "as seen from the")
    lines += _label(MARGIN, "", "begin of the repair")
    repaired = steps[NAMES.index("repair")]
    t = repaired.projection.written_at
    for number, step in enumerate(steps):
        x = MARGIN + LABELS + number * (COLUMN + GAP)
        lines += _heading(x, number, step)
        lines += _cell(Place(x, upper, COLUMN, CELL), "truth", step.truth, t)
        kind = "copy"
        if step.truth.modseq != step.projection.modseq:
            kind = "wrong"
        lines += _cell(Place(x, lower, COLUMN, CELL), kind, step.projection, t)
        lines.append(text(x, lower + CELL + 22, "label strong", _said(step)))
    lines += _axis(lower + CELL + TAIL + GAP, width, repaired)
    lines.append("</svg>")
    return "\n".join(lines) + "\n"


def _label(y: float, name: str, role: str) -> Iterator[str]:
    if name:
        yield text(MARGIN, y + 30, "text strong", name)
    yield text(MARGIN, y + 48, "text", role)


def _heading(x: float, number: int, step: Step) -> Iterator[str]:
    yield text(x, MARGIN + 14, "title", f"{number + 1}. {NAMES[number]}")
    yield text(x + COLUMN, MARGIN + 14, "label", when(step.at), "end")
    for line, words in enumerate(STORIES[number]):
        yield text(x, MARGIN + 36 + 17 * line, "text", words)
    yield text(x, MARGIN + 74, "package", step.command)


def _cell(place: Place, kind: str, cell: Cell, t: float) -> Iterator[str]:
    flagged = "not flagged"
    if cell.flagged:
        flagged = "flagged"
    yield rectangle(place, kind)
    yield text(place.x + 12, place.y + 25, "title", flagged)
    yield text(place.x + 12, place.y + 44, "text", f"modSeq {cell.modseq}")
    yield text(place.x + 12, place.y + 62, "text", f"timestamp: {stamp(cell.written_at, t)}")


def _said(step: Step) -> str:
    if step.result:
        return f"{step.verdict} → {step.result}"
    return step.verdict


def _axis(y: float, width: float, repaired: Step) -> Iterator[str]:
    """The time of the repair: T, the scan, the second look."""
    left = MARGIN + LABELS
    right = width - MARGIN
    margin = -repaired.projection.written_at
    pixels = (right - left - 160) / (margin + repaired.at)
    line = y + 34
    yield text(MARGIN, line + 4, "text strong", "time of the repair")
    yield f'  <path class="arrow" d="M{left} {line:.0f}H{right:.0f}"/>'
    yield f'  <path class="head" d="M{right:.0f} {line:.0f}l-9 -4.5v9z"/>'
    marks = (
        (0.0, "T", "the fix carries this timestamp"),
        (margin, "scan begins", "a later write of a user wins"),
        (margin + repaired.at, "recheck, then fix", f"after --delay, {repaired.at:.0f} s"),
    )
    for seconds, name, about in marks:
        x = left + 8 + seconds * pixels
        yield f'  <circle class="ours" cx="{x:.0f}" cy="{line:.0f}" r="6"/>'
        yield text(x - 4, line - 14, "label strong", name)
        yield text(x - 4, line + 26, "label", about)
    middle = left + 8 + margin * pixels / 2
    yield text(middle, line - 14, "label", f"margin {margin:.0f} s", "middle")


def when(seconds: float) -> str:
    """When a step was over, as seen from the begin of the repair."""
    if seconds < 0:
        return f"{span(-seconds)} before"
    return f"{span(seconds)} after"


def stamp(seconds: float, t: float) -> str:
    """A timestamp, as seen from the begin of the repair, or from T where it is within a microsecond of it."""
    micros = round((seconds - t) * MICROS)
    if micros in {0, 1}:
        return ("T", "T + 1 µs")[micros]
    return when(round(seconds))


def span(seconds: float) -> str:
    """Whole hours and minutes, from two minutes up; else seconds."""
    whole = round(seconds)
    if whole >= _HOUR and whole % _HOUR == 0:
        return f"{whole // _HOUR} h"
    if whole > _MINUTE and whole % _MINUTE == 0:
        return f"{whole // _MINUTE} min"
    return f"{whole} s"
