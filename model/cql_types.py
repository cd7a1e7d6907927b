"""CQL type names in one spelling, so that declared and live types can be compared as text. Pure.

The server spells types its own way: spaces after commas, `frozen` repeated inside what is frozen
already and around tuples, which are always frozen. Two spellings of one type must not look like
drift.

A column may also name its type by a Java class, as 'UTF8Type'. Source of these names: the answers
of Cassandra 4.1 and 5.0, which a test compares with this module. Classes of other packages are not
judged: only the server knows which it has.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from mailmend.model.errors import BadIdentifier
from mailmend.model.names import name_of, spelled

_TOKEN = re.compile(r"""("(?:[^"]|"")+"|'[^']*'|[A-Za-z][A-Za-z0-9_]*|[<>,]|\d+)\s*""")
_ALWAYS_FROZEN = ("tuple", "vector")
_COLLECTIONS = ("list", "set", "map")
_BRACKETS = ("<", ">", ",")
_ALIASES = {"varchar": "text"}


@dataclass(frozen=True, slots=True)
class CqlType:
    """A type by name with the types (or, for a vector, the length) between its angle brackets.

    A Java class with its parameters has the same form.
    """

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


_PACKAGE: Final = "org.apache.cassandra.db.marshal."
_NATIVE_CLASSES: Final[Mapping[str, str]] = {
    "AsciiType": "ascii",
    "BooleanType": "boolean",
    "ByteType": "tinyint",
    "BytesType": "blob",
    "DecimalType": "decimal",
    "DoubleType": "double",
    "DurationType": "duration",
    "FloatType": "float",
    "InetAddressType": "inet",
    "Int32Type": "int",
    "IntegerType": "varint",
    "LongType": "bigint",
    "ShortType": "smallint",
    "SimpleDateType": "date",
    "TimeType": "time",
    "TimeUUIDType": "timeuuid",
    "TimestampType": "timestamp",
    "UTF8Type": "text",
    "UUIDType": "uuid",
}
"""Classes of CQL's own types."""

_COLLECTION_CLASSES: Final[Mapping[str, tuple[str, int]]] = {
    "ListType": ("list", 1),
    "SetType": ("set", 1),
    "MapType": ("map", 2),
}
"""Classes of collections, with the number of their parameters."""

COUNTER: Final = "CounterColumnType"
"""The class of counters, which CREATE TABLE takes in no column."""

_WITH_PARAMETERS: Final = frozenset({"CompositeType", "FrozenType", "ReversedType", "UserType", "VectorType"})
_WITHOUT_NAME_IN_CQL: Final = _WITH_PARAMETERS | {
    COUNTER,
    "DateType",
    "DynamicCompositeType",
    "EmptyType",
    "LegacyTimeUUIDType",
    "LexicalUUIDType",
    "PartitionerDefinedOrder",
    "TupleType",
}
_KNOWN_CLASSES: Final = _NATIVE_CLASSES.keys() | _COLLECTION_CLASSES.keys() | _WITHOUT_NAME_IN_CQL
_WORD: Final = re.compile(r"([\w.$]+|[(),])\s*")


def cql_of_class(text: str) -> str | None:
    """The type as CQL writes it; None where CQL has no name for it, or where only the server knows it."""
    found = _class_of(text)
    if found is None:
        return None
    return _cql_of(found)


def class_problem(text: str) -> str:
    """Why no server has a type of that class; "" where one has, or where that is not known."""
    found = _class_of(text)
    if found is None:
        return ""
    return _class_problem(found)


def _class_problem(found: CqlType) -> str:
    if "." in found.name:
        return ""
    if found.name not in _KNOWN_CLASSES:
        return f"names the class {found.name}, which no server has"
    count = len(found.arguments)
    lacks = found.name in _WITH_PARAMETERS and not count
    if lacks or (found.name in _COLLECTION_CLASSES and count != _COLLECTION_CLASSES[found.name][1]):
        return f"names the class {found.name} with {count} parameters"
    if found.name == "VectorType":
        return ""
    return next(filter(None, map(_class_problem, found.arguments)), "")


def _cql_of(found: CqlType) -> str | None:
    """Only what means the same in CQL: collections within collections differ there."""
    names = [parameter.name for parameter in found.arguments]
    native = [_NATIVE_CLASSES[name] for name in names if name in _NATIVE_CLASSES]
    only_native = len(native) == len(names)
    if found.name in _NATIVE_CLASSES:
        return _NATIVE_CLASSES[found.name]
    if found.name == "VectorType" and len(names) == 2 and names[0] in _NATIVE_CLASSES:  # noqa: PLR2004 - a type and a length
        return f"vector<{native[0]},{names[1]}>"
    if found.name == "TupleType" and names and only_native:
        return f"tuple<{','.join(native)}>"
    if found.name == "FrozenType" and len(names) == 1 and names[0] in _COLLECTION_CLASSES:
        collection = _cql_of(found.arguments[0])
        return collection and f"frozen<{collection}>"
    if found.name in _COLLECTION_CLASSES and only_native and "duration" not in native:
        name, width = _COLLECTION_CLASSES[found.name]
        if len(native) == width:
            return f"{name}<{','.join(native)}>"
    return None


def _class_of(text: str) -> CqlType | None:
    """The class with its parameters; None where the text has another form (options, fields of user types)."""
    bare = text.strip()
    if not bare or _WORD.sub("", bare):
        return None
    found, rest = _class(_WORD.findall(bare))
    if rest:
        return None
    return found


def _class(words: list[str]) -> tuple[CqlType | None, list[str]]:
    if not words or words[0] in "(),":
        return None, words
    name = words[0].removeprefix(_PACKAGE)
    rest = words[1:]
    if rest[:1] != ["("]:
        return CqlType(name), rest
    rest = rest[1:]
    parameters: list[CqlType] = []
    while rest[:1] != [")"]:
        parameter, rest = _class(rest)
        if parameter is None or rest[:1] not in ([","], [")"]):
            return None, rest
        parameters.append(parameter)
        if rest[0] == ",":
            rest = rest[1:]
    return CqlType(name, tuple(parameters)), rest[1:]
