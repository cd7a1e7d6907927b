"""The one description of a policy file: its parts, how each value is written, and what it means.

The reader, the JSON schema and the answers of HTTP routes and commands follow from these tables.
A table says form and meaning. What depends on other parts of a file, such as whether a condition
names a field that its policy counts by, the reader alone knows.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from mailmend.delivery.policy.incoming import IncomingField
from mailmend.delivery.policy.policy import MatchedField, PickupField
from mailmend.delivery.policy.quotas import QUOTA_FIELDS
from mailmend.delivery.policy.rates import SECOND, RateAlgorithm
from mailmend.delivery.policy.turns import WEIGHT_MAX
from mailmend.mailqueue.rules.mails import PRIORITY_ATTRIBUTE
from mailmend.model.errors import WrongUse

JsonSchema = Mapping[str, Any]

_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_ALGORITHMS: Final = [algorithm.value for algorithm in RateAlgorithm]


ANY_VALUE: Final[JsonSchema] = {"type": ["string", "number", "boolean", "null"]}
"""A value is its text, whatever type YAML has for it; a missing text is the empty value."""


def whole(pattern: str) -> JsonSchema:
    """What matches an expression from its beginning to its end."""
    return {"pattern": f"^(?:{pattern})$"}


def text_schema(pattern: str) -> JsonSchema:
    return {"type": "string", **whole(pattern)}


@dataclass(frozen=True, slots=True)
class Scalar:
    """How one value is written.

    Attributes:
        pattern: what the text of the value matches as a whole.
        meaning: what a text that matches stands for.
        problem: what is wrong with any other text; the text itself comes before it.
        mend: how the value is written.
        unquoted: the JSON schema of the value where YAML makes another type than a text of it.
        form: the JSON schema of the value, where it is neither of the two.
    """

    pattern: str
    meaning: Callable[[re.Match[str]], Any]
    problem: str
    mend: str = ""
    unquoted: JsonSchema | None = None
    form: JsonSchema | None = None

    def matches(self, text: str) -> bool:
        return re.fullmatch(self.pattern, text) is not None

    def parse(self, text: str) -> Any:
        """What a text stands for.

        Raises:
            WrongUse: it is no such value.
        """
        found = re.fullmatch(self.pattern, text)
        if not found:
            raise WrongUse(f"{text!r} {self.problem}", mend=self.mend)
        return self.meaning(found)

    @property
    def schema(self) -> JsonSchema:
        return self.form or {"anyOf": [self.unquoted, text_schema(self.pattern)]}


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


@dataclass(frozen=True, slots=True)
class FilePart:
    """A name in a mapping of the file, and what is written there.

    Attributes:
        value: one value, which the reader parses by this; or the JSON schema of anything else.
        meaning: for people who write policy files; "" where the name says it.
        attribute: where the reader keeps it; "": under the part's own name.
    """

    name: str
    value: Scalar | JsonSchema
    meaning: str = ""
    attribute: str = ""

    @property
    def schema(self) -> JsonSchema:
        return described(self.meaning, self.value.schema if isinstance(self.value, Scalar) else self.value)


@dataclass(frozen=True, slots=True)
class FileForm:
    """A mapping of the file: it may have these parts and no others.

    Attributes:
        what: what errors call it.
        required: the names of parts that must be there.
    """

    what: str
    parts: tuple[FilePart, ...]
    meaning: str = ""
    required: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.parts)

    @property
    def schema(self) -> JsonSchema:
        schema = described(self.meaning, object_schema({part.name: part.schema for part in self.parts}))
        return {**schema, "required": list(self.required)} if self.required else schema


def described(text: str, schema: JsonSchema) -> JsonSchema:
    return {"description": text, **schema} if text else schema


def object_schema(parts: Mapping[str, JsonSchema]) -> JsonSchema:
    """A mapping with these names and no others."""
    return {"type": "object", "properties": parts, "additionalProperties": False}


def by_name(schema: JsonSchema, name: Scalar | None = None) -> JsonSchema:
    """A mapping of things by their name."""
    names = {"propertyNames": whole(name.pattern)} if name else {}
    return {"type": "object", **names, "additionalProperties": schema}


def list_schema(items: JsonSchema) -> JsonSchema:
    return {"type": "array", "items": items}


def one_or_more(schema: JsonSchema) -> JsonSchema:
    return {"anyOf": [schema, list_schema(schema)]}


def defined(name: str) -> JsonSchema:
    """What the schema defines under a name."""
    return {"$ref": f"#/$defs/{name}"}


_ADDRESS: Final[JsonSchema] = {
    **text_schema(r"(?:[@#][\s\S]*|/[\s\S]*/|[0-9A-Fa-f:.]+(?:%[^/]+)?(?:/[0-9A-Fa-f:.]+)?|)"),
    "type": ["string", "null"],
}
_NO_GROUP: Final[JsonSchema] = {"not": {"type": "string", "pattern": "^#"}}


def _value(field: MatchedField) -> JsonSchema:
    return _ADDRESS if field.is_address else ANY_VALUE


def _patterns(fields: Iterable[MatchedField]) -> dict[str, JsonSchema]:
    """Patterns by field, where a file has no groups."""
    return {field.value: one_or_more({**_value(field), **_NO_GROUP}) for field in fields}


def _condition(fields: Iterable[PickupField], limits: str) -> FileForm:
    patterns = {field.value: one_or_more(_value(field)) for field in fields}
    return FileForm(
        "a condition",
        (FilePart("if", object_schema(patterns)), FilePart("then", defined(limits))),
        "The first that holds sets all limits, in place of the default; each field must match.",
        required=("then",),
    )


def _counted(fields: tuple[PickupField, ...], condition: str, limits: str) -> tuple[FilePart, ...]:
    """What a policy and a quota say alike: what is counted together, and its limits."""
    groups = {
        field.value: {
            "description": "Values that are counted as one, by the name of their group.",
            **by_name(list_schema(_value(field)), GROUP_NAME),
        }
        for field in fields
    }
    grouped = {**object_schema(groups), "minProperties": 1, "maxProperties": 1}
    named = {"enum": [field.value for field in fields]}
    return (
        FilePart(
            "fields",
            {**list_schema({"anyOf": [named, grouped]}), "uniqueItems": True},
            "What is counted together: mails with the same values of these fields; without fields, all of them.",
        ),
        FilePart("conditions", list_schema(defined(condition))),
        FilePart("default", defined(limits)),
    )


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


THRESHOLD: Final = FileForm(
    "a threshold",
    (
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
)
CONDITION: Final = _condition(PickupField, "threshold")
POLICY: Final = FileForm("a policy", _counted(tuple(PickupField), "condition", "threshold"))

QUOTA_LIMIT: Final = FileForm(
    "the limits of a quota",
    (
        FilePart("messages", MESSAGES, "Mails; 0 lets none in."),
        FilePart("bytes", BYTES, "Bytes of mails whose size was noted: 500M, 5G."),
    ),
)
QUOTA_CONDITION: Final = _condition(QUOTA_FIELDS, "quota_limit")
QUOTA: Final = FileForm(
    "a quota",
    (
        FilePart("name", QUOTA_NAME, "What clients and metrics call it."),
        *_counted(QUOTA_FIELDS, "quota_condition", "quota_limit"),
    ),
    "How much of what is counted together may be in the queue before clients have to come again with more.",
    required=("name",),
)

_HEADERS: Final = by_name(one_or_more({**ANY_VALUE, **_NO_GROUP}), HEADER_FIELD)
SET_ATTRIBUTES: Final = {
    "transportid": "transportid",
    "jobid": "jobid",
    "tenantid": "tenantid",
    "grouping": "grouping",
    "expires": "expires",
    PRIORITY_ATTRIBUTE: "priority",
}
"""The attributes that a rule sets by a part of its own, and the name of that part."""

SET: Final = FileForm(
    "set",
    (
        *(FilePart(name, ANY_VALUE) for name in SET_ATTRIBUTES.values()),
        FilePart("attributes", by_name(ANY_VALUE)),
    ),
)
INCOMING: Final = FileForm(
    "a rule of incoming",
    (
        FilePart("if", object_schema({**_patterns(IncomingField), "header": _HEADERS}), "", "patterns"),
        FilePart("set", SET.schema, "", "sets"),
        FilePart("remove", one_or_more(HEADER_FIELD.schema), "Header fields that are taken out.", "removes"),
        FilePart("stop", YES_NO, "Later rules are not looked at."),
    ),
    "For mails that clients hand over: each attribute is set by the first rule that holds and names it.",
)

RATE: Final = FileForm("rate", (FilePart("algorithm", ALGORITHM),))
FILE: Final = FileForm(
    "a policy file",
    (
        FilePart("version", {}, "For people; any value."),
        FilePart("rate", RATE.schema),
        FilePart(
            "lists",
            by_name(list_schema(ANY_VALUE)),
            "Values by name: '@name' stands for each of them.",
        ),
        FilePart("policies", defined("policies")),
        FilePart(
            "suspends",
            list_schema(object_schema(_patterns(PickupField))),
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
    ),
)
