"""Truths and their projections as an SVG: boxes in two columns, arrows between them; no library, the same every time.

Widths are reckoned from the number of characters in a font of fixed width, with some to spare, so that no text leaves
its box whichever such font a reader has.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from mailmend.admin.schema.export_page import Relation, key_text, relations_of
from mailmend.model.projections.family import Family
from mailmend.model.table import Table

CHARACTER = 7.4
"""Pixels that one character of the text may take, at 12 pixels' height."""

_LINE = 17
_PAD = 12
_GAP = 14
_BETWEEN_FAMILIES = 34
_MARGIN = 20
_CHANNEL = 120
_WRAP = 52
_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_COLOURS = {"mirror": "#1f6feb", "filter": "#1a7f37", "union": "#8250df", "count": "#9a6700", "content": "#57606a"}
_TRUTH = "#cf222e"


@dataclass(frozen=True, slots=True)
class Box:
    """A box with its lines; the first is the table's name."""

    x: float
    y: float
    width: float
    lines: tuple[str, ...]
    colour: str

    @property
    def height(self) -> float:
        return len(self.lines) * _LINE + 2 * _PAD - 4

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Arrow:
    """From a truth to its projection."""

    source: Box
    target: Box
    dashed: bool


@dataclass(frozen=True, slots=True)
class Drawing:
    """Boxes and arrows with their positions."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def drawing_of(families: Sequence[Family]) -> Drawing:
    """Each family is a block: its truth on the left, centred on its projections."""
    groups = [relations_of(family) for family in families]
    left = max((_width(_truth_lines(group[0].truth)) for group in groups), default=0.0)
    right = max((_width(_lines(relation)) for group in groups for relation in group), default=0.0)
    boxes: list[Box] = []
    arrows: list[Arrow] = []
    y = float(_MARGIN)
    for group in groups:
        targets = list(_stacked(group, _MARGIN + left + _CHANNEL, y, right))
        truth = _centred(_truth_lines(group[0].truth), left, targets)
        boxes += [truth, *targets]
        pairs = zip(targets, group, strict=True)
        arrows += [Arrow(truth, target, relation.kind == "content") for target, relation in pairs]
        y = max(box.y + box.height for box in (truth, *targets)) + _BETWEEN_FAMILIES
    width = 2 * _MARGIN + left + _CHANNEL + right
    return Drawing(width, y - _BETWEEN_FAMILIES + _MARGIN, tuple(boxes), tuple(arrows))


def svg(families: Sequence[Family]) -> str:
    drawing = drawing_of(families)
    size = f'width="{drawing.width:.0f}" height="{drawing.height:.0f}"'
    view = f'viewBox="0 0 {drawing.width:.0f} {drawing.height:.0f}"'
    lines = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} role="img" font-family="{_FONT}" font-size="12">',
        "<title>Truths and their projections</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        *(_arrow_svg(arrow) for arrow in drawing.arrows),
        *(line for box in drawing.boxes for line in _box_svg(box)),
        "</svg>",
    )
    return "\n".join(lines) + "\n"


def _stacked(group: Sequence[Relation], x: float, y: float, width: float) -> Iterator[Box]:
    for relation in group:
        box = Box(x, y, width, _lines(relation), _COLOURS[relation.kind])
        yield box
        y += box.height + _GAP


def _centred(lines: tuple[str, ...], width: float, targets: Sequence[Box]) -> Box:
    top = targets[0].y
    bottom = targets[-1].y + targets[-1].height
    height = Box(0, 0, width, lines, _TRUTH).height
    return Box(_MARGIN, max(top, (top + bottom - height) / 2), width, lines, _TRUTH)


def _truth_lines(truth: Table) -> tuple[str, ...]:
    return (truth.spelling, key_text(truth), "truth")


def _lines(relation: Relation) -> tuple[str, ...]:
    said = [line for text in (f"{relation.kind}: {relation.says}", *relation.notes) for line in _wrapped(text)]
    return (relation.table.spelling, key_text(relation.table), *said)


def _wrapped(text: str) -> Iterator[str]:
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > _WRAP:
            yield line
            line = ""
        line = f"{line} {word}".strip()
    yield line


def _width(lines: Sequence[str]) -> float:
    return max(map(len, lines)) * CHARACTER + 2 * _PAD


def _arrow_svg(arrow: Arrow) -> str:
    x = arrow.source.x + arrow.source.width
    y = arrow.source.middle
    to_x = arrow.target.x
    to_y = arrow.target.middle
    bend = (x + to_x) / 2
    dashes = ' stroke-dasharray="5 4"' if arrow.dashed else ""
    colour = arrow.target.colour
    curve = f'<path d="M{x:.0f} {y:.0f}C{bend:.0f} {y:.0f} {bend:.0f} {to_y:.0f} {to_x - 7:.0f} {to_y:.0f}"'
    head = f'<path d="M{to_x:.0f} {to_y:.0f}l-9 -5v10z" fill="{colour}"/>'
    return f'{curve} fill="none" stroke="{colour}" stroke-width="1.5"{dashes}/>{head}'


def _box_svg(box: Box) -> Iterator[str]:
    yield (
        f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{box.height:.0f}" rx="6" '
        f'fill="#f6f8fa" stroke="{box.colour}" stroke-width="1.5"/>'
    )
    for number, line in enumerate(box.lines):
        weight, colour = (' font-weight="bold"', "#1f2328") if number == 0 else ("", "#424a53")
        x = box.x + _PAD
        y = box.y + _PAD + (number + 0.7) * _LINE - 2
        yield f'<text x="{x:.0f}" y="{y:.0f}" fill="{colour}"{weight}>{escape(line)}</text>'
