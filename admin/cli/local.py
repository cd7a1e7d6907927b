"""`mailmend local`: a real Cassandra on this machine, for a first try, for development, for a test of one's own."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from admin.cli.kinds import PORT, Named
from admin.local import ClusterState, ClusterStatus, LocalCluster, NodeState, Wishes, local_cluster
from admin.local.progress import progress_for
from admin.local.releases import RELEASES
from admin.local.settings import HEAP_MIB_DEFAULT, NATIVE_PORT_DEFAULT, NODES_MAX, heap_mib
from admin.output import rows_grid, stdout_console, write_json
from model.errors import ExitCode

_HEAP: Final = Named("size", heap_mib)
_LINES: Final = tuple(release.line for release in RELEASES)

_dir_option = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where its data are. [default: the user's data folder]",
)
_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")


@click.group()
def local() -> None:
    """A real Cassandra on this machine: 127.0.0.1 only, little memory, its jars fetched once and then used offline."""


@local.command()
@click.option(
    "--nodes", type=click.IntRange(1, NODES_MAX), help="On 127.0.0.1 and the addresses after it. [default: 1]"
)
@click.option("--port", type=PORT, metavar="PORT", help=f"The port for CQL. [default: {NATIVE_PORT_DEFAULT}]")
@click.option("--heap", type=_HEAP, metavar="SIZE", help=f"Memory of a node. [default: {HEAP_MIB_DEFAULT}m]")
@click.option("--version", "line", type=click.Choice(_LINES), help=f"Which Cassandra. [default: {_LINES[0]}]")
@_dir_option
@_json_option
def up(
    nodes: int | None, port: int | None, heap: int | None, line: str | None, folder: Path | None, *, as_json: bool
) -> None:
    """Start it and wait until it answers; what runs already is left running.

    Data and settings of an earlier start are found again. Exit code 4: it could not be started.
    """
    cluster = _cluster(folder)
    _show(cluster.up(Wishes(version=line, nodes=nodes, native_port=port, heap_mib=heap)), as_json=as_json)


@local.command()
@_dir_option
@_json_option
def down(folder: Path | None, *, as_json: bool) -> None:
    """Drain and stop it; its data stay. Only processes that `local up` started are touched."""
    _show(_cluster(folder).down(), as_json=as_json)


@local.command()
@_dir_option
@_json_option
def status(folder: Path | None, *, as_json: bool) -> int:
    """Say how it is.

    Exit codes: 0 every node answers, 3 some do, 4 none does.
    """
    found = _cluster(folder).status()
    _show(found, as_json=as_json)
    return exit_code(found)


@local.command()
@_dir_option
@_json_option
def clean(folder: Path | None, *, as_json: bool) -> None:
    """Remove the data of a stopped cluster; refused while any node runs. The fetched jars stay."""
    cluster = _cluster(folder)
    removed = cluster.clean()
    where = cluster.layout.root
    _print(
        {"removed": removed, "folder": str(where)},
        lambda: f"Removed the data in {where}" if removed else f"There was nothing in {where}",
        as_json=as_json,
    )


def exit_code(found: ClusterStatus) -> int:
    """What `local status` exits with."""
    match found.state:
        case ClusterState.UP:
            return int(ExitCode.FINE)
        case ClusterState.PARTLY:
            return int(ExitCode.PARTLY_FAILED)
        case ClusterState.DOWN:
            return int(ExitCode.CANNOT_REACH)


def summary_line(found: ClusterStatus) -> str:
    """The state of all nodes in a sentence, with what to type next."""
    if found.settings is None:
        return f"There is no local cluster in {found.folder}. Start one: mailmend local up"
    match found.state:
        case ClusterState.UP:
            contact = f"--host {found.settings.hosts[0]} --port {found.settings.native_port}"
            return f"Cassandra {found.settings.release.version} is up. Use it with: {contact}"
        case ClusterState.PARTLY:
            return "Some nodes do not answer. Start what is missing: mailmend local up"
        case ClusterState.DOWN:
            return "It is down. Start it: mailmend local up"


def _cluster(folder: Path | None) -> LocalCluster:
    return local_cluster(folder, progress=progress_for(sys.stderr))


def _show(found: ClusterStatus, *, as_json: bool) -> None:
    if found.nodes and not as_json:
        columns = ("node", "address", "state", "pid")
        rows = [
            (str(node.number), f"{node.host}:{node.port}", node.state.value, str(node.pid or ""))
            for node in found.nodes
        ]
        stdout_console().print(rows_grid(f"Local cluster in {found.folder}", columns, rows))
    _print(found.as_json(), lambda: _with_dead(found), as_json=as_json)


def _with_dead(found: ClusterStatus) -> str:
    dead = [node for node in found.nodes if node.state is NodeState.DEAD]
    gone = "".join(f"Node {node.number} was started and is gone; its log: {node.log}\n" for node in dead)
    return gone + summary_line(found)


def _print(document: dict[str, object], sentence: Callable[[], str], *, as_json: bool) -> None:
    if as_json:
        write_json(document)
    else:
        stdout_console().print(sentence(), markup=False, soft_wrap=True)
