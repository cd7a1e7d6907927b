"""`mailmend schema history` and `force-unlock`: what was applied, and who is at work."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import open_cluster
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.options import CONNECTION, flag, option
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.frame.values import fields_json, instant_text, plain, shown
from mailmend.admin.schema.migrating import (
    SPOKEN_OF,
    SchemaRecord,
    again,
    folder_of,
    schema_record_of,
    standing_lease,
    unlock,
)
from mailmend.cql.schema.migrations import (
    Entry,
    MigrationState,
    StatementEntry,
    StatementState,
    Unlock,
)
from mailmend.model.errors import UnsafeRequest
from mailmend.repair.ledger.leases import Lease


@dataclass(frozen=True, slots=True)
class HistoryResult:
    """The history of a keyspace's schema; the folder of the migrations it was made by, None for our own."""

    keyspace: str
    folder: Path | None
    record: SchemaRecord


@dataclass(frozen=True, slots=True)
class UnlockResult:
    """The lease that was ended; None where there was none."""

    keyspace: str
    folder: Path | None
    ended: Unlock | None


def history(connection: ConnectionSettings, migrations: Path | None = None) -> HistoryResult:
    with open_cluster(connection) as opened:
        record = schema_record_of(opened)
    return HistoryResult(connection.keyspace, folder_of(record.past, migrations), record)


def force_unlock(
    connection: ConnectionSettings, reason: str, caller: Caller, *, migrations: Path | None = None, yes: bool = False
) -> UnlockResult:
    """End the lease of an apply that is known to be dead, and record why.

    Raises:
        UnsafeRequest: no reason; or there is no terminal to ask on, or the answer was no.
    """
    reason = reason.strip()
    if not reason:
        raise UnsafeRequest("the reason is empty", mend="Give the reason with --reason, for the next reader.")
    with open_cluster(connection) as opened:
        lease = standing_lease(opened)
        if lease is not None and not yes:
            _ask_about(lease, caller)
        ended = None
        if lease is not None:
            ended = unlock(opened, reason)
        folder = folder_of(schema_record_of(opened).past, migrations)
    return UnlockResult(connection.keyspace, folder, ended)


def _ask_about(lease: Lease, caller: Caller) -> None:
    held = f"{lease.owner} has held it since {lease.acquired_at:%Y-%m-%d %H:%M:%S} UTC, for {lease.purpose}"
    if caller.ask is None:
        raise UnsafeRequest(
            f"the lease is not ended unasked: {held}", mend="Give --yes where you know that it is gone."
        )
    if not caller.ask(f"{held}. Is it surely gone?"):
        raise UnsafeRequest("the lease was left as it is", mend="It expires once it is not renewed any more.")


def history_document(result: HistoryResult) -> Document:
    return Document(history_json(result), tuple(_history_parts(result)))


def history_json(result: HistoryResult) -> dict[str, Any]:
    record = result.record
    return {
        "keyspace": result.keyspace,
        "migrations": [entry_json(entry) for entry in record.past.entries],
        "statements": [_statement_json(statement) for statement in record.past.statements],
        "holder": record.lease and _lease_json(record.lease),
        "unlocks": plain(record.unlocks),
        "exit": 0,
    }


def entry_json(entry: Entry) -> dict[str, Any]:
    timed = ("state", "statements", "done", "checksum", "chain", "started_at", "ended_at", "owner", "version")
    return {
        "migration": str(entry.file),
        "number": entry.number,
        "phase": entry.file.phase.value,
        **fields_json(entry, *timed),
        "note": entry.note or None,
    }


def _statement_json(one: StatementEntry) -> dict[str, Any]:
    fields = fields_json(one, "number", "position", "state", "cql", "started_at", "ended_at")
    return {**fields, "error": one.error or None}


def _lease_json(lease: Lease) -> dict[str, Any]:
    since = instant_text(lease.acquired_at)
    until = instant_text(lease.expires_at)
    return {"owner": lease.owner, "purpose": lease.purpose, "since": since, "until": until}


def _history_parts(result: HistoryResult) -> Iterator[Part]:
    keyspace = result.keyspace
    found = result.record
    entries = found.past.entries
    statements = found.past.statements
    if entries:
        columns = ("migration", "state", "done", "when", "by")
        yield Grid(f"Schema of {keyspace}", columns, [_entry_cells(entry) for entry in entries], frozenset({"by"}))
    else:
        yield f"{keyspace} has no history: no migration was applied, nothing was adopted."
    for note in dict.fromkeys(entry.note for entry in entries if entry.note):
        yield f"Baseline: {note}."
    if statements:
        columns = ("migration", "statement", "state", "what", "error")
        rows = [_statement_cells(statement) for statement in statements]
        yield Grid("Statements of what has not ended", columns, rows, frozenset({"state", "what", "error"}))
    if found.unlocks:
        unlocks = []
        for unlock in found.unlocks:
            unlocks.append((shown(unlock.at), unlock.holder, unlock.by, unlock.reason))
        wrapped = frozenset({"holder", "by", "reason"})
        yield Grid("Ended by force", ("at", "holder", "by", "reason"), unlocks, wrapped)
    if found.lease:
        yield f"At work: {found.lease.owner}, until {shown(found.lease.expires_at)} UTC unless renewed."
    elif statements or any(not entry.ended for entry in entries):
        yield f"No process is at work. To go on: mailmend schema apply{again(result.keyspace, result.folder)}"


def _entry_cells(entry: Entry) -> Sequence[str]:
    counted = f"{entry.done}/{entry.statements}"
    if entry.state is MigrationState.BASELINE:
        counted = ""
    return (str(entry.file), entry.state.value, counted, shown(entry.ended_at or entry.started_at), entry.owner)


def _statement_cells(statement: StatementEntry) -> Sequence[str]:
    first, *_ = statement.cql.splitlines()
    state = statement.state.value
    if statement.state is StatementState.BEGUN:
        state = "begun (the next apply looks whether it took effect)"
    return (f"{statement.number:04}", str(statement.position + 1), state, first, statement.error)


def unlock_document(result: UnlockResult) -> Document:
    ended = result.ended
    if ended is None:
        json = {"keyspace": result.keyspace, "ended": None, "exit": 0}
        return Document(json, ("The lease is free.",))
    json = {"keyspace": result.keyspace, "ended": ended.holder, "exit": 0}
    plan = f"mailmend schema plan{again(result.keyspace, result.folder)}"
    hint = f"Next: {plan} says where it stopped; schema apply goes on from there."
    return Document(json, (f"Ended the lease of {ended.holder}.",), hints=(hint,))


HISTORY: Final = Command(
    name="history",
    summary="What was applied, when, by whom; who is at work.",
    about="""Writes nothing. `running` is a migration that an apply works on, or was interrupted in: its statements are
    listed. `baseline` is one that was never run here, for what it makes was there already.""",
    service="mailmend.admin.schema.history:history",
    present="mailmend.admin.schema.history:history_document",
    options=(SPOKEN_OF,),
    shared=(CONNECTION,),
    examples="""
        mailmend schema history                       every migration, and who is at work
        mailmend schema history --migrations db --keyspace shop
        mailmend schema history --json | jq '.migrations[] | select(.state == "running")'""",
    exits="0 it was shown, also an empty one; 2 wrong use; 4 the cluster cannot be reached.",
)

FORCE_UNLOCK: Final = Command(
    name="force-unlock",
    summary="End the lease of an apply that is gone.",
    about="""If it still works, it stops before its next statement. Who held it, who ended it and why is kept: `mailmend
    schema history` shows it. A lease that is not renewed expires within a minute: waiting is safer.""",
    service="mailmend.admin.schema.history:force_unlock",
    present="mailmend.admin.schema.history:unlock_document",
    options=(
        option("--reason", "Reason: kept in the history, with your name.", required=True, metavar="TEXT"),
        SPOKEN_OF,
        flag("--yes", "Do not ask."),
    ),
    shared=(CONNECTION,),
    examples="""
        mailmend schema history                                          who holds the lease, since when, until when
        mailmend schema force-unlock --reason 'pod apply-7 was evicted'  asks, then ends it
        mailmend schema force-unlock --reason '...' --yes                without asking""",
    exits="0 it is ended, or was not held; 2 wrong use, or the answer was no; 4 the cluster cannot be reached.",
)
