"""A Cassandra for one trial: started on this machine in a folder that nobody else may read, gone with the trial.

The folder holds keys, flags and sizes of real mail, so whatever ends the trial removes it; what a killed one left is
removed by the next.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from admin.advice.trial import TrialNode
from admin.extras import import_or_name_extra
from admin.local import ClusterRequest, local_cluster
from admin.local.cassandra_settings import hosts_of
from admin.local.ports import free_port
from admin.local.throwaway import throwaway_folder
from admin.settings import LOOPBACK
from cql.driver.contact import Contact

HEAP_MIB: Final = 512
PREFIX: Final = "mailmend-trial-"
# Nothing of it must outlive a crash, and a node of a short life is up sooner with the first compiler only.
_SHORT_LIFE: Final = ClusterRequest(
    heap_mib=HEAP_MIB, properties={"cassandra.unsafesystem": "true"}, java_options=("-XX:TieredStopAtLevel=1",)
)


@contextmanager
def started_node(parent: Path | None = None) -> Iterator[TrialNode]:
    """Start a node below `parent` (the system's temporary folder when None); it ends with the block.

    Raises:
        JavaMissing: no Java that runs Cassandra.
        LocalServerError: it did not start.
    """
    with throwaway_folder(PREFIX, parent) as folder:
        cluster = local_cluster(folder / "cluster")
        port = free_port(hosts_of(1))
        cluster.up(replace(_SHORT_LIFE, native_port=port))
        with _connected(LOOPBACK, port) as session:
            yield TrialNode(session, cluster.layout.node(1).data / "sstables")


@contextmanager
def given_node(host: str, port: int) -> Iterator[TrialNode]:
    """Use a Cassandra that runs already and may be written to.

    Raises:
        CannotReach: no node answers.
    """
    with _connected(host, port) as session:
        yield TrialNode(session)


def _connected(host: str, port: int) -> Any:
    return import_or_name_extra("cql.driver.session").connect(Contact(hosts=(host,), port=port))
