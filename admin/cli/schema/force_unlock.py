"""`mailmend schema force-unlock`: end the lease of an apply that is gone, with a reason that stays."""

import click

from admin.cli.asking import someone_is_there
from admin.cli.options import connection_options
from admin.migrating import standing_lease, unlock
from admin.present.presenter import stderr_console, stdout_console, write_json
from admin.settings import ConnectionSettings
from admin.wiring import open_place
from model.errors import UnsafeRequest
from repair.ledger.leases import Lease

_EPILOG = """\b
Examples:
  mailmend schema history                                          who holds the lease, since when, until when
  mailmend schema force-unlock --reason 'pod apply-7 was evicted'  asks, then ends it
  mailmend schema force-unlock --reason '...' --yes                without asking

A lease that is not renewed ends by itself within a minute: waiting is safer.

\b
Exit codes: 0 it is ended, or nobody held it; 2 wrong use, or the answer was no; 4 the cluster cannot be reached."""


@click.command("force-unlock", epilog=_EPILOG)
@click.option("--reason", required=True, metavar="TEXT", help="Why; kept in the history, with your name.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@connection_options
def force_unlock(connection: ConnectionSettings, *, reason: str, yes: bool, as_json: bool) -> None:
    """End the lease of an apply that is known to be gone. If it still works, it stops before its next statement.

    Who held it, who ended it and why is kept: `mailmend schema history` shows it.
    """
    if not reason.strip():
        raise UnsafeRequest("the reason is empty", mend="Say why with --reason: whoever looks next wants to know.")
    with open_place(connection) as place:
        lease = standing_lease(place)
        if lease is not None:
            _refuse_unasked(lease, yes=yes)
        ended = unlock(place, reason.strip()) if lease is not None else None
    if as_json:
        write_json({"keyspace": connection.keyspace, "ended": ended.holder if ended else None, "exit": 0})
    elif ended:
        stdout_console().print(f"Ended the lease of {ended.holder}.", soft_wrap=True, markup=False)
        where = f"mailmend schema plan --keyspace {connection.keyspace}"
        stderr_console().print(f"Next: {where} says where it stopped; schema apply goes on from there.", soft_wrap=True)
    else:
        stdout_console().print("Nobody holds the lease.")


def _refuse_unasked(lease: Lease, *, yes: bool) -> None:
    """Ask, or demand that --yes was given.

    Raises:
        UnsafeRequest: nobody can be asked, or the answer was no.
    """
    held = f"{lease.owner} has held it since {lease.acquired_at:%Y-%m-%d %H:%M:%S} UTC, for {lease.purpose}"
    if yes:
        return
    if not someone_is_there():
        raise UnsafeRequest(
            f"the lease is not ended unasked: {held}", mend="Give --yes where you know that it is gone."
        )
    if not click.confirm(f"{held}. Is it surely gone?", default=False, err=True):
        raise UnsafeRequest("the lease was left as it is", mend="It ends by itself once it is not renewed any more.")
