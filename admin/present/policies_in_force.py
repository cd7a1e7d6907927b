"""The policies that a server of deliveries works by, as it tells them over HTTP."""

from collections.abc import Mapping
from typing import Any

from admin.present.conditions import limits_json
from admin.present.values import instant_text
from admin.services.policies_in_force import PoliciesInForce
from admin.services.policy import policy_path, suspension_path
from model.pickup.counters import PolicyChanges
from model.pickup.covering import FieldPatterns, pattern_text
from model.pickup.policy import CounterPolicy


def policies_json(served: PoliciesInForce) -> Mapping[str, Any]:
    """The file, when it was read, and what it says: policies, their conditions in order, suspensions."""
    said = served.said
    return {
        "file": str(served.file) if served.file else None,
        "read_at": instant_text(served.read_at),
        "algorithm": said.algorithm.value,
        "policies": [
            {"policy": number + 1, "line": _line(served, *policy_path(number)), **_policy_json(one)}
            for number, one in enumerate(said.policies)
        ],
        "suspends": [
            {"suspension": number + 1, "line": _line(served, *suspension_path(number)), "fields": _texts(one.patterns)}
            for number, one in enumerate(said.suspensions)
        ],
        "tenants": dict(said.weights),
        "reload": changes_json(served.changes) if served.changes else None,
    }


def changes_json(changes: PolicyChanges) -> Mapping[str, Any]:
    """By their numbers in the file, from 1."""
    return {
        "kept": [{"before": before + 1, "now": now + 1} for before, now in changes.kept],
        "new": [one + 1 for one in changes.new],
        "dropped": [one + 1 for one in changes.dropped],
    }


def _policy_json(policy: CounterPolicy) -> dict[str, Any]:
    return {
        "fields": [one.value for one in policy.fields],
        "groups": {
            named.value: {group.name: list(map(pattern_text, group.patterns)) for group in groups}
            for named, groups in policy.groups.items()
        },
        "conditions": [{"if": _texts(one.patterns), "then": limits_json(one.threshold)} for one in policy.conditions],
        "default": limits_json(policy.default) if policy.default else None,
    }


def _texts(patterns: FieldPatterns) -> dict[str, list[str]]:
    return {named.value: list(map(pattern_text, some)) for named, some in patterns.items()}


def _line(served: PoliciesInForce, *path: str | int) -> int | None:
    return served.read.place_of(path).line if served.read else None
