"""`mailmend repair`: drift of messages and journalled lags, mended after a second look."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import click

from mailmend.admin.frame.caller import Caller, ask_to_restore
from mailmend.admin.frame.cluster import OpenCluster, chosen_engine, lag_tools, open_cluster, owner_name, repair_tools
from mailmend.admin.frame.command import Command, CommandGroup, Late
from mailmend.admin.frame.examples import Examples
from mailmend.admin.frame.options import (
    CONNECTION,
    MAX_FIXES,
    PACE,
    ROWS_PER_SECOND,
    STAGING,
    WITHOUT,
    flag,
    option,
)
from mailmend.admin.frame.plan_files import PlanHead, PlanKind, plan_wanted
from mailmend.admin.frame.scan_options import MARGIN, ScanOptions
from mailmend.admin.frame.settings import ConnectionSettings, plain
from mailmend.admin.messages.bound_tables import BoundTables, file_of, plan_keeps, tables_asked_for
from mailmend.admin.messages.mending import CommandResult, ended, given, staged, unseen
from mailmend.admin.messages.named_rows import named_rows
from mailmend.admin.messages.options import (
    BEAT_AHEAD,
    LEAKS,
    LOOKING_TWICE,
    MEASURED,
    ONLY,
    ORPHANS,
    PLAN,
    PROJECTIONS_FILE,
    REPAIR_EXITS,
    SCANNING,
    TIMING,
    WRITING,
)
from mailmend.admin.messages.runs import affected
from mailmend.model.catalog.ledger import KEEP
from mailmend.model.errors import UnsafeRequest, WrongUse
from mailmend.model.ids import MailboxId, MessageId
from mailmend.model.projections.declarations import Declaration
from mailmend.model.projections.family import Family
from mailmend.model.projections.findings import RepairPolicy
from mailmend.model.projections.verdicts import MENDABLE, Verdict
from mailmend.repair.clock import Timing, take_as_of
from mailmend.repair.decisions.engines import Engine
from mailmend.repair.mending import runner
from mailmend.repair.mending.engine import RepairSettings
from mailmend.repair.mending.limits import Pace
from mailmend.repair.mending.runner import GoOn
from mailmend.repair.scanners.keyed import TargetRows
from mailmend.repair.scanners.lookup import (
    Target,
    TargetMailboxes,
    TargetMessages,
    mailboxes_of,
    refuse_mistyped,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRequest(ScanOptions):
    """What may be mended, and where; the names are the options' names.

    Attributes:
        plan: a file for the plan of what would be mended; nothing else is written.
        projections: what is mended, or the file that declares it; None: James's messages are.
        named: one projection of that file; None: all of them.
        key: rows of that file's tables, as `--key` names them; (): whole tables.
        mailboxes: whether the rows of mailboxes are mended, and not messages.
    """

    connection: ConnectionSettings
    dry_run: bool = False
    plan: Path | None = None
    only: tuple[frozenset[Verdict], ...] = ()
    max_fixes: int | None = None
    orphans: str = "report"
    dangling: str = "withdraw"
    leaks: str = "report"
    beat_ahead: bool = False
    yes: bool = False
    margin: timedelta = MARGIN
    keep: timedelta = KEEP
    message: tuple[UUID, ...] = ()
    mailbox: tuple[UUID, ...] = ()
    user: tuple[str, ...] = ()
    scan: bool = False
    projections: Path | Declaration | None = None
    named: str | None = None
    key: tuple[str, ...] = ()
    touch_base: bool = False
    mailboxes: bool = False

    @property
    def verdicts(self) -> frozenset[Verdict]:
        return frozenset[Verdict]().union(*self.only) or MENDABLE

    @property
    def only_looks(self) -> bool:
        return self.dry_run or self.plan is not None


def repair(request: RepairRequest, caller: Caller) -> CommandResult:
    """Mend drift after a second look, as of a moment before the scan; a dry run only looks, a plan is written down.

    The tables are those that `request.projections` declares, else James's messages.

    Raises:
        UnsafeRequest: what may bring back deleted messages was not agreed to.
        FixLimit: more is due than `max_fixes` allows; nothing was written.
        LeaseHeld: another repair of the keyspace is at work.
    """
    _refuse_unasked_restore(request, caller)
    with open_cluster(request.connection) as opened:
        return repair_in(request, caller, opened)


def repair_in(request: RepairRequest, caller: Caller, opened: OpenCluster) -> CommandResult:
    """As `repair`, in a cluster that is open; restoring deleted messages has been agreed to."""
    tables = tables_asked_for(request, opened)
    target = target_of(opened, request, tables.bound.families)
    examples = Examples(caller, tables.scope)
    keyspace = opened.mail.name
    options = {**_recorded_options(request, target), **tables.kept}
    settings = _settings_of(request, keyspace, tables.whole(keyspace), target, options)
    reads = Pace(request.rows_per_second, opened.clock).over(opened.mail)
    refuse_mistyped(reads, settings.families, target, opened.clock)
    engine: Engine | None = None
    source: Target | Engine
    if target:
        source = target
    else:
        source = engine = chosen_engine(opened, request, caller.remark, tables.truths)
        options = {**options, "engine": engine.name}
    as_of: int | None = None
    if request.plan:
        as_of = take_as_of(opened.clock, opened.cluster, settings.timing)
    settings = replace(settings, as_of=as_of, options=options)
    staging = request.staging
    if target:  # a look at a target reads so little that none of it is staged
        staging = None
    keep: timedelta | None = request.keep
    go_on: GoOn | None = caller.ask
    if request.only_looks:
        keep = None
        go_on = None
    with staged(staging, opened, settings, caller) as (settings, area):
        tools = repair_tools(opened, settings, source, caller.progress, keep=keep, staging=area, go_on=go_on)
        head = partial(_head_of, request, caller, opened, settings, tables)
        plan = plan_wanted(request.plan, head)
        with plan as writer:
            if writer:
                examples.plan = writer.add
            summary = runner.repair(settings, tools, examples.take)
        ended(summary, area)
    whose = affected(examples, opened)
    of_target = None
    if target:
        of_target = target.unseen(summary.gaps)
    summary.unseen = unseen(request.without, tables.bound, of_target)
    summary.engine = engine
    return CommandResult(
        summary,
        examples.sorted(),
        plan=request.plan,
        options=_typed_again(request, caller),
        affected=whose,
        scope=tables.scope,
        left_tables=tables.left,
    )


def _typed_again(request: RepairRequest, caller: Caller) -> str:
    """The options of the request as a command line; users have no names where the caller wants none."""
    if caller.anonymous:
        request = replace(request, user=("NAME",) * len(request.user))
    return given(request)


def _head_of(
    request: RepairRequest,
    caller: Caller,
    opened: OpenCluster,
    settings: RepairSettings,
    tables: BoundTables,
) -> PlanHead:
    assert settings.as_of is not None, "a plan says its T"
    policy = asdict(settings.policy_of(settings.as_of, None))
    policy["only"] = sorted(verdict.value for verdict in policy["only"])
    kind = PlanKind.MESSAGES
    if request.mailboxes:
        kind = PlanKind.MAILBOXES
    elif not tables.scope.is_mail:
        kind = PlanKind.TABLES
    return PlanHead(
        kind=kind,
        keyspace=settings.keyspace,
        tables=opened.identity(table for family in settings.families for table in family.tables),
        options=_typed_again(request, caller),
        without=request.without,
        margin_seconds=settings.timing.margin_seconds,
        policy=policy,
        declared=plan_keeps(request, tables),
    )


_OF_LAGS: Final = (
    "without",
    "delay",
    "clock_skew",
    "margin",
    "no_writers",
    "keep",
    "rows_per_second",
    "pace",
)
"""The options of `repair lags`, in the order in which the next command names them."""


def repair_lags(request: RepairRequest, caller: Caller) -> CommandResult:
    """Mend the journalled lags of what `request.projections` declares, else of James's messages."""
    with open_cluster(request.connection) as opened:
        tables = tables_asked_for(request, opened)
        examples = Examples(caller, tables.scope)
        keyspace = opened.mail.name
        options = {
            "lags": True,
            "delay": plain(request.delay),
            "margin": plain(request.margin),
            **plan_keeps(request, tables),
        }
        settings = _settings_of(request, keyspace, tables.whole(keyspace), None, options)
        journal, tools = lag_tools(opened, settings, caller.progress, request.keep)
        summary = runner.repair_lags(journal, opened.mail, settings, tools, examples.take)
        whose = affected(examples, opened)
    summary.unseen = unseen(request.without, tables.bound)
    return CommandResult(
        summary,
        examples.sorted(),
        options=given(request, _OF_LAGS),
        affected=whose,
        scope=tables.scope,
    )


def target_of(
    opened: OpenCluster,
    request: RepairRequest,
    families: tuple[Family, ...] = (),
) -> Target | None:
    """What is looked at by key; None where whole tables are scanned."""
    if request.key:
        return TargetRows(tuple(named_rows(text, families) for text in request.key))
    if request.scan and not (request.message or request.mailbox or request.user):
        raise WrongUse(
            "--scan goes with --message, --mailbox or --user", mend="Without them everything is scanned anyway."
        )
    mailboxes = dict.fromkeys(map(MailboxId, request.mailbox))
    for user in request.user:
        mailboxes |= dict.fromkeys(mailboxes_of(opened.mail, user))
    if request.message:
        return TargetMessages(tuple(map(MessageId, request.message)), tuple(mailboxes), request.scan)
    if not mailboxes:
        return None
    return TargetMailboxes(tuple(mailboxes), scan=request.scan)


def _settings_of(
    request: RepairRequest,
    keyspace: str,
    families: tuple[Family, ...],
    target: Target | None,
    options: Mapping[str, Any],
) -> RepairSettings:
    """The settings of a repair of messages or lags; `options` are kept in the ledger."""
    return RepairSettings(
        keyspace=keyspace,
        families=families,
        level=request.level,
        delay_seconds=request.delay.total_seconds(),
        timing=Timing(
            request.margin.total_seconds(),
            request.clock_skew.total_seconds(),
            no_writers=request.no_writers,
        ),
        dry_run=request.dry_run,
        policy=RepairPolicy(
            only=request.verdicts,
            orphans=request.orphans,
            dangling=request.dangling,
            leaks=request.leaks,
            beat_ahead=request.beat_ahead,
            rows_per_second=request.rows_per_second,
            accept_torn=request.torn == "accept",
            fill_torn=request.torn == "fill",
            touch_base=request.touch_base,
            all_truths=request.scan or not isinstance(target, TargetMailboxes),
        ),
        pressed=request.connection.is_pressed(request.pace),
        max_fixes=request.max_fixes,
        owner=owner_name(),
        options=options,
    )


_NOT_RECORDED = frozenset({"connection", "master", "spark_conf", "user"})


def _recorded_options(request: RepairRequest, target: Target | None) -> dict[str, Any]:
    """The request as the ledger keeps it, under the names of the options; users by their mailboxes' ids."""
    given = {field.name: getattr(request, field.name) for field in fields(request) if field.name not in _NOT_RECORDED}
    if request.projections is not None:
        given["projections"] = file_of(request.projections)
    if request.only:
        given["only"] = sorted(verdict.value for verdict in request.verdicts)
    match target:
        case TargetMessages(mailboxes=mailboxes) | TargetMailboxes(ids=mailboxes) if request.user:
            given["mailbox"] = mailboxes
    return {name: plain(value) for name, value in given.items() if value not in (None, False, ())}


def _refuse_unasked_restore(request: RepairRequest, caller: Caller) -> None:
    """A row of truth is restored whole or not at all, so not without a column; and only where a person agrees."""
    if request.dangling == "restore" and request.without:
        raise UnsafeRequest("--dangling restore does not go with --without", mend="First add the missing column.")
    if request.dangling == "restore" and not (request.yes or request.only_looks):
        ask_to_restore(caller)


REPAIR_MESSAGES: Final = Command(
    name="messages",
    summary="Mend what follows from imapUidTable.",
    about="""It mends the denormalised tables that follow from the source of truth, imapUidTable. The repair reads
    every table once, waits, looks at every suspect again, keeps what it overwrites (see `mailmend undo`), and writes
    with a timestamp from before its scan, so that changes by users in the meantime win. It is safe to run it again.

    With --staging an interruption (Ctrl-C, a window's end, a kill, a lost Spark) loses only the token ranges that are
    being read. The same command continues, with a timestamp from before the first attempt; it may have other
    policies, a --dry-run or a --plan.

    With --message, --mailbox or --user no Spark is needed, and nothing is scanned unless --scan is given. The result
    names what such a look cannot see (`unseen` in the JSON). Where a mailbox shows no row for a uid that it has
    given, the message was deleted, or never listed: `gaps` in the JSON counts them, and without --scan the exit code
    is 1.

    Generators that are behind the numbers of their rows (uids and modseqs of messages,
    `numbered_by` of a file), as after a table was restored from a backup, are raised where the role
    may write them, and never lowered: `generators` in the JSON.""",
    service="mailmend.admin.messages.repair:repair",
    present="mailmend.admin.messages.shared_document:document_of",
    options=(
        *TIMING,
        LOOKING_TWICE,
        PLAN,
        ONLY,
        MAX_FIXES,
        ORPHANS,
        option(
            "--dangling",
            "What becomes of denormalised rows without truth; restore may bring back what was deleted, and asks.",
            type=click.Choice(["withdraw", "restore", "report"]),
            default="withdraw",
        ),
        LEAKS,
        BEAT_AHEAD,
        flag("--yes", "Do not ask: do as --dangling restore says; --max-fixes still stops."),
        *WRITING,
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

REPAIR_LAGS: Final = Command(
    name="lags",
    summary="Mend the rows whose writes outlived their retries.",
    about="""Writers journal such lags themselves. What agrees by now is forgotten; what cannot be mended yet stays for
    the next run. A lag of a table that is not looked at stays too: lags of declared tables are
    mended with --projections, lags of mail without it.""",
    service="mailmend.admin.messages.repair:repair_lags",
    present="mailmend.admin.messages.shared_document:document_of",
    options=(
        *TIMING,
        flag("--dry-run", "Write nothing: look at them, and say what would be mended."),
        PROJECTIONS_FILE,
        WITHOUT,
        *WRITING,
        ROWS_PER_SECOND,
        PACE,
    ),
    shared=(CONNECTION,),
    output=MEASURED,
    alone={"projections": ("without",)},
    examples="""
        mailmend repair lags --dry-run      how many there are, and which
        mailmend repair lags                mend exactly them; safe to schedule every few minutes
        mailmend repair lags --projections shop.toml -k shop     lags of declared tables""",
    exits=REPAIR_EXITS,
)

_REPAIR_QUEUES: Final = Late(
    "queues",
    "Remove what the sweep of the mail queues has left.",
    "mailmend.admin.messages.repair_queues:REPAIR_QUEUES",
)
_REPAIR_MAILBOXES: Final = Late(
    "mailboxes",
    "Mend the rows of mailboxes that their paths tell.",
    "mailmend.admin.messages.repair_mailboxes:REPAIR_MAILBOXES",
)
_REPAIR_TABLES: Final = Late(
    "tables",
    "Mend the tables of a file of projections.",
    "mailmend.admin.messages.repair_tables:REPAIR_TABLES",
)
_REPAIR_BLOBS: Final = Late(
    "blobs",
    "Collect the blobs that nothing refers to any more.",
    "mailmend.admin.messages.blobs:REPAIR_BLOBS",
)

REPAIR: Final = CommandGroup(
    name="repair",
    summary="Mend drift: messages, mailboxes, declared tables, lags, what queues have left, blobs.",
    about="""`mailmend repair --projections FILE` is short for
    `mailmend repair tables --projections FILE`.""",
    commands=(
        REPAIR_MESSAGES,
        _REPAIR_MAILBOXES,
        _REPAIR_TABLES,
        REPAIR_LAGS,
        _REPAIR_QUEUES,
        _REPAIR_BLOBS,
    ),
    by_option={"--projections": "tables"},
)
