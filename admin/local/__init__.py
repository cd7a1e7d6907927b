"""The embedded servers: a real Cassandra on this machine, for the demo, for development and for the tests.

`local_cluster(folder).up(Wishes(nodes=3))` is what `mailmend local up --nodes 3` calls.
"""

from admin.local.cluster import LocalCluster, local_cluster
from admin.local.settings import LOCAL_DC, Wishes
from admin.local.status import ClusterState, ClusterStatus, NodeState, NodeStatus

__all__ = [
    "LOCAL_DC",
    "ClusterState",
    "ClusterStatus",
    "LocalCluster",
    "NodeState",
    "NodeStatus",
    "Wishes",
    "local_cluster",
]
