"""How a table of a document becomes lines: one rule for every table.

Where no terminal reads (a pipe, a file), a table has the width that its longest words need. On a
terminal it has at most the terminal's width, and no word is lost. A table that is too wide for it:

1. breaks its headers and longer texts between words,
2. shows ids of `Grid.short_ids` by their beginnings, which commands take as well,
3. writes its last columns below their row, each as "name: value", until the first columns fit.

A shell's COLUMNS, a wider terminal, a pipe and `--json` show the whole table.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from mailmend.admin.frame.document import (
    COMMANDS,
    NUMERIC,
    PROSE,
    Grid,
    GridCell,
    RunbookLink,
    Styled,
)
from mailmend.model.texts import printable

_WIDTH_MAX: Final = 100_000

_WORD_COLUMNS_MAX: Final = 60
"""Longer words of prose are broken."""

_NARROW_WORD_COLUMNS_MAX: Final = 36
"""Longer words of prose are broken where a terminal is too narrow; an id stays whole."""

_TEXT_COLUMNS_MIN: Final = 24
"""Text is not broken into shorter lines than this."""

_GAP: Final = 2
"""Characters between two columns of a table that is too wide for its terminal."""

_INDENT: Final = 4
"""Characters before a value that is written below its row."""

_UUID: Final = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_ID_LENGTHS: Final = (8, 13, 18, 23, 36)
"""Beginnings of an id that end with one of its groups."""


def text_of_cell(cell: GridCell) -> Text:
    match cell:
        case Styled(text, style):
            return Text(printable(text), style)
        case RunbookLink(runbook):
            return Text(runbook)
        case str():
            return Text(printable(cell))


def print_grid(grid: Grid, console: Console) -> None:
    """Write a table. On a terminal it is not wider than the terminal, unless a word of it is."""
    table = grid_of(grid)
    needed = console.measure(table, options=console.options.update_width(_WIDTH_MAX))
    # What goes to a pipe is wrapped by its reader; rich calls a pipe a terminal under FORCE_COLOR.
    is_terminal = console.is_terminal and not console.soft_wrap
    if is_terminal and needed.maximum > console.width:
        _print_narrow(grid, console)
        return
    if needed.minimum > console.width:
        table.width = needed.minimum
    console.print(table, crop=False)


def grid_of(grid: Grid) -> RichTable:
    """A table that cuts no word: prose is wrapped between words, and other text is not wrapped."""
    shown = RichTable(
        title=_title(grid),
        title_justify="left",
        header_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    rows = [list(map(text_of_cell, row)) for row in grid.rows]
    for place, column in enumerate(grid.columns):
        texts = [printable(column), *(row[place].plain for row in rows)]
        wraps = _wraps(grid, column)
        if wraps:
            least = min(_longest_word(texts), _WORD_COLUMNS_MAX)
        else:
            least = _longest_line(texts)
        shown.add_column(
            texts[0],
            justify=_justify(column),
            overflow="fold",
            no_wrap=not wraps,
            min_width=least,
        )
    for row in rows:
        shown.add_row(*row)
    return shown


def _title(grid: Grid) -> Text:
    return Text(printable(grid.title))


def _wraps(grid: Grid, column: str) -> bool:
    return column in PROSE or column in grid.wrapped


def _justify(column: str) -> Any:
    if column in NUMERIC:
        return "right"
    return "left"


def _longest_word(texts: Sequence[str]) -> int:
    words: list[str] = []
    for text in texts:
        words += text.split()
    return max(map(cell_len, words), default=0)


def _longest_line(texts: Sequence[str]) -> int:
    lines: list[str] = []
    for text in texts:
        lines += text.splitlines()
    return max(map(cell_len, lines), default=0)


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a table that is too wide for its terminal.

    Attributes:
        least: characters below which a word of it would be broken.
        natural: characters that its longest line needs.
    """

    name: str
    cells: Sequence[Text]
    least: int
    natural: int


def _print_narrow(grid: Grid, console: Console) -> None:
    columns = list(_narrow_columns(grid, frozenset()))
    number = _number_that_fits(columns, console.width)
    if number < len(columns):
        columns = list(_narrow_columns(grid, grid.short_ids))
        number = _number_that_fits(columns, console.width)
    kept = columns[:number]
    below = columns[len(kept) :]
    widths = _widths(kept, console.width)
    header = _lines_of(kept, widths)
    header.show_header = True
    console.print(_title(grid), style="italic")
    console.print()
    console.print(header, crop=False)
    console.print("─" * (sum(widths) + _GAP * (len(widths) - 1)), soft_wrap=True)
    for place in range(len(grid.rows)):
        row = _lines_of(kept, widths)
        row.add_row(*(column.cells[place] for column in kept))
        console.print(row, crop=False)
        for column in below:
            _print_below(column.name, column.cells[place], console)
    console.print()


def _narrow_columns(grid: Grid, short_ids: Collection[str]) -> Iterator[_Column]:
    for place, name in enumerate(grid.columns):
        cells = [text_of_cell(row[place]) for row in grid.rows]
        if name in short_ids:
            cells = _with_short_ids(cells)
        texts = [cell.plain for cell in cells]
        head = printable(name)
        longest_line = _longest_line(texts)
        least = longest_line
        if _wraps(grid, name) or _is_text(name, texts):
            word = min(_longest_word(texts), _NARROW_WORD_COLUMNS_MAX)
            least = max(word, min(longest_line, _TEXT_COLUMNS_MIN))
        least = max(least, _longest_word([head]), 1)
        yield _Column(head, cells, least, max(longest_line, least))


def _is_text(name: str, texts: Sequence[str]) -> bool:
    """Whether a column holds text that may be broken between words: longer than a time."""
    if name in COMMANDS or name in NUMERIC:
        return False
    return any(" " in text and cell_len(text) > _TEXT_COLUMNS_MIN for text in texts)


def _with_short_ids(cells: Sequence[Text]) -> list[Text]:
    """The cells with ids by their shortest beginnings that no two of them share."""
    ids: set[str] = set()
    for cell in cells:
        ids.update(_UUID.findall(cell.plain))
    length = _length_that_differs(ids)
    shortened = []
    for cell in cells:
        text = _UUID.sub(lambda found: found[0][:length], cell.plain)
        shortened.append(Text(text, cell.style))
    return shortened


def _length_that_differs(ids: Collection[str]) -> int:
    """The least length at which no two ids begin alike."""
    for length in _ID_LENGTHS:
        beginnings = {known[:length] for known in ids}
        if len(beginnings) == len(ids):
            return length
    return _ID_LENGTHS[-1]


def _number_that_fits(columns: Sequence[_Column], width: int) -> int:
    """How many of the first columns fit next to each other, at least one."""
    taken = columns[0].least
    number = 1
    for column in columns[1:]:
        taken += _GAP + column.least
        if taken > width:
            break
        number += 1
    return number


def _widths(columns: Sequence[_Column], width: int) -> list[int]:
    """The width of each column; spare width goes to the first columns that can use it."""
    left = width - sum(column.least for column in columns) - _GAP * (len(columns) - 1)
    widths = []
    for column in columns:
        more = max(0, min(left, column.natural - column.least))
        widths.append(column.least + more)
        left -= more
    return widths


def _lines_of(columns: Sequence[_Column], widths: Sequence[int]) -> RichTable:
    """A table of these columns without rows. Tables of the same widths line up."""
    table = RichTable(
        box=None,
        show_header=False,
        header_style="bold",
        pad_edge=False,
        padding=(0, _GAP, 0, 0),
    )
    for column, width in zip(columns, widths, strict=True):
        table.add_column(column.name, justify=_justify(column.name), overflow="fold", width=width)
    return table


def _print_below(name: str, cell: Text, console: Console) -> None:
    if not cell.plain:
        return
    line = Text.assemble((f"{name}: ", "dim"), cell)
    if name in COMMANDS:
        # A command is to be copied: the terminal breaks its line, so that no newline gets into it.
        console.print(Text(" " * _INDENT).append_text(line), soft_wrap=True)
    else:
        line.overflow = "fold"
        console.print(Padding(line, (0, 0, 0, _INDENT)))
