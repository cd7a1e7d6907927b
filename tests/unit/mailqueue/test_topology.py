"""Names and arguments as James has them, and what of a delivery's headers is ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.rabbitmq.broker.settings import (
    Form,
    QueueForm,
    died_in,
    headers_beside,
    headers_to_publish,
    priority_of,
    topology_of,
)
from mailmend.mailqueue.rules.mails import PRIORITIES, PRIORITY_NORMAL
from mailmend.model.errors import WrongUse
from mailmend.model.ids import QueueName

SPOOL = QueueName("spool")
DEAD = {"x-dead-letter-exchange": "JamesMailQueue-dead-letter-exchange-spool"}


def test_the_normal_level_has_james_names() -> None:
    found = topology_of(SPOOL)
    assert (found.exchange, found.work_queue, found.dead_letter_exchange, found.dead_letter_queue) == (
        "JamesMailQueue-exchange-spool",
        "JamesMailQueue-workqueue-spool",
        "JamesMailQueue-dead-letter-exchange-spool",
        "JamesMailQueue-dead-letter-queue-spool",
    )


@pytest.mark.parametrize("priority", PRIORITIES)
def test_a_side_queue_is_none_of_james_and_tells_its_level(priority: int) -> None:
    """James lists queues by prefix; ours are not among them, and share the dead letters."""
    found = topology_of(SPOOL, priority)
    assert found.work_queue.startswith("JamesMailQueue-workqueue-") == (priority == PRIORITY_NORMAL)
    assert found.dead_letter_queue == topology_of(SPOOL).dead_letter_queue
    assert priority_of(found.work_queue) == priority


@pytest.mark.parametrize("priority", [-1, 10])
def test_there_are_ten_priorities(priority: int) -> None:
    with pytest.raises(WrongUse, match="0 to 9"):
        topology_of(SPOOL, priority)


@pytest.mark.parametrize(
    ("form", "arguments"),
    [
        (QueueForm(), {}),
        (QueueForm(Form.CLASSIC_V2), {"x-queue-version": 2}),
        (QueueForm(Form.QUORUM, replicas=3), {"x-queue-type": "quorum", "x-quorum-initial-group-size": 3}),
        (
            QueueForm(Form.QUORUM, delivery_limit=0),
            {"x-queue-type": "quorum", "x-quorum-initial-group-size": 1, "x-delivery-limit": 0},
        ),
    ],
    ids=["classic", "classic v2", "quorum", "quorum with a limit"],
)
def test_a_work_queue_is_declared_as_that_generation_of_james_does(
    form: QueueForm, arguments: dict[str, str | int]
) -> None:
    assert topology_of(SPOOL).work_arguments(form) == {**DEAD, **arguments}


@pytest.mark.parametrize("wrong", [{"replicas": 0}, {"delivery_limit": 3}])
def test_a_form_that_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(WrongUse):
        QueueForm(**wrong)  # type: ignore[arg-type]  # numbers, all of them


@given(st.dictionaries(st.sampled_from(["x-mailmend-slice", "x-mailmend-attempts", "x-a"]), st.integers() | st.text()))
def test_own_headers_come_back_as_they_were(own: dict[str, int | str]) -> None:
    sent = headers_to_publish(own)
    assert sent["x-dead-letter-routing-key"] == ""
    assert headers_beside({**sent, "x-death": [{}], "x-first-death-queue": "q", "x-delivery-count": 1}) == own


def test_headers_that_are_neither_text_nor_integers_are_left_out() -> None:
    assert headers_beside({"a": True, "b": 1.5, "c": b"x", "d": None, "e": 1}) == {"e": 1}


@pytest.mark.parametrize(
    ("headers", "queue"),
    [
        ({}, None),
        ({"x-death": []}, None),
        ({"x-death": "odd"}, None),
        ({"x-death": ["odd"]}, None),
        ({"x-death": [{"queue": "b"}, {"queue": "a"}]}, "b"),
        ({"x-death": [{}]}, ""),
    ],
)
def test_where_a_message_died_last_is_read_from_its_deaths(headers: dict[str, object], queue: str | None) -> None:
    assert died_in(headers) == queue
