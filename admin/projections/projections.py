"""`mailmend projections`: files of projections are proposed, shown, and verified."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from mailmend.admin.frame.cluster import open_cluster
from mailmend.admin.frame.command import Command, CommandGroup
from mailmend.admin.frame.document import Document, Grid, Part, Verbatim
from mailmend.admin.frame.options import CONNECTION, FILE, flag
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.frame.values import fields_json
from mailmend.cql.introspect import live_schema
from mailmend.model.catalog.james_projections import (
    FILLED_ON_DEMAND,
    JAMES,
    JAMES_TEXT,
    in_keyspace,
)
from mailmend.model.catalog.james_tables import SCHEMA_VERSION
from mailmend.model.catalog.left_tables import LeftTable, unfilled_tables
from mailmend.model.catalog.mail_projections import MAIL, MAIL_TEXT
from mailmend.model.errors import ExitCode, WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.names import name_of
from mailmend.model.operations import Level, Scan
from mailmend.model.ports import Tables
from mailmend.model.projections.content import Content
from mailmend.model.projections.declaration_file import (
    FILE_CHARACTERS_MAX,
    DeclarationFile,
    read_file,
)
from mailmend.model.projections.declaration_nodes import BadDeclaration
from mailmend.model.projections.declarations import (
    CONTENT,
    COUNT,
    EXPLODE,
    FILTER,
    MIRROR,
    TRUTH,
    UNION,
    VIEW,
    Declaration,
)
from mailmend.model.projections.family import Counts, Family, Filter, Union
from mailmend.model.projections.filled_mirror import FilledMirror
from mailmend.model.projections.partial_mirror import ExplodedMirror, PartialMirror
from mailmend.model.projections.projection import Mirror, Projection
from mailmend.model.projections.valued import Bounds, Numbers
from mailmend.model.projections.view_mirror import ViewMirror
from mailmend.model.sizes import TableSize
from mailmend.model.texts import keyspace_option, printable
from mailmend.repair.decisions.engines import estimated_rows
from mailmend.repair.declared import bound_declaration
from mailmend.repair.proposals import Proposal, proposed
from mailmend.repair.unseen import Unseen, unseen_by

FILE_ARGUMENT: Final = click.Argument(["file"], type=FILE, metavar="FILE")


_SHIPPED: Final[Mapping[str, str]] = {JAMES: JAMES_TEXT, MAIL: MAIL_TEXT}
"""The files that mailmend has itself, by their names."""


def is_james(declared: Path | Declaration | None) -> bool:
    """Whether it names the declaration of James's own tables, and no file of that name."""
    return isinstance(declared, Path) and str(declared) == JAMES and not declared.exists()


def declared_in(file: Path) -> DeclarationFile:
    """What a file of projections declares, and where; two names are files of mailmend itself.

    `james` is the file of James's other tables, `mail` the file of its messages and mailboxes.

    Raises:
        WrongUse: it cannot be read.
        BadDeclaration: it is not a file of projections.
    """
    shipped = _SHIPPED.get(str(file))
    if shipped is not None and not file.exists():
        return read_file(shipped, str(file))
    try:
        with file.open(encoding="utf-8") as stream:
            text = stream.read(FILE_CHARACTERS_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        mend = "Propose one with: mailmend projections init --keyspace NAME > FILE"
        raise WrongUse(f"{file} cannot be read: {reason}", mend=mend) from error
    return read_file(text, str(file))


class DeclarationHere(NamedTuple):
    """What a keyspace has of a declaration, and the tables of it that James does not fill there."""

    declaration: Declaration
    left: tuple[LeftTable, ...] = ()


def declaration_for(declared: DeclarationFile, tables: Tables, live: Schema) -> DeclarationHere:
    """The declaration of a file; of James's own tables, what the keyspace has of them.

    Raises:
        WrongUse: it has no such tables.
    """
    if declared.text != JAMES_TEXT:
        return DeclarationHere(declared.declaration)
    version = 0
    if live.table(SCHEMA_VERSION.name) is not None:
        for row in tables.scan(Scan(SCHEMA_VERSION, ("value",), Level.QUORUM)):
            version = max(version, row["value"] or 0)
    left = unfilled_tables(list(_empty(tables, live)))
    empty = [name_of(table.table) for table in left]
    return DeclarationHere(in_keyspace(declared.declaration, live, version, empty), left)


def _empty(tables: Tables, live: Schema) -> Iterator[str]:
    """The tables that James fills on demand, and that have no row."""
    for name in FILLED_ON_DEMAND:
        table = live.table(name)
        if table is not None:
            some = tables.scan(Scan(table, table.key_names, Level.QUORUM, limit=1))
            if next(iter(some), None) is None:
                yield name


@dataclass(frozen=True, slots=True)
class TableRead:
    """A table that a check reads whole.

    Attributes:
        rows: an estimate; None where no node tells one.
    """

    table: str
    columns: tuple[str, ...]
    rows: int | None


@dataclass(frozen=True, slots=True)
class FileVerification:
    """What a file is worth in a live keyspace.

    Attributes:
        refused: an error for each place that does not fit; where there is one, the rest is empty.
    """

    file: Path
    keyspace: str
    refused: tuple[BadDeclaration, ...] = ()
    families: tuple[Family, ...] = ()
    reads: tuple[TableRead, ...] = ()
    unseen: tuple[Unseen, ...] = ()

    @property
    def exit(self) -> ExitCode:
        if self.refused:
            return ExitCode.WRONG_USE
        return ExitCode.FINE


def verify(connection: ConnectionSettings, file: Path) -> FileVerification:
    """Bind a file to a live keyspace; reads the schema and the estimates of sizes only.

    Raises:
        WrongUse: the file cannot be read.
        UnknownKeyspace: no such keyspace.
    """
    keyspace = connection.keyspace
    try:
        declared = declared_in(file)
    except BadDeclaration as error:
        return FileVerification(file, keyspace, tuple(error.each))
    with open_cluster(connection) as opened:
        opened.cluster.replication_of(keyspace)
        live = live_schema(opened.cluster, keyspace)
        declaration, left = declaration_for(declared, opened.mail, live)
        sizes = opened.sizes()
    bound = bound_declaration(declaration, live)
    if bound.misfits:
        misfits = []
        for misfit in bound.misfits:
            place = declared.place_of(misfit.path)
            misfits.append(BadDeclaration(str(file), place, misfit.problem, mend=misfit.mend))
        misfits.sort(key=lambda misfit: (misfit.place.line, misfit.place.column))
        return FileVerification(file, keyspace, tuple(misfits))
    reads = _reads(bound.families, sizes)
    others = {name_of(table.table): table.reason for table in left}
    unseen = unseen_by(bound.families, live, others)
    return FileVerification(file, keyspace, (), bound.families, reads, unseen)


def _reads(families: Sequence[Family], sizes: Mapping[str, TableSize]) -> tuple[TableRead, ...]:
    """Each reading of a table; a truth with several families is read once for each of them."""
    reads = []
    for family in families:
        for table, columns in family.columns_read.values():
            rows = estimated_rows(sizes.get(table.name))
            reads.append(TableRead(table.spelling, table.stored(columns), rows))
    return tuple(reads)


def verify_document(result: FileVerification) -> Document:
    refused = []
    for error in result.refused:
        position = fields_json(error.place, "line", "column")
        refused.append({**position, "text": error.problem, "fix": error.mend})
    json: dict[str, Any] = {
        "file": str(result.file),
        "keyspace": result.keyspace,
        "refused": refused,
        "projections": _projections_json(result.families),
        "reads": [fields_json(read, "table", "columns", "rows") for read in result.reads],
        "unseen": [{"table": table, "why": why} for table, why in result.unseen],
        "exit": int(result.exit),
    }
    file = printable(str(result.file))
    if result.refused:
        remarks = [f"mailmend: {printable(str(error))}" for error in result.refused]
        if len(remarks) > 1:
            remarks.append(f"{file}: {len(remarks):,} errors.")
        return Document(json, (), result.exit, remarks=tuple(remarks))
    shell = shlex.quote(str(result.file))
    command = f"mailmend check --projections {shell} {keyspace_option(result.keyspace)}"
    return Document(json, (*_verified_parts(result), f"Next: {command}"), result.exit)


def _verified_parts(result: FileVerification) -> Sequence[Part]:
    followers = []
    for family in result.families:
        for projection in family.projections:
            names = ", ".join(_compared(projection))
            followers.append((family.truth.spelling, kind_of(projection), projection.name, names))
    reads = []
    for read in result.reads:
        rows = "unknown"
        if read.rows is not None:
            rows = f"{read.rows:,}"
        reads.append((read.table, rows, ", ".join(read.columns)))
    unseen = [tuple(each) for each in result.unseen]
    wide = frozenset({"compared", "columns", "why"})
    parts: list[Part] = [
        f"{printable(str(result.file))} fits keyspace {result.keyspace}.",
        Grid("What follows", ("truth", "kind", "projection", "compared"), followers, wide),
        Grid("What a check reads (estimated)", ("table", "rows", "columns"), reads, wide),
    ]
    if unseen:
        parts.append(Grid("What it cannot see", ("table", "why"), unseen, wide))
    return parts


def _projections_json(families: Sequence[Family]) -> list[dict[str, Any]]:
    found = []
    for family in families:
        for projection in family.projections:
            found.append(
                {
                    "truth": projection.truth.name,
                    "kind": kind_of(projection),
                    "table": projection.table.name,
                    "key": dict(projection.key),
                    "compared": _compared(projection),
                }
            )
    return found


_KINDS: Final[Mapping[type[Projection], str]] = {
    Mirror: MIRROR,
    FilledMirror: MIRROR,
    ViewMirror: VIEW,
    PartialMirror: MIRROR,
    ExplodedMirror: EXPLODE,
    Filter: FILTER,
    Union: UNION,
    Counts: COUNT,
    Numbers: COUNT,
    Content: CONTENT,
}


def kind_of(projection: Projection) -> str:
    """The word for its kind in a file of projections."""
    if isinstance(projection, Bounds):
        return projection.bound.name.lower()
    return _KINDS[type(projection)]


def _compared(projection: Projection) -> dict[str, str]:
    """The columns that a check compares, each with the truth's column behind it."""
    if isinstance(projection, Mirror):
        return dict(projection.sources)
    compared = dict(projection.key)
    if isinstance(projection, Union):
        compared[projection.column] = projection.column
    if isinstance(projection, Bounds):
        compared |= dict(projection.bounds)
    return compared


@dataclass(frozen=True, slots=True)
class ShowResult:
    """A file's declaration.

    Attributes:
        mermaid: whether it is shown as a flowchart.
    """

    file: Path
    declaration: Declaration
    mermaid: bool = False


def show(file: Path, *, mermaid: bool = False) -> ShowResult:
    """What a file declares; asks no server.

    Raises:
        BadDeclaration: it is not a file of projections.
    """
    return ShowResult(file, declared_in(file).declaration, mermaid)


def show_document(result: ShowResult) -> Document:
    rows = []
    found = []
    truths = []
    for truth in result.declaration.truths:
        if truth.null_is:
            rows.append((truth.table, TRUTH, "", "", truth.null_line))
            truths.append({"truth": truth.table, "lines": [truth.null_line]})
        for projection in truth.every:
            renamed = dict(projection.renamed)
            pairs = ", ".join(f"{own} = {source}" for own, source in renamed.items())
            lines = list(projection.rule_lines())
            rows.append((truth.table, projection.kind, projection.table, pairs, "; ".join(lines)))
            named = {"truth": truth.table, "kind": projection.kind, "table": projection.table}
            found.append({**named, "renamed": renamed, "lines": lines})
    json = {
        "file": str(result.file),
        "truths": truths,
        "projections": found,
        "text": result.declaration.text,
    }
    if result.mermaid:
        return Document(json, (Verbatim(flowchart(result.declaration)),))
    columns = ("truth", "kind", "projection", "renamed", "rule")
    wide = frozenset({"renamed", "rule"})
    title = f"Projections of {printable(str(result.file))}"
    return Document(json, (Grid(title, columns, rows, wide),))


def flowchart(declaration: Declaration) -> str:
    """What follows from what, as a flowchart of Mermaid."""
    ids: dict[str, str] = {}
    lines = ["flowchart LR"]

    def node(table: str) -> str:
        if table in ids:
            return ids[table]
        ids[table] = f"t{len(ids)}"
        label = table.replace('"', "#quot;")
        return f'{ids[table]}["{label}"]'

    for truth in declaration.truths:
        for projection in truth.every:
            edge = f"-->|{projection.kind}|"
            lines.append(f"  {node(truth.table)} {edge} {node(projection.table)}")
    return "\n".join(lines) + "\n"


def init(connection: ConnectionSettings) -> Proposal:
    """Propose a declaration of a live keyspace; reads its schema only.

    Raises:
        UnknownKeyspace: no such keyspace.
    """
    keyspace = connection.keyspace
    with open_cluster(connection) as opened:
        opened.cluster.replication_of(keyspace)
        return proposed(keyspace, live_schema(opened.cluster, keyspace))


def init_document(proposal: Proposal) -> Document:
    declared = proposal.declaration
    text = ""
    hints = ["No table of the keyspace looks like a copy of another one; see docs/declarations.md."]
    if declared is not None:
        text = declared.text
        verify_it = f"mailmend projections verify FILE {keyspace_option(proposal.keyspace)}"
        hints = [f"Answer the questions (?) in the file, then: {verify_it}"]
    questions = [{"table": asked.table, "text": asked.text} for asked in proposal.questions]
    json = {
        "keyspace": proposal.keyspace,
        "text": proposal.text,
        "declaration": text,
        "questions": questions,
        "views": [{"view": view, "base": base} for view, base in proposal.views],
        "apart": list(proposal.apart),
    }
    return Document(json, (Verbatim(proposal.text),), hints=tuple(hints))


VERIFY: Final = Command(
    name="verify",
    summary="Compare a file of projections with a live keyspace: what fits, and what it costs.",
    about="""Names every place of the file that does not fit, with line, column and what to write
    instead. Of a file that fits, shows the tables that a check reads, with the nodes' estimates
    of their rows, and what a check cannot see. Only schema and estimates are read.""",
    service="mailmend.admin.projections.projections:verify",
    present="mailmend.admin.projections.projections:verify_document",
    options=(FILE_ARGUMENT,),
    shared=(CONNECTION,),
    examples="mailmend projections verify shop.toml --keyspace shop",
    exits="0 it fits, 2 it does not, or wrong use, 4 the cluster cannot be reached.",
)
SHOW: Final = Command(
    name="show",
    summary="Show what a file of projections declares, without a server.",
    service="mailmend.admin.projections.projections:show",
    present="mailmend.admin.projections.projections:show_document",
    paged=True,
    options=(FILE_ARGUMENT, flag("--mermaid", "Draw a flowchart of Mermaid instead of a table.")),
    examples="""
        mailmend projections show shop.toml
        mailmend projections show shop.toml --mermaid > shop.mmd
        mailmend projections show mail""",
    exits="0 it was shown, 2 wrong use, or the file cannot be used.",
)
INIT: Final = Command(
    name="init",
    summary="Propose a file of projections from the tables of a live keyspace.",
    about="""A table is proposed as a mirror where another table has the columns of its key, and it
    has the partition key of the other. What the schema does not tell is a question in a comment.
    A materialised view is proposed as a view of its base. Tables that share no key are named in
    comments. Only the schema is read.""",
    service="mailmend.admin.projections.projections:init",
    present="mailmend.admin.projections.projections:init_document",
    shared=(CONNECTION,),
    examples="mailmend projections init --keyspace shop > shop.toml",
    exits="0 a proposal was written, 2 wrong use, 4 the cluster cannot be reached.",
)
PROJECTIONS: Final = CommandGroup(
    name="projections",
    summary="Files that declare which tables follow from which truth.",
    about="The form of a file: docs/declarations.md.",
    commands=(INIT, VERIFY, SHOW),
    examples="""
        mailmend projections init --keyspace shop > shop.toml
        mailmend projections verify shop.toml --keyspace shop""",
)
