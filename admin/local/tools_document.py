"""Documents of the smaller commands: the runbooks, the versions, the demo."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from mailmend.admin.frame.document import Document, Grid, Line, Markdown, Part, Styled, Verbatim
from mailmend.admin.frame.runbooks import RunbookPage
from mailmend.admin.frame.settings import LOOPBACK
from mailmend.admin.frame.values import fields_json, plain
from mailmend.admin.local import LOCAL_DC, ClusterState, ClusterStatus, LocalStatus, ServerState
from mailmend.admin.local.demo import DemoResult
from mailmend.admin.local.doctor_judgement import PartFound, PartState
from mailmend.admin.local.doctor_service import DoctorResult
from mailmend.admin.local.server_kind import ServerStatus
from mailmend.admin.local.servers_service import CleanResult, LocalResult
from mailmend.admin.local.versions import Versions
from mailmend.admin.messages.load_service import LoadResult
from mailmend.admin.schema.export_service import ExportResult
from mailmend.model.errors import ExitCode
from mailmend.model.texts import keyspace_option
from mailmend.repair.store.loading import Loaded
from mailmend.repair.store.mail_files import FolderKind, Refused


def pages_document(found: Sequence[RunbookPage]) -> Document:
    rows = [(page.name, page.title) for page in found]
    json = {"runbooks": [fields_json(page, "name", "title") for page in found]}
    return Document(json, (Grid("Runbooks", ("name", "question"), rows), "Next: mailmend runbook show NAME"))


def page_document(page: RunbookPage) -> Document:
    return Document({"name": page.name, "title": page.title, "text": page.text}, (Markdown(page.text),))


def versions_document(found: Versions) -> Document:
    rows = [
        *((name, version) for name, version in found.packages.items() if version),
        ("Python", found.python),
        ("system", found.system),
        ("Spark connector", found.connector or "PySpark is not installed"),
        ("Java", found.java or "none was found"),
        ("server", found.server or found.unanswered or "not asked: name one with --host"),
    ]
    json = {**found.packages, **fields_json(found, "python", "system", "connector", "java", "server", "unanswered")}
    return Document(json, (Grid("Versions", ("part", "version"), rows, frozenset({"version"})),))


_STYLES = {
    PartState.OK: "green",
    PartState.TO_CHANGE: "bold yellow",
    PartState.NOT_CONFIGURED: "dim",
    PartState.CANNOT_REACH: "bold red",
}


_WORDS = {state: state.value.lower().replace("_", " ") for state in PartState} | {PartState.OK: "OK"}


def doctor_document(result: DoctorResult) -> Document:
    rows = [fields_json(part, "part", "state", "seen", "next") for part in result.parts]
    return Document({"parts": rows, "exit": int(result.exit)}, tuple(map(_part_line, result.parts)), result.exit)


def _part_line(found: PartFound) -> Line:
    state = Styled(f"{_WORDS[found.state]:<15}", _STYLES[found.state])
    says = " ".join(f"{found.seen}. Next: {found.next}".split() if found.next else found.seen.split())
    return Line((state, f"{found.part:<11}{says}"))


def load_document(result: LoadResult) -> Document:
    sums = result.sums
    keyspace = result.keyspace
    unnoted = f"Next: mailmend repair messages {keyspace_option(keyspace)}"
    said = (
        (True, f"Stored {sums.stored:,} messages ({sums.octets:,} bytes)."),
        (sums.already, f"{sums.already:,} had been stored by an earlier load that was interrupted."),
        (sums.refused, f"{sums.refused:,} were refused; each was named."),
        (sums.skipped, f"{sums.skipped:,} sub-folders or files were skipped; each was named."),
        (sums.deleted, f"{sums.deleted:,} messages that the source marks as deleted stay away."),
        (sums.doubtful, f"{sums.doubtful:,} lines may be read in two ways; each was named with its offset."),
        (result.kind is FolderKind.MBOX, _octets_line(sums)),
        (sums.lagged, f"{sums.lagged:,} lag. Next: mailmend repair lags {keyspace_option(keyspace)}"),
        (sums.unjournalled, f"{sums.unjournalled:,} of them nobody could take note of. {unnoted}"),
    )
    lines = tuple(line for wanted, line in said if wanted)
    left = [_not_stored_json(refused) for refused in result.not_stored]
    doubts = [fields_json(doubt, "offset", "line", "begins", "why") for doubt in result.doubts]
    json = {"keyspace": keyspace, **asdict(sums), "not_stored": left, "doubts": doubts}
    incomplete = sums.refused or sums.skipped or sums.unjournalled
    exit_code = ExitCode.PARTLY_FAILED if incomplete else ExitCode.FINE
    return Document(json, (*lines, *_load_grids(result)), exit=exit_code)


def _octets_line(sums: Loaded) -> str:
    others = sums.octets_already + sums.octets_left
    return (
        f"{sums.octets_read:,} bytes were read: {sums.octets:,} stored now, "
        f"{sums.octets_envelopes:,} of envelope lines, {sums.octets_separators:,} of separators, "
        f"{others:,} of messages that were not stored now."
    )


def _not_stored_json(refused: Refused) -> dict[str, str]:
    return {"name": refused.name, "reason": refused.reason.value, "why": refused.why, "next": refused.mend}


def _load_grids(result: LoadResult) -> Iterator[Grid]:
    if result.not_stored:
        rows = [(refused.name, refused.reason.value, refused.why, refused.mend) for refused in result.not_stored]
        yield Grid("Not stored", ("what", "reason", "why", "next"), rows, frozenset({"what", "why", "next"}))
    if result.doubts:
        lines = [(str(doubt.offset), "yes" if doubt.begins else "no", doubt.line, doubt.why) for doubt in result.doubts]
        yield Grid("Doubtful lines", ("byte", "begins a message", "line", "why"), lines, frozenset({"line", "why"}))


def export_document(result: ExportResult) -> Document:
    if result.text is not None:
        return Document(body=(Verbatim(result.text),))
    changed = {"stale" if result.check else "written": [str(file) for file in result.stale]}
    json = {"files": [str(file) for file in result.files], **changed, "exit": int(result.exit)}
    was = "is not up to date" if result.check else "written"
    lines = [f"{file} {was if file in result.stale else 'is up to date'}" for file in result.files]
    if result.check and result.stale:
        lines.append("Next: the same command without --check")
    return Document(json, lines, result.exit)


def status_document(result: LocalResult) -> Document:
    found = result.status
    parts: list[Part] = []
    if rows := _rows(found):
        parts.append(Grid(f"Local servers in {found.cluster.folder}", ("server", "address", "state", "pid"), rows))
    return Document(status_json(found), (*parts, *_sentences(found)), result.exit)


def status_json(found: LocalStatus) -> dict[str, Any]:
    cluster = found.cluster
    settings = found.cluster.settings
    return {
        "state": cluster.state.value,
        "version": settings.release.version if settings else None,
        "local_dc": LOCAL_DC,
        "folder": str(cluster.folder),
        "heap_mib": settings.heap_mib if settings else None,
        "nodes": plain(cluster.nodes),
        "services": plain(found.services),
    }


def clean_document(result: CleanResult) -> Document:
    said = f"Removed the data in {result.folder}" if result.removed else f"There was nothing in {result.folder}"
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


def demo_document(found: DemoResult) -> Document:
    if found.port is None:
        return Document(None)
    running = f"It still runs: mailmend check --host {LOOPBACK} --port {found.port} --engine local"
    return Document(None, hints=("", running, f"Remove it:     mailmend local down --dir {found.folder}"))
