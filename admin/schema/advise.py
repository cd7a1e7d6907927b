"""`mailmend schema advise`: what queue and message tables should be set to.

Nothing is written to the cluster that is advised on. No read of it is traced, because a trace would
be written there. The answer comes in plain sentences first, the figures after it, commands last.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster, open_cluster
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.kinds import ParsedValue
from mailmend.admin.frame.options import CONNECTION, TRAFFIC, option
from mailmend.admin.frame.settings import LOOPBACK, PORT_DEFAULT, ConnectionSettings, parse_port
from mailmend.admin.frame.values import fields_json, plain
from mailmend.admin.queue.configure import FIGURES, figures_json, figures_table, reasons_table
from mailmend.admin.schema.measuring import (
    ENQUEUED,
    GivenTraffic,
    MessageTraffic,
    QueueTraffic,
    Sample,
    draw_sample,
    measure,
)
from mailmend.admin.schema.trial import READS, WAVES, Trial, TrialNode, given_node, started_node
from mailmend.cql.introspect import live_schema
from mailmend.cql.render import CASSANDRA_5, parse_version
from mailmend.cql.schema.advice import CompactionAdvice, ReadCost, TrialResult, choose
from mailmend.cql.statistics import Statistics
from mailmend.mailqueue.rules.advice import (
    Figure,
    FigureSource,
    QueueAdvice,
    Traffic,
    advise_queue,
    history_window_days,
    span,
)
from mailmend.mailqueue.rules.configuration import QueueConfiguration
from mailmend.model.catalog.mail import MESSAGE_COMPACTIONS, MESSAGE_ID, TWCS_MESSAGES, CompactionChoice
from mailmend.model.catalog.mail_queue import window_compaction
from mailmend.model.durations import DAY
from mailmend.model.errors import ExitCode, MailmendError, UnsafeRequest, WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.ports import Progress
from mailmend.model.sizes import MIB
from mailmend.model.table import Compaction
from mailmend.model.texts import keyspace_option

SHORT_HISTORY_SECONDS: Final = 60 * DAY
"""Two windows of the message tables: below it compaction by time has nothing to keep apart."""

OpenNode = Callable[[], AbstractContextManager[TrialNode]]


ROWS: Final = 20_000
_HERE: Final = (LOOPBACK, "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviseRequest:
    """What is known of the traffic, and how a trial is run."""

    connection: ConnectionSettings
    given: GivenTraffic = field(default_factory=GivenTraffic)
    trial: bool = True
    sample: int = ROWS
    waves: int = WAVES
    reads: int = READS
    folder: Path | None = None
    trial_at: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class MessageTables:
    """What is known, measured and advised of the message tables.

    Attributes:
        strategy: the compaction class that messageIdTable has.
        window_days: the time window, were they compacted by time; None where the history is not known.
        sample, results, advice: of the trial; empty and None where none was made.
        untried: why no trial was made, though one was wanted; None otherwise.
    """

    strategy: str
    present: CompactionChoice | None
    traffic: MessageTraffic
    window_days: int | None
    sample: Sample | None = None
    results: tuple[TrialResult, ...] = ()
    advice: CompactionAdvice | None = None
    untried: str = ""


@dataclass(frozen=True, slots=True)
class Advised:
    """Everything that `mailmend schema advise` says."""

    keyspace: str
    release: str
    live: Schema
    traffic: Traffic
    settings: QueueConfiguration | None
    queue: QueueAdvice
    messages: MessageTables
    statistics: Statistics
    notes: tuple[str, ...]


def advise_on(place: OpenCluster, request: AdviseRequest, open_node: OpenNode, progress: Progress) -> Advised:
    """Measure the traffic, derive advice, and run a trial where one is wanted.

    The trial runs on the node that `open_node` opens.

    Raises:
        UnknownKeyspace: there is no such keyspace.
        SchemaMismatch: it holds neither messages nor a queue.
        CannotReach: the cluster does not answer, or does not let us read the rows that are to be copied.
    """
    mail = place.mail
    live = live_schema(place.cluster, mail.name)
    measured = measure(place, live, request.given, progress)
    messages = _messages(live, measured.messages)
    if request.trial and live.table(MESSAGE_ID.name):
        messages = _tried(place, live, messages, request, open_node, progress)
    return Advised(
        mail.name,
        place.cluster.release_version,
        live,
        measured.traffic,
        measured.settings,
        advise_queue(measured.traffic, measured.settings),
        messages,
        measured.statistics,
        (*measured.notes, *_cautions(measured.queue, messages)),
    )


def present_choice(strategy: str) -> CompactionChoice | None:
    """The choice for a compaction class, whatever its options; None for a class that is no choice."""
    for choice, compaction in MESSAGE_COMPACTIONS.items():
        if compaction.strategy == strategy:
            return choice
    return None


def served_choices(release: str) -> frozenset[CompactionChoice]:
    choices = frozenset(CompactionChoice)
    if parse_version(release) < CASSANDRA_5:
        return choices - {CompactionChoice.UNIFIED}
    return choices


def _messages(live: Schema, traffic: MessageTraffic) -> MessageTables:
    strategy = ""
    table = live.table(MESSAGE_ID.name)
    if table and table.compaction:
        strategy = table.compaction.strategy
    window = None
    if traffic.rates:
        window = history_window_days(traffic.rates.history_seconds)
    return MessageTables(strategy, present_choice(strategy), traffic, window)


def _tried(  # noqa: PLR0917 - what a trial needs
    place: OpenCluster,
    live: Schema,
    known: MessageTables,
    request: AdviseRequest,
    open_node: OpenNode,
    progress: Progress,
) -> MessageTables:
    sample = draw_sample(place.mail, live, request.sample, progress)
    if not sample.messages:
        untried = f"no mailbox of at most {request.sample:,} messages was found (--sample takes more)"
        return replace(known, untried=untried)
    progress.stage("starting a Cassandra for the trial (the first time its jars are fetched)")
    try:
        with open_node() as node:
            prefix = f"mailmend_trial_{place.clock.new_uuid().hex[:8]}"
            trial = Trial(node, place.clock, progress, prefix, request.waves, request.reads)
            results = trial.run(sample.messages)
    except MailmendError as error:
        return replace(known, sample=sample, untried=f"{error.what}. {error.mend}".strip())
    advice = choose(results, known.present, served_choices(place.cluster.release_version))
    return replace(known, sample=sample, results=results, advice=advice)


def _cautions(queue: QueueTraffic | None, messages: MessageTables) -> list[str]:
    cautions = []
    if messages.untried:
        cautions.append(f"No trial was made: {messages.untried}")
    if queue is not None:
        cautions.append(
            "James renews no row of its queue: with a time to live, a mail that stays longer is lost from its view."
        )
    if messages.sample is not None and messages.sample.by_birth:
        cautions.append(
            "All rows were written within a short time (a restore or a migration): the births of the messages stood "
            "for the write times, and no change of flags is known. The trial then favours twcs."
        )
    if messages.results and messages.sample and messages.sample.history_seconds < SHORT_HISTORY_SECONDS:
        cautions.append(
            "The copied rows span less than two windows of 30 days: what twcs costs shows only over a longer history."
        )
    return cautions


def advise(request: AdviseRequest, caller: Caller) -> Advised:
    """Measure the traffic and derive advice, after a trial where one is wanted; the advised cluster is only read.

    Raises:
        UnsafeRequest: the trial was to run on the cluster that is advised on.
    """
    connection = request.connection
    node: OpenNode
    if request.trial_at:
        host, port = request.trial_at
        if host not in _HERE and host in connection.hosts and port == connection.port:
            raise UnsafeRequest(
                f"--trial-at {host}:{port} is the cluster that is advised on; a trial writes to it",
                mend="Leave --trial-at out, and a Cassandra is started on this machine; or name another one.",
            )
        node = partial(given_node, host, port)
    else:
        node = partial(started_node, request.folder)
    with open_cluster(connection) as opened:
        return advise_on(opened, request, node, caller.progress)


TWCS_DAYS: Final = int(TWCS_MESSAGES.options["compaction_window_size"])
MARKS: Final = "deletedmailsv2"
_MESSAGE_TABLES: Final = ("imapuidtable", "messageidtable", "messagev3")


def document_of(advised: Advised) -> Document:
    return Document(advised_json(advised), tuple(_parts(advised)))


def _parts(advised: Advised) -> Iterator[Part]:
    yield from answer_lines(advised)
    yield ""
    if advised.messages.results:
        yield _trial_table(advised.messages)
    yield reasons_table("Queue tables", advised.queue.reasons)
    yield figures_table(advised.traffic)
    if rows := list(_statistic_rows(advised)):
        columns = (
            "table",
            "partitions",
            "mean partition",
            "on disk",
            "largest partition",
            "read p99",
            "tombstones p99",
        )
        heard = f"{advised.statistics.nodes_heard} of {advised.statistics.nodes_up} nodes"
        yield Grid(f"What {heard} tell of the tables", columns, rows)
    for note in advised.notes:
        yield f"Note: {note}"
    yield "Next:"
    for line in next_lines(advised):
        yield f"  {line}"


def answer_lines(advised: Advised) -> Iterator[str]:
    yield from _message_answer(advised.messages)
    queue = advised.queue
    yield (
        f"Queue tables: slices of {span(queue.slice_seconds)}, {queue.buckets} bucket(s), "
        f"time to live {span(queue.ttl_seconds)} in windows of {span(queue.window_seconds)}, "
        f"marks {span(queue.mark_ttl_seconds)} (bloom filter {queue.mark_bloom_chance}), "
        f"gc_grace {span(queue.gc_grace_seconds)}."
    )
    assumed = []
    for label, name in FIGURES:
        figure: Figure = getattr(advised.traffic, name)
        if figure.source is FigureSource.ASSUMED:
            assumed.append(label)
    if assumed:
        yield f"Assumed, not measured: {', '.join(assumed)}. Name what you know; the advice follows."


def _message_answer(messages: MessageTables) -> Iterator[str]:
    if messages.advice is None:
        yield f"Message tables: {messages.strategy or 'none here'}; what each choice costs was not measured."
        yield from _reckoned(messages)
        return
    advice = messages.advice
    verb = "change to" if advice.change else "keep"
    yield f"Message tables: we would {verb} {advice.choice.value} (they have {messages.strategy})."
    for sentence in advice.why:
        yield f"  {sentence}"
    yield from _reckoned(messages)


def _reckoned(messages: MessageTables) -> Iterator[str]:
    """What a sample cannot show: the time windows of the whole history."""
    rates = messages.traffic.rates
    if rates is None or messages.window_days is None:
        return
    windows = round(rates.history_seconds / DAY / TWCS_DAYS)
    if windows > 1:
        yield (
            f"  By time alone: {rates.history_seconds / DAY:,.0f} days of mail are {windows:,} windows of {TWCS_DAYS} "
            "days; with twcs a mailbox that was used all along is read from about as many SSTables. Windows of "
            f"{messages.window_days} days would make it two dozen."
        )


def _trial_table(messages: MessageTables) -> Grid:
    sample = messages.sample
    title = "Trial"
    if sample is not None:
        title = (
            f"Trial: {len(sample.messages):,} messages of {sample.mailboxes:,} mailboxes, {sample.changed:,} of them "
            f"changed later, {sample.history_seconds / DAY:,.0f} days; a larger table has more levels and SSTables"
        )
    columns = ("choice", "opening a mailbox", "p50", "p99", "looking one up", "p50", "p99", "on disk", "rewritten")
    return Grid(title, columns, [_trial_row(result) for result in messages.results])


def _trial_row(result: TrialResult) -> tuple[str, ...]:
    return (
        result.choice.value,
        *_cost_cells(result.mailbox),
        *_cost_cells(result.message),
        f"{result.disk_bytes / MIB:,.1f} MiB",
        f"{result.rewritten_bytes / MIB:,.1f} MiB",
    )


def _cost_cells(cost: ReadCost) -> tuple[str, str, str]:
    return f"{cost.sstables_mean:.2f} SSTables", f"{cost.p50_ms:.2f} ms", f"{cost.p99_ms:.2f} ms"


def _statistic_rows(advised: Advised) -> Iterator[tuple[str, ...]]:
    for name, table in advised.statistics.tables.items():
        yield (
            name,
            _cell(table.partitions, "{:,}"),
            _cell(table.mean_partition_bytes, "{:,} B"),
            _cell(table.disk_bytes and table.disk_bytes / MIB, "{:,.0f} MiB"),
            _cell(table.max_partition_bytes and table.max_partition_bytes / MIB, "{:,.0f} MiB"),
            _cell(table.local_read_p99_ms, "{:,.2f} ms"),
            _cell(table.tombstones_per_read_p99, "{:,.0f}"),
        )


def _cell(figure: float | None, form: str) -> str:
    if figure is None:
        return "not known"
    return form.format(figure)


def next_lines(advised: Advised) -> Iterator[str]:
    """What to type: CQL for tables that exist, commands for tables to be created."""
    advice = advised.messages.advice
    if advice is not None and advice.change:
        yield "-- rewrites every SSTable of the table: one at a time, in a quiet hour"
        for name in _MESSAGE_TABLES:
            if advised.live.table(name):
                yield _alter(advised.keyspace, name, compaction=MESSAGE_COMPACTIONS[advice.choice])
        yield f"mailmend schema apply --compaction {advice.choice.value} --keyspace NEW    for a keyspace to come"
    yield from _queue_lines(advised)
    options = "--from-model --include-options"
    if advice:
        options += f" --compaction {advice.choice.value}"
    yield f"mailmend schema plan {options} {keyspace_option(advised.keyspace)}"


def _queue_lines(advised: Advised) -> Iterator[str]:
    queue = advised.queue
    if advised.live.table(ENQUEUED):
        yield f"rabbitmq.properties: mailqueue.view.sliceWindow={queue.slice_seconds}s"
        yield f"rabbitmq.properties: mailqueue.view.bucketCount={queue.buckets}"
        options = {"default_time_to_live": queue.ttl_seconds, "gc_grace_seconds": queue.gc_grace_seconds}
        yield _alter(advised.keyspace, ENQUEUED, window_compaction(queue.window_seconds), **options)
    if advised.live.table(MARKS):
        marks = {
            "default_time_to_live": queue.mark_ttl_seconds,
            "gc_grace_seconds": queue.gc_grace_seconds,
            "bloom_filter_fp_chance": queue.mark_bloom_chance,
        }
        yield _alter(advised.keyspace, MARKS, window_compaction(queue.mark_window_seconds), **marks)


def _alter(keyspace: str, table: str, compaction: Compaction, **options: float) -> str:
    parts = [f"compaction = {compaction.literal}"]
    for name, value in options.items():
        parts.append(f"{name} = {value}")
    return f"ALTER TABLE {keyspace}.{table} WITH {' AND '.join(parts)};"


def advised_json(advised: Advised) -> dict[str, Any]:
    return {
        "keyspace": advised.keyspace,
        "release": advised.release,
        "messages": _messages_json(advised.messages),
        "queue": plain(advised.queue),
        "traffic": figures_json(advised.traffic),
        "statistics": fields_json(advised.statistics, "nodes_up", "nodes_heard", "tables"),
        "notes": list(advised.notes),
        "next": list(next_lines(advised)),
        "exit": int(ExitCode.FINE),
    }


def _messages_json(messages: MessageTables) -> dict[str, Any]:
    advice = messages.advice
    sample = messages.sample
    rates = messages.traffic.rates
    advised: dict[str, Any] = {"choice": None, "change": None, "too_small": None, "why": []}
    if advice:
        advised = fields_json(advice, "choice", "change", "too_small", "why")
    sampled = {"rows": 0, "mailboxes": 0, "passed_over": 0}
    if sample:
        sampled = {"rows": len(sample.messages), **fields_json(sample, "mailboxes", "passed_over")}
    history_days = None
    if rates:
        history_days = rates.history_seconds / DAY
    return {
        "strategy": messages.strategy,
        "present": plain(messages.present),
        **advised,
        "window_days": messages.window_days,
        "history_days": history_days,
        "changes_per_message": messages.traffic.changes,
        **sampled,
        "trial": {result.choice.value: _result_json(result) for result in messages.results},
    }


def _result_json(result: TrialResult) -> dict[str, Any]:
    fields = fields_json(result, "mailbox", "message", "disk_bytes", "rewritten_bytes")
    return {**fields, "sstables_per_read": result.sstables}


def _address(value: Any) -> tuple[str, int]:
    if isinstance(value, tuple):
        return value
    host, _, port = str(value).rpartition(":")
    if not host:
        return (str(value), PORT_DEFAULT)
    if not port.isdigit():
        raise WrongUse(f"{value!r} is not HOST:PORT")
    return (host, parse_port(int(port)))


ADVISE: Final = Command(
    name="advise",
    summary="Say what tables should be set to; try compactions.",
    about="""Writes nothing to your cluster. Time windows, time to live, buckets and slices of the queue follow from
    the traffic, which is measured where possible. For the message tables the compactions twcs, unified and leveled
    are tried on a copy of your own rows. The compaction with the fewest SSTables per read wins, then the lowest 99th
    percentile of reads, then the fewest bytes on disk; without a clear winner the advice is to leave the tables as
    they are.

    The trial starts a Cassandra on this machine (Java 17; see `mailmend local`), copies whole mailboxes into it, writes
    their history again under each compaction, and reads them. The copy holds keys, flags, sizes and times; each
    character of a text becomes an x. The copy is in a folder that only you may read (--dir), and is removed at the
    end, after Ctrl-C too.""",
    service="mailmend.admin.schema.advise:advise",
    present="mailmend.admin.schema.advise:document_of",
    paged=True,
    options=(
        option("--trial/--no-trial", "Try the compactions on a copy of your rows.", default=True),
        option(
            "--sample",
            "Maximum number of messages to copy for the trial.",
            type=click.IntRange(1, 500_000),
            default=ROWS,
        ),
        option("--waves", "In how many flushes the copy is written.", type=click.IntRange(1, 1000), default=WAVES),
        option("--reads", "How many reads of each kind are measured.", type=click.IntRange(1, 10_000), default=READS),
        option(
            "--dir",
            "Folder for the files: the files of the copy. [default: the system's folder for temporary files]",
            "folder",
            type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
            metavar="DIR",
        ),
        option(
            "--trial-at",
            "A Cassandra for the trial that runs already and may be written to; never one in production.",
            type=ParsedValue("address", _address),
            metavar="HOST:PORT",
        ),
    ),
    shared=(TRAFFIC, CONNECTION),
    examples="""
        mailmend schema advise --no-trial                       reckoned only; seconds
        mailmend schema advise                                  and tried: a few minutes
        mailmend schema advise --mails-per-second 40 --longest-stay 7d
        mailmend schema advise --sample 100000 --json""",
    exits="0 the advice was given, 2 wrong use, 4 the cluster cannot be reached.",
)
