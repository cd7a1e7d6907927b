"""The policy file: which deliveries are counted together, and how many of them there may be, in YAML.

All of a file is checked before any of it counts. Source: docs/policy-file.md.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any, Final

from mailmend.delivery.policy.file.custom_fields import custom_fields
from mailmend.delivery.policy.file.description import (
    CONDITION,
    FILE,
    GROUP_NAME,
    HEADER_FIELD,
    INCOMING,
    POLICY,
    QUOTA,
    QUOTA_LIMIT,
    RATE,
    SET,
    SET_ATTRIBUTES,
    THRESHOLD,
    WEIGHT,
)
from mailmend.delivery.policy.file.forms import BadPolicyFile
from mailmend.delivery.policy.file.nodes import (
    FILE_BYTES_MAX,
    PolicyNode,
    Refusals,
    read_each,
    read_part,
    read_parts,
    read_patterns,
    read_ungrouped,
)
from mailmend.delivery.policy.file.replies import RuleSurroundings, automatic_rules, reply_rules
from mailmend.delivery.policy.file.secret_lines import secret_lines
from mailmend.delivery.policy.file.transport_reading import transports_of
from mailmend.delivery.policy.incoming import (
    IncomingField,
    IncomingRule,
    MatchedKey,
    ValueTemplate,
    checked_value,
    unknown_name,
)
from mailmend.delivery.policy.orders import Suspension
from mailmend.delivery.policy.policies import DocumentPath, PickupPolicies
from mailmend.delivery.policy.policy import (
    CounterPolicy,
    ExactValue,
    FieldGroup,
    PickupField,
    RegexValues,
    Threshold,
    ThresholdCondition,
    ValuePattern,
    field_named,
)
from mailmend.delivery.policy.quotas import QUOTA_FIELDS, QueueQuota, QuotaLimit
from mailmend.delivery.policy.rates import DeliveryRate, RateAlgorithm
from mailmend.delivery.transports import TransportSecrets
from mailmend.model.errors import WrongUse
from mailmend.model.grammar import read_name
from mailmend.model.texts import Place, names_instead

_OURS: Final = re.compile(r"mailmend\..*|dsn-.*", re.DOTALL)
Expressions = Sequence[RegexValues] | None
"""The expressions of a rule; None where one of its patterns is refused."""

SetValues = Iterator[tuple[str, ValueTemplate]]
_FIELDS: Final = [field.value for field in PickupField]
_FIELD_NAMES: Final = frozenset(_FIELDS)
_INCOMING_FIELDS: Final = [field.value for field in IncomingField]
_NO_GROUPS: Final = "rules of incoming know no groups"
_SOME_TIME: Final = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """The content of a policy file, and the place of each part."""

    said: PickupPolicies
    top: PolicyNode

    def place_of(self, path: DocumentPath) -> Place:
        """Where that is; a file that is a list alone has one part, which is not named."""
        if self.top.is_list:
            path = path[1:]
        return self.top.place_of(path)


def read_policies(file: Path, secrets: TransportSecrets | None = None) -> PolicyFile:
    """The policies of a file.

    Args:
        file: its path.
        secrets: reads keys and passwords of transports; None: they are left out.

    Raises:
        WrongUse: it cannot be read.
        BadPolicyFile: it cannot be used.
    """
    try:
        with file.expanduser().open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise WrongUse(
                f"the policy file {file} is too large", mend=f"A policy file has at most {FILE_BYTES_MAX:,} bytes."
            )
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why: str | None = "it is not UTF-8"
        if isinstance(error, OSError):
            why = error.strerror
        raise WrongUse(f"the policy file {file} cannot be read: {why}") from error
    return policies_of(text, str(file), secrets)


def policies_of(text: str, file: str, secrets: TransportSecrets | None = None) -> PolicyFile:
    """The policies of a text: a list of policies or suspensions alone, or all parts by their names.

    Args:
        text: of the file.
        file: its name, for errors.
        secrets: as for `read_policies`.

    Raises:
        BadPolicyFile: something in it is refused; the error has each refused value.
    """
    refused = Refusals()
    top = None
    said = PickupPolicies()
    try:
        top = PolicyNode.of_text(file, text, refused)
        said = _said(top, secrets)
    except BadPolicyFile as error:
        refused.add(error)
    if top is None or refused.by_place:
        refused.hide(secret_lines(text.splitlines(), top))
        raise refused.error from None
    return PolicyFile(said, top)


def _said(top: PolicyNode, secrets: TransportSecrets | None) -> PickupPolicies:
    if top.is_list:
        parts: Mapping[str, PolicyNode] = {_listed_part(top): top}
    else:
        parts = top.parts(FILE)
        top.lists.are_known = top.is_sure_of("lists", FILE)
    if "lists" in parts:
        top.lists.are_known = top.lists.are_known and parts["lists"].has_all_names
        top.lists.values = read_part(parts, "lists", lambda node: dict(_lists(node)), {})
    custom = top.lists.custom = read_part(parts, "fields", custom_fields, {})
    algorithm = read_part(parts, "rate", _algorithm, RateAlgorithm.TOKEN_BUCKET)
    said = read_parts(
        parts,
        FILE,
        policies=partial(pickup_policies, algorithm),
        suspends=_suspensions,
        incoming=_incoming_rules,
        transports=partial(transports_of, secrets),
        tenants=_weights,
        quotas=queue_quotas,
        classes=reply_rules,
    )
    limit = partial(_threshold, algorithm)
    own = said.get("classes", ())
    is_sure = not top.refused.count
    surroundings = RuleSurroundings(own, is_sure, said.get("policies", ()), limit)
    said |= read_parts(parts, FILE, automation=partial(automatic_rules, surroundings))
    unused = tuple(name for name in top.lists.values if name not in top.lists.used)
    return PickupPolicies(**said, algorithm=algorithm, unused_lists=unused, custom=custom)


def _listed_part(top: PolicyNode) -> str:
    """What a list alone is: one of suspensions where an entry names a field of mails."""
    for entry in top.listed("policies"):
        if not _FIELD_NAMES.isdisjoint(entry.names):
            return "suspends"
    return "policies"


def _algorithm(node: PolicyNode) -> RateAlgorithm:
    found = read_parts(node.parts(RATE), RATE)
    algorithm: RateAlgorithm = found.get("algorithm", RateAlgorithm.TOKEN_BUCKET)
    return algorithm


def _lists(node: PolicyNode) -> Iterator[tuple[str, Sequence[PolicyNode]]]:
    """The lists by name; one that is refused is there all the same, as its name is known."""
    for name, _, values in node.items("lists"):
        found = next(read_each([values], lambda node: list(node.listed("the values of a list"))), ())
        for _ in read_each(found, lambda value: value.text("a value")):
            pass
        yield name, found


def _suspensions(node: PolicyNode) -> tuple[Suspension, ...]:
    numbers = count(1)
    suspended = node.listed("suspends")
    return tuple(read_each(suspended, lambda node: _suspension(f"suspends {next(numbers)}", node)))


def _suspension(name: str, node: PolicyNode) -> Suspension:
    """Fields, each with its values; `{}` is every mail."""
    wanted = dict[PickupField, tuple[ValuePattern, ...]]()
    for _, key, values in node.items("a suspension"):
        for named in read_each([key], _pickup_field):
            wanted[named] = read_ungrouped(named, values, "a suspension knows no groups")
    return Suspension(name, wanted)


def _pickup_field(node: PolicyNode) -> PickupField:
    custom = node.lists.custom

    def named(text: str) -> PickupField:
        return custom.get(text) or field_named(text, custom)

    return node.parsed_name(named, [*_FIELDS, *custom], "a field")


def _weights(node: PolicyNode) -> Mapping[str, int]:
    weights = dict[str, int]()
    for _, key, weight in node.items("tenants"):
        for tenant in read_each([key], lambda node: node.parsed(read_name, "a tenant")):
            weights[tenant] = 1
            for turns in read_each([weight], lambda node: node.parsed(WEIGHT.parse, "a weight")):
                weights[tenant] = turns
    return weights


def _incoming_rules(node: PolicyNode) -> tuple[IncomingRule, ...]:
    """The rules, in their order.

    Raises:
        BadPolicyFile: one of them cannot be used.
    """
    return tuple(read_each(node.listed("incoming"), _incoming_rule))


def _incoming_rule(node: PolicyNode) -> IncomingRule:
    refused_before = node.refused.count
    parts = node.parts(INCOMING)
    patterns = read_part(parts, "if", lambda part: dict(_incoming_patterns(part)), {})
    values = chain.from_iterable(patterns.values())
    expressions = [value for value in values if isinstance(value, RegexValues)]
    known: Expressions = None
    if node.refused.count == refused_before:
        known = expressions
    rest = read_parts(parts, INCOMING, set=lambda part: dict(_set_values(part, known)), remove=_removed)
    return IncomingRule(patterns, **rest)


def _removed(node: PolicyNode) -> frozenset[str]:
    return frozenset(read_each(node.one_or_more(), _header_field))


def _header_field(node: PolicyNode) -> str:
    name: str = node.parsed(HEADER_FIELD.parse, "a header field")
    return name


def _incoming_patterns(node: PolicyNode) -> Iterator[tuple[MatchedKey, tuple[ValuePattern, ...]]]:
    for _, key, values in node.items("if"):
        for named in read_each([key], _incoming_field):
            if named is IncomingField.HEADER:
                for patterns in read_each([values], lambda node: dict(_header_patterns(node))):
                    yield from patterns.items()
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


def _incoming_field(node: PolicyNode) -> IncomingField:
    return node.parsed_name(_field_named, _INCOMING_FIELDS, "a field")


def _field_named(text: str) -> IncomingField:
    try:
        return IncomingField(text)
    except ValueError:
        mend = names_instead(text, _INCOMING_FIELDS)
        raise WrongUse(f"{text!r} is no field of a mail that comes in", mend=mend) from None


def _set_values(node: PolicyNode, expressions: Expressions) -> SetValues:
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


GroupedFields = Mapping[PickupField, tuple[FieldGroup, ...] | None]
"""The fields that something is counted by, with the groups of each; None where any group may be its."""

ReadPatterns = dict[PickupField, tuple[ValuePattern, ...]]

LimitReader = Callable[[PolicyNode], Any]
"""Reads the limits below `then` and `default`."""


def pickup_policies(algorithm: RateAlgorithm, node: PolicyNode) -> tuple[CounterPolicy, ...]:
    """The policies, in their order.

    Raises:
        BadPolicyFile: one of them cannot be used.
    """
    return tuple(read_each(node.listed("policies"), partial(_policy, algorithm)))


def queue_quotas(node: PolicyNode) -> tuple[QueueQuota, ...]:
    """The quotas, in their order.

    Raises:
        BadPolicyFile: one of them cannot be used, or two have one name.
    """
    return tuple(read_each(node.listed("quotas"), partial(_quota, set())))


def _policy(algorithm: RateAlgorithm, node: PolicyNode) -> CounterPolicy:
    limit = partial(_threshold, algorithm)
    fields = (*PickupField, *node.lists.custom.values())
    return CounterPolicy(**_counted_together(node, node.parts(POLICY), fields, limit))


def _threshold(algorithm: RateAlgorithm, node: PolicyNode) -> Threshold:
    parts = node.parts(THRESHOLD)
    return Threshold(**read_parts(parts, THRESHOLD, rate=partial(_rate, algorithm)))


def _rate(algorithm: RateAlgorithm, node: PolicyNode) -> DeliveryRate:
    """`X`, `X/Y` or `[X, Y]`: X deliveries in Y seconds, or in one."""
    if node.is_list:
        text = "/".join(number.text("a number of a rate") for number in node.one_or_more())
    else:
        text = node.text("a rate")
    try:
        rate = DeliveryRate.parse(text)
        algorithm.state(rate)
    except WrongUse as error:
        node.fail(error.what, error.mend)
    return rate


def _quota(names: set[str], node: PolicyNode) -> QueueQuota:
    """A quota; `names` are the names of those before it."""
    parts = node.parts(QUOTA)
    if "name" not in parts and node.is_sure_of("name", QUOTA):
        mend = "Clients are told which quota is full, and so are metrics: name it."
        node.note("a quota lacks its name", mend)
    name = read_parts(parts, QUOTA).get("name", "")
    if name and name in names:
        parts["name"].note(f"there are two quotas {name!r}")
    names.add(name)
    return QueueQuota(name=name, **_counted_together(node, parts, QUOTA_FIELDS, _quota_limit))


def _quota_limit(node: PolicyNode) -> QuotaLimit:
    return QuotaLimit(**read_parts(node.parts(QUOTA_LIMIT), QUOTA_LIMIT))


def _counted_together(
    node: PolicyNode,
    parts: Mapping[str, PolicyNode],
    known: Collection[PickupField],
    limit: LimitReader,
) -> dict[str, Any]:
    """What `fields`, `conditions` and `default` say, by the attributes of `CountedTogether`.

    Args:
        node: all of a policy, or of a quota.
        parts: by name, as far as they are there.
        known: the fields that there are here.
        limit: reads the part below `then` and `default`.

    Raises:
        BadPolicyFile: one of them cannot be used.
    """
    is_read = "fields" not in parts
    fields, is_whole = read_part(parts, "fields", partial(_fields, known), ({}, is_read))
    may_count = dict(fields)
    if not is_whole or not node.is_sure_of("fields", QUOTA):
        may_count = {**dict.fromkeys((*PickupField, *node.lists.custom.values())), **fields}
    condition = partial(_condition, may_count, limit)
    conditions = read_part(parts, "conditions", lambda node: tuple(read_each(node.listed("conditions"), condition)), ())
    return {
        "fields": tuple(fields),
        "groups": {named: groups for named, groups in fields.items() if groups},
        "conditions": conditions,
        "default": read_part(parts, "default", limit, None),
    }


def _fields(known: Collection[PickupField], node: PolicyNode) -> tuple[GroupedFields, bool]:
    """The fields that something is counted by, and whether that is all of them: none is refused."""
    fields = dict[PickupField, tuple[FieldGroup, ...] | None]()
    is_whole = True
    for entry in node.listed("fields"):
        found = next(read_each([entry], partial(_field, known)), None)
        if found is None:
            is_whole = False
            continue
        named, grouped = found
        if named in fields:
            entry.note(f"{named.value} is counted by twice")
            fields[named] = None
        else:
            fields[named] = _groups_of(named, grouped)
    return fields, is_whole


def _groups_of(named: PickupField, node: PolicyNode | None) -> tuple[FieldGroup, ...] | None:
    """The groups of a field; None where one of their names cannot be read."""
    if node is None:
        return ()
    groups = next(read_each([node], lambda node: tuple(_groups(named, node))), None)
    if not node.has_all_names:
        return None
    return groups


FieldAndGroups = tuple[PickupField, PolicyNode | None]
"""A field, and the part with its groups where there is one."""


def _field(known: Collection[PickupField], node: PolicyNode) -> FieldAndGroups | None:
    """A field such as `remotemx`, or `remotemx: {gsuite: ['*.google.com']}`; None: refused already."""
    if not node.is_mapping:
        return _known_field(node, known), None
    entries = list(node.items("a field with groups"))
    if not node.has_all_names:
        return None
    if len(entries) != 1:
        node.fail("a field with groups is one name, with its groups below it")
    ((_, key, groups),) = entries
    return _known_field(key, known), groups


def _known_field(node: PolicyNode, known: Collection[PickupField]) -> PickupField:
    named = _pickup_field(node)
    if named not in known:
        names = [field.value for field in known]
        node.fail(f"{named.value} is no field here", names_instead(named.value, names))
    return named


def _groups(named: PickupField, node: PolicyNode) -> Iterator[FieldGroup]:
    for name, key, patterns in node.items("groups"):
        if not GROUP_NAME.matches(name):
            key.note(f"{name!r} {GROUP_NAME.problem}", GROUP_NAME.mend)
        for listed in read_each([patterns], _members):
            yield FieldGroup(name, read_patterns(named, listed))


def _members(node: PolicyNode) -> Sequence[PolicyNode]:
    return list(node.listed("the patterns of a group"))


def _condition(fields: GroupedFields, limit: LimitReader, node: PolicyNode) -> ThresholdCondition[Any]:
    """A condition on some of the fields that something is counted by."""
    parts = node.parts(CONDITION)
    wanted = read_part(parts, "if", partial(_wanted, fields), {})
    if "then" not in parts and node.is_sure_of("then", CONDITION):
        mend = "Write the limits below then; then: {} sets no limit."
        node.note("a condition lacks its then", mend)
    return ThresholdCondition(wanted, read_part(parts, "then", limit, None))


def _wanted(fields: GroupedFields, node: PolicyNode) -> ReadPatterns:
    wanted = ReadPatterns()
    for _, key, values in node.items("if"):
        for named in read_each([key], partial(_counted_field, fields)):
            wanted[named] = read_patterns(named, values.one_or_more())
            groups = fields[named]
            if groups is not None:
                _refuse_unknown(named, values, groups)
                _refuse_members(values, wanted[named], groups)
    return wanted


def _counted_field(fields: GroupedFields, node: PolicyNode) -> PickupField:
    named = _pickup_field(node)
    if named not in fields:
        counted = ", ".join(field.value for field in fields) or "nothing"
        node.fail(f"this does not count by {named.value}", f"It counts by: {counted}.")
    return named


def _refuse_unknown(named: PickupField, node: PolicyNode, groups: Sequence[FieldGroup]) -> None:
    known = [group.name for group in groups]
    for value in node.one_or_more():
        if not value.is_value:
            continue
        text = value.text("a value")
        if text.startswith("#") and text[1:] not in known:
            mend = names_instead(text[1:], known, "It has", "#")
            value.note(f"{named.value} has no group {text!r} here", mend)


def _refuse_members(node: PolicyNode, patterns: Iterable[ValuePattern], groups: Sequence[FieldGroup]) -> None:
    """A value that belongs to a group is counted as that: no condition on it alone would ever hold."""
    for pattern in patterns:
        if not isinstance(pattern, ExactValue) or not pattern.value:
            continue
        for group in groups:
            if group.holds(pattern.value):
                node.note(f"{pattern.value} is counted as #{group.name}, and never alone", f"Write '#{group.name}'.")
                break
