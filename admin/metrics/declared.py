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
    "From begin to end of the last run",
    _RUN,
    no_alert="A run has its longest duration; one that still goes on, MailmendLeaseHeldTooLong tells",
)
RUN_LAST_SUCCESS: Final = Metric(
    "mailmend_run_last_success_timestamp_seconds",
    "End of the last run that ended with 0 or 1",
    _RUN,
    no_alert="Of jobs MailmendJobHasNoSuccess tells; by hand there is no time at which the next is due",
)
RUN_FINDINGS: Final = Metric(
    "mailmend_run_findings",
    "What the last run with a result found, by projection (table) and verdict",
    (*_RUN, "projection", "verdict"),
    no_alert="A repair mends them; what stays, MailmendDriftStays and MailmendRepairLeavesSome tell",
)
RUN_FIXED: Final = Metric("mailmend_run_fixed", "What it mended", (*_RUN, "verdict"))
RUN_LEFT: Final = Metric(
    "mailmend_run_left", "What it left as it was: of a check, all that a repair would look at", (*_RUN, "verdict")
)
FINDING_OLDEST: Final = Metric(
    "mailmend_finding_oldest_timestamp_seconds",
    "Since when the oldest finding that it left has been left: the begin of the first of the runs that saw it, without"
    " one between that did not. 200 of each verdict are known again (the same ones in each run); of blobs, their"
    " verdict as a whole",
    (*_RUN, "verdict"),
)
RUN_MOVED: Final = Metric(
    "mailmend_run_moved",
    "What changed meanwhile, and is left to the next run",
    _RUN,
    no_alert="The next run looks at it again",
)
RUN_FAILED: Final = Metric(
    "mailmend_run_failed",
    "What could not be mended or looked at again",
    _RUN,
    no_alert="Such a run ends with 3: MailmendRunFailed or MailmendJobFailed",
)
RUN_ROWS_READ: Final = Metric(
    "mailmend_run_rows_read",
    "Rows that it read",
    (*_RUN, "table"),
    no_alert="How much there is: nothing is wrong by it",
)
RUN_ROWS_PER_SECOND: Final = Metric(
    "mailmend_run_rows_per_second",
    "Rows read a second in its scan, of all tables together",
    _RUN,
    no_alert="A pace is what its limit and the cluster's load leave of it; what takes too long has alerts of its own",
)
RUN_STAGE: Final = Metric(
    "mailmend_run_stage_duration_seconds",
    "How long a stage of it took",
    (*_RUN, "stage"),
    no_alert="Informational: where the time went",
)
RUN_QUEUE_MARKS: Final = Metric(
    "mailmend_run_queue_marks",
    "Marks of removed mails that it counted",
    (*_RUN, "queue"),
    no_alert="MailmendMarksGrow speaks of all queues' marks together",
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
JOB_PERIOD: Final = Metric("mailmend_job_period_seconds", "The longest time between two of its next runs", _JOB)
JOB_PAUSED: Final = Metric("mailmend_job_paused", "Whether it is paused", _JOB)
JOB_RUNNING: Final = Metric(
    "mailmend_job_running",
    "Whether it runs now",
    _JOB,
    no_alert="To run is well; for too long, MailmendLeaseHeldTooLong tells",
)
JOB_LAST_RUN: Final = Metric("mailmend_job_last_run_timestamp_seconds", "When its last run began", _JOB)
JOB_EXIT_CODE: Final = Metric("mailmend_job_last_run_exit_code", "Exit code of the last of its runs that ended", _JOB)
JOB_DURATION: Final = Metric(
    "mailmend_job_last_run_duration_seconds",
    "How long that took",
    _JOB,
    no_alert="A job has its longest duration, after which it is ended in good order",
)
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
"""The metrics of each declared job."""

LEDGER_UP: Final = Metric(
    "mailmend_ledger_up", "Whether the cluster answered, and all of this could be read", ("keyspace",)
)
LEDGER_READ: Final = Metric("mailmend_ledger_read_timestamp_seconds", "When all of this was read", ("keyspace",))
LAGS: Final = Metric(
    "mailmend_lags_waiting",
    "Journalled lags that wait for `repair lags`, 10,000 at most",
    ("keyspace",),
    no_alert="Many are mended as fast as they come; what waits too long, MailmendLagsWait tells",
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
LEDGER: Final = (LEDGER_UP, LEDGER_READ, LAGS, LAG_OLDEST, LEASE, MARKS)
"""The metrics of a keyspace that its ledger and tables tell."""

METRICS: Final = (*RUNS, *JOBS, *LEDGER, *QUEUE_METRICS, *DELIVERY_METRICS, *LISTENER_METRICS)
