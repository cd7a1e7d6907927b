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
from mailmend.model.projections.declarations import Declaration
from mailmend.model.projections.verdicts import Verdict


class OpenSettings(TypedDict, total=False):
    """Arguments of a program for the settings of the commands; each has the name of an option.

    A setting that is not given comes from the environment (`MAILMEND_HOST`), else from the settings
    file, else from cqlshrc. `docs/cli.md` says more. The passwords and keys are no options.

    Attributes:
        host: the nodes to connect to first; default: 127.0.0.1.
        port: of CQL; default: 9042.
        local_dc: the data centre whose nodes are asked; default: of the first node.
        keyspace: with the mail tables; default: `apache_james`.
        ledger_keyspace: of runs, before-images, lags and leases; default: `mailmend`.
        username: the role to log in with.
        password: of the role.
        password_file: a file whose first line is the password.
        password_command: a command that prints the password; no shell runs it.
        tls: whether to encrypt; default: only where `tls_ca` or `tls_cert` is given.
        tls_ca: a PEM file of the authority that signed the nodes' certificates.
        tls_cert: a PEM file with a client certificate.
        tls_key: a PEM file with its private key.
        tls_hostnames: whether a node's certificate must name its address.
        queue: the name of the queue; default: `spool`.
        broker: the address, `amqp://user@host:5672/vhost` or `pulsar://host:6650/tenant/namespace`.
        broker_password: of the broker's user.
        broker_password_file: a file whose first line is that password.
        broker_management: the address of the broker's HTTP API.
        broker_tls_ca: a PEM file of the authority that signed the broker's certificate.
        broker_tls_cert: a PEM file with a client certificate for the broker.
        broker_tls_key: a PEM file with its private key.
        broker_form: the type of a queue that does not exist yet; default: `classic`.
        broker_replicas: the number of nodes that hold a new quorum queue; default: 1.
        broker_james: the James that reads a queue over Pulsar; default: told from its topics.
        blobs: the contents of mails, `s3://bucket?endpoint=URL`, `file:///folder` or `cassandra:`.
        s3_access_key: of the S3 server.
        s3_secret_key: of the S3 server.
        s3_session_token: of the S3 server.
        s3_keys_file: a file with the two keys and the token, a line each.
        s3_profile: a profile in `~/.aws`.
        s3_tls_ca: a PEM file of the authority that signed the S3 server's certificate.
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
    """How a keyspace is scanned; each is the option of this name, and `docs/cli.md` says more.

    Attributes:
        engine: what scans; `auto` decides by the estimated size. Default: `auto`.
        master: of Spark: `local[N]` or `spark://HOST:PORT`.
        spark_conf: settings of Spark, such as `spark.executor.memory=2g`.
        rows_per_second: the maximum number of rows that all workers read and write together.
        pace: whether the run makes way for other users of the cluster; default: `full`.
        level: the consistency level of the scans; default: LOCAL_QUORUM.
        torn: whether rows that lack columns are reported, taken as whole, or filled from their
            contents; default: `report`.
        without: columns and tables that are neither compared nor written.
        delay: the time between the scan and the second look; default: 60 seconds.
        clock_skew: the greatest difference between any two clocks; default: 5 seconds.
        no_writers: whether no process writes meanwhile; then no delay is needed.
        staging: a folder or bucket that keeps what was read until the run is complete.
    """

    engine: Literal["auto", "spark", "local"]
    master: str
    spark_conf: Sequence[str]
    rows_per_second: int
    pace: Literal["auto", "full"]
    level: Level
    torn: Literal["report", "accept", "fill"]
    without: Sequence[str]
    delay: timedelta
    clock_skew: timedelta
    no_writers: bool
    staging: str | Path


class CheckChoices(ScanChoices, total=False):
    """How a check looks: the choices of `ScanChoices`, and more.

    Attributes:
        no_recheck: whether suspects are reported without a second look.
        projections: declared tables, or their file: looked at instead of mail.
        projection: a table that follows from the table `what`, which needs no file then.
        snapshot: folders of nodes' snapshots, which are read instead of the cluster.
        snapshot_name: the snapshot, where the folders have several.
        record: whether the ledger keeps the check (`mailmend runs`).
        record_findings: how many findings it keeps at most.
        keep: how long.
    """

    no_recheck: bool
    projections: str | Path | Declaration
    projection: str
    snapshot: Sequence[str | Path]
    snapshot_name: str
    record: bool
    record_findings: int
    keep: timedelta


class UndoChoices(TypedDict, total=False):
    """How an undo writes.

    Attributes:
        dry_run: whether nothing is written.
        no_writers: whether no process writes meanwhile; then counters are looked at twice at once.
    """

    dry_run: bool
    no_writers: bool


class LagChoices(TypedDict, total=False):
    """What a repair of lags may write; each as in `ScanChoices` and `RepairChoices`.

    Attributes:
        projections: declared tables, whose lags are mended instead of mail's.
        dry_run: whether nothing is written.
        delay: the time that lags have to settle; default: 60 seconds.
        clock_skew: the greatest difference between any two clocks; default: 5 seconds.
        without: columns and tables that are neither compared nor written.
        margin: how long before the run the timestamps of its writes lie; default: 30 seconds.
        no_writers: whether no process writes meanwhile; then no margin and no delay is needed.
        keep: how long before-images are kept; default: 30 days.
        rows_per_second: the maximum number of rows to read and write.
        pace: whether the run makes way for other users of the cluster; default: `full`.
    """

    projections: str | Path | Declaration
    dry_run: bool
    delay: timedelta
    clock_skew: timedelta
    without: Sequence[str]
    margin: timedelta
    no_writers: bool
    keep: timedelta
    rows_per_second: int
    pace: Literal["auto", "full"]


class MailboxChoices(TypedDict, total=False):
    """What a repair of mailboxes may write; each as in `ScanChoices` and `RepairChoices`.

    Attributes:
        dry_run: whether no row is written.
        plan: a file that is written in place of rows; `mailmend apply` carries it out.
        only: `Verdict.PROJECT` (missing rows), `Verdict.AMEND` (rows that differ); default: both.
        max_fixes: the maximum number of fixes; with more, nothing is written.
        beat_ahead: whether cells from the future are overwritten at once.
        delay: the time between the scan and the second look; default: 60 seconds.
        clock_skew: the greatest difference between any two clocks; default: 5 seconds.
        margin: how long before the scan the timestamps of fixes lie; default: 30 seconds.
        no_writers: whether no process writes meanwhile; then no margin and no delay is needed.
        keep: how long before-images are kept; default: 30 days.
        engine: what scans; `auto` decides by the estimated size. Default: `auto`.
        master: of Spark: `local[N]` or `spark://HOST:PORT`.
        spark_conf: settings of Spark, such as `spark.executor.memory=2g`.
        rows_per_second: the maximum number of rows that all workers read and write together.
        pace: whether the run makes way for other users of the cluster; default: `full`.
        level: the consistency level of the scans; default: LOCAL_QUORUM.
        staging: a folder or bucket that keeps what was read until the run is complete.
    """

    dry_run: bool
    plan: Path
    only: frozenset[Verdict]
    max_fixes: int
    beat_ahead: bool
    delay: timedelta
    clock_skew: timedelta
    margin: timedelta
    no_writers: bool
    keep: timedelta
    engine: Literal["auto", "spark", "local"]
    master: str
    spark_conf: Sequence[str]
    rows_per_second: int
    pace: Literal["auto", "full"]
    level: Level
    staging: str | Path


class RepairChoices(ScanChoices, total=False):
    """What a repair may write: the choices of `ScanChoices`, and more.

    With `projections` there are no `without`, `yes`, `message`, `mailbox`, `user` and `scan`,
    and `dangling` is not `restore`.

    Attributes:
        projections: declared tables, or their file: mended instead of mail.
        named: one projection of that file, or one truth; default: all of them.
        key: rows of that file's tables, like "users_by_email:email=ann@example.org"; only these,
            and what they lead to, are looked at.
        dry_run: whether no row is written.
        plan: a file that is written in place of rows; `mailmend apply` carries it out.
        only: the verdicts that are mended; default: all that can be.
        max_fixes: the maximum number of fixes; with more, nothing is written.
        orphans: what becomes of truth rows whose content is lost; default: `report`.
        dangling: what becomes of rows without truth; default: `withdraw`.
        leaks: what becomes of content that no truth names; default: `report`.
        touch_base: whether rows of a base are written once more, so that its views follow.
        beat_ahead: whether cells from the future are overwritten at once.
        yes: whether `dangling="restore"` may bring back deleted messages without a question.
        margin: how long before the scan the timestamps of fixes lie; default: 30 seconds.
        keep: how long before-images are kept; default: 30 days.
        message: ids of messages; only these are looked at.
        mailbox: ids of mailboxes; only these are looked at.
        user: names; only the mailboxes of these users are looked at.
        scan: whether such a narrow look also pages through the truth for missing rows.
    """

    projections: str | Path | Declaration
    named: str
    key: Sequence[str]
    dry_run: bool
    plan: Path
    only: frozenset[Verdict]
    max_fixes: int
    orphans: Literal["report", "quarantine"]
    dangling: Literal["withdraw", "restore", "report"]
    leaks: Literal["report", "collect"]
    touch_base: bool
    beat_ahead: bool
    yes: bool
    margin: timedelta
    keep: timedelta
    message: Sequence[UUID]
    mailbox: Sequence[UUID]
    user: Sequence[str]
    scan: bool
