"""Boxes on a grid, with zones behind them and arrows between them, as SVG for light and dark pages.

Widths of texts are reckoned from their number of characters, with some to spare, because each reader has another font.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

MARGIN: Final = 18
GAP_ACROSS: Final = 44
GAP_DOWN: Final = 34
PAD: Final = 14
ZONE_PAD: Final = 14
ZONE_HEAD: Final = 30
TITLE_LINE: Final = 21
TEXT_LINE: Final = 17
PACKAGE_LINE: Final = 15
TITLE_CHARACTER: Final = 8.9
"""Pixels that one character of a title may take; then of a line of text, and of the name of a package."""
TEXT_CHARACTER: Final = 6.9
PACKAGE_CHARACTER: Final = 6.8

STYLE: Final = """
    svg{--page:#fff;--text:#1f2328;--soft:#4c5561;--line:#667080;--zone:#f4f6f9;--edge:#c9d1dc;--box:#fff;
      --truth:#e3efff;--truth-edge:#2f6dc0;--copy:#eef5e4;--copy-edge:#5f8a2a;--ours:#fff2dc;--ours-edge:#b87a14;
      --good:#1a7f37;--bad:#b3261e;--wait:#9aa4b2;--package:#7a5a10;--wrong:#fdeceb}
    @media (prefers-color-scheme:dark){svg{--page:#0d1117;--text:#e6edf3;--soft:#adb7c2;--line:#8b96a5;--zone:#151b23;
      --edge:#3d4653;--box:#1b222c;--truth:#14294a;--truth-edge:#5a9cf5;--copy:#1c2b12;--copy-edge:#8fbf55;
      --ours:#33240a;--ours-edge:#e0a23c;--good:#4ac26b;--bad:#ff7b72;--wait:#5c6675;--package:#e0b95c;--wrong:#3a1614}}
    .waits{fill:var(--wrong);stroke:var(--bad);stroke-dasharray:4 3}.picked{fill:var(--good)}
    .wrong{fill:var(--wrong);stroke:var(--bad)}
    .page{fill:var(--page)}.zone{fill:var(--zone);stroke:var(--edge)}.outside{fill:var(--box);stroke:var(--edge)}
    .truth{fill:var(--truth);stroke:var(--truth-edge)}.copy{fill:var(--copy);stroke:var(--copy-edge)}
    .ours{fill:var(--ours);stroke:var(--ours-edge)}.arrow{fill:none;stroke:var(--line);stroke-width:1.6}
    .head{fill:var(--line)}.dashed{stroke-dasharray:5 4}.title{fill:var(--text);font-size:15px;font-weight:600}
    .text{fill:var(--soft);font-size:12.5px}.caption{fill:var(--soft);font-size:13px;font-weight:600}
    .package{fill:var(--package);font-size:11px;font-family:ui-monospace,Menlo,Consolas,monospace}
    .good{fill:var(--good)}.bad{fill:var(--bad)}.wait{fill:var(--wait)}.label{fill:var(--soft);font-size:12px}
    .strong{font-weight:600}.inverse{fill:var(--page);font-size:11.5px;font-weight:600}
"""


@dataclass(frozen=True, slots=True)
class Box:
    """A box with its texts.

    Attributes:
        name: for arrows.
        column, row: its cell, from 0; it takes `columns` cells of its row.
        packages: the folders that it is about, as they are called in the repository.
        kind: one of the classes of STYLE: outside, truth, copy, ours.
    """

    name: str
    column: int
    row: int
    title: str
    lines: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    kind: str = "outside"
    columns: int = 1

    @property
    def height(self) -> int:
        texts = TEXT_LINE * len(self.lines) + PACKAGE_LINE * len(self.packages)
        return TITLE_LINE + texts + 2 * PAD - 6


@dataclass(frozen=True, slots=True)
class Zone:
    """A frame around some cells, with a caption."""

    title: str
    column: int
    row: int
    columns: int
    rows: int = 1


@dataclass(frozen=True, slots=True)
class Arrow:
    """From one box to another.

    Attributes:
        at: where on the sides that face each other, from 0 to 1.
    """

    source: str
    target: str
    text: str = ""
    dashed: bool = False
    at: float = 0.5


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything that is drawn, by cells; `columns` are widths in pixels."""

    title: str
    columns: tuple[int, ...]
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...] = ()
    zones: tuple[Zone, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """A rectangle in pixels."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything is."""

    width: float
    height: float
    boxes: dict[str, Place]
    zones: tuple[Place, ...]


def layout_of(picture: Picture) -> Layout:
    """Each row is as high as its highest box; a row at which a zone begins or ends has room for its frame."""
    lefts: list[float] = []
    x = float(MARGIN + ZONE_PAD)
    for width in picture.columns:
        lefts.append(x)
        x += width + GAP_ACROSS
    whole = x - GAP_ACROSS + ZONE_PAD + MARGIN

    rows = max(box.row for box in picture.boxes) + 1
    tops: list[float] = []
    heights: list[float] = []
    y = float(MARGIN)
    for row in range(rows):
        if any(zone.row == row for zone in picture.zones):
            y += ZONE_HEAD
        height = float(max(box.height for box in picture.boxes if box.row == row))
        tops.append(y)
        heights.append(height)
        y += height + GAP_DOWN
        if any(zone.row + zone.rows - 1 == row for zone in picture.zones):
            y += ZONE_PAD
    boxes: dict[str, Place] = {}
    for box in picture.boxes:
        left = lefts[box.column]
        last = box.column + box.columns - 1
        right = lefts[last] + picture.columns[last]
        boxes[box.name] = Place(left, tops[box.row], right - left, heights[box.row])
    zones: list[Place] = []
    for zone in picture.zones:
        last_column = zone.column + zone.columns - 1
        last_row = zone.row + zone.rows - 1
        left = lefts[zone.column] - ZONE_PAD
        right = lefts[last_column] + picture.columns[last_column] + ZONE_PAD
        top = tops[zone.row] - ZONE_HEAD
        bottom = tops[last_row] + heights[last_row] + ZONE_PAD
        zones.append(Place(left, top, right - left, bottom - top))
    return Layout(whole, y - GAP_DOWN + MARGIN, boxes, tuple(zones))


def svg_of(picture: Picture) -> str:
    layout = layout_of(picture)
    lines = list(opening(picture.title, layout.width, layout.height))
    for zone, place in zip(picture.zones, layout.zones, strict=True):
        lines.append(rectangle(place, "zone", 12))
        lines.append(text(place.x + PAD, place.y + 21, "caption", zone.title))
    for arrow in picture.arrows:
        lines += _arrow(arrow, layout.boxes[arrow.source], layout.boxes[arrow.target])
    for box in picture.boxes:
        lines += _box(box, layout.boxes[box.name])
    lines.append("</svg>")
    return "\n".join(lines) + "\n"


def opening(title: str, width: float, height: float, style: str = STYLE) -> Iterator[str]:
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    font = 'font-family="system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" xml:space="preserve" {font}>'
    yield f"  <title>{escape(title)}</title>"
    yield "  <!-- Drawn by `make pictures`: change tests/pictures, not this file. -->"
    yield f"  <style>{style}  </style>"
    yield '  <rect class="page" width="100%" height="100%"/>'


def rectangle(place: Place, kind: str, radius: int = 8) -> str:
    size = f'width="{place.width:.0f}" height="{place.height:.0f}"'
    return f'  <rect class="{kind}" x="{place.x:.0f}" y="{place.y:.0f}" {size} rx="{radius}"/>'


def text(x: float, y: float, kind: str, words: str, anchor: str = "") -> str:
    aligned = ""
    if anchor:
        aligned = f' text-anchor="{anchor}"'
    return f'  <text class="{kind}" x="{x:.0f}" y="{y:.0f}"{aligned}>{escape(words, quote=False)}</text>'


def _box(box: Box, place: Place) -> Iterator[str]:
    yield rectangle(place, box.kind)
    x = place.x + PAD
    y = place.y + PAD + 13
    yield text(x, y, "title", box.title)
    y += TITLE_LINE - TEXT_LINE
    for line in box.lines:
        y += TEXT_LINE
        yield text(x, y, "text", line)
    for package in box.packages:
        y += PACKAGE_LINE
        yield text(x, y + 3, "package", package)


def _arrow(arrow: Arrow, source: Place, target: Place) -> Iterator[str]:
    """Straight where the boxes share a row or a column, else down or up first and then across."""
    points = _points(arrow, source, target)
    path = " ".join(f"{x:.0f} {y:.0f}" for x, y in points)
    kind = "arrow"
    if arrow.dashed:
        kind = "arrow dashed"
    yield f'  <path class="{kind}" d="M{path}"/>'
    yield _arrowhead(points[-2], points[-1])
    if arrow.text:
        yield _arrow_text(arrow, points)


def _points(arrow: Arrow, source: Place, target: Place) -> list[tuple[float, float]]:
    top = max(source.y, target.y)
    bottom = min(source.bottom, target.bottom)
    if top < bottom:
        y = top + (bottom - top) * arrow.at
        if source.right <= target.x:
            return [(source.right, y), (target.x, y)]
        return [(source.x, y), (target.right, y)]
    left = max(source.x, target.x)
    right = min(source.right, target.right)
    down = source.bottom <= target.y
    if left < right:
        x = left + (right - left) * arrow.at
        if down:
            return [(x, source.bottom), (x, target.y)]
        return [(x, source.y), (x, target.bottom)]
    x = source.x + source.width * arrow.at
    y = target.y + target.height / 2
    start = source.y
    if down:
        start = source.bottom
    end = target.right
    if target.x >= x:
        end = target.x
    return [(x, start), (x, y), (end, y)]


def _arrowhead(before: tuple[float, float], end: tuple[float, float]) -> str:
    x, y = end
    if before[1] == y:
        back = math.copysign(9, before[0] - x)
        return f'  <path class="head" d="M{x:.0f} {y:.0f}l{back:.0f} -4.5v9z"/>'
    back = math.copysign(9, before[1] - y)
    return f'  <path class="head" d="M{x:.0f} {y:.0f}l-4.5 {back:.0f}h9z"/>'


def _arrow_text(arrow: Arrow, points: Sequence[tuple[float, float]]) -> str:
    from_x, from_y = points[0]
    to_x, to_y = points[1]
    if from_y == to_y:
        return text((from_x + to_x) / 2, from_y - 6, "label", arrow.text, "middle")
    return text(from_x + 8, (from_y + to_y) / 2 + 4, "label", arrow.text)
