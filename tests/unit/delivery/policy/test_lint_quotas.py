"""What of quotas and of rules for incoming mails is legal and surely not meant."""

from collections.abc import Mapping, Sequence

import pytest

from mailmend.delivery.policy.incoming import IncomingField, IncomingRule, ValueTemplate
from mailmend.delivery.policy.lint import lint_policies
from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.policy.policy import FieldGroup, PickupField, ThresholdCondition, pattern_of
from mailmend.delivery.policy.quotas import QueueQuota, QuotaLimit

DOMAIN, TENANT = PickupField.RECIPIENT_DOMAIN, PickupField.TENANT_ID
TWO, FIVE, NONE, CLOSED = QuotaLimit(2), QuotaLimit(5), QuotaLimit(), QuotaLimit(0)
Finding = tuple[str, str, str, list[str]]


def quota(*conditions: tuple[str | None, QuotaLimit], default: QuotaLimit | None = FIVE, **groups: str) -> QueueQuota:
    """Counts by domain; conditions are of one domain or of every mail, and groups of one domain each."""
    made = list[ThresholdCondition[QuotaLimit]]()
    for text, limit in conditions:
        patterns = {DOMAIN: (pattern_of(DOMAIN, text),)} if text is not None else {}
        made.append(ThresholdCondition(patterns, limit))
    grouped = tuple(FieldGroup(name, (pattern_of(DOMAIN, text),)) for name, text in groups.items())
    return QueueQuota((TENANT, DOMAIN), {DOMAIN: grouped} if grouped else {}, tuple(made), default, name="quota")


def incoming(
    *, helo: Sequence[str] | None = None, removes: Sequence[str] = (), stop: bool = False, **sets: str
) -> IncomingRule:
    patterns = {}
    if helo is not None:
        patterns[IncomingField.HELO, ""] = tuple(pattern_of(IncomingField.HELO, text) for text in helo)
    templates: Mapping[str, ValueTemplate] = {name: ValueTemplate(text) for name, text in sets.items()}
    return IncomingRule(patterns, templates, frozenset(removes), stop)


def found(file: PickupPolicies) -> list[Finding]:
    """The rules, the places and the words of what they find, and the places of what makes it so."""
    findings = list[Finding]()
    for rule, hit in lint_policies(file):
        because = ["/".join(map(str, path)) for path in hit.because]
        findings.append((rule.id, "/".join(map(str, hit.path)), hit.text, because))
    return findings


def of_quotas(*quotas: QueueQuota) -> list[Finding]:
    return found(PickupPolicies(quotas=quotas))


def of_rules(*rules: IncomingRule) -> list[Finding]:
    return found(PickupPolicies(incoming=rules))


@pytest.mark.parametrize(
    ("several", "finding"),
    [
        (
            [quota(), quota(("a.org", TWO), ("a.org", NONE))],
            (
                "P1",
                "quotas/1/conditions/1",
                "an earlier one holds for all of its mails",
                ["quotas/1/conditions/0"],
            ),
        ),
        (
            [quota(("a.org", FIVE))],
            ("P2", "quotas/0/conditions/0", "it says the same as the default", ["quotas/0/default"]),
        ),
        (
            [quota(("a.org", TWO), ("b.org", NONE), default=None)],
            ("P2", "quotas/0/conditions/1", "it sets no limits, and there is no default", []),
        ),
        (
            [quota((None, TWO))],
            ("P3", "quotas/0/default", "a condition holds for every mail", ["quotas/0/conditions/0"]),
        ),
        (
            [quota(("#h", TWO))],
            (
                "P4",
                "quotas/0/conditions/0/if/recipientdomain",
                "#h is no group of recipientdomain here",
                [],
            ),
        ),
        (
            [quota(("b.org", TWO), default=None, g="a.org")],
            ("P6", "quotas/0/fields/1/recipientdomain/g", "nothing limits what is counted as #g", []),
        ),
        ([quota(default=None)], ("P10", "quotas/0", "none of its limits limits anything", [])),
        ([quota(default=NONE)], ("P10", "quotas/0", "none of its limits limits anything", [])),
    ],
)
def test_what_is_said_of_policies_is_said_of_quotas_too(several: list[QueueQuota], finding: Finding) -> None:
    assert of_quotas(*several) == [finding]


@pytest.mark.parametrize(
    "closed",
    [
        quota(default=CLOSED),
        quota(default=QuotaLimit(bytes=0)),
        quota(default=QuotaLimit(5, 0)),
        quota(("a.org", QuotaLimit(bytes=0)), default=CLOSED),
        quota((None, CLOSED), default=None),
    ],
)
def test_a_quota_that_lets_no_mail_in_is_named(closed: QueueQuota) -> None:
    text = "whatever counts there, nothing may be in the queue"
    assert of_quotas(quota(), closed) == [("P12", "quotas/1", text, [])]


@pytest.mark.parametrize(
    "open_to_some",
    [quota(), quota(("a.org", CLOSED)), quota(("a.org", CLOSED), default=None), quota(("a.org", TWO), default=CLOSED)],
)
def test_a_quota_that_lets_some_mail_in_is_let_be(open_to_some: QueueQuota) -> None:
    assert of_quotas(open_to_some) == []


def test_a_rule_of_incoming_mails_that_does_nothing_is_named() -> None:
    text = "it neither sets, removes, holds, delays, rejects nor stops anything"
    assert of_rules(incoming(jobid="a"), incoming(helo=["a.org"])) == [("P11", "incoming/1", text, [])]


def test_a_rule_that_earlier_ones_leave_nothing_to_do_is_named_with_them() -> None:
    rules = (incoming(jobid="a"), incoming(tenantid="a"), incoming(helo=["a.org"], jobid="b", tenantid="b"))
    text = "earlier ones leave it nothing to do"
    assert of_rules(*rules) == [("P11", "incoming/2", text, ["incoming/0", "incoming/1"])]


def test_a_rule_that_may_change_something_is_let_be() -> None:
    assert (
        of_rules(incoming(helo=["a.org"], jobid="a"), incoming(jobid="b"), incoming(removes=["x-a"], stop=True)) == []
    )


@pytest.mark.parametrize(
    ("values", "text"),
    [([], "there is no value, so it never holds"), (["a.org", "#g"], "#g is no group of helo here")],
)
def test_values_that_no_incoming_mail_has_are_named(values: list[str], text: str) -> None:
    rules = (incoming(helo=["b.org"], jobid="a"), incoming(helo=values, tenantid="b"))
    assert of_rules(*rules) == [("P4", "incoming/1/if/helo", text, [])]
