"""`mailmend undo`: take a run back, wherever nobody has used the rows since."""

from contextlib import ExitStack
from pathlib import Path
from uuid import UUID

import click

from admin.cli.options import connection_options
from admin.cli.results import Wanted, gathering, present, result_options
from admin.output import stderr_console
from admin.progress import progress_on
from admin.settings import ConnectionSettings
from admin.wiring import means_to_undo, open_place, owner_name
from model.ids import RunId
from repair.mending.undo import UndoOrder
from repair.mending.undo import undo as undo_run

_EPILOG = """\b
Examples:
  mailmend runs list                  which runs there were
  mailmend undo RUN --dry-run         what would return
  mailmend undo RUN                   take it back
  mailmend undo UNDO_RUN              take the undo back: the repair's state again

\b
Exit codes: 0 all of it was taken back, 1 some rows have been used since and were left, 2 wrong use,
3 some rows failed, 4 the cluster cannot be reached."""


@click.command(epilog=_EPILOG)
@click.argument("run", type=click.UUID)
@click.option("--dry-run", is_flag=True, help="Say what would be taken back, write nothing.")
@click.option("--no-writers", is_flag=True, help="Declare that nobody writes: counters are looked at twice at once.")
@result_options
@connection_options
def undo(
    connection: ConnectionSettings,
    run: UUID,
    report: Path | None,
    findings: Path | None,
    *,
    dry_run: bool,
    no_writers: bool,
    as_json: bool,
) -> int:
    """Put back what a run changed.

    A row returns to its before-image only where nobody has changed it since; the rest is left and counted as moved. The
    undo is a run of its own, so it can be undone as well.
    """
    wanted = Wanted(as_json, report, findings)
    with ExitStack() as stack:
        gatherer = stack.enter_context(gathering(wanted))
        place = stack.enter_context(open_place(connection))
        families = place.families()
        place.known_ledger(run)
        order = UndoOrder(
            RunId(run),
            place.mail.name,
            families,
            dry_run=dry_run,
            owner=owner_name(),
            options={"run": str(run), "no_writers": no_writers},
        )
        progress = stack.enter_context(progress_on(stderr_console(), place.clock))
        summary = undo_run(order, means_to_undo(place, families, progress, no_writers=no_writers), gatherer)
    return present(summary, gatherer.samples, wanted, place.clock)
