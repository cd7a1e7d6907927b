"""Questions to single nodes: their virtual tables, and the trace of a read.

A virtual table shows only the node that is asked, so a cluster's figure is the sum over all nodes; the answer names
the nodes that do not answer or refuse.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any
from uuid import UUID

from mailmend.cql.driver.contact import Purpose
from mailmend.cql.driver.driver_errors import our_errors
from mailmend.cql.driver.session import EVERY_NODE, CassandraCluster
from mailmend.cql.introspect import keyspace_exists
from mailmend.cql.rows import normalised
from mailmend.cql.statistics import SIZE_ESTIMATES, NodeAnswer
from mailmend.model.errors import MailmendError
from mailmend.model.names import keyspace_spelling, name_of
from mailmend.model.sizes import TableSize, table_sizes
from mailmend.model.table import Row

_SSTABLE = re.compile(
    r"(?:[Kk]ey cache hit for|[Pp]artition index (?:found|with \d+ entries found) for) sstable (\S+?),"
)
_MERGED = re.compile(r"Merged data from memtables and (\d+) sstables")
_READ_ENDS = re.compile(r"Read \d+ live rows")


def ask_every_node(cluster: CassandraCluster, text: str, values: Sequence[Any] = ()) -> list[NodeAnswer]:
    """The answer of each node that is up; `text` reads a table that is local to a node."""
    nodes = cluster.nodes_up()
    try:
        bound = cluster.prepare(text).bind(values)
    except MailmendError as error:
        return [NodeAnswer(str(host.address), error=error) for host in nodes]
    asked = []
    for host in nodes:
        future = cluster.session.execute_async(bound, execution_profile=EVERY_NODE, host=host)
        asked.append((str(host.address), future))
    return [_answered(node, future) for node, future in asked]


@dataclass(frozen=True, slots=True)
class CassandraNodes:
    """The nodes of a cluster, each asked directly, since gossip lags. Implements `SchemaNodes`."""

    cluster: CassandraCluster

    def schema_versions(self) -> Mapping[str, UUID | None]:
        return self._of_each("SELECT schema_version FROM system.local")

    def releases(self) -> Mapping[str, str | None]:
        """The release (server version) of every node that is up, by address; None where the node does not answer."""
        return self._of_each("SELECT release_version FROM system.local")

    def _of_each(self, text: str) -> Mapping[str, Any]:
        """The one value that each node has."""
        values: dict[str, Any] = {}
        for answer in ask_every_node(self.cluster, text):
            values[answer.node] = None
            if answer.rows:
                values[answer.node] = next(iter(answer.rows[0].values()))
        return values

    def nodes_down(self) -> Sequence[str]:
        down = []
        for host in self.cluster.session.cluster.metadata.all_hosts():
            if not host.is_up:
                down.append(str(host.address))
        return sorted(down)


def _answered(node: str, future: Any) -> NodeAnswer:
    try:
        with our_errors(Purpose.READ, "the tables of", node):
            return NodeAnswer(node, rows_of(future.result()))
    except MailmendError as error:
        return NodeAnswer(node, error=error)


def rows_of(answer: Any) -> list[Row]:
    names = answer.column_names or ()
    return [dict(zip(names, map(normalised, values), strict=True)) for values in answer]


def traced(cluster: CassandraCluster, text: str, values: Sequence[Any]) -> UUID:
    """Carry out a read with tracing; returns the trace's session id."""
    bound = cluster.prepare(text).bind(values)
    with our_errors(Purpose.READ, "with tracing"):
        future = cluster.session.execute_async(bound, trace=True)
        future.result()
    (trace,) = future.get_query_trace_ids()
    return UUID(str(trace))


def sstables_of(cluster: CassandraCluster, trace: UUID) -> int | None:
    """How many SSTables a traced read took rows from; None while the trace is incomplete."""
    steps = cluster.query("SELECT activity FROM system_traces.events WHERE session_id = ?", (trace,))
    return sstables_in(str(step["activity"]) for step in steps)


def sstables_in(steps: Iterable[str]) -> int | None:
    """The number of distinct SSTables in a trace's steps; None where the read's last step is missing."""
    ended = False
    named = set()
    merged = []
    for step in steps:
        if _READ_ENDS.search(step):
            ended = True
        if found := _SSTABLE.search(step):
            named.add(found[1])
        if found := _MERGED.search(step):
            merged.append(int(found[1]))
    if not ended:
        return None
    return max([len(named), *merged])


_COMPACTING = "SELECT pending_tasks FROM system_views.thread_pools WHERE name = 'CompactionExecutor'"


def pending_compactions(cluster: CassandraCluster) -> int | None:
    """The pending compactions, without running ones, of the node with the most; None before Cassandra 4.0."""
    rows = chain.from_iterable(_rows(ask_every_node(cluster, _COMPACTING)))
    return max((int(row["pending_tasks"]) for row in rows), default=None)


_ON_DISK = "SELECT table_name, mebibytes FROM system_views.disk_usage WHERE keyspace_name = ? ALLOW FILTERING"


def sizes_in(cluster: CassandraCluster, keyspace: str) -> Mapping[str, TableSize]:
    """Table sizes by table name, as far as the nodes report them; empty for an unknown keyspace."""
    name = name_of(keyspace_spelling(keyspace))
    if not keyspace_exists(cluster, keyspace):
        return {}
    recorded = _rows(ask_every_node(cluster, SIZE_ESTIMATES, (name,)))
    on_disk = _rows(ask_every_node(cluster, _ON_DISK, (name,)))
    return table_sizes(recorded, on_disk, 1 + len(cluster.query("SELECT peer FROM system.peers")))


def _rows(answers: Sequence[NodeAnswer]) -> list[Sequence[Row]]:
    """The rows of the nodes that answered; the others are estimated by scaling."""
    return [answer.rows for answer in answers if answer.error is None]
