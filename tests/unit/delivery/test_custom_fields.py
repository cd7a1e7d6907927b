"""Attributes of mails that a policy file declares as fields: they are counted by, and suspended by."""

import pickle
from datetime import timedelta
from typing import Any

import pytest

from mailmend.delivery.ledger.attempts import attempt_of
from mailmend.delivery.mail.hooks import HookedRecipient, HookResult, PreDecision, TryDelivery
from mailmend.delivery.policy.file.reading import policies_of
from mailmend.delivery.policy.lint import lint_policies
from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.policy.policy import PickupField, custom_field, recorded_values
from mailmend.delivery.policy.replaying import values_of
from mailmend.delivery.server.hooks import DeliveryHooks
from mailmend.mailqueue.codec import attribute
from tests.support.deliveries import DeliverySite

BY_CAMPAIGN = """
fields: [campaign]
policies:
  - fields: [campaign]
    conditions: [{if: {campaign: slow}, then: {concurrency: 0}}]
    default: {concurrency: 1}
suspends: [{campaign: dead}]
"""


def said(text: str) -> PickupPolicies:
    return policies_of(text, "policies.yaml").said


@pytest.fixture
def site() -> DeliverySite:
    return DeliverySite()


async def put(site: DeliverySite, name: str, campaign: str = "") -> None:
    given = {"campaign": attribute(campaign)} if campaign else {}
    await site.put(f"{name}@one.example", attributes=given)


async def serve(site: DeliverySite, file: PickupPolicies, seconds: float, **more: Any) -> None:
    """A server that has read the file before the first mail comes."""

    async def limit() -> None:
        site.server.limit(file.policies, file.suspensions, custom=file.custom.values())

    await site.serve(seconds, file.policies, beside=limit(), **more)


async def test_mails_are_counted_together_by_an_attribute_of_their_own(site: DeliverySite) -> None:
    """One of each campaign at once, none of the slow one; mails without the attribute are counted together too."""
    site.relay.seconds = 10.0
    for name, campaign in (("a1", "spring"), ("a2", "spring"), ("b", "autumn"), ("c", ""), ("d", ""), ("e", "slow")):
        await put(site, name, campaign)
    await serve(site, said(BY_CAMPAIGN), 60)
    assert site.relay.most == {"one.example": 3}
    assert sorted(site.relay.had) == [f"{name}@one.example" for name in ("a1", "a2", "b", "c", "d")]


async def test_the_journal_has_what_a_mail_was_counted_by() -> None:
    """So that a replay of its attempts counts as the server did."""
    site = DeliverySite(journals=True)
    mail = await site.put("a@one.example", attributes={"campaign": attribute("spring")})
    await serve(site, said(BY_CAMPAIGN), 20)
    (attempt,) = await site.recorded(mail)
    assert attempt.fields[custom_field("campaign")] == "spring"


async def test_mails_are_suspended_by_an_attribute_of_their_own(site: DeliverySite) -> None:
    await put(site, "a", "dead")
    await put(site, "b", "spring")
    await serve(site, said(BY_CAMPAIGN), 60)
    assert site.relay.had == ["b@one.example"]


async def test_a_hook_sets_what_a_mail_is_counted_by(site: DeliverySite) -> None:
    async def slow(recipient: HookedRecipient) -> HookResult[PreDecision]:
        campaign = "slow" if recipient.recipient.startswith("a") else "spring"
        return HookResult(TryDelivery(), attributes={"campaign": campaign})

    await put(site, "a", "spring")
    await put(site, "b", "slow")
    await serve(site, said(BY_CAMPAIGN), 60, hooks=DeliveryHooks(site.clock, pre=slow))
    assert site.relay.had == ["b@one.example"]


async def test_a_field_that_a_file_declares_later_counts_for_mails_that_wait_already(site: DeliverySite) -> None:
    closed = said("policies: [{default: {concurrency: 0}}]")
    await put(site, "a", "slow")
    await put(site, "b", "spring")

    async def reload() -> None:
        await site.clock.pause(20)
        file = said(BY_CAMPAIGN)
        site.server.limit(file.policies, file.suspensions, custom=file.custom.values())

    await site.serve(60, closed.policies, beside=reload(), waiting_max=timedelta(minutes=10))
    assert site.relay.had == ["b@one.example"]


def test_conditions_on_fields_of_the_file_are_compared_by_lint() -> None:
    """One that an earlier one covers is found, as with any field, and one that overlaps is not."""
    text = """
fields: [campaign, wave]
policies:
  - fields: [campaign, wave, jobid]
    conditions:
      - {if: {campaign: [a, b]}, then: {concurrency: 1}}
      - {if: {campaign: a, wave: one}, then: {concurrency: 2}}
      - {if: {wave: one}, then: {concurrency: 3}}
      - {if: {wave: ['/.*/'], jobid: x}, then: {concurrency: 4}}
      - {if: {jobid: x}, then: {concurrency: 5}}
"""
    found = [(rule.id, hit.path) for rule, hit in lint_policies(said(text))]
    assert found == [
        ("P1", ("policies", 0, "conditions", 1)),
        ("P1", ("policies", 0, "conditions", 4)),
    ]


def test_a_record_of_attempts_keeps_fields_of_any_file() -> None:
    """What can be no field is left out, so that a damaged row does not stop a replay."""
    campaign = custom_field("campaign")
    texts = '{"jobid": "j", "campaign": "spring", "localip": "192.0.2.1", "no field": "x"}'
    assert values_of(texts) == {PickupField.JOB_ID: "j", campaign: "spring"}
    assert recorded_values({"campaign": "spring", "": "x"}) == {campaign: "spring"}
    row: dict[str, Any] = {
        "firstmail": "m",
        "number": 0,
        "attempt": "a",
        "fields": texts,
        "sources": None,
        "urgent": False,
        "readyat": site_time(),
        "startedat": site_time(),
        "endedat": None,
    }
    assert attempt_of(row).mail.values[campaign] == "spring"


def site_time() -> Any:
    return DeliverySite().clock.now


def test_a_field_is_the_same_however_often_it_is_declared() -> None:
    assert said("fields: [campaign]").custom["campaign"] is said("fields: [campaign]").custom["campaign"]
    assert custom_field("campaign") not in list(PickupField)


@pytest.mark.parametrize("named", [PickupField.JOB_ID, custom_field("campaign")])
def test_a_field_is_the_same_in_a_process_that_has_it_in_bytes(named: PickupField) -> None:
    """As Spark hands policies to its workers."""
    assert pickle.loads(pickle.dumps(named)) is named
