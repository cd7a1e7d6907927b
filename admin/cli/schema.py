"""`mailmend schema`: create the tables, and say whether a live keyspace is what mailmend takes it for."""

import shlex
import sys
from typing import Any, Final

import click

from admin.cli.kinds import Named
from admin.cli.options import connection_options
from admin.output import rows_grid, stdout_console, write_json
from admin.settings import ConnectionSettings
from admin.wiring import open_place
from cql.applying import Applied, ApplyPlan, apply_schema, plan_apply, verify_schema
from cql.replication import COPIES_MAX, Replication, in_every_data_centre, parse_replication
from model.catalog import MESSAGES, CompactionChoice
from model.difference import Aspect, Difference
from model.errors import ExitCode, WrongUse
from model.generations import Recognition

REBUILDABLE: Final = frozenset(one.table.spelling for one in MESSAGES.projections if one is not MESSAGES.content)
"""Tables that a repair can fill again from the truth."""

_REPLICATION: Final = Named("replication", lambda text: parse_replication(str(text)))
_COLUMNS: Final = ("what", "where", "expected", "found")
_CHOICES: Final = tuple(choice.value for choice in CompactionChoice)


@click.group(
    epilog="""\b
Examples:
  mailmend schema verify --keyspace apache_james     which generation is it; what is wrong; writes nothing
  mailmend schema apply --dry-run                    print the CQL, run nothing
  mailmend schema apply --replication dc1=3,dc2=3    create whatever is missing"""
)
def schema() -> None:
    """Create and verify the tables. A keyspace that James made is recognised, and never altered."""


@schema.command()
@click.option(
    "--replication-factor",
    type=click.IntRange(1, COPIES_MAX),
    metavar="N",
    help="Copies in each data centre, when the keyspace is created. [default: 1]",
)
@click.option(
    "--replication", type=_REPLICATION, metavar="DC=N,...", help="Copies by data centre; or SimpleStrategy=N."
)
@click.option(
    "--compaction",
    type=click.Choice(_CHOICES),
    default=CompactionChoice.TWCS.value,
    show_default=True,
    help="Of the big message tables, when they are created; unified needs Cassandra 5.",
)
@click.option("--complete", is_flag=True, help="Also create what a keyspace of James lacks.")
@click.option("--dry-run", is_flag=True, help="Print the CQL instead of running it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@connection_options
def apply(
    connection: ConnectionSettings,
    *,
    replication_factor: int | None,
    replication: Replication | None,
    compaction: str,
    complete: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Create whatever is missing, then read it back and compare. Applying again creates nothing.

    Exit code 1: what was read back is not what it should be.
    """
    wanted, choice = _replication(replication_factor, replication), CompactionChoice(compaction)
    with open_place(connection) as place:
        if dry_run:
            _show_plan(
                plan_apply(place.cluster, connection.keyspace, wanted, choice, complete=complete), as_json=as_json
            )
            return int(ExitCode.FINE)
        applied = apply_schema(place.cluster, connection.keyspace, wanted, choice, complete=complete)
    _show_applied(connection.keyspace, applied, as_json=as_json)
    return exit_code(applied.recognition)


@schema.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@connection_options
def verify(connection: ConnectionSettings, *, as_json: bool) -> int:
    """Say which generation of the tables a keyspace holds, and what is wrong with it. Writes nothing.

    Options, tables of other modules and columns of older generations are noted; they are not drift.
    Exit code 1: drift was found; each line says what mends it.
    """
    with open_place(connection) as place:
        recognition = verify_schema(place.cluster, connection.keyspace)
    if as_json:
        write_json(recognition_json(connection.keyspace, recognition))
    else:
        _show_recognition(connection.keyspace, recognition)
    return exit_code(recognition)


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


def _replication(factor: int | None, named: Replication | None) -> Replication:
    if factor is not None and named is not None:
        raise WrongUse("--replication-factor and --replication exclude each other", mend="Give one of them.")
    return named or in_every_data_centre(factor or 1)


def _difference_json(difference: Difference) -> dict[str, str]:
    return {
        "aspect": difference.aspect.value,
        "table": difference.owner,
        "subject": difference.subject,
        "expected": difference.expected,
        "found": difference.found,
    }


def _show_plan(plan: ApplyPlan, *, as_json: bool) -> None:
    """CQL that can be piped into cqlsh; what is withheld stands in it as a comment."""
    if as_json:
        write_json({"statements": [one.cql for one in plan.steps], "withheld": [one.cql for one in plan.withheld]})
        return
    sys.stdout.writelines(f"{step.cql}\n\n" for step in plan.steps)
    if plan.withheld:
        sys.stdout.write("-- not made by mailmend: only --complete would run these here\n")
    for step in plan.withheld:
        sys.stdout.writelines(f"-- {line}\n" for line in step.cql.splitlines())


def _show_applied(keyspace: str, applied: Applied, *, as_json: bool) -> None:
    if as_json:
        made = {"created": list(applied.created), "withheld": list(applied.withheld)}
        write_json(recognition_json(keyspace, applied.recognition) | made)
        return
    console = stdout_console()
    for name in applied.created:
        console.print(f"created {name}", soft_wrap=True)
    if applied.withheld:
        names = ", ".join(applied.withheld)
        console.print(
            f"Not created in a keyspace that mailmend did not make (--complete does): {names}", soft_wrap=True
        )
    elif not applied.created:
        console.print("Nothing was missing.")
    _show_recognition(keyspace, applied.recognition)


def _show_recognition(keyspace: str, recognition: Recognition) -> None:
    console = stdout_console()
    maker = "made by mailmend" if recognition.made_here else "not made by mailmend"
    console.print(f"{keyspace}: generation {recognition.generation.name}, {maker}.", soft_wrap=True)
    if recognition.notes:
        console.print(rows_grid("Noted, not wrong", _COLUMNS, [_cells(note) for note in recognition.notes]))
    if recognition.agrees:
        console.print("The schema is as expected.")
        return
    console.print(
        rows_grid("Drift", ("what", "where", "expected", "found"), [_cells(one) for one in recognition.drift])
    )
    for one in recognition.drift:
        mend = mend_of(one, keyspace, made_here=recognition.made_here)
        console.print(f"{'.'.join(_place(one))}: {mend}", soft_wrap=True, markup=False)


def _place(difference: Difference) -> tuple[str, ...]:
    return (difference.owner, difference.subject) if difference.subject else (difference.owner,)


def _cells(difference: Difference) -> tuple[str, str, str, str]:
    return difference.aspect.value, ".".join(_place(difference)), difference.expected, difference.found
