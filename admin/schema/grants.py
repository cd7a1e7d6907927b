"""`mailmend schema grants`: the least privileges of each role, for cqlsh, or compared with what a cluster grants."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster, open_cluster
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Grid, Part, Verbatim
from mailmend.admin.frame.kinds import ParsedValue
from mailmend.admin.frame.options import connection_where, flag, option
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.frame.values import fields_json
from mailmend.cql.applying import ledger_steps
from mailmend.cql.granting import create_role_cql, drop_role_cql, grant_cql, holding_of, login_cql, revoke_cql
from mailmend.cql.introspect import live_schema
from mailmend.cql.schema.grants import (
    REMARKS,
    ROLES,
    Grant,
    GrantComparison,
    Keyspaces,
    Resource,
    Role,
    absent,
    compared,
    grants_of,
    has_work,
)
from mailmend.model.catalog.james_tables import naming_blobs
from mailmend.model.errors import ExitCode, WrongUse
from mailmend.model.table import identifier, names_of

PREFIX = "mailmend_"


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantsRequest:
    """For which roles, and in which form."""

    connection: ConnectionSettings
    roles: tuple[str, ...] = ()
    name_prefix: str = PREFIX
    with_create_role: bool = False
    revoke: bool = False
    everything: bool = False
    check: bool = False


@dataclass(frozen=True, slots=True)
class RoleScript:
    """The statements for one role.

    Attributes:
        login: what gives the role its password, where the script creates the role; for a person to complete.
        absent: tables that the role needs and that are not there.
    """

    role: Role
    name: str
    statements: tuple[str, ...]
    login: str
    absent: tuple[Resource, ...]


@dataclass(frozen=True, slots=True)
class GrantsResult:
    """Scripts, or comparisons.

    Attributes:
        creations: CQL of the ledger's tables that are missing; it comes first.
    """

    keyspaces: Keyspaces
    creations: tuple[str, ...] = ()
    scripts: tuple[RoleScript, ...] = ()
    compared: tuple[tuple[Role, GrantComparison], ...] | None = None

    @property
    def exit(self) -> ExitCode:
        for _, comparison in self.compared or ():
            if not comparison.agrees:
                return ExitCode.DRIFT
        return ExitCode.FINE


def grants(request: GrantsRequest, _: Caller) -> GrantsResult:
    """What each role needs; nothing is executed, and no password is ever part of it.

    Raises:
        WrongUse: a comparison together with what changes something.
        UnknownKeyspace: there is no mail keyspace.
    """
    if request.check and (request.revoke or request.everything or request.with_create_role):
        raise WrongUse("--check only compares", mend="Leave out --revoke, --all and --with-create-role.")
    connection = request.connection
    named = tuple(ROLES[name] for name in dict.fromkeys(request.roles))
    if request.everything:
        keyspaces = Keyspaces(connection.keyspace, connection.ledger_keyspace)
        return GrantsResult(keyspaces, scripts=_scripts(request, named or tuple(ROLES.values()), keyspaces))
    with open_cluster(connection) as opened:
        keyspaces = _live(opened, ledger_too=request.revoke)
        wanted = named or tuple(role for role in ROLES.values() if has_work(role, keyspaces))
        creations: tuple[str, ...] = ()
        if not request.revoke:
            creations = tuple(step.cql for step in ledger_steps(opened.cluster, keyspaces.ledger, keyspaces.mail))
        if request.check:
            found = []
            for role in wanted:
                holding = holding_of(opened.cluster, request.name_prefix + role.name)
                found.append((role, compared(possible(role, keyspaces), holding)))
            return GrantsResult(keyspaces, creations, compared=tuple(found))
    return GrantsResult(keyspaces, creations, _scripts(request, wanted, keyspaces))


def granting(role: Role, name: str, keyspaces: Keyspaces, *, create: bool) -> RoleScript:
    statements = [grant_cql(grant, name) for grant in possible(role, keyspaces)]
    login = ""
    if create:
        statements.insert(0, create_role_cql(name))
        login = login_cql(name)
    gone = tuple(sorted(absent(role, keyspaces)))
    return RoleScript(role, name, tuple(statements), login, gone)


def revoking(role: Role, name: str, keyspaces: Keyspaces, *, drop: bool) -> RoleScript:
    statements = [revoke_cql(grant, name) for grant in possible(role, keyspaces)]
    if drop:
        statements.append(drop_role_cql(name))
    return RoleScript(role, name, tuple(statements), "", ())


def possible(role: Role, keyspaces: Keyspaces) -> tuple[Grant, ...]:
    """What the role needs on existing tables: no server grants anything on the rest."""
    gone = absent(role, keyspaces)
    return tuple(grant for grant in grants_of(role, keyspaces) if grant.on not in gone)


def mending(comparison: GrantComparison) -> tuple[str, ...]:
    holding = comparison.holding
    name = holding.name
    statements = []
    if not holding.exists:
        statements += [create_role_cql(name), f"-- then, by hand: {login_cql(name)}"]
    for grant in comparison.to_grant:
        statements.append(grant_cql(grant, name))
    for held in comparison.superfluous:
        statements.append(revoke_cql(held.grant, held.through))
    if holding.superuser:
        statements.append(f"ALTER ROLE {name} WITH SUPERUSER = false;")
    return tuple(statements)


def _scripts(request: GrantsRequest, wanted: Sequence[Role], keyspaces: Keyspaces) -> tuple[RoleScript, ...]:
    roles = request.with_create_role
    scripts = []
    for role in wanted:
        name = request.name_prefix + role.name
        if request.revoke:
            scripts.append(revoking(role, name, keyspaces, drop=roles))
        else:
            scripts.append(granting(role, name, keyspaces, create=roles))
    return tuple(scripts)


def _live(opened: OpenCluster, *, ledger_too: bool) -> Keyspaces:
    """Tables of the mail keyspace; all ledger tables count as existing, as the script creates them."""
    ledger = opened.connection.ledger_keyspace
    there = None
    if ledger_too:
        there = frozenset(names_of(live_schema(opened.cluster, ledger).tables))
    tables = live_schema(opened.cluster, opened.mail.name).tables
    referring = frozenset(names_of(table for table in tables if naming_blobs(table)))
    return Keyspaces(opened.mail.name, ledger, frozenset(names_of(tables)), there, referring)


def document_of(result: GrantsResult) -> Document:
    roles = []
    body: list[Part] = []
    if result.compared is None:
        lines: list[str] = []
        for script in result.scripts:
            roles.append(_script_json(script))
            lines += _script_lines(script)
        for remark in REMARKS:
            lines.append(f"-- {remark}")
        body.append(_text(result.creations, lines))
    else:
        for role, comparison in result.compared:
            roles.append(_comparison_json(role, comparison))
        body += _comparison_parts(result, result.compared)
    json = {
        "keyspace": result.keyspaces.mail,
        "ledger_keyspace": result.keyspaces.ledger,
        "creations": list(result.creations),
        "roles": roles,
        "exit": int(result.exit),
    }
    return Document(json, body, result.exit)


def _text(creations: Sequence[str], lines: Sequence[str]) -> Verbatim:
    """A script for cqlsh: tables of the ledger first; remarks are comments."""
    script = []
    for creation in creations:
        script += [creation, ""]
    script += lines
    return Verbatim("".join(f"{line}\n" for line in script))


def _script_lines(script: RoleScript) -> Iterator[str]:
    yield f"-- {script.name}: {script.role.purpose}"
    yield from script.statements
    if script.login:
        yield f"-- then, by hand: {script.login}"
    if script.absent:
        yield f"-- not there, so nothing is granted on: {', '.join(_absent(script))}"
    yield ""


def _absent(script: RoleScript) -> list[str]:
    return [f"{resource.keyspace}.{resource.table}" for resource in script.absent]


def _script_json(script: RoleScript) -> dict[str, Any]:
    return {
        "role": script.role.name,
        "name": script.name,
        "purpose": script.role.purpose,
        "statements": list(script.statements),
        "absent": _absent(script),
    }


def _comparison_parts(result: GrantsResult, found: Sequence[tuple[Role, GrantComparison]]) -> Iterator[Part]:
    keyspaces = result.keyspaces
    rows: list[tuple[str, str, str]] = []
    agreeing: list[str] = []
    statements: list[str] = []
    for role, comparison in found:
        rows += _rows(comparison)
        if comparison.agrees:
            agreeing.append(f"{comparison.holding.name} has what it needs for {role.purpose}, and nothing else.")
        statements += mending(comparison)
    if rows:
        yield Grid(f"Grants on {keyspaces.mail} and {keyspaces.ledger}", ("role", "what", "grant"), rows)
    yield from agreeing
    yield _text(result.creations, statements)


def _rows(comparison: GrantComparison) -> Iterator[tuple[str, str, str]]:
    name = comparison.holding.name
    if not comparison.holding.exists:
        yield name, "missing", "the role itself"
    if comparison.holding.superuser:
        yield name, "superfluous", "everything: it is a superuser"
    for grant in comparison.missing:
        yield name, "missing", f"{grant.permission} ON {grant.on}"
    for held in comparison.superfluous:
        grant_text = f"{held.grant.permission} ON {held.grant.on}"
        if held.through != name:
            grant_text += f" (through {held.through})"
        yield name, "superfluous", grant_text


def _comparison_json(role: Role, comparison: GrantComparison) -> dict[str, Any]:
    missing = []
    for grant in comparison.missing:
        missing.append({"permission": grant.permission, "on": str(grant.on)})
    superfluous = []
    for held in comparison.superfluous:
        grant = held.grant
        superfluous.append({"permission": grant.permission, "on": str(grant.on), "through": held.through})
    return {
        "role": role.name,
        **fields_json(comparison.holding, "name", "exists", "superuser"),
        "missing": missing,
        "superfluous": superfluous,
        "mend": list(mending(comparison)),
    }


_PREFIX: Final = ParsedValue("prefix", lambda value: identifier(f"{value}x", "prefix")[:-1])

GRANTS: Final = Command(
    name="grants",
    summary="The least that each role needs, as CQL; --check compares.",
    about="""The command runs none of the statements, and never prints a password. Without --role it shows every role
    for which a table exists. Permissions can be granted only on tables that exist: the script creates missing tables
    of the ledger, and the command names missing mail tables.""",
    service="mailmend.admin.schema.grants:grants",
    present="mailmend.admin.schema.grants:document_of",
    paged=True,
    options=(
        option(
            "--role",
            "Only what this role needs; may be given again.",
            "roles",
            type=click.Choice(tuple(ROLES)),
            multiple=True,
        ),
        option("--name-prefix", "What the roles' names begin with.", type=_PREFIX, default=PREFIX),
        flag("--with-create-role", "Create the roles first, without a login: the password is yours."),
        flag("--revoke", "Take it back: REVOKE instead of GRANT; with --with-create-role DROP ROLE too."),
        flag("--all", "All of them: on tables that are not there too; asks no cluster.", "everything"),
        flag("--check", "Compare only: with what the cluster grants, and print what would mend it."),
    ),
    shared=(connection_where(lambda others: not others["everything"]),),
    examples="""
        mailmend schema grants --with-create-role | cqlsh -u dba         roles without a login, and all that they need
        mailmend schema grants --role reader --role repairer             of two roles
        mailmend schema grants --role repairer --check                   what is missing, what is too much
        mailmend schema grants --check --json                            the same, for a script
        mailmend schema grants --role loader --revoke | cqlsh -u dba     take it back""",
    exits="0 fine, 1 --check found something missing or superfluous, 2 wrong use, 4 the cluster cannot be reached, or "
    "does not let us ask.",
)
