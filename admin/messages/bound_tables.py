"""The tables of a check, repair, apply or undo, bound to the live keyspace: mail, or declared ones.

A declaration comes from a file, from two names of tables, or from the ledger: then it is the copy
that a run or a plan keeps, whatever became of the file.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mailmend.admin.frame.cluster import OpenCluster, lag_journal
from mailmend.admin.frame.run_scopes import MAIL, MAILBOXES, RunScope
from mailmend.admin.projections.projections import declaration_for, declared_in
from mailmend.cql.introspect import live_schema
from mailmend.model.catalog.left_tables import LeftTable
from mailmend.model.catalog.mail import MESSAGES, PATHS
from mailmend.model.errors import SchemaMismatch, WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.names import name_of
from mailmend.model.projections.declarations import Declaration
from mailmend.model.projections.family import Family
from mailmend.model.projections.toml_values import cql_name
from mailmend.model.table import Table
from mailmend.model.texts import keyspace_option, names_instead
from mailmend.repair.binding import BoundFamilies
from mailmend.repair.declared import declared_families, proposed_pair
from mailmend.repair.ledger.declared_runs import MAILBOXES as OF_MAILBOXES
from mailmend.repair.ledger.declared_runs import changes_since, kept_declaration, kept_of
from mailmend.repair.store.projection_writer import ProjectionWriter
from mailmend.repair.store.writes import WriterSettings

if TYPE_CHECKING:
    from mailmend.admin.messages.repair import RepairRequest

WORDS: Final = ("messages", "queues", "blobs", "all")
"""What `mailmend check` looks at without a declaration; in double quotes each names a table."""


@dataclass(frozen=True, slots=True)
class BoundTables:
    """What a run looks at.

    Attributes:
        bound: the families, and what the keyspace lacks of them.
        scope: how documents show them.
        kept: the options of a run that hold its declaration.
        changes: what differs from the tables of an earlier run, each in a few words.
        left: tables of the declaration that are not looked at.
    """

    bound: BoundFamilies
    scope: RunScope = MAIL
    kept: Mapping[str, Any] = field(default_factory=dict)
    changes: Sequence[str] = ()
    left: tuple[LeftTable, ...] = ()

    @property
    def truths(self) -> tuple[Table, ...]:
        """The tables by whose size an engine is chosen."""
        truths = tuple(family.truth for family in self.bound.families)
        if self.scope.is_mail:
            return truths[:1]
        return truths

    def whole(self, keyspace: str, *, may_leave_out: bool = True) -> tuple[Family, ...]:
        """The families, where nothing is missing, so that rows may be written."""
        return self.bound.whole(keyspace, may_leave_out=may_leave_out)


def mail_tables(
    opened: OpenCluster,
    families: tuple[Family, ...],
    without: Sequence[str] = (),
) -> BoundTables:
    return BoundTables(opened.bound(families, without))


def mailbox_tables(opened: OpenCluster) -> BoundTables:
    """The rows of mailboxes, with the paths that they follow from."""
    return BoundTables(opened.bound((PATHS,)), MAILBOXES, {OF_MAILBOXES: True})


def tables_asked_for(request: "RepairRequest", opened: OpenCluster) -> BoundTables:
    """The tables that a repair is about: declared ones, mailboxes, or messages."""
    if request.projections is not None:
        return declared_tables(opened, request.projections, request.named)
    if request.mailboxes:
        return mailbox_tables(opened)
    return mail_tables(opened, (MESSAGES,), request.without)


def declaration_in(declared: Path | Declaration) -> Declaration:
    """The declaration that a program gives, or that is in a file."""
    if isinstance(declared, Declaration):
        return declared
    return declared_in(declared).declaration


def file_of(declared: Path | Declaration | None) -> str:
    """The file of a declaration, as a command line names it; a program's declaration has none."""
    if isinstance(declared, Path):
        return str(declared)
    return "FILE"


def declared_tables(
    opened: OpenCluster,
    declared: Path | Declaration,
    name: str | None = None,
) -> BoundTables:
    """The tables of a declaration.

    Args:
        opened: the cluster.
        declared: the declaration, or its file.
        name: of a projection, or of a truth; None: all of them.
    """
    live = live_schema(opened.cluster, opened.mail.name)
    left: tuple[LeftTable, ...] = ()
    if isinstance(declared, Path):
        declaration, left = declaration_for(declared_in(declared), opened.mail, live)
    else:
        declaration = declared
    words = f"--projections {shlex.quote(file_of(declared))}"
    if name is not None:
        _refuse_left(left, name)
        declaration = narrowed(declaration, name)
        words = f"{shlex.quote(name)} {words}"
        left = ()
    bound = _bound(opened, declaration, live, _scope(words, f"repair {words}"))
    return replace(bound, left=left)


def _refuse_left(left: Iterable[LeftTable], name: str) -> None:
    for table in left:
        if name_of(table.table) == name_of(name):
            raise WrongUse(f"{table.table} is not looked at", mend=table.reason)


def tables_named(opened: OpenCluster, truth: str, projection: str) -> BoundTables:
    """A truth and its mirror, without any file.

    Raises:
        WrongUse: the first name is one of the words of `mailmend check`.
    """
    if truth in WORDS:
        quoted = f"'\"{truth}\"'"
        raise WrongUse(
            f"{truth} with the name of a table is not looked at",
            mend=f"Name a table of that name in double quotes: mailmend check {quoted} {projection}",
        )
    live = live_schema(opened.cluster, opened.mail.name)
    truth_name = cql_name(truth, "table name")
    projection_name = cql_name(projection, "table name")
    declaration = proposed_pair(live, truth_name, projection_name)
    words = shlex.join((truth, projection))
    on = keyspace_option(opened.mail.name)
    first = [
        "To mend it, write these lines to a file, for example projections.toml:",
        *[f"    {line}" for line in declaration.text.splitlines()],
        f"Next: mailmend repair --projections projections.toml {on} --dry-run",
    ]
    return _bound(opened, declaration, live, _scope(words, "", first))


def tables_of_run(
    opened: OpenCluster,
    options: Mapping[str, Any],
    run: object,
) -> BoundTables | None:
    """The tables by what a run or a plan keeps: mailboxes, or a declaration; None for messages.

    Raises:
        WrongUse: the tables have changed since, so that the declaration does not fit them any more.
    """
    if options.get(OF_MAILBOXES):
        return mailbox_tables(opened)
    declaration = kept_declaration(options, run)
    if declaration is None:
        return None
    live = live_schema(opened.cluster, opened.mail.name)
    changes = changes_since(options, live)
    try:
        bound = _bound(opened, declaration, live, scope_kept(options))
    except SchemaMismatch as error:
        what = "; ".join(changes) or error.what
        raise WrongUse(
            f"the tables of {run} are not as they were: {what}",
            mend=f"Give them these columns again; see: mailmend runs show {run}",
        ) from error
    return replace(bound, changes=changes)


def plan_keeps(request: "RepairRequest", tables: BoundTables) -> Mapping[str, Any]:
    """What a plan keeps of its tables, as the run that applies it does; nothing for messages."""
    if tables.scope.is_mail:
        return tables.kept
    named = {"projections": file_of(request.projections), "named": request.named}
    return {name: value for name, value in {**named, **tables.kept}.items() if value is not None}


def scope_kept(options: Mapping[str, Any]) -> RunScope:
    """How a run of declared tables is named, by the options that it keeps; without any families."""
    words = []
    if options.get("named"):
        words.append(shlex.quote(str(options["named"])))
    words.append(f"--projections {shlex.quote(str(options.get('projections', 'FILE')))}")
    text = " ".join(words)
    return _scope(text, f"repair {text}")


def _scope(checked: str, repair: str, before_repair: Sequence[str] = ()) -> RunScope:
    """A scope of declared tables that are not bound yet."""
    return RunScope((), is_mail=False, checked=checked, repair=repair, before_repair=before_repair)


def _bound(
    opened: OpenCluster,
    declaration: Declaration,
    live: Schema,
    scope: RunScope,
) -> BoundTables:
    families = declared_families(opened.mail.name, declaration, live)
    kept = kept_of(declaration, families)
    return BoundTables(BoundFamilies(families, (), ()), replace(scope, families=families), kept)


def narrowed(declaration: Declaration, name: str) -> Declaration:
    """The declaration of one projection, or of one truth with all of its projections.

    Raises:
        WrongUse: no truth and no projection has the name.
    """
    wanted = cql_name(name, "table name")
    for truth in declaration.truths:
        if truth.table == wanted:
            return Declaration((truth,))
        if wanted in truth.projections:
            return Declaration((truth.only(wanted),))
    known = [truth.table for truth in declaration.truths]
    known.extend(declaration.projections)
    raise WrongUse(f"the file declares no {name}", mend=names_instead(wanted, known))


def projection_writer(
    opened: OpenCluster,
    truth: str,
    declared: Path | Declaration,
    settings: WriterSettings | None = None,
) -> ProjectionWriter:
    """A writer of a declared truth; the ledger is created if missing.

    Raises:
        WrongUse: the declaration has no such truth, or does not fit the keyspace.
    """
    declaration = declaration_in(declared)
    wanted = cql_name(truth, "table name")
    truths = [found for found in declaration.truths if found.table == wanted]
    if not truths:
        known = [found.table for found in declaration.truths]
        mend = names_instead(truth, known)
        raise WrongUse(f"the declaration has no truth {truth}", mend=mend)
    live = live_schema(opened.cluster, opened.mail.name)
    families = declared_families(opened.mail.name, Declaration(tuple(truths)), live)
    lags = lag_journal(opened, opened.ledger())
    return ProjectionWriter(opened.mail, families, lags, opened.clock, settings=settings)
