"""Which JSON values fit which types: what a server says of the object in INSERT ... JSON. Pure.

Source: the answers of Cassandra 4.1 and 5.0, which a test compares with this module. A text is taken for most types in
place of their own form of JSON. Where only the server knows (names of hosts, hexadecimal fractions), nothing is judged.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn

from mailmend.cql.statements.literals import LiteralForm, duration_problem, text_problem
from mailmend.model.cql_types import CqlType, parse_type
from mailmend.model.keyspace import Schema, find
from mailmend.model.names import name_of

JsonValue = object
"""None, bool, int, float, str, list or dict, as the module `json` has them."""


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_number)
_SPACE: Final = " \t\r\n"


def first_value(text: str) -> JsonValue:
    """The value that the text begins with; servers read no further, so what follows it does not matter.

    Raises:
        ValueError: the text does not begin with a value of JSON.
        RecursionError: brackets are nested too deeply.
    """
    value, _ = _DECODER.raw_decode(text.lstrip(_SPACE))
    return value


def columns_in(found: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The values by column or field, as the server knows its name; of two spellings, the one in other letters wins."""
    named = {name_of(spelling): value for spelling, value in found.items()}
    for spelling, value in found.items():
        if name_of(spelling) != spelling:
            named[name_of(spelling)] = value
    return named


def json_problem(schema: Schema, kind: str, value: JsonValue) -> str:
    """Why a column of that type cannot hold the value; "" where it can, or where that is not known."""
    if value is None:
        return ""
    return _problem(schema, parse_type(kind), value)


def _problem(schema: Schema, kind: CqlType, value: JsonValue) -> str:
    if kind.name == "frozen":
        return _problem(schema, kind.arguments[0], value)
    if kind.name in _SCALARS:
        return "" if _SCALARS[kind.name](value) else f"{_shown(value)} is not of type {kind}"
    user_type = find(schema.types, kind.name)
    if kind.name not in _CONTAINERS and user_type is None:
        return ""
    if isinstance(value, str):
        value = _decoded(value)
    if user_type is not None:
        return _fields_problem(schema, kind, dict(user_type.normal_fields), value)
    if kind.name == "map":
        return _map_problem(schema, kind, value)
    return _elements_problem(schema, kind, value)


_CONTAINERS: Final = frozenset({"list", "set", "map", "tuple", "vector"})


def _decoded(text: str) -> JsonValue:
    """The JSON in a text that stands for a container; the text itself where it is no JSON, which no container takes."""
    try:
        return first_value(text)
    except ValueError:
        return text


def _elements_problem(schema: Schema, kind: CqlType, value: JsonValue) -> str:
    if not isinstance(value, list):
        return f"{_shown(value)} is not of type {kind}"
    types: Sequence[CqlType] = kind.arguments[:1] * len(value)
    if kind.name == "tuple":
        types = kind.arguments
    elif kind.name == "vector" and kind.arguments[1].name.isdigit():
        types = kind.arguments[:1] * min(int(kind.arguments[1].name), len(value) + 1)
    if len(value) != len(types):
        return f"{kind} takes another number of elements than {len(value)}"
    for part, of_part in zip(value, types, strict=True):
        if part is None and kind.name != "tuple":
            return f"null is no element of a {kind.name}"
        if part is not None and (problem := _problem(schema, of_part, part)):
            return problem
    return ""


def _map_problem(schema: Schema, kind: CqlType, value: JsonValue) -> str:
    if not isinstance(value, dict):
        return f"{_shown(value)} is not of type {kind}"
    of_key, of_value = kind.arguments
    for key, part in value.items():
        if part is None:
            return "null is no element of a map"
        if problem := _problem(schema, of_key, key) or _problem(schema, of_value, part):
            return problem
    return ""


def _fields_problem(schema: Schema, kind: CqlType, fields: Mapping[str, str], value: JsonValue) -> str:
    if not isinstance(value, dict):
        return f"{_shown(value)} is not of type {kind}"
    for name, part in columns_in(value).items():
        if name not in fields:
            return f"the user type {kind} has no field {name}"
        if problem := json_problem(schema, fields[name], part):
            return problem
    return ""


def _shown(value: JsonValue) -> str:
    shown = json.dumps(value, ensure_ascii=False)
    if len(shown) > 40:  # noqa: PLR2004 - fits a line
        shown = f"{shown[:40]}..."
    return shown


JsonJudge = Callable[[JsonValue], bool]
"""Whether a scalar type takes the value."""


def _is_whole(value: JsonValue) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(bits: int) -> JsonJudge:
    limit = 2 ** (bits - 1)

    def judge(value: JsonValue) -> bool:
        if isinstance(value, str):
            return value == "" or (_WHOLE.fullmatch(value) is not None and -limit <= int(value) < limit)
        return isinstance(value, int) and _is_whole(value) and -limit <= value < limit

    return judge


def _text_like(pattern: re.Pattern[str], *, numbers: bool = False) -> JsonJudge:
    """Texts of that form; with `numbers` numbers too."""

    def judge(value: JsonValue) -> bool:
        if isinstance(value, str):
            return pattern.fullmatch(value) is not None
        return numbers and isinstance(value, int | float) and not isinstance(value, bool)

    return judge


def _written(kind: str, *, numbers: bool = False) -> JsonJudge:
    """Texts that CQL has for that type, and the empty text where it is a value; with `numbers` whole numbers too."""

    def judge(value: JsonValue) -> bool:
        if isinstance(value, str):
            return (value == "" and kind in _EMPTY) or not text_problem(kind, LiteralForm.TEXT, value)
        return numbers and _is_whole(value) and not text_problem(kind, LiteralForm.INTEGER, str(value))

    return judge


def _uuid(kind: str) -> JsonJudge:
    def judge(value: JsonValue) -> bool:
        if not isinstance(value, str) or value == "":
            return value == ""
        return _UUID.fullmatch(value) is not None and not text_problem(kind, LiteralForm.UUID, value)

    return judge


def _is_boolean(value: JsonValue) -> bool:
    return isinstance(value, bool) or (isinstance(value, str) and value.lower() in {"", "true", "false"})


def _is_finite(value: JsonValue) -> bool:
    return _text_like(_DECIMAL, numbers=True)(value) and value not in {float("inf"), float("-inf")}


def _is_duration(value: JsonValue) -> bool:
    if not isinstance(value, str) or value == "":
        return value == ""
    if _ISO_DURATION.fullmatch(value):
        return True
    return _DURATION.fullmatch(value) is not None and not duration_problem(value)


_EMPTY: Final = frozenset({"inet", "timestamp"})
"""Types with an empty value that is written as an empty text."""
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,40}")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DECIMAL: Final = re.compile(r"|[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_FLOAT: Final = re.compile(
    r"|\s*[+-]?(?:NaN|Infinity|(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|0[xX][0-9a-fA-F.pP+-]+)[fFdD]?)\s*"
)
_VARINT: Final = re.compile(r"[+-]?[0-9]+")
_BLOB: Final = re.compile(r"0x(?:[0-9a-fA-F]{2})*")
_DURATION: Final = re.compile(r"-?(?:[0-9]+(?:mo|ms|us|\u00b5s|ns|[ywdhms]))+", re.IGNORECASE)
_ISO_DURATION: Final = re.compile(r"-?P[0-9T][0-9YMWDTHS:-]*", re.IGNORECASE)
_SCALARS: Final[Mapping[str, JsonJudge]] = {
    "tinyint": _whole(8),
    "smallint": _whole(16),
    "int": _whole(32),
    "bigint": _whole(64),
    "varint": lambda value: _is_whole(value) or _text_like(_VARINT)(value),
    "float": _text_like(_FLOAT, numbers=True),
    "double": _text_like(_FLOAT, numbers=True),
    "decimal": _is_finite,
    "boolean": _is_boolean,
    "text": lambda value: isinstance(value, str),
    "ascii": lambda value: isinstance(value, str) and value.isascii(),
    "blob": _text_like(_BLOB),
    "uuid": _uuid("uuid"),
    "timeuuid": _uuid("timeuuid"),
    "inet": _written("inet"),
    "timestamp": _written("timestamp", numbers=True),
    "date": _written("date"),
    "time": _written("time"),
    "duration": _is_duration,
}
