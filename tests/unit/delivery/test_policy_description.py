"""The description of the policy file leaves nothing out that the classes of policies have."""

from dataclasses import fields
from typing import Any

import pytest

from mailmend.delivery.policy.automation import AutomaticRule
from mailmend.delivery.policy.file.description import (
    BYTES,
    CONDITION,
    INCOMING,
    POLICY,
    QUOTA,
    QUOTA_LIMIT,
    THRESHOLD,
)
from mailmend.delivery.policy.file.reading import policies_of
from mailmend.delivery.policy.file.reply_description import AUTOMATIC_RULE, REPLY_RULE
from mailmend.delivery.policy.file.transport_forms import TRANSPORT
from mailmend.delivery.policy.incoming import IncomingRule
from mailmend.delivery.policy.policy import CounterPolicy, Threshold, ThresholdCondition
from mailmend.delivery.policy.quotas import QueueQuota, QuotaLimit
from mailmend.delivery.policy.reply_classes import ReplyRule
from mailmend.delivery.transports import Transport
from mailmend.model.file_forms import FileForm

KEPT = [
    (THRESHOLD, Threshold),
    (CONDITION, ThresholdCondition),
    (POLICY, CounterPolicy),
    (QUOTA, QueueQuota),
    (QUOTA_LIMIT, QuotaLimit),
    (INCOMING, IncomingRule),
    (REPLY_RULE, ReplyRule),
    (AUTOMATIC_RULE, AutomaticRule),
]


@pytest.mark.parametrize(("form", "kept"), KEPT)
def test_answers_show_each_attribute_that_the_reader_keeps(form: FileForm, kept: type[Any]) -> None:
    shown = {answer.attribute or name for name, answer in form.answers.items() if answer.attribute is not None}
    assert shown == {field.name for field in fields(kept)}


@pytest.mark.parametrize(
    ("form", "kept"),
    [
        (THRESHOLD, Threshold),
        (QUOTA_LIMIT, QuotaLimit),
        (INCOMING, IncomingRule),
        (REPLY_RULE, ReplyRule),
        (AUTOMATIC_RULE, AutomaticRule),
    ],
)
def test_a_part_of_the_file_sets_each_attribute(form: FileForm, kept: type[Any]) -> None:
    assert {part.attribute or part.name for part in form.parts} == {field.name for field in fields(kept)}


def test_answers_show_all_that_a_transport_says_but_its_signer() -> None:
    """Keys are shown by their selectors, and a login by whether there is one."""
    shown = {answer.attribute or name for name, answer in TRANSPORT.answers.items() if answer.attribute is not None}
    read = {part.attribute or part.name for part in TRANSPORT.parts}
    assert shown == read == {field.name for field in fields(Transport)} - {"signer"}


def test_an_answer_shows_a_transport_without_its_secrets() -> None:
    text = "nexthop: {host: a.example, user: ann, passwordenv: P}, dkim: {b.example: {selector: s, key: k.pem}}"
    transport = policies_of(f"transports: {{a: {{reuse: {{mails: 5}}, {text}}}}}", "policies.yaml").said.transports["a"]
    assert TRANSPORT.json(transport, transport="a", line=1) == {
        "transport": "a",
        "line": 1,
        "sources": None,
        "tls": None,
        "protocol": None,
        "timeouts": None,
        "reuse": {"mails": 5, "idle": 5.0},
        "nexthop": {"host": "a.example", "port": 25, "auth": True},
        "dkim": {"b.example": ["s"]},
    }


def test_what_is_required_is_a_part() -> None:
    for form, _ in KEPT:
        assert set(form.required) <= set(form.names)


@pytest.mark.parametrize(
    ("text", "size"),
    [("5", 5), ("5K", 5 * 2**10), ("5 mb", 5 * 2**20), ("5GiB", 5 * 2**30), ("5t", 5 * 2**40)],
)
def test_sizes_have_units_of_1024(text: str, size: int) -> None:
    assert BYTES.parse(text) == size


INCOMING_RULE = """
incoming:
- if: {sender: bob@x.example, header: {X-Job: [a, b], X-Two: c}}
  set: {jobid: '${sender}', expires: 2d, priority: 7, attributes: {customer: x}}
  remove: [X-Two, X-Job]
  hold: 'true'
  delay: 10m
  reject: false
"""
COUNTED = """
- fields: [jobid: {bulk: [a, b]}, localip]
  conditions: [{if: {jobid: '#bulk'}, then: {concurrency: 2}}]
  default: {rate: 100/60, connectinterval: 0.5, stop: true}
"""


def test_an_answer_shows_a_rule_as_the_file_spells_it() -> None:
    (rule,) = policies_of(INCOMING_RULE, "policies.yaml").said.incoming

    assert INCOMING.json(rule, rule=1, line=3) == {
        "rule": 1,
        "line": 3,
        "if": {"sender": ["bob@x.example"], "header": {"x-job": ["a", "b"], "x-two": ["c"]}},
        "set": {"jobid": "${sender}", "expires": "2d", "priority": "7", "attributes": {"customer": "x"}},
        "remove": ["x-job", "x-two"],
        "hold": "a rule of incoming holds such mails",
        "delay_seconds": 600.0,
        "reject": "",
        "stop": False,
    }


def test_an_answer_shows_a_policy_with_its_groups_and_limits() -> None:
    (policy,) = policies_of(COUNTED, "policies.yaml").said.policies
    none = {"concurrency": None, "rate": None, "connect_interval_seconds": None, "stop": False, "cluster": True}

    assert POLICY.json(policy, policy=1, line=2) == {
        "policy": 1,
        "line": 2,
        "fields": ["jobid", "localip"],
        "groups": {"jobid": {"bulk": ["a", "b"]}},
        "conditions": [{"if": {"jobid": ["#bulk"]}, "then": {**none, "concurrency": 2}}],
        "default": {
            **none,
            "rate": {"count": 100, "seconds": 60.0},
            "connect_interval_seconds": 0.5,
            "stop": True,
        },
    }
