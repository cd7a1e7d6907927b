"""`mailmend schema export`: the schema as CQL, a page and a drawing; from the model, or of a live keyspace."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import open_cluster
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Verbatim
from mailmend.admin.frame.options import FILE, connection_where, flag, option
from mailmend.admin.frame.settings import ConnectionSettings, reason_of
from mailmend.admin.schema.export_drawing import svg
from mailmend.admin.schema.export_page import Page, page_text
from mailmend.admin.schema.export_sources import declared, found
from mailmend.cql.export import live_file_text, schema_file_text
from mailmend.cql.introspect import beside_model, live_schema
from mailmend.cql.replication import replication_from
from mailmend.model.errors import ExitCode, WrongUse

FOLDER: Final = Path("docs/schema")
STDOUT: Final = Path("-")
FILES: Final[Mapping[str, str]] = {"cql": "schema.cql", "page": "schema.md", "drawing": "schema.svg"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What is written, and where."""

    connection: ConnectionSettings
    folder: Path = FOLDER
    kinds: tuple[str, ...] = ()
    live: bool = False
    check: bool = False


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The files, and which of them were out of date; or the only text, where it is for stdout."""

    files: tuple[Path, ...] = ()
    stale: tuple[Path, ...] = ()
    check: bool = False
    text: str | None = None

    @property
    def exit(self) -> ExitCode:
        return ExitCode.DRIFT if self.check and self.stale else ExitCode.FINE


def export(request: ExportRequest, _: Caller) -> ExportResult:
    """Write the schema for people, or compare with the files that are there.

    Raises:
        WrongUse: several texts for stdout; a file that cannot be read or written.
    """
    folder = request.folder
    wanted = tuple(kind for kind in FILES if kind in (request.kinds or FILES))
    if folder == STDOUT and (len(wanted) != 1 or request.check):
        raise WrongUse("stdout takes one file, as it is", mend="Name it with --only, without --check.")
    drawn = "drawing" in wanted or (folder / FILES["drawing"]).exists()
    beside = FILES["drawing"] if drawn else ""
    texts = _live(request.connection, beside) if request.live else _declared(request.connection.keyspace, beside)
    if folder == STDOUT:
        return ExportResult(text=texts[wanted[0]])
    files = {folder / FILES[kind]: texts[kind] for kind in wanted}
    stale = tuple(file for file, text in files.items() if _current(file) != text)
    if not request.check:
        for file in stale:
            _write(file, files[file])
    return ExportResult(tuple(files), stale, request.check)


def _declared(keyspace: str, drawing: str) -> dict[str, str]:
    made = "Made from the model by `mailmend schema export`: change the catalog, not this page."
    return _texts(schema_file_text(keyspace), declared(keyspace, made, drawing))


def _live(connection: ConnectionSettings, drawing: str) -> dict[str, str]:
    with open_cluster(connection) as opened:
        cluster = opened.cluster
        name = opened.mail.name
        replication = replication_from(cluster.replication_of(name))
        schema = live_schema(cluster, name)
        ledger = live_schema(cluster, connection.ledger_keyspace)
        text = live_file_text(name, schema, replication, cluster.release_version, beside_model(cluster, name))
    made = "Read from the cluster by `mailmend schema export --live`."
    return _texts(text, found(name, schema, ledger, made, drawing))


def _texts(cql: str, page: Page) -> dict[str, str]:
    return {"cql": cql, "page": page_text(page), "drawing": svg(page.families)}


def _current(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUse(f"{file} cannot be read: {reason_of(error)}", mend="Name another folder with --dir.") from error


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise WrongUse(f"{file} cannot be written: {reason_of(error)}", mend="Name another with --dir.") from error


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


EXPORT: Final = Command(
    name="export",
    summary="The schema as CQL, as a page and as a drawing.",
    about="Asks no cluster unless --live is given.",
    service="mailmend.admin.schema.export:export",
    present="mailmend.admin.schema.export:export_document",
    options=(
        option(
            "--dir",
            "Folder for the files: - is stdout, for one of them.",
            "folder",
            type=FILE,
            default=FOLDER,
            metavar="DIR",
        ),
        option("--only", "Only these: may be given again.", "kinds", type=click.Choice(tuple(FILES)), multiple=True),
        flag("--live", "Look at the live keyspace: in place of the model."),
        flag("--check", "Compare only: write nothing, and say which files are not up to date."),
    ),
    shared=(connection_where(lambda others: bool(others["live"])),),
    examples="""
        mailmend schema export                                    docs/schema/schema.cql, schema.md and schema.svg
        mailmend schema export --live --keyspace apache_james     what is really there, in the model's words
        mailmend schema export --only cql --dir -                 the CQL alone, on stdout
        mailmend schema export --check --dir docs --only page     is the page in the repository up to date?""",
    exits="0 fine, 1 --check found a file that is out of date, 2 wrong use, 4 (--live) the cluster cannot be reached.",
)
