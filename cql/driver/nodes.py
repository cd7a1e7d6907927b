"""Questions that one node must answer for itself: its virtual tables, and how it went about a read.

A virtual table shows the node that is asked and no other, so a figure of the cluster is the sum of what every node
says; a node that does not answer, or refuses, is named in the answer instead of being left out.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from cql.driver.driver_errors import our_errors
from cql.driver.failures import Purpose
from cql.driver.session import EVERY_NODE, CassandraCluster
from cql.introspect import keyspace_exists
from cql.rows import normalised
from cql.statistics import NodeAnswer
from model.errors import MailmendError
from model.schema.names import checked_spelling, name_of
from model.schema.sizes import TableSize, table_sizes
from model.schema.table import Row

_SSTABLE = re.compile(
    r"(?:[Kk]ey cache hit for|[Pp]artition index (?:found|with \d+ entries found) for) sstable (\S+?),"
)
_MERGED = re.compile(r"Merged data from memtables and (\d+) sstables")
_READ_ENDS = re.compile(r"Read \d+ live rows")


def ask_every_node(cluster: CassandraCluster, text: str, values: Sequence[Any] = ()) -> list[NodeAnswer]:
    """One answer from every node that is up; `text` reads a table of the node's own."""
    nodes = cluster.nodes_up()
    try:
        bound = cluster.prepare(text).bind(values)
    except MailmendError as error:
        return [NodeAnswer(str(host.address), error=error) for host in nodes]
    asked = [(host, cluster.session.execute_async(bound, execution_profile=EVERY_NODE, host=host)) for host in nodes]
    return [_answered(str(host.address), future) for host, future in asked]


@dataclass(frozen=True, slots=True)
class CassandraNodes:
    """The nodes of a cluster, each asked for itself: gossip lags. Implements `model.ports.SchemaNodes`."""

    cluster: CassandraCluster

    def schema_versions(self) -> Mapping[str, UUID | None]:
        """The schema's version on every node that is up, by address; None where the node does not answer."""
        answers = ask_every_node(self.cluster, "SELECT schema_version FROM system.local")
        return {one.node: one.rows[0]["schema_version"] if one.rows else None for one in answers}

    def nodes_down(self) -> Sequence[str]:
        """The addresses of the nodes that are known and not up."""
        return sorted(str(host.address) for host in self.cluster.session.cluster.metadata.all_hosts() if not host.is_up)


def _answered(node: str, future: Any) -> NodeAnswer:
    try:
        with our_errors(Purpose.READ, "the tables of", node):
            return NodeAnswer(node, rows_of(future.result()))
    except MailmendError as error:
        return NodeAnswer(node, error=error)


def rows_of(answer: Any) -> list[Row]:
    """The driver's answer as rows by column name, every page of it."""
    names = answer.column_names or ()
    return [dict(zip(names, map(normalised, values), strict=True)) for values in answer]


def traced(cluster: CassandraCluster, text: str, values: Sequence[Any]) -> UUID:
    """Carry out a read with tracing; the name under which the node writes down how it went about it."""
    bound = cluster.prepare(text).bind(values)
    with our_errors(Purpose.READ, "with tracing"):
        future = cluster.session.execute_async(bound, trace=True)
        future.result()
    (trace,) = future.get_query_trace_ids()
    return UUID(str(trace))


def sstables_of(cluster: CassandraCluster, trace: UUID) -> int | None:
    """How many SSTables a traced read took rows from; None while the trace is not yet written whole."""
    steps = cluster.query("SELECT activity FROM system_traces.events WHERE session_id = ?", (trace,))
    return sstables_in(str(step["activity"]) for step in steps)


def sstables_in(steps: Iterable[str]) -> int | None:
    """The SSTables that a trace's steps name, each once; None where the read's last step is not among them."""
    said = list(steps)
    if not any(_READ_ENDS.search(step) for step in said):
        return None
    named = {found[1] for step in said if (found := _SSTABLE.search(step))}
    merged = [int(found[1]) for step in said if (found := _MERGED.search(step))]
    return max([len(named), *merged])


_RECORDED = (
    "SELECT table_name, mean_partition_size, partitions_count FROM system.size_estimates WHERE keyspace_name = ?"
)
_ON_DISK = "SELECT table_name, mebibytes FROM system_views.disk_usage WHERE keyspace_name = ? ALLOW FILTERING"


def sizes_in(cluster: CassandraCluster, keyspace: str) -> Mapping[str, TableSize]:
    """The size of each table of the keyspace that the nodes can tell of, by the table's name."""
    name = name_of(checked_spelling(keyspace, "keyspace name"))
    if not keyspace_exists(cluster, keyspace):
        return {}
    recorded, on_disk = (_rows(ask_every_node(cluster, text, (name,))) for text in (_RECORDED, _ON_DISK))
    return table_sizes(recorded, on_disk, 1 + len(cluster.query("SELECT peer FROM system.peers")))


def _rows(answers: Sequence[NodeAnswer]) -> list[Sequence[Row]]:
    """What was answered; a node that refused or kept silent is scaled over."""
    return [answer.rows for answer in answers if answer.error is None]
