"""`mailmend schema export`: the schema as CQL, as a page and as a drawing; from the model, or of a live keyspace."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from admin.cli.options import connection_options_where
from admin.export.drawing import svg
from admin.export.page import Page, page_text
from admin.export.sources import declared, found
from admin.present.presenter import stdout_console, write_json
from admin.settings import ConnectionSettings, reason_of
from admin.wiring import open_place
from cql.export import live_file_text
from cql.introspect import live_schema
from cql.render import schema_file_text
from cql.replication import replication_from
from model.errors import ExitCode, WrongUse

FOLDER: Final = Path("docs/schema")
FILES: Final[Mapping[str, str]] = {"cql": "schema.cql", "page": "schema.md", "drawing": "schema.svg"}

_EPILOG: Final = """\b
Examples:
  mailmend schema export                                    docs/schema/schema.cql, schema.md and schema.svg
  mailmend schema export --live --keyspace apache_james     what is really there, in the model's words
  mailmend schema export --only cql --dir -                 the CQL alone, on stdout
  mailmend schema export --check --dir docs --only page     is the page in the repository up to date?

\b
Exit codes: 0 fine, 1 --check found a file that is out of date, 2 wrong use, 4 (--live) the cluster cannot be reached.
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    default=FOLDER,
    show_default=True,
    metavar="DIR",
    help="Where the files go; - is stdout, for one of them.",
)
@click.option("--only", "kinds", type=click.Choice(tuple(FILES)), multiple=True, help="Only this; may be repeated.")
@click.option("--live", is_flag=True, help="Of the keyspace as it is, instead of the model.")
@click.option("--check", is_flag=True, help="Write nothing; say which files are not up to date.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@connection_options_where(lambda options: options["live"])
def export(
    connection: ConnectionSettings, folder: Path, kinds: tuple[str, ...], *, live: bool, check: bool, as_json: bool
) -> int:
    """Write the schema for people: schema.cql, a page with a table for each table, a drawing of what follows from what.

    Asks no cluster unless --live is given.
    """
    wanted = tuple(kind for kind in FILES if kind in (kinds or FILES))
    drawn = "drawing" in wanted or (folder / FILES["drawing"]).exists()
    beside = FILES["drawing"] if drawn else ""
    texts = _live(connection, beside) if live else _declared(connection.keyspace, beside)
    if str(folder) == "-":
        return _print(texts, wanted, plain=not (check or as_json))
    files = {folder / FILES[kind]: texts[kind] for kind in wanted}
    stale = [file for file, text in files.items() if _current(file) != text]
    if not check:
        _write({file: files[file] for file in stale})
    _show(list(files), stale, check=check, as_json=as_json)
    return int(ExitCode.DRIFT if check and stale else ExitCode.FINE)


def _declared(keyspace: str, drawing: str) -> dict[str, str]:
    made = "Made from the model by `mailmend schema export`: change the catalog, not this page."
    return _texts(schema_file_text(keyspace), declared(keyspace, made, drawing))


def _live(connection: ConnectionSettings, drawing: str) -> dict[str, str]:
    with open_place(connection) as place:
        cluster, name = place.cluster, place.mail.name
        replication = replication_from(cluster.replication_of(name))
        schema, ledger = live_schema(cluster, name), live_schema(cluster, connection.ledger_keyspace)
        text = live_file_text(name, schema, replication, cluster.release_version)
    made = "Read from the cluster by `mailmend schema export --live`."
    return _texts(text, found(name, schema, ledger, made, drawing))


def _texts(cql: str, page: Page) -> dict[str, str]:
    return {"cql": cql, "page": page_text(page), "drawing": svg(page.families)}


def _print(texts: Mapping[str, str], wanted: tuple[str, ...], *, plain: bool) -> int:
    if len(wanted) != 1 or not plain:
        raise WrongUse("stdout takes one file, as it is", mend="Name it with --only, without --check and --json.")
    sys.stdout.write(texts[wanted[0]])
    return int(ExitCode.FINE)


def _current(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUse(f"{file} cannot be read: {reason_of(error)}", mend="Name another folder with --dir.") from error


def _write(files: Mapping[Path, str]) -> None:
    for file, text in files.items():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise WrongUse(f"{file} cannot be written: {reason_of(error)}", mend="Name another with --dir.") from error


def _show(files: list[Path], stale: list[Path], *, check: bool, as_json: bool) -> None:
    changed = {"stale": [str(file) for file in stale]} if check else {"written": [str(file) for file in stale]}
    if as_json:
        code = int(ExitCode.DRIFT if check and stale else ExitCode.FINE)
        write_json({"files": [str(file) for file in files], **changed, "exit": code})
        return
    console = stdout_console()
    for file in files:
        state = ("is not up to date" if check else "written") if file in stale else "is up to date"
        console.print(f"{file} {state}", soft_wrap=True, markup=False)
    if check and stale:
        console.print("Next: the same command without --check", soft_wrap=True)
