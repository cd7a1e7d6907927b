"""How a local cluster is: one state per node, one for all of them, and the same as plain values for `--json`."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from admin.local.settings import LOCAL_DC, Settings


class NodeState(Enum):
    """How one node is."""

    UP = "up"  # it answers CQL
    SILENT = "silent"  # its process runs and does not answer: it is starting, or stuck
    DEAD = "dead"  # it was started and its process is gone: killed, or it fell over
    STOPPED = "stopped"  # it was stopped, or never started


class ClusterState(Enum):
    """How all of the nodes are together."""

    UP = "up"
    PARTLY = "partly"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node: where it is to be reached, how it is, where its log lies."""

    number: int
    host: str
    port: int
    state: NodeState
    pid: int | None
    log: Path


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """All of a local cluster."""

    folder: Path
    settings: Settings | None
    nodes: tuple[NodeStatus, ...]

    @property
    def state(self) -> ClusterState:
        """Up when every node answers, down when no process runs, partly in between."""
        states = {node.state for node in self.nodes}
        if states == {NodeState.UP}:
            return ClusterState.UP
        return ClusterState.PARTLY if states & {NodeState.UP, NodeState.SILENT} else ClusterState.DOWN

    def as_json(self) -> dict[str, Any]:
        """The status as `--json` prints it; the names are a contract with scripts."""
        return {
            "state": self.state.value,
            "version": self.settings.release.version if self.settings else None,
            "local_dc": LOCAL_DC,
            "folder": str(self.folder),
            "heap_mib": self.settings.heap_mib if self.settings else None,
            "nodes": [
                {
                    "number": node.number,
                    "host": node.host,
                    "port": node.port,
                    "state": node.state.value,
                    "pid": node.pid,
                    "log": str(node.log),
                }
                for node in self.nodes
            ],
        }
