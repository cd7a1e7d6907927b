"""What of a policy file is legal and surely not meant: each rule, where it is silent, and that it is never wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.delivery.policy.lint import POLICY_RULES, PolicyHit, PolicyRule, lint_policies
from mailmend.delivery.policy.orders import Suspension
from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.policy.policy import (
    CounterPolicy,
    FieldGroup,
    PickupField,
    Threshold,
    ThresholdCondition,
    pattern_of,
)
from mailmend.delivery.policy.rates import SECOND, DeliveryRate

DOMAIN, MX, JOB, LOCAL_IP = (
    PickupField.RECIPIENT_DOMAIN,
    PickupField.REMOTE_MX,
    PickupField.JOB_ID,
    PickupField.LOCAL_IP,
)
TWO, THREE, FIVE, NONE = Threshold(2), Threshold(3), Threshold(5), Threshold()
Written = tuple[Mapping[str, Sequence[str]], Threshold]


def condition(written: Written) -> ThresholdCondition[Threshold]:
    values, threshold = written
    named = {PickupField(name): texts for name, texts in values.items()}
    return ThresholdCondition(
        {one: tuple(pattern_of(one, text) for text in texts) for one, texts in named.items()}, threshold
    )


def policy(*conditions: Written, default: Threshold | None = FIVE, **groups: Sequence[str]) -> CounterPolicy:
    """Counts by domain and job; the groups are of domains."""
    made = tuple(FieldGroup(name, tuple(pattern_of(DOMAIN, text) for text in some)) for name, some in groups.items())
    return CounterPolicy((DOMAIN, JOB), {DOMAIN: made} if made else {}, tuple(map(condition, conditions)), default)


def of_domain(text: str | Sequence[str], threshold: Threshold = TWO) -> Written:
    return {"recipientdomain": [text] if isinstance(text, str) else text}, threshold


def suspension(**values: Sequence[str]) -> Suspension:
    return Suspension("one", condition((values, NONE)).patterns)


def found(*policies: CounterPolicy, suspends: Sequence[Suspension] = ()) -> list[tuple[str, str]]:
    """The rules and the places of what they find."""
    findings = lint_policies(PickupPolicies(policies, suspensions=tuple(suspends)))
    return [(rule.id, "/".join(map(str, hit.path))) for rule, hit in findings]


def only(findings: Sequence[tuple[PolicyRule, PolicyHit]]) -> tuple[PolicyRule, PolicyHit]:
    (finding,) = findings
    return finding


@pytest.mark.parametrize(
    "conditions",
    [
        (of_domain("a.org"), of_domain("a.org", THREE)),
        (of_domain("*.org"), of_domain("a.org", THREE)),
        (of_domain("*.org"), of_domain("*.a.org", THREE)),
        (of_domain("/o/"), of_domain("a.org", THREE)),
        (of_domain(["a.org", "b.org"]), of_domain(["b.org"], THREE)),
        (of_domain("a.org"), ({"recipientdomain": ["a.org"], "jobid": ["x"]}, THREE)),
        (
            ({"recipientdomain": ["*.org"], "jobid": ["x", "y"]}, TWO),
            ({"recipientdomain": ["a.org"], "jobid": ["x"]}, THREE),
        ),
        (({}, TWO), of_domain("a.org", THREE)),
        (({"jobid": ["/.*/"]}, TWO), of_domain("a.org", THREE)),
    ],
)
def test_a_condition_behind_a_more_general_one_is_never_reached(conditions: tuple[Written, Written]) -> None:
    """Whatever it says; the earlier one is named."""
    findings = lint_policies(PickupPolicies((policy(*conditions),)))
    (hit,) = [hit for rule, hit in findings if rule.id == "P1"]
    assert hit.path == ("policies", 0, "conditions", 1)
    assert hit.because == (("policies", 0, "conditions", 0),)


@pytest.mark.parametrize(
    "conditions",
    [
        (of_domain("a.org"), of_domain("b.org", THREE)),
        (of_domain("a.org"), of_domain("*.org", THREE)),
        (of_domain("/^a/"), of_domain("/a/", THREE)),
        (of_domain(["a.org", "b.org"]), of_domain(["b.org", "c.org"], THREE)),
        (({"recipientdomain": ["a.org"], "jobid": ["x"]}, TWO), of_domain("a.org", THREE)),
        (({"recipientdomain": ["a.org"], "jobid": []}, TWO), of_domain("a.org", THREE)),
    ],
)
def test_a_condition_that_some_mail_may_reach_is_let_be(conditions: tuple[Written, Written]) -> None:
    assert [rule for rule, _ in found(policy(*conditions)) if rule == "P1"] == []


def test_several_conditions_may_cover_one_together() -> None:
    """Each combination of its values belongs to one of them; a single one that is free makes it reachable."""
    first = {"recipientdomain": ["a.org"], "jobid": ["x", "y"]}, TWO
    second = {"recipientdomain": ["b.org"], "jobid": ["x"]}, TWO
    third = {"recipientdomain": ["b.org"], "jobid": ["y"]}, TWO
    last = {"recipientdomain": ["a.org", "b.org"], "jobid": ["x", "y"]}, THREE
    rule, hit = only(lint_policies(PickupPolicies((policy(first, second, third, last),))))
    assert (rule.id, hit.path) == ("P1", ("policies", 0, "conditions", 3))
    assert hit.because == tuple(("policies", 0, "conditions", number) for number in range(3))
    assert hit.text == "earlier ones hold for all of its mails"
    assert found(policy(first, second, last)) == []


def test_of_very_many_combinations_nothing_is_said_unless_one_condition_covers_them_all() -> None:
    """Ten thousand of them are looked at."""
    many = [f"{number}.org" for number in range(101)]
    last = {"recipientdomain": many, "jobid": many}, THREE
    assert found(policy(of_domain(many[:50]), of_domain(many[50:]), last)) == []
    assert found(policy(of_domain("*.org"), last)) == [("P1", "policies/0/conditions/1")]
    just_too_many = {"recipientdomain": many[:73], "jobid": [str(number) for number in range(137)]}, THREE
    assert found(policy(of_domain(many[:50]), of_domain(many[50:]), just_too_many)) == []
    fewer = {"recipientdomain": many[:100], "jobid": many[:100]}, THREE
    assert found(policy(of_domain(many[:50]), of_domain(many[50:]), fewer)) == [("P1", "policies/0/conditions/2")]


def test_a_condition_with_the_limits_of_the_default_is_named() -> None:
    """Unless a later one might hold for its mails instead: then it is an exception from that one."""
    assert found(policy(of_domain("a.org", FIVE))) == [("P2", "policies/0/conditions/0")]
    assert found(policy(of_domain("a.org", FIVE), of_domain("b.org"))) == [("P2", "policies/0/conditions/0")]
    assert found(policy(of_domain("a.org", FIVE), of_domain("*.org"))) == []
    assert found(policy(of_domain("a.org", FIVE), of_domain("/b/"))) == [("P2", "policies/0/conditions/0")]
    assert found(policy(of_domain("*.a.org", FIVE), of_domain("/b/"))) == []
    assert found(policy(of_domain("a.org", FIVE), ({"jobid": ["x"]}, TWO))) == []
    assert found(policy(of_domain("b.org"), of_domain("a.org", NONE), default=None)) == [
        ("P2", "policies/0/conditions/1")
    ]
    assert found(policy(of_domain("a.org", replace(FIVE, stop=True)))) == []


def test_a_default_beside_a_condition_that_always_holds_is_named() -> None:
    """One without fields, or whose expression is found in everything."""
    for always in ({}, {"recipientdomain": ["a.org", "/.*/"]}):
        assert found(policy((always, TWO))) == [("P3", "policies/0/default")]
        assert found(policy((always, TWO), default=None)) == []
    assert found(policy(({"recipientdomain": ["/.*/"], "jobid": ["x"]}, TWO))) == []


def test_a_group_that_is_not_there_is_named() -> None:
    """In a condition, and in a group."""
    place = "policies/0/conditions/0/if/recipientdomain"
    assert found(policy(of_domain(["b.org", "#none"]))) == [("P4", place)]
    assert found(policy(g=["b.org", "#none"])) == [("P4", "policies/0/fields/0/recipientdomain/g")]
    assert found(policy(({"jobid": ["*", "a b"]}, TWO))) == []


def test_a_field_without_values_never_holds() -> None:
    """In conditions and suspensions, which nothing else is said of."""
    empty = of_domain([])
    assert found(policy(of_domain("a.org"), empty)) == [("P4", "policies/0/conditions/1/if/recipientdomain")]
    suspends = [suspension(), suspension(recipientdomain=[])]
    assert found(suspends=suspends) == [("P4", "suspends/1/recipientdomain")]


def test_of_a_condition_that_never_holds_nothing_else_is_said() -> None:
    """Neither that an earlier one covers it, nor that it says the same as the default."""
    place = "policies/0/conditions/1/if/recipientdomain"
    assert found(policy(of_domain("/^#/"), of_domain("#h", FIVE))) == [("P4", place)]
    assert found(policy(of_domain("#g"), of_domain("*.a.org", FIVE), g=["*.org"])) == [("P4", place)]


def test_values_that_are_counted_as_a_group_never_hold_by_themselves() -> None:
    """All below a domain of a group, say; what reaches further than the group is let be."""
    place = "policies/0/conditions/0/if/recipientdomain"
    assert found(policy(of_domain("*.a.org"), g=["*.org"])) == [("P4", place)]
    assert found(policy(of_domain("*.org"), g=["*.a.org"])) == []
    assert found(policy(of_domain("#g"), g=["*.a.org"])) == []
    dotted = {DOMAIN: (FieldGroup("g.x", (pattern_of(DOMAIN, "*.x"),)),)}
    assert found(replace(policy(of_domain("*.x")), groups=dotted)) == []


def test_a_list_that_nothing_uses_is_named() -> None:
    """By its name in the file."""
    rule, hit = only(lint_policies(PickupPolicies(unused_lists=("old",))))
    assert (rule.id, hit.path, hit.text) == ("P5", ("lists", "old"), "nothing refers to @old")


def test_a_group_whose_values_belong_to_earlier_ones_is_named() -> None:
    """All of them, to one or several."""
    later = ("P6", "policies/0/fields/0/recipientdomain/h")
    assert found(policy(g=["*.org"], h=["*.a.org", "b.org"])) == [later]
    assert found(policy(g=["*.org"], h=["a.org", "a.com"])) == []
    assert found(policy(g=["*.org"], i=["*.com"], h=["a.org", "a.com"])) == [later]
    assert found(policy(g=[])) == [("P4", "policies/0/fields/0/recipientdomain/g")]


def test_a_group_that_nothing_limits_is_named() -> None:
    """Not where the default does, and not where it keeps its values out of a condition, or out of a later group."""
    named = [("P6", "policies/0/fields/0/recipientdomain/g")]
    assert found(policy(of_domain("b.org"), default=None, g=["a.org"])) == named
    assert found(policy(of_domain("b.org"), default=NONE, g=["a.org"])) == named
    assert found(policy(of_domain("b.org"), default=FIVE, g=["a.org"])) == []
    assert found(policy(of_domain("#g"), default=None, g=["a.org"])) == []
    assert found(policy(({"jobid": ["x"]}, TWO), default=None, g=["a.org"])) == []
    assert found(policy(of_domain("*.org"), default=None, g=["a.org"])) == []
    assert found(policy(of_domain("#h"), default=None, g=["a.org"], h=["*.org"])) == []


def test_a_suspension_whose_mails_another_holds_is_named() -> None:
    """The narrower one, wherever it stands; of two that are alike, the later."""
    one, below, everything = suspension(recipientdomain=["a.org"]), suspension(recipientdomain=["*.org"]), suspension()
    assert found(suspends=[one, below]) == [("P7", "suspends/0")]
    assert found(suspends=[below, one]) == [("P7", "suspends/1")]
    assert found(suspends=[one, one, one]) == [("P7", "suspends/1"), ("P7", "suspends/2")]
    assert found(suspends=[one, everything]) == [("P7", "suspends/0")]
    assert found(suspends=[one, suspension(recipientdomain=["b.org"])]) == []
    assert found(suspends=[one, suspension(jobid=["x"])]) == []
    assert found(suspends=[suspension(recipientdomain=[]), one, one]) == [
        ("P4", "suspends/0/recipientdomain"),
        ("P7", "suspends/2"),
    ]


@pytest.mark.parametrize(
    ("threshold", "reached"),
    [
        (Threshold(rate=DeliveryRate(10), connect_interval=SECOND // 10), False),
        (Threshold(rate=DeliveryRate(10), connect_interval=SECOND // 10 - 1), True),
        (Threshold(rate=DeliveryRate(3), connect_interval=SECOND // 3), True),
        (Threshold(rate=DeliveryRate(3), connect_interval=SECOND // 3 + 1), False),
        (Threshold(0, DeliveryRate(10)), False),
        (Threshold(1, DeliveryRate(10_000)), True),
        (Threshold(rate=DeliveryRate(10), connect_interval=0), True),
        (Threshold(0, connect_interval=SECOND), True),
    ],
)
def test_a_rate_that_is_never_reached_is_named(threshold: Threshold, reached: bool) -> None:
    """A long delivery may be all that one at once means, so concurrency alone says nothing, but for none at all."""
    places = [] if reached else [("P8", "policies/0/default/rate")]
    assert found(policy(of_domain("a.org"), default=threshold)) == places
    places = [] if reached else [("P8", "policies/0/conditions/0/then/rate")]
    assert found(policy(of_domain("a.org", threshold))) == places


def test_a_policy_behind_one_that_stops_every_mail_is_named() -> None:
    """By its default and all of its conditions; or by the condition that holds for every mail."""
    stop = replace(FIVE, stop=True)
    later = [("P9", "policies/1"), ("P9", "policies/2")]
    assert found(policy(of_domain("a.org", replace(TWO, stop=True)), default=stop), policy(), policy()) == later
    assert found(policy(({}, stop), default=None), policy(), policy()) == later
    assert found(policy(of_domain("a.org"), default=stop), policy()) == []
    assert found(policy(of_domain("a.org", stop), default=None), policy()) == []


def test_a_policy_that_limits_nothing_is_named() -> None:
    """That its conditions say the same as no default is not said besides; one that stops others has an effect."""
    assert found(policy(default=None)) == found(policy(default=NONE)) == [("P10", "policies/0")]
    assert found(policy(of_domain("a.org", NONE), default=None)) == [("P10", "policies/0")]
    assert found(policy(default=None, g=["a.org"])) == [("P10", "policies/0")]
    assert found(policy(of_domain("a.org", replace(NONE, stop=True)), default=None)) == []


def test_the_seeds_examples_are_clean() -> None:
    """Each of them says what it means."""
    rolled_up = policy(of_domain("#gsuite", TWO), gsuite=["*.google.com", "*.googlemail.com", "*.smtp.goog"])
    assert found(policy(), policy(of_domain("halon.io")), rolled_up) == []


TEXTS = ["", "a", "b.a", "c.b.a", "*.a", "*.b.a", "/a$/", "/b/", "/.*/", "#g", "#h"]
DOMAINS, JOBS = ["", "a", "b.a", "c.b.a", "b.c", "c.b", "a.b"], ["", "x", "y"]
limits = st.sampled_from([TWO, FIVE, NONE])
wanted = st.fixed_dictionaries(
    {},
    optional={
        "recipientdomain": st.lists(st.sampled_from(TEXTS), max_size=2),
        "jobid": st.lists(st.sampled_from(["", "x", "y", "/.*/"]), max_size=2),
    },
)
members = st.lists(st.sampled_from(["a", "b.a", "*.a", "/b/", "#none"]), max_size=2)
policies = st.builds(
    lambda some, default, groups: policy(*some, default=default, **groups),
    st.lists(st.tuples(wanted, limits), max_size=4),
    st.one_of(st.none(), limits),
    st.fixed_dictionaries({}, optional={"g": members, "h": members}),
)
suspensions = st.lists(wanted.map(lambda some: suspension(**some)), max_size=4)


def effect(one: CounterPolicy) -> list[Threshold]:
    """The limits of each mail."""
    mails = ({DOMAIN: domain, JOB: job} for domain, job in product(DOMAINS, JOBS))
    return [one.threshold(one.key(values)) or NONE for values in mails]


@given(policies)
def test_what_is_found_could_be_left_out_of_a_policy(whole: CounterPolicy) -> None:
    """Conditions, defaults, groups and values: the limits of every mail stay the same."""
    for rule, hit in lint_policies(PickupPolicies((whole,))):
        match rule.id, hit.path:
            case "P1" | "P2", (_, _, _, int(number)):
                less = replace(whole, conditions=whole.conditions[:number] + whole.conditions[number + 1 :])
            case "P3", _:
                less = replace(whole, default=None)
            case "P6", (*_, str(name)):
                groups = tuple(one for one in whole.groups[DOMAIN] if one.name != name)
                less = replace(whole, groups={DOMAIN: groups})
            case _:
                less = whole
        assert effect(less) == effect(whole), (rule, hit)
        if rule.id == "P10":
            assert set(effect(whole)) == {NONE}


@given(suspensions)
def test_suspensions_that_are_found_hold_nothing_of_their_own(some: list[Suspension]) -> None:
    """All of them may go at once."""
    findings = lint_policies(PickupPolicies(suspensions=tuple(some)))
    numbers = {number for rule, hit in findings if rule.id == "P7" for number in hit.path[1:2]}
    left = [one for number, one in enumerate(some) if number not in numbers]
    for domain, job in product(DOMAINS, JOBS):
        values = {DOMAIN: domain, JOB: job}
        assert any(one.holds(values) for one in left) == any(one.holds(values) for one in some)


STOP = replace(FIVE, stop=True)
THEN, OTHER, GROUPS = ("policies", 0, "conditions", 0), ("policies", 0, "conditions", 1), ("policies", 0, "fields", 0)
DEFAULT = ("policies", 0, "default")


@pytest.mark.parametrize(
    ("several", "rule", "text", "because"),
    [
        ([policy(of_domain("/a/"), of_domain("a"))], "P1", "an earlier one holds for all of its mails", [THEN]),
        (
            [policy(of_domain("*.b"), of_domain("/b$/"), of_domain("a.b"))],
            "P1",
            "an earlier one holds for all of its mails",
            [THEN],
        ),
        ([policy(of_domain("a", FIVE))], "P2", "it says the same as the default", [DEFAULT]),
        (
            [policy(of_domain("a"), of_domain("b", NONE), default=None)],
            "P2",
            "it sets no limits, and there is no default",
            [],
        ),
        (
            [policy(of_domain("a"), of_domain("b", NONE), default=NONE)],
            "P2",
            "it says the same as the default",
            [DEFAULT],
        ),
        ([policy(({"jobid": ["x"]}, TWO), ({}, TWO))], "P3", "a condition holds for every mail", [OTHER]),
        ([policy(of_domain([]))], "P4", "there is no value, so it never holds", []),
        ([policy(of_domain("#h"), g=["a"])], "P4", "#h is no group of recipientdomain here", []),
        (
            [policy(of_domain("*.b"), g=["a"], h=["*.b"])],
            "P4",
            "*.b is counted as #h, and never alone",
            [],
        ),
        (
            [policy(i=["c"], g=["a"], h=["a"])],
            "P6",
            "its values all belong to earlier groups",
            [(*GROUPS, "recipientdomain", "g")],
        ),
        ([policy(of_domain("b"), default=None, g=["a"])], "P6", "nothing limits what is counted as #g", []),
        (
            [policy(default=Threshold(0, DeliveryRate(1)))],
            "P8",
            "no delivery may begin",
            [(*DEFAULT, "concurrency")],
        ),
        (
            [policy(default=Threshold(None, DeliveryRate(1), SECOND))],
            "P8",
            "the connect interval is no shorter than it asks",
            [(*DEFAULT, "connectinterval")],
        ),
        ([policy(), policy(default=STOP), policy()], "P9", "an earlier one stops every mail", [("policies", 1)]),
        ([policy(default=None)], "P10", "none of its limits limits anything", []),
    ],
)
def test_a_finding_says_what_is_wrong_and_what_makes_it_so(
    several: list[CounterPolicy], rule: str, text: str, because: list[tuple[str | int, ...]]
) -> None:
    """In plain words, and by places in the file."""
    violated, hit = only(lint_policies(PickupPolicies(tuple(several))))
    assert (violated.id, hit.text, list(hit.because)) == (rule, text, because)


def test_a_suspension_that_is_found_names_the_other() -> None:
    """The first that holds all of its mails."""
    same, wider = suspension(recipientdomain=["a"]), suspension(recipientdomain=["a", "b"])
    findings = lint_policies(PickupPolicies(suspensions=(suspension(recipientdomain=["c"]), wider, same)))
    _, hit = only(findings)
    assert (hit.path, hit.text) == (("suspends", 2), "another one holds all of its mails")
    assert hit.because == (("suspends", 1),)


def test_conditions_that_may_overlap_with_very_many_later_ones_are_let_be() -> None:
    """A thousand of them are looked at, unless single values keep them apart."""
    later = [of_domain(f"*.{number}.org") for number in range(1_001)]
    first = of_domain("*.com", FIVE)
    assert found(policy(first, *later)) == []
    assert found(policy(first, *later[1:])) == [("P2", "policies/0/conditions/0")]
    assert found(policy(of_domain("a.com", FIVE), *later)) == [("P2", "policies/0/conditions/0")]


def test_limits_behind_the_condition_that_always_holds_are_no_limits() -> None:
    """Neither of another condition nor of the default."""
    rules = [rule for rule, _ in found(policy(({}, NONE), of_domain("a.org"), default=FIVE))]
    assert rules == ["P1", "P3", "P10"]


def test_every_rule_has_a_code_of_its_own() -> None:
    assert [one.id for one in POLICY_RULES] == [f"P{number}" for number in range(1, len(POLICY_RULES) + 1)]
