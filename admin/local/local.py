"""`mailmend local`: a real Cassandra on this machine, and optionally the other servers of a mail queue."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.command import Command, CommandGroup
from mailmend.admin.frame.document import Document, Grid, Part, Verbatim
from mailmend.admin.frame.kinds import PORT, ParsedValue
from mailmend.admin.frame.options import option
from mailmend.admin.frame.values import plain
from mailmend.admin.local import (
    LOCAL_DC,
    ClusterRequest,
    ClusterState,
    ClusterStatus,
    LocalServers,
    LocalStatus,
    ServerState,
    local_servers,
)
from mailmend.admin.local.cassandra_node import HEAP_MIB_DEFAULT, NATIVE_PORT_DEFAULT, NODES_MAX, RELEASES, heap_mib
from mailmend.admin.local.exports import export_lines, exports_of
from mailmend.admin.local.server import ServerStatus
from mailmend.admin.local.servers import known_names, known_ports, parse_names, parse_ports
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
    ports: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class CleanResult:
    """Whether data were removed, and where."""

    removed: bool
    folder: Path


def up(request: UpRequest, caller: Caller) -> LocalStatus:
    """Start what does not run yet, and wait until it answers.

    Raises:
        LocalServerError: it could not be started.
    """
    wanted = ClusterRequest(version=request.line, nodes=request.nodes, native_port=request.port, heap_mib=request.heap)
    return _servers(request.folder, caller).up(wanted, request.names or (), request.ports)


def down(folder: Path | None, caller: Caller) -> LocalStatus:
    """Stop all servers; the data stay."""
    return _servers(folder, caller).down()


def status(folder: Path | None, caller: Caller) -> LocalStatus:
    return _servers(folder, caller).status()


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


def status_document(found: LocalStatus) -> Document:
    """The status, with the exit code that it means."""
    return replace(servers_document(found), exit=exit_code(found))


def servers_document(found: LocalStatus) -> Document:
    """The status after a start or a stop, which did what was asked."""
    parts: list[Part] = []
    if rows := _rows(found):
        parts.append(Grid(f"Local servers in {found.cluster.folder}", ("server", "address", "state", "pid"), rows))
    return Document(status_json(found), (*parts, *_sentences(found)))


def up_document(found: LocalStatus) -> Document:
    """The status after a start, and the environment in which commands reach the servers."""
    document = servers_document(found)
    variables = exports_of(found)
    body = document.body
    if variables:
        lines = Verbatim(export_lines(variables))
        body = (*body, "After these lines the commands of a shell find the servers:", lines)
    return replace(document, json={**status_json(found), "environment": variables}, body=body)


def status_json(found: LocalStatus) -> dict[str, Any]:
    cluster = found.cluster
    settings = found.cluster.settings
    return {
        "state": cluster.state.value,
        "version": settings and settings.release.version,
        "local_dc": LOCAL_DC,
        "folder": str(cluster.folder),
        "heap_mib": settings and settings.heap_mib,
        "nodes": plain(cluster.nodes),
        "services": plain(found.services),
    }


def clean_document(result: CleanResult) -> Document:
    said = f"There was nothing in {result.folder}"
    if result.removed:
        said = f"Removed the data in {result.folder}"
    return Document({"removed": result.removed, "folder": str(result.folder)}, (said,))


def summary_line(found: ClusterStatus) -> str:
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
    match found.state:
        case ServerState.UP:
            contacts = ", ".join(f"{name} {where}" for name, where in found.contacts.items())
            return f"{found.title} is up: {contacts}"
        case ServerState.SILENT:
            return f"{found.title} runs and does not answer yet; its log: {found.log}"
        case ServerState.DEAD:
            again = f"mailmend local up --with {found.name}"
            return f"{found.title} was started and is gone; its log: {found.log}. Start it: {again}"
        case ServerState.STOPPED:
            return f"{found.title} is stopped. Start it: mailmend local up --with {found.name}"


def _rows(found: LocalStatus) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for node in found.cluster.nodes:
        address = f"{node.host}:{node.port}"
        rows.append((f"Cassandra {node.number}", address, node.state.value, str(node.pid or "")))
    for service in found.services:
        pids = " ".join(map(str, service.pids))
        rows.append((service.title, _addresses(service), service.state.value, pids))
    return rows


def _addresses(found: ServerStatus) -> str:
    """Network addresses only; contacts that are files are in the server's sentence."""
    return " ".join(where for where in found.contacts.values() if "://" in where)


def _sentences(found: LocalStatus) -> list[str]:
    sentences = []
    for node in found.cluster.nodes:
        if node.state is ServerState.DEAD:
            sentences.append(f"Node {node.number} was started and is gone; its log: {node.log}")
    return [*sentences, summary_line(found.cluster), *map(service_line, found.services)]


_LINES: Final = tuple(RELEASES)
_FOLDER: Final = option(
    "--dir",
    "Folder for the files: data and logs of the servers. [default: the user's data folder]",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
)
_SERVERS: Final = "mailmend.admin.local.local:servers_document"

LOCAL: Final = CommandGroup(
    name="local",
    summary="A real Cassandra on this machine.",
    about="""On request also RabbitMQ, Pulsar and a store that speaks S3. The servers listen on 127.0.0.1 only
    and use little memory. Their programs are fetched once and then used offline.""",
    commands=(
        Command(
            name="up",
            summary="Start it and wait until it answers.",
            about="""What runs already is left running. Data and settings of an earlier start are
            found again. Before anything is started, all ports are checked: an error names each port
            that another program has. At the end the command prints the environment in which other
            commands find the servers. Exit code 4: it could not be started.""",
            service="mailmend.admin.local.local:up",
            present="mailmend.admin.local.local:up_document",
            options=(
                option(
                    "--nodes",
                    "How many nodes of Cassandra, on 127.0.0.1 and the addresses after it. [default: 1]",
                    type=click.IntRange(1, NODES_MAX),
                ),
                option("--port", f"Port for CQL. [default: {NATIVE_PORT_DEFAULT}]", type=PORT, metavar="PORT"),
                option(
                    "--ports",
                    "Ports of the other parts, separated by commas, like amqp=5673,s3=9001. "
                    f"Names: {known_ports()}. "
                    "[default: as before; else the usual one, or a free one where that is taken]",
                    type=ParsedValue("ports", parse_ports),
                    metavar="NAME=PORT",
                ),
                option(
                    "--heap",
                    f"Java heap of each node. [default: {HEAP_MIB_DEFAULT}m]",
                    type=ParsedValue("size", heap_mib),
                    metavar="SIZE",
                ),
                option(
                    "--server-version",
                    f"Version of Cassandra. [default: {_LINES[0]}]",
                    "line",
                    type=click.Choice(_LINES),
                ),
                option(
                    "--with",
                    f"Further servers to start, separated by commas: {known_names()}. RabbitMQ's user is guest, "
                    "with the password guest.",
                    "names",
                    type=ParsedValue("names", parse_names),
                    metavar="NAMES",
                ),
                _FOLDER,
            ),
        ),
        Command(
            name="down",
            summary="Stop Cassandra and the other servers; the data stay.",
            about="Only processes that `local up` started are touched.",
            service="mailmend.admin.local.local:down",
            present=_SERVERS,
            options=(_FOLDER,),
        ),
        Command(
            name="status",
            summary="Show the state of Cassandra and of the other servers.",
            about="Every server that was started here is shown.",
            service="mailmend.admin.local.local:status",
            present="mailmend.admin.local.local:status_document",
            options=(_FOLDER,),
            exits="0 every node answers, 3 some do, 4 none does. Each other server counts as a node until it is "
            "stopped.",
        ),
        Command(
            name="clean",
            summary="Remove the data of stopped servers.",
            about="Refused while any of them runs. What was fetched stays.",
            service="mailmend.admin.local.local:clean",
            present="mailmend.admin.local.local:clean_document",
            options=(_FOLDER,),
        ),
    ),
    examples="""
        mailmend local up                      one node of Cassandra
        mailmend local up --with rabbitmq,s3   and what a mail queue needs in addition
        mailmend local up --with rabbitmq --port 9043 --ports amqp=5673,management=15673
        eval "$(mailmend local up | grep ^export)"   for the commands in this shell
        mailmend local status --json           how they are, for a script
        mailmend local down                    stop all of them; the data stay
        mailmend local clean                   and go with this""",
)
