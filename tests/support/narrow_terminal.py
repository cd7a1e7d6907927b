"""A terminal of 80 columns, and what no table may do there."""

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from rich.cells import cell_len
from rich.console import Console

from mailmend.admin.frame.document import Document, Grid
from mailmend.admin.frame.presenter import show
from mailmend.admin.frame.tables import text_of_cell

COLUMNS = 80
ROWS_TRIED = 40
"""The rows of a table that are looked at: one row is like another."""

WORD = 36
"""Characters of a word that is never broken: an id."""


def on_terminal(grid: Grid, columns: int = COLUMNS) -> str:
    """The table as a terminal of that width gets it, without colours."""
    stream = io.StringIO()
    console = Console(file=stream, width=columns, force_terminal=True, color_system=None, highlight=False)
    show(Document(body=(grid,)), console)
    return stream.getvalue()


def problems_of(grid: Grid) -> list[str]:
    """What a terminal of 80 columns shows wrongly of a table: lines that are too long, words that are lost."""
    rows = list(grid.rows)[:ROWS_TRIED]
    few = Grid(grid.title, grid.columns, rows, grid.wrapped, short_ids=grid.short_ids)
    text = on_terminal(few)
    found = []
    for line in text.splitlines():
        # A command to be copied is one line, which the terminal itself breaks.
        if cell_len(line.rstrip()) > COLUMNS and not line.lstrip().startswith("next: "):
            found.append(f"{grid.title}: {cell_len(line)} columns: {line}")
    words = set(text.split())
    for row in rows:
        for name, cell in zip(grid.columns, row, strict=True):
            for word in text_of_cell(cell).plain.split():
                if not _is_shown(word, words, short=name in grid.short_ids):
                    found.append(f"{grid.title}: {name} lacks {word}")
    return found


def _is_shown(word: str, words: set[str], *, short: bool) -> bool:
    if short and re.match("[0-9a-f]{8}-", word):
        return any(shown.startswith(word[:8]) for shown in words)
    return cell_len(word) > WORD or word in words


@contextmanager
def tables_kept() -> Iterator[Sequence[Grid]]:
    """The tables that are made in the block."""
    kept: list[Grid] = []
    made = Grid.__init__

    def keep(self: Grid, *arguments: Any, **named: Any) -> None:
        made(self, *arguments, **named)
        kept.append(self)

    with patch.object(Grid, "__init__", keep):
        yield kept


class TerminalText(io.StringIO):
    """A stdout that is a terminal and keeps what it got."""

    def isatty(self) -> bool:
        return True
