"""`mailmend queue configure` and `advise`: how queues are cut into slices and buckets."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster, open_cluster
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.event_loop import run_async
from mailmend.admin.frame.kinds import Duration
from mailmend.admin.frame.options import CONNECTION, TRAFFIC, flag, option
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.queue import openers
from mailmend.admin.schema.measuring import ENQUEUED, GivenTraffic, measure
from mailmend.cql.introspect import live_schema
from mailmend.mailqueue.configuration import Configurations
from mailmend.mailqueue.rules.advice import ConfigurationAdvice, Traffic, advise_configuration
from mailmend.mailqueue.rules.configuration import DEFAULT, ConfigurationEvent, QueueConfiguration, change
from mailmend.mailqueue.rules.slices import Slicing
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


CONFIGURE: Final = Command(
    name="configure",
    summary="Slice window, buckets and pace, by James's rules.",
    about="""Without options the configuration is shown, and nothing is written. It is stored as James stores it: each
    change is an event in eventStore, and the last event counts. One configuration serves every queue of the keyspace.
    A new slice window must divide the last one, and buckets only grow: otherwise mails would be lost from view. After
    a change every process of the queues must be started again, James with the same values in its
    rabbitmq.properties.""",
    service="mailmend.admin.queue.configure:configure",
    present="mailmend.admin.schema.advise:configure_document",
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
    present="mailmend.admin.schema.advise:advise_document",
    shared=(TRAFFIC, CONNECTION),
    examples="""
        mailmend queue advise                               from what is measured; seconds
        mailmend queue advise --mails-per-second 40 --peak-mails-per-second 300
        mailmend queue advise --json | jq -r .command       what to type, for a script""",
    exits="0 the advice was given, 2 wrong use, 4 the cluster cannot be reached.",
)
