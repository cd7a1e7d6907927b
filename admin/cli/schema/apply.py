"""`mailmend schema apply`: run the pending migrations, and read the tables back."""

from dataclasses import replace
from typing import Any

import click

from admin.cli.asking import someone_is_there
from admin.cli.options import connection_options
from admin.cli.schema.applied import Outcome, read_back, show_outcome, write_outcome
from admin.cli.schema.migration_options import patience_of, patience_options, plan_options, refuse_beside
from admin.cli.schema.optional import apply_optional
from admin.cli.schema.plan import sizes_for
from admin.cli.schema.planned import request_of, rollout_json, show_rollout, statements_of
from admin.migrating import migrator_of
from admin.present.presenter import stderr_console, write_json
from admin.settings import ConnectionSettings
from admin.wiring import Place, open_place
from cql.migrate.migrator import Migrator, RolloutResult
from cql.migrate.rollout import RolloutRequest
from cql.replication import COPIES_MAX, in_every_data_centre
from model.errors import ExitCode, ReplicationNeeded

_EPILOG = """\b
Examples:
  mailmend schema apply --dry-run                     print the CQL, run nothing
  mailmend schema apply --replication dc1=3,dc2=3     a new keyspace
  mailmend schema apply --phase pre                   before the new software is rolled out
  mailmend schema apply --to 0003                     no further than that
  mailmend schema apply --migrations db --keyspace shop --require-all-nodes
  mailmend schema apply --optional save-date          one of James's upgrade notes; schema adopt --dry-run lists them

\b
Exit codes: 0 done, and read back as expected; 1 read back, and not as expected; 2 wrong use (a file that cannot be
run, or that was changed after it was applied); 3 a statement failed, the nodes do not agree, or another apply is at
work; 4 the cluster cannot be reached. After 3 and 4 the same command goes on where it stopped."""


@click.command(epilog=_EPILOG)
@plan_options
@patience_options
@click.option("--optional", metavar="NAME", help="Run nothing but this upgrade note of James, or mail-queue.")
@click.option("--dry-run", is_flag=True, help="Print the CQL instead of running it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@connection_options
def apply(connection: ConnectionSettings, *, optional: str | None, dry_run: bool, as_json: bool, **options: Any) -> int:
    """Run the pending migrations, statement by statement, then read the tables back and compare.

    One apply at a time works on a keyspace (a lease in the ledger keyspace). Every statement waits for the nodes to
    agree on the schema, and is written down before and after: type the same command again after any interruption. A
    keyspace that James made is left alone until `mailmend schema adopt`. Applying again changes nothing.
    """
    if optional is not None:
        refuse_beside("--optional")
    request, patience = request_of(connection, options), patience_of(options)
    with open_place(connection) as place:
        if optional is not None:
            return apply_optional(place, optional, patience, dry_run=dry_run, as_json=as_json)
        with migrator_of(place, patience) as migrator:
            result = _rolled_out(migrator, request, dry_run=dry_run, asks=not as_json and someone_is_there())
        if dry_run:
            _show_plan(place, request, result, as_json=as_json)
            return int(ExitCode.FINE)
        outcome = Outcome(request, result, read_back(place.cluster, request, result))
    (write_outcome if as_json else show_outcome)(outcome)
    return outcome.exit


def _rolled_out(migrator: Migrator, request: RolloutRequest, *, dry_run: bool, asks: bool) -> RolloutResult:
    """Roll out; where the number of copies is needed and a person is there, ask for it."""
    try:
        return migrator.roll_out(request, dry_run=dry_run)
    except ReplicationNeeded as needed:
        if not asks:
            raise
        stderr_console().print(str(needed), soft_wrap=True, markup=False)
        copies = click.prompt("Copies in each data centre", type=click.IntRange(1, COPIES_MAX), err=True)
        return migrator.roll_out(replace(request, replication=in_every_data_centre(copies)), dry_run=dry_run)


def _show_plan(place: Place, request: RolloutRequest, result: RolloutResult, *, as_json: bool) -> None:
    """CQL that can be piped into cqlsh; what is withheld stands in it as a comment."""
    rollout = result.plan
    script, sizes = request.spelling_for(place.cluster), sizes_for(place, rollout)
    if as_json:
        shown = rollout_json(rollout, script, sizes)
        write_json(shown | {"statements": statements_of(rollout, script), "exit": int(ExitCode.FINE)})
    else:
        show_rollout(rollout, script, sizes)
