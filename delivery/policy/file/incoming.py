"""What a policy file says of mails that come in: rules for their transport, job and metadata."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Final

from mailmend.delivery.policy.file.description import HEADER_FIELD, INCOMING, SET, SET_ATTRIBUTES
from mailmend.delivery.policy.file.nodes import PolicyNode, read_each, read_part, read_parts, read_ungrouped
from mailmend.delivery.policy.incoming import (
    IncomingField,
    IncomingRule,
    MatchedKey,
    ValueTemplate,
    checked_value,
    unknown_name,
)
from mailmend.delivery.policy.policy import RegexValues, ValuePattern
from mailmend.model.errors import WrongUse

_OURS: Final = re.compile(r"mailmend\..*|dsn-.*", re.DOTALL)
Expressions = Sequence[RegexValues] | None
"""The expressions of a rule; None where one of its patterns is refused."""

SetValues = Iterator[tuple[str, ValueTemplate]]
_NO_GROUPS: Final = "rules of incoming know no groups"
_SOME_TIME: Final = datetime(2000, 1, 1, tzinfo=UTC)


def incoming_rules(node: PolicyNode) -> tuple[IncomingRule, ...]:
    """The rules, in their order.

    Raises:
        BadPolicyFile: one of them cannot be used.
    """
    return tuple(read_each(node.listed("incoming"), _rule))


def _rule(node: PolicyNode) -> IncomingRule:
    parts = node.parts(INCOMING)
    refused_before = len(node.refused)
    patterns = read_part(parts, "if", lambda part: dict(_patterns(part)), {})
    values = chain.from_iterable(patterns.values())
    expressions = [value for value in values if isinstance(value, RegexValues)]
    known: Expressions = None
    if len(node.refused) == refused_before:
        known = expressions
    rest = read_parts(parts, INCOMING, set=lambda part: dict(_set(part, known)), remove=_removed)
    return IncomingRule(patterns, **rest)


def _removed(node: PolicyNode) -> frozenset[str]:
    return frozenset(read_each(node.one_or_more("header fields"), _header_field))


def _header_field(node: PolicyNode) -> str:
    name: str = node.parsed(HEADER_FIELD.parse, "a header field")
    return name


def _patterns(node: PolicyNode) -> Iterator[tuple[MatchedKey, tuple[ValuePattern, ...]]]:
    for _, key, values in node.items("if"):
        for named in read_each([key], lambda node: node.parsed(_field_named, "a field")):
            if named is IncomingField.HEADER:
                yield from _header_patterns(values)
            else:
                yield (named, ""), read_ungrouped(named, values, _NO_GROUPS)


def _header_patterns(node: PolicyNode) -> Iterator[tuple[MatchedKey, tuple[ValuePattern, ...]]]:
    field = IncomingField.HEADER
    names = set[str]()
    for _, header, wanted in node.items("header"):
        for name in read_each([header], _header_field):
            if name in names:
                header.note(f"{name!r} is there twice in header")
            names.add(name)
            yield (field, name), read_ungrouped(field, wanted, _NO_GROUPS)


def _field_named(text: str) -> IncomingField:
    names = ", ".join(field.value for field in IncomingField)
    try:
        return IncomingField(text)
    except ValueError:
        mend = f"There are: {names}."
        raise WrongUse(f"{text!r} is no field of a mail that comes in", mend=mend) from None


def _set(node: PolicyNode, expressions: Expressions) -> SetValues:
    """The values that a rule sets; without expressions, names in templates are not looked up."""
    parts = node.parts(SET)
    for attribute, name in SET_ATTRIBUTES.items():
        if name in parts:
            for template in read_each([parts[name]], partial(_template, attribute, expressions)):
                yield attribute, template
    if "attributes" in parts:
        yield from _attributes(parts["attributes"], expressions)


def _attributes(node: PolicyNode, expressions: Expressions) -> SetValues:
    own = dict(SET_ATTRIBUTES)
    for name in SET_ATTRIBUTES.values():
        own[name] = name
    for name, key, value in node.items("attributes"):
        if name in own:
            mend = f"Write it as {own[name]}: below set."
            key.note(f"{name} is set outside the attributes", mend)
        elif _OURS.fullmatch(name) or not name:
            mend = "mailmend.* and dsn-* are set by other means."
            key.note(f"{name!r} is no attribute that a rule may set", mend)
        else:
            for template in read_each([value], partial(_template, name, expressions)):
                yield name, template


def _template(name: str, expressions: Expressions, node: PolicyNode) -> ValueTemplate:
    template = node.parsed(ValueTemplate.parse, "a value")
    if expressions is not None:
        why = unknown_name(template, expressions)
        if why:
            node.fail(why)
    if not template.names:
        node.parsed(lambda text: checked_value(name, text, _SOME_TIME), "a value")
    return template
