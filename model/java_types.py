"""Types that a column names by their Java class, as 'UTF8Type', in the words of CQL. Pure.

Source: the answers of Cassandra 4.1 and 5.0, which a test compares with this module. Classes of other packages are not
judged: only the server knows which it has.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_PACKAGE: Final = "org.apache.cassandra.db.marshal."
_NATIVE: Final[Mapping[str, str]] = {
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

_COLLECTIONS: Final[Mapping[str, tuple[str, int]]] = {
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
_KNOWN: Final = _NATIVE.keys() | _COLLECTIONS.keys() | _WITHOUT_NAME_IN_CQL
_WORD: Final = re.compile(r"([\w.$]+|[(),])\s*")


@dataclass(frozen=True, slots=True)
class _Class:
    name: str
    parameters: "tuple[_Class, ...]" = ()


def cql_of_class(text: str) -> str | None:
    """The type as CQL writes it; None where CQL has no name for it, or where only the server knows it."""
    found = _parsed(text)
    if found is None:
        return None
    return _cql(found)


def class_problem(text: str) -> str:
    """Why no server has a type of that class; "" where one has, or where that is not known."""
    found = _parsed(text)
    if found is None:
        return ""
    return _problem(found)


def _problem(found: _Class) -> str:
    if "." in found.name:
        return ""
    if found.name not in _KNOWN:
        return f"names the class {found.name}, which no server has"
    count = len(found.parameters)
    lacks = found.name in _WITH_PARAMETERS and not count
    if lacks or (found.name in _COLLECTIONS and count != _COLLECTIONS[found.name][1]):
        return f"names the class {found.name} with {count} parameters"
    if found.name == "VectorType":
        return ""
    return next(filter(None, map(_problem, found.parameters)), "")


def _cql(found: _Class) -> str | None:
    """Only what means the same in CQL: collections within collections differ there."""
    inner = [_NATIVE.get(parameter.name) for parameter in found.parameters]
    plain = [name for name in inner if name is not None and name != "duration"]
    if found.name in _NATIVE:
        return _NATIVE[found.name]
    if found.name == "VectorType" and len(inner) == 2 and inner[0] is not None:  # noqa: PLR2004 - a type and a length
        return f"vector<{inner[0]},{found.parameters[1].name}>"
    if found.name == "TupleType" and inner and None not in inner:
        return f"tuple<{','.join(name for name in inner if name)}>"
    if found.name == "FrozenType" and len(inner) == 1 and found.parameters[0].name in _COLLECTIONS:
        collection = _cql(found.parameters[0])
        return collection and f"frozen<{collection}>"
    if found.name in _COLLECTIONS and len(plain) == len(inner) == _COLLECTIONS[found.name][1]:
        return f"{_COLLECTIONS[found.name][0]}<{','.join(plain)}>"
    return None


def _parsed(text: str) -> _Class | None:
    """The class with its parameters; None where the text has another form (options, fields of user types)."""
    bare = text.strip()
    if not bare or _WORD.sub("", bare):
        return None
    found, rest = _class(_WORD.findall(bare))
    if rest:
        return None
    return found


def _class(words: list[str]) -> tuple[_Class | None, list[str]]:
    if not words or words[0] in "(),":
        return None, words
    name = words[0].removeprefix(_PACKAGE)
    rest = words[1:]
    if rest[:1] != ["("]:
        return _Class(name), rest
    rest = rest[1:]
    parameters: list[_Class] = []
    while rest[:1] != [")"]:
        parameter, rest = _class(rest)
        if parameter is None or rest[:1] not in ([","], [")"]):
            return None, rest
        parameters.append(parameter)
        if rest[0] == ",":
            rest = rest[1:]
    return _Class(name, tuple(parameters)), rest[1:]
