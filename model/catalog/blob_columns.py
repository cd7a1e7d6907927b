"""Columns of the mail tables that refer to blobs."""

import re
from typing import Final

from mailmend.model.table import Column, Table

_CONTENT_COLUMNS: Final = frozenset({"headercontent", "bodycontent"})
"""Columns of messageV3 with ids of blobs, whose names do not say so."""

_STORES: Final = frozenset({"blobs", "blobparts"})
"""Tables that are a store of blobs, and refer to none."""

TEXTS: Final = frozenset({"text", "varchar", "ascii"})


def may_name_blobs(column: str) -> bool:
    """Whether the name of a column says that it may hold ids of blobs."""
    return "blob" in column or column in _CONTENT_COLUMNS


def naming_blobs(table: Table) -> tuple[Column, ...]:
    """The table's text columns that may refer to blobs; empty for a table that stores blobs itself."""
    named = () if table.name in _STORES else table.columns
    return tuple(
        column for column in named if may_name_blobs(column.name) and TEXTS & set(re.findall(r"\w+", column.type))
    )
