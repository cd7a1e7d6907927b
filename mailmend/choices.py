"""The arguments of `mailmend.open` and of its object's methods: each is an option of a command.

What is not given comes from the environment, else from the settings file, as with the command:
`clock_skew` from `MAILMEND_CHECK_CLOCK_SKEW`, or from `clock-skew` in the table `[check]`.
"""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Literal, TypedDict
from uuid import UUID

from mailmend.model.operations import Level
from mailmend.model.projections.verdicts import Verdict


class OpenSettings(TypedDict, total=False):
    """Settings that a program gives as arguments; each is the commands' option of this name.

    A setting that is not given comes from the environment (`MAILMEND_HOST`), else from the settings
    file, else from cqlshrc. `docs/cli.md` tells each of them. These are no options: `password`,
    `broker_password`, `s3_access_key`, `s3_secret_key`, `s3_session_token`.
    """

    host: str | Sequence[str]
    port: int
    local_dc: str
    keyspace: str
    ledger_keyspace: str
    username: str
    password: str
    password_file: str | Path
    password_command: str
    tls: bool
    tls_ca: str | Path
    tls_cert: str | Path
    tls_key: str | Path
    tls_hostnames: bool
    queue: str
    broker: str
    broker_password: str
    broker_password_file: str | Path
    broker_management: str
    broker_tls_ca: str | Path
    broker_tls_cert: str | Path
    broker_tls_key: str | Path
    broker_form: Literal["classic", "classic-v2", "quorum"]
    broker_replicas: int
    broker_james: Literal["3.8", "3.9"]
    blobs: str
    s3_access_key: str
    s3_secret_key: str
    s3_session_token: str
    s3_keys_file: str | Path
    s3_profile: str
    s3_tls_ca: str | Path


class ScanChoices(TypedDict, total=False):
    """How a keyspace is scanned; each is the option of this name, and `docs/cli.md` tells it.

    `spark_conf` holds texts like `spark.executor.memory=2g`; `without` names columns and tables
    that are left alone; `rows_per_second` counts the rows of all workers together.
    """

    engine: Literal["auto", "spark", "local"]
    master: str
    spark_conf: Sequence[str]
    rows_per_second: int
    pace: Literal["auto", "full"]
    level: Level
    torn: Literal["report", "accept"]
    without: Sequence[str]
    delay: timedelta
    clock_skew: timedelta
    no_writers: bool
    staging: str | Path


class CheckChoices(ScanChoices, total=False):
    """How a check looks; `no_recheck` takes each suspect for drift at the first look."""

    no_recheck: bool


class UndoChoices(TypedDict, total=False):
    """How an undo writes; with `no_writers` the counters are looked at twice at once."""

    dry_run: bool
    no_writers: bool


class LagChoices(TypedDict, total=False):
    """What a repair of lags may write; each as in `RepairChoices`."""

    dry_run: bool
    delay: timedelta
    clock_skew: timedelta
    without: Sequence[str]
    margin: timedelta
    no_writers: bool
    keep: timedelta
    rows_per_second: int
    pace: Literal["auto", "full"]


class RepairChoices(ScanChoices, total=False):
    """What a repair may write.

    `only` narrows it to verdicts; `message` and `mailbox` to ids, `user` to names. With `dry_run`
    no row is written; a `plan` is a file that is written in place of rows.
    """

    dry_run: bool
    plan: Path
    only: frozenset[Verdict]
    max_fixes: int
    orphans: Literal["report", "quarantine"]
    dangling: Literal["withdraw", "restore", "report"]
    leaks: Literal["report", "collect"]
    beat_ahead: bool
    yes: bool
    margin: timedelta
    keep: timedelta
    message: Sequence[UUID]
    mailbox: Sequence[UUID]
    user: Sequence[str]
    scan: bool
