"""The embedded servers: a real Cassandra on this machine, for the demo, for development and for the tests.

`local_servers(folder).up(Wishes(nodes=3), ["rabbitmq"])` is what `mailmend local up --nodes 3 --with rabbitmq` calls;
`local_cluster(folder)` is Cassandra alone.
"""

from admin.local.cluster import LocalCluster, local_cluster
from admin.local.servers import LocalServers, LocalStatus, local_servers
from admin.local.settings import LOCAL_DC, Wishes
from admin.local.status import ClusterState, ClusterStatus, NodeState, NodeStatus

__all__ = [
    "LOCAL_DC",
    "ClusterState",
    "ClusterStatus",
    "LocalCluster",
    "LocalServers",
    "LocalStatus",
    "NodeState",
    "NodeStatus",
    "Wishes",
    "local_cluster",
    "local_servers",
]
