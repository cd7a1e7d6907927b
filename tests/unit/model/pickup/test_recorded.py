"""Rows of recorded attempts, and how a record falls apart."""

from collections.abc import Iterable

import pytest

from model.pickup.policies import PickupPolicies
from model.pickup.policy import (
    CounterKey,
    CounterPolicy,
    DomainsBelow,
    ExactValue,
    FieldGroup,
    PickupField,
    Threshold,
    ValuePattern,
)
from model.pickup.recorded import SOURCE_SETS_MAX, AttemptGroups, groups_of, sources_of, values_of, with_concurrency
from model.pickup.suspensions import Suspension
from tests.support.attempts import attempt

TENANT, DOMAIN, MX, SOURCE = (
    PickupField.TENANT_ID,
    PickupField.RECIPIENT_DOMAIN,
    PickupField.REMOTE_MX,
    PickupField.LOCAL_IP,
)
ONE, TWO, BOTH, OTHER = ("192.0.2.1",), ("192.0.2.2",), ("192.0.2.1", "192.0.2.2"), ("192.0.2.9",)
VALUES = {TENANT: "t", DOMAIN: "d.example", MX: "mx.google.com"}


def by(*fields: PickupField, **groups: ValuePattern) -> CounterPolicy:
    """A policy of these fields; groups are of servers."""
    grouped = {MX: tuple(FieldGroup(name, (pattern,)) for name, pattern in groups.items())} if groups else {}
    return CounterPolicy(fields, grouped, default=Threshold(concurrency=1))


def group(
    policies: Iterable[CounterPolicy], sources: tuple[str, ...] = ONE, *, among: Iterable[tuple[str, ...]]
) -> CounterKey:
    return groups_of(PickupPolicies(tuple(policies)), among).of(VALUES, sources)


class TestGroups:
    """What attempts that can influence each other have in common."""

    def test_the_fields_that_all_policies_share_tell_groups_apart(self) -> None:
        assert group([by(TENANT, DOMAIN), by(TENANT), by(MX, TENANT)], among=[ONE, BOTH]) == ("t",)

    def test_policies_with_no_field_in_common_leave_the_record_whole(self) -> None:
        grouping = groups_of(PickupPolicies((by(TENANT), by(DOMAIN))), [ONE])
        assert (grouping.is_one, grouping.of(VALUES, ONE)) == (True, ())

    def test_a_concurrency_of_the_servers_leaves_the_record_whole(self) -> None:
        """It counts everything together, and comes first, before any policy that stops."""
        limited = with_concurrency(PickupPolicies((by(TENANT),)), 7)
        assert limited.policies[0].default == Threshold(concurrency=7)
        assert groups_of(limited, [ONE]).is_one
        assert with_concurrency(limited, None) is limited

    def test_values_of_one_group_are_counted_together(self) -> None:
        """Where one policy has groups of a field, and others none, the groups hold what belongs together."""
        google = DomainsBelow("google.com")
        assert group([by(MX, g=google), by(MX)], among=[ONE]) == ("#g",)
        assert group([by(MX, g=google), by(MX, g=google)], among=[ONE]) == ("#g",)

    def test_a_field_with_different_groups_tells_nothing_apart(self) -> None:
        """What is apart for one may be together for the other."""
        assert group([by(MX, TENANT, g=DomainsBelow("a")), by(TENANT, MX, h=ExactValue("b"))], among=[ONE]) == ("t",)

    def test_an_address_is_a_field_where_nobody_has_another(self) -> None:
        assert group([by(SOURCE, TENANT)], among=[ONE, OTHER]) == ("192.0.2.1", "t")

    def test_who_has_several_addresses_is_connected_with_all_who_have_one_of_them(self) -> None:
        """Through others too; who has none of them is apart."""
        policies, among = [by(SOURCE, TENANT)], [ONE, OTHER, TWO, BOTH]
        first, second, both, other = (group(policies, one, among=among) for one in (ONE, TWO, BOTH, OTHER))
        assert first == second == both != other

    def test_addresses_that_only_some_policies_count_leave_the_record_whole(self) -> None:
        """Whose turn it is to be chosen connects tenants that have the same addresses."""
        assert group([by(SOURCE, TENANT), by(TENANT)], among=[ONE, BOTH]) == ()
        assert group([by(SOURCE, TENANT), by(TENANT)], among=[ONE, OTHER]) == ("t",)
        suspended = PickupPolicies((by(TENANT),), suspensions=(Suspension("s", {SOURCE: (ExactValue("192.0.2.1"),)}),))
        assert groups_of(suspended, [ONE, BOTH]).is_one

    def test_without_policies_nothing_waits_for_anything(self) -> None:
        assert set(VALUES.values()) <= set(group([], among=[BOTH]))

    def test_more_sets_of_addresses_than_are_looked_at_leave_the_record_whole(self) -> None:
        among = [ONE, *(BOTH,) * SOURCE_SETS_MAX]
        assert groups_of(PickupPolicies((by(SOURCE),)), among) == AttemptGroups()
        assert not groups_of(PickupPolicies((by(SOURCE),)), among[1:]).is_one


class TestRows:
    """The texts in a row."""

    @pytest.mark.parametrize("text", [None, "", "{}"])
    def test_no_fields_are_none(self, text: str | None) -> None:
        assert values_of(text) == {}

    def test_fields_are_those_of_policies_but_the_address_that_was_used(self) -> None:
        """What a later version may write besides is passed over."""
        assert values_of('{"tenantid": "t", "localip": "192.0.2.1", "colour": "red"}') == {TENANT: "t"}

    def test_sources_are_in_their_order_and_none_is_any(self) -> None:
        assert sources_of('["192.0.2.2", "192.0.2.1", "192.0.2.2"]') == ("192.0.2.2", "192.0.2.1", "192.0.2.2")
        assert sources_of("[]") == sources_of(None) == ("",)

    def test_an_attempt_that_ended_before_it_began_lasted_no_time(self) -> None:
        """By a clock that was set back."""
        assert attempt("a", lasted=-5).lasted == 0
        assert attempt("a", lasted=7).lasted == 7
        assert attempt("a", lasted=None).lasted is None
