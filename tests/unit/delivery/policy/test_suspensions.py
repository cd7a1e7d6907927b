"""Suspensions as people write them."""

from uuid import UUID

import pytest

from mailmend.delivery.policy.policy import PickupField
from mailmend.delivery.policy.suspensions import MadeSuspension, normal_values
from mailmend.model.errors import WrongUse
from mailmend.model.ids import QueueName

DOMAIN, LOCAL_IP = PickupField.RECIPIENT_DOMAIN, PickupField.LOCAL_IP
ID = UUID("6e0ab5e0-8d1c-11f0-9a5e-0242ac120002")


def made(**values: tuple[str, ...]) -> MadeSuspension:
    return MadeSuspension(id=ID, queue=QueueName("outgoing"), values=values, owner="ann", reason="x")


def test_each_field_must_match_and_one_of_its_values() -> None:
    """In the spellings of a policy file."""
    one = made(recipientdomain=("A.org.", "*.b.org"), localip=("192.0.2.0/28",)).suspension(None)
    assert one.id == str(ID)
    assert one.holds({DOMAIN: "a.org", LOCAL_IP: "192.0.2.3"})
    assert one.holds({DOMAIN: "x.b.org", LOCAL_IP: "192.0.2.3"})
    assert not one.holds({DOMAIN: "b.org", LOCAL_IP: "192.0.2.3"})
    assert not one.holds({DOMAIN: "a.org", LOCAL_IP: "192.0.2.99"})


@pytest.mark.parametrize("text", ["/^(?!news)/", r"/(a)\1/", "/a++/"])
def test_a_field_that_cannot_be_read_matches_every_mail(text: str) -> None:
    """An older version took such expressions. What is to be held must not go: the readable fields alone decide."""
    kept = made(recipientdomain=("a.org", text), jobid=("spring",))

    one = kept.suspension(None)

    assert one.holds({DOMAIN: "a.org", PickupField.JOB_ID: "spring"})
    assert one.holds({DOMAIN: "b.org", PickupField.JOB_ID: "spring"})
    assert not one.holds({DOMAIN: "a.org", PickupField.JOB_ID: "autumn"})
    (why,) = kept.unread
    assert text.strip("/") in why


def test_a_field_of_a_later_version_matches_every_mail() -> None:
    kept = made(weather=("rain",))
    assert kept.suspension(None).holds({DOMAIN: "a.org"})
    assert "'weather' is no field" in kept.unread[0]


def test_a_suspension_that_can_be_read_has_nothing_unread() -> None:
    assert made(recipientdomain=("a.org", "/^mx/")).unread == ()


def test_no_field_is_every_mail() -> None:
    assert made().suspension(None).holds({})


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("weather", "rain", "'weather' is no field"),
        ("localip", "example.org", "is no address"),
        ("remoteip", "192.0.2.1/24", "is no network"),
        ("recipientdomain", "#big", "names a group or a list"),
        ("recipientdomain", "@big", "names a group or a list"),
    ],
)
def test_what_is_no_value_of_its_field_is_refused(field: str, text: str, said: str) -> None:
    with pytest.raises(WrongUse, match=said):
        normal_values({field: (text,)})
