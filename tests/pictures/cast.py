"""A terminal of 30 seconds as an SVG without script: lines come and go by CSS. Without motion it is its last screen.

Each screen shows parts of what the commands printed. How many lines are left out is counted and said.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from tests.pictures.drawing import opening
from tests.pictures.story_run import Typed

SECONDS: Final = 30.0
LINE: Final = 18
CHARACTER: Final = 7.9
PAD: Final = 18
BAR: Final = 30
ROW_SECONDS: Final = 0.16
"""Between two lines of an output."""

SHOWN: Final = {
    "check": ("Findings in", "Next:"),
    "repair": ("What became of them", "To put it back:"),
    "undo": ("What became of them",),
}
"""By command, how the parts of its output begin that are shown."""

STYLE: Final = """
    svg{--back:#f6f8fa;--bar:#e4e8ee;--ink:#1f2328;--soft:#59636e;--prompt:#1a7f37;--bad:#b3261e}
    @media (prefers-color-scheme:dark){svg{--back:#0d1117;--bar:#1d2530;--ink:#e6edf3;--soft:#9198a1;--prompt:#4ac26b;
      --bad:#ff7b72}}
    .page{fill:var(--back)}.bar{fill:var(--bar)}text{white-space:pre;font:13px ui-monospace,SFMono-Regular,Menlo,
      Consolas,'DejaVu Sans Mono',monospace;fill:var(--ink)}.command{font-weight:700}
    .prompt{fill:var(--prompt);font-weight:700}
    .cut{fill:var(--soft);font-style:italic}.name{fill:var(--soft)}
"""


@dataclass(frozen=True, slots=True)
class ScreenLine:
    """One line of a screen.

    Attributes:
        row: from 0.
        kind: command, cut or output.
        at, until: seconds of the cast.
    """

    row: int
    kind: str
    words: str
    at: float
    until: float


@dataclass(frozen=True, slots=True)
class Cue:
    """When a command is typed, and whether the screen is empty before."""

    at: float
    clears: bool


CUES: Final = {"check": Cue(0.4, clears=True), "repair": Cue(12.0, clears=True), "undo": Cue(20.5, clears=False)}


def parts_of(lines: Sequence[str]) -> list[list[str]]:
    """The parts of an output: a line that is not indented begins one, and what is indented belongs to it."""
    parts: list[list[str]] = []
    for line in lines:
        if not parts or (line and not line.startswith(" ")):
            parts.append([])
        parts[-1].append(line)
    return parts


def shown_of(typed: Typed) -> list[tuple[str, str]]:
    """The lines of a command that are shown, each with its kind."""
    begins = SHOWN[name_of(typed)]
    shown: list[tuple[str, str]] = []
    left_out = 0
    for part in parts_of(typed.lines):
        if not part[0].startswith(begins):
            left_out += len(part)
            continue
        shown += cut_of(left_out)
        left_out = 0
        shown += [("output", line) for line in part if line]
    return [*shown, *cut_of(left_out)]


def cut_of(left_out: int) -> list[tuple[str, str]]:
    if not left_out:
        return []
    return [("cut", f"⋯ {left_out} more lines")]


def name_of(typed: Typed) -> str:
    return typed.command.split()[1]


def screen_lines(typed: Sequence[Typed]) -> list[ScreenLine]:
    """All lines with their times; a line goes when the next screen begins, those of the last one stay."""
    found: list[ScreenLine] = []
    clears = [cue.at for cue in CUES.values() if cue.clears]
    row = 0
    for command in typed:
        cue = CUES[name_of(command)]
        if cue.clears:
            row = 0
        until = min((at for at in clears if at > cue.at), default=SECONDS)
        found.append(ScreenLine(row, "command", command.command, cue.at, until))
        row += 1
        at = cue.at + 1.2
        for kind, words in shown_of(command):
            found.append(ScreenLine(row, kind, words, at, until))
            row += 1
            at += ROW_SECONDS
        row += 1
    return found


def svg_of_cast(typed: Sequence[Typed]) -> str:
    lines = screen_lines(typed)
    columns = max(len(line.words) for line in lines) + 2
    rows = max(line.row for line in lines) + 1
    width = 2 * PAD + columns * CHARACTER
    height = BAR + 2 * PAD + rows * LINE
    drawn = list(opening("A terminal: mailmend check, repair and undo", width, height, STYLE + _frames(lines)))
    drawn.append(f'  <rect class="bar" width="100%" height="{BAR}"/>')
    drawn.append(f'  <text class="name" x="{PAD}" y="20">check, repair, undo</text>')
    for line in lines:
        drawn.append(_line(line))
    drawn.append("</svg>")
    return "\n".join(drawn) + "\n"


def _frames(lines: Sequence[ScreenLine]) -> str:
    """One animation for each pair of times; without motion the last screen is shown, whole."""
    rules = []
    for at, until in dict.fromkeys((line.at, line.until) for line in lines):
        name = frame_of(at, until)
        ends = ""
        still = "1"
        if until < SECONDS:
            ends = f"{until / SECONDS:.2%}{{opacity:0}}"
            still = "0"
        steps = f"0%{{opacity:0}}{at / SECONDS:.2%}{{opacity:1}}{ends}"
        rules.append(f"    @keyframes {name}{{{steps}}}")
        rules.append(f"    .{name}{{opacity:{still};animation:{name} {SECONDS:.0f}s step-end infinite}}")
    rules.append("    @media (prefers-reduced-motion:reduce){text{animation:none!important}}")
    return "\n".join(rules) + "\n"


def frame_of(at: float, until: float) -> str:
    return f"f{at * 100:.0f}-{until:.0f}"


def _line(line: ScreenLine) -> str:
    y = BAR + PAD + line.row * LINE + 12
    words = escape(line.words, quote=False)
    if line.kind == "command":
        words = f'<tspan class="prompt">$ </tspan>{words}'
    frame = frame_of(line.at, line.until)
    return f'  <text class="{line.kind} {frame}" x="{PAD}" y="{y}">{words}</text>'
