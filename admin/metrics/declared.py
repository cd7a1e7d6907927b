"""Every metric that mailmend exposes, as data: `docs/metrics.md`, alerts and dashboard are held against this table.

No label names a message, a user or a mailbox, or what changes with each run: its values stay few.
"""

from typing import Final

from mailmend.delivery.metrics import DELIVERY_METRICS, LISTENER_METRICS
from mailmend.mailqueue.prometheus import QUEUE_METRICS
from mailmend.model.metrics import Metric

_RUN: Final = ("keyspace", "command", "job_name")
_JOB: Final = ("keyspace", "job_name")

RUN_EXIT_CODE: Final = Metric("mailmend_run_exit_code", "Exit code of the last run", _RUN)
RUN_END: Final = Metric(
    "mailmend_run_end_timestamp_seconds",
    "When the last run ended",
    _RUN,
    no_alert="MailmendJobHasNoSuccess covers jobs; a run by hand has no next run to wait for",
)
RUN_DURATION: Final = Metric(
    "mailmend_run_duration_seconds",
    "Duration of the last run",
    _RUN,
    no_alert="A run has a maximum duration; MailmendLeaseHeldTooLong covers a run that still goes on",
)
RUN_LAST_SUCCESS: Final = Metric(
    "mailmend_run_last_success_timestamp_seconds",
    "End of the last run that ended with 0 or 1",
    _RUN,
    no_alert="MailmendJobHasNoSuccess covers jobs; after a run by hand no next run is due",
)
RUN_FINDINGS: Final = Metric(
    "mailmend_run_findings",
    "What the last run with a result found, by projection (table) and verdict",
    (*_RUN, "projection", "verdict"),
    no_alert="A repair mends findings; MailmendDriftStays and MailmendRepairLeavesSome cover what remains",
)
RUN_FIXED: Final = Metric("mailmend_run_fixed", "Findings that the last run mended", (*_RUN, "verdict"))
RUN_LEFT: Final = Metric(
    "mailmend_run_left",
    "Findings that the last run left; for a check: all that a repair would look at",
    (*_RUN, "verdict"),
)
FINDING_OLDEST: Final = Metric(
    "mailmend_finding_oldest_timestamp_seconds",
    "Since when the oldest finding that is left has existed: the start of the first of the consecutive runs that saw"
    " it. At most 200 findings of each verdict are followed (the same ones in each run); for blobs, each verdict as a"
    " whole",
    (*_RUN, "verdict"),
)
RUN_MOVED: Final = Metric(
    "mailmend_run_moved",
    "Findings that changed meanwhile, and are left to the next run",
    _RUN,
    no_alert="The next run looks at them again",
)
RUN_FAILED: Final = Metric(
    "mailmend_run_failed",
    "Findings that could not be mended or looked at again",
    _RUN,
    no_alert="Such a run ends with 3: MailmendRunFailed or MailmendJobFailed",
)
RUN_ROWS_READ: Final = Metric(
    "mailmend_run_rows_read",
    "Rows that the last run read",
    (*_RUN, "table"),
    no_alert="Informational: a large table is not an error",
)
RUN_ROWS_PER_SECOND: Final = Metric(
    "mailmend_run_rows_per_second",
    "Rows per second that the scan of the last run read, of all tables together",
    _RUN,
    no_alert="The pace follows from its limit and the cluster's load; a run that takes too long has its own alerts",
)
RUN_STAGE: Final = Metric(
    "mailmend_run_stage_duration_seconds",
    "Duration of a stage of the last run",
    (*_RUN, "stage"),
    no_alert="Informational: where the time went",
)
RUN_QUEUE_MARKS: Final = Metric(
    "mailmend_run_queue_marks",
    "Marks of removed mails that the last run counted",
    (*_RUN, "queue"),
    no_alert="MailmendMarksGrow covers the marks of all queues together",
)

RUNS: Final = (
    RUN_EXIT_CODE,
    RUN_END,
    RUN_DURATION,
    RUN_LAST_SUCCESS,
    RUN_FINDINGS,
    RUN_FIXED,
    RUN_LEFT,
    FINDING_OLDEST,
    RUN_MOVED,
    RUN_FAILED,
    RUN_ROWS_READ,
    RUN_ROWS_PER_SECOND,
    RUN_STAGE,
    RUN_QUEUE_MARKS,
)
"""The metrics of one run: in the file of `--metrics-file`, and for repairs in the ledger too."""

JOB_NEXT: Final = Metric("mailmend_job_next_run_timestamp_seconds", "When the job is due next", _JOB)
JOB_PERIOD: Final = Metric("mailmend_job_period_seconds", "Longest time between two of the job's next runs", _JOB)
JOB_PAUSED: Final = Metric("mailmend_job_paused", "Whether the job is paused", _JOB)
JOB_RUNNING: Final = Metric(
    "mailmend_job_running",
    "Whether the job runs now",
    _JOB,
    no_alert="Running is normal; MailmendLeaseHeldTooLong covers a job that runs too long",
)
JOB_LAST_RUN: Final = Metric("mailmend_job_last_run_timestamp_seconds", "When the job's last run began", _JOB)
JOB_EXIT_CODE: Final = Metric("mailmend_job_last_run_exit_code", "Exit code of the job's last run that ended", _JOB)
JOB_DURATION: Final = Metric(
    "mailmend_job_last_run_duration_seconds",
    "Duration of the job's last run that ended",
    _JOB,
    no_alert="A job has a maximum duration, after which it is ended in good order",
)
JOB_LAST_SUCCESS: Final = Metric(
    "mailmend_job_last_success_timestamp_seconds", "End of the job's last run that ended with 0 or 1", _JOB
)
JOBS: Final = (
    JOB_NEXT,
    JOB_PERIOD,
    JOB_PAUSED,
    JOB_RUNNING,
    JOB_LAST_RUN,
    JOB_EXIT_CODE,
    JOB_DURATION,
    JOB_LAST_SUCCESS,
)
"""The metrics of each declared job."""

LEDGER_UP: Final = Metric(
    "mailmend_ledger_up", "Whether the cluster answered, and all metrics of the keyspace could be read", ("keyspace",)
)
LEDGER_READ: Final = Metric(
    "mailmend_ledger_read_timestamp_seconds", "When the metrics of the keyspace were read", ("keyspace",)
)
LAGS: Final = Metric(
    "mailmend_lags_waiting",
    "Journalled lags that wait for `repair lags`, 10,000 at most",
    ("keyspace",),
    no_alert="Many lags are mended as fast as they come; MailmendLagsWait covers a lag that waits too long",
)
LAG_OLDEST: Final = Metric(
    "mailmend_lag_oldest_timestamp_seconds", "When the oldest waiting lag was noticed", ("keyspace",)
)
LEASE: Final = Metric(
    "mailmend_lease_acquired_timestamp_seconds",
    "Since when a lease is held; its owner is user and host",
    ("keyspace", "lease", "owner"),
)
MARKS: Final = Metric(
    "mailmend_queue_marks_kept",
    "Marks of all queues, by the nodes' estimates, in tables whose marks never expire",
    ("keyspace",),
)
LEDGER: Final = (LEDGER_UP, LEDGER_READ, LAGS, LAG_OLDEST, LEASE, MARKS)
"""The metrics of a keyspace that its ledger and tables tell."""

METRICS: Final = (*RUNS, *JOBS, *LEDGER, *QUEUE_METRICS, *DELIVERY_METRICS, *LISTENER_METRICS)
