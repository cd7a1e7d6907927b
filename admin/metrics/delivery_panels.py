"""Panels of the dashboard about deliveries, and about mails that clients hand over."""

from typing import Final

from mailmend.admin.metrics.panels import (
    OF_QUEUE,
    DashboardPanel,
    PanelQuery,
    PanelRow,
    by_queue,
    rate_by_queue,
)


def _sum(metric: str, *labels: str) -> str:
    return by_queue("sum", ", ".join(("queue", *labels)), metric)


def _increase(metric: str, label: str, hours: int) -> str:
    return f"sum by (queue, {label}) (increase(mailmend_{metric}{{{OF_QUEUE}}}[{hours}h]))"


def _since(metric: str) -> str:
    """Seconds since the newest of all servers."""
    return f"time() - {by_queue('max', 'queue', metric)}"


_REFUSING: Final = by_queue("sum", "queue", "delivery_pickup_counters", 'state="refusing"')
_DELIVERY_PANELS: Final = (
    DashboardPanel(
        "Recipients a second, by result",
        [PanelQuery(rate_by_queue("delivery_recipients_total", "end"), "{{queue}}: {{end}}")],
        runbooks=("destination-throttles-us", "queue-does-not-drain"),
    ),
    DashboardPanel(
        "Mean time at each stage",
        [
            PanelQuery(
                "sum by (queue, stage)"
                f" (avg_over_time(mailmend_delivery_active_recipients{{{OF_QUEUE}}}[5m]))"
                " / on (queue) group_left () "
                f"({rate_by_queue('delivery_recipients_total')} > 0)",
                "{{queue}}: {{stage}}",
            )
        ],
        unit="s",
        about="Recipients at the stage, divided by recipients that ended per second (Little's law),"
        " of the last 5 minutes. While more and more recipients wait, it is an estimate.",
        runbooks=("destination-throttles-us",),
    ),
    DashboardPanel(
        "Recipients at each stage, and mails taken",
        [
            PanelQuery(_sum("delivery_active_recipients", "stage"), "{{queue}}: {{stage}}"),
            PanelQuery(_sum("delivery_mails"), "{{queue}}: mails"),
        ],
    ),
    DashboardPanel(
        "Refused for now in a minute, by domain and last reply",
        [
            PanelQuery(
                _sum("delivery_domain_refused_recipients", "domain", "class"),
                "{{queue}}: {{domain}} {{class}}",
            )
        ],
        about="Of each server the 10 domains with most; `mailmend delivery top` shows them all.",
        runbooks=("destination-throttles-us",),
    ),
    DashboardPanel(
        "Refused attempts a second, by class of the reply",
        [PanelQuery(f"{rate_by_queue('delivery_refused_attempts_total', 'class')} > 0", "{{queue}}: {{class}}")],
        runbooks=("destination-throttles-us",),
    ),
    DashboardPanel(
        "Suspensions and run-time conditions",
        [
            PanelQuery(by_queue("max", "queue", "delivery_suspensions"), "{{queue}}: suspensions"),
            PanelQuery(by_queue("max", "queue, state", "delivery_conditions"), "{{queue}}: conditions {{state}}"),
            PanelQuery(
                by_queue("max", "queue", "delivery_suspensions_unread"),
                "{{queue}}: unread suspensions",
            ),
            PanelQuery(by_queue("max", "queue", "delivery_conditions_unread"), "{{queue}}: unread conditions"),
        ],
        about="The numbers of the server that has most: `mailmend suspend list QUEUE` names them.",
        runbooks=("customer-jams-the-queue",),
    ),
    DashboardPanel(
        "Limits used: part of the counters that refuse",
        [PanelQuery(f"{_REFUSING} / ({_sum('delivery_pickup_counters')} > 0)", "{{queue}}")],
        unit="percentunit",
        runbooks=("customer-jams-the-queue",),
    ),
    DashboardPanel(
        "Exceeded entries, and sub-queues that they block",
        [
            PanelQuery(_REFUSING, "{{queue}}: exceeded entries"),
            PanelQuery(_sum("delivery_pickup_sub_queues", "state"), "{{queue}}: {{state}} sub-queues"),
        ],
        about="`mailmend suspend list QUEUE --exceeded --ask URL` names the entries.",
        runbooks=("customer-jams-the-queue",),
    ),
    DashboardPanel(
        "Turns of sub-queues a second",
        [
            PanelQuery(rate_by_queue("delivery_pickup_turns_total", "end"), "{{queue}}: {{end}}"),
            PanelQuery(rate_by_queue("delivery_pickup_wakes_total"), "{{queue}}: retried, as a limit has room"),
        ],
    ),
    DashboardPanel(
        "Journal of attempts is written",
        [PanelQuery(by_queue("min", "queue", "delivery_journal_up"), "{{queue}}")],
        kind="stat",
        columns=4,
        runbooks=("servers-do-not-answer",),
    ),
    DashboardPanel(
        "Attempts without a journal or a known outcome",
        [
            PanelQuery(_sum("delivery_journal_unwritten_attempts"), "{{queue}}: not in the journal"),
            PanelQuery(
                _increase("delivery_uncertain_recipients_total", "policy", 1),
                "{{queue}}: uncertain in an hour, {{policy}}",
            ),
        ],
        columns=12,
        runbooks=("delivery-server-died",),
    ),
    DashboardPanel(
        "Lost reports in 6 hours",
        [
            PanelQuery(
                _increase("delivery_lost_reports_total", "told", 6),
                "{{queue}}: {{told}}",
            )
        ],
        runbooks=("reports-are-lost",),
    ),
    DashboardPanel(
        "Servers, and the states of their shares of limits",
        [
            PanelQuery(by_queue("max", "queue", "delivery_servers"), "{{queue}}: servers"),
            PanelQuery(_sum("delivery_share", "state"), "{{queue}}: {{state}}"),
        ],
        columns=12,
        runbooks=("delivery-server-died",),
    ),
    DashboardPanel(
        "Since figures were written, and orders read",
        [
            PanelQuery(_since("delivery_looked_at_timestamp_seconds"), "{{queue}}: figures"),
            PanelQuery(
                _since("delivery_suspensions_read_timestamp_seconds"),
                "{{queue}}: suspensions and conditions",
            ),
        ],
        unit="s",
        columns=12,
        runbooks=("delivery-server-died", "servers-do-not-answer"),
    ),
)

_LISTENER_PANELS: Final = (
    DashboardPanel(
        "Mails and recipients that clients hand over, a second",
        [
            PanelQuery(rate_by_queue("listener_mails_total"), "{{queue}}: mails"),
            PanelQuery(rate_by_queue("listener_recipients_total"), "{{queue}}: recipients"),
        ],
    ),
    DashboardPanel(
        "Bytes that clients hand over, a second",
        [PanelQuery(rate_by_queue("listener_bytes_total"), "{{queue}}")],
        unit="Bps",
    ),
    DashboardPanel(
        "Refusals to clients a second, by status",
        [PanelQuery(f"{rate_by_queue('listener_refused_total', 'status')} > 0", "{{queue}}: {{status}}")],
        about="4.3.0: the queue does not take the mail. docs/metrics.md explains the codes.",
        runbooks=("servers-do-not-answer",),
    ),
    DashboardPanel(
        "Open connections of clients",
        [PanelQuery(_sum("listener_connections"), "{{queue}}")],
    ),
    DashboardPanel(
        "Used part of quotas",
        [PanelQuery(by_queue("max", "queue, quota", "listener_quota_used_ratio"), "{{queue}}: {{quota}}")],
        unit="percentunit",
        about="The key that has used most of the quota; 100 % is full.",
        runbooks=("customer-jams-the-queue",),
    ),
    DashboardPanel(
        "Refused by quotas a second, and age of the count",
        [
            PanelQuery(rate_by_queue("listener_quota_refused_total", "quota"), "{{queue}}: {{quota}}"),
            PanelQuery(_since("listener_quota_counted_timestamp_seconds"), "{{queue}}: s since the count"),
        ],
        runbooks=("customer-jams-the-queue", "servers-do-not-answer"),
    ),
)

DELIVERY_ROWS: Final = (
    PanelRow("Deliveries", _DELIVERY_PANELS),
    PanelRow("Mails that clients hand over", _LISTENER_PANELS),
)
