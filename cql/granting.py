"""Roles and grants as CQL, and a role's live grants as the model's values.

No password is ever rendered: a role is created without login, and the person who runs the statements sets one.
"""

import re
from collections.abc import Sequence

from mailmend.cql.introspect import SchemaServer
from mailmend.cql.schema.grants import Grant, HeldGrant, Holding, Resource
from mailmend.model.errors import AccessDenied, WrongUse
from mailmend.model.names import spelled
from mailmend.model.table import Row, identifier

_TABLE = re.compile(r"<table ([^.>]+)\.([^>]+)>")
_KEYSPACE = re.compile(r"<keyspace ([^>]+)>")
_TABLES_OF = re.compile(r"<all tables in ([^>]+)>")
_EVERYTHING = "<all keyspaces>"
_PERMISSION = re.compile(r"[A-Z_]+")
_UNKNOWN_ROLE = re.compile(r"<role .*> doesn't exist")
_NOBODY = "not anonymous"


def create_role_cql(role: str) -> str:
    """CREATE ROLE without login; a person must set a password before the role can log in."""
    return f"CREATE ROLE IF NOT EXISTS {_name(role)} WITH LOGIN = false;"


def drop_role_cql(role: str) -> str:
    return f"DROP ROLE IF EXISTS {_name(role)};"


def login_cql(role: str) -> str:
    """The statement that gives a role its password; a person must fill that in."""
    return f"ALTER ROLE {_name(role)} WITH PASSWORD = '...' AND LOGIN = true;"


def grant_cql(grant: Grant, role: str) -> str:
    """GRANT of one permission, as not every version accepts several at once."""
    return f"GRANT {_permission(grant)} ON {grant.on} TO {_name(role)};"


def revoke_cql(grant: Grant, role: str) -> str:
    return f"REVOKE {_permission(grant)} ON {grant.on} FROM {_name(role)};"


def holding_of(server: SchemaServer, role: str) -> Holding:
    """A role's attributes and permissions, its own and inherited ones.

    Raises:
        AccessDenied: only the role itself and a superuser may ask this, or the cluster has no logins.
        WrongUse: the cluster does not check permissions.
    """
    name = _name(role)
    try:
        roles = _asked(server, f"LIST ROLES OF {name}")
        rows = _asked(server, f"LIST ALL PERMISSIONS OF {name}")
    except WrongUse as error:
        if _UNKNOWN_ROLE.search(error.what):
            return Holding(name, exists=False)
        raise
    held = []
    for row in rows:
        grant = Grant(_resource(row["resource"]), row["permission"])
        held.append(HeldGrant(grant, row["role"]))
    superuser = any(row["super"] for row in roles)
    return Holding(name, superuser=superuser, held=tuple(sorted(held, key=lambda one: (one.grant, one.through))))


def _asked(server: SchemaServer, text: str) -> Sequence[Row]:
    try:
        return server.query(text)
    except AccessDenied as error:
        if _NOBODY in error.what:
            raise WrongUse(
                "this cluster has no logins, so there are no grants to compare",
                mend="Log in with --username; a cluster with AllowAllAuthenticator has no logins.",
            ) from error
        raise AccessDenied(
            error.what, mend="A role may ask for its own grants, and a superuser for all: --username."
        ) from error


def _resource(text: str) -> Resource:
    """The resource as a server lists it; roles, functions and MBeans keep the server's text."""
    if text == _EVERYTHING:
        return Resource()
    if found := _TABLE.fullmatch(text):
        return Resource(found[1], found[2])
    if found := _KEYSPACE.fullmatch(text):
        return Resource(found[1])
    if found := _TABLES_OF.fullmatch(text):
        return Resource(other=f"ALL TABLES IN KEYSPACE {spelled(found[1])}")
    return Resource(other=_in_capitals(text.strip("<>")))


def _in_capitals(words: str) -> str:
    kind, _, name = words.partition(" ")
    if kind == "all":
        return words.upper()
    return f"{kind.upper()} {name}"


def _permission(grant: Grant) -> str:
    if not _PERMISSION.fullmatch(grant.permission):
        raise WrongUse(f"{grant.permission!r} is no permission")
    return grant.permission


def _name(role: str) -> str:
    return identifier(role, "role name")
