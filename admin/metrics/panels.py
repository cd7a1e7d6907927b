"""Panels of the dashboard as data: runs, repairs, jobs and queues."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

OF_KEYSPACE: Final = 'keyspace=~"$keyspace"'
OF_QUEUE: Final = 'queue=~"$queue"'


def by_keyspace(function: str, labels: str, metric: str, *matchers: str) -> str:
    """A metric of the chosen keyspaces, put together by these labels."""
    return f"{function} by ({labels}) (mailmend_{metric}{{{','.join((OF_KEYSPACE, *matchers))}}})"


def by_queue(function: str, labels: str, metric: str, *matchers: str) -> str:
    """A metric of the chosen queues, put together by these labels."""
    return f"{function} by ({labels}) (mailmend_{metric}{{{','.join((OF_QUEUE, *matchers))}}})"


def rate_by_queue(metric: str, *labels: str) -> str:
    """How much a counter grows per second, all servers of a queue together."""
    return f"sum by ({', '.join(('queue', *labels))}) (rate(mailmend_{metric}{{{OF_QUEUE}}}[5m]))"


class PanelQuery(NamedTuple):
    """A query, and what its series are called: labels in double braces."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class DashboardPanel:
    """One panel; `unit` is one of Grafana's names, `kind` one of its panels.

    Attributes:
        about: what a reader cannot see in title and axes.
        runbooks: names of pages that the panel links.
    """

    title: str
    queries: Sequence[PanelQuery]
    unit: str = "short"
    kind: str = "timeseries"
    columns: int = 8
    rows: int = 7
    about: str = ""
    runbooks: Sequence[str] = ()


class PanelRow(NamedTuple):
    """Panels under one heading."""

    title: str
    panels: Sequence[DashboardPanel]


_RUN_PANELS: Final = (
    DashboardPanel(
        "Ledger can be read",
        [PanelQuery(by_keyspace("min", "keyspace", "ledger_up"), "{{keyspace}}")],
        kind="stat",
        columns=4,
        rows=4,
        runbooks=("servers-do-not-answer",),
    ),
    DashboardPanel(
        "Lags waiting",
        [PanelQuery(by_keyspace("max", "keyspace", "lags_waiting"), "{{keyspace}}")],
        kind="stat",
        columns=4,
        rows=4,
    ),
    DashboardPanel(
        "Oldest lag",
        [PanelQuery("time() - " + by_keyspace("min", "keyspace", "lag_oldest_timestamp_seconds"), "{{keyspace}}")],
        unit="s",
        kind="stat",
        columns=4,
        rows=4,
        runbooks=("projection-lags",),
    ),
    DashboardPanel(
        "Leases, and for how long they are held",
        [
            PanelQuery(
                "time() - min by (keyspace, lease, owner)"
                f" (mailmend_lease_acquired_timestamp_seconds{{{OF_KEYSPACE}}})",
                "{{lease}}: {{owner}}",
            )
        ],
        unit="s",
        kind="stat",
        columns=12,
        rows=4,
        runbooks=("slow-down-a-repair",),
    ),
    DashboardPanel(
        "Found by the last check",
        [
            PanelQuery(
                by_keyspace("max", "projection, verdict", "run_findings", 'command=~"check.*"'),
                "{{projection}} {{verdict}}",
            )
        ],
        runbooks=("check-found-inconsistencies",),
    ),
    DashboardPanel(
        "Found by the last repair",
        [
            PanelQuery(
                by_keyspace("max", "projection, verdict", "run_findings", 'command=~"repair.*"'),
                "{{projection}} {{verdict}}",
            )
        ],
    ),
    DashboardPanel(
        "Left by every repair, and since when",
        [
            PanelQuery(
                "time() - " + by_keyspace("min", "command, verdict", "finding_oldest_timestamp_seconds"),
                "{{command}} {{verdict}}",
            )
        ],
        unit="s",
        runbooks=("check-found-inconsistencies",),
    ),
    DashboardPanel(
        "Fixed and left by the last run",
        [
            PanelQuery(by_keyspace("sum", "command", "run_fixed"), "{{command}}: fixed"),
            PanelQuery(by_keyspace("sum", "command", "run_left"), "{{command}}: left"),
            PanelQuery(by_keyspace("max", "command", "run_failed"), "{{command}}: failed"),
        ],
    ),
    DashboardPanel(
        "Rows read a second, in the scan",
        [PanelQuery(by_keyspace("max", "command", "run_rows_per_second"), "{{command}}")],
        unit="rowsps",
    ),
    DashboardPanel(
        "How long runs take",
        [
            PanelQuery(by_keyspace("max", "command", "run_duration_seconds"), "{{command}}"),
            PanelQuery(by_keyspace("max", "job_name", "job_last_run_duration_seconds"), "job {{job_name}}"),
        ],
        unit="s",
    ),
    DashboardPanel(
        "Since the last success, in periods of the job",
        [
            PanelQuery(
                f"(time() - max by (job_name) (mailmend_job_last_success_timestamp_seconds{{{OF_KEYSPACE}}} > 0))"
                f" / max by (job_name) (mailmend_job_period_seconds{{{OF_KEYSPACE}}})",
                "{{job_name}}",
            )
        ],
        runbooks=("scheduled-repair-failed",),
    ),
    DashboardPanel(
        "Exit codes of the last runs",
        [
            PanelQuery(by_keyspace("max", "job_name", "job_last_run_exit_code"), "job {{job_name}}"),
            PanelQuery(by_keyspace("max", "command", "run_exit_code", 'job_name=""'), "{{command}}"),
        ],
        kind="stat",
        runbooks=("scheduled-repair-failed",),
    ),
    DashboardPanel(
        "Jobs at work, and paused",
        [
            PanelQuery(by_keyspace("max", "job_name", "job_running"), "{{job_name}} runs"),
            PanelQuery(by_keyspace("max", "job_name", "job_paused"), "{{job_name}} is paused"),
        ],
    ),
)

_QUEUE_PANELS: Final = (
    DashboardPanel(
        "Mails that wait",
        [
            PanelQuery(by_queue("max", "queue", "queue_mails"), "{{queue}}"),
            PanelQuery(by_queue("max", "queue", "queue_delayed_mails"), "{{queue}}: delayed"),
        ],
        runbooks=("queue-does-not-drain",),
    ),
    DashboardPanel(
        "Mails that came and left, a second",
        [
            PanelQuery(rate_by_queue("queue_enqueued_total"), "{{queue}}: enqueued"),
            PanelQuery(rate_by_queue("queue_acked_total"), "{{queue}}: done"),
            PanelQuery(rate_by_queue("queue_retried_total"), "{{queue}}: retried"),
        ],
    ),
    DashboardPanel(
        "Browse start and sweep behind",
        [
            PanelQuery(by_queue("max", "queue", "queue_browse_start_age_seconds"), "{{queue}}: browse start"),
            PanelQuery(by_queue("max", "queue", "queue_content_start_lag_seconds"), "{{queue}}: not swept"),
        ],
        unit="s",
        runbooks=("queue-tables-grow",),
    ),
    DashboardPanel(
        "Marks that never expire",
        [
            PanelQuery(by_keyspace("max", "keyspace", "queue_marks_kept"), "{{keyspace}}, about"),
            PanelQuery(by_keyspace("max", "queue", "run_queue_marks"), "{{queue}}, counted"),
        ],
        runbooks=("marks-never-expire",),
    ),
    DashboardPanel(
        "Queues that need attention",
        [PanelQuery(f"max by (queue, trouble) (mailmend_queue_trouble{{{OF_QUEUE}}}) == 1", "{{queue}} {{trouble}}")],
        runbooks=("queue-does-not-drain",),
    ),
)

PANEL_ROWS: Final = (
    PanelRow("Checks, repairs and jobs", _RUN_PANELS),
    PanelRow("Queues", _QUEUE_PANELS),
)
