"""Grants as `mailmend schema grants` shows them: a script for cqlsh, what a role lacks or has too much, and JSON."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from admin.present.presenter import rows_grid, stdout_console, write_json
from cql.granting import create_role_cql, drop_role_cql, grant_cql, login_cql, revoke_cql
from model.errors import ExitCode
from model.schema.grants import REMARKS, Comparison, Grant, Keyspaces, Resource, Role, absent, grants_of


@dataclass(frozen=True, slots=True)
class Script:
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


def granting(role: Role, name: str, keyspaces: Keyspaces, *, create: bool) -> Script:
    """What grants the role all that it needs on what is there."""
    head = (create_role_cql(name),) if create else ()
    grants = tuple(grant_cql(grant, name) for grant in possible(role, keyspaces))
    gone = tuple(sorted(absent(role, keyspaces)))
    return Script(role, name, head + grants, login_cql(name) if create else "", gone)


def revoking(role: Role, name: str, keyspaces: Keyspaces, *, drop: bool) -> Script:
    """What takes all of it back, and the role itself too where it is asked for."""
    revocations = tuple(revoke_cql(grant, name) for grant in possible(role, keyspaces))
    return Script(role, name, revocations + ((drop_role_cql(name),) if drop else ()), "", ())


def possible(role: Role, keyspaces: Keyspaces) -> tuple[Grant, ...]:
    """What the role needs, on what is there: no server grants anything on the rest."""
    gone = absent(role, keyspaces)
    return tuple(grant for grant in grants_of(role, keyspaces) if grant.on not in gone)


def show_scripts(keyspaces: Keyspaces, creations: Sequence[str], scripts: Sequence[Script], *, as_json: bool) -> int:
    """Print them; what no statement says stands between them as comments, so that all of it can be piped into cqlsh."""
    if as_json:
        write_json(
            _head(keyspaces)
            | {"creations": list(creations), "roles": [_script_json(one) for one in scripts], "exit": 0}
        )
        return int(ExitCode.FINE)
    lines = [line for script in scripts for line in _lines(script)]
    sys.stdout.writelines(f"{text}\n\n" for text in creations)
    sys.stdout.writelines(f"{line}\n" for line in (*lines, *(f"-- {remark}" for remark in REMARKS)))
    return int(ExitCode.FINE)


def _lines(script: Script) -> Iterator[str]:
    yield f"-- {script.name}: {script.role.purpose}"
    yield from script.statements
    if script.login:
        yield f"-- then, by hand: {script.login}"
    if script.absent:
        names = ", ".join(f"{one.keyspace}.{one.table}" for one in script.absent)
        yield f"-- not there, so nothing is granted on: {names}"
    yield ""


def _script_json(script: Script) -> dict[str, Any]:
    return {
        "role": script.role.name,
        "name": script.name,
        "purpose": script.role.purpose,
        "statements": list(script.statements),
        "absent": [f"{one.keyspace}.{one.table}" for one in script.absent],
    }


def show_comparisons(
    keyspaces: Keyspaces, creations: Sequence[str], found: Sequence[tuple[Role, Comparison]], *, as_json: bool
) -> int:
    """Print how far each role is from what it needs, and what mends it: tables of the ledger first, then grants."""
    code = int(ExitCode.FINE if all(one.agrees for _, one in found) else ExitCode.DRIFT)
    if as_json:
        told = [_comparison_json(role, one) for role, one in found]
        write_json(_head(keyspaces) | {"creations": list(creations), "roles": told, "exit": code})
        return code
    console = stdout_console()
    rows = [row for _, one in found for row in _rows(one)]
    if rows:
        console.print(rows_grid(f"Grants on {keyspaces.mail} and {keyspaces.ledger}", ("role", "what", "grant"), rows))
    for role, one in found:
        if one.agrees:
            console.print(f"{one.holding.name} has what it needs for {role.purpose}, and nothing else.", soft_wrap=True)
    sys.stdout.writelines(f"{text}\n\n" for text in creations)
    sys.stdout.writelines(f"{line}\n" for _, one in found for line in mending(one))
    return code


def _rows(comparison: Comparison) -> Iterator[tuple[str, str, str]]:
    name = comparison.holding.name
    if not comparison.holding.exists:
        yield name, "missing", "the role itself"
    if comparison.holding.superuser:
        yield name, "superfluous", "everything: it is a superuser"
    yield from ((name, "missing", f"{grant.permission} ON {grant.on}") for grant in comparison.missing)
    for held in comparison.superfluous:
        through = "" if held.through == name else f" (through {held.through})"
        yield name, "superfluous", f"{held.grant.permission} ON {held.grant.on}{through}"


def mending(comparison: Comparison) -> tuple[str, ...]:
    """The statements that give the role what it needs, and only then take the rest."""
    name, holding = comparison.holding.name, comparison.holding
    create = () if holding.exists else (create_role_cql(name), f"-- then, by hand: {login_cql(name)}")
    demote = (f"ALTER ROLE {name} WITH SUPERUSER = false;",) if holding.superuser else ()
    grants = tuple(grant_cql(grant, name) for grant in comparison.to_grant)
    return (*create, *grants, *(revoke_cql(held.grant, held.through) for held in comparison.superfluous), *demote)


def _comparison_json(role: Role, comparison: Comparison) -> dict[str, Any]:
    return {
        "role": role.name,
        "name": comparison.holding.name,
        "exists": comparison.holding.exists,
        "superuser": comparison.holding.superuser,
        "missing": [_grant_json(grant) for grant in comparison.missing],
        "superfluous": [_grant_json(held.grant) | {"through": held.through} for held in comparison.superfluous],
        "mend": list(mending(comparison)),
    }


def _grant_json(grant: Grant) -> dict[str, str]:
    return {"permission": grant.permission, "on": str(grant.on)}


def _head(keyspaces: Keyspaces) -> dict[str, str]:
    return {"keyspace": keyspaces.mail, "ledger_keyspace": keyspaces.ledger}
