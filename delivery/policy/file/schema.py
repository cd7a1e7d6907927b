"""The JSON schema of a policy file, by its description.

A schema sees no more than form: that a group or list is there, that an expression is one, and that a sliding rate is
not too large, the reader alone can say. `python -m mailmend.delivery.policy.file.schema` writes
`docs/policy.schema.json`; with `--check` it exits 1 when that is not up to date.
"""

import json
import sys
from pathlib import Path
from typing import Final

from mailmend.cql.generated import write_or_check
from mailmend.delivery.policy.file.description import (
    CONDITION,
    FILE,
    POLICY,
    QUOTA,
    QUOTA_CONDITION,
    QUOTA_LIMIT,
    SUSPENSION_SCHEMA,
    THRESHOLD,
)
from mailmend.delivery.policy.file.reply_description import AUTOMATIC_RULE, REPLY_RULE
from mailmend.delivery.policy.file.transport_forms import TRANSPORT
from mailmend.delivery.policy.policy import PickupField
from mailmend.model.file_forms import JsonSchema, defined, list_schema

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "policy.schema.json"


_NAMES_A_FIELD: Final = {"type": "object", "anyOf": [{"required": [field.value]} for field in PickupField]}
_OF_SUSPENSIONS: Final = {"contains": _NAMES_A_FIELD}
"""A list of which an entry names a field of mails; a policy names its fields below `fields`."""


_LIST: Final = {
    "if": _OF_SUSPENSIONS,
    "then": defined("suspensions"),
    "else": defined("policies"),
}


def policy_schema() -> JsonSchema:
    """The schema of a policy file as YAML 1.2 reads it, of draft 2020-12."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Policies of mailmend delivery serve",
        "description": "A list of policies or of suspensions, or all parts by their names.",
        "if": {"type": "array"},
        "then": _LIST,
        "else": defined("file"),
        "$defs": {
            "file": FILE.schema,
            "suspensions": list_schema(SUSPENSION_SCHEMA),
            "policies": list_schema(defined("policy")),
            "policy": POLICY.schema,
            "condition": CONDITION.schema,
            "threshold": THRESHOLD.schema,
            "quota": QUOTA.schema,
            "quota_condition": QUOTA_CONDITION.schema,
            "quota_limit": QUOTA_LIMIT.schema,
            "reply_rule": REPLY_RULE.schema,
            "automatic_rule": AUTOMATIC_RULE.schema,
            "transport": TRANSPORT.schema,
        },
    }


def schema_text() -> str:
    return json.dumps(policy_schema(), indent=2) + "\n"


def main(arguments: list[str]) -> int:
    """With --check, exit 1 when the file is out of date; else write it."""
    otherwise = "is not what the reader takes: python -m mailmend.delivery.policy.file.schema writes it anew"
    return write_or_check(arguments, PAGE, schema_text(), otherwise)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
