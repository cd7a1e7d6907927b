"""JSON as James's own writer (Jackson) has it, to the byte: what we write must be what James would have written.

No spaces; texts in UTF-8, of which only quotes, backslashes and control characters are escaped, these with capital
hexadecimal digits; lengths of time and instants as seconds with nine digits. Read from what James 3.8.1 wrote.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

_MICROSECOND: Final = timedelta(microseconds=1)
_ESCAPED: Final = re.compile(r'[\x00-\x1f"\\]')
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


def seconds_of(length: timedelta) -> Decimal:
    """A length of time, or an instant since 1970, as the number of seconds that James writes."""
    micros = length // _MICROSECOND
    return Decimal(micros * 1000).scaleb(-9) if micros else Decimal("0.0")


def _escape(found: re.Match[str]) -> str:
    return _SHORT.get(found[0]) or f"\\u{ord(found[0]):04X}"
