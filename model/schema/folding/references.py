"""Which columns a piece of CQL speaks of: the target of an index, the condition of a view.

Both are kept as text, as the server keeps them; names are told from texts in quotes, keywords and functions.
"""

import re
from collections.abc import Iterator, Mapping

from model.schema.names import RESERVED, name_of

_PIECE = re.compile(
    r"""(?P<text>'(?:[^']|'')*')|(?P<name>"(?:[^"]|"")+"|(?<![\w.])[A-Za-z]\w*)(?P<call>\s*\()?|(?P<mark>\d[\w.]*)"""
)
_WORDS = RESERVED | {"contains", "like", "true", "false"}


def columns_of(text: str) -> tuple[str, ...]:
    """The columns that the text names, as the server knows them, in their order."""
    return tuple(dict.fromkeys(name_of(found["name"]) for found in _names(text)))


def _names(text: str) -> Iterator[re.Match[str]]:
    for found in _PIECE.finditer(text):
        name = found["name"]
        if name and not found["call"] and name.lower() not in _WORDS:
            yield found


def renamed_in(text: str, renames: Mapping[str, str]) -> str:
    """The text with columns spelled otherwise; keys are names as the server knows them."""
    parts, end = [], 0
    for found in _names(text):
        spelling = renames.get(name_of(found["name"]))
        if spelling is not None:
            parts += [text[end : found.start("name")], spelling]
            end = found.end("name")
    return "".join((*parts, text[end:]))
