"""What a policy file says of mails that come in: rules that set their transport, job and metadata."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from mailmend.delivery.policy.file.nodes import PolicyNode, ValueLists, read_each, read_part, read_value, yes_or_no
from mailmend.delivery.policy.file.schema import FIELD_NAME, INCOMING_PARTS, SET_FIELDS, SET_PARTS
from mailmend.delivery.policy.incoming import (
    IncomingField,
    IncomingRule,
    MatchedKey,
    ValueTemplate,
    checked_value,
    unknown_name,
)
from mailmend.delivery.policy.policy import GroupName, RegexValues, ValuePattern
from mailmend.mailqueue.rules.mails import PRIORITY_ATTRIBUTE
from mailmend.model.errors import WrongUse

_OURS: Final = re.compile(r"mailmend\..*|dsn-.*", re.DOTALL)
_SOME_TIME: Final = datetime(2000, 1, 1, tzinfo=UTC)


def incoming_rules(node: PolicyNode, lists: ValueLists) -> tuple[IncomingRule, ...]:
    """The rules, in their order.

    Raises:
        BadPolicyFile: one of them cannot be used.
    """
    return tuple(read_each(node.listed("incoming"), lambda rule: _rule(rule, lists)))


def _rule(node: PolicyNode, lists: ValueLists) -> IncomingRule:
    parts = node.known("a rule of incoming", *INCOMING_PARTS)
    refused_before = len(node.refused)
    patterns = read_part(parts, "if", lambda part: dict(_patterns(part, lists)), {})
    expressions = [value for some in patterns.values() for value in some if isinstance(value, RegexValues)]
    known = expressions if len(node.refused) == refused_before else None
    return IncomingRule(
        patterns,
        read_part(parts, "set", lambda part: dict(_set(part, known)), {}),
        read_part(parts, "remove", _removed, frozenset()),
        stop=read_value(parts, "stop", yes_or_no, otherwise=False),
    )


def _removed(node: PolicyNode) -> frozenset[str]:
    names = node.one_or_more("header fields")
    return frozenset(read_each(names, lambda name: name.parsed(_field_name, "a header field")))


def _patterns(node: PolicyNode, lists: ValueLists) -> Iterator[tuple[MatchedKey, tuple[ValuePattern, ...]]]:
    for _, key, values in node.items("if"):
        for named in read_each([key], lambda node: node.parsed(_field_named, "a field")):
            if named is IncomingField.HEADER:
                yield from _header_patterns(values, lists)
            else:
                yield (named, ""), _values(named, values, lists)


def _header_patterns(node: PolicyNode, lists: ValueLists) -> Iterator[tuple[MatchedKey, tuple[ValuePattern, ...]]]:
    names = set[str]()
    for _, header, wanted in node.items("header"):
        for name in read_each([header], lambda node: node.parsed(_field_name, "a header field")):
            if name in names:
                header.note(f"{name!r} is there twice in header")
            names.add(name)
            yield (IncomingField.HEADER, name), _values(IncomingField.HEADER, wanted, lists)


def _values(named: IncomingField, node: PolicyNode, lists: ValueLists) -> tuple[ValuePattern, ...]:
    found = tuple(lists.patterns(named, node.one_or_more("values")))
    if any(isinstance(value, GroupName) for value in found):
        node.note("rules of incoming know no groups", "Write the values, or '@name' of a list.")
    return found


def _field_named(text: str) -> IncomingField:
    names = ", ".join(field.value for field in IncomingField)
    try:
        return IncomingField(text)
    except ValueError:
        raise WrongUse(f"{text!r} is no field of a mail that comes in", mend=f"There are: {names}.") from None


def _field_name(text: str) -> str:
    if not FIELD_NAME.fullmatch(text):
        raise WrongUse(f"{text!r} is no name of a header field", mend="Write it like X-Job.")
    return text.lower()


def _set(node: PolicyNode, expressions: Sequence[RegexValues] | None) -> Iterator[tuple[str, ValueTemplate]]:
    """The values that a rule sets; without its expressions, names in templates are not looked up."""
    parts = node.known("set", *SET_PARTS)
    for name in SET_FIELDS:
        if name in parts:
            own = PRIORITY_ATTRIBUTE if name == "priority" else name
            for template in read_each([parts[name]], partial(_template, own, expressions)):
                yield own, template
    if "attributes" in parts:
        yield from _attributes(parts["attributes"], expressions)


def _attributes(node: PolicyNode, expressions: Sequence[RegexValues] | None) -> Iterator[tuple[str, ValueTemplate]]:
    for name, key, value in node.items("attributes"):
        if name in SET_FIELDS or name == PRIORITY_ATTRIBUTE:
            own = "priority" if name == PRIORITY_ATTRIBUTE else name
            key.note(f"{name} is set outside the attributes", f"Write it as {own}: below set.")
        elif _OURS.fullmatch(name) or not name:
            key.note(f"{name!r} is no attribute that a rule may set", "mailmend.* and dsn-* are set by other means.")
        else:
            for template in read_each([value], partial(_template, name, expressions)):
                yield name, template


def _template(name: str, expressions: Sequence[RegexValues] | None, node: PolicyNode) -> ValueTemplate:
    template = node.parsed(ValueTemplate.parse, "a value")
    why = unknown_name(template, expressions) if expressions is not None else ""
    if why:
        node.fail(why)
    if not template.names:
        node.parsed(lambda text: checked_value(name, text, _SOME_TIME), "a value")
    return template
