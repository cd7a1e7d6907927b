"""What a policy file says of mails that come in: rules that set their transport, job and metadata."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from delivery.policy_nodes import PolicyNode, ValueLists, yes_or_no
from delivery.policy_schema import FIELD_NAME, INCOMING_PARTS, SET_FIELDS, SET_PARTS
from model.delivery.incoming import (
    IncomingField,
    IncomingRule,
    MatchedKey,
    ValueTemplate,
    checked_value,
    unknown_name,
)
from model.errors import WrongUse
from model.pickup.policy import GroupName, RegexValues, ValuePattern
from model.queue.mails import PRIORITY_ATTRIBUTE

_OURS: Final = re.compile(r"mailmend\..*|dsn-.*", re.DOTALL)
_SOME_TIME: Final = datetime(2000, 1, 1, tzinfo=UTC)


def incoming_rules(node: PolicyNode, lists: ValueLists) -> tuple[IncomingRule, ...]:
    """The rules, in their order.

    Raises:
        BadPolicyFile: one of them cannot be used.
    """
    return tuple(_rule(one, lists) for one in node.listed("incoming"))


def _rule(node: PolicyNode, lists: ValueLists) -> IncomingRule:
    parts = node.known("a rule of incoming", *INCOMING_PARTS)
    patterns = dict(_patterns(parts["if"], lists)) if "if" in parts else {}
    expressions = tuple(one for some in patterns.values() for one in some if isinstance(one, RegexValues))
    return IncomingRule(
        patterns,
        dict(_set(parts["set"], expressions)) if "set" in parts else {},
        frozenset(one.parsed(_field_name, "a header field") for one in parts["remove"].one_or_more("header fields"))
        if "remove" in parts
        else frozenset(),
        stop=parts["stop"].parsed(yes_or_no, "stop") if "stop" in parts else False,
    )


def _patterns(node: PolicyNode, lists: ValueLists) -> Iterator[tuple[MatchedKey, tuple[ValuePattern, ...]]]:
    for _, key, values in node.items("if"):
        named = key.parsed(_field_named, "a field")
        if named is not IncomingField.HEADER:
            yield (named, ""), _values(named, values, lists)
            continue
        names = set[str]()
        for _, header, wanted in values.items("header"):
            name = header.parsed(_field_name, "a header field")
            if name in names:
                header.fail(f"{name!r} is there twice in header")
            names.add(name)
            yield (named, name), _values(named, wanted, lists)


def _values(named: IncomingField, node: PolicyNode, lists: ValueLists) -> tuple[ValuePattern, ...]:
    found = tuple(lists.patterns(named, node.one_or_more("values")))
    if any(isinstance(one, GroupName) for one in found):
        node.fail("rules of incoming know no groups", "Write the values, or '@name' of a list.")
    return found


def _field_named(text: str) -> IncomingField:
    names = ", ".join(one.value for one in IncomingField)
    try:
        return IncomingField(text)
    except ValueError:
        raise WrongUse(f"{text!r} is no field of a mail that comes in", mend=f"There are: {names}.") from None


def _field_name(text: str) -> str:
    if not FIELD_NAME.fullmatch(text):
        raise WrongUse(f"{text!r} is no name of a header field", mend="Write it like X-Job.")
    return text.lower()


def _set(node: PolicyNode, expressions: tuple[RegexValues, ...]) -> Iterator[tuple[str, ValueTemplate]]:
    parts = node.known("set", *SET_PARTS)
    for name in SET_FIELDS:
        if name in parts:
            own = PRIORITY_ATTRIBUTE if name == "priority" else name
            yield own, _template(own, parts[name], expressions)
    for name, key, value in parts["attributes"].items("attributes") if "attributes" in parts else ():
        if name in SET_FIELDS or name == PRIORITY_ATTRIBUTE:
            own = "priority" if name == PRIORITY_ATTRIBUTE else name
            key.fail(f"{name} is set beside the attributes", f"Write it as {own}: below set.")
        if _OURS.fullmatch(name) or not name:
            key.fail(f"{name!r} is no attribute that a rule may set", "mailmend.* and dsn-* are set by other means.")
        yield name, _template(name, value, expressions)


def _template(name: str, node: PolicyNode, expressions: tuple[RegexValues, ...]) -> ValueTemplate:
    template = node.parsed(ValueTemplate.parse, "a value")
    if why := unknown_name(template, expressions):
        node.fail(why)
    if not template.names:
        node.parsed(lambda text: checked_value(name, text, _SOME_TIME), "a value")
    return template
