"""The one description of a policy file: its parts, how each value is written, and what it means.

The reader, the JSON schema and the answers of HTTP routes and commands follow from these tables.
A table says form and meaning. What depends on other parts of a file, such as whether a condition
names a field that its policy counts by, the reader alone knows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from mailmend.delivery.policy.covering import FieldPatterns, pattern_text
from mailmend.delivery.policy.file.arrival_forms import ARRIVAL_ANSWERS, ARRIVAL_PARTS
from mailmend.delivery.policy.file.custom_forms import CUSTOM_FIELD, CUSTOM_PART, with_custom
from mailmend.delivery.policy.incoming import IncomingField, IncomingPatterns, ValueTemplate
from mailmend.delivery.policy.policy import FieldGroup, MatchedField, PickupField, ValuePattern
from mailmend.delivery.policy.quotas import QUOTA_FIELDS
from mailmend.delivery.policy.rates import SECOND, RateAlgorithm
from mailmend.delivery.policy.turns import WEIGHT_MAX
from mailmend.mailqueue.rules.mails import PRIORITY_ATTRIBUTE
from mailmend.model.file_forms import (
    ANY_VALUE,
    FileForm,
    FilePart,
    JsonSchema,
    Scalar,
    by_name,
    defined,
    described,
    list_schema,
    object_schema,
    one_or_more,
    text_schema,
    whole,
)
from mailmend.model.json_forms import JsonField

_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_ALGORITHMS: Final = [algorithm.value for algorithm in RateAlgorithm]


def _whole_numbers(digits: int, of: str, mend: str) -> Scalar:
    unquoted = {"type": "integer", "minimum": 0, "maximum": 10**digits - 1}
    pattern = f"[0-9]{{1,{digits}}}"
    return Scalar(pattern, lambda found: int(found[0]), f"is no number of {of}", mend, unquoted)


YES_NO: Final = Scalar(
    "[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]",
    lambda found: found[0].lower() == "true",
    "is neither true nor false",
    unquoted={"type": "boolean"},
)
COUNT: Final = _whole_numbers(9, "deliveries", "Write 0, which lets none begin, or more.")
MESSAGES: Final = _whole_numbers(15, "mails", "Write 0, which lets none in, or more.")
SECONDS: Final = Scalar(
    r"[0-9]{1,9}(?:\.[0-9]{1,9})?|\.[0-9]{1,9}",
    lambda found: round(float(found[0]) * SECOND),
    "is no number of seconds",
    "Write it like 5, or 0.5.",
    {"type": "number", "minimum": 0, "maximum": 1_000_000_000},
)
BYTES: Final = Scalar(
    "([0-9]{1,15})[ ]?([KMGTkmgt]?)(?:[iI]?[bB])?",
    lambda found: int(found[1]) * _UNITS[found[2].upper()],
    "is no number of bytes",
    "Write it like 5000000, 500M or 5G; K is 1024.",
    MESSAGES.unquoted,
)
WEIGHT: Final = Scalar(
    "0*(?:[1-9][0-9]?|100)",
    lambda found: int(found[0]),
    "is no weight of a tenant",
    f"Write 1 to {WEIGHT_MAX}; a suspension holds mails.",
    {"type": "integer", "minimum": 1, "maximum": WEIGHT_MAX},
)
ALGORITHM: Final = Scalar(
    "|".join(_ALGORITHMS),
    lambda found: RateAlgorithm(found[0]),
    "is no algorithm of rates",
    f"There are: {', '.join(_ALGORITHMS)}.",
    form={"enum": _ALGORITHMS},
)
GROUP_NAME: Final = Scalar(
    "[A-Za-z0-9_][A-Za-z0-9_.-]*",
    lambda found: found[0],
    "is no name of a group",
    "Letters, digits, '.', '-' and '_' make one.",
)
QUOTA_NAME: Final = replace(
    GROUP_NAME,
    problem="is no name of a quota",
    form={
        "anyOf": [
            text_schema(GROUP_NAME.pattern),
            {"type": "integer", "minimum": 0},
            {"type": "boolean"},
        ]
    },
)
HEADER_FIELD: Final = Scalar(
    "[!-9;-~]{1,100}",
    lambda found: found[0].lower(),
    "is no name of a header field",
    "Write it like X-Job.",
    form={**ANY_VALUE, **whole("[!-9;-~]{1,100}")},
)
"""Names of header fields mean the same in capital and in small letters."""

_ADDRESS: Final[JsonSchema] = {
    **text_schema(r"(?:[@#][\s\S]*|/[\s\S]*/|[0-9A-Fa-f:.]+(?:%[^/]+)?(?:/[0-9A-Fa-f:.]+)?|)"),
    "type": ["string", "null"],
}
_NO_GROUP: Final[JsonSchema] = {"not": {"type": "string", "pattern": "^#"}}


def _value(field: MatchedField) -> JsonSchema:
    if field.is_address:
        return _ADDRESS
    return ANY_VALUE


def _patterns(fields: Iterable[MatchedField]) -> dict[str, JsonSchema]:
    """Patterns by field, where a file has no groups."""
    return {field.value: one_or_more({**_value(field), **_NO_GROUP}) for field in fields}


def _pattern_texts(patterns: Iterable[ValuePattern]) -> list[str]:
    return [pattern_text(pattern) for pattern in patterns]


def _texts_by_field(patterns: FieldPatterns) -> dict[str, list[str]]:
    return {field.value: _pattern_texts(some) for field, some in patterns.items()}


def _groups_by_field(groups: Mapping[PickupField, Iterable[FieldGroup]]) -> dict[str, Any]:
    found = dict[str, Any]()
    for named, some in groups.items():
        found[named.value] = {group.name: _pattern_texts(group.patterns) for group in some}
    return found


PATTERNS: Final = JsonField(dict[str, list[str]], "", "patterns", _texts_by_field)
_NUMBER: Final = JsonField(int, "Its number in the file, from 1.", None)
_LINE: Final = JsonField(int | None, "", None)


def _condition(body: str, limits: FileForm, key: str, fields: Iterable[PickupField], meaning: str = "") -> FileForm:
    patterns = object_schema({field.value: one_or_more(_value(field)) for field in fields})
    if fields is PickupField:
        patterns = with_custom(patterns, one_or_more(ANY_VALUE))
    return FileForm(
        what="a condition",
        parts=(FilePart("if", patterns), FilePart("then", defined(key))),
        meaning="The first that holds sets all limits, in place of the default; each field must match.",
        required=("then",),
        body=body,
        about="Limits of some values; the first condition that holds counts.",
        answers={
            "if": replace(PATTERNS, meaning=meaning),
            "then": JsonField(limits, "", "threshold"),
        },
    )


def _counted(fields: tuple[PickupField, ...], condition: str, limits: str) -> tuple[FilePart, ...]:
    """What a policy and a quota say alike: what is counted together, and its limits."""
    groups = dict[str, JsonSchema]()
    for field in fields:
        described_group = by_name(list_schema(_value(field)), GROUP_NAME)
        groups[field.value] = described("Values that are counted as one, by the name of their group.", described_group)
    grouped = {**object_schema(groups), "minProperties": 1, "maxProperties": 1}
    named: JsonSchema = {"enum": [field.value for field in fields]}
    if len(fields) == len(PickupField):
        group = by_name(list_schema(ANY_VALUE), GROUP_NAME)
        grouped = {**with_custom(object_schema(groups), group), "minProperties": 1, "maxProperties": 1}
        named = {"anyOf": [named, CUSTOM_FIELD]}
    return (
        FilePart(
            "fields",
            {**list_schema({"anyOf": [named, grouped]}), "uniqueItems": True},
            "What is counted together: mails with the same values of these fields; without fields, all of them.",
        ),
        FilePart("conditions", list_schema(defined(condition))),
        FilePart("default", defined(limits)),
    )


def _counted_answers(condition: FileForm, limits: FileForm) -> dict[str, JsonField]:
    groups = dict[str, dict[str, list[str]]]
    return {
        "fields": JsonField(list[str], to_json=_field_names),
        "groups": JsonField(groups, to_json=_groups_by_field),
        "conditions": JsonField(condition, many=True),
        "default": JsonField(limits, optional=True),
    }


def _field_names(fields: Iterable[PickupField]) -> list[str]:
    return [field.value for field in fields]


def _seconds(nanos: int | None) -> float | None:
    if not nanos:
        return None
    return nanos / SECOND


def _rate() -> JsonSchema:
    """A number of deliveries, and the seconds in which they may begin."""
    count_text = r"0*[1-9][0-9]*"
    seconds_text = r"(?=[0-9.]*[1-9])(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
    count = {"type": "integer", "minimum": 1}
    seconds = {"type": "number", "exclusiveMinimum": 0}
    text = text_schema(rf"\s*{count_text}\s*(?:/\s*{seconds_text}\s*)?")
    second = {"anyOf": [seconds, text_schema(rf"\s*{seconds_text}\s*")]}
    pair = {"prefixItems": [{"anyOf": [count, text]}, second], "items": False}
    return {"anyOf": [count, text, {"type": "array", "minItems": 1, **pair}]}


DELIVERY_RATE: Final = FileForm(
    body="RateBody",
    about="At most `count` deliveries in an interval.",
    answers={
        "count": JsonField(int),
        "seconds": JsonField(float, "", "interval", _seconds),
    },
)
THRESHOLD: Final = FileForm(
    what="a threshold",
    parts=(
        FilePart("concurrency", COUNT, "Deliveries at once; 0 lets none begin."),
        FilePart("rate", _rate(), "X, X/Y or [X, Y]: at most X deliveries begin in Y seconds, or in one."),
        FilePart("connectinterval", SECONDS, "Seconds between two connections.", "connect_interval"),
        FilePart("stop", YES_NO, "Later policies neither count nor limit such a mail."),
        FilePart(
            "cluster",
            YES_NO,
            "Whether the servers of a queue share these limits, as by default; else each has all of them.",
        ),
    ),
    body="ThresholdBody",
    about="Limits; null is no limit.",
    answers={
        "concurrency": JsonField(int | None),
        "rate": JsonField(DELIVERY_RATE, optional=True),
        "connect_interval_seconds": JsonField(
            float | None, "Between two new connections.", "connect_interval", _seconds
        ),
        "stop": JsonField(bool, "Later policies are not consulted."),
        "cluster": JsonField(bool, "Whether the servers of the queue share them; else each has all of them."),
    },
)
CONDITION: Final = _condition(
    "ConditionBody",
    THRESHOLD,
    "threshold",
    PickupField,
    "Patterns by field, as a policy file spells them.",
)
POLICY: Final = FileForm(
    what="a policy",
    parts=_counted(tuple(PickupField), "condition", "threshold"),
    body="PolicyBody",
    about="What is counted together, and its limits.",
    answers={"policy": _NUMBER, "line": _LINE, **_counted_answers(CONDITION, THRESHOLD)},
)

QUOTA_LIMIT: Final = FileForm(
    what="the limits of a quota",
    parts=(
        FilePart("messages", MESSAGES, "Mails; 0 lets none in."),
        FilePart("bytes", BYTES, "Bytes of mails whose size was noted: 500M, 5G."),
    ),
    body="QuotaLimitBody",
    about="How much may be in the queue; null is no limit.",
    answers={"messages": JsonField(int | None), "bytes": JsonField(int | None)},
)
QUOTA_CONDITION: Final = _condition("QuotaConditionBody", QUOTA_LIMIT, "quota_limit", QUOTA_FIELDS)
QUOTA: Final = FileForm(
    what="a quota",
    parts=(
        FilePart("name", QUOTA_NAME, "What clients and metrics call it."),
        *_counted(QUOTA_FIELDS, "quota_condition", "quota_limit"),
    ),
    meaning="How much of what is counted together may be in the queue before clients have to come again with more.",
    required=("name",),
    body="QuotaBody",
    about="What of the queue is counted together, and how much of it there may be.",
    answers={
        "name": JsonField(str),
        "line": _LINE,
        **_counted_answers(QUOTA_CONDITION, QUOTA_LIMIT),
    },
)
SUSPENSION: Final = FileForm(
    body="FileSuspensionBody",
    about="What the file suspends.",
    answers={"suspension": JsonField(int, "", None), "line": _LINE, "fields": PATTERNS},
)

_HEADERS: Final = by_name(one_or_more({**ANY_VALUE, **_NO_GROUP}), HEADER_FIELD)
_SET: Final = ("transportid", "jobid", "tenantid", "grouping", "expires")
SET_ATTRIBUTES: Final = {**{name: name for name in _SET}, PRIORITY_ATTRIBUTE: "priority"}
"""The attributes that a rule sets by a part of its own, and the name of that part."""

SET: Final = FileForm(
    what="set",
    parts=(
        *(FilePart(name, ANY_VALUE) for name in SET_ATTRIBUTES.values()),
        FilePart("attributes", by_name(ANY_VALUE)),
    ),
    body="SetAttributesBody",
    about="What a rule sets; `${...}` stands for a group of its expression, or a field. What is not set is not there.",
    answers={
        **dict.fromkeys(SET_ATTRIBUTES.values(), JsonField(str)),
        "expires": JsonField(str, "A span from when the mail came."),
        "attributes": JsonField(dict[str, str], "Others, by name."),
    },
    sparse=True,
)


def _set_values(sets: Mapping[str, ValueTemplate]) -> dict[str, Any]:
    """What a rule sets, as the file spells it: other attributes are below `attributes`."""
    known = dict[str, Any]()
    others = dict[str, str]()
    for attribute, template in sets.items():
        if attribute in SET_ATTRIBUTES:
            known[SET_ATTRIBUTES[attribute]] = template.text
        else:
            others[attribute] = template.text
    if others:
        known["attributes"] = others
    return known


def _incoming_texts(patterns: IncomingPatterns) -> dict[str, Any]:
    """Patterns by field; `header` is last and has patterns by the name of the header field."""
    found = dict[str, Any]()
    headers = dict[str, list[str]]()
    for (named, header), some in patterns.items():
        if header:
            headers[header] = _pattern_texts(some)
        else:
            found[named.value] = _pattern_texts(some)
    if headers:
        found[IncomingField.HEADER.value] = headers
    return found


_INCOMING_PATTERNS: Final = object_schema({**_patterns(IncomingField), "header": _HEADERS})
INCOMING: Final = FileForm(
    what="a rule of incoming",
    parts=(
        FilePart("if", _INCOMING_PATTERNS, "", "patterns"),
        FilePart("set", SET.schema, "", "sets"),
        FilePart("remove", one_or_more(HEADER_FIELD.schema), "Header fields that are taken out.", "removes"),
        *ARRIVAL_PARTS,
        FilePart("stop", YES_NO, "Later rules are not looked at."),
    ),
    meaning="For mails that clients hand over: each attribute is set by the first rule that holds and names it.",
    body="IncomingRuleBody",
    about="What becomes of mails that clients hand over, where all of its patterns hold.",
    answers={
        "rule": _NUMBER,
        "line": _LINE,
        "if": JsonField(
            dict[IncomingField, list[str] | dict[str, list[str]]],
            "Patterns by field; for `header`, by the name of the header field.",
            "patterns",
            _incoming_texts,
        ),
        "set": JsonField(SET, "", "sets", _set_values),
        "remove": JsonField(list[str], "Header fields, in small letters.", "removes", sorted),
        **ARRIVAL_ANSWERS,
        "stop": JsonField(bool, "Later rules are not looked at."),
    },
)

RATE: Final = FileForm(what="rate", parts=(FilePart("algorithm", ALGORITHM),))
SUSPENSION_SCHEMA: Final = with_custom(object_schema(_patterns(PickupField)), one_or_more({**ANY_VALUE, **_NO_GROUP}))

FILE: Final = FileForm(
    what="a policy file",
    parts=(
        FilePart("version", {}, "For people; any value."),
        FilePart("rate", RATE.schema),
        FilePart(
            "lists",
            by_name(list_schema(ANY_VALUE)),
            "Values by name: '@name' stands for each of them.",
        ),
        CUSTOM_PART,
        FilePart("policies", defined("policies")),
        FilePart(
            "suspends",
            defined("suspensions"),
            "Mails that are held back: each field of one must match; {} is every mail.",
            "suspensions",
        ),
        FilePart("incoming", list_schema(INCOMING.schema)),
        FilePart(
            "tenants",
            by_name(WEIGHT.schema),
            "Weights by tenant: one of 3 has three turns while another has one; '' is mails without tenant.",
            "weights",
        ),
        FilePart("quotas", list_schema(defined("quota"))),
        FilePart("classes", list_schema(defined("reply_rule")), "Classes, before the shipped ones."),
        FilePart(
            "automation",
            list_schema(defined("automatic_rule")),
            "What is ordered automatically when replies of a class come too often.",
        ),
        FilePart(
            "transports",
            by_name(defined("transport")),
            "How mails are sent, by their transportid; '*' says what the others do not say.",
        ),
    ),
)
