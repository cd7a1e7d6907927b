"""Names and values as TOML writes them, and the constants that a declaration has."""

import json
import re
from collections.abc import Iterable
from typing import Final

from mailmend.model.errors import BadIdentifier
from mailmend.model.names import checked_spelling, name_of, spelled

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_NAME: Final = "A name has letters, digits and _ without regard to case, or is in double quotes."

Constant = bool | int | str
"""A value that a column is compared with, as TOML has it."""


def cql_name(text: str, what: str) -> str:
    """The name in the one spelling that a declaration keeps.

    Raises:
        BadIdentifier: it is not a name that CQL takes, in quotes or without.
    """
    if not text.isprintable():
        raise BadIdentifier(text, what, mend=_NAME)
    try:
        return spelled(name_of(checked_spelling(text, what)))
    except BadIdentifier as error:
        raise BadIdentifier(text, what, mend=_NAME) from error


def toml_text(text: str) -> str:
    """A text as TOML writes it: in single quotes where only double quotes are in it."""
    if '"' in text and "'" not in text and text.isprintable():
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_texts(texts: Iterable[str]) -> str:
    """A list of texts."""
    return f"[{', '.join(map(toml_text, texts))}]"


def toml_key(text: str) -> str:
    if _BARE.fullmatch(text):
        return text
    return toml_text(text)


def toml_constant(value: Constant) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    return toml_text(value)


def toml_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    """An inline table of names and texts that are TOML already."""
    inner = ", ".join(f"{toml_key(name)} = {text}" for name, text in pairs)
    if not inner:
        return "{}"
    return f"{{ {inner} }}"
