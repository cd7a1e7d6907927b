"""Which schema each node has: asked of the nodes themselves, one by one, not of one about the others.

What a node says of another is gossip, and gossip lags; a schema change that is sent meanwhile would not wait for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from cql.driver.nodes import ask_every_node
from cql.driver.session import CassandraCluster


@dataclass(frozen=True, slots=True)
class SchemaNodes:
    """The nodes of a cluster. Implements `cql.migrate.ports.Nodes`."""

    cluster: CassandraCluster

    def schema_versions(self) -> Mapping[str, UUID | None]:
        """The schema's version on every node that is up, by address; None where the node does not answer."""
        answers = ask_every_node(self.cluster, "SELECT schema_version FROM system.local")
        return {one.node: one.rows[0]["schema_version"] if one.rows else None for one in answers}

    def nodes_down(self) -> Sequence[str]:
        """The addresses of the nodes that are known and not up."""
        return sorted(str(host.address) for host in self.cluster.session.cluster.metadata.all_hosts() if not host.is_up)
