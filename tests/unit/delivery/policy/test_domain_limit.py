"""Without any policy no domain has more than its share of the attempts."""

import pytest

from mailmend.delivery.policy.engine import PickupEngine
from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.policy.policy import CounterPolicy, PickupField, Threshold
from mailmend.delivery.policy.sub_queues import ActiveMail


def picked_of(policies: PickupPolicies, *domains: str) -> list[str]:
    """Of mails to these domains, the domains of those that are delivered at once."""
    engine = PickupEngine(policies.policies)
    for number, domain in enumerate(domains):
        engine.add(ActiveMail(str(number), {PickupField.RECIPIENT_DOMAIN: domain}))
    found = []
    while picked := engine.pick(0):
        found.append(picked.mail.values[PickupField.RECIPIENT_DOMAIN])
    return found


def test_a_domain_with_many_mails_leaves_attempts_to_others() -> None:
    picked = picked_of(PickupPolicies().with_domain_limit(2), "a.example", "a.example", "a.example", "b.example")
    assert sorted(picked) == ["a.example", "a.example", "b.example"]


@pytest.mark.parametrize("most", [1, 20])
def test_where_the_file_has_a_policy_it_says_all_limits(most: int) -> None:
    policy = CounterPolicy((PickupField.JOB_ID,), default=Threshold(3))
    said = PickupPolicies(policies=(policy,))
    assert said.with_domain_limit(most) == said


def test_0_is_no_limit() -> None:
    assert PickupPolicies().with_domain_limit(0) == PickupPolicies()
