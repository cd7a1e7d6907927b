"""Rows of recorded attempts, and how a record falls apart."""

import pickle

import pytest

from mailmend.delivery.policy.orders import Suspension
from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.policy.policy import (
    CounterKey,
    CounterPolicy,
    ExactValue,
    FieldGroup,
    PickupField,
    Threshold,
    ValuePattern,
)
from mailmend.delivery.policy.replaying import groups_of, sources_of, values_of, with_concurrency
from tests.support.attempts import attempt

TENANT, DOMAIN, SOURCE = PickupField.TENANT_ID, PickupField.RECIPIENT_DOMAIN, PickupField.LOCAL_IP
VALUES = {TENANT: "t", DOMAIN: "d.example"}


def by(*fields: PickupField, **groups: ValuePattern) -> CounterPolicy:
    """A policy of these fields; groups are of tenants."""
    grouped = {TENANT: tuple(FieldGroup(name, (pattern,)) for name, pattern in groups.items())} if groups else {}
    return CounterPolicy(fields, grouped, default=Threshold(concurrency=1))


def group(*policies: CounterPolicy, several: bool = True) -> CounterKey:
    return groups_of(PickupPolicies(policies), several_sources=several).key(VALUES)


class TestGroups:
    """Which attempts are replayed together."""

    def test_tenants_are_apart_where_every_policy_tells_them_apart(self) -> None:
        assert group(by(TENANT, DOMAIN), by(TENANT), by(DOMAIN, TENANT)) == ("t",)
        assert group(by(TENANT, DOMAIN), by(DOMAIN)) == ()

    def test_all_mails_of_a_tenant_stay_together(self) -> None:
        """A turn of it at one counter lets others be woken at another one."""
        assert group(by(DOMAIN), by(DOMAIN)) == ()

    def test_a_concurrency_of_the_servers_leaves_the_record_whole(self) -> None:
        """It counts everything together, and comes first, before any policy that stops."""
        limited = with_concurrency(PickupPolicies((by(TENANT),), weights={"t": 3}), 7)
        assert (limited.policies[0].default, limited.weights) == (Threshold(concurrency=7), {"t": 3})
        assert not groups_of(limited, several_sources=False).fields
        assert with_concurrency(limited, None) is limited

    def test_tenants_that_any_policy_counts_as_one_stay_together(self) -> None:
        """Where policies have different groups of them the record stays whole."""
        free = ExactValue("t")
        assert group(by(TENANT, free=free), by(TENANT)) == ("#free",)
        assert group(by(TENANT, free=free), by(TENANT, free=free)) == ("#free",)
        assert group(by(TENANT, free=free), by(TENANT, all=free)) == ()

    def test_addresses_that_take_turns_keep_tenants_together_where_any_policy_counts_by_them(self) -> None:
        """By a policy, or a suspension; where each mail has one address none takes turns."""
        assert group(by(TENANT, SOURCE)) == ()
        assert group(by(TENANT, SOURCE), several=False) == ("t",)
        suspended = PickupPolicies((by(TENANT),), suspensions=(Suspension("s", {SOURCE: (ExactValue("192.0.2.1"),)}),))
        assert not groups_of(suspended, several_sources=True).fields
        assert groups_of(suspended, several_sources=False).fields

    def test_what_says_how_a_record_is_replayed_can_be_sent_to_other_machines(self) -> None:
        """Where each group may be replayed."""
        for policies, grouping in (((), CounterPolicy((TENANT,))), ((by(DOMAIN),), CounterPolicy())):
            sent = pickle.dumps(groups_of(PickupPolicies(policies), several_sources=False))
            assert pickle.loads(sent) == grouping

        limited = with_concurrency(PickupPolicies((by(TENANT),)), 7)
        again = pickle.loads(pickle.dumps(limited.policies))
        assert again == (CounterPolicy(default=Threshold(concurrency=7)), by(TENANT))

    def test_without_policies_nobody_waits_for_anybody(self) -> None:
        assert group() == ("t",)


class TestRows:
    """The texts in a row."""

    @pytest.mark.parametrize("text", [None, "", "{}"])
    def test_no_fields_are_none(self, text: str | None) -> None:
        assert values_of(text) == {}

    def test_fields_are_those_of_policies_but_the_address_that_was_used(self) -> None:
        """What can be no field of any file is passed over."""
        assert values_of('{"tenantid": "t", "localip": "192.0.2.1", "dsn-colour": "red"}') == {TENANT: "t"}

    def test_sources_are_in_their_order_and_none_is_any(self) -> None:
        assert sources_of('["192.0.2.2", "192.0.2.1", "192.0.2.2"]') == ("192.0.2.2", "192.0.2.1", "192.0.2.2")
        assert sources_of("[]") == sources_of(None) == ("",)

    def test_an_attempt_that_ended_before_it_began_lasted_no_time(self) -> None:
        """By a clock that was set back."""
        assert attempt("a", lasted=-5).lasted == 0
        assert attempt("a", lasted=7).lasted == 7
        assert attempt("a", lasted=None).lasted is None
