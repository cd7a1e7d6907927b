"""`mailmend local`: a real Cassandra on this machine, for a first try, for development, for a test of one's own.

With it, where wished, the other servers of a mail queue.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from admin.cli.kinds import PORT, Named
from admin.local import (
    ClusterRequest,
    ClusterState,
    ClusterStatus,
    LocalServers,
    LocalStatus,
    ServerState,
    local_servers,
)
from admin.local.cassandra_settings import HEAP_MIB_DEFAULT, NATIVE_PORT_DEFAULT, NODES_MAX, RELEASES, heap_mib
from admin.local.progress import progress_for
from admin.local.server_kind import ServerStatus
from admin.local.servers import known_names, parse_names
from admin.present.presenter import rows_grid, stdout_console, write_json
from model.errors import ExitCode

_HEAP: Final = Named("size", heap_mib)
_NAMES: Final = Named("names", parse_names)
_LINES: Final = tuple(RELEASES)

_dir_option = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where its data are. [default: the user's data folder]",
)
_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")


_EPILOG: Final = """\b
Examples:
  mailmend local up                      one node of Cassandra
  mailmend local up --with rabbitmq,s3   and what a mail queue needs besides
  mailmend local status --json           how they are, for a script
  mailmend local down                    stop all of them; the data stay"""


@click.group(epilog=_EPILOG)
def local() -> None:
    """A real Cassandra on this machine, and beside it, where wished, RabbitMQ and a store that speaks S3.

    127.0.0.1 only, little memory; what they are made of is fetched once and then used offline.
    """


@local.command()
@click.option(
    "--nodes", type=click.IntRange(1, NODES_MAX), help="On 127.0.0.1 and the addresses after it. [default: 1]"
)
@click.option("--port", type=PORT, metavar="PORT", help=f"The port for CQL. [default: {NATIVE_PORT_DEFAULT}]")
@click.option("--heap", type=_HEAP, metavar="SIZE", help=f"Memory of a node. [default: {HEAP_MIB_DEFAULT}m]")
@click.option("--version", "line", type=click.Choice(_LINES), help=f"Which Cassandra. [default: {_LINES[0]}]")
@click.option(
    "--with",
    "names",
    type=_NAMES,
    metavar="NAMES",
    help=f"Servers to start beside it, with commas: {known_names()}. RabbitMQ's user is guest, its password too.",
)
@_dir_option
@_json_option
def up(
    *,
    nodes: int | None,
    port: int | None,
    heap: int | None,
    line: str | None,
    names: tuple[str, ...] | None,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Start it and wait until it answers; what runs already is left running.

    Data and settings of an earlier start are found again. Exit code 4: it could not be started.
    """
    wishes = ClusterRequest(version=line, nodes=nodes, native_port=port, heap_mib=heap)
    _show(_servers(folder).up(wishes, names or ()), as_json=as_json)


@local.command()
@_dir_option
@_json_option
def down(folder: Path | None, *, as_json: bool) -> None:
    """Stop it and all beside it; the data stay. Only processes that `local up` started are touched."""
    _show(_servers(folder).down(), as_json=as_json)


@local.command()
@_dir_option
@_json_option
def status(folder: Path | None, *, as_json: bool) -> int:
    """Say how it is, and every server beside it that was started.

    Exit codes: 0 every node answers, 3 some do, 4 none does. A server beside them counts as a node until it is stopped.
    """
    found = _servers(folder).status()
    _show(found, as_json=as_json)
    return exit_code(found)


@local.command()
@_dir_option
@_json_option
def clean(folder: Path | None, *, as_json: bool) -> None:
    """Remove the data of stopped servers; refused while any of them runs. What was fetched stays."""
    servers = _servers(folder)
    removed = servers.clean()
    where = servers.cluster.layout.root
    _print(
        {"removed": removed, "folder": str(where)},
        lambda: f"Removed the data in {where}" if removed else f"There was nothing in {where}",
        as_json=as_json,
    )


def exit_code(found: ClusterStatus | LocalStatus) -> int:
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


def service_line(found: ServerStatus) -> str:
    """The state of a server beside the cluster in a sentence."""
    match found.state:
        case ServerState.UP:
            return f"{found.title} is up: " + ", ".join(f"{name} {where}" for name, where in found.contacts.items())
        case ServerState.SILENT:
            return f"{found.title} runs and does not answer yet; its log: {found.log}"
        case ServerState.DEAD:
            again = f"mailmend local up --with {found.name}"
            return f"{found.title} was started and is gone; its log: {found.log}. Start it: {again}"
        case ServerState.STOPPED:
            return f"{found.title} is stopped. Start it: mailmend local up --with {found.name}"


def _servers(folder: Path | None) -> LocalServers:
    return local_servers(folder, progress=progress_for(sys.stderr))


def _show(found: LocalStatus, *, as_json: bool) -> None:
    if rows := _rows(found):
        columns = ("server", "address", "state", "pid")
        if not as_json:
            stdout_console().print(rows_grid(f"Local servers in {found.cluster.folder}", columns, rows))
    _print(found.as_json(), lambda: "\n".join(_sentences(found)), as_json=as_json)


def _rows(found: LocalStatus) -> list[tuple[str, ...]]:
    nodes = [
        (f"Cassandra {node.number}", f"{node.host}:{node.port}", node.state.value, str(node.pid or ""))
        for node in found.cluster.nodes
    ]
    services = [
        (service.title, _addresses(service), service.state.value, " ".join(map(str, service.pids)))
        for service in found.services
    ]
    return [*nodes, *services]


def _addresses(found: ServerStatus) -> str:
    """Where it is reached; files that are told besides are in its sentence."""
    return " ".join(where for where in found.contacts.values() if "://" in where)


def _sentences(found: LocalStatus) -> list[str]:
    dead = [node for node in found.cluster.nodes if node.state is ServerState.DEAD]
    gone = [f"Node {node.number} was started and is gone; its log: {node.log}" for node in dead]
    return [*gone, summary_line(found.cluster), *map(service_line, found.services)]


def _print(document: dict[str, object], sentence: Callable[[], str], *, as_json: bool) -> None:
    if as_json:
        write_json(document)
    else:
        stdout_console().print(sentence(), markup=False, soft_wrap=True)
