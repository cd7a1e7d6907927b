"""A dashboard of Grafana as code: panels as data, rendered as the JSON that Grafana imports.

`docs/monitoring/dashboard.json`, `mailmend metrics dashboard`.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

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
