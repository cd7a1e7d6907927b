"""The least privileges of each role: as CQL for cqlsh, or compared with what a cluster grants."""

from collections.abc import Sequence
from dataclasses import dataclass

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster, open_cluster
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.cql.applying import ledger_steps
from mailmend.cql.granting import create_role_cql, drop_role_cql, grant_cql, holding_of, login_cql, revoke_cql
from mailmend.cql.introspect import live_schema
from mailmend.cql.schema.grants import (
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
from mailmend.model.catalog.blob_columns import naming_blobs
from mailmend.model.errors import ExitCode, WrongUse

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
        return ExitCode.FINE if all(comparison.agrees for _, comparison in self.compared or ()) else ExitCode.DRIFT


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
        steps = () if request.revoke else ledger_steps(opened.cluster, keyspaces.ledger, keyspaces.mail)
        creations = tuple(step.cql for step in steps)
        if request.check:
            prefix = request.name_prefix
            server = opened.cluster
            found = tuple(
                (role, compared(possible(role, keyspaces), holding_of(server, prefix + role.name))) for role in wanted
            )
            return GrantsResult(keyspaces, creations, compared=found)
    return GrantsResult(keyspaces, creations, _scripts(request, wanted, keyspaces))


def granting(role: Role, name: str, keyspaces: Keyspaces, *, create: bool) -> RoleScript:
    head = (create_role_cql(name),) if create else ()
    statements = tuple(grant_cql(grant, name) for grant in possible(role, keyspaces))
    gone = tuple(sorted(absent(role, keyspaces)))
    return RoleScript(role, name, head + statements, login_cql(name) if create else "", gone)


def revoking(role: Role, name: str, keyspaces: Keyspaces, *, drop: bool) -> RoleScript:
    revocations = tuple(revoke_cql(grant, name) for grant in possible(role, keyspaces))
    return RoleScript(role, name, revocations + ((drop_role_cql(name),) if drop else ()), "", ())


def possible(role: Role, keyspaces: Keyspaces) -> tuple[Grant, ...]:
    """What the role needs on existing tables: no server grants anything on the rest."""
    gone = absent(role, keyspaces)
    return tuple(grant for grant in grants_of(role, keyspaces) if grant.on not in gone)


def mending(comparison: GrantComparison) -> tuple[str, ...]:
    name = comparison.holding.name
    holding = comparison.holding
    create = () if holding.exists else (create_role_cql(name), f"-- then, by hand: {login_cql(name)}")
    demote = (f"ALTER ROLE {name} WITH SUPERUSER = false;",) if holding.superuser else ()
    give = tuple(grant_cql(grant, name) for grant in comparison.to_grant)
    return (*create, *give, *(revoke_cql(held.grant, held.through) for held in comparison.superfluous), *demote)


def _scripts(request: GrantsRequest, wanted: Sequence[Role], keyspaces: Keyspaces) -> tuple[RoleScript, ...]:
    prefix = request.name_prefix
    roles = request.with_create_role
    if request.revoke:
        return tuple(revoking(role, prefix + role.name, keyspaces, drop=roles) for role in wanted)
    return tuple(granting(role, prefix + role.name, keyspaces, create=roles) for role in wanted)


def _live(opened: OpenCluster, *, ledger_too: bool) -> Keyspaces:
    """Tables of the mail keyspace; all ledger tables count as existing, as the script creates them."""
    ledger = opened.connection.ledger_keyspace
    there = frozenset(table.name for table in live_schema(opened.cluster, ledger).tables) if ledger_too else None
    mail = live_schema(opened.cluster, opened.mail.name)
    referring = frozenset(table.name for table in mail.tables if naming_blobs(table))
    return Keyspaces(opened.mail.name, ledger, frozenset(table.name for table in mail.tables), there, referring)
