"""Declarations of `mailmend metrics`."""

from typing import Final

from mailmend.admin.frame.command import Command, CommandGroup
from mailmend.admin.frame.options import CONNECTION, FILE, option
from mailmend.admin.jobs.jobs import ALL_JOBS

_OUTPUT: Final = option("--output", "Write to this file, whole or not at all.", type=FILE, metavar="FILE")
_SHOW: Final = Command(
    name="show",
    summary="What is known of jobs, repairs, lags, leases and queues, in Prometheus's text format.",
    about="""From the ledger, the settings file's jobs, and the starts of all queues where the role may read them;
    nothing is scanned and nothing written. A check leaves nothing in the ledger: what it found is written where its job
    has a `metrics_file`, or by its own --metrics-file. The same comes from `mailmend queue metrics` for queues, and
    from --metrics-file for repairs: node_exporter takes each of these from one file only. docs/metrics.md lists them
    all.""",
    service="mailmend.admin.metrics.metrics_service:show_metrics",
    present="mailmend.admin.metrics.metrics_document:exposed_document",
    options=(_OUTPUT,),
    shared=(ALL_JOBS, CONNECTION),
    output=(),
    examples="""
        mailmend metrics show
        mailmend metrics show --output /var/lib/node_exporter/mailmend.prom      from cron, every five minutes""",
    exits="0 all of it was read, 2 a declaration is wrong, or the file cannot be written, 4 some could not be read: "
    "the rest is shown, and `mailmend_ledger_up` is 0.",
)

_ALERTS: Final = Command(
    name="alerts",
    summary="Alert rules for Prometheus, each with its runbook.",
    about="The annotation `runbook` of an alert names a page: `mailmend runbook show NAME`; that page names the alert.",
    service="mailmend.admin.metrics.metrics_service:alerts",
    present="mailmend.admin.metrics.metrics_document:shipped_document",
    options=(_OUTPUT,),
    output=(),
    examples="mailmend metrics alerts --output /etc/prometheus/rules/mailmend.yml",
)
_DASHBOARD: Final = Command(
    name="dashboard",
    summary="A dashboard for Grafana.",
    about="To be imported there; it asks for its source of data.",
    service="mailmend.admin.metrics.metrics_service:dashboard",
    present="mailmend.admin.metrics.metrics_document:shipped_document",
    options=(_OUTPUT,),
    output=(),
    examples="mailmend metrics dashboard --output /var/lib/grafana/dashboards/mailmend.json",
)

METRICS: Final = CommandGroup(
    name="metrics",
    summary="What monitoring sees: metrics, alerts, a dashboard.",
    commands=(_SHOW, _ALERTS, _DASHBOARD),
)
