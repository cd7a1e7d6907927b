"""The state of the schema as documents: verification, history, a lease ended by force, an adoption."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final

from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.values import fields_json, instant_text, plain, shown
from mailmend.admin.schema.history_service import (
    ADOPTED,
    AdoptResult,
    ForgetResult,
    HistoryResult,
    UnlockResult,
    VerifyResult,
)
from mailmend.admin.schema.schema_document import (
    AS_EXPECTED,
    difference_json,
    differences_table,
    generation_line,
    mend_of,
    optional_json,
    optional_text,
    recognition_json,
)
from mailmend.cql.schema.difference import Aspect, Difference
from mailmend.cql.schema.migrations.adoption import Standing
from mailmend.cql.schema.migrations.history import Baseline, Entry, MigrationState, StatementEntry, StatementState
from mailmend.model.errors import TABLES_SHOWN, ExitCode
from mailmend.model.texts import keyspace_option
from mailmend.repair.ledger.leases import Lease

_IN_FLIGHT: Final = "migration in flight"


def verify_document(result: VerifyResult) -> Document:
    return Document(verified_json(result), tuple(_verified_parts(result)), result.exit)


def verified_json(result: VerifyResult) -> dict[str, Any]:
    found = result.found
    recognition = result.found.against.recognition
    return {
        "keyspace": result.keyspace,
        "generation": recognition.generation.name if recognition else None,
        "made_here": recognition.made_here if recognition else None,
        "adopted": found.baseline is not None,
        "drift": [
            *(difference_json(difference) | {"mend": _mend(result, difference)} for difference in found.against.drift),
            *(_history_json(drift.kind.value, drift.file, drift.why, drift.mend) for drift in found.tampering),
            *(
                _history_json(_IN_FLIGHT, str(entry.file), _why(entry), _mend_running(result))
                for entry in found.running
            ),
        ],
        "notes": [difference_json(note) for note in found.against.notes],
        "not_compared": list(result.not_compared),
        "history": {"applied": found.applied, "pending": list(found.pending)} if found.applied is not None else None,
        "since_adoption": [{"change": since.value, "object": name} for since, name in found.since],
        "exit": int(result.exit),
    }


def _history_json(aspect: str, file: str, why: str, mend: str) -> dict[str, str]:
    return {"aspect": aspect, "table": "", "subject": file, "expected": "", "found": "", "why": why, "mend": mend}


def _why(entry: Entry) -> str:
    done = f"{entry.done} of {entry.statements} statements are done"
    return f"begun {entry.started_at:%Y-%m-%d %H:%M} UTC by {entry.owner}, {done}"


def _mend_running(result: VerifyResult) -> str:
    return f"mailmend schema apply{_again(result)}"


def _mend(result: VerifyResult, difference: Difference) -> str:
    recognition = result.found.against.recognition
    if result.found.running:
        return f"first what has not ended, as said of it; then again: mailmend schema verify{_again(result)}"
    if _of_others(result):
        return f"nothing here: {result.keyspace} is another application's; name the mail keyspace with --keyspace"
    if recognition:
        return mend_of(difference, result.keyspace, made_here=recognition.made_here)
    if result.found.tampering:
        return f"first the migrations, as said of them; then again: mailmend schema verify{_again(result)}"
    return _planned_mend(result, difference)


def _of_others(result: VerifyResult) -> tuple[str, ...]:
    """The tables of another application; none where our migrations were applied among them."""
    recognition = result.found.against.recognition
    return recognition.others if recognition and not result.found.applied else ()


def _planned_mend(result: VerifyResult, difference: Difference) -> str:
    plan = f"mailmend schema plan --from-model{_again(result)}"
    match difference.aspect:
        case Aspect.DIFFERENT_OPTION:
            return f"{plan} --include-options | cqlsh"
        case Aspect.UNEXPECTED_COLUMN | Aspect.UNEXPECTED_TABLE | Aspect.UNEXPECTED_TYPE:
            return f"leave it, or: {plan} --include-drops | cqlsh"
        case Aspect.UNEXPECTED_INDEX | Aspect.UNEXPECTED_VIEW:
            return f"leave it, or: {plan} --include-drops | cqlsh"
        case Aspect.DIFFERENT_KEY | Aspect.DIFFERENT_ORDER | Aspect.DIFFERENT_COLUMN | Aspect.DIFFERENT_TYPE:
            return f"by hand; how says: {plan}"
        case _:
            return f"{plan} | cqlsh"


def _verified_parts(result: VerifyResult) -> Iterator[Part]:
    found = result.found
    yield from _head_lines(result)
    if result.not_compared:
        yield f"Not compared: {'; '.join(result.not_compared)}."
    if found.against.notes:
        yield differences_table("Noted, not wrong", found.against.notes)
    if found.agrees:
        yield AS_EXPECTED
        return
    if found.against.drift:
        yield differences_table("Drift", found.against.drift)
    yield from _drift_lines(result)


def _head_lines(result: VerifyResult) -> Iterator[str]:
    name = result.keyspace
    found = result.found
    recognition = result.found.against.recognition
    if others := _of_others(result):
        yield f"{name} holds no mail, but tables of another application: {', '.join(others[:TABLES_SHOWN])}."
    elif recognition:
        yield generation_line(name, recognition)
        if not recognition.made_here and result.found.baseline is None:
            yield f"It was not adopted; take it over with: mailmend schema adopt {keyspace_option(name)}"
    if found.baseline:
        yield (
            f"Adopted {found.baseline.adopted_at:%Y-%m-%d} as generation {found.baseline.generation}, "
            f"fingerprint {found.baseline.fingerprint}."
        )
    for since, changed in found.since:
        yield f"{since.value}: {changed}"
    if found.applied is not None:
        yield f"{name}: {found.applied} migrations applied, {len(found.pending)} pending."
    if found.pending and found.applied:
        yield f"Pending: {', '.join(found.pending)}; see: mailmend schema plan{_again(result)}"


def _drift_lines(result: VerifyResult) -> Iterator[str]:
    for difference in result.found.against.drift:
        place = f"{difference.owner}.{difference.subject}" if difference.subject else difference.owner
        yield f"{place}: {_mend(result, difference)}"
    for drift in result.found.tampering:
        yield f"{drift}. {drift.mend}"
    for entry in result.found.running:
        yield f"{_IN_FLIGHT}: {entry.file}: {_why(entry)}: {_mend_running(result)}"


def _again(result: VerifyResult | HistoryResult | UnlockResult) -> str:
    """The options that name the same keyspace and the same migrations once more."""
    folder = f" --migrations {shlex.quote(str(result.folder))}" if result.folder else ""
    return f"{folder} {keyspace_option(result.keyspace)}"


def history_document(result: HistoryResult) -> Document:
    return Document(history_json(result), tuple(_history_parts(result)))


def history_json(result: HistoryResult) -> dict[str, Any]:
    record = result.record
    return {
        "keyspace": result.keyspace,
        "migrations": [entry_json(entry) for entry in record.past.entries],
        "statements": [_statement_json(statement) for statement in record.past.statements],
        "holder": _lease_json(record.lease) if record.lease else None,
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
        unlocks = [(shown(unlock.at), unlock.holder, unlock.by, unlock.reason) for unlock in found.unlocks]
        wrapped = frozenset({"holder", "by", "reason"})
        yield Grid("Ended by force", ("at", "holder", "by", "reason"), unlocks, wrapped)
    if found.lease:
        yield f"At work: {found.lease.owner}, until {shown(found.lease.expires_at)} UTC unless renewed."
    elif statements or any(not entry.ended for entry in entries):
        yield f"Nobody is at work. To go on: mailmend schema apply{_again(result)}"


def _entry_cells(one: Entry) -> Sequence[str]:
    counted = "" if one.state is MigrationState.BASELINE else f"{one.done}/{one.statements}"
    return (str(one.file), one.state.value, counted, shown(one.ended_at or one.started_at), one.owner)


def _statement_cells(one: StatementEntry) -> Sequence[str]:
    first, *_ = one.cql.splitlines()
    state = (
        "begun (the next apply looks whether it took effect)" if one.state is StatementState.BEGUN else one.state.value
    )
    return (f"{one.number:04}", str(one.position + 1), state, first, one.error)


def unlock_document(result: UnlockResult) -> Document:
    ended = result.ended
    json = {"keyspace": result.keyspace, "ended": ended.holder if ended else None, "exit": 0}
    if ended is None:
        return Document(json, ("Nobody holds the lease.",))
    next_ = f"Next: mailmend schema plan{_again(result)} says where it stopped; schema apply goes on from there."
    return Document(json, (f"Ended the lease of {ended.holder}.",), hints=(next_,))


def adopt_document(result: AdoptResult | ForgetResult) -> Document:
    if isinstance(result, ForgetResult):
        return _forget_document(result)
    return Document(adopt_json(result), tuple(_adopt_parts(result)), result.exit)


def _forget_document(result: ForgetResult) -> Document:
    baseline = result.baseline
    keyspace = result.keyspace
    forgotten = _baseline_json(baseline) if baseline else None
    json = {"keyspace": keyspace, "forgotten": forgotten, "dry_run": result.dry_run, "exit": int(ExitCode.FINE)}
    if baseline is None:
        return Document(json, (f"{keyspace} was not adopted: there is nothing to forget.",))
    would = "would be forgotten" if result.dry_run else "is forgotten; mailmend schema adopt takes it over again"
    return Document(json, (f"{keyspace}: the adoption as {baseline.generation} {would}.",))


def adopt_json(outcome: AdoptResult) -> dict[str, Any]:
    recognition = outcome.adoption.recognition
    return {
        **recognition_json(outcome.keyspace, recognition),
        "standing": outcome.adoption.standing.value,
        "adopted": outcome.wrote,
        "against": [difference_json(difference) for difference in outcome.adoption.against],
        "baseline": _baseline_json(outcome.baseline) if outcome.baseline else None,
        "optional": [
            optional_json(migration, outcome.live, outcome.keyspace, outcome.server)
            for migration in outcome.adoption.optional
        ],
        "schema_version": _version_json(outcome),
        "dry_run": outcome.dry_run,
        "exit": int(outcome.exit),
    }


def _baseline_json(baseline: Baseline) -> dict[str, Any]:
    fields = fields_json(baseline, "generation", "fingerprint", "migrations", "owner", "version")
    return {**fields, "adopted_at": baseline.adopted_at}


def _version_json(outcome: AdoptResult) -> dict[str, Any] | None:
    written = outcome.version
    if written is None:
        return None
    return {
        **fields_json(written.step, "before", "assumed", "after"),
        "written": written.key is not None,
        "caution": written.step.caution or None,
        "undo": written.undo(outcome.keyspace) or None,
    }


def _adopt_parts(outcome: AdoptResult) -> Iterator[Part]:
    yield from _adopt_lines(outcome)
    if outcome.adoption.against:
        yield differences_table("Against it", outcome.adoption.against)
    if outcome.adoption.standing not in ADOPTED:
        return
    if outcome.adoption.optional:
        yield optional_text(outcome.adoption.optional, outcome.live, outcome.keyspace, outcome.server)
    else:
        yield "Of what James's upgrade notes leave to the operator nothing is left to do."


def _adopt_lines(outcome: AdoptResult) -> Iterator[str]:
    name = outcome.keyspace
    recognition = outcome.adoption.recognition
    yield _SAID[outcome.adoption.standing].format(
        name=name,
        generation=recognition.generation.name,
        done="would be adopted" if outcome.dry_run else "is adopted",
        option=keyspace_option(outcome.keyspace),
        when=f"{outcome.baseline.adopted_at:%Y-%m-%d %H:%M} UTC by {outcome.baseline.owner}"
        if outcome.baseline
        else "",
    )
    if outcome.baseline:
        count = len(outcome.baseline.migrations)
        yield f"Fingerprint {outcome.baseline.fingerprint}; {count} migrations count as done."
    for difference in recognition.drift if outcome.adoption.standing in ADOPTED else ():
        yield f"drift: {difference}; {mend_of(difference, name, made_here=recognition.made_here)}"
    yield from _version_lines(outcome)


def _version_lines(outcome: AdoptResult) -> Iterator[str]:
    written = outcome.version
    if written is None:
        return
    step = written.step
    before = str(step.before) if step.before is not None else f"none, so James assumes {step.assumed}"
    wrote = "was written" if written.key else ("would be written" if step.changes else "stands there already")
    yield f"James's schema version: before {before}; {step.after} {wrote}."
    if step.caution:
        yield step.caution
    if written.key:
        undo = written.undo(outcome.keyspace).replace('"', r"\"")
        yield f'Undo: cqlsh -e "{undo}"'


_SAID = {
    Standing.ADOPTABLE: "{name}: {done} as generation {generation}. Nothing in it was altered.",
    Standing.ADOPTED: "{name} was adopted before, on {when}: nothing was changed. Give it back with: mailmend schema "
    "adopt --forget {option}",
    Standing.OURS: "{name} was made by mailmend: it needs no adoption. See: mailmend schema history {option}",
    Standing.EMPTY: "{name} holds none of James's tables of messages: there is nothing to adopt. Create them with: "
    "mailmend schema apply {option}",
    Standing.HALF_MADE: "{name} lacks tables that every James creates when it starts: it is not adopted. Start James "
    "once, or create them with: mailmend schema apply --complete {option}",
    Standing.UNKNOWN: "{name} has tables of James's names in another shape: it is not adopted. The nearest generation "
    "is {generation}.",
}
