"""JSON in exactly the bytes that James's own writers would have written, and strict reading of JSON.

Jackson writes all but the messages of James's Pulsar queue since 3.9, which circe writes (`Escapes`).

There are no spaces. In texts only quotes, backslashes and control characters are escaped, the last with capital
hexadecimal digits. Jackson also escapes characters beyond 16 bits, as surrogate pairs, when it writes bytes, but not
when it writes a text. Durations and instants are seconds with nine decimals. Compared with what James 3.8.1 and Jackson
2.15 wrote.

Reading is strict: each field has the expected kind, or the error names the field. Message bodies, rows and events may
come from any version of James, or from anybody who may publish. So no text raises any error but `BadPayload`, whose
message names fields and kinds, never contents, which may be people's addresses.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final, NoReturn
from uuid import UUID

from mailmend.mailqueue.rules.slices import EPOCH
from mailmend.model.errors import BadPayload

MEND: Final = "Its writer is not James, or a James whose form is not known; it was left where it is."

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,20})?")
_SECONDS: Final = (Decimal(-62_135_596_800), Decimal(253_402_300_799))
"""The years 1 to 9999, in seconds since 1970; without its last second, which may be rounded up."""
_MICROSECOND: Final = timedelta(microseconds=1)
_WIDE: Final = re.compile("[\U00010000-\U0010ffff]")
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


class Escapes(Enum):
    """Which characters of a text are escaped, and in which digits where JSON has no short form."""

    JACKSON = (r'[\x00-\x1f"\\]', "X")
    CIRCE = (r'[\x00-\x1f"\\\x7f-\x9f]', "x")

    def __init__(self, escaped: str, digits: str) -> None:
        self._escaped = re.compile(escaped)
        self._digits = digits

    def text(self, value: str) -> str:
        return self._escaped.sub(self._escape, value)

    def _escape(self, found: re.Match[str]) -> str:
        return _SHORT.get(found[0]) or f"\\u{ord(found[0]):04{self._digits}}"


def json_text(value: Any, escapes: Escapes = Escapes.JACKSON) -> str:
    """Write None, bool, int, Decimal, str, and lists, tuples and mappings of them as JSON; order is kept.

    Raises:
        TypeError: a value is of another kind, such as a float, whose digits Java and Python write differently.
    """
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | Decimal():
            return str(value)
        case str():
            return f'"{escapes.text(value)}"'
        case Mapping():
            parts = (f"{json_text(name, escapes)}:{json_text(part, escapes)}" for name, part in value.items())
            return "{" + ",".join(parts) + "}"
        case list() | tuple():
            return "[" + ",".join(json_text(part, escapes) for part in value) + "]"
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON of James's")


def json_bytes(value: Any) -> bytes:
    """Write a value as Jackson does when it writes bytes.

    Raises:
        TypeError: as of `json_text`.
        UnicodeEncodeError: a text holds half a surrogate pair.
    """
    return _WIDE.sub(_in_halves, json_text(value)).encode()


def seconds_of(length: timedelta) -> Decimal:
    """A duration, or a time since 1970, as the number of seconds that James writes.

    Jackson writes fractions before 1970 wrongly; here they are right.
    """
    micros = length // _MICROSECOND
    if not micros:
        return Decimal("0.0")
    return Decimal(micros * 1000).scaleb(-9)


def _in_halves(found: re.Match[str]) -> str:
    halves = found[0].encode("utf-16-be").hex().upper()
    return f"\\u{halves[:4]}\\u{halves[4:]}"


def refuse(field: str, why: str) -> NoReturn:
    """Always raises `BadPayload`, which names the field."""
    raise BadPayload(f"{field} {why}", mend=MEND)


def object_in(text: str | bytes, what: str) -> Mapping[str, Any]:
    """The one JSON object in a text; numbers with a fraction stay exact."""
    try:
        found = json.loads(text, parse_float=Decimal, parse_constant=_no_number)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise BadPayload(f"{what} is not JSON: {type(error).__name__}", mend=MEND) from None
    if not isinstance(found, dict):
        refuse(what, "is not a JSON object")
    return found


def text_of(value: Any, field: str) -> str:
    """Take a text that every store can keep: one without halves of surrogate pairs."""
    if not isinstance(value, str):
        refuse(field, "is missing" if value is None else "is not a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        refuse(field, "holds half a surrogate pair")
    return value


def filled_text_of(value: Any, field: str) -> str:
    return text_of(value, field) or refuse(field, "is empty")


def texts_of(value: Any, field: str) -> tuple[str, ...]:
    return tuple(text_of(element, f"{field}[{place}]") for place, element in enumerate(_list_of(value, field)))


def mapping_of(value: Any, field: str) -> Mapping[str, Any]:
    """Take an object; None counts as an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        refuse(field, "is not an object")
    for name in value:
        text_of(name, f"a name in {field}")
    return value


def uuid_of(value: Any, field: str) -> UUID:
    if isinstance(value, UUID):
        return value
    if not _UUID.fullmatch(text_of(value, field)):
        refuse(field, "is not a UUID")
    return UUID(value)


def instant_of(value: Any, field: str) -> datetime:
    """Seconds since 1970 with or without a fraction, as number or text, or ISO 8601; cut to milliseconds like James."""
    if isinstance(value, datetime):
        return in_millis(value)
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return in_millis(_iso_instant(value, field))
    if isinstance(value, str):
        value = Decimal(value)
    if not _is_number(value):
        refuse(field, "is not an instant")
    first, after = _SECONDS
    if not first <= value < after:
        refuse(field, "is out of the years 1 to 9999")
    return EPOCH + timedelta(milliseconds=math.floor(Decimal(value) * 1000))


def whole_number_of(value: Any, field: str, allowed: range) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        refuse(field, "is missing" if value is None else "is not a whole number")
    if value not in allowed:
        refuse(field, f"is not between {allowed.start} and {allowed.stop - 1}")
    return value


def whole_seconds_of(value: Any, field: str, allowed: range) -> timedelta:
    """Take a duration in whole seconds, written without a fraction or with one of zeros."""
    if _is_number(value) and allowed.start <= value < allowed.stop and not value % 1:
        value = int(value)
    return timedelta(seconds=whole_number_of(value, field, allowed))


def in_millis(at: datetime) -> datetime:
    """The time cut to milliseconds, as Cassandra's timestamps and James's dates keep it."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def optional(take: Callable[[Any, str], Any], value: Any, field: str, default: Any = None) -> Any:
    """The field taken with `take`; the default where the value is None."""
    if value is None:
        return default
    return take(value, field)


def _list_of(value: Any, field: str) -> Iterable[Any]:
    if not isinstance(value, list | tuple):
        refuse(field, "is missing" if value is None else "is not a list")
    return value


def _iso_instant(text: str, field: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
        if not found.tzinfo:
            refuse(field, "is an instant without its offset")
        return found.astimezone(UTC)
    except (ValueError, OverflowError):
        refuse(field, "is not an instant")


def _is_number(value: Any) -> bool:
    if isinstance(value, Decimal):
        return not value.is_nan()
    return isinstance(value, int) and not isinstance(value, bool)


def _no_number(_: str) -> NoReturn:
    raise ValueError("not a number")
