"""`mailmend schema verify`: what is wrong with a live keyspace.

The commands apply and adopt show differences in the same way.
"""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mailmend.admin.frame.cluster import OpenCluster, open_cluster
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Grid, Part
from mailmend.admin.frame.options import CONNECTION
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.frame.values import plain
from mailmend.admin.schema.migrating import FOLDER, again, folder_of, history_of, migrations_in
from mailmend.cql.introspect import beside_model, live_schema
from mailmend.cql.schema.difference import Aspect, Difference
from mailmend.cql.schema.generations import REBUILDABLE, Recognition
from mailmend.cql.schema.migration_plan import Verification, verify_migrations, verify_ours
from mailmend.cql.schema.migrations import Entry, LedgerRecord, Migration
from mailmend.cql.schema.risk import OPTION_DEFAULTS
from mailmend.cql.schema.upgrades import note_adding
from mailmend.model.errors import TABLES_SHOWN, ExitCode
from mailmend.model.texts import keyspace_option


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """The state of a keyspace.

    Attributes:
        folder: of the migrations that it was made by; None for our own.
        not_compared: what the keyspace has and the model has no place for, by name.
    """

    keyspace: str
    folder: Path | None
    found: Verification
    not_compared: tuple[str, ...] = ()

    @property
    def exit(self) -> ExitCode:
        if self.found.agrees:
            return ExitCode.FINE
        return ExitCode.DRIFT


def verify(connection: ConnectionSettings, migrations: Path | None = None) -> VerifyResult:
    """Compare a live keyspace with its model and its history; reads only.

    Raises:
        UnknownKeyspace: no such keyspace.
    """
    wanted = migrations_in(migrations)
    with open_cluster(connection) as opened:
        return verified(opened, migrations, wanted)


def verified(
    opened: OpenCluster, migrations: Path | None = None, wanted: Sequence[Migration] | None = None
) -> VerifyResult:
    """The same over an open cluster; `wanted`: the migrations, where they were read already."""
    if wanted is None:
        wanted = migrations_in(migrations)
    keyspace = opened.connection.keyspace
    opened.cluster.replication_of(keyspace)
    history = history_of(opened)
    record = None
    if history:
        record = history.record()
    live = live_schema(opened.cluster, keyspace)
    not_compared = beside_model(opened.cluster, keyspace)
    if migrations is None:
        found = verify_ours(live, wanted, record)
    else:
        found = verify_migrations(live, wanted, record)
    return VerifyResult(keyspace, folder_of(record or LedgerRecord(), migrations), found, not_compared)


AS_EXPECTED: Final = "The schema is as expected."


def recognition_json(keyspace: str, recognition: Recognition) -> dict[str, Any]:
    drift = []
    for difference in recognition.drift:
        mend = mend_of(difference, keyspace, made_here=recognition.made_here)
        drift.append(difference_json(difference) | {"mend": mend})
    code = ExitCode.DRIFT
    if recognition.agrees:
        code = ExitCode.FINE
    return {
        "keyspace": keyspace,
        "generation": recognition.generation.name,
        "made_here": recognition.made_here,
        "drift": drift,
        "notes": differences_json(recognition.notes),
        "exit": int(code),
    }


def mend_of(difference: Difference, keyspace: str, *, made_here: bool) -> str:  # noqa: PLR0911 - one for each kind
    """The command that mends a difference, or what a person has to decide."""
    complete = "" if made_here else " --complete"
    apply_again = f"mailmend schema apply {keyspace_option(keyspace)}{complete}"
    from_model = f"mailmend schema plan --from-model {keyspace_option(keyspace)}"
    table = f"{keyspace}.{difference.owner}"
    match difference.aspect:
        case Aspect.MISSING_TABLE | Aspect.MISSING_TYPE:
            return apply_again
        case Aspect.MISSING_COLUMN if not made_here and (note := note_adding(difference.owner, difference.subject)):
            return f"mailmend schema apply --optional {note} {keyspace_option(keyspace)}"
        case Aspect.MISSING_COLUMN:
            return cqlsh(f"ALTER TABLE {table} ADD {difference.subject} {difference.expected};")
        case Aspect.UNEXPECTED_COLUMN:
            return "leave it (before-images keep it), or: " + cqlsh(f"ALTER TABLE {table} DROP {difference.subject};")
        case Aspect.UNEXPECTED_INDEX | Aspect.UNEXPECTED_VIEW | Aspect.UNEXPECTED_TYPE | Aspect.UNEXPECTED_TABLE:
            return "leave it, or: " + cqlsh(_DROPS[difference.aspect].format(keyspace, *_place(difference)))
        case Aspect.DIFFERENT_OPTION if difference.subject in OPTION_DEFAULTS:
            return cqlsh(f"ALTER TABLE {table} WITH {difference.subject} = {difference.expected};")
        case Aspect.DIFFERENT_OPTION:
            return f"{from_model} --include-options"
        case (
            Aspect.MISSING_INDEX
            | Aspect.DIFFERENT_INDEX
            | Aspect.MISSING_VIEW
            | Aspect.DIFFERENT_VIEW
            | Aspect.DIFFERENT_MASK
        ):
            return f"{from_model} | cqlsh"
        case _ if difference.owner in REBUILDABLE:
            dropped = cqlsh(f"DROP TABLE {table};")
            repair = f"mailmend repair messages {keyspace_option(keyspace)}"
            return f"while nothing writes: {dropped} && {apply_again} && {repair}"
        case _:
            return f"nothing in place: mailmend schema apply --keyspace ANOTHER, then copy the rows of {table} there"


_DROPS: Final = {
    Aspect.UNEXPECTED_INDEX: "DROP INDEX {0}.{2};",
    Aspect.UNEXPECTED_VIEW: "DROP MATERIALIZED VIEW {0}.{1};",
    Aspect.UNEXPECTED_TYPE: "DROP TYPE {0}.{1};",
    Aspect.UNEXPECTED_TABLE: "DROP TABLE {0}.{1};",
}
"""What removes what is not expected; 0 is the keyspace, 1 its owner, 2 the subject."""


def cqlsh(statement: str) -> str:
    return f"cqlsh -e {shlex.quote(statement)}"


def difference_json(difference: Difference) -> dict[str, str]:
    fields = plain(difference)
    return {"table": fields.pop("owner"), **fields}


def differences_json(differences: Iterable[Difference]) -> list[dict[str, str]]:
    return [difference_json(difference) for difference in differences]


def recognition_parts(keyspace: str, recognition: Recognition) -> Iterator[Part]:
    yield generation_line(keyspace, recognition)
    if recognition.notes:
        yield differences_table("Noted, not wrong", recognition.notes)
    if recognition.agrees:
        yield AS_EXPECTED
        return
    yield differences_table("Drift", recognition.drift)
    for difference in recognition.drift:
        yield f"{'.'.join(_place(difference))}: {mend_of(difference, keyspace, made_here=recognition.made_here)}"


def generation_line(keyspace: str, recognition: Recognition) -> str:
    maker = "made by mailmend" if recognition.made_here else "not made by mailmend"
    return f"{keyspace}: generation {recognition.generation.name}, {maker}."


def differences_table(title: str, found: Iterable[Difference]) -> Grid:
    """A table of differences; its columns "what" and "where" keep their width next to long options."""
    columns = ("what", "where", "expected", "found")
    rows = [_cells(difference) for difference in found]
    return Grid(title, columns, rows, frozenset({"expected", "found"}))


def _place(difference: Difference) -> tuple[str, ...]:
    if difference.subject:
        return (difference.owner, difference.subject)
    return (difference.owner,)


def _cells(difference: Difference) -> tuple[str, str, str, str]:
    return difference.aspect.value, ".".join(_place(difference)), difference.expected, difference.found


_IN_FLIGHT: Final = "migration in flight"


def verify_document(result: VerifyResult) -> Document:
    return Document(verified_json(result), tuple(_verified_parts(result)), result.exit)


def verified_json(result: VerifyResult) -> dict[str, Any]:
    found = result.found
    recognition = result.found.recognition
    drift = []
    for difference in found.drift:
        drift.append(difference_json(difference) | {"mend": _mend(result, difference)})
    for change in found.tampering:
        drift.append(_history_json(change.kind.value, change.file, change.why, change.mend))
    for entry in found.running:
        drift.append(_history_json(_IN_FLIGHT, str(entry.file), _why(entry), _mend_running(result)))
    history = None
    if found.applied is not None:
        history = {"applied": found.applied, "pending": list(found.pending)}
    return {
        "keyspace": result.keyspace,
        "generation": recognition and recognition.generation.name,
        "made_here": recognition and recognition.made_here,
        "adopted": found.baseline is not None,
        "drift": drift,
        "notes": [difference_json(note) for note in found.notes],
        "not_compared": list(result.not_compared),
        "history": history,
        "since_adoption": [{"change": since.value, "object": name} for since, name in found.since],
        "exit": int(result.exit),
    }


def _history_json(aspect: str, file: str, why: str, mend: str) -> dict[str, str]:
    return {"aspect": aspect, "table": "", "subject": file, "expected": "", "found": "", "why": why, "mend": mend}


def _why(entry: Entry) -> str:
    done = f"{entry.done} of {entry.statements} statements are done"
    return f"begun {entry.started_at:%Y-%m-%d %H:%M} UTC by {entry.owner}, {done}"


def _mend_running(result: VerifyResult) -> str:
    return f"mailmend schema apply{again(result.keyspace, result.folder)}"


def _mend(result: VerifyResult, difference: Difference) -> str:
    recognition = result.found.recognition
    verify_again = f"mailmend schema verify{again(result.keyspace, result.folder)}"
    if result.found.running:
        return f"first what has not ended, as said of it; then again: {verify_again}"
    if _of_others(result):
        return f"nothing here: {result.keyspace} is another application's; name the mail keyspace with --keyspace"
    if recognition:
        return mend_of(difference, result.keyspace, made_here=recognition.made_here)
    if result.found.tampering:
        return f"first the migrations, as said of them; then again: {verify_again}"
    return _planned_mend(result, difference)


def _of_others(result: VerifyResult) -> tuple[str, ...]:
    """The tables of another application; none where our migrations were applied among them."""
    recognition = result.found.recognition
    if not recognition or result.found.applied:
        return ()
    return recognition.others


def _planned_mend(result: VerifyResult, difference: Difference) -> str:
    plan = f"mailmend schema plan --from-model{again(result.keyspace, result.folder)}"
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
    if found.notes:
        yield differences_table("Noted, not wrong", found.notes)
    if found.agrees:
        yield AS_EXPECTED
        return
    if found.drift:
        yield differences_table("Drift", found.drift)
    yield from _drift_lines(result)


def _head_lines(result: VerifyResult) -> Iterator[str]:
    name = result.keyspace
    found = result.found
    recognition = result.found.recognition
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
        yield f"Pending: {', '.join(found.pending)}; see: mailmend schema plan{again(result.keyspace, result.folder)}"


def _drift_lines(result: VerifyResult) -> Iterator[str]:
    for difference in result.found.drift:
        place = ".".join(_place(difference))
        yield f"{place}: {_mend(result, difference)}"
    for drift in result.found.tampering:
        yield f"{drift}. {drift.mend}"
    for entry in result.found.running:
        yield f"{_IN_FLIGHT}: {entry.file}: {_why(entry)}: {_mend_running(result)}"


VERIFY: Final = Command(
    name="verify",
    summary="Say what is wrong with a live keyspace.",
    about="""It compares tables, types, indexes, views and the history. Writes nothing. A mail keyspace is compared
    with the generation of James that it is nearest to. Options, tables of other modules and columns of older
    generations are noted; they are not drift. But an option that can lose data or bring deleted data back is drift
    (data that expires sooner, or a gc_grace_seconds that is shorter, than expected). With --migrations any keyspace
    is compared with what was applied to it from there. A migration that was edited, went missing, was put in between
    or has not ended is drift; each line says what mends it.""",
    service="mailmend.admin.schema.verify:verify",
    present="mailmend.admin.schema.verify:verify_document",
    paged=True,
    options=(FOLDER,),
    shared=(CONNECTION,),
    examples="""
        mailmend schema verify --keyspace apache_james          a mail keyspace: which generation is it, what is wrong
        mailmend schema verify --migrations db --keyspace shop  your own tables against the applied migrations""",
    exits="0 nothing is wrong, 1 drift was found, 2 wrong use (there is no such keyspace), 4 the cluster cannot be "
    "reached.",
)
