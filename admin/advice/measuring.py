"""What the traffic of a keyspace is, asked of its cluster: reads only, and nothing of it is traced."""

from dataclasses import dataclass
from functools import partial
from typing import Final

from admin.advice.traffic_figures import GivenTraffic, traffic_figures
from admin.extras import import_or_name_extra
from admin.wiring import OpenCluster
from cql.statistics import Statistics, read_statistics
from cql.traffic import (
    ENQUEUED,
    MessageTraffic,
    QueueTraffic,
    Reading,
    message_traffic,
    queue_settings,
    queue_traffic,
)
from model.advice.queue_settings import Traffic
from model.catalog.mail import MESSAGE_ID
from model.errors import SchemaMismatch
from model.ports import Progress
from model.queue.configuration import QueueConfiguration
from model.schema.keyspace import Schema

WATCHED: Final = ("imapuidtable", "messageidtable", "messagev3", ENQUEUED, "deletedmailsv2")
"""The tables whose statistics are read, as far as they exist."""


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
    """Read the nodes' figures and the tables' rows.

    Raises:
        SchemaMismatch: the keyspace holds neither messages nor a queue.
        CannotReach: the cluster does not answer.
    """
    name, now = place.mail.name, place.clock.micros()
    refuse_other_keyspaces(name, live)
    progress.stage("asking the nodes")
    ask = partial(import_or_name_extra("cql.driver.nodes").ask_every_node, place.cluster)
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
    """Refuse a keyspace without mail tables.

    Raises:
        SchemaMismatch: it holds neither messages nor a queue.
    """
    if not live.table(MESSAGE_ID.name) and not live.table(ENQUEUED):
        raise SchemaMismatch(keyspace, (f"table {MESSAGE_ID.spelling}",))
