"""`mailmend repair blobs`: what nothing refers to any more goes, what is referred to and missing is named."""

import shlex
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final, cast

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import (
    OpenCluster,
    blob_scanner,
    chosen_engine,
    open_cluster,
    owner_name,
    state_folder,
    throttle_of,
)
from mailmend.admin.frame.command import JSON, Command
from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.event_loop import run_async
from mailmend.admin.frame.options import CONNECTION, FILE, METRICS_FILE, flag, option
from mailmend.admin.frame.plan_files import (
    PlanFile,
    PlanHead,
    PlanKind,
    PlanWriter,
    how_to_look,
    plan_wanted,
    seconds_of,
)
from mailmend.admin.frame.scan_options import MARGIN, OF_EVERY_SCAN, ScanOptions
from mailmend.admin.frame.settings import BlobsSettings, ConnectionSettings
from mailmend.admin.frame.values import IDS_SHOWN, NOTHING_WRITTEN, fields_json, plain
from mailmend.admin.frame.whole_files import refuse_unwritable
from mailmend.admin.messages.blob_sources import BlobSources, BlobsWanted, Messages, lines_of_missing, messages_of
from mailmend.admin.messages.blobs_result import BlobsResult, missing_in, summary_of
from mailmend.admin.messages.mending import given
from mailmend.admin.messages.options import (
    BLOBS_WANTED,
    KEEP_OPTION,
    MARGIN_OPTION,
    PLAN,
    SCANNING_ALL,
    TIMING,
    scanning_of,
)
from mailmend.admin.messages.record_document import record_json
from mailmend.admin.queue import openers
from mailmend.cql.introspect import live_schema
from mailmend.mailqueue.blobs.cassandra import CassandraStore
from mailmend.mailqueue.blobs.stores import NamedBlobs
from mailmend.mailqueue.collection.broker_references import topic_references
from mailmend.mailqueue.collection.collecting import (
    BlobCollection,
    CollectableStore,
    CollectedBlobs,
    ListedStore,
    RemovedList,
    Removing,
    TablesStore,
)
from mailmend.mailqueue.collection.scan import blob_fields
from mailmend.mailqueue.pulsar.settings import PulsarSettings
from mailmend.mailqueue.rules.blob_ids import BlobVerdict, CollectionRule, ListedBlob
from mailmend.model.catalog.ledger import KEEP, KeyspaceLease
from mailmend.model.catalog.mail import MESSAGE_V3
from mailmend.model.errors import WrongUse, came_of_interruption
from mailmend.model.instants import instant_of
from mailmend.model.sizes import MIB
from mailmend.model.texts import keyspace_option
from mailmend.repair.clock import Timing, take_as_of
from mailmend.repair.joins.records import Workshop
from mailmend.repair.ledger.runs import Ledger, Run, RunKind, RunState
from mailmend.repair.mending.limits import Pace
from mailmend.repair.mending.runner import close_killed
from mailmend.repair.mending.throttle import Throttle, pace_of


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobsRequest:
    """How blobs are looked at, and whether they are removed; `removed` is a file for the list of removed blobs.

    Attributes:
        plan: a file for a plan: the blobs that would be removed are written to it, and none is removed.
        approved: a plan that is applied: nothing else is removed.
    """

    connection: ConnectionSettings
    scanning: ScanOptions
    blobs: BlobsWanted
    margin: timedelta = MARGIN
    keep: timedelta = KEEP
    dry_run: bool = False
    removed: Path | None = None
    plan: Path | None = None
    approved: PlanFile | None = None

    @property
    def only_looks(self) -> bool:
        return self.dry_run or self.plan is not None


def repair_blobs(request: BlobsRequest, caller: Caller, opened: OpenCluster | None = None) -> BlobsResult:
    """Look twice and remove what nothing refers to; with `dry_run`, or as a check, only look.

    Without `opened`, the command connects.

    Raises:
        SourceUnread: a source of references cannot be read whole; nothing was removed.
        LeaseHeld: another collection of the keyspace is at work.
    """
    if not ((request.dry_run and not request.plan) or request.blobs.no_broker or request.blobs.broker):
        raise WrongUse(
            "messages at the broker may refer to blobs, and no broker is named",
            mend="Name it with --broker; or say --no-broker where none ever held a mail of this store.",
        )
    for path in (request.removed, request.blobs.missing):
        if path:
            refuse_unwritable(path)
    if opened:
        return run_async(_with_broker(opened, request, caller))
    with open_cluster(request.connection) as connected:
        return run_async(_with_broker(connected, request, caller))


async def _with_broker(opened: OpenCluster, request: BlobsRequest, caller: Caller) -> BlobsResult:
    settings = request.blobs.broker
    clock = opened.clock
    named = request.blobs.queues
    match settings:
        case None:
            return await _looked(opened, request, caller, None)
        case PulsarSettings():
            topics = openers.topics_behind(settings, clock)
            with Workshop() as workshop:
                try:
                    return await _looked(
                        opened, request, caller, lambda: topic_references(topics, clock, workshop.path, named)
                    )
                finally:
                    await topics.close()
        case _:
            broker = openers.broker_behind(settings, clock)
            try:
                return await _looked(opened, request, caller, lambda: messages_of(broker, opened, request.blobs))
            finally:
                await broker.close()


async def _looked(opened: OpenCluster, request: BlobsRequest, caller: Caller, messages: Messages | None) -> BlobsResult:
    began = opened.clock.monotonic()
    scan = request.scanning
    store = request.blobs.store
    as_of = take_as_of(opened.clock, opened.cluster, _timing(request))
    if request.approved:
        as_of = min(as_of, request.approved.head.as_of)
    min_age = max(request.blobs.min_age, request.blobs.oldest_message or timedelta())
    rule = CollectionRule(instant_of(as_of), request.blobs.family, request.blobs.generation, min_age)
    engine = chosen_engine(opened, scan, caller.remark)
    sources = BlobSources(opened, request.blobs, scan.level, messages)
    ledger = None
    if not request.only_looks:
        ledger = opened.ledger(request.keep)
    timed = None
    if request.connection.is_pressed(scan.pace):
        timed = MESSAGE_V3
    throttle = throttle_of(opened, scan.rows_per_second, timed, scan.level, ledger)
    pace = Pace(scan.rows_per_second, opened.clock, throttle)
    scanner = blob_scanner(opened, engine, scan.level, pace)
    wanted_plan = plan_wanted(request.plan, lambda: _head_of(request, opened, as_of))
    with lines_of_missing(request.blobs.missing) as on_missing, wanted_plan as plan:
        collection = BlobCollection(
            _collectable(store, opened),
            scanner,
            sources.opened_anew,
            rule,
            opened.clock,
            caller.progress,
            scan.delay.total_seconds(),
            on_missing,
            _adder(plan),
        )
        if ledger is None:
            found = await _carried_out(collection, request)
            result = BlobsResult(opened.mail.name, store.place, found, rule)
        else:
            result = await _recorded(opened, request, ledger, collection, as_of=as_of, throttle=throttle)
    seconds = opened.clock.monotonic() - began
    if request.approved:
        options = request.approved.head.options
        file: Path | None = request.approved.file
    else:
        options = _typed_again(request)
        file = request.plan
    return replace(
        result,
        broker_asked=messages is not None or request.blobs.no_broker,
        seconds=seconds,
        options=options,
        plan=file,
        stores=request.blobs.typed,
        pace=pace_of(throttle),
    )


def _typed_again(request: BlobsRequest) -> str:
    of_scan = given(request.scanning, OF_EVERY_SCAN)
    texts = (request.blobs.typed, given(request.blobs), of_scan, given(request))
    return " ".join(filter(None, texts))


async def _carried_out(
    collection: BlobCollection, request: BlobsRequest, removing: Removing | None = None
) -> CollectedBlobs:
    if request.approved is None:
        return await collection.run(removing)
    return await collection.apply(request.approved.blobs(), removing)


def _adder(plan: PlanWriter | None) -> Callable[[ListedBlob], None] | None:
    if plan is None:
        return None
    return lambda blob: plan.add_line("blobs", BlobVerdict.COLLECT.value, {"blob": blob_fields(blob)})


def _head_of(request: BlobsRequest, opened: OpenCluster, as_of: int) -> PlanHead:
    wanted = request.blobs
    broker = ""
    if wanted.broker:
        broker = wanted.broker.place
    policy = {
        **how_to_look(request.scanning, request.margin, as_of),
        **seconds_of(
            min_age=wanted.min_age,
            generation=wanted.generation,
            oldest_message=wanted.oldest_message,
        ),
        "family": wanted.family,
        "no_broker": wanted.no_broker,
        "only_broker": wanted.only_broker,
        "references": list(wanted.references),
        "references_file": [str(path.absolute()) for path in wanted.references_file],
        "queues": list(wanted.queues),
        "broker": broker,
        "blobs": wanted.store.place,
    }
    tables = opened.identity(live_schema(opened.cluster, opened.mail.name).tables)  # any may refer to blobs
    options = _typed_again(request)
    return PlanHead(kind=PlanKind.BLOBS, keyspace=opened.mail.name, tables=tables, options=options, policy=policy)


def _timing(request: BlobsRequest) -> Timing:
    return Timing(request.margin.total_seconds(), request.scanning.clock_skew.total_seconds())


def _collectable(settings: BlobsSettings, opened: OpenCluster) -> CollectableStore:
    tables = openers.tables_of(opened.mail)
    blobs = cast("NamedBlobs", openers.blobs_behind(settings, tables, opened.clock, makes=False))
    if isinstance(blobs.store, CassandraStore):
        return TablesStore(blobs.store)
    return ListedStore(blobs.store)


async def _recorded(
    opened: OpenCluster,
    request: BlobsRequest,
    ledger: Ledger,
    collection: BlobCollection,
    *,
    as_of: int,
    throttle: Throttle | None,
) -> BlobsResult:
    """Run under a lease, with its sums in the ledger."""
    name = opened.mail.name
    wanted = request.blobs
    place = wanted.store.place
    options = {
        "store": place,
        "min_age": str(wanted.min_age),
        "oldest_message": str(wanted.oldest_message or ""),
        "no_broker": wanted.no_broker,
        "only_broker": wanted.only_broker,
        "references": list(wanted.references),
    }
    if request.approved:
        options |= request.approved.recorded
    command = RunKind.BLOBS.value
    with opened.leases().held(KeyspaceLease.BLOBS.of(name), command) as lease:
        close_killed(ledger, name, command, opened.mail)
        started = ledger.start(name, command, as_of, options, owner=owner_name())
        if throttle:
            throttle.hear_of(started.id)
        path = request.removed or state_folder("blobs") / f"removed-{started.id}.jsonl"
        result = BlobsResult(name, place, CollectedBlobs(), collection.rule, started.id)
        removing = Removing(RemovedList(path), lease.check)
        found = await _run(ledger, started, _carried_out(collection, request, removing))
        result = replace(result, found=found)
        if found.removed:
            result = replace(result, removed_list=path)
        ledger.finish(started, summary_of(result) | {"pace": pace_of(throttle)})
    return result


async def _run(ledger: Ledger, started: Run, work: Awaitable[CollectedBlobs]) -> CollectedBlobs:
    try:
        return await work
    except BaseException as error:
        state = RunState.FAILED
        if came_of_interruption(error):
            state = RunState.INTERRUPTED
        ledger.finish(started, {}, state)
        raise


MEANINGS: Final[Mapping[BlobVerdict, str]] = {
    BlobVerdict.KEEP: "something refers to it",
    BlobVerdict.COLLECT: "nothing refers to it, at both looks: it only takes room (does not fail a check)",
    BlobVerdict.TOO_YOUNG: "nothing refers to it yet; it stays until no writer can",
    BlobVerdict.PACKED: "a chunk that nothing refers to: James's compaction removes it",
    BlobVerdict.UNKNOWN_PREFIX: "nothing refers to it, and its id is of another family or of no known kind: it stays",
    BlobVerdict.MISSING: "something refers to it, and it is not there, or not whole",
}


def blobs_document(result: BlobsResult) -> Document:
    found = result.found
    json = {
        "keyspace": result.keyspace,
        "store": result.place,
        "run": plain(result.run),
        **summary_of(result),
        "listed": found.listed,
        "listed_bytes": found.bytes,
        "references": dict(found.references),
        "findings": {kind.value: found.verdicts[kind] for kind in BlobVerdict if found.verdicts[kind]},
        **fields_json(found, "collect_bytes", "removed", "moved"),
        "removed_list": plain(result.removed_list),
        "missing": [blob._asdict() for blob in found.missing],
        "unknown": found.examples.get(BlobVerdict.UNKNOWN_PREFIX, []),
        "broker_asked": result.broker_asked,
        "failed": list(found.failed),
        "seconds": round(result.seconds, 3),
        "pace": result.pace,
        **record_json(result.record, {"blobs": found.listed}, {"blobs": missing_in(result)}),
    }
    remarks: tuple[str, ...] = ()
    if found.verdicts[BlobVerdict.MISSING]:
        remarks = ("More: mailmend runbook show blob-is-missing",)
    return Document(json, tuple(_body(result)), result.exit, remarks)


def _body(result: BlobsResult) -> Iterator[Part]:
    found = result.found
    rows = []
    for verdict in BlobVerdict:
        number = found.verdicts[verdict]
        if number:
            rows.append((verdict.value, f"{number:,}", MEANINGS[verdict]))
    yield f"{found.listed:,} blobs{_size(found.bytes)} in {result.place}."
    read = ", ".join(f"{name} {number:,}" for name, number in found.references.items())
    yield f"References: {read}."
    if rows:
        yield Grid("Blobs", ("verdict", "count", "meaning"), rows)
    if found.missing:
        missing = [(blob.blob_id, blob.source, blob.referrer) for blob in found.missing[:IDS_SHOWN]]
        yield Grid("Missing", ("blob", "named by", "row"), missing, frozenset({"blob", "row"}))
    unknown = found.examples.get(BlobVerdict.UNKNOWN_PREFIX, [])
    if unknown:
        yield f"Not known, such as: {', '.join(unknown[:3])}"
    if not result.broker_asked:
        yield "Messages at the broker were not looked at: they may refer to blobs that nothing else refers to."
    yield from found.failed
    if result.run is None:
        yield NOTHING_WRITTEN
    else:
        yield f"Removed {found.removed:,} blobs."
    if found.moved:
        yield f"{found.moved:,} were changed meanwhile, or are referred to by now, and left."
    if result.removed_list:
        yield f"What went is in {result.removed_list}"
    yield from _next(result)


def _size(size_bytes: int | None) -> str:
    if size_bytes is None:
        return ""
    return f" of {size_bytes / MIB:,.1f} MiB"


def _next(result: BlobsResult) -> Iterator[str]:
    verdicts = result.found.verdicts
    if result.run is None and verdicts[BlobVerdict.COLLECT] and not result.found.failed:
        command = "repair blobs"
        words = result.options
        if result.plan:
            command = f"apply {shlex.quote(str(result.plan))}"
            words = result.stores
        yield f"Next: mailmend {command} {keyspace_option(result.keyspace)} {words}".rstrip()
    if verdicts[BlobVerdict.TOO_YOUNG]:
        days = (2 * result.rule.generation) / timedelta(days=1)
        yield f"What is too young goes once its generation and the next are over: {days:g} days at most."


REPAIR_BLOBS: Final = Command(
    name="blobs",
    summary="Collect the blobs that nothing refers to any more.",
    about="""The store is listed, then everything that may refer to it is read: every column of the keyspace whose name
    says so, before-images, mails kept on this machine, journals of its unfinished moves of queues, dead letters at the
    broker (over Pulsar, every mail of the namespace), and what --references declare. The references are read again
    after the delay; what nothing refers to either time goes, once its generation and the next are over and it is a day
    old. Where a source cannot be read whole, nothing goes. What goes is listed in a file first. It does not come back:
    begin with --dry-run.

    Blobs that are referred to and not there are reported with who refers to them.""",
    service="mailmend.admin.messages.blobs:repair_blobs",
    present="mailmend.admin.messages.blobs:blobs_document",
    options=(
        *TIMING,
        flag("--dry-run", "Write nothing: look twice, and say what would be removed."),
        PLAN,
        option(
            "--removed",
            "File that lists the removed blobs. [default: a file of this user's own]",
            type=FILE,
            metavar="FILE",
        ),
        MARGIN_OPTION,
        KEEP_OPTION,
        *SCANNING_ALL,
    ),
    shared=(scanning_of((*TIMING, *SCANNING_ALL)), BLOBS_WANTED, CONNECTION),
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
