"""What hooks may decide and order: what is wrong is refused where it is made, and what is left out has one meaning."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from mailmend.delivery.mail.hooks import (
    BounceRecipient,
    DeleteRecipient,
    HoldRecipient,
    HookResult,
    LimitMails,
    PutOffDelivery,
    SuspendMails,
    TryDelivery,
    order_of,
)
from mailmend.delivery.policy.orders import NOTHING_BEGINS, OrderKind
from mailmend.delivery.policy.policy import PickupField, Threshold
from mailmend.model.errors import WrongUse
from mailmend.model.ids import QueueName

DOMAIN, JOB = PickupField.RECIPIENT_DOMAIN, PickupField.JOB_ID
MINUTE, YEAR = timedelta(minutes=1), timedelta(days=365)
ONE = {DOMAIN: ("one.example",)}
NOW = datetime(2026, 9, 1, tzinfo=UTC)
NEW = UUID("6e0ab5e0-8d1c-11f0-8000-000000000001")


def test_a_hook_that_says_nothing_more_leaves_all_to_the_server() -> None:
    assert TryDelivery() == TryDelivery(host="", port=25, sender="", recipient="", sources=(), tls=None, fields={})
    assert PutOffDelivery() == PutOffDelivery(delay=None, counts=True, reason="")
    assert BounceRecipient("no") == BounceRecipient("no", status="5.7.1")
    assert DeleteRecipient() == DeleteRecipient(reason="")
    assert HoldRecipient() == HoldRecipient(reason="")
    assert HookResult(None) == HookResult(None, orders=(), attributes={})


@pytest.mark.parametrize("name", ["", "mailmend.tries", "Mailmend.tries", "dsn-notify", "DSN-x"])
def test_an_attribute_of_the_servers_own_is_not_the_hooks_to_set(name: str) -> None:
    with pytest.raises(WrongUse) as refused:
        HookResult(None, attributes={"mine": "a", name: "b"})

    assert str(refused.value) == (
        f"{name!r} is no attribute that a hook may set\nTake a name that begins neither with mailmend. nor with dsn-."
    )


def test_an_attribute_is_a_text() -> None:
    number: Any = 5
    with pytest.raises(WrongUse) as refused:
        HookResult(None, attributes={"mine": number})

    assert str(refused.value) == "the attribute 'mine' is no text\nWrite it as text."
    assert HookResult(None, attributes={"mailmend": "a", "my-dsn-": ""}).attributes == {"mailmend": "a", "my-dsn-": ""}


@pytest.mark.parametrize("lasts", [timedelta(0), MINUTE, YEAR])
def test_an_order_lasts_from_no_time_to_a_year(lasts: timedelta) -> None:
    assert SuspendMails(ONE, lasts, "slow").lasts == LimitMails(ONE, Threshold(1), lasts, "slow").lasts == lasts


@pytest.mark.parametrize("lasts", [-timedelta(microseconds=1), YEAR + timedelta(microseconds=1)])
def test_an_order_for_any_other_time_is_refused(lasts: timedelta) -> None:
    message = f"{lasts} is no time for which something may be ordered\nAt most 365 days."
    with pytest.raises(WrongUse) as suspension:
        SuspendMails(ONE, lasts, "slow")
    with pytest.raises(WrongUse) as limits:
        LimitMails(ONE, Threshold(1), lasts, "slow")

    assert str(suspension.value) == str(limits.value) == message


@pytest.mark.parametrize("texts", ["one.example", ()])
def test_the_values_of_a_field_are_a_list_of_one_or_more(texts: Any) -> None:
    for make in (
        lambda values: SuspendMails(values, MINUTE, ""),
        lambda values: LimitMails(values, Threshold(1), MINUTE, ""),
    ):
        with pytest.raises(WrongUse) as refused:
            make({DOMAIN: texts})
        assert str(refused.value) == f"{texts!r} is no list of values\nWrite it like ('example.org',)."


def test_a_suspension_names_mails_and_limits_need_not() -> None:
    with pytest.raises(WrongUse) as refused:
        SuspendMails({}, MINUTE, "slow")

    assert str(refused.value) == "it is not said which mails are suspended\nName values of a field."
    assert LimitMails({}, Threshold(1), MINUTE, "slow", (JOB,)).scope() == (("jobid",), {})


def test_a_limit_below_nothing_is_refused() -> None:
    with pytest.raises(WrongUse):
        LimitMails(ONE, Threshold(-1), MINUTE, "slow")


def test_the_same_values_have_one_scope_in_any_order_and_however_often_they_are_named() -> None:
    values = {DOMAIN: ("two.example", "one.example", "two.example")}

    assert SuspendMails(values, MINUTE, "slow").scope() == ((), {"recipientdomain": ("one.example", "two.example")})
    assert LimitMails(values, Threshold(1), MINUTE, "slow").scope() == (
        ("recipientdomain",),
        {"recipientdomain": ("one.example", "two.example")},
    )


def test_the_order_that_a_hook_gives_is_one_of_its_own_kind_for_its_queue() -> None:
    suspension = order_of(SuspendMails(ONE, MINUTE, "slow\n"), QueueName("spool"), "hook a", NOW, NEW)
    limits = order_of(LimitMails(ONE, Threshold(3), MINUTE, "slow"), QueueName("spool"), "hook a", NOW, NEW)

    assert (suspension.kind, suspension.threshold) == (OrderKind.SUSPENSION, NOTHING_BEGINS)
    assert (limits.kind, limits.threshold, limits.fields) == (OrderKind.CONDITION, Threshold(3), ("recipientdomain",))
    for order in (suspension, limits):
        assert (order.queue, order.owner, order.reason.strip()) == ("spool", "hook a", "slow")
        assert order.ends_at == NOW + MINUTE
        assert order.values == {"recipientdomain": ("one.example",)}
