"""What the traffic of a keyspace is, asked of its cluster: reads only, and nothing of it is traced."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from mailmend.admin.frame.cluster import OpenCluster
from mailmend.admin.frame.extras import import_or_name_extra
from mailmend.admin.schema.traffic import (
    ENQUEUED,
    MessageTraffic,
    QueueTraffic,
    Reading,
    message_traffic,
    queue_settings,
    queue_traffic,
)
from mailmend.cql.schema.advice.traffic import RECENT_SECONDS, Rates
from mailmend.cql.statistics import Statistics, read_statistics
from mailmend.mailqueue.rules.advice import Figure, FigureSource, Traffic, span
from mailmend.mailqueue.rules.configuration import QueueConfiguration
from mailmend.model.catalog.lifetimes import DAY, HOUR
from mailmend.model.catalog.mail import MESSAGE_ID
from mailmend.model.errors import SchemaMismatch
from mailmend.model.keyspace import Schema
from mailmend.model.ports import Progress

WATCHED: Final = ("imapuidtable", "messageidtable", "messagev3", ENQUEUED, "deletedmailsv2")
"""The tables whose statistics are read, as far as they exist."""

MAILS_PER_SECOND: Final = 1.0
PEAK_TIMES: Final = 5
"""How much busier than the mean the busiest hour is, where only the mean is known."""

LONGEST_STAY_SECONDS: Final = 5 * DAY
"""How long mail servers commonly try to deliver a mail before they give up."""

ROW_BYTES: Final = 1_500
HINT_WINDOW_SECONDS: Final = 3 * HOUR
"""Cassandra's own default."""


@dataclass(frozen=True, slots=True)
class GivenTraffic:
    """What the person gave; None where nothing was given. Times in seconds."""

    mails_per_second: float | None = None
    peak_mails_per_second: float | None = None
    longest_stay_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """A keyspace's traffic, as the cluster reports it.

    Attributes:
        traffic: every figure, from its best source.
        settings: the current settings of the queue; None where none were saved.
        notes: figures that could not be read.
    """

    traffic: Traffic
    queue: QueueTraffic | None
    messages: MessageTraffic
    settings: QueueConfiguration | None
    statistics: Statistics
    notes: tuple[str, ...]


def measure(place: OpenCluster, live: Schema, given: GivenTraffic, progress: Progress) -> Measured:
    name = place.mail.name
    now = place.clock.micros()
    refuse_other_keyspaces(name, live)
    progress.stage("asking the nodes")
    ask = partial(import_or_name_extra("mailmend.cql.driver.nodes").ask_every_node, place.cluster)
    statistics = read_statistics(ask, name, [table for table in WATCHED if live.table(table)])
    progress.stage("measuring the traffic")
    reading = Reading(place.cluster)
    queue = queue_traffic(reading, name, live, now)
    figures = statistics.tables.get("imapuidtable")
    messages = message_traffic(reading, name, live, now, partitions=figures.partitions if figures else None)
    return Measured(
        traffic_figures(given, queue, messages, statistics, place.cluster.replication_of(name)),
        queue,
        messages,
        queue.settings if queue else queue_settings(reading, name, live),
        statistics,
        (*statistics.notes, *reading.notes),
    )


def refuse_other_keyspaces(keyspace: str, live: Schema) -> None:
    """Refuse a keyspace without mail tables."""
    if not live.table(MESSAGE_ID.name) and not live.table(ENQUEUED):
        raise SchemaMismatch(keyspace, (f"table {MESSAGE_ID.spelling}",))


def traffic_figures(
    given: GivenTraffic,
    queue: QueueTraffic | None,
    messages: MessageTraffic,
    statistics: Statistics,
    replication: Mapping[str, str],
) -> Traffic:
    mean = _mean(given, queue, messages)
    return Traffic(
        mails_per_second=mean,
        peak_per_second=_peak(given, queue, messages, mean),
        longest_stay_seconds=_stay(given, queue),
        row_bytes=_row_bytes(queue, statistics),
        nodes=Figure(statistics.nodes_up, FigureSource.MEASURED, "nodes that are up"),
        copies=Figure(copies_of(replication), FigureSource.MEASURED, "the keyspace's replication"),
        hint_window_seconds=_hint_window(statistics),
    )


def copies_of(replication: Mapping[str, str]) -> int:
    factors = (value.partition("/")[0] for name, value in replication.items() if name != "class")
    return max(1, sum(int(factor) for factor in factors if factor.isdigit()))


def _mean(given: GivenTraffic, queue: QueueTraffic | None, messages: MessageTraffic) -> Figure:
    if given.mails_per_second is not None:
        return Figure(given.mails_per_second, FigureSource.GIVEN, "--mails-per-second")
    if found := _measured(queue, messages):
        rates, how = found
        return Figure(rates.mean, FigureSource.MEASURED, how)
    return Figure(MAILS_PER_SECOND, FigureSource.ASSUMED, "nothing to measure; name it with --mails-per-second")


def _peak(given: GivenTraffic, queue: QueueTraffic | None, messages: MessageTraffic, mean: Figure) -> Figure:
    if given.peak_mails_per_second is not None:
        return Figure(max(mean.value, given.peak_mails_per_second), FigureSource.GIVEN, "--peak-mails-per-second")
    if given.mails_per_second is None and (found := _measured(queue, messages)):
        rates, how = found
        return Figure(max(rates.peak, rates.mean), FigureSource.MEASURED, f"{how}: the busiest stretch")
    return Figure(mean.value * PEAK_TIMES, FigureSource.ASSUMED, f"{PEAK_TIMES} times the mean")


def _measured(queue: QueueTraffic | None, messages: MessageTraffic) -> tuple[Rates, str] | None:
    if queue is not None and queue.rates is not None:
        return queue.rates, f"{queue.rates.looked_at:,} slices of queue {queue.queue!r}"
    if messages.rates is not None:
        return messages.rates, f"births of {messages.rates.looked_at:,} messages; {_stretch(messages.rates)}"
    return None


def _stretch(rates: Rates) -> str:
    """The period of the mean: a young keyspace has no week behind it."""
    if rates.history_seconds < RECENT_SECONDS:
        return f"all {span(max(HOUR, round(rates.history_seconds)))} that they span"
    return f"the newest {span(RECENT_SECONDS)}"


def _stay(given: GivenTraffic, queue: QueueTraffic | None) -> Figure:
    if given.longest_stay_seconds is not None:
        return Figure(given.longest_stay_seconds, FigureSource.GIVEN, "--longest-stay")
    oldest = queue.oldest_seconds if queue else None
    if oldest is not None and oldest > LONGEST_STAY_SECONDS:
        return Figure(oldest, FigureSource.MEASURED, "the browse start lies so far back")
    return Figure(
        LONGEST_STAY_SECONDS,
        FigureSource.ASSUMED,
        f"mail servers commonly give up after {span(LONGEST_STAY_SECONDS)}; name it with --longest-stay",
    )


def _row_bytes(queue: QueueTraffic | None, statistics: Statistics) -> Figure:
    figures = statistics.tables.get(ENQUEUED)
    if queue and figures and figures.mean_partition_bytes and queue.mails_per_partition:
        per_row = figures.mean_partition_bytes / queue.mails_per_partition
        return Figure(per_row, FigureSource.MEASURED, "the size estimates of enqueuedMailsV4")
    return Figure(ROW_BYTES, FigureSource.ASSUMED, "a mail with a few recipients and attributes")


def _hint_window(statistics: Statistics) -> Figure:
    if statistics.hint_window_seconds is not None:
        return Figure(statistics.hint_window_seconds, FigureSource.MEASURED, "max_hint_window of the nodes")
    return Figure(HINT_WINDOW_SECONDS, FigureSource.ASSUMED, "Cassandra's default")
