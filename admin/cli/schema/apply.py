"""`mailmend schema apply`: create the tables, and read them back."""

import sys
from typing import Final

import click

from admin.cli.kinds import Named
from admin.cli.options import connection_options
from admin.cli.schema.recognised import exit_code, recognition_json, show_recognition
from admin.output import stdout_console, write_json
from admin.settings import ConnectionSettings
from admin.wiring import open_place
from cql.applying import Applied, ApplyPlan, apply_schema, plan_apply
from cql.replication import COPIES_MAX, Replication, in_every_data_centre, parse_replication
from model.catalog import CompactionChoice
from model.errors import ExitCode, WrongUse

_REPLICATION: Final = Named("replication", lambda text: parse_replication(str(text)))
_CHOICES: Final = tuple(choice.value for choice in CompactionChoice)


@click.command()
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


def _replication(factor: int | None, named: Replication | None) -> Replication:
    if factor is not None and named is not None:
        raise WrongUse("--replication-factor and --replication exclude each other", mend="Give one of them.")
    return named or in_every_data_centre(factor or 1)


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
    show_recognition(keyspace, applied.recognition)
