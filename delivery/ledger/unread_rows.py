"""Values in JSON of the ledger's rows: of a damaged row the reader says what is wrong, and the other rows hold on."""

import json
from collections.abc import Mapping
from typing import Any

from mailmend.model.table import Row


class UnreadRow(ValueError):
    """What cannot be read of a row, in words."""


def json_in(row: Row, column: str) -> Any:
    """The value that a column keeps as JSON.

    Raises:
        UnreadRow: the column is empty, or no JSON.
    """
    text = row.get(column)
    if not isinstance(text, str):
        raise UnreadRow(f"its column {column} is empty")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadRow(f"its column {column} is no JSON") from error


def texts_in(found: Any, column: str) -> tuple[str, ...]:
    """A list of texts.

    Raises:
        UnreadRow: it is something else.
    """
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise UnreadRow(f"its column {column} is damaged")
    return tuple(found)


def named_texts_in(found: Any, column: str) -> Mapping[str, tuple[str, ...]]:
    """Lists of texts by name.

    Raises:
        UnreadRow: it is something else.
    """
    if not isinstance(found, Mapping):
        raise UnreadRow(f"its column {column} is damaged")
    return {name: texts_in(texts, column) for name, texts in found.items()}
