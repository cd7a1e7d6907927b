"""JSON as James's own writer (Jackson) has it, to the byte: what we write must be what James would have written.

No spaces; of texts only quotes, backslashes and control characters are escaped, these with capital hexadecimal digits.
Written straight into bytes, what lies beyond 16 bits is escaped too, as two halves; written into a text it is not.
Lengths of time and instants are seconds with nine digits. Held against what James 3.8.1 wrote, and Jackson 2.15 itself.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

_MICROSECOND: Final = timedelta(microseconds=1)
_ESCAPED: Final = re.compile(r'[\x00-\x1f"\\]')
_WIDE: Final = re.compile("[\U00010000-\U0010ffff]")
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def json_text(value: Any) -> str:
    """The value as JSON: None, bool, int, Decimal, str, lists, tuples and mappings of them, in their order.

    Raises:
        TypeError: it is of another kind; floats are, because James's own digits are not Python's.
    """
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | Decimal():
            return str(value)
        case str():
            return f'"{_ESCAPED.sub(_escape, value)}"'
        case Mapping():
            return "{" + ",".join(f"{json_text(name)}:{json_text(part)}" for name, part in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(map(json_text, value)) + "]"
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON of James's")


def json_bytes(value: Any) -> bytes:
    """The same as Jackson writes it into bytes.

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
    return Decimal(micros * 1000).scaleb(-9) if micros else Decimal("0.0")


def _in_halves(found: re.Match[str]) -> str:
    halves = found[0].encode("utf-16-be").hex().upper()
    return f"\\u{halves[:4]}\\u{halves[4:]}"


def _escape(found: re.Match[str]) -> str:
    return _SHORT.get(found[0]) or f"\\u{ord(found[0]):04X}"
