"""`mailmend schema history`: what was applied to a keyspace, when, by whom; what is in flight; what was unlocked."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click

from admin.cli.options import connection_options
from admin.migrating import Told, told_of
from admin.present.presenter import rows_grid, stdout_console, write_json
from admin.settings import ConnectionSettings
from admin.wiring import open_place
from model.migrations.history import Entry, MigrationState, StatementEntry, StatementState, Unlock
from repair.ledger.leases import Lease

_EPILOG = """\b
Examples:
  mailmend schema history                       every migration, and who is at work
  mailmend schema history --json | jq '.migrations[] | select(.state == "running")'

\b
Exit codes: 0 it was shown, also where there is none; 2 wrong use; 4 the cluster cannot be reached."""

_COLUMNS: Final = ("migration", "state", "done", "when", "by")


@click.command(epilog=_EPILOG)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@connection_options
def history(connection: ConnectionSettings, *, as_json: bool) -> None:
    """Show what was applied to the keyspace, in order: when, by whom, how far. Writes nothing.

    `running` is a migration that an apply works on, or was interrupted in: its statements are listed. `baseline` is
    one that was never run here, for what it makes was there already.
    """
    with open_place(connection) as place:
        told = told_of(place)
    if as_json:
        write_json(told_json(connection.keyspace, told))
    else:
        _show(connection.keyspace, told)


def told_json(keyspace: str, told: Told) -> dict[str, Any]:
    """The history under the names that scripts rely on."""
    return {
        "keyspace": keyspace,
        "migrations": [entry_json(one) for one in told.past.entries],
        "statements": [_statement_json(one) for one in told.past.statements],
        "holder": _lease_json(told.lease) if told.lease else None,
        "unlocks": [_unlock_json(one) for one in told.unlocks],
        "exit": 0,
    }


def entry_json(entry: Entry) -> dict[str, Any]:
    """One migration of the history."""
    return {
        "migration": str(entry.file),
        "number": entry.number,
        "phase": entry.file.phase.value,
        "state": entry.state.value,
        "statements": entry.statements,
        "done": entry.done,
        "checksum": entry.checksum,
        "chain": entry.chain,
        "started_at": _instant(entry.started_at),
        "ended_at": _instant(entry.ended_at),
        "owner": entry.owner,
        "version": entry.version,
        "note": entry.note or None,
    }


def _statement_json(one: StatementEntry) -> dict[str, Any]:
    return {
        "number": one.number,
        "position": one.position,
        "state": one.state.value,
        "cql": one.cql,
        "started_at": _instant(one.started_at),
        "ended_at": _instant(one.ended_at),
        "error": one.error or None,
    }


def _lease_json(lease: Lease) -> dict[str, Any]:
    return {
        "owner": lease.owner,
        "purpose": lease.purpose,
        "since": _instant(lease.acquired_at),
        "until": _instant(lease.expires_at),
    }


def _unlock_json(one: Unlock) -> dict[str, Any]:
    return {"at": _instant(one.at), "holder": one.holder, "by": one.by, "reason": one.reason}


def _show(keyspace: str, told: Told) -> None:
    console = stdout_console()
    if not told.past.entries:
        console.print(f"{keyspace} has no history: no migration was applied, nothing was adopted.", soft_wrap=True)
    else:
        console.print(rows_grid(f"Schema of {keyspace}", _COLUMNS, [_cells(one) for one in told.past.entries]))
    for note in dict.fromkeys(one.note for one in told.past.entries if one.note):
        console.print(f"Baseline: {note}.", soft_wrap=True, markup=False)
    if told.past.statements:
        columns = ("migration", "statement", "state", "what", "error")
        rows = [_statement_cells(one) for one in told.past.statements]
        console.print(rows_grid("Statements of what has not ended", columns, rows))
    if told.unlocks:
        unlocks = [(_shown(one.at), one.holder, one.by, one.reason) for one in told.unlocks]
        console.print(rows_grid("Ended by force", ("at", "holder", "by", "reason"), unlocks))
    if told.lease:
        until = _shown(told.lease.expires_at)
        console.print(f"At work: {told.lease.owner}, until {until} UTC unless renewed.", soft_wrap=True, markup=False)
    elif told.past.statements or any(not one.ended for one in told.past.entries):
        console.print(f"Nobody is at work. To go on: mailmend schema apply --keyspace {keyspace}", soft_wrap=True)


def _cells(one: Entry) -> Sequence[str]:
    counted = "" if one.state is MigrationState.BASELINE else f"{one.done}/{one.statements}"
    return (str(one.file), one.state.value, counted, _shown(one.ended_at or one.started_at), one.owner)


def _statement_cells(one: StatementEntry) -> Sequence[str]:
    first, *_ = one.cql.splitlines()
    state = (
        "begun (the next apply looks whether it took effect)" if one.state is StatementState.BEGUN else one.state.value
    )
    return (f"{one.number:04}", str(one.position + 1), state, first, one.error)


def _shown(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _instant(at: datetime | None) -> str | None:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z") if at else None
