"""What is generated of the metrics: `docs/metrics.md`, the files of alerts and dashboard.

`python -m mailmend.admin.metrics.reference` writes them; with `--check` it exits 1 when one of them
is not up to date.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from mailmend.admin.metrics.alerts import ALERTS, prometheus_rule, rules_file
from mailmend.admin.metrics.dashboard import dashboard_json
from mailmend.admin.metrics.declared import JOBS, LEDGER, RUNS
from mailmend.cql.generated import write_or_check
from mailmend.delivery.metrics import DELIVERY_METRICS, LISTENER_METRICS
from mailmend.mailqueue.prometheus import QUEUE_METRICS
from mailmend.model.metrics import Metric

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
- `mailmend metrics alerts` and `mailmend metrics dashboard` print the two files of [monitoring/](monitoring/);
  `--runbook-url` says where their links to runbooks lead.

Each file is for one command alone, and no two files may hold the same metric, because node_exporter
then reports an error: `metrics show` has the newest repairs of the ledger and the starts of queues too.
The label `job_name` is the declared job, "" by hand (`job` is Prometheus's own); no label names a
message, a user or a mailbox. One label names domains: the 10 with most refusals of the last minute.
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
