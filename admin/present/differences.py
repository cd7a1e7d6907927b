"""Differences between a schema and its target, and what mends each; for people, and for scripts."""

import shlex
from collections.abc import Iterable, Iterator
from typing import Any, Final

from admin.present.document import Part, Table
from model.catalog.generations import REBUILDABLE, Recognition
from model.errors import ExitCode
from model.migrations.upgrade_notes import note_adding
from model.schema.difference import Aspect, Difference

AS_EXPECTED: Final = "The schema is as expected."


def recognition_json(keyspace: str, recognition: Recognition) -> dict[str, Any]:
    return {
        "keyspace": keyspace,
        "generation": recognition.generation.name,
        "made_here": recognition.made_here,
        "drift": [
            difference_json(one) | {"mend": mend_of(one, keyspace, made_here=recognition.made_here)}
            for one in recognition.drift
        ],
        "notes": [difference_json(one) for one in recognition.notes],
        "exit": int(ExitCode.FINE if recognition.agrees else ExitCode.DRIFT),
    }


def mend_of(difference: Difference, keyspace: str, *, made_here: bool) -> str:  # noqa: PLR0911 - one for each kind
    """The command that mends a difference, or what a person has to decide."""
    apply_again = f"mailmend schema apply --keyspace {keyspace}{'' if made_here else ' --complete'}"
    from_model = f"mailmend schema plan --from-model --keyspace {keyspace}"
    table = f"{keyspace}.{difference.owner}"
    match difference.aspect:
        case Aspect.MISSING_TABLE | Aspect.MISSING_TYPE:
            return apply_again
        case Aspect.MISSING_COLUMN if not made_here and (note := note_adding(difference.owner, difference.subject)):
            return f"mailmend schema apply --optional {note} --keyspace {keyspace}"
        case Aspect.MISSING_COLUMN:
            return cqlsh(f"ALTER TABLE {table} ADD {difference.subject} {difference.expected};")
        case Aspect.UNEXPECTED_COLUMN:
            return "leave it (before-images keep it), or: " + cqlsh(f"ALTER TABLE {table} DROP {difference.subject};")
        case Aspect.UNEXPECTED_INDEX | Aspect.UNEXPECTED_VIEW | Aspect.UNEXPECTED_TYPE | Aspect.UNEXPECTED_TABLE:
            return "leave it, or: " + cqlsh(_DROPS[difference.aspect].format(keyspace, *_place(difference)))
        case Aspect.DIFFERENT_OPTION:
            return f"{from_model} --include-options"
        case Aspect.MISSING_INDEX | Aspect.DIFFERENT_INDEX | Aspect.MISSING_VIEW | Aspect.DIFFERENT_VIEW:
            return f"{from_model} | cqlsh"
        case _ if difference.owner in REBUILDABLE:
            dropped = cqlsh(f"DROP TABLE {table};")
            return f"while nothing writes: {dropped} && {apply_again} && mailmend repair messages --keyspace {keyspace}"
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
    return {
        "aspect": difference.aspect.value,
        "table": difference.owner,
        "subject": difference.subject,
        "expected": difference.expected,
        "found": difference.found,
    }


def recognition_parts(keyspace: str, recognition: Recognition) -> Iterator[Part]:
    yield generation_line(keyspace, recognition)
    if recognition.notes:
        yield differences_table("Noted, not wrong", recognition.notes)
    if recognition.agrees:
        yield AS_EXPECTED
        return
    yield differences_table("Drift", recognition.drift)
    for one in recognition.drift:
        yield f"{'.'.join(_place(one))}: {mend_of(one, keyspace, made_here=recognition.made_here)}"


def generation_line(keyspace: str, recognition: Recognition) -> str:
    """The generation of a keyspace, and who made it."""
    maker = "made by mailmend" if recognition.made_here else "not made by mailmend"
    return f"{keyspace}: generation {recognition.generation.name}, {maker}."


def differences_table(title: str, found: Iterable[Difference]) -> Table:
    """The columns "what" and "where" keep their width beside long options."""
    columns = ("what", "where", "expected", "found")
    return Table(title, columns, [_cells(one) for one in found], frozenset({"expected", "found"}))


def _place(difference: Difference) -> tuple[str, ...]:
    return (difference.owner, difference.subject) if difference.subject else (difference.owner,)


def _cells(difference: Difference) -> tuple[str, str, str, str]:
    return difference.aspect.value, ".".join(_place(difference)), difference.expected, difference.found
