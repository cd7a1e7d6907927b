"""What `mailmend schema verify` found, for people and for scripts; each line of drift says what mends it."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from admin.cli.schema.recognised import difference_json, differences_grid, mend_of
from admin.present.presenter import stdout_console
from model.errors import ExitCode
from model.migrations.history import Entry, HistoryDrift
from model.migrations.verification import Verification
from model.schema.difference import Aspect, Difference


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found of a keyspace.

    Attributes:
        folder: whose migrations it was compared with; None for our own.
    """

    keyspace: str
    folder: Path | None
    found: Verification

    @property
    def exit(self) -> int:
        """Drift, or fine."""
        return int(ExitCode.FINE if self.found.agrees else ExitCode.DRIFT)

    @property
    def where(self) -> str:
        """The options that name the keyspace and the folder again."""
        folder = f" --migrations {shlex.quote(str(self.folder))}" if self.folder else ""
        return f"{folder} --keyspace {self.keyspace}"

    @property
    def adopted(self) -> bool:
        """Whether the ledger holds a baseline of it."""
        return self.found.baseline is not None


def verified_json(verified: Verified) -> dict[str, Any]:
    """It under the names that scripts rely on."""
    found, recognition = verified.found, verified.found.against.recognition
    return {
        "keyspace": verified.keyspace,
        "generation": recognition.generation.name if recognition else None,
        "made_here": recognition.made_here if recognition else None,
        "adopted": verified.adopted,
        "drift": [
            *(difference_json(one) | {"mend": _mend(verified, one)} for one in found.against.drift),
            *(_history_json(one.kind.value, one.file, one.why, one.mend) for one in found.tampering),
            *(_history_json(_RUNNING, str(one.file), _why(one), _mend_running(verified)) for one in found.running),
        ],
        "notes": [difference_json(one) for one in found.against.notes],
        "history": {"applied": found.applied, "pending": list(found.pending)} if found.applied is not None else None,
        "since_adoption": [{"change": since.value, "object": name} for since, name in found.since],
        "exit": verified.exit,
    }


_RUNNING = "migration in flight"


def _history_json(aspect: str, file: str, why: str, mend: str) -> dict[str, str]:
    """What is wrong with the history, under the same names as what is wrong with a table."""
    return {"aspect": aspect, "table": "", "subject": file, "expected": "", "found": "", "why": why, "mend": mend}


def _why(entry: Entry) -> str:
    done = f"{entry.done} of {entry.statements} statements are done"
    return f"begun {entry.started_at:%Y-%m-%d %H:%M} UTC by {entry.owner}, {done}"


def _mend_running(verified: Verified) -> str:
    return f"mailmend schema apply{verified.where}"


def _mend(verified: Verified, difference: Difference) -> str:
    """What mends a difference: of a mail keyspace as ever, of anybody else's by the plan that leads to the model."""
    recognition = verified.found.against.recognition
    if recognition:
        return mend_of(difference, verified.keyspace, made_here=recognition.made_here)
    if verified.found.tampering:
        return f"first the migrations, as said of them; then again: mailmend schema verify{verified.where}"
    return _planned_mend(verified, difference)


def _planned_mend(verified: Verified, difference: Difference) -> str:
    """The plan that leads to what the migrations say, and what of it runs."""
    plan = f"mailmend schema plan --from-model{verified.where}"
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


def show_verified(verified: Verified) -> None:
    """Print it: the generation, what is noted, what is wrong and the command that mends it."""
    console, found = stdout_console(), verified.found
    for line in _head_lines(verified):
        console.print(line, soft_wrap=True, markup=False)
    if found.against.notes:
        console.print(differences_grid("Noted, not wrong", found.against.notes))
    if found.agrees:
        console.print("The schema is as expected.")
        return
    if found.against.drift:
        console.print(differences_grid("Drift", found.against.drift))
    for line in _drift_lines(verified):
        console.print(line, soft_wrap=True, markup=False)


def _head_lines(verified: Verified) -> Iterator[str]:
    name, found, recognition = verified.keyspace, verified.found, verified.found.against.recognition
    if recognition:
        maker = "made by mailmend" if recognition.made_here else "not made by mailmend"
        yield f"{name}: generation {recognition.generation.name}, {maker}."
        if not recognition.made_here and not verified.adopted:
            yield f"It was not adopted; take it over with: mailmend schema adopt --keyspace {name}"
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
        yield f"Pending: {', '.join(found.pending)}; see: mailmend schema plan{verified.where}"


def _drift_lines(verified: Verified) -> Iterator[str]:
    for one in verified.found.against.drift:
        place = f"{one.owner}.{one.subject}" if one.subject else one.owner
        yield f"{place}: {_mend(verified, one)}"
    for drift in verified.found.tampering:
        yield _tampering_line(drift)
    for entry in verified.found.running:
        yield f"{_RUNNING}: {entry.file}: {_why(entry)}: {_mend_running(verified)}"


def _tampering_line(drift: HistoryDrift) -> str:
    return f"{drift}. {drift.mend}"
