"""Local servers: a real Cassandra on this machine, and RabbitMQ, Pulsar, S3 with it, for demo, development and tests.

`local_servers(folder).up(ClusterRequest(nodes=3), ["rabbitmq"])` is what `mailmend local up --nodes 3 --with rabbitmq`
calls; `local_cluster(folder)` is Cassandra alone.
"""

from mailmend.admin.local.cassandra_node import LOCAL_DC, ClusterRequest
from mailmend.admin.local.server import ServerState
from mailmend.admin.local.servers import (
    ClusterState,
    ClusterStatus,
    LocalCluster,
    LocalServers,
    LocalStatus,
    NodeStatus,
    local_cluster,
    local_servers,
)

__all__ = [
    "LOCAL_DC",
    "ClusterRequest",
    "ClusterState",
    "ClusterStatus",
    "LocalCluster",
    "LocalServers",
    "LocalStatus",
    "NodeStatus",
    "ServerState",
    "local_cluster",
    "local_servers",
]
