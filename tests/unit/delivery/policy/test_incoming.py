"""Rules for mails that come in: which hold, what they come to, and which change nothing."""

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.policy.file.reading import policies_of
from mailmend.delivery.policy.incoming import (
    EXPIRES,
    IncomingField,
    IncomingOutcome,
    IncomingRule,
    IncomingValues,
    ValueTemplate,
    checked_value,
    idle_because,
    outcome_of,
    rules_before_header,
    unknown_name,
)
from mailmend.delivery.policy.policy import RegexValues, pattern_of
from mailmend.mailqueue.rules.mails import PRIORITY_ATTRIBUTE
from mailmend.model.errors import WrongUse

NOW: Final = datetime(2026, 5, 1, 8, tzinfo=UTC)
FIELDS: Final = "client, helo, user, sender, senderdomain, recipient, recipientdomain"


def read(text: str) -> tuple[IncomingRule, ...]:
    return policies_of(f"incoming: {text}", "policies.yaml").said.incoming


def values(header: dict[str, str] | None = None, **said: str) -> IncomingValues:
    found = {(IncomingField(name), ""): IncomingField(name).of(text) for name, text in said.items()}
    return found | {(IncomingField.HEADER, name): text for name, text in (header or {}).items()}


def outcome(text: str, header: dict[str, str] | None = None, **said: str) -> IncomingOutcome:
    return outcome_of(read(text), values(header, **said), NOW)


def attributes(text: str, header: dict[str, str] | None = None, **said: str) -> dict[str, str | int]:
    return dict(outcome(text, header, **said).attributes)


SPECIAL_FIRST: Final = """
- {if: {client: 10.1.0.0/16}, set: {transportid: alerts}}
- {if: {senderdomain: '*.example.org'}, set: {transportid: news, tenantid: '${senderdomain}'}}
- {set: {transportid: bulk, jobid: daily}}
"""


@pytest.mark.parametrize(
    ("client", "domain", "made"),
    [
        ("10.1.2.3", "a.Example.org", {"transportid": "alerts", "tenantid": "a.example.org", "jobid": "daily"}),
        ("::ffff:10.1.2.3", "", {"transportid": "alerts", "jobid": "daily"}),
        ("10.2.0.1", "a.example.org", {"transportid": "news", "tenantid": "a.example.org", "jobid": "daily"}),
        ("10.2.0.1", "example.org", {"transportid": "bulk", "jobid": "daily"}),
    ],
)
def test_each_attribute_is_set_by_the_first_rule_that_names_it(client: str, domain: str, made: dict[str, str]) -> None:
    """Of those that hold; what other rules set is added."""
    assert attributes(SPECIAL_FIRST, client=client, senderdomain=domain) == made


def test_a_rule_that_stops_is_the_last() -> None:
    """Where it holds."""
    text = "[{if: {helo: own.example}, stop: true}, {set: {jobid: a}}]"
    assert attributes(text, helo="own.example.") == {}
    assert attributes(text, helo="other.example") == {"jobid": "a"}


def test_what_is_set_to_nothing_is_left_to_no_later_rule() -> None:
    text = "[{if: {sender: ''}, set: {jobid: ''}}, {set: {jobid: a}}]"
    assert (attributes(text, sender=""), attributes(text, sender="b@c.d")) == ({}, {"jobid": "a"})


def test_fields_of_one_rule_all_have_to_match_and_one_value_of_each() -> None:
    text = "[{if: {sender: [Ann@example.org, bob@example.org], recipientdomain: example.com}, set: {jobid: a}}]"
    assert attributes(text, sender="ann@Example.org", recipientdomain="EXAMPLE.com") == {"jobid": "a"}
    assert attributes(text, sender="bob@example.org", recipientdomain="example.com") == {"jobid": "a"}
    assert attributes(text, sender="ann@example.org", recipientdomain="a.example.com") == {}
    assert attributes(text, sender="cy@example.org", recipientdomain="example.com") == {}


def test_a_value_may_hold_groups_of_expressions_and_fields_of_the_mail() -> None:
    """By number where there is one expression, and by name."""
    assert attributes(
        "[{if: {header: {X-Job: '/^(\\w+)-(\\w+)$/'}}, set: {jobid: '${2}/${1}', attributes: {by: '${sender}'}}}]",
        {"x-job": "may-news"},
        sender="ann@example.org",
    ) == {"jobid": "news/may", "by": "ann@example.org"}
    assert attributes(
        "[{if: {sender: '/^b-(?P<job>[^@]+)@/', header: {X-Tenant: ['/^(?P<of>a.*)$/', '/^(?P<of_b>b.*)$/']}},"
        " set: {jobid: '${job}', tenantid: '${of}${of_b}$'}}]",
        {"x-tenant": "brown"},
        sender="b-7@example.org",
    ) == {"jobid": "7", "tenantid": "brown$"}


def test_what_is_not_there_is_the_empty_value() -> None:
    """A header field, an address that is none, a group that took no part."""
    assert attributes("[{if: {header: {X-Job: ''}}, set: {jobid: none}}]") == {"jobid": "none"}
    assert attributes("[{if: {header: {X-Job: '/./'}}, set: {jobid: some}}]") == {}
    assert attributes("[{if: {client: ''}, set: {jobid: a}}]", client="nobody") == {"jobid": "a"}
    assert attributes("[{if: {sender: '/^(a)|b/'}, set: {jobid: 'x${1}'}}]", sender="b@c.d") == {"jobid": "x"}


def test_an_expiry_is_a_span_from_now_and_a_priority_a_number() -> None:
    assert attributes("[{set: {expires: 4h, priority: 0}}]") == {
        EXPIRES: (NOW + timedelta(hours=4)).isoformat(),
        PRIORITY_ATTRIBUTE: 0,
    }


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("jobid", "a" * 201),
        ("jobid", "a\tb"),
        ("expires", "soon"),
        ("expires", "0s"),
        ("expires", "367d"),
        ("priority", "10"),
        ("priority", "-1"),
        ("priority", "high"),
        ("priority", "٣"),
        ("priority", "²"),
    ],
)
def test_what_a_client_says_that_cannot_be_is_not_set_and_named(name: str, said: str) -> None:
    """No later rule sets it either: what decided is above."""
    text = f"[{{if: {{header: {{X: '/(.+)/'}}}}, set: {{{name}: '${{1}}', tenantid: a}}}}, {{set: {{{name}: 5}}}}]"
    found = outcome(text, {"x": said})
    assert found.attributes == (("tenantid", "a"),)
    assert found.unusable == (PRIORITY_ATTRIBUTE if name == "priority" else name,)


def test_header_fields_are_removed_by_every_rule_that_holds() -> None:
    text = "[{remove: X-A}, {if: {client: 10.0.0.0/8}, remove: [X-B, x-c]}]"
    assert outcome(text, client="10.0.0.1").removes == {"x-a", "x-b", "x-c"}
    assert outcome(text, client="11.0.0.1").removes == {"x-a"}


@pytest.mark.parametrize(
    ("text", "asked", "later"),
    [
        ("[{set: {jobid: a}}, {if: {helo: b}, stop: true}]", [0, 1], set[str]()),
        ("[{if: {header: {X: a}, helo: b}, set: {jobid: c}}, {set: {jobid: d, tenantid: e}}]", [1], {"jobid"}),
        ("[{set: {jobid: a}}, {if: {header: {X: a}}, stop: true}]", [0], None),
        (
            "[{if: {header: {X: a}}, stop: true}, {if: {header: {Y: a}}, set: {jobid: b}}, {set: {jobid: c}}]",
            [2],
            None,
        ),
        (
            "[{if: {header: {X: a}}, set: {jobid: b}}, {if: {header: {Y: a}}, set: {tenantid: b}}]",
            [],
            {"jobid", "tenantid"},
        ),
    ],
)
def test_what_rules_of_the_header_may_set_is_not_known_before_it(
    text: str, asked: list[int], later: set[str] | None
) -> None:
    """Nothing is, where one of them may stop the others."""
    some = read(text)
    assert rules_before_header(iter(some)) == (tuple(some[number] for number in asked), later)


def test_the_header_as_a_whole_is_no_name_in_a_value() -> None:
    assert unknown_name(ValueTemplate.parse("${header}"), ()) is not None
    assert unknown_name(ValueTemplate.parse("${client}"), ()) is None


@pytest.mark.parametrize("text", ["${", "a${b", "${a}${", "${a{b}}"])
def test_a_reference_without_its_end_is_refused(text: str) -> None:
    with pytest.raises(WrongUse, match="without its end"):
        ValueTemplate.parse(text)


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("[{}]", ()),
        ("[{if: {client: 10.0.0.1}}]", ()),
        ("[{set: {jobid: a}}, {if: {client: 10.0.0.1}, set: {jobid: b}}]", (0,)),
        ("[{stop: true}, {set: {jobid: b}}]", (0,)),
        ("[{set: {jobid: a}}, {set: {tenantid: a}, remove: X}, {if: {helo: a}, set: {jobid: b}, remove: X}]", (0, 1)),
        ("[{if: {client: 10.0.0.0/8}, set: {jobid: a}}, {if: {client: 10.1.0.0/16}, set: {jobid: b}}]", (0,)),
        ("[{if: {header: {X: a}}, set: {jobid: a}}, {if: {header: {x: a}, sender: b@c}, set: {jobid: b}}]", (0,)),
        ("[{if: {client: 10.0.0.0/8}, set: {jobid: a}}, {if: {client: [10.0.0.1, '::1']}, set: {jobid: b}}]", None),
        ("[{if: {header: {X: a}}, set: {jobid: a}}, {if: {header: {Y: a}}, set: {jobid: b}}]", None),
        ("[{set: {jobid: a}}, {set: {jobid: b, tenantid: c}}]", None),
        ("[{set: {jobid: a}}, {set: {jobid: b}, remove: X}]", None),
        ("[{set: {jobid: a}}, {set: {jobid: b}, stop: true}]", None),
        ("[{stop: true}]", None),
        ("[{remove: X}]", None),
        ("[{set: {jobid: a}}, {set: {jobid: b}}, {set: {jobid: c}}]", (0,)),
        ("[{set: {tenantid: q}}, {set: {jobid: a}, remove: X}, {set: {jobid: b}, remove: X}]", (1,)),
        ("[{remove: X}, {remove: Y}, {remove: [X, Y]}]", (0, 1)),
        ("[{hold: true}]", None),
        ("[{delay: 0}]", None),
        ("[{hold: false}, {if: {helo: a}, hold: true}]", (0,)),
        ("[{hold: true}, {if: {helo: a}, reject: true}]", None),
        ("[{reject: true, delay: 5}, {delay: 6, reject: 451}]", (0,)),
        ("[{remove: X}, {remove: [X, Y]}]", None),
        ("[{if: {helo: a}, stop: true}, {set: {jobid: a}}, {set: {jobid: b}}]", (1,)),
    ],
)
def test_a_rule_that_earlier_ones_leave_nothing_to_changes_nothing(text: str, because: tuple[int, ...] | None) -> None:
    """Only where that is certain."""
    rules = read(text)
    assert idle_because(rules, len(rules) - 1) == because


clients = st.sampled_from(["10.0.0.1", "10.1.0.1", "192.0.2.1", ""])
networks = st.sampled_from(["10.0.0.0/8", "10.1.0.0/16", "10.0.0.1", "192.0.2.1", ""])
domains = st.sampled_from(["a.org", "*.a.org", "/b/", "/.*/", "b.a.org"])
templates = st.sampled_from(["one", "two", "", "${client}"]).map(ValueTemplate.parse)
patterns = st.fixed_dictionaries(
    {},
    optional={
        (IncomingField.CLIENT, ""): st.lists(
            networks.map(lambda text: pattern_of(IncomingField.CLIENT, text)), min_size=1, max_size=2
        ).map(tuple),
        (IncomingField.SENDER_DOMAIN, ""): st.lists(
            domains.map(lambda text: pattern_of(IncomingField.SENDER_DOMAIN, text)), min_size=1, max_size=2
        ).map(tuple),
    },
)
rules_of_any_kind = st.builds(
    IncomingRule,
    patterns,
    st.dictionaries(st.sampled_from(["jobid", "tenantid"]), templates, max_size=2),
    st.frozensets(st.sampled_from(["x-a", "x-b"]), max_size=1),
    st.booleans(),
    st.sampled_from([None, "", "spam"]),
    st.sampled_from([None, timedelta(), timedelta(minutes=1)]),
    st.sampled_from([None, "", "550 5.7.1 no"]),
)


@given(st.lists(rules_of_any_kind, min_size=1, max_size=4), clients, st.sampled_from(["a.org", "b.a.org", "c.org"]))
def test_without_rules_that_change_nothing_every_mail_comes_to_the_same(
    rules: list[IncomingRule], client: str, domain: str
) -> None:
    """Whatever the rules and the mail."""
    left = [one for number, one in enumerate(rules) if idle_because(rules, number) is None]
    mail = {(IncomingField.CLIENT, ""): client, (IncomingField.SENDER_DOMAIN, ""): domain}
    assert outcome_of(left, mail, NOW) == outcome_of(rules, mail, NOW)


@pytest.mark.parametrize(
    ("text", "expressions", "why"),
    [
        ("${}", [], "${} is no name of a group or field"),
        ("${a b}", [], "${a b} is no name of a group or field"),
        ("${0}", ["(a)"], "${0} is no name of a group or field"),
        ("${100}", ["(a)"], "${100} is no name of a group or field"),
        ("${1}", [], "${1} counts the groups of one expression, and this rule has 0"),
        ("${1}", ["(a)", "(b)"], "${1} counts the groups of one expression, and this rule has 2"),
        ("${1} ${2}", ["(a)"], "${2} is not one of the 1 groups of the expression"),
        (
            "${tenant}",
            ["(?P<job>a)"],
            f"${{tenant}} is neither a group of an expression of this rule nor one of {FIELDS}",
        ),
    ],
)
def test_a_name_that_means_nothing_in_a_rule_is_refused_with_the_reason(
    text: str, expressions: list[str], why: str
) -> None:
    found = unknown_name(ValueTemplate.parse(text), [RegexValues(expression) for expression in expressions])

    assert found == why


@pytest.mark.parametrize(
    ("text", "expressions"),
    [
        ("plain", []),
        ("${1}${2}", ["(a)(b)"]),
        ("${11}", ["(a)" * 11]),
        ("${Job_2}", ["(?P<Job_2>a)"]),
        ("${one}${two}${helo}", ["(?P<one>a)", "(?P<two>b)"]),
    ],
)
def test_names_of_groups_and_fields_mean_something(text: str, expressions: list[str]) -> None:
    assert unknown_name(ValueTemplate.parse(text), [RegexValues(expression) for expression in expressions]) is None


def test_attributes_are_sorted_by_name_whichever_rule_sets_them() -> None:
    """Also those of a rule of which another attribute is set already."""
    text = "[{set: {tenantid: a, jobid: b}}, {set: {jobid: c, transportid: d}}]"
    assert outcome(text).attributes == (("jobid", "b"), ("tenantid", "a"), ("transportid", "d"))


def test_a_field_that_is_not_known_adds_nothing_to_a_value() -> None:
    """A group of an expression comes before a field of the same name, and a field of the header is no name."""
    assert attributes("[{set: {jobid: 'x${helo}'}}]") == {"jobid": "x"}
    text = "[{if: {sender: '/^(?P<helo>[^@]+)@/'}, set: {jobid: '${helo}'}}]"
    assert attributes(text, {"helo": "header"}, sender="ann@example.org", helo="a.example") == {"jobid": "ann"}
    assert attributes("[{set: {jobid: '${helo}'}}]", {"": "header"}, helo="a.example") == {"jobid": "a.example"}


def test_a_value_of_the_greatest_length_and_span_is_set() -> None:
    assert checked_value("jobid", "a" * 200, NOW) == "a" * 200
    assert checked_value(EXPIRES, "366d", NOW) == (NOW + timedelta(days=366)).isoformat()
    assert [checked_value(PRIORITY_ATTRIBUTE, text, NOW) for text in ("0", "9")] == [0, 9]
    assert checked_value(PRIORITY_ATTRIBUTE, "", NOW) == ""


def test_the_refusal_of_a_priority_names_the_priorities_there_are() -> None:
    with pytest.raises(WrongUse) as refused:
        checked_value(PRIORITY_ATTRIBUTE, "10", NOW)

    assert str(refused.value.mend) == "Priorities go from 0, the last, to 9, the first."
