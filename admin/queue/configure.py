"""`mailmend queue configure` and `advise`: how queues are cut into slices and buckets."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster, open_cluster
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.event_loop import run_async
from mailmend.admin.frame.kinds import Duration
from mailmend.admin.frame.options import CONNECTION, TRAFFIC, flag, option
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.frame.values import fields_json
from mailmend.admin.queue import openers
from mailmend.admin.schema.measuring import ENQUEUED, GivenTraffic, measure
from mailmend.cql.introspect import live_schema
from mailmend.mailqueue.configuration import Configurations
from mailmend.mailqueue.rules.advice import Advice, ConfigurationAdvice, Figure, Traffic, advise_configuration, span
from mailmend.mailqueue.rules.configuration import DEFAULT, ConfigurationEvent, QueueConfiguration, change, window_text
from mailmend.mailqueue.rules.slices import SECOND, Slicing
from mailmend.model.ports import Progress
from mailmend.model.texts import keyspace_option


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigureRequest:
    """Change what is not None; all None: only read the configuration."""

    connection: ConnectionSettings
    slice_window: timedelta | None = None
    buckets: int | None = None
    pace: int | None = None
    dry_run: bool = False

    def on(self, current: QueueConfiguration) -> QueueConfiguration:
        window = current.slicing.window
        if self.slice_window is not None:
            window = self.slice_window
        buckets = current.slicing.buckets
        if self.buckets is not None:
            buckets = self.buckets
        pace = current.pace
        if self.pace is not None:
            pace = self.pace
        return QueueConfiguration(Slicing(window, buckets), pace)


@dataclass(frozen=True, slots=True)
class ConfigureResult:
    """The configuration before and now.

    Attributes:
        before: None where nothing was ever set.
        after: what applies now, or would after a dry run.
        history: every event, a new one included.
    """

    request: ConfigureRequest
    before: QueueConfiguration | None
    after: QueueConfiguration | None
    history: Sequence[ConfigurationEvent]

    @property
    def differs(self) -> bool:
        return self.before != self.after


def configure(request: ConfigureRequest, _: Caller) -> ConfigureResult:
    """Read or change the configuration of all queues of a keyspace.

    Raises:
        ConfigurationRefused: mails would be lost from view.
    """
    with open_cluster(request.connection) as opened:
        tables = openers.tables_of(opened.mail)
        return run_async(_configured(Configurations(tables), request))


async def _configured(configurations: Configurations, request: ConfigureRequest) -> ConfigureResult:
    history = await configurations.history()
    before = None
    if history:
        before = history[-1].configuration
    after = before
    if (request.slice_window, request.buckets, request.pace) != (None, None, None):
        if request.dry_run:
            after = change(before, request.on(before or DEFAULT))
        else:
            after = await configurations.alter(request.on)
            history = await configurations.history()
    return ConfigureResult(request, before, after, history)


@dataclass(frozen=True, slots=True)
class QueueAdvised:
    """The configuration that fits the traffic, and its basis."""

    keyspace: str
    traffic: Traffic
    advice: ConfigurationAdvice
    notes: tuple[str, ...]


def advise(connection: ConnectionSettings, given: GivenTraffic, caller: Caller) -> QueueAdvised:
    with open_cluster(connection) as opened:
        return advise_on_queue(opened, given, caller.progress)


def advise_on_queue(opened: OpenCluster, given: GivenTraffic, progress: Progress) -> QueueAdvised:
    """As `advise`, for a cluster that is open already.

    Raises:
        UnknownKeyspace: there is no such keyspace.
        SchemaMismatch: it holds neither messages nor a queue.
        CannotReach: the cluster does not answer.
    """
    keyspace = opened.mail.name
    live = live_schema(opened.cluster, keyspace)
    measured = measure(opened, live, given, progress)
    notes = list[str]()
    if not live.table(ENQUEUED):
        notes.append(
            f"{keyspace} has no queue yet; mailmend schema apply {keyspace_option(keyspace)} makes its tables."
        )
    advice = advise_configuration(measured.traffic, measured.settings)
    return QueueAdvised(keyspace, measured.traffic, advice, (*measured.notes, *notes))


_COLUMNS: Final = ("event", "slice window", "buckets", "pace")
_ADVICE_FIGURES: Final = ("mails_per_second", "peak_per_second", "longest_stay_seconds", "row_bytes", "nodes")
"""The figures that the configuration follows from."""


FIGURES: Final = (
    ("mails per second", "mails_per_second"),
    ("at the peak", "peak_per_second"),
    ("longest stay", "longest_stay_seconds"),
    ("bytes of a row", "row_bytes"),
    ("nodes", "nodes"),
    ("copies", "copies"),
    ("hint window", "hint_window_seconds"),
)


def reasons_table(title: str, reasons: tuple[Advice, ...]) -> Grid:
    rows = [(reason.setting, reason.value, reason.why) for reason in reasons]
    return Grid(title, ("setting", "value", "why"), rows)


def figures_table(traffic: Traffic, names: Collection[str] = Traffic.__slots__) -> Grid:
    rows = []
    for label, name in FIGURES:
        if name in names:
            rows.append(_figure_row(label, name, getattr(traffic, name)))
    return Grid("What that rests on", ("figure", "value", "is", "how"), rows)


def _figure_row(label: str, name: str, figure: Figure) -> tuple[str, str, str, str]:
    if name.endswith("_seconds"):
        value = span(figure.value)
    else:
        value = f"{figure.value:,.4g}"
    return label, value, figure.source.value, figure.how


def figures_json(traffic: Traffic, names: Collection[str] = Traffic.__slots__) -> dict[str, Any]:
    shown = [name for _, name in FIGURES if name in names]
    return fields_json(traffic, *shown)


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
        **fields_json(advice, "reasons", "allowed", "hindered"),
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


CONFIGURE: Final = Command(
    name="configure",
    summary="Slice window, buckets and pace, by James's rules.",
    about="""Without options the configuration is shown, and nothing is written. It is stored as James stores it: each
    change is an event in eventStore, and the last event counts. One configuration serves every queue of the keyspace.
    A new slice window must divide the last one, and buckets only grow: otherwise mails would be lost from view. After
    a change every process of the queues must be started again, James with the same values in its
    rabbitmq.properties.""",
    service="mailmend.admin.queue.configure:configure",
    present="mailmend.admin.queue.configure:configure_document",
    options=(
        option(
            "--slice-window",
            "The length of a slice: 1h, 30m, 90s.",
            type=Duration(timedelta(days=3_650)),
            metavar="DURATION",
        ),
        option("--buckets", "How many partitions each slice has.", type=int, metavar="N"),
        option(
            "--browse-start-every",
            "Move the browse start at one of N dequeues and deletes: James's updateBrowseStartPace.",
            "pace",
            type=int,
            metavar="N",
        ),
        flag("--dry-run", "Write nothing: say whether the change may be."),
    ),
    shared=(CONNECTION,),
    examples="""
        mailmend queue configure                                what counts, and what was set before
        mailmend queue configure --slice-window 30m --dry-run   whether that may be, and what would be allowed instead
        mailmend queue configure --slice-window 30m --buckets 2
        mailmend runbook show change-slice-window               how to go about it""",
    exits="0 it is shown, set or may be set; 2 wrong use, or a change that would lose mails from view; 4 the cluster "
    "cannot be reached.",
)

ADVISE: Final = Command(
    name="advise",
    summary="Slice window, buckets and pace that fit the traffic.",
    about="""Writes nothing. One configuration serves every queue of a keyspace; the busiest queue is measured. The
    aim is about 10,000 mails a slice. A new slice window must divide the present one, and buckets only grow; the
    advice keeps to these rules.""",
    service="mailmend.admin.queue.configure:advise",
    present="mailmend.admin.queue.configure:advise_document",
    paged=True,
    shared=(TRAFFIC, CONNECTION),
    examples="""
        mailmend queue advise                               from what is measured; seconds
        mailmend queue advise --mails-per-second 40 --peak-mails-per-second 300
        mailmend queue advise --json | jq -r .command       what to type, for a script""",
    exits="0 the advice was given, 2 wrong use, 4 the cluster cannot be reached.",
)
