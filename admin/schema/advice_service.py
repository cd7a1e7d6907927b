"""What queue and message tables should be set to, from traffic, statistics and a trial."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import open_cluster
from mailmend.admin.frame.settings import LOOPBACK, ConnectionSettings
from mailmend.admin.schema.advising import Advised, OpenNode, TrialWanted
from mailmend.admin.schema.advising import advise as advise_on
from mailmend.admin.schema.measuring import GivenTraffic
from mailmend.admin.schema.trial import READS, WAVES, given_node, started_node
from mailmend.model.errors import UnsafeRequest

ROWS: Final = 20_000
_HERE: Final = (LOOPBACK, "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviseRequest:
    """What is known of the traffic, and how a trial is run."""

    connection: ConnectionSettings
    given: GivenTraffic = field(default_factory=GivenTraffic)
    trial: bool = True
    sample: int = ROWS
    waves: int = WAVES
    reads: int = READS
    folder: Path | None = None
    trial_at: tuple[str, int] | None = None


def advise(request: AdviseRequest, caller: Caller) -> Advised:
    """Measure the traffic and derive advice, after a trial where one is wanted; the advised cluster is only read.

    Raises:
        UnsafeRequest: the trial was to run on the cluster that is advised on.
    """
    address = request.trial_at
    connection = request.connection
    host, port = address or ("", 0)
    if address and host not in _HERE and host in connection.hosts and port == connection.port:
        raise UnsafeRequest(
            f"--trial-at {host}:{port} is the cluster that is advised on; a trial writes to it",
            mend="Leave --trial-at out, and a Cassandra is started on this machine; or name another one.",
        )
    node: OpenNode = partial(given_node, *address) if address else partial(started_node, request.folder)
    trial = TrialWanted(request.sample, node, request.waves, request.reads) if request.trial else None
    with open_cluster(connection) as opened:
        return advise_on(opened, request.given, trial, caller.progress)
