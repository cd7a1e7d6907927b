"""Alerts and dashboard speak of metrics and labels that exist, and alerts and runbooks of each other."""

import json
import re
import tomllib
from itertools import pairwise

import pytest

from mailmend.admin.frame.runbooks import RunbookPage, pages
from mailmend.admin.metrics.alerts import ALERTS, RUNBOOKS_AT, AlertRule, RunbookLinks
from mailmend.admin.metrics.dashboard import PANELS, ROWS, dashboard_json
from mailmend.admin.metrics.declared import METRICS
from mailmend.admin.metrics.panels import DashboardPanel
from mailmend.delivery.metrics import DELIVERY_METRICS, LISTENER_METRICS
from mailmend.mailqueue.rules.health import HealthProblem
from mailmend.model.metrics import Metric
from tests.support.checkout import CHECKOUT
from tests.support.commands import CommandLine

DECLARED = {one.name: one for one in METRICS}
_METRIC = re.compile(r"\bmailmend_\w+")
_MATCHERS = re.compile(r"(mailmend_\w+)\{([^}]*)\}")
_LABEL = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
_GROUPED = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
_SHOWN = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")
_UNBOUNDED = {"message", "user", "mailbox", "run", "key", "path", "job", "instance"}


def wrong_in(query: str, *shown: str) -> set[str]:
    """Metrics that are not in the table, and labels that those in the query do not have."""
    names = set(_METRIC.findall(query))
    known = {label for name in names & DECLARED.keys() for label in DECLARED[name].labels}
    matched = {
        f"{name}.{label}"
        for name, matchers in _MATCHERS.findall(query)
        for label in _LABEL.findall(matchers)
        if name in DECLARED and label not in DECLARED[name].labels
    }
    grouped = {label.strip() for group in _GROUPED.findall(query) for label in group.split(",")}
    named = {label for text in shown for label in _SHOWN.findall(text)}
    return (names - DECLARED.keys()) | matched | ((grouped | named) - known)


@pytest.mark.parametrize("metric", METRICS, ids=lambda one: one.name)
def test_names_are_as_the_ecosystem_has_them(metric: Metric) -> None:
    assert re.fullmatch(r"mailmend(_[a-z]+)+", metric.name)
    assert (metric.kind == "counter") == metric.name.endswith("_total")
    assert not re.search(r"_(ms|millis|minutes|hours|days|micros|kb|mib)(_|$)", metric.name), "base units"
    assert not _UNBOUNDED & set(metric.labels)
    assert metric.meaning
    assert len([one for one in METRICS if one.name == metric.name]) == 1


def test_a_metric_has_an_alert_or_a_reason_for_none() -> None:
    alerted = {name for one in ALERTS for name in _METRIC.findall(one.expression)}

    assert {one.name for one in METRICS if not one.no_alert} == alerted
    named = {name for one in METRICS for name in re.findall(r"Mailmend\w+", one.no_alert)}
    assert named <= {one.name for one in ALERTS}


def test_a_wrong_query_is_found() -> None:
    assert wrong_in('max by (verdict) (mailmend_run_left{verdic="X"})', "{{command}}") == {"mailmend_run_left.verdic"}
    assert wrong_in("sum by (queue) (mailmend_run_left)") == {"queue"}
    assert wrong_in("mailmend_run_lefts", "{{ $labels.verdict }}") == {"mailmend_run_lefts", "verdict"}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda one: one.name)
def test_an_alert_speaks_of_metrics_that_exist(alert: AlertRule) -> None:
    assert wrong_in(alert.expression, alert.summary) == set()
    assert re.fullmatch(r"Mailmend([A-Z][a-z]+)+", alert.name)
    assert re.fullmatch(r"\d+[mh]", alert.lasting)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_alerts_and_runbooks_name_each_other(page: RunbookPage) -> None:
    named = set(re.findall(r"\bMailmend[A-Z]\w+", page.text))

    assert named == {one.name for one in ALERTS if one.runbook == page.name}


def test_every_alert_names_a_page() -> None:
    assert {one.runbook for one in ALERTS} <= {page.name for page in pages()}


def test_every_problem_of_a_queue_has_its_alert() -> None:
    in_alerts = [problem for one in ALERTS for problem in re.findall(r"[a-z_]+", _alerted(one.expression))]

    assert sorted(in_alerts) == sorted(problem.value for problem in HealthProblem)


def _alerted(expression: str) -> str:
    found = re.search(r'trouble=~"([^"]*)"', expression)
    return found[1] if found else ""


@pytest.mark.parametrize("panel", PANELS, ids=lambda one: one.title)
def test_a_panel_shows_metrics_that_exist(panel: DashboardPanel) -> None:
    for query in panel.queries:
        assert wrong_in(query.expression, query.legend) == set()


def test_the_dashboard_shows_what_the_issue_asks_for() -> None:
    """Findings, the oldest, rows a second, lags and the oldest, durations, last success, sweep, marks, leases."""
    shown = dashboard_json()
    wanted = "run_findings finding_oldest run_rows_per_second lags_waiting lag_oldest run_duration job_last_success"
    more = "queue_browse_start_age queue_content_start_lag queue_marks_kept run_queue_marks lease_acquired"

    assert [one for one in f"{wanted} {more}".split() if f"mailmend_{one}" not in shown] == []


def test_every_metric_of_deliveries_and_of_clients_is_in_a_panel() -> None:
    shown = {name for panel in PANELS for query in panel.queries for name in _METRIC.findall(query.expression)}

    assert {metric.name for metric in (*DELIVERY_METRICS, *LISTENER_METRICS)} - shown == set()


@pytest.mark.parametrize("panel", PANELS, ids=lambda one: one.title)
def test_the_variables_choose_what_a_panel_shows(panel: DashboardPanel) -> None:
    """A label that a variable chooses by, and that no query heeds, would show more than was chosen."""
    for query in panel.queries:
        metrics = set(_METRIC.findall(query.expression))
        chosen = dict(_MATCHERS.findall(query.expression))
        for name in metrics:
            labels = set(DECLARED[name].labels)
            variable = "keyspace" if "keyspace" in labels else "queue"
            assert f'{variable}=~"${variable}"' in chosen[name]


def test_links_of_panels_lead_to_runbooks_that_exist() -> None:
    known = {page.name for page in pages()}
    document = json.loads(dashboard_json(RunbookLinks.parse("http://127.0.0.1:8000/runbooks/")))
    links = [link for panel in document["panels"] for link in panel.get("links", [])]

    assert {name for panel in PANELS for name in panel.runbooks} <= known
    assert sorted(link["url"] for link in links) == sorted(
        f"http://127.0.0.1:8000/runbooks/{name}" for panel in PANELS for name in panel.runbooks
    )


@pytest.mark.parametrize("alert", ALERTS, ids=lambda one: one.name)
def test_an_alert_links_the_file_of_its_runbook(alert: AlertRule) -> None:
    with (CHECKOUT / "pyproject.toml").open("rb") as file:
        folder = tomllib.load(file)["project"]["urls"]["Runbooks"]
    url = RUNBOOKS_AT.of(alert.runbook)

    assert (CHECKOUT / "runbooks" / url.rsplit("/")[-1]).is_file()
    assert url.rsplit("/", 1)[0] == folder.replace("/tree/", "/blob/")


@pytest.mark.parametrize(
    ("typed", "leads"),
    [
        ("https://wiki.example.org/a", "https://wiki.example.org/a/content-is-lost"),
        ("https://wiki.example.org/a/", "https://wiki.example.org/a/content-is-lost"),
        ("http://[::1]:8000/{name}.html#top", "http://[::1]:8000/content-is-lost.html#top"),
    ],
)
def test_links_lead_where_an_operator_says(mailmend: CommandLine, typed: str, leads: str) -> None:
    rules = mailmend("metrics", "alerts", "--runbook-url", typed)
    panels = mailmend("metrics", "dashboard", "--runbook-url", typed)

    assert f"runbook_url: {json.dumps(leads)}" in rules.out
    assert RUNBOOKS_AT.url.removesuffix("{name}.md") not in rules.out + panels.out
    assert leads.replace("content-is-lost", "queue-does-not-drain") in panels.out


@pytest.mark.parametrize(
    "typed", ["", "runbooks", "ftp://a/b", "https://", "https://a b", "https://u:p@a", "https://[", "https://a/{{x}}"]
)
def test_what_is_no_link_is_refused_where_it_is_typed(mailmend: CommandLine, typed: str) -> None:
    ended = mailmend("metrics", "alerts", "--runbook-url", typed)

    assert (ended.code, ended.out) == (2, "")
    assert "is not a URL of runbooks. Use a URL of http or https" in ended.err


def test_panels_stand_side_by_side_and_not_upon_each_other() -> None:
    document = json.loads(dashboard_json())
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in document["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24
    assert [panel["title"] for panel in document["panels"] if panel["type"] == "row"] == [row.title for row in ROWS]
    assert all(before["id"] < after["id"] for before, after in pairwise(document["panels"]))
    assert "query_result" not in dashboard_json()


@pytest.mark.parametrize(("command", "begins"), [("alerts", "# Alerts of mailmend"), ("dashboard", "{")])
def test_the_files_come_with_the_command(mailmend: CommandLine, command: str, begins: str) -> None:
    file = mailmend.home / "file"

    shown, written = mailmend("metrics", command), mailmend("metrics", command, "--output", str(file))

    assert (shown.code, written.code, written.out, shown.out[: len(begins)]) == (0, 0, "", begins)
    assert file.read_text() == shown.out
    assert mailmend("metrics", command, "--output", "/nowhere/file").code == 2
