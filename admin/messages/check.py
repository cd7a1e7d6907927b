"""`mailmend check`: messages, mail queues and blobs; what cannot be looked at is said, and hides nothing else."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Final

import click

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster, chosen_engine, open_cluster, repair_tools
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document
from mailmend.admin.frame.examples import Examples
from mailmend.admin.frame.extras import import_or_name_extra
from mailmend.admin.frame.kinds import Word
from mailmend.admin.frame.options import CONNECTION, STAGING, flag
from mailmend.admin.messages.blob_sources import BlobsWanted
from mailmend.admin.messages.blobs import BlobsRequest, blobs_document, repair_blobs
from mailmend.admin.messages.blobs_result import BlobsResult
from mailmend.admin.messages.bound_tables import (
    WORDS,
    BoundTables,
    declared_tables,
    mail_tables,
    tables_named,
)
from mailmend.admin.messages.check_record import RECORDING, recorded
from mailmend.admin.messages.check_settings import check_settings, timing_of_counters
from mailmend.admin.messages.mending import CheckRequest, CommandResult, ended, given, staged, unseen
from mailmend.admin.messages.mismatches import check_james
from mailmend.admin.messages.options import (
    BLOBS_WANTED,
    CHECKED_PULSAR,
    COUNTERS_AT_ONCE,
    MEASURED,
    NOT_FOR_A_PAIR,
    NOT_FOR_TABLES,
    PROJECTIONS_FILE,
    SCANNING,
    TIMING,
    WHAT_DEFAULT,
)
from mailmend.admin.messages.record_document import with_record
from mailmend.admin.messages.runs import affected
from mailmend.admin.messages.shared_document import document_of
from mailmend.admin.messages.snapshot_check import SNAPSHOT, SNAPSHOT_NAME, check_snapshot
from mailmend.admin.projections.projections import is_james
from mailmend.cql.introspect import tables_of
from mailmend.model.catalog.left_tables import LeftTable, left_tables
from mailmend.model.catalog.mail import FAMILIES, MESSAGES
from mailmend.model.errors import AccessDenied, ExitCode, MailmendError, MissingExtra, ResultUnwritten, WrongUse
from mailmend.model.projections.family import Family
from mailmend.repair.mending import runner


def find_drift(request: CheckRequest, caller: Caller) -> CommandResult | BlobsResult:
    """What `mailmend check` finds: in blobs, queues, messages or declared tables."""
    if request.what != "blobs" or request.snapshot or _is_of_tables(request):
        return check(request, caller)
    with open_cluster(request.connection) as opened:
        return recorded(request, caller, opened, lambda to, _: _find_blobs(request, to, opened))


def _is_of_tables(request: CheckRequest) -> bool:
    return request.projections is not None or request.projection is not None


def _find_blobs(request: CheckRequest, caller: Caller, opened: OpenCluster) -> BlobsResult:
    assert isinstance(request.blobs, BlobsWanted), "the command line names them"
    blobs = BlobsRequest(
        connection=request.connection,
        scanning=request,
        blobs=request.blobs,
        dry_run=True,
    )
    return repair_blobs(blobs, caller, opened)


_QUEUES: Final = "mailmend.admin.queue.cleanup"
"""A service whose libraries come with an extra of their own."""


def check(request: CheckRequest, caller: Caller) -> CommandResult:
    """What `mailmend check` looks at: declared tables, messages, all queues, or both.

    Raises:
        WrongUse: neither a word nor the name of a declared projection.
    """
    if request.snapshot:
        return check_snapshot(request, caller)
    if not _is_of_tables(request) and request.what not in {"all", "messages", "queues"}:
        raise WrongUse(
            f"{request.what!r} is not looked at here",
            mend=f"Say {', '.join(WORDS)}. A table is named with the table that follows from it: "
            "mailmend check TRUTH PROJECTION; or with a file of projections: --projections FILE",
        )
    with open_cluster(request.connection) as opened:
        if _is_of_tables(request):
            return recorded(
                request,
                caller,
                opened,
                lambda to, note: _check_tables(request, to, opened, note),
            )
        return recorded(request, caller, opened, lambda to, _: _check_mail(request, to, opened))


def _check_mail(request: CheckRequest, caller: Caller, opened: OpenCluster) -> CommandResult:
    if request.what == "queues":
        found: CommandResult = import_or_name_extra(_QUEUES).find_in_queues(request, caller, opened)
        return found
    if request.what == "messages" or not (opened.has_queues or request.pulsar):
        found = _find_in_messages(request, caller, opened)
    else:
        found = _check_both(request, caller, opened)
    return replace(found, left_tables=_left_tables(request, opened, found))


def _left_tables(
    request: CheckRequest,
    opened: OpenCluster,
    found: CommandResult,
) -> tuple[LeftTable, ...]:
    """The denormalised tables of the keyspace that this check did not look at."""
    looked_at = {request.what}
    if found.queues is not None:
        looked_at.add("queues")
    return tuple(left_tables(tables_of(opened.cluster, opened.mail.name), looked_at))


def _check_tables(
    request: CheckRequest,
    caller: Caller,
    opened: OpenCluster,
    note: Callable[[BoundTables], None],
) -> CommandResult:
    """Find drift in tables that a person declares: no table of James is asked for."""

    def find() -> CommandResult:
        tables = _declared(request, opened)
        note(tables)
        found = _find_in(request, caller, opened, tables)
        return replace(found, left_tables=tables.left)

    if request.projection is None and is_james(request.projections):
        return check_james(request, caller, opened, find)
    return find()


def _declared(request: CheckRequest, opened: OpenCluster) -> BoundTables:
    if request.projections is None:
        assert request.projection is not None, "a pair of tables is named"
        return tables_named(opened, request.what, request.projection)
    if request.projection is not None:
        raise WrongUse(
            "two tables are named next to a file of projections",
            mend="Name one projection of the file, or leave --projections out.",
        )
    if request.what == WHAT_DEFAULT:
        return declared_tables(opened, request.projections)
    if request.what in WORDS:
        raise WrongUse(
            f"{request.what} are not in a file of projections",
            mend=f"A projection of that name is named in double quotes: '\"{request.what}\"'",
        )
    return declared_tables(opened, request.projections, request.what)


def _check_both(request: CheckRequest, caller: Caller, opened: OpenCluster) -> CommandResult:
    """Messages, and queues while lags of messages are waited for: their delays pass at the same time."""

    @cache
    def queues() -> CommandResult | MailmendError:
        try:
            found: CommandResult = import_or_name_extra(_QUEUES).find_in_queues(request, caller, opened)
        except ResultUnwritten:
            raise
        except MailmendError as error:
            return error
        return found

    messages = _find_in_messages(request, caller, opened, queues)
    found = queues()
    if isinstance(found, MailmendError):
        return _with_unseen(messages, found)
    return _joined(messages, found)


def _joined(messages: CommandResult, queues: CommandResult) -> CommandResult:
    """Both in one result: the fields of messages stay, and the fields of queues are added."""
    one = messages.summary
    other = queues.summary
    summary = replace(
        one,
        scanned=one.scanned | other.scanned,
        findings=one.findings | other.findings,
        suspects=one.suspects + other.suspects,
        due=one.due + other.due,
        left=one.left + other.left,
        left_sample=one.left_sample.merged(other.left_sample),
        failed=one.failed + other.failed,
        seconds=one.seconds | other.seconds,
        unseen=" ".join(filter(None, (one.unseen, other.unseen))) or None,
        exit=max(one.exit, other.exit),
    )
    return replace(
        messages,
        summary=summary,
        examples=messages.examples + queues.examples,
        queues=queues.queues,
        topics=queues.topics,
    )


def _with_unseen(messages: CommandResult, error: MailmendError) -> CommandResult:
    one = messages.summary
    code = ExitCode.PARTLY_FAILED
    # Without the extra, or without the right, a check is meant for messages alone.
    if isinstance(error, MissingExtra | AccessDenied):
        code = ExitCode.FINE
    unseen = " ".join(filter(None, (one.unseen, f"The mail queues were not looked at: {error.what}.")))
    return replace(messages, summary=replace(one, unseen=unseen, exit=max(one.exit, code)))


def _find_in_messages(
    request: CheckRequest, caller: Caller, opened: OpenCluster, meanwhile: Callable[[], object] | None = None
) -> CommandResult:
    families: tuple[Family, ...] = FAMILIES
    if request.what == "messages":
        families = (MESSAGES,)
    tables = mail_tables(opened, families, request.without)
    return _find_in(request, caller, opened, tables, meanwhile)


def _find_in(
    request: CheckRequest,
    caller: Caller,
    opened: OpenCluster,
    tables: BoundTables,
    meanwhile: Callable[[], object] | None = None,
) -> CommandResult:
    """Find drift; `meanwhile` is called once, where lags are waited for."""
    examples = Examples(caller, tables.scope)
    bound = tables.bound
    settings = check_settings(request, opened.mail.name, tables)
    engine = chosen_engine(opened, request, caller.remark, tables.truths)
    with staged(request.staging, opened, settings, caller) as (settings, area):
        tools = repair_tools(
            opened,
            settings,
            engine,
            caller.progress,
            timing=timing_of_counters(request),
            staging=area,
            meanwhile=meanwhile,
        )
        summary = runner.check(settings, tools, examples.take)
        ended(summary, area)
    summary.unseen = unseen(request.without, bound)
    summary.engine = engine
    return CommandResult(
        summary,
        examples.sorted(),
        options=given(request),
        affected=affected(examples, opened),
        scope=tables.scope,
    )


def check_document(result: CommandResult | BlobsResult) -> Document:
    if isinstance(result, BlobsResult):
        return with_record(blobs_document(result), result.keyspace, result.record)
    return with_record(document_of(result), result.summary.keyspace, result.record)


CHECK: Final = Command(
    name="check",
    summary="Find drift, without writing anything but its record (--record).",
    about="""WHAT is `messages` (the tables that follow from the source of truth, imapUidTable), `queues` (rows, marks,
    starts and counts of all mail queues), `blobs` (what `repair blobs` would collect, and what is missing), or `all`
    (the default): messages, queues where the keyspace has them, and the paths of mailboxes. Every table is read once.
    What looks wrong is looked at again after the delay; only what is still wrong is drift. If --blobs names the
    store, the check also looks whether mails that wait have their blobs. Over Pulsar it needs --broker too: it reads
    every mail of the namespace, and is refused if a topic cannot be read whole.

    Other tables than mail: WHAT is a table, and PROJECTION a table with its rows under another
    key. Columns of the same name are compared; a key column `tag` holds the elements of a
    collection `tags`. --projections names a file that declares such pairs; WHAT is then one of
    them. In double quotes each of the four words above is the name of
    a table: `'"messages"'`.

    With --projections james, both sides of delegations (user) and active scripts (sieve_active) are
    compared too. Quotas (quotaCurrentValue, or currentQuota before James 3.9) and attachments
    (attachmentV2) are compared where their table is named: that reads every message. No repair
    mends what differs there. Each mismatch is named with the request to James that does, where
    there is one (`mismatches` in the JSON, exit code 1).

    The generators of uids and modseqs (messageCounter, modseq) are compared with the messages, and
    generators of a file (`numbered_by`) with their rows: one that is behind is named with the
    statement that raises it (`generators` in the JSON, exit code 1).

    With --record, and in a job, the sums and a sample of the findings are kept in the ledger:
    `mailmend runs list`, `show` and `trend` have them (`record` in the JSON). Mail tables are not
    written, and no lease of a repair is taken. If the record cannot be written, the result is shown
    all the same, and the exit code is 3. A check of blobs keeps its sums alone.

    With --snapshot the tables are read from a node's snapshot files, and the scan sends nothing to
    the cluster; --no-recheck then asks no cluster at all: is this backup consistent? Damaged and
    missing files are named, the others are read (`snapshot` in the JSON, exit code 3). The ledger
    keeps no check of a snapshot: --record is refused, and a job keeps nothing of it.

    At its end a check of messages names the denormalised tables of the keyspace that it did not
    look at, with the reason (`left_tables` in the JSON). --projections james names those that James
    does not fill. They change no exit code.""",
    service="mailmend.admin.messages.check:find_drift",
    present="mailmend.admin.messages.check:check_document",
    options=(
        click.Argument(["what"], type=Word(WORDS), default=WHAT_DEFAULT),
        click.Argument(["projection"], required=False),
        PROJECTIONS_FILE,
        *TIMING,
        COUNTERS_AT_ONCE,
        flag("--no-recheck", "Report raw suspects, without waiting and looking again."),
        *SCANNING,
        STAGING,
        *RECORDING,
        SNAPSHOT,
        SNAPSHOT_NAME,
    ),
    shared=(BLOBS_WANTED, CHECKED_PULSAR, CONNECTION),
    output=MEASURED,
    alone={
        "projection": NOT_FOR_A_PAIR,
        "projections": NOT_FOR_TABLES,
        "what=queues": ("torn", "without", "no_writers", "anonymous", "staging"),
        "what=blobs": ("torn", "without", "no_writers", "no_recheck", "findings", "anonymous", "staging"),
    },
    examples="""
        mailmend check                                     every denormalised table of the keyspace, and its queues
        mailmend check messages --engine local             without Spark
        mailmend check queues                              what sweeps have left, and what is wrong with queues
        mailmend check blobs --missing missing.jsonl       what nothing refers to, and what is not there
        mailmend check users users_by_email -k shop        a table, and a table that follows from it
        mailmend check --projections shop.toml -k shop     every pair of tables of the file
        mailmend check --projections james                 James's other tables
        mailmend check quotaCurrentValue --projections james
        mailmend check messages --snapshot /backup/node1 --no-recheck
        mailmend check --report drift.html --findings drift.jsonl
        mailmend check --no-recheck --json | jq .findings  raw suspects, at once
        mailmend check --record                            keep it for mailmend runs trend""",
    exits="0 no drift (leaks are reported and do not count), 1 confirmed drift, 2 wrong use, 3 some suspects could not "
    "be looked at again, or the check could not be recorded, 4 the cluster cannot be reached.",
)
