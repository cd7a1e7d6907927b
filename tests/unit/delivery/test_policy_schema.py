"""The published schema of a policy file: it takes what the reader takes, and refuses what is wrong in form."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from mailmend.delivery.policy.file import schema as policy_schema
from mailmend.delivery.policy.file.forms import BadPolicyFile
from mailmend.delivery.policy.file.reading import policies_of
from mailmend.delivery.policy.policy import PickupField
from mailmend.delivery.policy.rates import RateAlgorithm
from tests.unit.delivery.test_policy_file import PER_ADDRESS, PER_DOMAIN, ROLLED_UP, SUSPENDED

SCHEMA = policy_schema.policy_schema()
VALIDATOR = Draft202012Validator(SCHEMA)


def in_yaml_1_2(text: str) -> Any:
    """What an editor makes of a text: YAML 1.2's core types, in which `no` is a word and 012 is twelve."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    return _value(node) if node else None


def _value(node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {key.value: _value(value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_value(one) for one in node.value]
    return node.value if node.style in {"'", '"'} else _plain(node.value)


def _plain(text: str) -> Any:
    if text in {"", "~", "null", "Null", "NULL"}:
        return None
    if text.lower() in {"true", "false"} and text in {text.lower(), text.upper(), text.capitalize()}:
        return text.lower() == "true"
    if re.fullmatch("[-+]?[0-9]+", text):
        return int(text)
    if re.fullmatch(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", text):
        return float(text)
    return text


def is_taken(text: str) -> bool:
    """Whether the reader takes it."""
    try:
        policies_of(text, "policies.yaml")
    except BadPolicyFile:
        return False
    return True


def is_valid(text: str) -> bool:
    return not list(VALIDATOR.iter_errors(in_yaml_1_2(text)))


AUTOMATIC = "name: a, class: RateLimited, fields: [jobid], trigger: 5/60"

TAKEN = [
    PER_ADDRESS,
    PER_DOMAIN,
    ROLLED_UP,
    SUSPENDED,
    "- {localip: 192.0.2.1}\n- {}",
    "[]",
    "{}",
    "policies: []",
    "version: '1'\nrate: {algorithm: sliding}\nlists: {vip: [a.org, '*.b.org', 5, no, '']}\nsuspends: []",
    "lists: {vip: [192.0.2.1]}\nsuspends: [{}, {localip: ['@vip', '192.0.2.0/24'], jobid: [1, ~, no]}]",
    "- {fields: [jobid, remotemx: {g: ['/^mx[0-9]/', '*.a.org']}], conditions: [{if: {remotemx: '#g'}, then: {}}]}",
    "- {fields: [localip: {g: [192.0.2.0/24, '::1', '/^10/', '']}], default: {stop: TRUE}}",
    "- {fields: [jobid], conditions: [{if: {jobid: }, then: {concurrency: 0}}, {if: {}, then: {}}, {then: {}}]}",
    "- default: {rate: 5, concurrency: 012, connectinterval: .5, stop: false}",
    "- default: {rate: ' 100 / 60 ', concurrency: '999999999', connectinterval: '0', stop: 'False'}",
    "- default: {rate: [100, 60], connectinterval: 999999999.999999999}",
    "- default: {rate: ['100', '0.5'], stop: tRuE}",
    "- default: {rate: [5]}",
    "- default: {rate: 1/.5}",
    "suspends: [{localip: , jobid: [true, 1.5]}]",
    "tenants: {acme: 3, '': 100, 12: '1', x: 007}",
    "tenants: {}",
    "incoming: []",
    "incoming: [{}, {if: {}, set: {}, stop: true}, {remove: X-Job}, {remove: [X-Job, 5], stop: 'False'}]",
    "incoming: [{if: {client: [10.0.0.0/8, '::1'], sender: '/^b-(.+)@/'}, set: {jobid: 'a-${1}', priority: 9}}]",
    "incoming: [{if: {header: {X-Job: ['/./', x, 5, ~]}}, set: {expires: 2h, attributes: {a: 5, b: , c: no}}}]",
    "incoming: [{hold: true}, {hold: a reason}, {hold: no}, {hold: 5}, {hold: False}]",
    "incoming: [{delay: 600}, {delay: 0}, {delay: 0.5}, {delay: 10m}, {delay: 366d}, {delay: '5'}]",
    "incoming: [{reject: true}, {reject: 550}, {reject: 451 4.7.1 later}, {reject: not here}, {reject: false}]",
    "fields: [campaign, X-Wave.2]\npolicies: [{fields: [campaign, X-Wave.2: {g: [a, '/b/']}]}]",
    "fields: [campaign]\nsuspends: [{campaign: [a, 5, '/x/']}]",
    "fields: [campaign]\npolicies: [{fields: [campaign], conditions: [{if: {campaign: a}, then: {}}]}]",
    "quotas: []",
    "quotas: [{name: 5, fields: [tenantid, recipientdomain: {g: ['*.a.org']}], default: {messages: 0, bytes: 5G}}]",
    "quotas: [{name: a, conditions: [{then: {bytes: 5 kib}}, {if: {}, then: {messages: '7', bytes: 012}}]}]",
    "quotas: [{name: a.b, fields: [jobid], conditions: [{if: {jobid: [/x/, ~]}, then: {}}], default: {}}]",
    "classes: []\nautomation: []",
    "classes: [{class: A}, {class: B-1, code: 421, enhanced: 4.7.1, reply: x}, {class: C, code: [45x, '5xx', 550]}]",
    "classes: [{class: D, enhanced: [x.7.28, 5.x.x], reply: ['/a|b/', 5, true]}, {class: True, reply: a}]",
    "automation: [{name: 5, class: RateLimited, fields: [jobid], trigger: 5/60, then: suspend, for: 600}]",
    "automation: [{name: a, class: [Timeout], if: {jobid: }, fields: [jobid], trigger: 1/2, then: {rate: 1}, for: 1H}]",
    "classes: [{class: A}]\nautomation: [{name: a, class: A, fields: [jobid], trigger: 5/9, then: {rate: 1}, for: 2d}]",
    "transports: {}",
    "transports: {'*': {}, '': {tls: none, protocol: lmtp, dkim: {}}, 5: {dkim: {a.org: []}}}",
    "transports: {a: {sources: [{address: 192.0.2.1}, {address: '::1', helo: A.example}]}}",
    "transports: {a: {timeouts: {connect: 1, tls: .5, greeting: '2', command: 9999.9, data: 3, end: 4}, reuse: {}}}",
    "transports: {a: {reuse: {mails: 10000, idle: 0.1}, nexthop: {host: a.org, port: 0587}}}",
    "transports: {a: {nexthop: {host: '::1', port: '65535', user: 5, passwordfile: ./p}}}",
    "transports: {a: {nexthop: {host: 192.0.2.1, user: u, passwordenv: P_1}}}",
    "transports: {a: {dkim: {a.org: {selector: 2026, key: k}, 'b.org': [{selector: a.b, key: ~/k}]}}}",
    "lists: {l: [a.org]}\nincoming: [{if: {senderdomain: '@l', recipientdomain: '*.b.org', helo: a, recipient: b@c}}]",
]


@pytest.mark.parametrize("text", TAKEN)
def test_what_the_reader_takes_is_valid(text: str) -> None:
    """Each spelling of values, and everything that may be left out."""
    policies_of(text, "policies.yaml")
    assert not list(VALIDATOR.iter_errors(in_yaml_1_2(text)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "limits: []",
        "policies: 5",
        "policies:",
        "rate: {algorithm: fast}",
        "rate: {algorithms: sliding}",
        "rate: sliding",
        "lists: []",
        "lists: {a: b}",
        "lists: {a: [[b]]}",
        "lists: {a: [b: c]}",
        "suspends: {}",
        "quotas: {}",
        "quotas: [{}]",
        "quotas: [{name: a b}]",
        "quotas: [{name: }]",
        "quotas: [{name: a, fields: [localip]}]",
        "quotas: [{name: a, fields: [remotemx: {g: [a.org]}]}]",
        "quotas: [{name: a, default: {concurrency: 5}}]",
        "quotas: [{name: a, default: {messages: -1}}]",
        "quotas: [{name: a, default: {messages: 5K}}]",
        "quotas: [{name: a, default: {bytes: 1.5}}]",
        "quotas: [{name: a, default: {bytes: 5X}}]",
        "quotas: [{name: a, conditions: [{if: {}}]}]",
        "suspends: [{jobid: '#g'}]",
        "suspends: [{localip: ['#g']}]",
        "suspends: [{localip: nowhere}]",
        "- 5",
        "tenants: [acme]",
        "tenants: {acme: 0}",
        "tenants: {acme: 101}",
        "tenants: {acme: 1.5}",
        "tenants: {acme: much}",
        "tenants: {acme: }",
        "tenants: {acme: {weight: 3}}",
        "- {field: [jobid]}",
        "- {fields: jobid}",
        "- {fields: [5]}",
        "- {fields: [jobid, jobid]}",
        "- {fields: [{}]}",
        "- {fields: [{jobid: {}, localip: {}}]}",
        "- {fields: ['a b': {}]}",
        "- {fields: [jobid: ]}",
        "- {fields: [jobid: {'a b': [x]}]}",
        "- {fields: [jobid: {-a: [x]}]}",
        "- {fields: [jobid: {a: x}]}",
        "- {fields: [jobid: {a: [[x]]}]}",
        "- {fields: [localip: {a: [nowhere]}]}",
        "- {conditions: {}}",
        "- {conditions: [{if: {}}]}",
        "- {conditions: [{when: {}, then: {}}]}",
        "- {fields: [jobid], conditions: [{if: {jobid: [[a]]}, then: {}}]}",
        "- {fields: [localip], conditions: [{if: {localip: nowhere}, then: {}}]}",
        "- {conditions: [{if: , then: {}}]}",
        "- {conditions: [{then: }]}",
        "- {default: }",
        "- {default: 5}",
        "- {default: {concurency: 5}}",
        "- {default: {concurrency: -1}}",
        "- {default: {concurrency: 1.5}}",
        "- {default: {concurrency: many}}",
        "- {default: {concurrency: ' 5'}}",
        "- {default: {concurrency: 1000000000}}",
        "- {default: {concurrency: }}",
        "- {default: {concurrency: [5]}}",
        "- {default: {rate: 0}}",
        "- {default: {rate: 00/5}}",
        "- {default: {rate: 1/0}}",
        "- {default: {rate: 1/0.00}}",
        "- {default: {rate: 1.5}}",
        "- {default: {rate: -1}}",
        "- {default: {rate: 1/-1}}",
        "- {default: {rate: 1/2/3}}",
        "- {default: {rate: []}}",
        "- {default: {rate: [1, 2, 3]}}",
        "- {default: {rate: [0, 1]}}",
        "- {default: {rate: [1, 0]}}",
        "- {default: {rate: {count: 1}}}",
        "- {default: {connectinterval: soon}}",
        "- {default: {connectinterval: -1}}",
        "- {default: {connectinterval: 1000000001}}",
        "- {default: {stop: maybe}}",
        "- {default: {stop: 1}}",
        "transports: []",
        "transports: {a: }",
        "transports: {a: {source: []}}",
        "transports: {a: {sources: {}}}",
        "transports: {a: {sources: [192.0.2.1]}}",
        "transports: {a: {sources: [{helo: a.b}]}}",
        "transports: {a: {tls: yes}}",
        "transports: {a: {protocol: http}}",
        "transports: {a: {timeouts: {connect: 0}}}",
        "transports: {a: {timeouts: {end: 10000}}}",
        "transports: {a: {timeouts: 5}}",
        "transports: {a: {reuse: {mails: 0}}}",
        "transports: {a: {reuse: {mails: 10001}}}",
        "transports: {a: {nexthop: a.org}}",
        "transports: {a: {nexthop: {port: 25}}}",
        "transports: {a: {nexthop: {host: a.org, port: 65536}}}",
        "transports: {a: {nexthop: {host: a.org, port: 0}}}",
        "transports: {a: {nexthop: {host: a.org, user: u, password: p}}}",
        "transports: {a: {nexthop: {host: a.org, user: u, passwordenv: a b}}}",
        "transports: {a: {dkim: {a.org: k}}}",
        "transports: {a: {dkim: {a.org: {selector: a_b, key: k}}}}",
        "transports: {a: {dkim: {a.org: {selector: s}}}}",
        "incoming: {}",
        "incoming: [5]",
        "incoming: [{then: {}}]",
        "incoming: [{if: {domain: a.org}}]",
        "incoming: [{if: {client: nowhere}}]",
        "incoming: [{if: {sender: '#g'}}]",
        "incoming: [{if: {header: X-Job}}]",
        "incoming: [{if: {header: {X Job: a}}}]",
        "incoming: [{if: {header: {X-Job: [[a]]}}}]",
        "incoming: [{set: {job: a}}]",
        "incoming: [{set: {jobid: [a]}}]",
        "incoming: [{set: {attributes: [a]}}]",
        "incoming: [{set: {attributes: {a: [b]}}}]",
        "incoming: [{remove: 'X Job'}]",
        "incoming: [{remove: [[X-Job]]}]",
        "incoming: [{stop: 1}]",
        "classes: {}",
        "classes: [5]",
        "classes: [{code: 421}]",
        "classes: [{class: a b}]",
        "classes: [{class: 5}]",
        "classes: [{class: A, code: 921}]",
        "classes: [{class: A, code: 42}]",
        "classes: [{class: A, enhanced: 4.7}]",
        "classes: [{class: A, reply: [[a]]}]",
        "classes: [{class: A, text: a}]",
        "automation: {}",
        "automation: [{}]",
        f"automation: [{{{AUTOMATIC}, then: stop, for: 10m}}]",
        f"automation: [{{{AUTOMATIC}, then: {{concurency: 1}}, for: 10m}}]",
        f"automation: [{{{AUTOMATIC}, then: suspend}}]",
        f"automation: [{{{AUTOMATIC}, then: suspend, for: soon}}]",
        f"automation: [{{{AUTOMATIC}, then: suspend, for: 5}}]",
        "automation: [{name: a, class: RateLimited, fields: [], trigger: 5/60, then: suspend, for: 10m}]",
        "automation: [{name: a, class: RateLimited, fields: [domain], trigger: 5/60, then: suspend, for: 10m}]",
        "automation: [{name: a, class: RateLimited, fields: [jobid, jobid], trigger: 5/60, then: suspend, for: 10m}]",
        "automation: [{name: a, class: RateLimited, fields: [jobid], trigger: 5, then: suspend, for: 10m}]",
        "automation: [{name: a, class: RateLimited, fields: [jobid], trigger: 0/5, then: suspend, for: 10m}]",
        "automation: [{name: a b, class: RateLimited, fields: [jobid], trigger: 5/60, then: suspend, for: 10m}]",
        f"automation: [{{{AUTOMATIC}, if: {{jobid: '#g'}}, then: suspend, for: 10m}}]",
        "incoming: [{hold: ''}]",
        "incoming: [{hold: [a]}]",
        "incoming: [{delay: soon}]",
        "incoming: [{delay: -1}]",
        "incoming: [{delay: 1y}]",
        "incoming: [{reject: ''}]",
        "incoming: [{reject: größer}]",
    ],
)
def test_what_is_wrong_in_form_is_refused_by_both(text: str) -> None:
    """By the reader, and by the schema that editors use."""
    assert (is_taken(text), is_valid(text)) == (False, False)


@pytest.mark.parametrize(
    "text",
    [
        "- {fields: [jobid], conditions: [{if: {jobid: '#a'}, then: {}}]}",
        "- {fields: [jobid], conditions: [{if: {jobid: '@a'}, then: {}}]}",
        "- {fields: [jobid], conditions: [{if: {localip: 192.0.2.1}, then: {}}]}",
        "- {fields: [jobid], conditions: [{if: {jobid: '/a(?=b)/'}, then: {}}]}",
        "- {fields: [localip], conditions: [{if: {localip: 192.0.2.256}, then: {}}]}",
        "rate: {algorithm: sliding}\npolicies: [{default: {rate: 99999}}]",
        "transports: {a: {sources: []}}",
        "transports: {a: {sources: [{address: nowhere}]}}",
        "transports: {a: {nexthop: {host: a.org, user: u}}}",
        "transports: {a: {dkim: {'a b': {selector: s, key: k}}}}",
        "suspends: [{domain: a.org}]",
        "- {fields: [domain]}",
        "- {fields: [domain: {}]}",
        "- {fields: [jobid], conditions: [{if: {domain: a}, then: {}}]}",
        "fields: [jobid]",
        "fields: [mailmend.x]",
        "incoming: [{set: {priority: 10}}]",
        "incoming: [{set: {expires: soon}}]",
        "incoming: [{set: {jobid: '${1}'}}]",
        "incoming: [{set: {attributes: {jobid: a}}}]",
        "incoming: [{if: {header: {X-A: a, x-a: b}}}]",
        "classes: [{class: A, reply: ''}]",
        "classes: [{class: A, reply: '/(/'}]",
        "automation: [{name: a, class: Unheard, fields: [jobid], trigger: 5/60, then: suspend, for: 10m}]",
        "automation: [{name: a, class: RateLimited, fields: [jobid], trigger: 5000/60, then: suspend, for: 10m}]",
        f"automation: [{{{AUTOMATIC}, then: suspend, for: 5s}}]",
        f"automation: [{{{AUTOMATIC}, then: {{}}, for: 5m}}]",
        "automation: [{name: a, class: [], fields: [jobid], trigger: 5/60, then: suspend, for: 10m}]",
        f"automation: [{{{AUTOMATIC}, then: suspend, for: 10m}}, {{{AUTOMATIC}, then: suspend, for: 10m}}]",
        f"automation: [{{{AUTOMATIC}, then: {{concurrency: 1}}, for: 10m, if: {{localip: 192.0.2.256}}}}]",
        f"policies: [{{fields: [localip]}}]\nautomation: [{{{AUTOMATIC}, then: {{concurrency: 1}}, for: 10m}}]",
        "incoming: [{hold: 'by ${sender}'}]",
        "incoming: [{reject: 250 fine}]",
        "incoming: [{delay: 400d}]",
    ],
)
def test_what_takes_more_than_form_the_reader_alone_refuses(text: str) -> None:
    """Names that are nowhere, expressions, sums."""
    assert (is_taken(text), is_valid(text)) == (False, True)


fields = st.sampled_from([*(one.value for one in PickupField), "domain"])
texts = st.sampled_from(["", "a", "*.a.org", "/a/", "#g", "@l", "192.0.2.1", "192.0.2.0/24", "::1", "true", "5", "a b"])
values = st.one_of(texts, st.integers(-1, 2), st.booleans(), st.none(), st.just(0.5))
several = st.one_of(values, st.lists(values, max_size=2), st.just([["a"]]))
rates = st.one_of(
    st.integers(-1, 3),
    st.from_regex(r"\A ?[0-9]{1,2}(/[0-9.]{1,3})? ?\Z"),
    st.lists(st.one_of(st.integers(0, 3), st.sampled_from(["1", "0.5", ".5", "1/2", "x"]), st.just(0.25)), max_size=3),
    values,
)
thresholds = st.fixed_dictionaries(
    {},
    optional={
        "concurrency": values,
        "rate": rates,
        "connectinterval": st.one_of(values, rates),
        "stop": values,
        "cluster": values,
    },
)
conditions = st.fixed_dictionaries(
    {}, optional={"if": st.dictionaries(fields, several, max_size=2), "then": thresholds, "when": thresholds}
)
groups = st.dictionaries(st.sampled_from(["g", "a.b", "a b", ""]), st.lists(values, max_size=2), max_size=2)
counted = st.lists(st.one_of(fields, st.dictionaries(fields, groups, max_size=2)), max_size=3)
policies = st.lists(
    st.fixed_dictionaries(
        {}, optional={"fields": counted, "conditions": st.lists(conditions, max_size=2), "default": thresholds}
    ),
    max_size=2,
)
asked = st.one_of(
    st.dictionaries(st.sampled_from(["client", "helo", "sender", "recipientdomain", "job"]), several, max_size=2),
    st.fixed_dictionaries({"header": st.one_of(values, st.dictionaries(st.sampled_from(["X-A", "X A"]), several))}),
)
made = st.dictionaries(
    st.sampled_from(["jobid", "expires", "priority", "attributes", "job"]),
    st.one_of(values, st.sampled_from(["2h", 7, "${1}", "${sender}"]), st.dictionaries(texts, values, max_size=1)),
    max_size=2,
)
incoming = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "if": asked,
            "set": made,
            "remove": several,
            "hold": several,
            "delay": values,
            "reject": st.one_of(values, st.sampled_from(["550 5.1.1 no", "421 x", 450, "4.7.1"])),
            "stop": values,
        },
    ),
    max_size=2,
)
scalars = st.one_of(values, st.sampled_from(["A", "a b", "421", "45x", "x.7.1", "5/60", "10m", "suspend", 421, 600]))
some_scalars = st.one_of(scalars, st.lists(scalars, max_size=2))
classes = st.lists(
    st.fixed_dictionaries(
        {"class": scalars}, optional={"code": some_scalars, "enhanced": some_scalars, "reply": some_scalars}
    ),
    max_size=2,
)
automation = st.lists(
    st.fixed_dictionaries(
        {"name": scalars, "class": st.sampled_from(["RateLimited", "A", ["RateLimited"]])},
        optional={
            "fields": st.lists(fields, max_size=2),
            "trigger": scalars,
            "then": st.one_of(scalars, thresholds),
            "for": scalars,
            "if": st.dictionaries(fields, several, max_size=1),
        },
    ),
    max_size=1,
)
whole = st.fixed_dictionaries(
    {},
    optional={
        "version": values,
        "rate": st.fixed_dictionaries({}, optional={"algorithm": st.sampled_from(["sliding", "fast", 1])}),
        "lists": st.dictionaries(st.sampled_from(["l", "m"]), several),
        "policies": policies,
        "suspends": st.lists(st.dictionaries(fields, several, max_size=2), max_size=2),
        "incoming": incoming,
        "classes": classes,
        "automation": automation,
        "tenants": st.dictionaries(texts, several, max_size=2),
        "limits": policies,
    },
)


@given(st.one_of(policies, whole))
def test_nothing_that_the_reader_takes_is_invalid(document: Any) -> None:
    """Whatever is written: an editor never marks what the server would take."""
    text = json.dumps(document)
    if is_taken(text):
        assert not list(VALIDATOR.iter_errors(document)), text


def test_the_schema_is_one() -> None:
    """Of its draft, with every field and algorithm that there is."""
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    text = policy_schema.schema_text()
    assert all(f'"{one.value}"' in text for one in (*PickupField, *RateAlgorithm))


def test_the_published_schema_is_up_to_date() -> None:
    assert policy_schema.main(["--check"]) == 0


def test_a_published_schema_that_is_not_is_reported_and_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(policy_schema, "PAGE", tmp_path / "policy.schema.json")
    assert policy_schema.main(["--check"]) == 1
    assert "python -m mailmend.delivery.policy.file.schema" in capsys.readouterr().err
    assert policy_schema.main([]) == 0
    assert policy_schema.main(["--check"]) == 0
