"""Grants as documents: a script for cqlsh, what a role lacks or has too much, and JSON."""

from collections.abc import Iterator, Sequence
from typing import Any

from mailmend.admin.frame.document import Document, Grid, Part, Verbatim
from mailmend.admin.frame.values import fields_json
from mailmend.admin.schema.grants_service import GrantsResult, RoleScript, mending
from mailmend.cql.schema.grants import REMARKS, GrantComparison, Role


def document_of(result: GrantsResult) -> Document:
    roles = (
        [_script_json(script) for script in result.scripts]
        if result.compared is None
        else [_comparison_json(role, comparison) for role, comparison in result.compared]
    )
    json = {
        "keyspace": result.keyspaces.mail,
        "ledger_keyspace": result.keyspaces.ledger,
        "creations": list(result.creations),
        "roles": roles,
        "exit": int(result.exit),
    }
    if result.compared is None:
        lines = [line for script in result.scripts for line in _script_lines(script)]
        return Document(json, (_text(result.creations, [*lines, *(f"-- {remark}" for remark in REMARKS)]),))
    return Document(json, tuple(_comparison_parts(result, result.compared)), result.exit)


def _text(creations: Sequence[str], lines: Sequence[str]) -> Verbatim:
    """A script for cqlsh: tables of the ledger first; remarks are comments."""
    return Verbatim("".join(f"{text}\n\n" for text in creations) + "".join(f"{line}\n" for line in lines))


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
    if rows := [row for _, comparison in found for row in _rows(comparison)]:
        yield Grid(f"Grants on {keyspaces.mail} and {keyspaces.ledger}", ("role", "what", "grant"), rows)
    for role, comparison in found:
        if comparison.agrees:
            yield f"{comparison.holding.name} has what it needs for {role.purpose}, and nothing else."
    yield _text(result.creations, [line for _, comparison in found for line in mending(comparison)])


def _rows(comparison: GrantComparison) -> Iterator[tuple[str, str, str]]:
    name = comparison.holding.name
    if not comparison.holding.exists:
        yield name, "missing", "the role itself"
    if comparison.holding.superuser:
        yield name, "superfluous", "everything: it is a superuser"
    yield from ((name, "missing", f"{grant.permission} ON {grant.on}") for grant in comparison.missing)
    for held in comparison.superfluous:
        through = "" if held.through == name else f" (through {held.through})"
        yield name, "superfluous", f"{held.grant.permission} ON {held.grant.on}{through}"


def _comparison_json(role: Role, comparison: GrantComparison) -> dict[str, Any]:
    return {
        "role": role.name,
        **fields_json(comparison.holding, "name", "exists", "superuser"),
        "missing": [{"permission": grant.permission, "on": str(grant.on)} for grant in comparison.missing],
        "superfluous": [
            {"permission": held.grant.permission, "on": str(held.grant.on), "through": held.through}
            for held in comparison.superfluous
        ],
        "mend": list(mending(comparison)),
    }
