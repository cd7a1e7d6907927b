"""`mailmend schema plan`: what an apply would run, with the risk of every statement. Writes nothing."""

from typing import Any

import click

from admin.cli.options import connection_options
from admin.cli.schema.from_model import (
    model_options,
    model_plan_json,
    plan_from_model,
    refuse_without_model,
    show_model_plan,
)
from admin.cli.schema.migration_options import plan_options, refuse_beside
from admin.cli.schema.planned import Sizes, request_of, risky, rollout_json, show_rollout, statements_of
from admin.migrating import history_of
from admin.present.presenter import write_json
from admin.settings import ConnectionSettings
from admin.wiring import Place, open_place
from cql.migrate.history import record_of
from cql.migrate.rollout import RolloutPlan, plan_rollout
from model.errors import ExitCode

_EPILOG = """\b
Examples:
  mailmend schema plan                                  what is pending; CQL that cqlsh takes, risks as comments
  mailmend schema plan --phase pre                      what is due before the new software is rolled out
  mailmend schema plan --migrations db --keyspace shop  your own tables
  mailmend schema plan --from-model | cqlsh             what takes the live tables to the model; mailmend never runs it
  mailmend schema plan --from-model --include-options   options too: most of them rewrite their table

\b
Exit codes: 0 there is nothing to do, 1 there is something to do, 2 wrong use (a file that cannot be run, or that was
changed after it was applied), 4 the cluster cannot be reached."""


@click.command(epilog=_EPILOG)
@plan_options
@model_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@connection_options
def plan(connection: ConnectionSettings, *, from_model: bool, as_json: bool, **options: Any) -> int:
    """Show what an apply would run: each statement, what it risks, and why. Writes nothing.

    With --from-model: what takes the live tables to the model (or to what the applied --migrations say), whatever the
    history holds.
    """
    request = request_of(connection, options)
    if from_model:
        refuse_beside("--from-model")
    else:
        refuse_without_model(options)
    with open_place(connection) as place:
        if from_model:
            model_plan = plan_from_model(place, request, options)
            (write_json(model_plan_json(model_plan)) if as_json else show_model_plan(model_plan))
            return model_plan.exit
        rollout = plan_rollout(place.cluster, record_of(history_of(place)), request)
        script, sizes = request.spelling_for(place.cluster), sizes_for(place, rollout)
    code = exit_code(rollout)
    if as_json:
        shown = rollout_json(rollout, script, sizes)
        write_json(shown | {"statements": statements_of(rollout, script), "exit": code})
    else:
        show_rollout(rollout, script, sizes)
    return code


def exit_code(rollout: RolloutPlan) -> int:
    """Whether there is something to do: run it, or adopt the keyspace first."""
    return int(ExitCode.FINE if rollout.empty and not rollout.foreign else ExitCode.DRIFT)


def sizes_for(place: Place, rollout: RolloutPlan) -> Sizes:
    """The tables' sizes, where they matter."""
    if not risky(rollout):
        return {}
    from cql.estimates import sizes_in  # noqa: PLC0415 - brings the driver

    return sizes_in(place.cluster, place.connection.keyspace)
