"""`mailmend queue reconcile`: compare broker, tables and blobs while traffic goes on, and mend."""

import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import click

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import state_folder
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.kinds import Duration
from mailmend.admin.frame.options import flag, option
from mailmend.admin.frame.values import first_ids, plain
from mailmend.admin.queue.connections import PulsarConnections, QueueConnections, with_queues
from mailmend.admin.queue.kept_mails import RemovedMailsFile, removed_mails_path
from mailmend.admin.queue.options import (
    AGE_MAX,
    DRY_RUN,
    QUEUE_ARGUMENT,
    YES,
    ids_max,
    queue_settings,
    typed_stores,
    unless,
)
from mailmend.admin.queue.request import DryRunRequest, confirm, queue_document
from mailmend.mailqueue.broker import Depth
from mailmend.mailqueue.codec import BrokenRow
from mailmend.mailqueue.comparison import (
    DRAIN_MAX,
    MEANINGS,
    Drained,
    Mended,
    QueueFinding,
    Reconciled,
    compared,
    compared_topics,
    left_after,
    refuse_drain,
)
from mailmend.mailqueue.pulsar.parts import QueueTopics
from mailmend.mailqueue.queue import IDS_MAX
from mailmend.mailqueue.rabbitmq.reconcile import (
    Keeping,
    MendRequest,
    drained,
    missing_in,
    tables_side,
    with_lookups,
)
from mailmend.mailqueue.rules.mails import Listed
from mailmend.model.errors import BadPayload, BlobMissing, ExitCode, WrongUse
from mailmend.model.ids import BlobId, EnqueueId, QueueName
from mailmend.model.table import Row

_BLOB_COLUMNS: Final = ("headerblobid", "bodyblobid")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileRequest(DryRunRequest):
    """Compare the sides of one queue."""

    drain: bool = False
    force: bool = False
    republish: bool = False
    older_than: timedelta = timedelta(hours=1)
    mark: tuple[UUID, ...] = ()
    no_blobs: bool = False
    ids_max: int = IDS_MAX
    yes: bool = False

    @property
    def mending(self) -> MendRequest:
        return MendRequest(self.republish, self.older_than, frozenset(map(EnqueueId, self.mark)))


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """What was found and what was mended (or would be, in a dry run).

    Attributes:
        left: how many findings of each kind are left.
        kept: files with what was removed.
        without_content: how many mails were kept without their bytes, which are missing.
    """

    request: ReconcileRequest
    found: Reconciled
    mended: Mended
    left: Mapping[QueueFinding, int]
    kept: tuple[Path, ...] = ()
    without_content: int = 0

    @property
    def exit(self) -> ExitCode:
        if self.mended.failed:
            return ExitCode.PARTLY_FAILED
        if self.left:
            return ExitCode.DRIFT
        return ExitCode.FINE


def reconcile(request: ReconcileRequest, caller: Caller) -> ReconcileResult:
    """Compare the sides, then mend; a dry run only says what would be mended.

    Raises:
        WrongUse: options that contradict each other.
        UnsafeRequest: no person agreed, or a guard refused.
    """
    if request.settings.pulsar:
        _refuse_what_topics_need_not(request)
    if request.force and not request.drain:
        raise WrongUse("--force is for --drain", mend="Say both, or neither.")
    if request.drain:
        question = f"Take every message of {request.queue} unacked for a moment? Consumers must be paused."
        confirm(question, caller, yes=request.yes)
    return with_queues(request.settings, lambda connections: _reconciled(connections, request, caller), makes=False)


def _refuse_what_topics_need_not(request: ReconcileRequest) -> None:
    if request.drain:
        raise WrongUse(
            "--drain is for a broker that cannot be searched, and Pulsar's topics are read as they are",
            mend="Leave it out: every message is looked at without it, and none is taken.",
        )
    if request.republish:
        raise WrongUse(
            "--republish is for mails that a table lists and the broker lacks, and a queue over Pulsar has no table",
            mend="Leave it out: what its topics list is what is delivered.",
        )
    if request.mark and request.no_blobs:
        raise WrongUse(
            "--mark takes a mail's bytes with it, which are kept first, and --no-blobs leaves them out",
            mend="Say one of them.",
        )


async def _reconciled(connections: QueueConnections, request: ReconcileRequest, caller: Caller) -> ReconcileResult:
    caller.progress.stage("looking at broker and tables")
    found = await _compared(connections, request)
    if request.mending.nothing:
        return ReconcileResult(request, found, Mended(), left_after(found, Mended()))
    caller.progress.stage("mending")
    removed = _Removed.of(connections, request)
    try:
        done = await _mended(connections, found, request, removed)
    except BaseException:
        for path in removed.paths:
            caller.remark(f"Kept in {path}")
        raise
    mended = done
    if request.dry_run:
        mended = Mended()
    left = left_after(found, mended)
    return ReconcileResult(request, found, done, left, removed.paths, removed.without_content)


async def _mended(
    connections: QueueConnections, found: Reconciled, request: ReconcileRequest, removed: "_Removed"
) -> Mended:
    dry_run = request.dry_run
    if isinstance(connections, PulsarConnections):
        async with connections.open(dry_run=dry_run) as queue:
            marked = _topics(connections, request).marked
            return await marked(queue, request.mending.mark, removed.keep_mail, dry_run=dry_run)
    async with connections.open_tabled(dry_run=dry_run) as tabled:
        keeping = Keeping(removed.keep_mail, removed.keep_row)
        return await tabled.mend(found, request.mending, keeping, dry_run=dry_run)


async def _compared(connections: QueueConnections, request: ReconcileRequest) -> Reconciled:
    if isinstance(connections, PulsarConnections):
        return await _compared_topics(connections, request)
    view = connections.view
    name = request.queue
    depth = await connections.broker.depth(name)
    named = None
    if request.drain:
        named = await _drained(connections, name, depth, request)
    tables = await tables_side(view, name, request.ids_max)
    missing = None
    if not request.no_blobs:
        missing = await missing_in(view, name, connections.blobs, tables.live)
    if named is not None:
        named = await with_lookups(view, name, named, tables)
    return compared(name, connections.now, tables, depth=depth, missing=missing, drained=named)


async def _compared_topics(connections: PulsarConnections, request: ReconcileRequest) -> Reconciled:
    topics = _topics(connections, request)
    async with connections.open(dry_run=True) as queue:
        depth = (await queue.figures()).depth
    side, mails = await topics.look(request.ids_max)
    missing = None
    if not request.no_blobs:
        missing = await topics.missing_among(connections.blobs, mails)
    return compared_topics(request.queue, connections.now, side, depth, missing)


def _topics(connections: PulsarConnections, request: ReconcileRequest) -> QueueTopics:
    return QueueTopics(request.queue, connections.topics, connections.clock)


async def _drained(connections: QueueConnections, queue: QueueName, depth: Depth, request: ReconcileRequest) -> Drained:
    refuse_drain(queue, depth, forced=request.force)
    return await drained(connections.broker, connections.clock, queue, depth, DRAIN_MAX, request.mending.mark)


@dataclass(slots=True)
class _Removed:
    """Keeps a copy in a file before anything is removed: of mails, and of unreadable rows."""

    connections: QueueConnections
    with_content: bool
    mails: RemovedMailsFile
    without_content: int = 0

    @classmethod
    def of(cls, connections: QueueConnections, request: ReconcileRequest) -> "_Removed":
        state = state_folder("queue")
        now = connections.now
        mails = RemovedMailsFile(removed_mails_path(state, request.queue, now, "mark"), request.queue)
        return cls(connections, not request.no_blobs, mails)

    @property
    def paths(self) -> tuple[Path, ...]:
        if not self.mails.count:
            return ()
        return (self.mails.path,)

    async def keep_mail(self, listed: Listed) -> None:
        content = None
        if self.with_content:
            content = (await self.connections.content_of(listed)).content
        self.without_content += content is None
        await self.mails.keep(listed, content)

    async def keep_row(self, row: Row) -> None:
        """A row that cannot be decoded as a mail, with its blobs, as far as they exist."""
        blobs = dict[str, bytes]()
        if self.with_content:
            for column in _BLOB_COLUMNS:
                with suppress(BlobMissing, BadPayload):
                    blobs[column] = await self.connections.blobs.get(BlobId(row[column] or ""))
        await self.mails.keep_row(row, blobs)


def reconcile_document(result: ReconcileResult) -> Document:
    found = result.found
    request = result.request
    over_pulsar = request.settings.pulsar is not None
    sides = _sides(found, over_pulsar=over_pulsar)
    body: list[Part] = [Grid(f"What {request.queue} holds", ("side", "what", "count"), sides)]
    if not found.clean:
        rows = [(kind.value, f"{count:,}", MEANINGS[kind]) for kind, count in found.counts.items() if count]
        body += [Grid("Found", ("finding", "count", "meaning"), rows), *_named_lines(found)]
    body += [*_notes(found), *_mended_lines(result)]
    if found.clean and found.lacking is not None:
        body.append("Nothing is lost, and nothing is left over.")
    elif result.left:
        body += _next_lines(result)
    return queue_document(result, _json(result), body, result.mended.failed)


def _json(result: ReconcileResult) -> dict[str, Any]:
    found = result.found
    tables = found.tables
    blobs = None
    if found.missing is not None:
        blobs = {"missing": found.missing}
    return {
        "broker": found.depth,
        "table": {
            "live": len(tables.live),
            "marked": len(tables.marked),
            "delayed": tables.delayed_count,
            "delayed_beyond_ids_max": tables.delayed_beyond,
            "broken": [_broken_json(row) for row in tables.broken],
        },
        "bad_messages": tables.bad,
        "blobs": blobs,
        "lacking": found.lacking,
        "surplus": found.surplus,
        "drained": _drained_json(found),
        "findings": {kind.value: count for kind, count in found.counts.items() if count},
        "dry_run": result.request.dry_run,
        "mended": result.mended,
        "left": result.left,
        "kept": [str(path) for path in result.kept],
        "kept_without_content": result.without_content,
    }


def _broken_json(row: BrokenRow) -> dict[str, Any]:
    return {"id": row.enqueue_id, "slice": row.slice_start, "bucket": row.bucket, "why": row.why}


def _drained_json(found: Reconciled) -> dict[str, Any] | None:
    drained = found.drained
    if drained is None:
        return None
    return {
        "messages": len(drained.ids),
        "bad": drained.bad,
        "dead": drained.dead,
        "only_in_table": found.without_message,
        "only_in_broker": found.only_in_broker,
    }


def _sides(found: Reconciled, *, over_pulsar: bool) -> list[tuple[str, str, str]]:
    tables = found.tables
    depth = found.depth
    side = "table"
    deleted = "marked, waits for the sweep"
    if over_pulsar:
        side = "topics"
        deleted = "deleted, not yet acknowledged"
    rows = [
        (side, "live", f"{len(tables.live):,}"),
        (side, deleted, f"{len(tables.marked):,}"),
        (side, "delayed", f"{tables.delayed_count:,}"),
    ]
    if depth is not None:
        unacked = "unknown" if depth.unacked is None else f"{depth.unacked:,}"
        rows += [
            ("broker", "ready", f"{depth.ready:,}"),
            ("broker", "unacked", unacked),
            ("broker", "consumers", f"{depth.consumers:,}"),
            ("broker", "dead letters", f"{depth.dead:,}"),
        ]
    return rows


def _named_lines(found: Reconciled) -> list[str]:
    bad = found.tables.bad or ()
    kinds: dict[QueueFinding, list[str]] = {
        QueueFinding.BROKEN_ROW: [f"{row.enqueue_id} ({row.why})" for row in found.tables.broken],
        QueueFinding.BLOB_MISSING: plain(found.missing or frozenset()),
        QueueFinding.BAD_MESSAGE: [f"{message.place} of {message.topic} ({message.why})" for message in bad],
        QueueFinding.LACKS_MESSAGE: plain(found.without_message),
        QueueFinding.ONLY_IN_BROKER: plain(found.only_in_broker),
    }
    lines = list[str]()
    for kind, ids in kinds.items():
        lines += first_ids(f"{kind.value}:", ids, len(ids), ": --json names all")
    return lines


def _notes(found: Reconciled) -> list[str]:
    lines = []
    if found.lacking is None:
        lines.append(
            "The broker does not say how many messages are unacked: name --broker-management to compare counts."
        )
    if found.tables.delayed_beyond:
        lines.append(f"{found.tables.delayed_beyond:,} delayed mails beyond --ids-max are counted, and not named.")
    return lines


def _mended_lines(result: ReconcileResult) -> list[str]:
    request = result.request
    mended = result.mended
    done = list[str]()
    if request.republish:
        done.append(f"published {mended.republished:,} mails again.")
    if request.mark:
        done.append(f"marked {len(mended.marked):,} mails.")
    lines = [line.capitalize() for line in done]
    if request.dry_run:
        lines = [f"Would have {line}" for line in done]
    if result.without_content:
        lines.append(f"Of {result.without_content:,} of them the envelope is kept, and no bytes.")
    if mended.unkept:
        lines.append(f"{len(mended.unkept):,} of them have neither row nor message, so nothing could be kept of them.")
    return [*lines, *(f"To put it back: mailmend queue restore {path}" for path in result.kept)]


def _next_lines(result: ReconcileResult) -> list[str]:
    command = f"mailmend queue reconcile --queue {result.request.queue}"
    lines = {
        QueueFinding.LACKS_MESSAGE: f"To deliver what lacks its message: {command} --drain --republish",
        QueueFinding.BLOB_MISSING: f"To take out what has lost its bytes: {command} --mark ID",
        QueueFinding.BROKEN_ROW: f"To take out what cannot be read: {command} --mark ID",
        QueueFinding.ONLY_IN_BROKER: f"To drop what has no row: {command} --drain --mark ID",
        QueueFinding.DEAD_LETTER: "Dead letters: mailmend runbook show queue-does-not-drain",
    }
    if result.request.settings.pulsar:
        lines[QueueFinding.DEAD_LETTER] = (
            f"Dead letters: mailmend queue redrive --queue {result.request.queue} --dry-run"
        )
        lines[QueueFinding.BAD_MESSAGE] = (
            "What is no mail is a dead letter once it is consumed; to look at it: pulsar-admin topics "
            "get-message-by-id -l LEDGER -e ENTRY TOPIC"
        )
    return [lines[kind] for kind in result.left if kind in lines]


def _refuse_removing_blobs(others: dict[str, Any], context: click.Context) -> None:
    if others.pop("remove_orphan_blobs"):
        given = context.params
        stores = typed_stores(context)
        words = ("--keyspace", given["keyspace"], *stores, "--queues", given["queue_named"] or given["queue"])
        raise WrongUse(
            "--remove-orphan-blobs is gone: blobs that nothing refers to are collected by a command of their own",
            mend=f"Look first: mailmend repair blobs {shlex.join(words)} --dry-run",
        )


RECONCILE: Final = Command(
    name="reconcile",
    summary="Compare broker, tables and blobs; mend.",
    about="""Traffic goes on. The command compares the table's live mails with the broker's counts and with their
    blobs, and looks for rows that cannot be read. It mends only what is asked for: nothing is written without a
    mending option. For blobs that nothing refers to, use `mailmend check blobs`.

    Without --drain the broker only gives counts, because it cannot be searched. --republish then publishes every live
    mail older than --older-than if some of them surely lack their message, and no mail otherwise. With --drain it
    publishes exactly the mails that lack their message.

    What is removed is kept first, in ~/.local/share/mailmend/queue; `mailmend queue restore` puts it back. A mail that
    has a message and no row is kept with --drain only. Killed, the same command goes on.

    Over Pulsar the topics, of ready and of delayed mails, are compared with the blobs: `table` in the JSON is what they
    list, `bad_messages` where those are that are no mails. They are read without being taken, so neither --drain nor
    --republish has anything to do; --mark deletes.""",
    service="mailmend.admin.queue.reconcile:reconcile",
    present="mailmend.admin.queue.reconcile:reconcile_document",
    options=(
        QUEUE_ARGUMENT,
        flag("--drain", "Take every message unacked, name it, give it back; asks. Pause consumers."),
        flag("--force", "Go on in spite of consumers. Drain then, and also where there is a delivery limit."),
        flag("--republish", "Publish mails again whose message the broker lacks."),
        option(
            "--older-than",
            "Only mails enqueued longer ago than this: for --republish.",
            type=Duration(AGE_MAX),
            default="1h",
        ),
        option(
            "--mark",
            "Take this mail out of the queue; may be given again.",
            type=click.UUID,
            multiple=True,
            metavar="ID",
        ),
        click.Option(["--remove-orphan-blobs"], is_flag=True, hidden=True),
        flag("--no-blobs", "Leave the blobs out: they take two requests for each live mail."),
        ids_max(
            "How many mails of the queue are held in memory, about half a KiB each; more is refused. Delayed mails "
            "beyond that are counted, and not named."
        ),
        DRY_RUN,
        YES,
    ),
    shared=(queue_settings(broker=unless(), blobs=unless("no_blobs"), check=_refuse_removing_blobs),),
    examples="""
        mailmend queue reconcile                                    look only; traffic goes on
        mailmend queue reconcile --drain --yes                      name what is only in the broker or only in the table
        mailmend queue reconcile --drain --republish --dry-run      who would be published again
        mailmend queue reconcile --mark ID                          take one mail out, whatever is wrong with it""",
    exits="0 nothing was found, or all of it was mended; 1 something is found, or left; 2 wrong use, or a guard "
    "refused; 3 some of it could not be mended (each is named); 4 cannot reach.",
)
