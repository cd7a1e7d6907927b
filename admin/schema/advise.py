"""`mailmend schema advise`: what queue and message tables should be set to.

The answer comes in plain sentences first, the figures after it, commands last.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import open_cluster
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.kinds import ParsedValue
from mailmend.admin.frame.options import CONNECTION, TRAFFIC, option
from mailmend.admin.frame.settings import LOOPBACK, PORT_DEFAULT, ConnectionSettings, parse_port
from mailmend.admin.frame.values import fields_json, plain
from mailmend.admin.queue.configure import ConfigureResult, QueueAdvised
from mailmend.admin.schema.advising import Advised, MessageTables, OpenNode, TrialWanted
from mailmend.admin.schema.advising import advise as advise_on
from mailmend.admin.schema.measuring import ENQUEUED, GivenTraffic
from mailmend.admin.schema.trial import READS, WAVES, given_node, started_node
from mailmend.cql.schema.advice import ReadCost, TrialResult
from mailmend.mailqueue.rules.advice import Advice, Figure, FigureSource, Traffic, span
from mailmend.mailqueue.rules.configuration import DEFAULT, QueueConfiguration, window_text
from mailmend.mailqueue.rules.slices import SECOND
from mailmend.model.catalog.mail import MESSAGE_COMPACTIONS, TWCS_MESSAGES
from mailmend.model.catalog.mail_queue import window_compaction
from mailmend.model.durations import DAY
from mailmend.model.errors import ExitCode, UnsafeRequest, WrongUse
from mailmend.model.sizes import MIB
from mailmend.model.table import Compaction
from mailmend.model.texts import keyspace_option

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
    trial = None
    if request.trial:
        trial = TrialWanted(request.sample, node, request.waves, request.reads)
    with open_cluster(connection) as opened:
        return advise_on(opened, request.given, trial, caller.progress)


TWCS_DAYS: Final = int(TWCS_MESSAGES.options["compaction_window_size"])
MARKS: Final = "deletedmailsv2"
_MESSAGE_TABLES: Final = ("imapuidtable", "messageidtable", "messagev3")
_FIGURES: Final = (
    ("mails per second", "mails_per_second"),
    ("at the peak", "peak_per_second"),
    ("longest stay", "longest_stay_seconds"),
    ("bytes of a row", "row_bytes"),
    ("nodes", "nodes"),
    ("copies", "copies"),
    ("hint window", "hint_window_seconds"),
)


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
    for label, name in _FIGURES:
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


def reasons_table(title: str, reasons: tuple[Advice, ...]) -> Grid:
    rows = [(reason.setting, reason.value, reason.why) for reason in reasons]
    return Grid(title, ("setting", "value", "why"), rows)


def figures_table(traffic: Traffic, names: Collection[str] = Traffic.__slots__) -> Grid:
    rows = []
    for label, name in _FIGURES:
        if name in names:
            rows.append(_figure_row(label, name, getattr(traffic, name)))
    return Grid("What that rests on", ("figure", "value", "is", "how"), rows)


def _figure_row(label: str, name: str, figure: Figure) -> tuple[str, str, str, str]:
    if name.endswith("_seconds"):
        value = span(figure.value)
    else:
        value = f"{figure.value:,.4g}"
    return label, value, figure.source.value, figure.how


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


def figures_json(traffic: Traffic, names: Collection[str] = Traffic.__slots__) -> dict[str, Any]:
    shown = [name for _, name in _FIGURES if name in names]
    return fields_json(traffic, *shown)


_COLUMNS: Final = ("event", "slice window", "buckets", "pace")
_ADVICE_FIGURES: Final = ("mails_per_second", "peak_per_second", "longest_stay_seconds", "row_bytes", "nodes")
"""The figures that the configuration follows from."""


def configure_document(result: ConfigureResult) -> Document:
    request = result.request
    after = result.after
    keyspace = request.connection.keyspace
    history = []
    rows = []
    for event in result.history:
        history.append({"event": event.event_id, **_figures(event.configuration)})
        rows.append((str(event.event_id), *_cells(event.configuration)))
    properties = None
    if after:
        properties = _james_properties(after)
    json = {
        "keyspace": keyspace,
        "before": result.before and _figures(result.before),
        "configuration": after and _figures(after),
        "changed": result.differs and not request.dry_run,
        "dry_run": request.dry_run,
        "history": history,
        "james_properties": properties,
        "exit": 0,
    }
    body: list[Part] = []
    if rows:
        body.append(Grid(f"How the queues of {keyspace} are cut", _COLUMNS, rows))
    body.append(_sentence(result))
    hints = []
    if result.differs and properties:
        lines = ", ".join(f"{name}={value}" for name, value in properties.items())
        when = ", after the change" if request.dry_run else ""
        hints.append(
            f"Next: start every process of these queues again{when}; a James with {lines} in its rabbitmq.properties. "
            "How: mailmend runbook show change-slice-window"
        )
    return Document(json, body, hints=hints)


def _figures(configuration: QueueConfiguration) -> dict[str, int]:
    slicing = configuration.slicing
    return {"slice_window_seconds": slicing.window // SECOND, "buckets": slicing.buckets, "pace": configuration.pace}


def _james_properties(configuration: QueueConfiguration) -> dict[str, str]:
    return {
        "mailqueue.view.sliceWindow": window_text(configuration.slicing.window),
        "mailqueue.view.bucketCount": str(configuration.slicing.buckets),
        "mailqueue.view.updateBrowseStartPace": str(configuration.pace),
    }


def _sentence(result: ConfigureResult) -> str:
    if result.after is None:
        return (
            f"Nothing was set in {result.request.connection.keyspace} yet: whatever opens a queue first sets "
            f"{_in_words(DEFAULT)}, unless it is given other values."
        )
    if not result.differs:
        return f"What counts: {_in_words(result.after)}."
    if result.request.dry_run:
        return f"It may be set: {_in_words(result.after)}."
    return f"Set: {_in_words(result.after)}."


def _in_words(configuration: QueueConfiguration) -> str:
    buckets = configuration.slicing.buckets
    cut = f"slices of {window_text(configuration.slicing.window)} in {buckets:,} bucket{'' if buckets == 1 else 's'}"
    return f"{cut}, the browse start moved on one of {configuration.pace:,} dequeues and deletes"


def _cells(configuration: QueueConfiguration) -> tuple[str, str, str]:
    slicing = configuration.slicing
    return (window_text(slicing.window), f"{slicing.buckets:,}", f"{configuration.pace:,}")


def advise_document(advised: QueueAdvised) -> Document:
    advice = advised.advice
    command = None
    if advice.changes:
        command = _configure_command(advised)
    json = {
        "keyspace": advised.keyspace,
        "present": advice.present and _advised_figures(advice.present),
        "advised": _advised_figures(advice.advised),
        "best": _advised_figures(advice.best),
        "changes": advice.changes,
        "command": command,
        "reasons": plain(advice.reasons),
        "allowed": list(advice.allowed),
        "hindered": list(advice.hindered),
        "traffic": figures_json(advised.traffic, _ADVICE_FIGURES),
        "notes": list(advised.notes),
        "exit": 0,
    }
    return Document(json, tuple(_queue_advice_parts(advised, command)))


def _queue_advice_parts(advised: QueueAdvised, command: str | None) -> Iterator[Part]:
    advice = advised.advice
    verb = "Set" if advice.changes else "Keep"
    yield f"{verb} {_advised_words(advice.advised)}."
    if advice.present:
        yield f"Stored: {_advised_words(advice.present)}."
    else:
        yield "Stored: nothing."
    for sentence in (*advice.allowed, *advice.hindered):
        yield f"  {sentence}"
    yield ""
    yield reasons_table("Configuration", advice.reasons)
    yield figures_table(advised.traffic, _ADVICE_FIGURES)
    for note in advised.notes:
        yield f"Note: {note}"
    if command:
        yield f"Next:\n  {command}"


def _configure_command(advised: QueueAdvised) -> str:
    wanted = advised.advice.advised
    options = f"--slice-window {window_text(wanted.slicing.window)} --buckets {wanted.slicing.buckets}"
    return f"mailmend queue configure {options} --browse-start-every {wanted.pace} {keyspace_option(advised.keyspace)}"


def _advised_words(configuration: QueueConfiguration) -> str:
    slicing = configuration.slicing
    buckets = f"{slicing.buckets} bucket{'' if slicing.buckets == 1 else 's'}"
    return f"slices of {window_text(slicing.window)}, {buckets}, pace {configuration.pace:,}"


def _advised_figures(configuration: QueueConfiguration) -> dict[str, int]:
    slicing = configuration.slicing
    return {"slice_seconds": slicing.window // SECOND, "buckets": slicing.buckets, "pace": configuration.pace}


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
