"""`mailmend schema advise`: figures of the cluster, advice that follows from them, and what a trial measured.

Nothing is written to the cluster that is advised on, and no read of it is traced (a trace would be written there).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final

from mailmend.admin.frame.cluster import OpenCluster
from mailmend.admin.schema.measuring import GivenTraffic, MessageTraffic, QueueTraffic, measure
from mailmend.admin.schema.sampling import Sample, draw_sample
from mailmend.admin.schema.trial import READS, WAVES, Trial, TrialNode
from mailmend.cql.introspect import live_schema
from mailmend.cql.render import CASSANDRA_5, parse_version
from mailmend.cql.schema.advice import CompactionAdvice, TrialResult, choose
from mailmend.cql.statistics import Statistics
from mailmend.mailqueue.rules.advice import QueueAdvice, Traffic, advise_queue, history_window_days
from mailmend.mailqueue.rules.configuration import QueueConfiguration
from mailmend.model.catalog.mail import MESSAGE_COMPACTIONS, MESSAGE_ID, CompactionChoice
from mailmend.model.durations import DAY
from mailmend.model.errors import MailmendError
from mailmend.model.keyspace import Schema
from mailmend.model.ports import Progress

SHORT_HISTORY_SECONDS: Final = 60 * DAY
"""Two windows of the message tables: below it compaction by time has nothing to keep apart."""

OpenNode = Callable[[], AbstractContextManager[TrialNode]]


@dataclass(frozen=True, slots=True)
class TrialWanted:
    """A trial of at most `rows` rows, on the node that `node` opens."""

    rows: int
    open_node: OpenNode
    waves: int = WAVES
    reads: int = READS


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


def advise(place: OpenCluster, given: GivenTraffic, trial: TrialWanted | None, progress: Progress) -> Advised:
    """Measure the traffic, derive advice, and run a trial where one is wanted.

    Raises:
        UnknownKeyspace: there is no such keyspace.
        SchemaMismatch: it holds neither messages nor a queue.
        CannotReach: the cluster does not answer, or does not let us read the rows that are to be copied.
    """
    mail = place.mail
    live = live_schema(place.cluster, mail.name)
    measured = measure(place, live, given, progress)
    messages = _messages(live, measured.messages)
    if trial is not None and live.table(MESSAGE_ID.name):
        messages = _tried(place, live, messages, trial, progress)
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


def _tried(
    place: OpenCluster, live: Schema, known: MessageTables, wanted: TrialWanted, progress: Progress
) -> MessageTables:
    sample = draw_sample(place.mail, live, wanted.rows, progress)
    if not sample.messages:
        return replace(known, untried=f"no mailbox of at most {wanted.rows:,} messages was found (--sample takes more)")
    progress.stage("starting a Cassandra for the trial (the first time its jars are fetched)")
    try:
        with wanted.open_node() as node:
            prefix = f"mailmend_trial_{place.clock.new_uuid().hex[:8]}"
            trial = Trial(node, place.clock, progress, prefix, wanted.waves, wanted.reads)
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
