"""The form of a policy file: the names of its parts and how values are spelt, for the reader, and as a JSON schema.

A schema sees no more than form: that a group or list is there, that an expression is one, and that a sliding rate is
not too large, the reader alone can say. `python -m mailmend.delivery.policy.file.schema` writes
`docs/policy.schema.json`; with `--check` it exits 1 when that is not up to date.
"""

import json
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from mailmend.cql.generated import write_or_check
from mailmend.delivery.policy.incoming import IncomingField
from mailmend.delivery.policy.policy import MatchedField, PickupField
from mailmend.delivery.policy.quotas import QUOTA_FIELDS
from mailmend.delivery.policy.rates import RateAlgorithm
from mailmend.delivery.policy.turns import WEIGHT_MAX

FILE_PARTS: Final = ("version", "rate", "lists", "policies", "suspends", "incoming", "tenants", "quotas")
RATE_PARTS: Final = ("algorithm",)
POLICY_PARTS: Final = ("fields", "conditions", "default")
CONDITION_PARTS: Final = ("if", "then")
THRESHOLD_PARTS: Final = ("concurrency", "rate", "connectinterval", "stop", "cluster")

INCOMING_PARTS: Final = ("if", "set", "remove", "stop")
SET_FIELDS: Final = ("transportid", "jobid", "tenantid", "grouping", "expires", "priority")
SET_PARTS: Final = (*SET_FIELDS, "attributes")
QUOTA_PARTS: Final = ("name", "fields", "conditions", "default")
QUOTA_LIMIT_PARTS: Final = ("messages", "bytes")

FIELD_NAME: Final = re.compile(r"[!-9;-~]{1,100}")
WEIGHT: Final = re.compile(r"0*(?:[1-9][0-9]?|100)")
GROUP_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
COUNT: Final = re.compile(r"[0-9]{1,9}")
MESSAGES: Final = re.compile(r"[0-9]{1,15}")
BYTES: Final = re.compile(r"([0-9]{1,15})[ ]?([KMGTkmgt]?)(?:[iI]?[bB])?")
SECONDS: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?|\.[0-9]{1,9}")

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "policy.schema.json"

JsonSchema = Mapping[str, Any]
F = TypeVar("F", bound=MatchedField)

_YES_NO: Final = "[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]"
_RATE_SECONDS: Final = r"(?=[0-9.]*[1-9])(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
_RATE_COUNT: Final = r"0*[1-9][0-9]*"
_ADDRESS: Final = r"(?:[@#][\s\S]*|/[\s\S]*/|[0-9A-Fa-f:.]+(?:%[^/]+)?(?:/[0-9A-Fa-f:.]+)?|)"
_NO_GROUP: Final[JsonSchema] = {"not": {"type": "string", "pattern": "^#"}}


def policy_schema() -> JsonSchema:
    """The schema of a policy file as YAML 1.2 reads it, of draft 2020-12."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://raw.githubusercontent.com/mailmend/mailmend/main/docs/policy.schema.json",
        "title": "Policies of mailmend delivery serve",
        "description": "A list of policies alone, or below `policies`, next to what else a file may hold.",
        "if": {"type": "array"},
        "then": {"$ref": "#/$defs/policies"},
        "else": {"$ref": "#/$defs/file"},
        "$defs": {
            "file": _object(
                FILE_PARTS,
                {
                    "version": _described({}, "For people; any value."),
                    "rate": _object(
                        RATE_PARTS, {"algorithm": {"enum": [algorithm.value for algorithm in RateAlgorithm]}}
                    ),
                    "lists": _described(
                        {"type": "object", "additionalProperties": {"type": "array", "items": _value()}},
                        "Values by name: '@name' stands for each of them.",
                    ),
                    "policies": {"$ref": "#/$defs/policies"},
                    "suspends": _suspends(),
                    "incoming": {"type": "array", "items": _incoming()},
                    "tenants": _tenants(),
                    "quotas": {"type": "array", "items": {"$ref": "#/$defs/quota"}},
                },
            ),
            "policies": {"type": "array", "items": {"$ref": "#/$defs/policy"}},
            "policy": _object(
                POLICY_PARTS,
                {
                    "fields": _fields(tuple(PickupField)),
                    "conditions": {"type": "array", "items": {"$ref": "#/$defs/condition"}},
                    "default": {"$ref": "#/$defs/threshold"},
                },
            ),
            "condition": _condition("threshold", PickupField),
            "threshold": _threshold(),
            "quota": _quota(),
            "quota_condition": _condition("quota_limit", QUOTA_FIELDS),
            "quota_limit": _quota_limit(),
        },
    }


def _object(parts: Sequence[str], schemas: Mapping[str, JsonSchema]) -> dict[str, Any]:
    """A mapping with these parts and no others."""
    return {"type": "object", "properties": {name: schemas[name] for name in parts}, "additionalProperties": False}


def _described(schema: JsonSchema, text: str) -> JsonSchema:
    return {"description": text, **schema}


def _by_field(schemas: Mapping[F, JsonSchema]) -> dict[str, Any]:
    return _object([name.value for name in schemas], {name.value: each for name, each in schemas.items()})


def _one_or_more(schema: JsonSchema) -> JsonSchema:
    return {"anyOf": [schema, {"type": "array", "items": schema}]}


def _value(named: MatchedField | None = None, *, groups: bool = True) -> JsonSchema:
    """A value is its text, whatever type YAML has for it; a missing text is the empty value."""
    if named and named.is_address:
        found: JsonSchema = {"type": ["string", "null"], "pattern": _whole(_ADDRESS)}
    else:
        found = {"type": ["string", "number", "boolean", "null"]}
    return found if groups else {**found, **_NO_GROUP}


def _condition(limits: str, fields: Iterable[PickupField]) -> JsonSchema:
    schemas = {
        "if": _by_field({field: _one_or_more(_value(field)) for field in fields}),
        "then": {"$ref": f"#/$defs/{limits}"},
    }
    return _described(
        {**_object(CONDITION_PARTS, schemas), "required": ["then"]},
        "The first that holds sets all limits, in place of the default; each field must match.",
    )


def _quota() -> JsonSchema:
    name = {"anyOf": [_text(GROUP_NAME.pattern), {"type": "integer", "minimum": 0}, {"type": "boolean"}]}
    schemas = {
        "name": _described(name, "What clients and metrics call it."),
        "fields": _fields(QUOTA_FIELDS),
        "conditions": {"type": "array", "items": {"$ref": "#/$defs/quota_condition"}},
        "default": {"$ref": "#/$defs/quota_limit"},
    }
    return _described(
        {**_object(QUOTA_PARTS, schemas), "required": ["name"]},
        "How much of what is counted together may be in the queue before clients have to come again with more.",
    )


def _quota_limit() -> JsonSchema:
    count = {"type": "integer", "minimum": 0, "maximum": 999_999_999_999_999}
    schemas = {
        "messages": _described({"anyOf": [count, _text(MESSAGES.pattern)]}, "Mails; 0 lets none in."),
        "bytes": _described({"anyOf": [count, _text(BYTES.pattern)]}, "Bytes of mails whose size was noted: 500M, 5G."),
    }
    return _object(QUOTA_LIMIT_PARTS, schemas)


def _suspends() -> JsonSchema:
    return {
        "description": "Mails that are held back: each field of one must match; {} is every mail.",
        "type": "array",
        "items": _by_field({field: _one_or_more(_value(field, groups=False)) for field in PickupField}),
    }


def _incoming() -> JsonSchema:
    wanted = {field: _one_or_more(_value(field, groups=False)) for field in IncomingField}
    named = {"propertyNames": {"pattern": _whole(FIELD_NAME.pattern)}}
    header = {"type": "object", **named, "additionalProperties": wanted[IncomingField.HEADER]}
    texts = {"type": "object", "additionalProperties": _value()}
    schemas = {
        "if": _by_field({**wanted, IncomingField.HEADER: header}),
        "set": _object(SET_PARTS, {**dict.fromkeys(SET_FIELDS, _value()), "attributes": texts}),
        "remove": _described(
            _one_or_more({**_value(), "pattern": _whole(FIELD_NAME.pattern)}), "Header fields that are taken out."
        ),
        "stop": _described(_boolean(), "Later rules are not looked at."),
    }
    return _described(
        _object(INCOMING_PARTS, schemas),
        "For mails that clients hand over: each attribute is set by the first rule that holds and names it.",
    )


def _tenants() -> JsonSchema:
    weight = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": WEIGHT_MAX}, _text(WEIGHT.pattern)]}
    return {
        "description": "Weights by tenant: one of 3 has three turns while another has one; '' is mails without tenant.",
        "type": "object",
        "additionalProperties": weight,
    }


def _fields(known: Collection[PickupField]) -> JsonSchema:
    groups = {
        field: {
            "description": "Values that are counted as one, by the name of their group.",
            "type": "object",
            "propertyNames": {"pattern": _whole(GROUP_NAME.pattern)},
            "additionalProperties": {"type": "array", "items": _value(field)},
        }
        for field in known
    }
    grouped = {**_by_field(groups), "minProperties": 1, "maxProperties": 1}
    return {
        "description": "What is counted together: mails with the same values of these fields; without fields, "
        "all of them.",
        "type": "array",
        "items": {"anyOf": [{"enum": [field.value for field in known]}, grouped]},
        "uniqueItems": True,
    }


def _threshold() -> JsonSchema:
    count = {"type": "integer", "minimum": 1}
    seconds = {"type": "number", "exclusiveMinimum": 0}
    text = {"type": "string", "pattern": _whole(rf"\s*{_RATE_COUNT}\s*(?:/\s*{_RATE_SECONDS}\s*)?")}
    seconds_text = {"type": "string", "pattern": _whole(rf"\s*{_RATE_SECONDS}\s*")}
    pair = {"prefixItems": [{"anyOf": [count, text]}, {"anyOf": [seconds, seconds_text]}], "items": False}
    schemas = {
        "concurrency": _described(
            {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 999_999_999}, _text(COUNT.pattern)]},
            "Deliveries at once; 0 lets none begin.",
        ),
        "rate": _described(
            {"anyOf": [count, text, {"type": "array", "minItems": 1, **pair}]},
            "X, X/Y or [X, Y]: at most X deliveries begin in Y seconds, or in one.",
        ),
        "connectinterval": _described(
            {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1_000_000_000}, _text(SECONDS.pattern)]},
            "Seconds between two connections.",
        ),
        "stop": _described(
            _boolean(),
            "Later policies neither count nor limit such a mail.",
        ),
        "cluster": _described(
            _boolean(), "Whether the servers of a queue share these limits, as by default; else each has all of them."
        ),
    }
    return _object(THRESHOLD_PARTS, schemas)


def _boolean() -> JsonSchema:
    return {"anyOf": [{"type": "boolean"}, _text(_YES_NO)]}


def _text(pattern: str) -> JsonSchema:
    return {"type": "string", "pattern": _whole(pattern)}


def _whole(pattern: str) -> str:
    return f"^(?:{pattern})$"


def schema_text() -> str:
    return json.dumps(policy_schema(), indent=2) + "\n"


def main(arguments: list[str]) -> int:
    """With --check, exit 1 when the file is out of date; else write it."""
    otherwise = "is not what the reader takes: python -m mailmend.delivery.policy.file.schema writes it anew"
    return write_or_check(arguments, PAGE, schema_text(), otherwise)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
