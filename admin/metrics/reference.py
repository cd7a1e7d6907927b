"""What is generated of the metrics: `docs/metrics.md`, the files of alerts and dashboard.

`python -m mailmend.admin.metrics.reference` writes them; with `--check` it exits 1 when one of them
is not up to date. The dashboard is Grafana's, as code: panels as data, rendered as the JSON that
Grafana imports. `mailmend metrics dashboard` prints it too.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from mailmend.admin.metrics.alerts import ALERTS, prometheus_rule, rules_file
from mailmend.admin.metrics.declared import JOBS, LEDGER, RUNS
from mailmend.cql.generated import write_or_check
from mailmend.delivery.metrics import DELIVERY_METRICS, LISTENER_METRICS
from mailmend.mailqueue.prometheus import QUEUE_METRICS
from mailmend.model.metrics import Metric

_SCHEMA: Final = 39
"""Of Grafana 11; later ones take it, and write their own."""

_COLUMNS: Final = 24
_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
_KEYSPACE: Final = 'keyspace=~"$keyspace"'


class PanelQuery(NamedTuple):
    """A query, and what its series are called: labels in double braces."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class DashboardPanel:
    """One panel; `unit` is one of Grafana's names, `kind` one of its panels."""

    title: str
    queries: Sequence[PanelQuery]
    unit: str = "short"
    kind: str = "timeseries"
    columns: int = 8
    rows: int = 7


PANELS: Final = (
    DashboardPanel(
        "Ledger can be read",
        [PanelQuery(f"min by (keyspace) (mailmend_ledger_up{{{_KEYSPACE}}})", "{{keyspace}}")],
        kind="stat",
        columns=4,
        rows=4,
    ),
    DashboardPanel(
        "Lags waiting",
        [PanelQuery(f"max by (keyspace) (mailmend_lags_waiting{{{_KEYSPACE}}})", "{{keyspace}}")],
        kind="stat",
        columns=4,
        rows=4,
    ),
    DashboardPanel(
        "Oldest lag",
        [
            PanelQuery(
                f"time() - min by (keyspace) (mailmend_lag_oldest_timestamp_seconds{{{_KEYSPACE}}})", "{{keyspace}}"
            )
        ],
        unit="s",
        kind="stat",
        columns=4,
        rows=4,
    ),
    DashboardPanel(
        "Leases, and for how long they are held",
        [
            PanelQuery(
                f"time() - min by (keyspace, lease, owner) (mailmend_lease_acquired_timestamp_seconds{{{_KEYSPACE}}})",
                "{{lease}}: {{owner}}",
            )
        ],
        unit="s",
        kind="stat",
        columns=12,
        rows=4,
    ),
    DashboardPanel(
        "Found by the last check",
        [
            PanelQuery(
                f'max by (projection, verdict) (mailmend_run_findings{{{_KEYSPACE},command=~"check.*"}})',
                "{{projection}} {{verdict}}",
            )
        ],
    ),
    DashboardPanel(
        "Found by the last repair",
        [
            PanelQuery(
                f'max by (projection, verdict) (mailmend_run_findings{{{_KEYSPACE},command=~"repair.*"}})',
                "{{projection}} {{verdict}}",
            )
        ],
    ),
    DashboardPanel(
        "Left by every repair, and since when",
        [
            PanelQuery(
                f"time() - min by (command, verdict) (mailmend_finding_oldest_timestamp_seconds{{{_KEYSPACE}}})",
                "{{command}} {{verdict}}",
            )
        ],
        unit="s",
    ),
    DashboardPanel(
        "Fixed and left by the last run",
        [
            PanelQuery(f"sum by (command) (mailmend_run_fixed{{{_KEYSPACE}}})", "{{command}}: fixed"),
            PanelQuery(f"sum by (command) (mailmend_run_left{{{_KEYSPACE}}})", "{{command}}: left"),
            PanelQuery(f"max by (command) (mailmend_run_failed{{{_KEYSPACE}}})", "{{command}}: failed"),
        ],
    ),
    DashboardPanel(
        "Rows read a second, in the scan",
        [PanelQuery(f"max by (command) (mailmend_run_rows_per_second{{{_KEYSPACE}}})", "{{command}}")],
        unit="rowsps",
    ),
    DashboardPanel(
        "How long runs take",
        [
            PanelQuery(f"max by (command) (mailmend_run_duration_seconds{{{_KEYSPACE}}})", "{{command}}"),
            PanelQuery(
                f"max by (job_name) (mailmend_job_last_run_duration_seconds{{{_KEYSPACE}}})", "job {{job_name}}"
            ),
        ],
        unit="s",
    ),
    DashboardPanel(
        "Since the last success, in periods of the job",
        [
            PanelQuery(
                f"(time() - max by (job_name) (mailmend_job_last_success_timestamp_seconds{{{_KEYSPACE}}} > 0))"
                f" / max by (job_name) (mailmend_job_period_seconds{{{_KEYSPACE}}})",
                "{{job_name}}",
            )
        ],
    ),
    DashboardPanel(
        "Exit codes of the last runs",
        [
            PanelQuery(f"max by (job_name) (mailmend_job_last_run_exit_code{{{_KEYSPACE}}})", "job {{job_name}}"),
            PanelQuery(f'max by (command) (mailmend_run_exit_code{{{_KEYSPACE},job_name=""}})', "{{command}}"),
        ],
        kind="stat",
    ),
    DashboardPanel(
        "Jobs at work, and paused",
        [
            PanelQuery(f"max by (job_name) (mailmend_job_running{{{_KEYSPACE}}})", "{{job_name}} runs"),
            PanelQuery(f"max by (job_name) (mailmend_job_paused{{{_KEYSPACE}}})", "{{job_name}} is paused"),
        ],
    ),
    DashboardPanel(
        "Mails that wait",
        [
            PanelQuery("max by (queue) (mailmend_queue_mails)", "{{queue}}"),
            PanelQuery("max by (queue) (mailmend_queue_delayed_mails)", "{{queue}}: delayed"),
        ],
    ),
    DashboardPanel(
        "Mails that came and left, a second",
        [
            PanelQuery("sum by (queue) (rate(mailmend_queue_enqueued_total[5m]))", "{{queue}}: enqueued"),
            PanelQuery("sum by (queue) (rate(mailmend_queue_acked_total[5m]))", "{{queue}}: done"),
            PanelQuery("sum by (queue) (rate(mailmend_queue_retried_total[5m]))", "{{queue}}: retried"),
        ],
    ),
    DashboardPanel(
        "Browse start and sweep behind",
        [
            PanelQuery("max by (queue) (mailmend_queue_browse_start_age_seconds)", "{{queue}}: browse start"),
            PanelQuery("max by (queue) (mailmend_queue_content_start_lag_seconds)", "{{queue}}: not swept"),
        ],
        unit="s",
    ),
    DashboardPanel(
        "Marks that never expire",
        [
            PanelQuery(f"max by (keyspace) (mailmend_queue_marks_kept{{{_KEYSPACE}}})", "{{keyspace}}, about"),
            PanelQuery(f"max by (queue) (mailmend_run_queue_marks{{{_KEYSPACE}}})", "{{queue}}, counted"),
        ],
    ),
    DashboardPanel(
        "Queues that need attention",
        [PanelQuery("max by (queue, trouble) (mailmend_queue_trouble) == 1", "{{queue}} {{trouble}}")],
    ),
)


def dashboard_json() -> str:
    """The dashboard as Grafana imports it; which source of data it reads is chosen there."""
    document = {
        "uid": "mailmend",
        "title": "mailmend",
        "tags": ["cassandra", "mail"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-7d", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }
    return json.dumps(document, indent=2) + "\n"


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "source", "type": "datasource", "query": "prometheus"}
    query = 'label_values({__name__=~"mailmend_(ledger_up|run_exit_code)"}, keyspace)'
    yield {
        "name": "keyspace",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": "keyspace"},
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panels() -> Iterator[dict[str, Any]]:
    """In rows from left to right; a row is as high as its highest panel."""
    x = y = height = 0
    for number, panel in enumerate(PANELS, 1):
        if x + panel.columns > _COLUMNS:
            x = 0
            y = y + height
            height = 0
        targets = [
            {"refId": chr(ord("A") + place), "expr": query.expression, "legendFormat": query.legend}
            for place, query in enumerate(panel.queries)
        ]
        yield {
            "id": number,
            "type": panel.kind,
            "title": panel.title,
            "gridPos": {"x": x, "y": y, "w": panel.columns, "h": panel.rows},
            "datasource": _SOURCE,
            "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
            "targets": targets,
        }
        x = x + panel.columns
        height = max(height, panel.rows)


DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
MANIFESTS: Final = DOCS.with_name("deploy") / "kubernetes" / "components" / "monitoring"

_HEAD: Final = """\
# Metrics, alerts, dashboard

Generated from the declarations in `admin/metrics`: `python -m mailmend.admin.metrics.reference` writes it anew.

- `mailmend metrics show` prints the present metrics of ledger, starts of queues and declared jobs; with
  `--output FILE`, from cron, for node_exporter. `jobs serve` answers `GET /metrics` with the same metrics.
- `check`, `repair ...` and `queue sweep` write their metrics to `--metrics-file FILE`, however they end; a job writes
  them to the `metrics_file` of its declaration. A run without a result keeps the findings of the run before, and its
  last success, in the file.
- `mailmend queue tend --metrics-file FILE` and `queue metrics` write the metrics of queues, their broker and their
  mails.
- `mailmend delivery serve --metrics-file FILE` writes the metrics of the mails that it delivers, and of what became
  of others; with `--listen` also of the mails that clients hand over.
- `mailmend metrics alerts` and `mailmend metrics dashboard` print the two files of [monitoring/](monitoring/).

Each file is for one command alone, and no two files may hold the same metric, because node_exporter
then reports an error: `metrics show` has the newest repairs of the ledger and the starts of queues too.
The label `job_name` is the declared job, "" by hand (`job` is Prometheus's own); no label names a
message, a user or a mailbox.
"""
_TABLES: Final[Mapping[str, Sequence[Metric]]] = {
    "Of a run": RUNS,
    "Of declared jobs": JOBS,
    "Of ledger and tables": LEDGER,
    "Of queues": QUEUE_METRICS,
    "Of deliveries": DELIVERY_METRICS,
    "Of mails that clients hand over": LISTENER_METRICS,
}


def page_text() -> str:
    tables = (f"## {title}\n\n{_table(metrics)}\n" for title, metrics in _TABLES.items())
    return "\n".join((_HEAD, *tables, f"## Alerts\n\n{_alerts()}"))


def _table(metrics: Sequence[Metric]) -> str:
    rows = (
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels)}"
        f" | {metric.meaning} | {metric.no_alert or _alerts_on(metric)} |\n"
        for metric in metrics
    )
    return "| metric | kind | labels | meaning | alerts, or why none |\n|---|---|---|---|---|\n" + "".join(rows)


def _alerts_on(metric: Metric) -> str:
    return ", ".join(alert.name for alert in ALERTS if re.search(rf"\b{metric.name}\b", alert.expression))


def _alerts() -> str:
    rows = (
        f"| {alert.name} | {alert.severity.value} | {alert.lasting}"
        f" | [{alert.runbook}](../runbooks/{alert.runbook}.md) | `{alert.expression.replace('|', chr(92) + '|')}` |\n"
        for alert in ALERTS
    )
    return "| alert | severity | lasting | runbook | expression |\n|---|---|---|---|---|\n" + "".join(rows)


def main(arguments: list[str]) -> int:
    """With --check, exit 1 when one of them is out of date; else write them."""
    files = {
        DOCS / "metrics.md": page_text(),
        DOCS / "monitoring" / "alerts.yml": rules_file(),
        DOCS / "monitoring" / "dashboard.json": dashboard_json(),
        MANIFESTS / "prometheus-rule.yaml": prometheus_rule(),
    }
    otherwise = "is not what the declarations say: python -m mailmend.admin.metrics.reference writes it anew"
    return max(write_or_check(arguments, file, text, otherwise) for file, text in files.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
