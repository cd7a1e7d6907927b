"""Declarations of check, repair, undo and runs."""

from typing import Final

import click

from mailmend.admin.frame.command import JSON, Command, CommandGroup
from mailmend.admin.frame.completion import completed_runs
from mailmend.admin.frame.kinds import DELAY, KEEP, SPARK_SETTING, VERDICT_NAMES, VERDICTS, Duration, duration_text
from mailmend.admin.frame.nodetool import NODETOOL
from mailmend.admin.frame.options import (
    ANONYMOUS,
    CONNECTION,
    FILE,
    FINDINGS,
    MAX_FIXES,
    METRICS_FILE,
    PACE,
    REPORT,
    ROWS_PER_SECOND,
    STAGING,
    WITHOUT,
    flag,
    option,
)
from mailmend.admin.messages.blobs import BLOBS_WANTED, CHECKED_PULSAR
from mailmend.admin.queue.options import AGE_MAX, STORES_TYPED, queue_settings, unless
from mailmend.mailqueue.rules.cleanup import MarksRule
from mailmend.model.catalog.ledger import KEEP as KEEP_DEFAULT
from mailmend.model.operations import Level
from mailmend.model.projections.verdicts import QUEUE_VERDICTS
from mailmend.repair.clock import MARGIN_SECONDS, SKEW_SECONDS

_ENGINES: Final = ("auto", "spark", "local")

DELAY_OPTION: Final = option("--delay", "How long lags may settle before the second look.", type=DELAY, default="60s")
_TIMING: Final = (
    DELAY_OPTION,
    option("--clock-skew", "The greatest difference between any two clocks.", type=DELAY, default=f"{SKEW_SECONDS:g}s"),
)
SCANNING: Final = (
    option(
        "--engine",
        "What scans: spark, any size; local, this process alone, without Spark; auto, either by the estimated size.",
        type=click.Choice(_ENGINES),
        default="auto",
    ),
    option("--master", "Spark's master. [default: local[*], or spark-submit's]", metavar="URL"),
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
    option(
        "--torn",
        "What rows are that lack columns: accept takes them as whole, as James before 3.7 wrote them.",
        type=click.Choice(["report", "accept"]),
        default="report",
    ),
    WITHOUT,
)
KEEP_OPTION: Final = option(
    "--keep", "How long before-images are kept.", type=KEEP, default=duration_text(KEEP_DEFAULT)
)
_WRITING: Final = (
    option(
        "--margin",
        "How long before its scan the timestamps of a repair lie; must exceed the clocks' skew and 20 s.",
        type=DELAY,
        default=f"{MARGIN_SECONDS:g}s",
    ),
    flag("--no-writers", "Declare that nobody writes: no margin, and any delay will do."),
    KEEP_OPTION,
)
PLAN: Final = option(
    "--plan",
    "Write what would be done to this file, and nothing anywhere else; `mailmend apply` then does it.",
    type=FILE,
    metavar="FILE",
)
COUNTERS_AT_ONCE: Final = flag("--no-writers", "Declare that nobody writes: counters are looked at twice at once.")
RUN_ARGUMENT: Final = click.Argument(["run"], type=click.UUID, shell_complete=completed_runs)
RESULTS: Final = (JSON, REPORT, ANONYMOUS, FINDINGS)
MEASURED: Final = (*RESULTS, METRICS_FILE)
REPAIR_EXITS: Final = (
    "0 nothing is left to mend, 1 drift is left (after --dry-run: there is drift), 2 wrong use, 3 some fixes failed "
    "(the rest stands), 4 the cluster cannot be reached, 130 interrupted: run it again."
)

CHECK: Final = Command(
    name="check",
    summary="Find drift, without writing anything.",
    about="""WHAT is `messages` (the tables that follow from the source of truth, imapUidTable), `queues` (rows, marks,
    starts and counts of all mail queues), `blobs` (what `repair blobs` would collect, and what is missing), or `all`
    (the default): messages, queues where the keyspace has them, and the paths of mailboxes. Every table is read once.
    What looks wrong is looked at again after the delay; only what is still wrong is drift. Whether mails that wait have
    their blobs is looked at where --blobs names their store; over Pulsar, where --broker names it too: every mail of
    the namespace, and that is refused where a topic cannot be read whole.

    The generators of uids and modseqs (messageCounter, modseq) are compared with the messages: one that is behind
    is named with the statement that raises it (`generators` in the JSON, exit code 1).""",
    service="mailmend.admin.messages.blobs_service:check",
    present="mailmend.admin.messages.blobs_document:check_document",
    options=(
        click.Argument(["what"], type=click.Choice(["messages", "queues", "blobs", "all"]), default="all"),
        *_TIMING,
        COUNTERS_AT_ONCE,
        flag("--no-recheck", "Report raw suspects, without waiting and looking again."),
        *SCANNING,
        STAGING,
    ),
    shared=(BLOBS_WANTED, CHECKED_PULSAR, CONNECTION),
    output=MEASURED,
    alone={
        "what=queues": ("torn", "without", "no_writers", "anonymous", "staging"),
        "what=blobs": ("torn", "without", "no_writers", "no_recheck", "findings", "anonymous", "staging"),
    },
    examples="""
        mailmend check                                     every denormalised table of the keyspace, and its queues
        mailmend check messages --engine local             without Spark
        mailmend check queues                              what sweeps have left, and what is wrong with queues
        mailmend check blobs --missing missing.jsonl       what nothing refers to, and what is not there
        mailmend check --report drift.html --findings drift.jsonl
        mailmend check --no-recheck --json | jq .findings  raw suspects, at once""",
    exits="0 no drift (leaks are reported and do not count), 1 confirmed drift, 2 wrong use, 3 some suspects could not "
    "be looked at again, 4 the cluster cannot be reached.",
)

_REPAIR_MESSAGES: Final = Command(
    name="messages",
    summary="Mend what follows from imapUidTable.",
    about="""The denormalised tables that follow from the source of truth, imapUidTable. Reads every table once, waits,
    looks at every suspect again, keeps what it overwrites (see `mailmend undo`), and writes as of a moment before its
    scan, so that whatever users change meanwhile wins. Running it again converges.

    With --staging an interruption (Ctrl-C, a window's end, a kill, a lost Spark) loses the token ranges being read: the
    same command goes on, as of before the first attempt, also with other policies, a --dry-run or a --plan.

    With --message, --mailbox or --user no Spark is needed, and nothing is scanned unless --scan is given; what such a
    look cannot see is said, and is `unseen` in the JSON. Where a mailbox shows no row for a uid that it has given, the
    message was deleted, or never listed: `gaps` in the JSON counts them, and without --scan the exit code is 1.

    Generators of uids and modseqs that are behind the messages (a table restored from a backup) are raised where the
    role may write them, and never lowered: `generators` in the JSON.""",
    service="mailmend.admin.messages.mending_service:repair",
    present="mailmend.admin.messages.mending_document:document_of",
    options=(
        *_TIMING,
        flag("--dry-run", "Write nothing: look twice, and say what would be mended."),
        PLAN,
        option(
            "--only",
            f"Only these: verdicts, separated by commas: {VERDICT_NAMES} (the last two with --orphans and --leaks).",
            type=VERDICTS,
            multiple=True,
            metavar="VERDICT",
        ),
        MAX_FIXES,
        option(
            "--orphans",
            "What becomes of rows of truth whose content is lost; quarantine removes them, never younger than a day.",
            type=click.Choice(["report", "quarantine"]),
            default="report",
        ),
        option(
            "--dangling",
            "What becomes of denormalised rows without truth; restore may bring back what was deleted, and asks.",
            type=click.Choice(["withdraw", "restore", "report"]),
            default="withdraw",
        ),
        option(
            "--leaks",
            "What becomes of content that no row of truth names; collect removes it, never younger than a day.",
            type=click.Choice(["report", "collect"]),
            default="report",
        ),
        flag("--beat-ahead", "Overwrite cells whose timestamps lie in the future, at once; a late writer loses."),
        flag("--yes", "Do not ask: do as --dangling restore says; --max-fixes still stops."),
        *_WRITING,
        option(
            "--message",
            "Only this message: what its truth and content lead to; with --mailbox, --user or --scan also rows of "
            "messageIdTable that name it there without any truth.",
            type=click.UUID,
            multiple=True,
            metavar="ID",
        ),
        option("--mailbox", "Which mailbox: what its rows show.", type=click.UUID, multiple=True, metavar="ID"),
        option("--user", "Whose mailbox: what the rows of all of them show.", multiple=True, metavar="NAME"),
        flag(
            "--scan", "With --mailbox or --user: also page the truth for missing rows; with --message: messageIdTable."
        ),
        *SCANNING,
        STAGING,
    ),
    shared=(CONNECTION,),
    output=MEASURED,
    alone={"plan": ("max_fixes", "yes", "keep"), **dict.fromkeys(("message", "mailbox", "user"), ("staging",))},
    examples="""
        mailmend repair messages --dry-run                      what would be mended
        mailmend repair messages --plan plan.jsonl              the same, to be approved: then mailmend apply plan.jsonl
        mailmend repair messages                                mend it
        mailmend repair messages --only PROJECT --max-fixes 1000
        mailmend repair messages --staging /var/lib/mailmend/staging    go on after an interruption
        mailmend repair messages --message 6e0ab5e0-8d1c-...    one message, at once, without Spark
        mailmend repair messages --message 6e0ab5e0-8d1c-... --user bob    and what bob's mailboxes tell of it
        mailmend repair messages --mailbox 6e0ab5e0-8d1c-...    what the mailbox's own rows show
        mailmend repair messages --orphans quarantine           take rows without content out of mailboxes""",
    exits=REPAIR_EXITS,
)

_REPAIR_LAGS: Final = Command(
    name="lags",
    summary="Mend the rows whose writes outlived their retries.",
    about="""Writers journal such lags themselves. What agrees by now is forgotten; what cannot be mended yet stays for
    the next run.""",
    service="mailmend.admin.messages.mending_service:repair_lags",
    present="mailmend.admin.messages.mending_document:document_of",
    options=(
        *_TIMING,
        flag("--dry-run", "Write nothing: look at them, and say what would be mended."),
        WITHOUT,
        *_WRITING,
        ROWS_PER_SECOND,
        PACE,
    ),
    shared=(CONNECTION,),
    output=MEASURED,
    examples="""
        mailmend repair lags --dry-run      how many there are, and which
        mailmend repair lags                mend exactly them; safe to schedule every few minutes""",
    exits=REPAIR_EXITS,
)

_QUEUE_VERDICTS: Final = "\b\n    " + "\n    ".join(
    f"{verdict.value:<17} {queue_verdict.meaning}" for verdict, queue_verdict in QUEUE_VERDICTS.items()
)
_REPAIR_QUEUES: Final = Command(
    name="queues",
    summary="Remove what the sweep of the mail queues has left.",
    about=f"""Of every queue of the keyspace: rows of finished mails in slices that nobody browses, also before the
    content start, where no sweep looks; their blobs; starts that could move on; counts that are wrong. Both tables are
    read whole, twice, the delay apart; a partition goes only if it was finished both times, and nothing goes that was
    written after the first look began. James, workers and sweeps may run meanwhile. Mails that wait are never touched.
    Removed rows do not come back: begin with --dry-run.

    {_QUEUE_VERDICTS}

    Marks hide what the broker may still deliver. Where they have no time to live (tables that James made) they stay,
    unless --marks says what proves that no delivery needs them: `empty`, the broker holds no message of the queue at
    either look, and nothing waits or is delayed; or `old`, no message at the broker is older than --marks-age.

    In tables whose rows never expire, Cassandra gives no room back by itself. --garbagecollect has each node rewrite
    their SSTables without what is deleted, one node after the other. What it costs is shown, and asked about, before
    anything is done: bytes, and seconds by one SSTable that is rewritten. Interrupted, the node at work goes on:
    nodetool stop GARBAGE_COLLECT.""",
    service="mailmend.admin.queue.cleanup:repair_queues",
    present="mailmend.admin.messages.mending_document:document_of",
    options=(
        *_TIMING,
        flag("--dry-run", "Write nothing: look twice, and say what would be removed."),
        PLAN,
        option(
            "--marks",
            "Which marks without a row go, where marks never expire.",
            type=click.Choice([rule.value for rule in MarksRule]),
            default=MarksRule.KEEP.value,
        ),
        option("--marks-age", "With --marks old: only marks written longer ago.", type=Duration(AGE_MAX, zero=False)),
        flag("--no-blobs", "Leave the blobs out: those of removed rows stay, for stores whose ids are shared."),
        flag("--garbagecollect", "Then give the room back at once: nodetool garbagecollect, node after node."),
        option(
            "--nodetool",
            "How nodetool of the node {host} is called: 'ssh {host} nodetool'. Its credentials are its own business.",
            default=NODETOOL,
            metavar="COMMAND",
        ),
        flag("--yes", "Do not ask: do as --garbagecollect says."),
        *(declared for declared in _WRITING if declared.name != "no_writers"),
        *(declared for declared in SCANNING if declared.name not in {"torn", "without"}),
    ),
    shared=(
        queue_settings(
            broker=lambda given: given["marks"] == MarksRule.EMPTY.value,
            blobs=lambda given: not given["no_blobs"] and (given["plan"] is not None or not given["dry_run"]),
            blobs_if_named=unless("no_blobs"),
            named=False,
        ),
        STORES_TYPED,
    ),
    output=(JSON, REPORT, FINDINGS, METRICS_FILE),
    alone={"plan": ("garbagecollect", "yes", "keep")},
    examples="""
        mailmend repair queues --dry-run                      what would be removed
        mailmend repair queues --plan plan.jsonl              the same, to be approved: then mailmend apply plan.jsonl
        mailmend repair queues
        mailmend repair queues --marks empty --dry-run        may marks go too? Stop what enqueues first
        mailmend repair queues --marks old --marks-age 30d    no message at the broker is older than 30 days
        mailmend repair queues --garbagecollect --nodetool 'ssh {host} nodetool'""",
    exits="0 nothing is left to clean (marks without a row do not count), 1 something is left (after --dry-run: there "
    "is something), 2 wrong use, 3 some partitions could not be removed or some node's garbage not collected, 4 cannot "
    "reach; the same command goes on.",
)

_REPAIR_BLOBS: Final = Command(
    name="blobs",
    summary="Collect the blobs that nothing refers to any more.",
    about="""The store is listed, then everything that may refer to it is read: every column of the keyspace whose name
    says so, before-images, mails kept on this machine, journals of its unfinished moves of queues, dead letters at the
    broker (over Pulsar, every mail of the namespace), and what --references declare. The references are read again
    after the delay; what nothing refers to either time goes, once its generation and the next are over and it is a day
    old. Where a source cannot be read whole, nothing goes. What goes is listed in a file first. It does not come back:
    begin with --dry-run.

    Blobs that are referred to and not there are reported with who refers to them.""",
    service="mailmend.admin.messages.blobs_service:repair_blobs",
    present="mailmend.admin.messages.blobs_document:blobs_document",
    options=(
        *_TIMING,
        flag("--dry-run", "Write nothing: look twice, and say what would be removed."),
        PLAN,
        option(
            "--removed", "List the blobs that went. [default: in a file of this user's own]", type=FILE, metavar="FILE"
        ),
        *(declared for declared in _WRITING if declared.name != "no_writers"),
        *(declared for declared in SCANNING if declared.name not in {"torn", "without"}),
    ),
    shared=(BLOBS_WANTED, CONNECTION),
    output=(JSON, METRICS_FILE),
    alone={"plan": ("removed", "keep")},
    examples="""
        mailmend repair blobs --dry-run --blobs s3://mail --oldest-message 7d     what would go
        mailmend repair blobs --blobs s3://mail --oldest-message 7d --removed went.jsonl
        mailmend repair blobs --blobs s3://mail --broker pulsar://pulsar:6650/public/default
        mailmend repair blobs --blobs cassandra: --no-broker                      no queue ever used this store""",
    exits="0 nothing is missing, 1 blobs are missing, 2 wrong use, 3 a source or the listing was not read whole, "
    "or some blobs could not be removed, 4 cannot reach; the same command goes on.",
)

REPAIR: Final = CommandGroup(
    name="repair",
    summary="Mend drift: messages, journalled lags, what queues have left, blobs.",
    commands=(_REPAIR_MESSAGES, _REPAIR_LAGS, _REPAIR_QUEUES, _REPAIR_BLOBS),
)

UNDO: Final = Command(
    name="undo",
    summary="Put back what a run changed.",
    about="""A row returns to its before-image only where nobody has changed it since; the rest is left and counted as
    moved. The undo is a run of its own, so it can be undone as well.""",
    service="mailmend.admin.messages.mending_service:undo",
    present="mailmend.admin.messages.mending_document:document_of",
    options=(RUN_ARGUMENT, flag("--dry-run", "Write nothing: say what would be put back."), COUNTERS_AT_ONCE),
    shared=(CONNECTION,),
    output=RESULTS,
    examples="""
        mailmend runs list                  which runs there were
        mailmend undo RUN --dry-run         what would return
        mailmend undo RUN                   put it back
        mailmend undo UNDO_RUN              put the undo back: the repair's state again""",
    exits="0 all of it was put back, 1 some rows have been used since and were left, 2 wrong use, 3 some rows failed, "
    "4 the cluster cannot be reached.",
)
