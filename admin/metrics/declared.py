"""Every metric that mailmend exposes, as data: `docs/metrics.md`, alerts and dashboard are held against this table.

No label names a message, a user or a mailbox, or what changes with each run: its values stay few.
"""

from typing import Final

from mailqueue.prometheus import QUEUE_METRICS
from model.metrics import Metric

_RUN: Final = ("keyspace", "command", "job_name")
_JOB: Final = ("keyspace", "job_name")

RUN_EXIT_CODE: Final = Metric("mailmend_run_exit_code", "Exit code of the last run", _RUN)
RUN_END: Final = Metric("mailmend_run_end_timestamp_seconds", "When the last run ended", _RUN)
RUN_DURATION: Final = Metric("mailmend_run_duration_seconds", "From begin to end of the last run", _RUN)
RUN_LAST_SUCCESS: Final = Metric(
    "mailmend_run_last_success_timestamp_seconds", "End of the last run that ended with 0 or 1", _RUN
)
RUN_FINDINGS: Final = Metric(
    "mailmend_run_findings",
    "What the last run with a result found, by projection (table) and verdict",
    (*_RUN, "projection", "verdict"),
)
RUN_FIXED: Final = Metric("mailmend_run_fixed", "What it mended", (*_RUN, "verdict"))
RUN_LEFT: Final = Metric(
    "mailmend_run_left", "What it left as it was: of a check, all that a repair would look at", (*_RUN, "verdict")
)
FINDING_OLDEST: Final = Metric(
    "mailmend_finding_oldest_timestamp_seconds",
    "Since when every such run has left some of this verdict: the begin of the first of them",
    (*_RUN, "verdict"),
)
RUN_MOVED: Final = Metric("mailmend_run_moved", "What changed meanwhile, and is left to the next run", _RUN)
RUN_FAILED: Final = Metric("mailmend_run_failed", "What could not be mended or looked at again", _RUN)
RUN_ROWS_READ: Final = Metric("mailmend_run_rows_read", "Rows that it read", (*_RUN, "table"))
RUN_STAGE: Final = Metric("mailmend_run_stage_duration_seconds", "How long a stage of it took", (*_RUN, "stage"))
RUN_QUEUE_MARKS: Final = Metric("mailmend_run_queue_marks", "Marks of removed mails that it counted", (*_RUN, "queue"))

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
    RUN_STAGE,
    RUN_QUEUE_MARKS,
)
"""What one run tells: in the file of `--metrics-file`, and of repairs in the ledger too."""

JOB_NEXT: Final = Metric("mailmend_job_next_run_timestamp_seconds", "When the job is due next", _JOB)
JOB_PERIOD: Final = Metric("mailmend_job_period_seconds", "The longest time between two of its next runs", _JOB)
JOB_PAUSED: Final = Metric("mailmend_job_paused", "Whether somebody has paused it", _JOB)
JOB_RUNNING: Final = Metric("mailmend_job_running", "Whether it runs now", _JOB)
JOB_LAST_RUN: Final = Metric("mailmend_job_last_run_timestamp_seconds", "When its last run began", _JOB)
JOB_EXIT_CODE: Final = Metric("mailmend_job_last_run_exit_code", "Exit code of the last of its runs that ended", _JOB)
JOB_DURATION: Final = Metric("mailmend_job_last_run_duration_seconds", "How long that took", _JOB)
JOB_LAST_SUCCESS: Final = Metric(
    "mailmend_job_last_success_timestamp_seconds", "End of its last run that ended with 0 or 1", _JOB
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
"""What is known of each declared job."""

LEDGER_UP: Final = Metric(
    "mailmend_ledger_up", "Whether the cluster answered, and all of this could be read", ("keyspace",)
)
LAGS: Final = Metric(
    "mailmend_lags_waiting", "Journalled lags that wait for `repair lags`, 10,000 at most", ("keyspace",)
)
LAG_OLDEST: Final = Metric(
    "mailmend_lag_oldest_timestamp_seconds", "When the oldest of them was noticed", ("keyspace",)
)
LEASE: Final = Metric(
    "mailmend_lease_acquired_timestamp_seconds",
    "Since when a lease is held; its owner is user and host",
    ("keyspace", "lease", "owner"),
)
MARKS: Final = Metric(
    "mailmend_queue_marks_kept",
    "Marks of all queues, by the nodes' estimates, where none of them ever expires",
    ("keyspace",),
)
LEDGER: Final = (LEDGER_UP, LAGS, LAG_OLDEST, LEASE, MARKS)
"""What ledger and tables tell of a keyspace."""

METRICS: Final = (*RUNS, *JOBS, *LEDGER, *QUEUE_METRICS)
