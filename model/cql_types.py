"""CQL type names in one spelling, so that a declared type and a live one can be compared as text.

The server spells types its own way: spaces after commas, `frozen` repeated inside what is frozen already and around
tuples, which are always frozen. Two spellings of one type must not look like drift.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from mailmend.model.errors import BadIdentifier
from mailmend.model.java_types import cql_of_class
from mailmend.model.names import name_of, spelled

_TOKEN = re.compile(r"""("(?:[^"]|"")+"|'[^']*'|[A-Za-z][A-Za-z0-9_]*|[<>,]|\d+)\s*""")
_ALWAYS_FROZEN = ("tuple", "vector")
_COLLECTIONS = ("list", "set", "map")
_BRACKETS = ("<", ">", ",")
_ALIASES = {"varchar": "text"}


@dataclass(frozen=True, slots=True)
class CqlType:
    """A type by name with the types (or, for a vector, the length) between its angle brackets."""

    name: str
    arguments: tuple["CqlType", ...] = ()

    def __str__(self) -> str:
        if not self.arguments:
            return self.name
        inner = ",".join(map(str, self.arguments))
        return f"{self.name}<{inner}>"


def parse_type(text: str) -> CqlType:
    """Parse a type into its normal form.

    Raises:
        BadIdentifier: the text is not a CQL type.
    """
    tokens = _tokens(text)
    parsed, rest = _parse(tokens, text)
    if rest:
        raise BadIdentifier(text, "CQL type")
    return _thawed(parsed, frozen=False)


@lru_cache(maxsize=1024)
def normal_type(text: str) -> str:
    """The type's text in normal form: lower case, no spaces, no redundant `frozen`."""
    return str(parse_type(text))


def names_in(text: str) -> frozenset[str]:
    """Every name in a type's text, user types among them, as the server knows them."""
    return frozenset(_names(parse_type(text)))


def _names(parsed: CqlType) -> Iterator[str]:
    yield name_of(parsed.name)
    for argument in parsed.arguments:
        yield from _names(argument)


def _tokens(text: str) -> list[str]:
    bare = text.lstrip()
    if _TOKEN.sub("", bare):
        raise BadIdentifier(text, "CQL type")
    return [_token(found) for found in _TOKEN.findall(bare)]


def _token(text: str) -> str:
    """A name in its normal spelling; a Java class unchanged."""
    if text.startswith('"'):
        return spelled(name_of(text))
    if text.startswith("'"):
        return text
    return text.lower()


def _parse(tokens: list[str], text: str, *, nested: bool = False) -> tuple[CqlType, list[str]]:
    if not tokens or tokens[0] in _BRACKETS:
        raise BadIdentifier(text, "CQL type")
    if tokens[0].startswith("'"):
        return _of_class(tokens[0], nested=nested), tokens[1:]
    name = _ALIASES.get(tokens[0], tokens[0])
    rest = tokens[1:]
    if rest[:1] != ["<"]:
        return CqlType(name), rest
    arguments: list[CqlType] = []
    while rest and rest[0] in "<,":
        argument, rest = _parse(rest[1:], text, nested=True)
        arguments.append(argument)
    if rest[:1] != [">"]:
        raise BadIdentifier(text, "CQL type")
    return CqlType(name, tuple(arguments)), rest[1:]


def _of_class(quoted: str, *, nested: bool) -> CqlType:
    """The type of a Java class in quotes; the quoted name itself where CQL has no other name for it."""
    in_cql = cql_of_class(quoted[1:-1])
    if in_cql is None:
        return CqlType(quoted)
    of_class = parse_type(in_cql)
    if nested and of_class.name in _COLLECTIONS:  # servers take there what they refuse of list<list<int>>
        return CqlType(quoted)
    return of_class


def _thawed(parsed: CqlType, *, frozen: bool) -> CqlType:
    """Remove every redundant `frozen`."""
    if parsed.name == "frozen" and len(parsed.arguments) == 1:
        inner = _thawed(parsed.arguments[0], frozen=True)
        if frozen or inner.name in _ALWAYS_FROZEN:
            return inner
        return CqlType("frozen", (inner,))
    if parsed.name == "vector":
        return CqlType("vector", (_element(parsed.arguments[0], frozen=frozen), *parsed.arguments[1:]))
    inside = frozen or parsed.name == "tuple"
    return CqlType(parsed.name, tuple(_thawed(argument, frozen=inside) for argument in parsed.arguments))


def _element(parsed: CqlType, *, frozen: bool) -> CqlType:
    """The type of a vector's elements: servers repeat `frozen` there."""
    if frozen and parsed.name in _COLLECTIONS:
        parsed = CqlType("frozen", (parsed,))
    return _thawed(parsed, frozen=False)
