"""Local servers as documents: a table, a sentence about each, and what to type next."""

from admin.local import ClusterState, ClusterStatus, LocalStatus, ServerState
from admin.local.server_kind import ServerStatus
from admin.present.document import Document, Part, Table
from admin.services.local_servers import CleanResult, LocalResult


def status_document(result: LocalResult) -> Document:
    found = result.status
    parts: list[Part] = []
    if rows := _rows(found):
        parts.append(Table(f"Local servers in {found.cluster.folder}", ("server", "address", "state", "pid"), rows))
    return Document(found.as_json(), (*parts, *_sentences(found)), result.exit)


def clean_document(result: CleanResult) -> Document:
    said = f"Removed the data in {result.folder}" if result.removed else f"There was nothing in {result.folder}"
    return Document({"removed": result.removed, "folder": str(result.folder)}, (said,))


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
    """Network addresses only; contacts that are files are in the server's sentence."""
    return " ".join(where for where in found.contacts.values() if "://" in where)


def _sentences(found: LocalStatus) -> list[str]:
    dead = [node for node in found.cluster.nodes if node.state is ServerState.DEAD]
    gone = [f"Node {node.number} was started and is gone; its log: {node.log}" for node in dead]
    return [*gone, summary_line(found.cluster), *map(service_line, found.services)]
