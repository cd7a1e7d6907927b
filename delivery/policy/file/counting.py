"""What a policy file says of what is counted together: fields with groups, and limits by conditions or the default."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from mailmend.delivery.policy.file.nodes import PolicyNode, ValueLists, read_each, read_part
from mailmend.delivery.policy.file.schema import CONDITION_PARTS, GROUP_NAME
from mailmend.delivery.policy.policy import (
    CountedTogether,
    FieldGroup,
    GroupName,
    PickupField,
    ThresholdCondition,
    ValuePattern,
    field_named,
)

L = TypeVar("L")

ALL_FIELDS: Final = tuple(PickupField)


def counted_together(
    parts: Mapping[str, PolicyNode], lists: ValueLists, known: Collection[PickupField], limit: Callable[[PolicyNode], L]
) -> CountedTogether[L]:
    """What `fields`, `conditions` and `default` say.

    Args:
        parts: by name, as far as they are there.
        lists: the lists of the file.
        known: the fields that there are here.
        limit: reads the part below `then` and `default`.

    Raises:
        BadPolicyFile: one of them cannot be used.
    """
    fields = dict[PickupField, tuple[FieldGroup, ...]]()
    listed = list(parts["fields"].listed("fields")) if "fields" in parts else []
    for node, (named, grouped) in read_each(listed, lambda node: (node, _field(node, known))):
        if named in fields:
            node.fail(f"{named.value} is counted by twice")
        fields[named] = tuple(_groups(named, grouped, lists)) if grouped else ()
    known_fields = fields if len(fields) == len(listed) else None
    conditions = read_part(
        parts,
        "conditions",
        lambda node: tuple(
            read_each(node.listed("conditions"), lambda one: _condition(one, known_fields, lists, limit))
        ),
        (),
    )
    groups = {named: found for named, found in fields.items() if found}
    return CountedTogether(tuple(fields), groups, conditions, read_part(parts, "default", limit, None))


def _field(node: PolicyNode, known: Collection[PickupField]) -> tuple[PickupField, PolicyNode | None]:
    """A field, and its groups where it has any: `remotemx`, or `remotemx: {gsuite: ['*.google.com']}`."""
    if not node.is_mapping:
        return _known_field(node, known), None
    entries = list(node.items("a field with groups"))
    if len(entries) != 1:
        node.fail("a field with groups is one name, with its groups below it")
    ((_, key, groups),) = entries
    return _known_field(key, known), groups


def _known_field(node: PolicyNode, known: Collection[PickupField]) -> PickupField:
    named = node.parsed(field_named, "a field")
    if named not in known:
        node.fail(f"{named.value} is no field here", f"There are: {', '.join(field.value for field in known)}.")
    return named


def _groups(named: PickupField, node: PolicyNode, lists: ValueLists) -> Iterator[FieldGroup]:
    for name, key, patterns in node.items("groups"):
        if not GROUP_NAME.fullmatch(name):
            key.note(f"{name!r} is no name of a group", "Letters, digits, '.', '-' and '_' make one.")
        yield FieldGroup(name, tuple(lists.patterns(named, patterns.listed("the patterns of a group"))))


def _condition(
    node: PolicyNode,
    fields: Mapping[PickupField, Sequence[FieldGroup]] | None,
    lists: ValueLists,
    limit: Callable[[PolicyNode], L],
) -> ThresholdCondition[L]:
    """A condition; `fields` are those with the groups of each, or None where one is refused: all fields are taken."""
    parts = node.known("a condition", *CONDITION_PARTS)
    wanted = read_part(parts, "if", lambda node: _wanted(node, fields, lists), {})
    if "then" not in parts:
        node.fail("a condition lacks its then", "Write the limits below then; then: {} sets no limit.")
    return ThresholdCondition(wanted, limit(parts["then"]))


def _wanted(
    node: PolicyNode, fields: Mapping[PickupField, Sequence[FieldGroup]] | None, lists: ValueLists
) -> dict[PickupField, tuple[ValuePattern, ...]]:
    wanted = dict[PickupField, tuple[ValuePattern, ...]]()
    for _, key, values in node.items("if"):
        for named in read_each([key], lambda node: _counted_field(node, fields)):
            groups = fields[named] if fields is not None else ()
            wanted[named] = tuple(lists.patterns(named, values.one_or_more("values")))
            if fields is not None:
                _refuse_unknown_groups(named, values, groups)
                _refuse_members(values, wanted[named], groups)
    return wanted


def _counted_field(node: PolicyNode, fields: Collection[PickupField] | None) -> PickupField:
    named = node.parsed(field_named, "a field")
    if fields is not None and named not in fields:
        counted = ", ".join(field.value for field in fields) or "nothing"
        node.fail(f"this does not count by {named.value}", f"It counts by: {counted}.")
    return named


def _refuse_unknown_groups(named: PickupField, node: PolicyNode, groups: Sequence[FieldGroup]) -> None:
    known = {group.name for group in groups}
    for value in node.one_or_more("values"):
        text = value.text("a value")
        if text.startswith("#") and text[1:] not in known:
            value.note(f"{named.value} has no group {text!r} here", f"It has: {', '.join(known) or 'none'}.")


def _refuse_members(node: PolicyNode, patterns: Iterable[ValuePattern], groups: Sequence[FieldGroup]) -> None:
    """A value that belongs to a group is counted as that: no condition on it alone would ever hold."""
    for pattern in patterns if groups else ():
        value = None if isinstance(pattern, GroupName) else getattr(pattern, "value", None)
        group = next((field_group for field_group in groups if value and field_group.holds(value)), None)
        if group:
            node.note(f"{value} is counted as #{group.name}, and never alone", f"Write '#{group.name}'.")
