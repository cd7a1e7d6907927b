"""Bodies that have limits among their own fields name each limit as the description of the policy file does."""

from typing import Any

import pytest

from mailmend.admin.delivery.explain_answers import SHARE
from mailmend.admin.delivery.http.orders import Limits
from mailmend.admin.delivery.http.shared import answer_model
from mailmend.delivery.policy.file.description import THRESHOLD
from mailmend.delivery.policy.policy import Threshold
from mailmend.delivery.policy.rates import SECOND, DeliveryRate


@pytest.mark.parametrize("body", [Limits, answer_model(SHARE)])
def test_a_body_has_each_limit(body: Any) -> None:
    assert set(THRESHOLD.answers) <= set(body.model_fields)


def test_limits_that_an_answer_shows_can_be_sent() -> None:
    """What `GET /conditions` tells of limits, `POST /conditions` takes, and means the same by it."""
    limits = Threshold(2, DeliveryRate(100, 60 * SECOND), SECOND // 2, stop=True, cluster=False)
    sent = Limits.model_validate(THRESHOLD.json(limits))
    assert sent.threshold() == limits
