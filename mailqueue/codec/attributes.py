"""Attributes of a mail for Python callers: James's AttributeValue as JSON text, and back.

Each value says what kind it is of: `{"serializer": "IntSerializer", "value": 5}`. Kinds of James's own that Python has
nothing for stay what they are: their parsed JSON.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from mailmend.mailqueue.rules.james_json import json_text, object_in
from mailmend.mailqueue.rules.mails import PRIORITIES, PRIORITY_ATTRIBUTE, PRIORITY_NORMAL, Mail
from mailmend.model.errors import BadPayload, WrongUse

_KINDS: Final = frozenset(
    f"{kind}Serializer" for kind in ("Boolean", "Int", "Long", "String", "Bytes", "Collection", "Map")
)
_INT: Final = range(-(2**31), 2**31)
_LONG: Final = range(-(2**63), 2**63)


def attribute(value: Any) -> str:
    """The JSON text of a text, whole number, flag, bytes, or a list or mapping of them.

    Raises:
        WrongUse: James has no kind for it.
    """
    return json_text(_described(value))


def attribute_value(text: str) -> Any:
    try:
        return _value_of(object_in(text, "the attribute"))
    except RecursionError:
        raise BadPayload("the attribute is not one that anybody reads: it nests too deep") from None


def is_attribute(text: str) -> bool:
    """Whether James reads the text as an attribute; contents of unknown kinds are not checked."""
    try:
        return _is_typed(object_in(text, "the attribute"))
    except (BadPayload, RecursionError):
        return False


def priority_of(mail: Mail) -> int:
    """The mail's priority, 0 to 9; the normal one where it has none that can be read."""
    text = mail.attributes.get(PRIORITY_ATTRIBUTE)
    if text is None:
        return PRIORITY_NORMAL
    try:
        value = attribute_value(text)
    except BadPayload:
        return PRIORITY_NORMAL
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and value in PRIORITIES else PRIORITY_NORMAL


def with_priority(mail: Mail, priority: int) -> Mail:
    """The same mail with that priority.

    Raises:
        WrongUse: it is not one from 0 to 9.
    """
    if priority not in PRIORITIES:
        raise WrongUse(
            f"{priority} is not a priority", mend="Priorities go from 0, the last, to 9, the first; 5 is normal."
        )
    return replace(mail, attributes={**mail.attributes, PRIORITY_ATTRIBUTE: attribute(int(priority))})


def _described(value: Any) -> Mapping[str, Any]:  # noqa: PLR0911 - one for each kind
    match value:
        case bool():
            return _kind("BooleanSerializer", value)
        case int() if value in _INT:
            return _kind("IntSerializer", value)
        case int() if value in _LONG:
            return _kind("LongSerializer", value)
        case str():
            return _kind("StringSerializer", value)
        case bytes():
            return _kind("BytesSerializer", b64encode(value).decode())
        case list() | tuple():
            return _kind("CollectionSerializer", [_described(part) for part in value])
        case Mapping():
            return _kind("MapSerializer", {str(name): _described(part) for name, part in value.items()})
        case _:
            raise WrongUse(
                f"James has no attribute of the kind {type(value).__name__}",
                mend="Give a text, whole number, flag, bytes, or a list or mapping of them.",
            )


def _kind(serializer: str, value: Any) -> Mapping[str, Any]:
    return {"serializer": serializer, "value": value}


def _is_number(value: int, allowed: range) -> bool:
    return not isinstance(value, bool) and value in allowed


def _value_of(serialised: Any) -> Any:  # noqa: PLR0911 - one for each kind
    match serialised:
        case {"serializer": "BooleanSerializer", "value": bool(value)}:
            return value
        case {"serializer": "IntSerializer", "value": int(value)} if _is_number(value, _INT):
            return value
        case {"serializer": "LongSerializer", "value": int(value)} if _is_number(value, _LONG):
            return value
        case {"serializer": "StringSerializer", "value": str(value)}:
            return value
        case {"serializer": "BytesSerializer", "value": str(value)}:
            return _bytes_in(value)
        case {"serializer": "CollectionSerializer", "value": list(value)}:
            return [_value_of(part) for part in value]
        case {"serializer": "MapSerializer", "value": dict(value)}:
            return {name: _value_of(part) for name, part in value.items()}
        case _:
            return serialised


def _is_typed(serialised: Any) -> bool:
    """In one pass: a mail of many recipients has an attribute with as many parts."""
    match serialised:
        case {"serializer": "CollectionSerializer", "value": list(parts)}:
            return all(map(_is_typed, parts))
        case {"serializer": "MapSerializer", "value": dict(parts)}:
            return all(map(_is_typed, parts.values()))
        case _:
            return _is_scalar(serialised)


def _is_scalar(serialised: Any) -> bool:
    if _value_of(serialised) is not serialised:
        return True
    match serialised:
        case {"serializer": str(serializer), "value": _}:
            return serializer not in _KINDS
        case _:
            return False


def _bytes_in(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise BadPayload("the attribute is not base64") from None
