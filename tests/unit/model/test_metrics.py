"""What a metric is, by its name."""

import pytest

from mailmend.model.metrics import Metric


@pytest.mark.parametrize(
    ("name", "kind"),
    [("mailmend_sent_total", "counter"), ("mailmend_waiting", "gauge"), ("mailmend_total_bytes", "gauge")],
)
def test_a_metric_whose_name_ends_in_total_is_a_counter(name: str, kind: str) -> None:
    assert Metric(name, "").kind == kind


def test_a_metric_has_an_alert_unless_it_says_why_it_has_none() -> None:
    assert Metric("mailmend_waiting", "").no_alert == ""
