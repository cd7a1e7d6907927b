"""Alerts as Prometheus's own tool evaluates them: when each comes, what it says, and when it does not."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mailmend.admin.metrics.alerts import ALERTS, AlertRule, RunbookLinks, rules_file
from tests.support.checkout import CHECKOUT
from tests.support.promtool import promtool

STEP = "5m"  # a series without a sample for longer is gone
DAY = 288
RULES = {one.name: one for one in ALERTS}
RUNBOOKS = RunbookLinks.parse("https://wiki.example.org/mail/{name}?from=alert")


@dataclass(frozen=True, slots=True)
class Case:
    """Some series from the beginning of time (1970), and whether the alert is there after so many hours.

    Attributes:
        says: what it says; "" where it is not there.
        labels: that it has.
        series: values in promtool's own notation; a plain number stays what it is.
    """

    alert: str
    hours: int
    series: dict[str, str]
    says: str = ""
    labels: str = ""


def problem(alert: str, name: str, says: str) -> tuple[Case, Case]:
    series = f'mailmend_queue_trouble{{queue="spool",trouble="{name}"}}'
    labels = f"queue=spool trouble={name}"
    return Case(alert, 1, {series: "1"}, says, labels), Case(alert, 1, {series: "0"})


JOB = 'keyspace="mail",job_name="nightly"'
OF_JOB = "keyspace=mail job_name=nightly"
PERIOD = {f"mailmend_job_period_seconds{{{JOB}}}": "86400"}
SUCCESS = f"mailmend_job_last_success_timestamp_seconds{{{JOB}}}"
PAUSED = f"mailmend_job_paused{{{JOB}}}"
NEXT = {f"mailmend_job_next_run_timestamp_seconds{{{JOB}}}": "86400+0x287 172800+0x287 259200+0x287"}
BEGAN = f"mailmend_job_last_run_timestamp_seconds{{{JOB}}}"
JOB_EXIT = f"mailmend_job_last_run_exit_code{{{JOB}}}"
RUN_EXIT = 'mailmend_run_exit_code{keyspace="mail",command="check all"}'
RUN_OF_JOB = f'mailmend_run_exit_code{{{JOB},command="check all"}}'
UP = 'mailmend_ledger_up{keyspace="mail",instance="one"}'
LEASE = 'mailmend_lease_acquired_timestamp_seconds{keyspace="mail",lease="repair",owner="bob@host"}'
OLDEST = 'mailmend_finding_oldest_timestamp_seconds{keyspace="mail",command="repair messages",verdict="CLASH"}'
OF_CHECK = OLDEST.replace("repair messages", "check all").replace("CLASH", "PROJECT")
FIXED = 'mailmend_run_fixed{keyspace="mail",command="repair messages",verdict="AMEND"}'
LAG = 'mailmend_lag_oldest_timestamp_seconds{keyspace="mail"}'
BEHIND = 'mailmend_queue_content_start_lag_seconds{queue="spool"}'
READ_AT = 'mailmend_ledger_read_timestamp_seconds{keyspace="mail"}'
LOOKED_AT = 'mailmend_queue_looked_at_timestamp_seconds{queue="spool"}'
DELIVERY_AT = 'mailmend_delivery_looked_at_timestamp_seconds{queue="spool",instance="one"}'
NOT_KEPT = 'mailmend_listener_refused_total{queue="spool",status="4.3.0"}'
KEPT = 'mailmend_listener_mails_total{queue="spool"}'
DELIVERY_AT_TWO = DELIVERY_AT.replace("one", "two")
REFUSED = 'mailmend_delivery_recipients_total{queue="spool",end="refused"}'
DELIVERED = REFUSED.replace("refused", "delivered")
REPORTS_LOST = 'mailmend_delivery_lost_reports_total{queue="spool",told="nobody"}'
REPORTS_TO_POSTMASTER = REPORTS_LOST.replace("nobody", "postmaster")
SUSPENSIONS_AT = 'mailmend_delivery_suspensions_read_timestamp_seconds{queue="spool"}'
OVER_QUOTA = 'mailmend_listener_quota_refused_total{queue="spool",quota="per-customer"}'
COUNTED_AT = 'mailmend_listener_quota_counted_timestamp_seconds{queue="spool"}'
MARKS = 'mailmend_queue_marks_kept{keyspace="mail"}'


def left(verdict: str) -> str:
    return f'mailmend_run_left{{keyspace="mail",command="check all",verdict="{verdict}"}}'


NO_SUCCESS, NEVER, FAILED = "MailmendJobHasNoSuccess", "MailmendJobNeverRan", "MailmendJobFailed"
TWO_PERIODS = "Job nightly of mail has not succeeded for two of its periods"
CASES = (
    Case(NO_SUCCESS, 49, {SUCCESS: "0", **PERIOD, PAUSED: "0"}, TWO_PERIODS, OF_JOB),
    Case(NO_SUCCESS, 48, {SUCCESS: "0", **PERIOD, PAUSED: "0"}),
    Case(NO_SUCCESS, 49, {SUCCESS: "0", **PERIOD, PAUSED: "1"}),
    Case(NO_SUCCESS, 49, {SUCCESS: "0+300x900", **PERIOD, PAUSED: "0"}),
    Case(NEVER, 50, NEXT | {UP: "1"}, "Job nightly of mail was due, and has never been started", OF_JOB),
    Case(NEVER, 26, NEXT | {UP: "1"}),
    Case(NEVER, 50, NEXT | {UP: "1", BEGAN: "7"}),
    Case(NEVER, 50, NEXT | {UP: "1", PAUSED: "1"}),
    Case(NEVER, 50, NEXT | {UP: "0"}),
    Case("MailmendJobPausedLong", 169, {PAUSED: "1"}, "Job nightly of mail has been paused for a week", OF_JOB),
    Case("MailmendJobPausedLong", 167, {PAUSED: "1"}),
    Case(FAILED, 1, {JOB_EXIT: "3"}, "The last run of job nightly of mail ended with 3", OF_JOB),
    *(Case(FAILED, 1, {JOB_EXIT: code}) for code in ("0", "1", "130")),
    Case("MailmendRunFailed", 1, {RUN_EXIT: "4"}, "check all of mail ended with 4", "keyspace=mail command=check_all"),
    *(Case("MailmendRunFailed", 1, {RUN_EXIT: code}) for code in ("0", "1", "130")),
    Case("MailmendRunFailed", 1, {RUN_OF_JOB: "4", JOB_EXIT: "4"}),
    Case(
        "MailmendLedgerUnreadable",
        1,
        {UP: "0"},
        "The ledger or the queues of mail cannot be read: the other figures are missing",
        "keyspace=mail",
    ),
    Case("MailmendLedgerUnreadable", 1, {UP: "0", UP.replace("one", "two"): "1"}),
    Case(
        "MailmendMetricsStale",
        2,
        {READ_AT: "0"},
        "The figures of mail are older than an hour: no process writes them",
        "keyspace=mail",
    ),
    Case("MailmendMetricsStale", 1, {READ_AT: "0"}),
    Case("MailmendMetricsStale", 2, {READ_AT: "0+300x900"}),
    Case(
        "MailmendQueueMetricsStale",
        2,
        {LOOKED_AT: "0"},
        "The figures of queue spool are older than an hour: no process writes them",
        "queue=spool",
    ),
    Case("MailmendQueueMetricsStale", 1, {LOOKED_AT: "0"}),
    Case(
        "MailmendDeliveryStopped",
        1,
        {DELIVERY_AT: "0+300x3 900+0x20", DELIVERY_AT_TWO: "0+300x2 600+0x20"},
        "No server of deliveries of queue spool has written its figures for 5 minutes",
        "queue=spool",
    ),
    Case("MailmendDeliveryStopped", 1, {DELIVERY_AT: "0+0x20", DELIVERY_AT_TWO: "0+300x20"}),
    Case(
        "MailmendDeliveryOnlyRefused",
        2,
        {REFUSED: "0+10x30", DELIVERED: "7+0x30"},
        "Every attempt of queue spool was refused for an hour: 120 recipients",
        "queue=spool",
    ),
    Case("MailmendDeliveryOnlyRefused", 2, {REFUSED: "0+10x30", DELIVERED: "0+1x30"}),
    Case("MailmendDeliveryOnlyRefused", 2, {REFUSED: "0+1x30", DELIVERED: "0+0x30"}),
    Case(
        "MailmendReportsLost",
        1,
        {REPORTS_LOST: "0+1x12"},
        "12 reports of queue spool could not be delivered within 6 hours",
        "queue=spool",
    ),
    Case("MailmendReportsLost", 1, {REPORTS_LOST: "7+0x12", REPORTS_TO_POSTMASTER: "0+1x12"}),
    Case(
        "MailmendSuspensionsUnread",
        1,
        {DELIVERY_AT: "0+300x20", SUSPENSIONS_AT: "0+300x3 900+0x20"},
        "Servers of queue spool cannot read suspensions and conditions: changes have no effect",
        "queue=spool",
    ),
    Case("MailmendSuspensionsUnread", 1, {DELIVERY_AT: "0+0x20", SUSPENSIONS_AT: "0+0x20"}),
    Case(
        "MailmendListenerTakesNone",
        1,
        {NOT_KEPT: "0+1x12", KEPT: "7+0x12"},
        "Queue spool has taken no mail of its clients for 15 minutes: they keep 3",
        "queue=spool",
    ),
    Case("MailmendListenerTakesNone", 1, {NOT_KEPT: "0+1x12", KEPT: "0+1x12"}),
    Case("MailmendListenerTakesNone", 1, {NOT_KEPT: "5+0x12", KEPT: "0+0x12"}),
    Case(
        "MailmendQuotaFull",
        1,
        {OVER_QUOTA: "0+1x12"},
        "Quota per-customer of queue spool has been full for half an hour: clients have to wait",
        "queue=spool quota=per-customer",
    ),
    Case("MailmendQuotaFull", 1, {OVER_QUOTA: "3+0x12"}),
    Case(
        "MailmendQuotasUncounted",
        2,
        {DELIVERY_AT: "0+300x30", COUNTED_AT: "0+0x30"},
        "Queue spool has not been counted for an hour: what left it still counts against its quotas",
        "queue=spool",
    ),
    Case("MailmendQuotasUncounted", 2, {DELIVERY_AT: "0+300x30", COUNTED_AT: "0+300x30"}),
    Case(
        "MailmendLeaseHeldTooLong",
        25,
        {LEASE: "0"},
        "bob@host has held the lease of repair of mail for a day",
        "keyspace=mail lease=repair owner=bob@host",
    ),
    Case("MailmendLeaseHeldTooLong", 23, {LEASE: "0"}),
    Case("MailmendLeaseHeldTooLong", 25, {LEASE.replace("repair", "serve"): "0"}),
    Case(
        "MailmendDriftStays",
        27,
        {OF_CHECK: "0"},
        "check all of mail has found the same PROJECT for more than a day",
        "keyspace=mail command=check_all verdict=PROJECT",
    ),
    Case("MailmendDriftStays", 25, {OF_CHECK: "0"}),
    Case("MailmendDriftStays", 27, {OF_CHECK.replace("PROJECT", "COLLECT"): "0"}),
    Case(
        "MailmendRepairLeavesSome",
        49,
        {OLDEST: "0"},
        "Every repair messages of mail has left the same CLASH for two days",
        "keyspace=mail command=repair_messages verdict=CLASH",
    ),
    Case("MailmendRepairLeavesSome", 47, {OLDEST: "0"}),
    Case(
        "MailmendDriftComesBack",
        75,
        {FIXED: "2"},
        "Every repair messages of mail has had something to mend for three days",
        "keyspace=mail command=repair_messages",
    ),
    Case("MailmendDriftComesBack", 73, {FIXED: "2"}),
    Case("MailmendDriftComesBack", 75, {FIXED: "2+0x400 _x20 2+0x900"}),
    Case(
        "MailmendContentLost",
        1,
        {left("LOST_CONTENT"): "2"},
        "2 messages of mail are listed and their content is lost",
        "keyspace=mail",
    ),
    Case("MailmendContentLost", 1, {left("LEAK"): "2"}),
    Case(
        "MailmendBlobMissing",
        1,
        {left("MISSING"): "5"},
        "5 blobs of mail are referred to and not there",
        "keyspace=mail",
    ),
    Case("MailmendBlobMissing", 1, {left("COLLECT"): "5"}),
    Case(
        "MailmendLagsWait",
        2,
        {LAG: "0"},
        "A lag of mail has waited for more than an hour to be mended",
        "keyspace=mail",
    ),
    Case("MailmendLagsWait", 1, {LAG: "0"}),
    Case(
        "MailmendSweepBehind",
        2,
        {BEHIND: "90000"},
        "A day of finished slices of queue spool is not swept",
        "queue=spool",
    ),
    Case("MailmendSweepBehind", 2, {BEHIND: "80000"}),
    *problem(
        "MailmendQueueNotSwept",
        "not_swept",
        "No process sweeps queue spool: mails that wait will expire unless a sweep renews them",
    ),
    *(
        case
        for name in ("browse_start_old", "moved_back")
        for case in problem(
            "MailmendBrowseStartStuck", name, "The browse start of queue spool is old, or was moved back"
        )
    ),
    *(
        case
        for name in ("stays_too_long", "dead_letters", "no_consumer", "broker_alarm")
        for case in problem("MailmendQueueDoesNotDrain", name, f"Queue spool needs attention: {name}")
    ),
    *(
        case
        for name in (
            *("messages_expire", "backlog_dropped", "subscription_expires", "idle_topic_deleted", "acks_forgotten"),
        )
        for case in problem(
            "MailmendBrokerDropsMail",
            name,
            f"The broker of queue spool drops or repeats mails: {name}",
        )
    ),
    *(
        case
        for name in (
            *("backlog_full", "not_tended", "deletions_pile_up", "delays_ignored", "delays_cut", "kept_for_ever"),
        )
        for case in problem("MailmendTopicsNeedAttention", name, f"The topics of queue spool need attention: {name}")
    ),
    *(
        case
        for name in ("lacks_message", "broker_away")
        for case in problem(
            "MailmendBrokerLacksMessages",
            name,
            "The broker of queue spool is away, or lacks messages of mails that wait",
        )
    ),
    *problem(
        "MailmendMarksExpireFirst",
        "marks_expire_first",
        "Marks of queue spool expire before the rows that they hide: deleted mails come back",
    ),
    Case(
        "MailmendMarksGrow",
        8,
        {MARKS: "2000000+10x900"},
        "2.001M marks of queues of mail never expire, and they grow in number",
        "keyspace=mail",
    ),
    Case("MailmendMarksGrow", 8, {MARKS: "2000000"}),
    Case("MailmendMarksGrow", 8, {MARKS: "1000+10x900"}),
)


def test_each_alert_is_seen_to_come_and_to_stay_away() -> None:
    for comes in (True, False):
        assert {case.alert for case in CASES if bool(case.says) is comes} == set(RULES)


def test_alerts_come_when_they_should_and_say_what_is_wrong(tmp_path: Path) -> None:
    files = [_test_file(tmp_path, rule, [case for case in CASES if case.alert == rule.name]) for rule in ALERTS]

    assert promtool("test", "rules", *files).count("SUCCESS") == len(ALERTS)


def _test_file(folder: Path, rule: AlertRule, cases: Sequence[Case]) -> str:
    """The rule by itself: all of them for each case take ten times as long."""
    rules, tests = folder / f"{rule.name}.yml", folder / f"{rule.name}.test.yml"
    rules.write_text(rules_file([rule], RUNBOOKS))
    tests.write_text(
        json.dumps({"rule_files": [rules.name], "evaluation_interval": STEP, "tests": [_test_of(one) for one in cases]})
    )
    return str(tests)


def _test_of(case: Case) -> dict[str, object]:
    """JSON is YAML; a blank in a label's value is an underscore in the table."""
    rule, expected = RULES[case.alert], []
    if case.says:
        labels = dict(pair.split("=") for pair in case.labels.split())
        labels = {name: text.replace("_", " ") if name == "command" else text for name, text in labels.items()}
        link = f"https://wiki.example.org/mail/{rule.runbook}?from=alert"
        annotations = {"summary": case.says, "runbook": rule.runbook, "runbook_url": link}
        expected.append({"exp_labels": labels | {"severity": rule.severity.value}, "exp_annotations": annotations})
    lasting = 13 * case.hours
    series = [
        {"series": name, "values": values if "x" in values else f"{values}+0x{lasting}"}
        for name, values in case.series.items()
    ]
    return {
        "interval": STEP,
        "input_series": series,
        "alert_rule_test": [{"eval_time": f"{case.hours}h", "alertname": case.alert, "exp_alerts": expected}],
    }


def test_the_file_in_the_docs_is_one_of_rules() -> None:
    file = CHECKOUT / "docs" / "monitoring" / "alerts.yml"

    assert f"{len(ALERTS)} rules found" in promtool("check", "rules", str(file))
