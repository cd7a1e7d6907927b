"""A real Cassandra on this machine, and optionally the other servers of a mail queue."""

from dataclasses import dataclass
from pathlib import Path

from mailmend.admin.frame.caller import Caller
from mailmend.admin.local import ClusterRequest, ClusterState, ClusterStatus, LocalServers, LocalStatus, local_servers
from mailmend.model.errors import ExitCode


@dataclass(frozen=True, slots=True, kw_only=True)
class UpRequest:
    """What is started; None: as before, or the default."""

    folder: Path | None = None
    nodes: int | None = None
    port: int | None = None
    heap: int | None = None
    line: str | None = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LocalResult:
    """The servers' status, and the exit code that it means."""

    status: LocalStatus
    exit: ExitCode = ExitCode.FINE


@dataclass(frozen=True, slots=True)
class CleanResult:
    """Whether data were removed, and where."""

    removed: bool
    folder: Path


def up(request: UpRequest, caller: Caller) -> LocalResult:
    """Start what does not run yet, and wait until it answers.

    Raises:
        LocalServerError: it could not be started.
    """
    wanted = ClusterRequest(version=request.line, nodes=request.nodes, native_port=request.port, heap_mib=request.heap)
    return LocalResult(_servers(request.folder, caller).up(wanted, request.names or ()))


def down(folder: Path | None, caller: Caller) -> LocalResult:
    """Stop all servers; the data stay."""
    return LocalResult(_servers(folder, caller).down())


def status(folder: Path | None, caller: Caller) -> LocalResult:
    found = _servers(folder, caller).status()
    return LocalResult(found, exit_code(found))


def clean(folder: Path | None, caller: Caller) -> CleanResult:
    """Remove the data of stopped servers; refused while any of them runs."""
    servers = _servers(folder, caller)
    return CleanResult(servers.clean(), servers.cluster.layout.root)


def exit_code(found: ClusterStatus | LocalStatus) -> ExitCode:
    return {
        ClusterState.UP: ExitCode.FINE,
        ClusterState.PARTLY: ExitCode.PARTLY_FAILED,
        ClusterState.DOWN: ExitCode.CANNOT_REACH,
    }[found.state]


def _servers(folder: Path | None, caller: Caller) -> LocalServers:
    return local_servers(folder, progress=caller.progress)
