"""`mailmend schema apply`: run the pending migrations, and read the tables back."""

from typing import Any

import click

from admin.cli.options import connection_options
from admin.cli.schema.applied import Outcome, read_back, show_outcome, write_outcome
from admin.cli.schema.migration_options import patience_of, patience_options, plan_options, refuse_beside
from admin.cli.schema.optional import apply_optional
from admin.cli.schema.plan import sizes_for
from admin.cli.schema.planned import order_of, rollout_json, show_rollout, statements_of
from admin.migrating import history_of, means_to_migrate
from admin.output import write_json
from admin.settings import ConnectionSettings
from admin.wiring import Place, open_place
from cql.migrate.rollout import Order, past_of, plan_rollout, roll_out, script_of
from model.errors import ExitCode

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
    order, patience = order_of(connection, options), patience_of(options)
    with open_place(connection) as place:
        if optional is not None:
            return apply_optional(place, optional, patience, dry_run=dry_run, as_json=as_json)
        if dry_run:
            _show_plan(place, order, as_json=as_json)
            return int(ExitCode.FINE)
        with means_to_migrate(place, patience, order.replication) as means:
            rolled = roll_out(means, order)
        outcome = Outcome(order, rolled, read_back(place.cluster, order, rolled))
    (write_outcome if as_json else show_outcome)(outcome)
    return outcome.exit


def _show_plan(place: Place, order: Order, *, as_json: bool) -> None:
    """CQL that can be piped into cqlsh; what is withheld stands in it as a comment."""
    rollout = plan_rollout(place.cluster, past_of(history_of(place)), order)
    script, sizes = script_of(place.cluster, order), sizes_for(place, rollout)
    if as_json:
        shown = rollout_json(rollout, script, sizes)
        write_json(shown | {"statements": statements_of(rollout, script), "exit": int(ExitCode.FINE)})
    else:
        show_rollout(rollout, script, sizes)
