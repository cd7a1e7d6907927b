"""How big the tables of a keyspace are, from what every node records about its own share.

No table is read for it: the figures are there already. Who may not read them gets no figure, never an error, for a plan
is right without them.
"""

from collections.abc import Mapping, Sequence

from cql.driver.nodes import ask_every_node
from cql.driver.session import CassandraCluster
from cql.introspect import keyspace_exists
from cql.statistics import NodeAnswer
from model.schema.names import checked_spelling, name_of
from model.schema.sizes import TableSize, table_sizes
from model.schema.table import Row

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
