"""Literals of CQL in one form: texts with their quotes doubled, maps as pairs.

Options are kept as literals all over the model, so reading and writing one stands here, once.
"""

import re
from collections.abc import Mapping

_PAIR = re.compile(r"'((?:[^']|'')*+)'\s*:\s*(?:'((?:[^']|'')*+)'|([^\s',{}]++))")
_OWN = "org.apache.cassandra."


def text_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def text_of(literal: str) -> str:
    """A text literal without its quotes; anything else as it is."""
    if len(literal) > 1 and literal[0] == literal[-1] == "'":
        return literal[1:-1].replace("''", "'")
    return literal


def map_literal(pairs: Mapping[str, str]) -> str:
    """A map of texts as CQL spells it, sorted by key."""
    return "{" + ", ".join(f"{text_literal(name)}: {text_literal(pairs[name])}" for name in sorted(pairs)) + "}"


def pairs_of(literal: str) -> dict[str, str]:
    """The pairs of a map literal, without quotes (empty where it is no map); a class by its short name."""
    if not literal.startswith("{"):
        return {}
    found = {_unquoted(name): _unquoted(quoted) or bare for name, quoted, bare in _PAIR.findall(literal)}
    return {name: short_class(value) if name == "class" else value for name, value in found.items()}


def short_class(name: str) -> str:
    """Cassandra's own classes by their short names, which CQL takes too; others unchanged."""
    return name.rsplit(".", 1)[-1] if name.startswith(_OWN) else name


def _unquoted(text: str) -> str:
    return text.replace("''", "'")
