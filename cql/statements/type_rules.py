"""Which types a server accepts: in a column, in a key, in a user type, and for a column that was dropped before.

Source: the answers of Cassandra 5.0 to each pair of types. Nested types that differ are refused here, although the
server may accept some.
"""

import re
from collections.abc import Iterable, Iterator

from mailmend.cql.statements.literals import LiteralForm, parse_literal, value_problem
from mailmend.model.cql_types import CqlType, class_problem, names_in, parse_type
from mailmend.model.keyspace import EMPTY, Schema, find
from mailmend.model.table import Column, Kind
from mailmend.model.texts import is_digits

NATIVE_TYPES = frozenset(
    {"ascii", "bigint", "blob", "boolean", "counter", "date", "decimal", "double", "duration", "float", "inet", "int"}
    | {"smallint", "text", "time", "timestamp", "timeuuid", "tinyint", "uuid", "varint"}
)
_COLLECTIONS = frozenset({"list", "set", "map"})
_BUILT = _COLLECTIONS | {"tuple", "vector", "frozen"}
_IN_PLACE_OF = {
    "blob": frozenset(
        {"ascii", "date", "decimal", "duration", "inet", "smallint", "text", "time", "tinyint", "varint", "tuple"}
    ),
    "text": frozenset({"ascii"}),
    "bigint": frozenset({"timestamp"}),
    "timestamp": frozenset({"bigint"}),
    "uuid": frozenset({"timeuuid"}),
}
"""Of which types a dropped column may have been that comes back with this one."""


def column_problem(schema: Schema, column: Column) -> str:
    """Why no column can be of that type; "" where it can."""
    problem = type_problem(schema, column) or mask_problem(column)
    if problem:
        return problem
    parsed = parse_type(column.type)
    if column.kind in (Kind.PARTITION, Kind.CLUSTERING):
        problem = _key_problem(schema, parsed)
        return problem and f"the key column {column.spelling} cannot {problem}"
    if is_user_type(parsed) and _has_cells_within(schema, parsed):
        return f"{column.spelling} is of a user type that holds collections, so it must be frozen"
    return ""


_TEXTS = frozenset({"text", "ascii"})
_MASK_CALL = re.compile(r"(?P<name>mask_[a-z]+)\((?P<arguments>.*)\)", re.DOTALL)
_MASK_ARGUMENTS = {
    "mask_null": (0, 0),
    "mask_default": (0, 0),
    "mask_replace": (1, 1),
    "mask_inner": (2, 3),
    "mask_outer": (2, 3),
    "mask_hash": (0, 1),
}
"""The masks that come with the server: the least and the greatest number of their arguments."""


def mask_problem(column: Column) -> str:
    """Why the column cannot have its mask; "" where it can, or where the mask is a function of the keyspace."""
    found = _MASK_CALL.fullmatch(column.mask)
    if found is None or found["name"] not in _MASK_ARGUMENTS:
        return ""
    arguments = parse_literal(f"[{found['arguments']}]").parts
    least, most = _MASK_ARGUMENTS[found["name"]]
    what = f"{column.spelling} cannot be masked with {column.mask}"
    if not least <= len(arguments) <= most:
        number = str(least)
        if least != most:
            number = f"{least} to {most}"
        return f"{what}: {found['name']} takes {number} arguments"
    if found["name"] == "mask_hash" and column.type != "blob":
        return f"{what}, which returns a blob"
    if found["name"] in {"mask_inner", "mask_outer"}:
        counts = all(argument.form in {LiteralForm.INTEGER, LiteralForm.NULL} for argument in arguments[:2])
        if column.type not in _TEXTS or not counts:
            return f"{what}: it takes a text and two numbers"
    if found["name"] == "mask_replace":
        problem = value_problem(EMPTY, column.type, found["arguments"])
        return problem and f"{what}: {problem}"
    return ""


def type_problem(schema: Schema, column: Column) -> str:
    """Why the column's type is invalid anywhere, nested or not; "" where it is valid."""
    problem = next(_problems(schema, parse_type(column.type), frozen=False), "")
    return problem and f"the type {column.type} of {column.spelling} {problem}"


def may_be_of_a_field(kind: str) -> bool:
    """Whether a field may be of that type, whichever fields and types there are."""
    parsed = parse_type(kind)
    return parsed.name != "counter" and not is_user_type(parsed)


def field_problem(schema: Schema, field: str, kind: str) -> str:
    """Why no field of a user type can be of that type; "" where it can."""
    parsed = parse_type(kind)
    if parsed.name == "counter":
        return f"the field {field} cannot be a counter"
    if is_user_type(parsed) and find(schema.types, parsed.name) is not None:
        return f"the field {field} is of a user type, so it must be frozen"
    problem = next(_problems(schema, parsed, frozen=False), "")
    return problem and f"the type {kind} of the field {field} {problem}"


def _problems(schema: Schema, parsed: CqlType, *, frozen: bool) -> Iterator[str]:
    """What is wrong with a type, the worst first."""
    if parsed.name.startswith("'"):
        yield from filter(None, [class_problem(parsed.name[1:-1])])
        return
    if parsed.name in NATIVE_TYPES:
        return
    if parsed.name not in _BUILT:
        if find(schema.types, parsed.name) is None:
            yield f"names the user type {parsed.name}, which does not exist"
        return
    if parsed.name == "vector" and not _is_length(parsed.arguments[1].name):
        yield f"has {parsed.arguments[1].name} dimensions, not a whole number of at least 1"
    inner_frozen = frozen or parsed.name == "frozen"
    if parsed.name == "frozen" and not _can_be_frozen(parsed.arguments[0]):
        yield f"freezes {parsed.arguments[0]}, which is frozen anyway"
    for argument in _element_types(parsed):
        yield from _problems(schema, argument, frozen=inner_frozen)
        if parsed.name != "frozen":
            yield from _inside(parsed, argument, frozen=inner_frozen)


def _element_types(parsed: CqlType) -> tuple[CqlType, ...]:
    """The types between the angle brackets, without the length of a vector."""
    if parsed.name == "vector":
        return parsed.arguments[:1]
    return parsed.arguments


def _inside(outer: CqlType, inner: CqlType, *, frozen: bool) -> Iterator[str]:
    if inner.name == "counter" and outer.name != "vector":  # servers let a vector of counters pass
        yield "holds counters, which only columns can be"
    if outer.name not in _COLLECTIONS:
        return
    if not frozen and inner.name in _COLLECTIONS:
        yield f"holds {inner}, which must be frozen there"
    if not frozen and is_user_type(inner):
        yield f"holds the user type {inner}, which must be frozen there"
    if inner.name == "duration" and outer.name == "set":
        yield "has durations as elements, which have no order"
    if inner.name == "duration" and outer.name == "map" and inner is outer.arguments[0]:
        yield "has durations as keys, which have no order"


def _is_length(text: str) -> bool:
    return is_digits(text) and int(text) > 0


def _can_be_frozen(parsed: CqlType) -> bool:
    return parsed.name not in NATIVE_TYPES


def is_user_type(parsed: CqlType) -> bool:
    """Whether it is a user type that is not frozen."""
    return parsed.name not in NATIVE_TYPES and parsed.name not in _BUILT and not parsed.name.startswith("'")


def _field_types(schema: Schema, parsed: CqlType) -> tuple[CqlType, ...]:
    """The types of a user type's fields; empty where it is no user type, or an unknown one."""
    found = None
    if is_user_type(parsed):
        found = find(schema.types, parsed.name)
    if found is None:
        return ()
    return tuple(map(parse_type, found.field_types))


def _has_cells_within(schema: Schema, parsed: CqlType) -> bool:
    return any(field_type.name in _COLLECTIONS for field_type in _field_types(schema, parsed))


def _key_problem(schema: Schema, parsed: CqlType) -> str:
    if parsed.name in _COLLECTIONS:
        return f"be a {parsed.name} that is not frozen"
    if is_user_type(parsed):
        return "be of a user type that is not frozen"
    if parsed.name == "counter":
        return "be a counter"
    if parsed.name == "vector":
        return ""  # servers look at no element of it
    if holds(schema, parsed, "duration"):
        return "hold durations, which have no order"
    return ""


def holds(schema: Schema, parsed: CqlType, name: str) -> bool:
    """Whether the type, or any inside it (fields of user types too), has that name."""
    if parsed.name == name:
        return True
    inside = (*parsed.arguments, *_field_types(schema, parsed))
    return any(holds(schema, inner, name) for inner in inside)


def user_types_in(texts: Iterable[str]) -> frozenset[str]:
    names: set[str] = set()
    for text in texts:
        for name in names_in(text) - NATIVE_TYPES - _BUILT:
            if not name.isdigit() and not name.startswith("'"):
                names.add(name)
    return frozenset(names)


def uses_type(schema: Schema, kind: str, name: str) -> bool:
    return holds(schema, parse_type(kind), name)


def expanded(schema: Schema, parsed: CqlType) -> CqlType:
    """The type with a tuple in place of each user type, as servers remember dropped columns."""
    name = parsed.name
    inside = parsed.arguments
    field_types = _field_types(schema, parsed)
    if field_types:
        name = "tuple"
        inside = field_types
    return CqlType(name, tuple(expanded(schema, inner) for inner in inside))


def returns(schema: Schema, column: Column, dropped: Column) -> bool:
    """Whether a column may be added in place of one that was dropped; True where only the server knows a class."""
    if "'" in column.type or "'" in dropped.type:
        return True
    new = parse_type(column.type)
    old = parse_type(str(expanded(schema, parse_type(dropped.type))))
    return new == old or (not new.arguments and old.name in _IN_PLACE_OF.get(new.name, frozenset()))
