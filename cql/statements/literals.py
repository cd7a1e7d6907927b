"""Which values fit which types: what a server says of a literal in INSERT, UPDATE and WHERE. Pure.

Source: the answers of Cassandra 4.1 and 5.0, which a test compares with this module. A value that is made of literals
and arithmetic alone is judged. A value with a bind mark, a function or a cast is not, and neither is a type that only
the server knows.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import Enum
from ipaddress import AddressValueError, IPv6Address
from typing import Final

from mailmend.model.cql_types import CqlType, parse_type
from mailmend.model.keyspace import EMPTY, Schema, find
from mailmend.model.names import name_of


class LiteralForm(Enum):
    """The forms of literals; the value is its name in messages."""

    TEXT = "a text"
    INTEGER = "a whole number"
    FLOAT = "a number with a fraction"
    BOOLEAN = "true or false"
    UUID = "a UUID"
    BLOB = "a blob"
    DURATION = "a duration"
    NULL = "null"
    LIST = "a list"
    SET = "a set"
    MAP = "a map"
    FIELDS = "fields with values"
    TUPLE = "a tuple"
    SUM = "a sum"
    OTHER = "an expression"


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal: its form, its text without quotes, and what it contains (of maps and fields, keys before values).

    Of a sum, the text has the operators (`+-*/%`) between the parts.
    """

    form: LiteralForm
    text: str = ""
    parts: "tuple[Literal, ...]" = ()


OTHER: Final = Literal(LiteralForm.OTHER)
_WORDS: Final = {
    "true": Literal(LiteralForm.BOOLEAN, "true"),
    "false": Literal(LiteralForm.BOOLEAN, "false"),
    "null": Literal(LiteralForm.NULL),
}
_HEX: Final = "[0-9a-fA-F]"
_TOKEN: Final = re.compile(
    rf"""\s*+(?:
      (?P<TEXT>     '(?:[^']|'')*+' | \$\$.*?\$\$ )
    | (?P<UUID>     {_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}} )
    | (?P<BLOB>     0[xX]{_HEX}*+ )
    | (?P<DURATION> -?(?:[0-9]++(?i:mo|ms|us|\u00b5s|ns|[ywdhms]))++(?![A-Za-z0-9_]) )
    | (?P<FLOAT>    -?(?:[0-9]++\.[0-9]*+(?:[eE][+-]?[0-9]++)?|[0-9]++[eE][+-]?[0-9]++) | -?(?i:nan|infinity)\b )
    | (?P<INTEGER>  -?[0-9]++ )
    | (?P<WORD>     [A-Za-z][A-Za-z0-9_]*+ | "(?:[^"]|"")++" )
    | (?P<MARK>     [\[\](){{}},:] )
    | (?P<OPERATOR> [-+*/%] )
    )""",
    re.VERBOSE | re.DOTALL,
)
_CLOSING: Final = {"[": "]", "(": ")", "{": "}"}


def parse_literal(text: str) -> Literal:
    """The literal of a text; `OTHER` where any of it is no literal."""
    value = _with_sums(text)
    if _has_sum(value):
        return OTHER
    return value


def _has_sum(value: Literal) -> bool:
    return value.form is LiteralForm.SUM or any(map(_has_sum, value.parts))


def _with_sums(text: str) -> Literal:
    """The literal of a text, which may be or contain a sum; `OTHER` where any of it is anything else."""
    tokens: list[tuple[str, str]] = []
    at = 0
    end = len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            return OTHER
        tokens.append((found.lastgroup, found[found.lastgroup]))
        at = found.end()
    parsed, rest = _parse(tokens)
    if rest:
        return OTHER
    return parsed


def _parse(tokens: list[tuple[str, str]]) -> tuple[Literal, list[tuple[str, str]]]:
    part, rest = _operand(tokens)
    parts = [part]
    operators = ""
    while rest and rest[0][0] == "OPERATOR":
        operators += rest[0][1]
        part, rest = _operand(rest[1:])
        parts.append(part)
    if not operators:
        return part, rest
    if any(part.form in {LiteralForm.OTHER, LiteralForm.TUPLE} for part in parts):
        return OTHER, rest
    return Literal(LiteralForm.SUM, operators, tuple(parts)), rest


def _operand(tokens: list[tuple[str, str]]) -> tuple[Literal, list[tuple[str, str]]]:
    if not tokens:
        return OTHER, []
    (kind, text), *rest = tokens
    if text in _CLOSING and kind == "MARK":
        return _collection(text, rest)
    if kind == "WORD":
        return _WORDS.get(text.lower(), OTHER), rest
    if kind in {"MARK", "OPERATOR"}:
        return OTHER, rest
    if kind == "TEXT":
        text = _bare(text)
    return Literal(LiteralForm[kind], text), rest


def _collection(opening: str, tokens: list[tuple[str, str]]) -> tuple[Literal, list[tuple[str, str]]]:
    closing = ("MARK", _CLOSING[opening])
    parts: list[Literal] = []
    form = {"[": LiteralForm.LIST, "(": LiteralForm.TUPLE, "{": LiteralForm.SET}[opening]
    whole = True
    while tokens and tokens[0] != closing:
        is_field = opening == "{" and tokens[0][0] == "WORD" and tokens[1:2] == [("MARK", ":")]
        if is_field:
            form = LiteralForm.FIELDS
            part = Literal(LiteralForm.TEXT, tokens[0][1])
            tokens = tokens[1:]
        else:
            part, tokens = _parse(tokens)
        parts.append(part)
        whole = whole and part.form is not LiteralForm.OTHER
        if tokens[:1] == [("MARK", ":")] and opening == "{":
            if form is not LiteralForm.FIELDS:
                form = LiteralForm.MAP
            part, tokens = _parse(tokens[1:])
            parts.append(part)
            whole = whole and part.form is not LiteralForm.OTHER
        if tokens[:1] == [("MARK", ",")]:
            tokens = tokens[1:]
        elif tokens[:1] != [closing]:
            return OTHER, [closing]
    if not tokens:
        return OTHER, [closing]
    if not whole:
        return OTHER, tokens[1:]
    return Literal(form, "", tuple(parts)), tokens[1:]


def _bare(text: str) -> str:
    if text.startswith("$$"):
        return text[2:-2]
    return text[1:-1].replace("''", "'")


def value_problem(schema: Schema, kind: str, text: str) -> str:
    """Why a column of that type cannot hold the value; "" where it can, or where that is not known."""
    return _problem(schema, parse_type(kind), _with_sums(text))


def native_values(schema: Schema, kind: str, text: str) -> Iterator[tuple[str, Literal]]:
    """The literals in a value that are not collections themselves, each with the name of its type."""
    yield from _natives(schema, parse_type(kind), parse_literal(text))


def _natives(schema: Schema, kind: CqlType, value: Literal) -> Iterator[tuple[str, Literal]]:
    if kind.name == "frozen":
        yield from _natives(schema, kind.arguments[0], value)
    elif kind.name in _CONTAINERS and value.form is not LiteralForm.OTHER:
        for part, of_part in zip(value.parts, _types_of_parts(kind, len(value.parts)), strict=False):
            yield from _natives(schema, of_part, part)
    elif (user_type := find(schema.types, kind.name)) is not None:
        fields = dict(user_type.normal_fields)
        for name, part in zip(value.parts[::2], value.parts[1::2], strict=False):
            if name_of(name.text) in fields:
                yield from _natives(schema, parse_type(fields[name_of(name.text)]), part)
    else:
        while value.form is LiteralForm.TUPLE and len(value.parts) == 1:
            value = value.parts[0]
        yield kind.name, value


def text_problem(kind: str, form: LiteralForm, text: str) -> str:
    """Why a native type does not take the text, as a literal of that form; "" where it does."""
    forms, judge = _SCALARS[kind]
    if form not in forms:
        return f"{text!r} is not of type {kind}"
    return judge(Literal(form, text))


def duration_problem(text: str) -> str:
    """Why the text, which has the form of a duration with units, is not a duration; "" where it is one."""
    return _duration(Literal(LiteralForm.DURATION, text))


def _problem(schema: Schema, kind: CqlType, value: Literal) -> str:  # noqa: PLR0911 - one for each kind of type
    if value.form in {LiteralForm.OTHER, LiteralForm.NULL}:
        return ""
    if kind.name in _SCALARS:
        while value.form is LiteralForm.TUPLE and len(value.parts) == 1:
            value = value.parts[0]  # (5) is 5
            if value.form is LiteralForm.NULL:
                return ""
        if value.form is LiteralForm.SUM:
            return _sum_problem(kind.name, value)
        forms, judge = _SCALARS[kind.name]
        if value.form not in forms:
            return f"{_shown(value)} is not of type {kind}"
        return judge(value)
    if kind.name == "frozen":
        return _problem(schema, kind.arguments[0], value)
    if kind.name in _CONTAINERS:
        return _container_problem(schema, kind, value)
    user_type = find(schema.types, kind.name)
    if user_type is None or kind.name.startswith("'"):
        return ""
    return _fields_problem(schema, kind, dict(user_type.normal_fields), value)


def _sum_problem(kind: str, value: Literal) -> str:
    """Why a native type does not take the sum; servers take each operator for some types only."""
    first, *others = value.parts
    numbers = [part for part in value.parts if part.form is not LiteralForm.NULL]
    has_null = len(numbers) < len(value.parts)
    problem = ""
    if kind in _NUMERIC and all(part.form is not LiteralForm.BLOB for part in numbers):
        problem = _first_problem(kind, numbers)
        if kind in _EXACT and not has_null and _divides_by_zero(value):
            problem = "a division by zero fails"
    elif kind in {"text", "ascii"}:
        problem = _first_problem(kind, numbers)
        if others_than_plus := value.text.strip("+"):
            problem = f"texts have no operator {others_than_plus[0]}"
    elif kind in {"timestamp", "date"}:
        problem = _first_problem(kind, [first]) or _moment_problem(kind, value.text, others)
    elif kind in _NO_SUMS and not has_null:
        problem = f"values of type {kind} have no operator {value.text[0]}"
    return problem


def _first_problem(kind: str, parts: Iterable[Literal]) -> str:
    for part in parts:
        if problem := _problem(EMPTY, CqlType(kind), part):
            return problem
    return ""


def _divides_by_zero(value: Literal) -> bool:
    pairs = zip(value.text, value.parts[1:], strict=True)
    return any(operator in "/%" and not part.text.strip("-0.") for operator, part in pairs)


def _moment_problem(kind: str, operators: str, amounts: Sequence[Literal]) -> str:
    """Why these amounts cannot be added to a timestamp or date, or taken from it."""
    if set(operators) - {"+", "-"}:
        return f"values of type {kind} have only the operators + and -"
    for amount in amounts:
        if amount.form not in {LiteralForm.DURATION, LiteralForm.NULL}:
            return f"only durations are added to a {kind}, not {_shown(amount)}"
        units = {unit.lower() for _, unit in _UNIT.findall(amount.text)}
        if kind == "date" and units - {"y", "mo", "w", "d"}:
            return f"the duration {amount.text} has parts of a day, which no date takes"
        if problem := _duration(amount):
            return problem
    return ""


_EXACT: Final = frozenset({"tinyint", "smallint", "int", "bigint", "varint", "decimal"})
_NUMERIC: Final = _EXACT | {"float", "double"}
_NO_SUMS: Final = frozenset({"boolean", "counter", "uuid", "timeuuid", "inet", "time", "duration"})
_CONTAINERS: Final[Mapping[str, LiteralForm]] = {
    "list": LiteralForm.LIST,
    "set": LiteralForm.SET,
    "map": LiteralForm.MAP,
    "vector": LiteralForm.LIST,
    "tuple": LiteralForm.TUPLE,
}


def _container_problem(schema: Schema, kind: CqlType, value: Literal) -> str:
    wanted = _CONTAINERS[kind.name]
    empty_map = wanted is LiteralForm.MAP and value.form is LiteralForm.SET and not value.parts
    if value.form is not wanted and not empty_map:
        if kind.name == "tuple" and value.form not in {LiteralForm.LIST, LiteralForm.SET, LiteralForm.MAP}:
            return ""
        return f"{_shown(value)} is not of type {kind}"
    if problem := _length_problem(kind, len(value.parts)):
        return problem
    for part, of_part in zip(value.parts, _types_of_parts(kind, len(value.parts)), strict=False):
        if part.form is LiteralForm.NULL and kind.name != "tuple":
            return f"null is no element of a {kind.name}"
        if problem := _problem(schema, of_part, part):
            return problem
    return ""


def _length_problem(kind: CqlType, length: int) -> str:
    if kind.name == "vector" and str(length) != kind.arguments[1].name:
        return f"{kind} takes {kind.arguments[1].name} elements, not {length}"
    if kind.name == "tuple" and length > len(kind.arguments):
        return f"{kind} takes {len(kind.arguments)} elements, not {length}"
    return ""


def _types_of_parts(kind: CqlType, length: int) -> Iterator[CqlType]:
    arguments = kind.arguments
    if kind.name == "tuple":
        yield from arguments
        return
    if kind.name == "vector":
        arguments = arguments[:1]
    for place in range(length):
        yield arguments[place % len(arguments)]


def _fields_problem(schema: Schema, kind: CqlType, fields: Mapping[str, str], value: Literal) -> str:
    if value.form not in {LiteralForm.FIELDS, LiteralForm.TUPLE}:
        return f"{_shown(value)} is not of type {kind}"
    if value.form is LiteralForm.TUPLE:
        return f"a value of the user type {kind} names its fields"
    for name, part in zip(value.parts[::2], value.parts[1::2], strict=True):
        field = name_of(name.text)
        if field not in fields:
            return f"the user type {kind} has no field {field}"
        if problem := _problem(schema, parse_type(fields[field]), part):
            return problem
    return ""


def _shown(value: Literal) -> str:
    shown = value.text
    if len(shown) > 40:  # noqa: PLR2004 - fits a line
        shown = f"{shown[:40]}..."
    if not shown:
        return value.form.value
    return f"{value.form.value} ({shown})"


LiteralJudge = Callable[[Literal], str]


def _any(_: Literal) -> str:
    return ""


def _within(least: int, most: int) -> LiteralJudge:
    def judge(value: Literal) -> str:
        if value.form is not LiteralForm.INTEGER or least <= int(value.text) <= most:
            return ""
        return f"{value.text} is out of range: from {least} to {most}"

    return judge


def _signed(bits: int) -> LiteralJudge:
    return _within(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _finite(value: Literal) -> str:
    if value.text.lower().removeprefix("-") in {"nan", "infinity"}:
        return f"{value.text} is no decimal number"
    return _readable(value)


def _readable(value: Literal) -> str:
    """A number that no double can hold is refused by the server's parser, whatever its column."""
    is_word = value.text.lower().removeprefix("-") in {"nan", "infinity"}
    if not is_word and value.form is LiteralForm.FLOAT and float(value.text) in {float("inf"), float("-inf")}:
        return f"{value.text} is greater than any number of CQL"
    return ""


def _ascii(value: Literal) -> str:
    if value.text.isascii():
        return ""
    return f"{_shown(value)} is not ASCII"


def _whole_bytes(value: Literal) -> str:
    if len(value.text) % 2 == 0:
        return ""
    return f"the blob {value.text[:40]} has half a byte"


def _version_1(value: Literal) -> str:
    if value.text[14] == "1":
        return ""
    return f"{value.text} is not a UUID of version 1"


_ADDRESS_PARTS: Final = 4
_BYTE_MAX: Final = 255


def _address(value: Literal) -> str:
    """An IP address; a host's name is left to the server, which looks it up."""
    text = value.text
    wrong = f"{text!r} is no IP address"
    if ":" in text:
        try:
            IPv6Address(text)
        except AddressValueError:
            return wrong
        return ""
    parts = text.split(".")
    if not all(part.isascii() and part.isdigit() for part in parts):
        return ""
    too_many = len(parts) > _ADDRESS_PARTS or any(int(part) > _BYTE_MAX for part in parts[:-1])
    if too_many or int(parts[-1]) >= 256 ** (_ADDRESS_PARTS + 1 - len(parts)):
        return wrong
    return ""


_INSTANT: Final = re.compile(
    r"[+-]?\d{4}-(?P<month>\d{2})-(?P<day>\d{2})"
    r"(?:[T ](?P<hour>\d{2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.\d{1,9})?)?)?"
    r"(?:\s?(?:Z|[+-](?P<zone>\d{2})(?::?(?P<zone_minute>\d{2}))?)|\s[A-Za-z][A-Za-z/_]*)?"
)
_FIELD_MAX: Final = {"month": 12, "day": 31, "hour": 24, "minute": 59, "second": 59, "zone": 18, "zone_minute": 59}
_WHOLE: Final = re.compile(r"[+-]?\d+")


def _instant(value: Literal) -> str:
    if value.form is LiteralForm.INTEGER or _WHOLE.fullmatch(value.text):
        return _signed(64)(Literal(LiteralForm.INTEGER, value.text))
    if not value.text:
        return ""
    wrong = f"{value.text!r} is no timestamp: write it like '2026-01-31 23:59:59+0000'"
    found = _INSTANT.fullmatch(value.text)
    if found is None:
        return wrong
    fields = {name: int(digits) for name, digits in found.groupdict().items() if digits}
    low = not fields["month"] or not fields["day"]
    if low or any(number > _FIELD_MAX[name] for name, number in fields.items()):
        return wrong
    return ""


_DAY: Final = re.compile(r"(?P<sign>[+-]?)(?P<year>\d{4,10})-(?P<month>\d{2})-(?P<day>\d{2})")
_YEAR_DIGITS: Final = 4
_DAYS: Final = 2**32 - 1
_FIRST_DAY: Final = (-5_877_641, 6, 23)
_LAST_DAY: Final = (5_881_580, 7, 11)


def _calendar_day(value: Literal) -> str:
    """A day of the calendar, or the number of days since 5877641 B.C."""
    if value.form is LiteralForm.INTEGER or value.text.isdigit():
        return _within(0, _DAYS)(Literal(LiteralForm.INTEGER, value.text))
    found = _DAY.fullmatch(value.text)
    if found is None or (len(found["year"]) > _YEAR_DIGITS and not found["sign"]):
        return f"{value.text!r} is no date: write it like '2026-01-31'"
    year = int(found["sign"] + found["year"])
    month = int(found["month"])
    day = int(found["day"])
    try:
        date(2000 + year % 400, month, day)  # the calendar repeats after 400 years
    except ValueError:
        return f"{value.text!r} is no date: the calendar has no such day"
    if not _FIRST_DAY <= (year, month, day) <= _LAST_DAY:
        return f"{value.text!r} is out of the range of dates"
    return ""


_TIME: Final = re.compile(r"(?P<hour>\d{1,2}):(?P<minute>\d{1,2}):(?P<second>\d{1,2})(?:\.\d{1,9})?")
_NANOS_MAX: Final = 86_399_999_999_999


def _time_of_day(value: Literal) -> str:
    if value.form is LiteralForm.INTEGER or _WHOLE.fullmatch(value.text):
        return _within(0, _NANOS_MAX)(Literal(LiteralForm.INTEGER, value.text))
    found = _TIME.fullmatch(value.text)
    if found and int(found["hour"]) < 24 and int(found["minute"]) < 60 and int(found["second"]) < 60:  # noqa: PLR2004
        return ""
    return f"{value.text!r} is no time of a day: write it like '23:59:59.999'"


_UNIT: Final = re.compile(r"(?<![0-9])([0-9]+)(mo|ms|us|\u00b5s|ns|[ywdhms])", re.IGNORECASE)
_UNITS: Final = ("y", "mo", "w", "d", "h", "m", "s", "ms", "us", "ns")
_NANOS: Final = {"h": 3_600_000_000_000, "m": 60_000_000_000, "s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def _duration(value: Literal) -> str:
    """Each unit once, the longer ones first; months, days and nanoseconds are counted apart."""
    places = []
    amounts: dict[str, int] = {}
    for number, unit in _UNIT.findall(value.text):
        name = unit.lower().replace("\u00b5", "u")
        places.append(_UNITS.index(name))
        amounts[name] = int(number)
    if places != sorted(set(places)):
        return f"the duration {value.text} names each unit once, the longer ones first"
    months = amounts.get("y", 0) * 12 + amounts.get("mo", 0)
    days = amounts.get("w", 0) * 7 + amounts.get("d", 0)
    nanos = sum(amounts.get(unit, 0) * length for unit, length in _NANOS.items())
    if max(months, days) >= 2**31 or nanos >= 2**63:
        return f"the duration {value.text} is out of range"
    return ""


def _tiny(value: Literal) -> str:
    if value.form is LiteralForm.BLOB:
        return _whole_bytes(value)
    return _signed(8)(value)


_NUMBERS: Final = frozenset({LiteralForm.INTEGER, LiteralForm.FLOAT})
_TIMES: Final = frozenset({LiteralForm.INTEGER, LiteralForm.TEXT})
_SCALARS: Final[Mapping[str, tuple[frozenset[LiteralForm], LiteralJudge]]] = {
    "tinyint": (frozenset({LiteralForm.INTEGER, LiteralForm.BLOB}), _tiny),
    "smallint": (frozenset({LiteralForm.INTEGER}), _signed(16)),
    "int": (frozenset({LiteralForm.INTEGER}), _signed(32)),
    "bigint": (frozenset({LiteralForm.INTEGER}), _signed(64)),
    "counter": (frozenset({LiteralForm.INTEGER}), _signed(64)),
    "varint": (frozenset({LiteralForm.INTEGER}), _any),
    "float": (_NUMBERS, _readable),
    "double": (_NUMBERS, _readable),
    "decimal": (_NUMBERS, _finite),
    "boolean": (frozenset({LiteralForm.BOOLEAN}), _any),
    "text": (frozenset({LiteralForm.TEXT}), _any),
    "ascii": (frozenset({LiteralForm.TEXT}), _ascii),
    "blob": (frozenset({LiteralForm.BLOB}), _whole_bytes),
    "uuid": (frozenset({LiteralForm.UUID}), _any),
    "timeuuid": (frozenset({LiteralForm.UUID}), _version_1),
    "inet": (frozenset({LiteralForm.TEXT}), _address),
    "timestamp": (_TIMES, _instant),
    "date": (_TIMES, _calendar_day),
    "time": (_TIMES, _time_of_day),
    "duration": (frozenset({LiteralForm.DURATION}), _duration),
}
"""For each native type the forms of its literals, and what else must hold. A tinyint takes a blob since 5.0."""
