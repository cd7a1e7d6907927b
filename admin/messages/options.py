"""Options that several of check, repair, apply, undo and runs have.

The options of blobs say where blobs are, and what may refer to them.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click

from mailmend.admin.frame.command import JSON, Shared, Values
from mailmend.admin.frame.completion import completed_runs
from mailmend.admin.frame.extras import imported
from mailmend.admin.frame.kinds import (
    DELAY,
    KEEP,
    RUN,
    SPARK_SETTING,
    VERDICT_NAMES,
    VERDICTS,
    Duration,
    duration_text,
)
from mailmend.admin.frame.options import (
    ANONYMOUS,
    FILE,
    FINDINGS,
    METRICS_FILE,
    PACE,
    REPORT,
    ROWS_PER_SECOND,
    WITHOUT,
    flag,
    option,
)
from mailmend.admin.frame.scan_options import ScanOptions
from mailmend.admin.frame.settings import is_pulsar
from mailmend.admin.queue.broker_options import BROKER_OPTIONS, broker_of, pulsar_of
from mailmend.admin.queue.options import AGE_MAX, BLOB_OPTIONS, CHECKED_BLOBS, QUEUE_NAME, blobs_of, typed_stores
from mailmend.mailqueue.pulsar.settings import PulsarSettings
from mailmend.mailqueue.rabbitmq.broker.settings import BrokerSettings
from mailmend.mailqueue.rules.blob_ids import AGE_MIN, BlobNaming
from mailmend.model.catalog.ledger import KEEP as KEEP_DEFAULT
from mailmend.model.errors import WrongUse
from mailmend.model.operations import Level
from mailmend.repair.clock import MARGIN_SECONDS, SKEW_SECONDS

_ENGINES: Final = ("auto", "spark", "local")

DELAY_OPTION: Final = option("--delay", "How long lags may settle before the second look.", type=DELAY, default="60s")
TIMING: Final = (
    DELAY_OPTION,
    option("--clock-skew", "The greatest difference between any two clocks.", type=DELAY, default=f"{SKEW_SECONDS:g}s"),
)
SCANNING_ALL: Final = (
    option(
        "--engine",
        "What scans: spark, any size; local, this process alone, without Spark; auto, either by the estimated size.",
        type=click.Choice(_ENGINES),
        default="auto",
    ),
    option(
        "--master",
        "Spark's master: local[N] or spark://HOST:PORT; yarn and k8s:// are passed on, and have "
        "never been tried. [default: local[*], or spark-submit's]",
        metavar="URL",
    ),
    option(
        "--spark-conf",
        "A setting of Spark's own, like spark.executor.memory=2g; may be given again. No secrets.",
        type=SPARK_SETTING,
        multiple=True,
        metavar="NAME=VALUE",
    ),
    ROWS_PER_SECOND,
    PACE,
    option(
        "--level",
        "Consistency level of the scans.",
        type=click.Choice([Level.ONE, Level.LOCAL_QUORUM, Level.QUORUM], case_sensitive=False),
        metavar="[ONE|LOCAL_QUORUM|QUORUM]",
        default=Level.LOCAL_QUORUM,
    ),
)
"""The options of every scan."""

SCANNING: Final = (
    *SCANNING_ALL,
    option(
        "--torn",
        "What rows are that lack columns: accept takes them as whole, as James before 3.7 wrote "
        "them; fill writes what messageV3 has of them, where messageIdTable names their message.",
        type=click.Choice(["report", "accept", "fill"]),
        default="report",
    ),
    WITHOUT,
)
WHAT_DEFAULT: Final = "all"
PROJECTIONS_FILE: Final = option(
    "--projections",
    "A file (TOML) that declares tables and what follows from them: looked at instead of mail. "
    "james: James's other tables, as far as a rule can tell their rows; mail: its messages and "
    "mailboxes, as a file declares them.",
    type=FILE,
    metavar="FILE",
)
PROJECTIONS_NEEDED: Final = option(
    "--projections",
    "A file (TOML) that declares tables and what follows from them; james: James's other tables; "
    "mail: its messages and mailboxes.",
    type=FILE,
    metavar="FILE",
    required=True,
)
TORN_TABLES: Final = option(
    "--torn",
    "What rows are that lack columns: accept takes rows of truth without a required column as "
    "whole; fill writes what their content has of them, as far as the file says so.",
    type=click.Choice(["report", "accept", "fill"]),
    default="report",
)
NOT_FOR_TABLES: Final = ("without", "anonymous", "blobs", "broker", "missing")
"""Options of mail, which have no effect on declared tables."""

NOT_FOR_A_PAIR: Final = ("torn", *NOT_FOR_TABLES)
"""Options that have no effect on a table and a table that follows from it, without a file."""

KEEP_OPTION: Final = option(
    "--keep", "How long before-images are kept.", type=KEEP, default=duration_text(KEEP_DEFAULT)
)
MARGIN_OPTION: Final = option(
    "--margin",
    "How long before its scan the timestamps of a repair lie; must exceed the clocks' skew and 20 s.",
    type=DELAY,
    default=f"{MARGIN_SECONDS:g}s",
)
WRITING: Final = (
    MARGIN_OPTION,
    flag("--no-writers", "Declare that no process writes: no margin is needed, and any delay will do."),
    KEEP_OPTION,
)


def scanning_of(options: Sequence[click.Option]) -> Shared:
    """These options of a command's own as `scanning: ScanOptions` of the request."""
    return Shared("scanning", {}, _scanning, among=options)


def _scanning(own: Values, _others: Values, _context: click.Context) -> ScanOptions:
    return ScanOptions(**own)


PLAN: Final = option(
    "--plan",
    "Write what would be done to this file, and nothing anywhere else; `mailmend apply` then does it.",
    type=FILE,
    metavar="FILE",
)
LOOKING_TWICE: Final = flag("--dry-run", "Write nothing: look twice, and say what would be mended.")
BEAT_AHEAD: Final = flag(
    "--beat-ahead",
    "Overwrite cells whose timestamps lie in the future, at once; a late writer loses.",
)
ONLY: Final = option(
    "--only",
    f"Only these: verdicts, separated by commas: {VERDICT_NAMES} (the last two with --orphans and --leaks).",
    type=VERDICTS,
    multiple=True,
    metavar="VERDICT",
)
ORPHANS: Final = option(
    "--orphans",
    "What becomes of rows of truth whose content is lost; quarantine removes them, never younger than a day.",
    type=click.Choice(["report", "quarantine"]),
    default="report",
)
LEAKS: Final = option(
    "--leaks",
    "What becomes of content that no row of truth names; collect removes it, never younger than a day.",
    type=click.Choice(["report", "collect"]),
    default="report",
)
COUNTERS_AT_ONCE: Final = flag("--no-writers", "Declare that no process writes: counters are looked at twice at once.")
RUN_ARGUMENT: Final = click.Argument(["run"], type=RUN, shell_complete=completed_runs)
RESULTS: Final = (JSON, REPORT, ANONYMOUS, FINDINGS)
MEASURED: Final = (*RESULTS, METRICS_FILE)
MEASURED_TABLES: Final = (JSON, REPORT, FINDINGS, METRICS_FILE)
REPAIR_EXITS: Final = (
    "0 nothing is left to mend, 1 drift is left (after --dry-run: there is drift), 2 wrong use, 3 some fixes failed "
    "(the other fixes are kept), 4 the cluster cannot be reached, 130 interrupted: run it again."
)


_READ: Final = click.Path(path_type=Path, exists=True, dir_okay=False)
_OWN: Final = (
    option(
        "--references",
        "A further column of the keyspace that holds ids of blobs, in addition to the columns that are found by their "
        "names; may be given again.",
        multiple=True,
        metavar="TABLE.COLUMN",
    ),
    option(
        "--references-file",
        "Ids of blobs that something else needs, one on each line; may be given again.",
        type=_READ,
        multiple=True,
        metavar="FILE",
    ),
    option(
        "--queues",
        "A queue that no table names: its dead letters are read too; may be given again. Over Pulsar all queues are "
        "read: a queue that has to exist.",
        type=QUEUE_NAME,
        multiple=True,
        metavar="NAME",
    ),
    option(
        "--oldest-message",
        "Declare that no message at the broker is older, dead letters apart; younger blobs stay. Without it the queues "
        "must be empty. Needless over Pulsar, where every mail is read.",
        type=Duration(AGE_MAX, zero=False),
    ),
    flag("--no-broker", "Leave the broker out: declare that none ever held a mail of this store."),
    flag(
        "--only-broker",
        "With Pulsar, where tables name queues over RabbitMQ too: declare that RabbitMQ holds no mail of these queues.",
    ),
    option(
        "--min-age",
        "Only blobs that were stored longer ago than this; a day at least.",
        type=Duration(AGE_MAX, zero=False),
        default=duration_text(AGE_MIN),
    ),
    option(
        "--generation",
        "How long a generation of ids is: James's deduplication.gc.generation.duration.",
        type=Duration(AGE_MAX, zero=False),
        default=duration_text(BlobNaming().generation),
    ),
    option(
        "--family",
        "The family of ids: James's deduplication.gc.generation.family; all others stay.",
        type=click.IntRange(min=1),
        default=BlobNaming().family,
        metavar="N",
    ),
    option(
        "--missing",
        "Write every blob that is missing, and who refers to it, as a line of JSON.",
        type=FILE,
        metavar="FILE",
    ),
)


def _looks_at_tables(others: Values) -> bool:
    return bool(others.get("projections") or others.get("projection"))


def _build(own: Values, others: Values, context: click.Context) -> Any:
    if _looks_at_tables(others):
        return None
    if others.get("what", "blobs") != "blobs":
        return CHECKED_BLOBS.build(own, others, context)
    broker = _broker(own, context)
    wanted = imported("mailmend.admin.messages.blob_sources:BlobsWanted")
    named = {str(own_option.name): own[str(own_option.name)] for own_option in _OWN}
    return wanted(
        store=blobs_of(own, context, lambda _name: None),
        broker=broker,
        typed=shlex.join(typed_stores(context)),
        **named,
    )


def _broker(own: Values, context: click.Context) -> BrokerSettings | PulsarSettings | None:
    """The broker whose messages may refer to blobs; None where none is looked at."""
    if not own["broker"] or own["no_broker"]:
        return None
    if is_pulsar(own["broker"]):
        return _pulsar(own, context)
    return broker_of(own, context, lambda _name: None)


def _pulsar(own: Values, context: click.Context) -> PulsarSettings:
    """Pulsar, whose namespace has to be named: in the usual one no mail of another would be seen."""
    if not urlsplit(own["broker"]).path.strip("/"):
        raise WrongUse(
            "--broker names no namespace of Pulsar's, and mails of another one than is read may refer to blobs",
            mend="Name James's (pulsar.properties: namespace): --broker pulsar://host:6650/public/default",
        )
    return pulsar_of(own, context)


BLOBS_WANTED: Final = Shared("blobs", {"Blobs": (*BLOB_OPTIONS, *_OWN), "Broker": BROKER_OPTIONS}, _build)
"""Which blobs are looked at, and who may refer to them, as `blobs: BlobsWanted` of the request."""


def _checked_pulsar(_own: Values, others: Values, context: click.Context) -> PulsarSettings | None:
    given = context.params
    if _looks_at_tables(others):
        return None
    looks = others["what"] in {"queues", "all"} and given["broker"] and not given.get("no_broker")
    if not looks or not is_pulsar(given["broker"]):
        return None
    return _pulsar(given, context)


CHECKED_PULSAR: Final = Shared("pulsar", {}, _checked_pulsar)
"""Pulsar whose topics' mails a check of queues looks at too, where the broker is one, as `pulsar` of the request."""
