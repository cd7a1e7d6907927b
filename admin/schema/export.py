"""`mailmend schema export`: the schema as CQL, as a page and as a drawing.

Widths are reckoned from the number of characters in a font of fixed width, with some to spare, so
that no text leaves its box whichever such font a reader has.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Final

import click

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import open_cluster
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Verbatim
from mailmend.admin.frame.options import FILE, connection_where, flag, option
from mailmend.admin.frame.settings import ConnectionSettings, reason_of
from mailmend.admin.frame.values import plain
from mailmend.admin.schema.export_page import (
    Page,
    Relation,
    Section,
    key_text,
    page_text,
    relations_of,
)
from mailmend.cql.export import live_file_text, schema_file_text
from mailmend.cql.introspect import beside_model, live_schema
from mailmend.cql.render import replication_from
from mailmend.cql.schema.generations import GENERATIONS, recognise
from mailmend.model.catalog.james_tables import BESIDE_TABLES
from mailmend.model.catalog.ledger import LEDGER_TABLES
from mailmend.model.catalog.mail import FAMILIES, MAIL_TABLES, SCHEMA
from mailmend.model.catalog.mail_queue import QUEUE_TABLES
from mailmend.model.errors import ExitCode, WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.names import name_of
from mailmend.model.projections.family import Family
from mailmend.model.table import Column, Table, names_of
from mailmend.repair.binding import bind

_ABOUT_MAIL = "What mailmend reads, writes and keeps true."
_ABOUT_BESIDE = "Created so that James can take the keyspace over; never read or written."
_ABOUT_LEDGER = (
    "Our own keyspace: runs with their before-images, lags, leases and the history of schemas. Whatever is not needed "
    "for ever expires automatically."
)
_ABOUT_QUEUE = (
    "The distributed mail queue. Four tables are James's own, column for column; dueMails, "
    "sliceTallies, queueState, backlogs and backlogMails are ours, and James neither lists nor "
    "touches them. Where mailmend makes them, what was enqueued expires automatically, and the "
    "sweep renews what stays."
)
_ABOUT_OTHERS = "Not known to mailmend: neither read nor written."

_SERVER_DEFAULTS = {
    "additional_write_policy": "'99p'",
    "allow_auto_snapshot": "true",
    "bloom_filter_fp_chance": "0.01",
    "caching": "{'keys': 'ALL', 'rows_per_partition': 'NONE'}",
    "cdc": "false",
    "compression": "{'chunk_length_in_kb': '16', 'class': 'LZ4Compressor'}",
    "crc_check_chance": "1.0",
    "dclocal_read_repair_chance": "0.0",
    "default_time_to_live": "0",
    "gc_grace_seconds": "864000",
    "incremental_backups": "true",
    "max_index_interval": "2048",
    "memtable": "'default'",
    "memtable_flush_period_in_ms": "0",
    "min_index_interval": "128",
    "read_repair": "'BLOCKING'",
    "read_repair_chance": "0.0",
    "speculative_retry": "'99p'",
}
"""What a server has where nothing was asked for, from 4.0 to 5.0: on a page about one's own tables it is noise."""


def _known_tables() -> dict[str, Table]:
    """Every table that mailmend knows by its name, the newest form of each."""
    tables = [*LEDGER_TABLES]
    for generation in reversed(GENERATIONS):
        tables += generation.schema.tables
    tables += QUEUE_TABLES
    return {table.name: table for table in tables}


_KNOWN: Final = _known_tables()


def declared(keyspace: str, made: str, drawing: str = "") -> Page:
    sections = (
        Section("Mail", _ABOUT_MAIL, MAIL_TABLES),
        Section("James's other tables", _ABOUT_BESIDE, BESIDE_TABLES),
        Section("Queue", _ABOUT_QUEUE, QUEUE_TABLES),
        Section("Ledger", _ABOUT_LEDGER, LEDGER_TABLES),
    )
    return Page(f"The schema of {keyspace}", made, FAMILIES, SCHEMA.types, sections, drawing)


def found(keyspace: str, live: Schema, ledger: Schema, made: str, drawing: str = "") -> Page:
    """The page of a live keyspace, with names and canonical forms from the model where it knows the table.

    Raises:
        SchemaMismatch: the keyspace holds mail, and lacks a table without which nothing can be described.
    """
    mail_names = names_of(MAIL_TABLES)
    queue_names = names_of(QUEUE_TABLES)
    mail: list[Table] = []
    james: list[Table] = []
    queue: list[Table] = []
    others: list[Table] = []
    for table in map(_described, live.tables):
        if table.name not in _KNOWN:
            others.append(table)
        elif table.name in mail_names:
            mail.append(table)
        elif table.name in queue_names:
            queue.append(table)
        else:
            james.append(table)
    sections = (
        Section("Mail", _ABOUT_MAIL, tuple(mail)),
        Section("James's other tables", _ABOUT_BESIDE, tuple(james)),
        Section("Queue", _ABOUT_QUEUE, tuple(queue)),
        Section("Other tables", _ABOUT_OTHERS, tuple(others)),
        Section("Ledger", _ABOUT_LEDGER, tuple(map(_described, ledger.tables))),
    )
    if mail or james or queue:
        recognised = f"Generation: {recognise(live).generation.name}."
    else:
        recognised = "No mail was found in it."
    shown = tuple(section for section in sections if section.tables)
    families = families_in(keyspace, live)
    return Page(f"The keyspace {keyspace}", f"{made} {recognised}", families, live.types, shown, drawing)


def families_in(keyspace: str, live: Schema) -> tuple[Family, ...]:
    there = tuple(family for family in FAMILIES if live.table(family.truth.name) is not None)
    return bind(keyspace, live, there)


def _described(table: Table) -> Table:
    """The live table in the model's spelling and column order; unknown columns come last."""
    options = {}
    for name, value in table.options.items():
        if _SERVER_DEFAULTS.get(name) != value:
            options[name] = value
    known = _KNOWN.get(table.name)
    if known is None:
        return replace(table, options=options)
    return replace(
        table,
        spelling=known.spelling,
        columns=tuple(_ordered(known.columns, table.columns)),
        comment=table.comment or known.comment,
        options=options,
    )


def _ordered(known: Iterable[Column], live: Iterable[Column]) -> Iterator[Column]:
    there = {name_of(column.spelling): column for column in live}
    for column in known:
        if present := there.pop(column.name, None):
            yield replace(present, spelling=column.spelling, null_is=column.null_is)
    yield from there.values()


CHARACTER = 7.4
"""Pixels that one character of the text may take, at 12 pixels' height."""

_LINE = 17
_PAD = 12
_GAP = 14
_BETWEEN_FAMILIES = 34
_MARGIN = 20
_CHANNEL = 120
_WRAP = 52
_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_COLOURS = {"mirror": "#1f6feb", "filter": "#1a7f37", "union": "#8250df", "count": "#9a6700", "content": "#57606a"}
_TRUTH = "#cf222e"


@dataclass(frozen=True, slots=True)
class Box:
    """A box with its lines; the first is the table's name."""

    x: float
    y: float
    width: float
    lines: tuple[str, ...]
    colour: str

    @property
    def height(self) -> float:
        return len(self.lines) * _LINE + 2 * _PAD - 4

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Arrow:
    """From a truth to its projection."""

    source: Box
    target: Box
    dashed: bool


@dataclass(frozen=True, slots=True)
class Drawing:
    """Boxes and arrows with their positions."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def drawing_of(families: Sequence[Family]) -> Drawing:
    """Each family is a block: its truth on the left, centred on its projections."""
    groups = [relations_of(family) for family in families]
    left = 0.0
    right = 0.0
    for group in groups:
        left = max(left, _width(_truth_lines(group[0].truth)))
        for relation in group:
            right = max(right, _width(_lines(relation)))
    boxes: list[Box] = []
    arrows: list[Arrow] = []
    y = float(_MARGIN)
    for group in groups:
        targets = list(_stacked(group, _MARGIN + left + _CHANNEL, y, right))
        truth = _centred(_truth_lines(group[0].truth), left, targets)
        block = [truth, *targets]
        boxes += block
        for target, relation in zip(targets, group, strict=True):
            arrows.append(Arrow(truth, target, relation.kind == "content"))
        y = max(box.y + box.height for box in block) + _BETWEEN_FAMILIES
    width = 2 * _MARGIN + left + _CHANNEL + right
    return Drawing(width, y - _BETWEEN_FAMILIES + _MARGIN, tuple(boxes), tuple(arrows))


def svg(families: Sequence[Family]) -> str:
    drawing = drawing_of(families)
    size = f'width="{drawing.width:.0f}" height="{drawing.height:.0f}"'
    view = f'viewBox="0 0 {drawing.width:.0f} {drawing.height:.0f}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} role="img" font-family="{_FONT}" font-size="12">',
        "<title>Truths and their projections</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    for arrow in drawing.arrows:
        lines.append(_arrow_svg(arrow))
    for box in drawing.boxes:
        lines += _box_svg(box)
    lines.append("</svg>")
    return "\n".join(lines) + "\n"


def _stacked(group: Sequence[Relation], x: float, y: float, width: float) -> Iterator[Box]:
    for relation in group:
        box = Box(x, y, width, _lines(relation), _COLOURS[relation.kind])
        yield box
        y += box.height + _GAP


def _centred(lines: tuple[str, ...], width: float, targets: Sequence[Box]) -> Box:
    top = targets[0].y
    bottom = targets[-1].y + targets[-1].height
    height = Box(0, 0, width, lines, _TRUTH).height
    return Box(_MARGIN, max(top, (top + bottom - height) / 2), width, lines, _TRUTH)


def _truth_lines(truth: Table) -> tuple[str, ...]:
    return (truth.spelling, key_text(truth), "truth")


def _lines(relation: Relation) -> tuple[str, ...]:
    lines = [relation.table.spelling, key_text(relation.table)]
    for text in (f"{relation.kind}: {relation.says}", *relation.notes):
        lines += _wrapped(text)
    return tuple(lines)


def _wrapped(text: str) -> Iterator[str]:
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > _WRAP:
            yield line
            line = ""
        line = f"{line} {word}".strip()
    yield line


def _width(lines: Sequence[str]) -> float:
    return max(map(len, lines)) * CHARACTER + 2 * _PAD


def _arrow_svg(arrow: Arrow) -> str:
    x = arrow.source.x + arrow.source.width
    y = arrow.source.middle
    to_x = arrow.target.x
    to_y = arrow.target.middle
    bend = (x + to_x) / 2
    dashes = ' stroke-dasharray="5 4"' if arrow.dashed else ""
    colour = arrow.target.colour
    curve = f'<path d="M{x:.0f} {y:.0f}C{bend:.0f} {y:.0f} {bend:.0f} {to_y:.0f} {to_x - 7:.0f} {to_y:.0f}"'
    head = f'<path d="M{to_x:.0f} {to_y:.0f}l-9 -5v10z" fill="{colour}"/>'
    return f'{curve} fill="none" stroke="{colour}" stroke-width="1.5"{dashes}/>{head}'


def _box_svg(box: Box) -> Iterator[str]:
    yield (
        f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{box.height:.0f}" rx="6" '
        f'fill="#f6f8fa" stroke="{box.colour}" stroke-width="1.5"/>'
    )
    for number, line in enumerate(box.lines):
        style = 'fill="#424a53"'
        if number == 0:
            style = 'fill="#1f2328" font-weight="bold"'
        x = box.x + _PAD
        y = box.y + _PAD + (number + 0.7) * _LINE - 2
        yield f'<text x="{x:.0f}" y="{y:.0f}" {style}>{escape(line)}</text>'


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
        if self.check and self.stale:
            return ExitCode.DRIFT
        return ExitCode.FINE


def export(request: ExportRequest, _: Caller) -> ExportResult:
    """Write the schema for people, or compare with the files that are there.

    Raises:
        WrongUse: several texts for stdout; a file that cannot be read or written.
    """
    folder = request.folder
    kinds = request.kinds or FILES
    wanted = tuple(kind for kind in FILES if kind in kinds)
    if folder == STDOUT and (len(wanted) != 1 or request.check):
        raise WrongUse("stdout can take only one file", mend="Name it with --only, without --check.")
    drawing = ""
    if "drawing" in wanted or (folder / FILES["drawing"]).exists():
        drawing = FILES["drawing"]
    if request.live:
        texts = _live(request.connection, drawing)
    else:
        texts = _declared(request.connection.keyspace, drawing)
    if folder == STDOUT:
        return ExportResult(text=texts[wanted[0]])
    files = {folder / FILES[kind]: texts[kind] for kind in wanted}
    stale = []
    for file, text in files.items():
        if _current(file) != text:
            stale.append(file)
    if not request.check:
        for file in stale:
            _write(file, files[file])
    return ExportResult(tuple(files), tuple(stale), request.check)


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
    if result.check:
        changed = "stale"
        was = "is not up to date"
    else:
        changed = "written"
        was = "written"
    json = {"files": plain(result.files), changed: plain(result.stale), "exit": int(result.exit)}
    lines = []
    for file in result.files:
        if file in result.stale:
            lines.append(f"{file} {was}")
        else:
            lines.append(f"{file} is up to date")
    if result.check and result.stale:
        lines.append("Next: the same command without --check")
    return Document(json, lines, result.exit)


EXPORT: Final = Command(
    name="export",
    summary="The schema as CQL, as a page and as a drawing.",
    about="Asks no cluster unless --live is given.",
    service="mailmend.admin.schema.export:export",
    present="mailmend.admin.schema.export:export_document",
    paged=True,
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
