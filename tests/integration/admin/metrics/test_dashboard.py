"""Queries of the dashboard as Prometheus's own tool evaluates them: what each panel about deliveries shows."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from mailmend.admin.metrics.dashboard import PANELS
from mailmend.admin.metrics.delivery_panels import DELIVERY_ROWS
from tests.support.promtool import promtool

SERVERS = ("one", "two")
MINUTES = 60
COUNTERS = "0+60x60"
"""One more each second."""


def series(name: str, labels: str = "", values: str = COUNTERS) -> dict[str, str]:
    """The same of two servers of a queue, and of a queue that is not chosen."""
    of_servers = {f'{name}{{queue="spool",instance="{server}"{labels}}}': values for server in SERVERS}
    return of_servers | {f'{name}{{queue="other",instance="one"{labels}}}': values}


DELIVERY, LISTENER = "mailmend_delivery_", "mailmend_listener_"
SERIES = {
    **series(f"{DELIVERY}recipients_total", ',end="delivered"', "0+90x60"),
    **series(f"{DELIVERY}recipients_total", ',end="refused"', "0+30x60"),
    **series(f"{DELIVERY}active_recipients", ',stage="waiting"', "20+0x60"),
    **series(f"{DELIVERY}active_recipients", ',stage="delivering"', "6+0x60"),
    **series(f"{DELIVERY}mails", "", "26+0x60"),
    **series(f"{DELIVERY}domain_refused_recipients", ',domain="busy.example",class="RateLimited"', "30+0x60"),
    **series(f"{DELIVERY}refused_attempts_total", ',class="RateLimited"', "0+30x60"),
    **series(f"{DELIVERY}refused_attempts_total", ',class="InvalidRecipient"', "7+0x60"),
    **series(f"{DELIVERY}suspensions", "", "2+0x60"),
    **series(f"{DELIVERY}suspensions_unread", "", "0+0x60"),
    **series(f"{DELIVERY}conditions", ',state="set"', "1+0x60"),
    **series(f"{DELIVERY}conditions_unread", "", "0+0x60"),
    **series(f"{DELIVERY}pickup_counters", ',state="refusing"', "1+0x60"),
    **series(f"{DELIVERY}pickup_counters", ',state="clear"', "3+0x60"),
    **series(f"{DELIVERY}pickup_sub_queues", ',state="blocked"', "4+0x60"),
    **series(f"{DELIVERY}pickup_turns_total", ',end="picked"'),
    **series(f"{DELIVERY}pickup_wakes_total"),
    **series(f"{DELIVERY}journal_up", "", "1+0x60"),
    f'{DELIVERY}journal_up{{queue="spool",instance="three"}}': "0+0x60",
    **series(f"{DELIVERY}journal_unwritten_attempts", "", "5+0x60"),
    **series(f"{DELIVERY}uncertain_recipients_total", ',policy="retry"', "0+1x60"),
    **series(f"{DELIVERY}lost_reports_total", ',told="nobody"', "0+1x60"),
    **series(f"{DELIVERY}servers", "", "2+0x60"),
    **series(f"{DELIVERY}share", ',state="has it"', "1+0x60"),
    **series(f"{DELIVERY}looked_at_timestamp_seconds", "", "0+60x59 3540"),
    **series(f"{DELIVERY}suspensions_read_timestamp_seconds", "", "0+0x60"),
    **series(f"{LISTENER}mails_total"),
    **series(f"{LISTENER}recipients_total", "", "0+120x60"),
    **series(f"{LISTENER}bytes_total", "", "0+6000x60"),
    **series(f"{LISTENER}refused_total", ',status="4.3.0"'),
    **series(f"{LISTENER}refused_total", ',status="5.7.1"', "9+0x60"),
    **series(f"{LISTENER}connections", "", "3+0x60"),
    **series(f"{LISTENER}quota_used_ratio", ',quota="daily"', "0.5+0x60"),
    **series(f"{LISTENER}quota_refused_total", ',quota="daily"'),
    **series(f"{LISTENER}quota_counted_timestamp_seconds", "", "3000+0x60"),
}
SHOWN: Mapping[str, Sequence[dict[str, float]]] = {
    "Recipients a second, by result": [{"spool: delivered": 3, "spool: refused": 1}],
    "Mean time at each stage": [{"spool: waiting": 10, "spool: delivering": 3}],
    "Recipients at each stage, and mails taken": [
        {"spool: waiting": 40, "spool: delivering": 12},
        {"spool: mails": 52},
    ],
    "Refused for now in a minute, by domain and last reply": [{"spool: busy.example RateLimited": 60}],
    "Refused attempts a second, by class of the reply": [{"spool: RateLimited": 1}],
    "Suspensions and run-time conditions": [
        {"spool: suspensions": 2},
        {"spool: conditions set": 1},
        {"spool: unread suspensions": 0},
        {"spool: unread conditions": 0},
    ],
    "Limits used: part of the counters that refuse": [{"spool": 0.25}],
    "Exceeded entries, and sub-queues that they block": [
        {"spool: exceeded entries": 2},
        {"spool: blocked sub-queues": 8},
    ],
    "Turns of sub-queues a second": [{"spool: picked": 2}, {"spool: retried, as a limit has room": 2}],
    "Journal of attempts is written": [{"spool": 0}],
    "Attempts without a journal or a known outcome": [
        {"spool: not in the journal": 10},
        {"spool: uncertain in an hour, retry": 120},
    ],
    "Lost reports in 6 hours": [{"spool: nobody": 120}],
    "Servers, and the states of their shares of limits": [{"spool: servers": 2}, {"spool: has it": 2}],
    "Since figures were written, and orders read": [
        {"spool: figures": 60},
        {"spool: suspensions and conditions": 3600},
    ],
    "Mails and recipients that clients hand over, a second": [{"spool: mails": 2}, {"spool: recipients": 4}],
    "Bytes that clients hand over, a second": [{"spool": 200}],
    "Refusals to clients a second, by status": [{"spool: 4.3.0": 2}],
    "Open connections of clients": [{"spool": 6}],
    "Used part of quotas": [{"spool: daily": 0.5}],
    "Refused by quotas a second, and age of the count": [{"spool: daily": 2}, {"spool: s since the count": 600}],
}
"""What each query of a panel shows after an hour, by its legend."""


def evaluated(expression: str, legend: str, shown: dict[str, float]) -> dict[str, object]:
    """A test of promtool's: labels are taken from the legend that they make."""
    return {
        "expr": chosen(expression),
        "eval_time": f"{MINUTES}m",
        "exp_samples": [{"labels": labels_of(legend, text), "value": value} for text, value in shown.items()],
    }


def labels_of(legend: str, text: str) -> str:
    names = re.findall(r"\{\{(\w+)\}\}", legend)
    form = re.sub(r"\\\{\\\{(\w+)\\\}\\\}", r"(?P<\1>.+)", re.escape(legend))
    found = re.fullmatch(form, text)
    assert found, (legend, text)
    return "{" + ",".join(f'{name}="{found[name]}"' for name in names) + "}"


def chosen(expression: str) -> str:
    """As Grafana asks where an operator chose one keyspace and one queue."""
    return expression.replace("$keyspace", "mail").replace("$queue", "spool")


def test_panels_about_deliveries_show_what_two_servers_of_a_queue_tell(tmp_path: Path) -> None:
    panels = [panel for row in DELIVERY_ROWS for panel in row.panels]
    assert [panel.title for panel in panels] == list(SHOWN)
    tests = [
        evaluated(query.expression, query.legend, shown)
        for panel in panels
        for query, shown in zip(panel.queries, SHOWN[panel.title], strict=True)
    ]
    file = tmp_path / "panels.test.yml"
    input_series = [{"series": name, "values": values} for name, values in SERIES.items()]
    test = {"interval": "1m", "input_series": input_series, "promql_expr_test": tests}
    file.write_text(json.dumps({"evaluation_interval": "1m", "tests": [test]}))

    assert "SUCCESS" in promtool("test", "rules", str(file))


def test_a_queue_without_deliveries_has_no_time_at_a_stage(tmp_path: Path) -> None:
    """A division by zero would stretch the axis of the panel to infinity."""
    (time_at_stage,) = (panel for panel in PANELS if panel.title == "Mean time at each stage")
    still = {
        f'{DELIVERY}active_recipients{{queue="spool",stage="waiting"}}': "20+0x60",
        f'{DELIVERY}recipients_total{{queue="spool",end="delivered"}}': "7+0x60",
    }
    file = tmp_path / "still.test.yml"
    query = time_at_stage.queries[0]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in still.items()],
        "promql_expr_test": [evaluated(query.expression, query.legend, {})],
    }
    file.write_text(json.dumps({"evaluation_interval": "1m", "tests": [test]}))

    assert "SUCCESS" in promtool("test", "rules", str(file))


def test_queries_of_the_dashboard_can_be_parsed(tmp_path: Path) -> None:
    queries = [chosen(query.expression) for panel in PANELS for query in panel.queries]
    rules = [{"record": f"mailmend:query{place}", "expr": query} for place, query in enumerate(queries)]
    file = tmp_path / "queries.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))

    assert f"{len(queries)} rules found" in promtool("check", "rules", str(file))
