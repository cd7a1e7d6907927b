"""What a keyspace was taken for, as the commands of `mailmend schema` show it: for people, and for scripts."""

import shlex
from typing import Any, Final

from admin.output import rows_grid, stdout_console
from model.catalog import MESSAGES
from model.difference import Aspect, Difference
from model.errors import ExitCode
from model.generations import Recognition

REBUILDABLE: Final = frozenset(one.table.spelling for one in MESSAGES.projections if one is not MESSAGES.content)
"""Tables that a repair can fill again from the truth."""

_COLUMNS: Final = ("what", "where", "expected", "found")


def exit_code(recognition: Recognition) -> int:
    """What `schema apply` and `schema verify` exit with."""
    return int(ExitCode.FINE if recognition.agrees else ExitCode.DRIFT)


def recognition_json(keyspace: str, recognition: Recognition) -> dict[str, Any]:
    """What a keyspace was taken for, under the names that scripts rely on."""
    return {
        "keyspace": keyspace,
        "generation": recognition.generation.name,
        "made_here": recognition.made_here,
        "drift": [
            _difference_json(one) | {"mend": mend_of(one, keyspace, made_here=recognition.made_here)}
            for one in recognition.drift
        ],
        "notes": [_difference_json(one) for one in recognition.notes],
        "exit": exit_code(recognition),
    }


def mend_of(difference: Difference, keyspace: str, *, made_here: bool) -> str:
    """The command that mends a difference, or what a person has to decide."""
    apply_again = f"mailmend schema apply --keyspace {keyspace}{'' if made_here else ' --complete'}"
    table = f"{keyspace}.{difference.owner}"
    match difference.aspect:
        case Aspect.MISSING_TABLE | Aspect.MISSING_TYPE:
            return apply_again
        case Aspect.MISSING_COLUMN:
            return _cqlsh(f"ALTER TABLE {table} ADD {difference.subject} {difference.expected};")
        case Aspect.UNEXPECTED_COLUMN:
            return "leave it (before-images keep it), or: " + _cqlsh(f"ALTER TABLE {table} DROP {difference.subject};")
        case _ if difference.owner in REBUILDABLE:
            dropped = _cqlsh(f"DROP TABLE {table};")
            return f"while nothing writes: {dropped} && {apply_again} && mailmend repair messages --keyspace {keyspace}"
        case _:
            return f"nothing in place: mailmend schema apply --keyspace ANOTHER, then copy the rows of {table} there"


def _cqlsh(statement: str) -> str:
    return f"cqlsh -e {shlex.quote(statement)}"


def _difference_json(difference: Difference) -> dict[str, str]:
    return {
        "aspect": difference.aspect.value,
        "table": difference.owner,
        "subject": difference.subject,
        "expected": difference.expected,
        "found": difference.found,
    }


def show_recognition(keyspace: str, recognition: Recognition) -> None:
    """Print it: the generation, what is noted, what is wrong and the command that mends it."""
    console = stdout_console()
    maker = "made by mailmend" if recognition.made_here else "not made by mailmend"
    console.print(f"{keyspace}: generation {recognition.generation.name}, {maker}.", soft_wrap=True)
    if recognition.notes:
        console.print(rows_grid("Noted, not wrong", _COLUMNS, [_cells(note) for note in recognition.notes]))
    if recognition.agrees:
        console.print("The schema is as expected.")
        return
    console.print(rows_grid("Drift", _COLUMNS, [_cells(one) for one in recognition.drift]))
    for one in recognition.drift:
        mend = mend_of(one, keyspace, made_here=recognition.made_here)
        console.print(f"{'.'.join(_place(one))}: {mend}", soft_wrap=True, markup=False)


def _place(difference: Difference) -> tuple[str, ...]:
    return (difference.owner, difference.subject) if difference.subject else (difference.owner,)


def _cells(difference: Difference) -> tuple[str, str, str, str]:
    return difference.aspect.value, ".".join(_place(difference)), difference.expected, difference.found
