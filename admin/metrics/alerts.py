"""Alert rules: one for everything that a person has to do something about, with the runbook that says what.

Data, rendered as a file of rules for Prometheus (`docs/monitoring/alerts.yml`, `mailmend metrics alerts`). Expressions
name what they are about by their own labels, not by who was asked: several servers may tell the same.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from textwrap import indent
from typing import Final, NamedTuple, Self
from urllib.parse import urlsplit

from mailmend.model.errors import WrongUse

_NAME: Final = "{name}"
_URL_LENGTH_MAX: Final = 2_000
_NOT_IN_URLS: Final = frozenset(" \"'<>\\^`{|}$")


class RunbookLinks(NamedTuple):
    """Where runbooks are read; `url` has `{name}` for the name of a page."""

    url: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """A URL of http or https; without `{name}` the name of the page follows it.

        Raises:
            WrongUse: it is no such URL.
        """
        url = text.strip()
        if _NAME not in url:
            url = f"{url.rstrip('/')}/{_NAME}"
        if not _is_link(url.replace(_NAME, "page")):
            raise WrongUse(
                f"{text!r} is not a URL of runbooks",
                mend="Use a URL of http or https without login: --runbook-url https://wiki.example.org/runbooks/{name}",
            )
        return cls(url)

    def of(self, page: str) -> str:
        """The link to a page, by its name."""
        return self.url.replace(_NAME, page)


def _is_link(url: str) -> bool:
    if len(url) > _URL_LENGTH_MAX or not url.isprintable() or set(url) & _NOT_IN_URLS:
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc


RUNBOOKS_AT: Final = RunbookLinks("https://github.com/mailmend/mailmend/blob/main/runbooks/{name}.md")
"""Where the runbooks of this project are read."""

_DAY: Final = 86_400


class AlertSeverity(Enum):
    """How soon a person has to look."""

    WARNING = "warning"  # at the next working day
    CRITICAL = "critical"  # now, by night too


@dataclass(frozen=True, slots=True)
class AlertRule:
    """One alert.

    Attributes:
        lasting: for how long the expression has to hold, as Prometheus writes durations.
        summary: a sentence, with `{{ $labels.NAME }}` and `{{ $value }}`.
        runbook: the name of a page, which names the alert.
    """

    name: str
    expression: str
    lasting: str
    severity: AlertSeverity
    summary: str
    runbook: str


def _problem(*names: str) -> str:
    return f'max by (queue, trouble) (mailmend_queue_trouble{{trouble=~"{"|".join(names)}"}}) == 1'


ALERTS: Final = (
    AlertRule(
        "MailmendJobHasNoSuccess",
        "time() - max by (keyspace, job_name) (mailmend_job_last_success_timestamp_seconds)"
        " > 2 * max by (keyspace, job_name) (mailmend_job_period_seconds)"
        " unless on (keyspace, job_name) mailmend_job_paused == 1",
        "15m",
        AlertSeverity.WARNING,
        "Job {{ $labels.job_name }} of {{ $labels.keyspace }} has not succeeded for two of its periods",
        "scheduled-repair-failed",
    ),
    AlertRule(
        "MailmendJobNeverRan",
        "max by (keyspace, job_name) (changes(mailmend_job_next_run_timestamp_seconds[15d])) >= 2"
        " unless on (keyspace, job_name) (mailmend_job_last_run_timestamp_seconds or mailmend_job_paused == 1)"
        " unless on (keyspace) mailmend_ledger_up == 0",
        "15m",
        AlertSeverity.WARNING,
        "Job {{ $labels.job_name }} of {{ $labels.keyspace }} was due, and has never been started",
        "scheduled-repair-failed",
    ),
    AlertRule(
        "MailmendJobPausedLong",
        "max by (keyspace, job_name) (mailmend_job_paused) == 1",
        "168h",
        AlertSeverity.WARNING,
        "Job {{ $labels.job_name }} of {{ $labels.keyspace }} has been paused for a week",
        "scheduled-repair-failed",
    ),
    AlertRule(
        "MailmendJobFailed",
        "max by (keyspace, job_name) (mailmend_job_last_run_exit_code) > 1 != 130",
        "5m",
        AlertSeverity.WARNING,
        "The last run of job {{ $labels.job_name }} of {{ $labels.keyspace }} ended with {{ $value }}",
        "scheduled-repair-failed",
    ),
    AlertRule(
        "MailmendRunFailed",
        "(max by (keyspace, command, job_name) (mailmend_run_exit_code) > 1 != 130)"
        " unless on (keyspace, job_name) mailmend_job_last_run_exit_code",
        "5m",
        AlertSeverity.WARNING,
        "{{ $labels.command }} of {{ $labels.keyspace }} ended with {{ $value }}",
        "scheduled-repair-failed",
    ),
    AlertRule(
        "MailmendLedgerUnreadable",
        "max by (keyspace) (mailmend_ledger_up) == 0",
        "15m",
        AlertSeverity.WARNING,
        "The ledger or the queues of {{ $labels.keyspace }} cannot be read: the other figures are missing",
        "servers-do-not-answer",
    ),
    AlertRule(
        "MailmendMetricsStale",
        "time() - max by (keyspace) (mailmend_ledger_read_timestamp_seconds) > 3600",
        "5m",
        AlertSeverity.WARNING,
        "The figures of {{ $labels.keyspace }} are older than an hour: no process writes them",
        "servers-do-not-answer",
    ),
    AlertRule(
        "MailmendQueueMetricsStale",
        "time() - max by (queue) (mailmend_queue_looked_at_timestamp_seconds) > 3600",
        "5m",
        AlertSeverity.WARNING,
        "The figures of queue {{ $labels.queue }} are older than an hour: no process writes them",
        "servers-do-not-answer",
    ),
    AlertRule(
        "MailmendDeliveryStopped",
        "time() - max by (queue) (mailmend_delivery_looked_at_timestamp_seconds) > 300",
        "5m",
        AlertSeverity.CRITICAL,
        "No server of deliveries of queue {{ $labels.queue }} has written its figures for 5 minutes",
        "delivery-server-died",
    ),
    AlertRule(
        "MailmendDeliveryOnlyRefused",
        'sum by (queue) (increase(mailmend_delivery_recipients_total{end="refused"}[1h])) > 20'
        ' unless on (queue) sum by (queue) (increase(mailmend_delivery_recipients_total{end="delivered"}[1h])) > 0',
        "15m",
        AlertSeverity.WARNING,
        "Every attempt of queue {{ $labels.queue }} was refused for an hour: {{ $value | humanize }} recipients",
        "destination-throttles-us",
    ),
    AlertRule(
        "MailmendReportsLost",
        'sum by (queue) (increase(mailmend_delivery_lost_reports_total{told="nobody"}[6h])) > 0'
        " or sum by (queue) (increase(mailmend_delivery_lost_reports_total[6h])) > 50",
        "5m",
        AlertSeverity.WARNING,
        "{{ $value | humanize }} reports of queue {{ $labels.queue }} could not be delivered within 6 hours",
        "reports-are-lost",
    ),
    AlertRule(
        "MailmendSuspensionsUnread",
        "max by (queue) (mailmend_delivery_looked_at_timestamp_seconds)"
        " - max by (queue) (mailmend_delivery_suspensions_read_timestamp_seconds) > 900",
        "5m",
        AlertSeverity.WARNING,
        "Servers of queue {{ $labels.queue }} cannot read suspensions and conditions: changes have no effect",
        "servers-do-not-answer",
    ),
    AlertRule(
        "MailmendListenerTakesNone",
        'sum by (queue) (increase(mailmend_listener_refused_total{status="4.3.0"}[15m])) > 0'
        " unless on (queue) sum by (queue) (increase(mailmend_listener_mails_total[15m])) > 0",
        "15m",
        AlertSeverity.CRITICAL,
        "Queue {{ $labels.queue }} has taken no mail of its clients for 15 minutes: they keep {{ $value | humanize }}",
        "servers-do-not-answer",
    ),
    AlertRule(
        "MailmendQuotaFull",
        "sum by (queue, quota) (increase(mailmend_listener_quota_refused_total[15m])) > 0",
        "30m",
        AlertSeverity.WARNING,
        "Quota {{ $labels.quota }} of queue {{ $labels.queue }} has been full for half an hour: clients have to wait",
        "customer-jams-the-queue",
    ),
    AlertRule(
        "MailmendQuotasUncounted",
        "max by (queue) (mailmend_delivery_looked_at_timestamp_seconds)"
        " - max by (queue) (mailmend_listener_quota_counted_timestamp_seconds) > 3600",
        "5m",
        AlertSeverity.WARNING,
        "Queue {{ $labels.queue }} has not been counted for an hour: what left it still counts against its quotas",
        "servers-do-not-answer",
    ),
    AlertRule(
        "MailmendLeaseHeldTooLong",
        "time() - min by (keyspace, lease, owner)"
        f' (mailmend_lease_acquired_timestamp_seconds{{lease!="serve"}}) > {_DAY}',
        "5m",
        AlertSeverity.WARNING,
        "{{ $labels.owner }} has held the lease of {{ $labels.lease }} of {{ $labels.keyspace }} for a day",
        "slow-down-a-repair",
    ),
    AlertRule(
        "MailmendDriftStays",
        "time() - min by (keyspace, command, verdict) (mailmend_finding_oldest_timestamp_seconds"
        f'{{command=~"check.*",verdict!~"COLLECT|LOST_CONTENT|MISSING"}}) > {_DAY + 7200}',
        "5m",
        AlertSeverity.WARNING,
        "{{ $labels.command }} of {{ $labels.keyspace }} has found the same {{ $labels.verdict }} for more than a day",
        "check-found-inconsistencies",
    ),
    AlertRule(
        "MailmendRepairLeavesSome",
        "time() - min by (keyspace, command, verdict) (mailmend_finding_oldest_timestamp_seconds"
        f'{{command=~"repair.*"}}) > {2 * _DAY}',
        "5m",
        AlertSeverity.WARNING,
        "Every {{ $labels.command }} of {{ $labels.keyspace }} has left the same {{ $labels.verdict }} for two days",
        "check-found-inconsistencies",
    ),
    AlertRule(
        "MailmendDriftComesBack",
        'max by (keyspace, command) (mailmend_run_fixed{command="repair messages"}) > 0',
        "74h",
        AlertSeverity.WARNING,
        "Every {{ $labels.command }} of {{ $labels.keyspace }} has had something to mend for three days",
        "drift-comes-back",
    ),
    AlertRule(
        "MailmendContentLost",
        'max by (keyspace) (mailmend_run_left{verdict="LOST_CONTENT"}) > 0',
        "5m",
        AlertSeverity.WARNING,
        "{{ $value | humanize }} messages of {{ $labels.keyspace }} are listed and their content is lost",
        "content-is-lost",
    ),
    AlertRule(
        "MailmendBlobMissing",
        'max by (keyspace) (mailmend_run_left{verdict="MISSING"}) > 0',
        "5m",
        AlertSeverity.WARNING,
        "{{ $value | humanize }} blobs of {{ $labels.keyspace }} are referred to and not there",
        "blob-is-missing",
    ),
    AlertRule(
        "MailmendLagsWait",
        "time() - min by (keyspace) (mailmend_lag_oldest_timestamp_seconds) > 3600",
        "10m",
        AlertSeverity.WARNING,
        "A lag of {{ $labels.keyspace }} has waited for more than an hour to be mended",
        "projection-lags",
    ),
    AlertRule(
        "MailmendSweepBehind",
        f"max by (queue) (mailmend_queue_content_start_lag_seconds) > {_DAY}",
        "1h",
        AlertSeverity.WARNING,
        "A day of finished slices of queue {{ $labels.queue }} is not swept",
        "queue-tables-grow",
    ),
    AlertRule(
        "MailmendQueueNotSwept",
        _problem("not_swept"),
        "30m",
        AlertSeverity.CRITICAL,
        "No process sweeps queue {{ $labels.queue }}: mails that wait will expire unless a sweep renews them",
        "queue-tables-grow",
    ),
    AlertRule(
        "MailmendBrowseStartStuck",
        _problem("browse_start_old", "moved_back"),
        "30m",
        AlertSeverity.WARNING,
        "The browse start of queue {{ $labels.queue }} is old, or was moved back",
        "browse-start-is-stuck",
    ),
    AlertRule(
        "MailmendQueueDoesNotDrain",
        _problem("stays_too_long", "dead_letters", "no_consumer", "broker_alarm"),
        "15m",
        AlertSeverity.CRITICAL,
        "Queue {{ $labels.queue }} needs attention: {{ $labels.trouble }}",
        "queue-does-not-drain",
    ),
    AlertRule(
        "MailmendBrokerDropsMail",
        _problem("messages_expire", "backlog_dropped", "subscription_expires", "idle_topic_deleted", "acks_forgotten"),
        "15m",
        AlertSeverity.CRITICAL,
        "The broker of queue {{ $labels.queue }} drops or repeats mails: {{ $labels.trouble }}",
        "queue-does-not-drain",
    ),
    AlertRule(
        "MailmendTopicsNeedAttention",
        _problem(*("backlog_full", "not_tended", "deletions_pile_up", "delays_ignored", "delays_cut", "kept_for_ever")),
        "15m",
        AlertSeverity.WARNING,
        "The topics of queue {{ $labels.queue }} need attention: {{ $labels.trouble }}",
        "pulsar-backlog-stays",
    ),
    AlertRule(
        "MailmendBrokerLacksMessages",
        _problem("lacks_message", "broker_away"),
        "15m",
        AlertSeverity.CRITICAL,
        "The broker of queue {{ $labels.queue }} is away, or lacks messages of mails that wait",
        "rabbitmq-was-lost",
    ),
    AlertRule(
        "MailmendMarksExpireFirst",
        _problem("marks_expire_first"),
        "15m",
        AlertSeverity.CRITICAL,
        "Marks of queue {{ $labels.queue }} expire before the rows that they hide: deleted mails come back",
        "marks-never-expire",
    ),
    AlertRule(
        "MailmendMarksGrow",
        "max by (keyspace) (mailmend_queue_marks_kept) > 1000000"
        " and max by (keyspace) (delta(mailmend_queue_marks_kept[7d])) > 0",
        "1h",
        AlertSeverity.WARNING,
        "{{ $value | humanize }} marks of queues of {{ $labels.keyspace }} never expire, and they grow in number",
        "marks-never-expire",
    ),
)

_HEAD: Final = """\
# Alerts of mailmend for Prometheus. Made by `mailmend metrics alerts`: to change one, write a rule of your own.
# The annotation `runbook` names a page: mailmend runbook show NAME. `runbook_url` is its link:
# `mailmend metrics alerts --runbook-url URL` sets where it leads.
groups:
  - name: mailmend
    rules:
"""


def rules_file(alerts: Sequence[AlertRule] = ALERTS, runbooks: RunbookLinks = RUNBOOKS_AT) -> str:
    """The alerts as a file of rules; every text in YAML's double quotes, which are JSON's."""
    return _HEAD + "".join(line + "\n" for alert in alerts for line in _lines(alert, runbooks))


_RULE_HEAD: Final = """\
# The alerts of docs/monitoring/alerts.yml for the Prometheus operator.
# Made by `python -m mailmend.admin.metrics.reference`.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: mailmend
  labels:
    app.kubernetes.io/name: mailmend
spec:
"""


def prometheus_rule() -> str:
    """The alerts as an object of Kubernetes, which the Prometheus operator reads."""
    groups = "".join(line for line in rules_file().splitlines(keepends=True) if line[0] != "#")
    return _RULE_HEAD + indent(groups, "  ")


def _lines(alert: AlertRule, runbooks: RunbookLinks) -> Iterator[str]:
    yield f"      - alert: {alert.name}"
    yield f"        expr: {json.dumps(alert.expression)}"
    yield f"        for: {alert.lasting}"
    yield f"        labels: {{severity: {alert.severity.value}}}"
    yield "        annotations:"
    yield f"          summary: {json.dumps(alert.summary)}"
    yield f"          runbook: {alert.runbook}"
    yield f"          runbook_url: {json.dumps(runbooks.of(alert.runbook))}"
