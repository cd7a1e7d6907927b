"""`mailmend load`: real mail from files into a mailbox, through the same store that services use."""

from contextlib import ExitStack
from pathlib import Path

import click

from admin.cli.options import connection_options
from admin.present.presenter import stderr_console, stdout_console, write_json
from admin.progress import progress_on
from admin.settings import ConnectionSettings
from admin.wiring import Place, open_place, open_store, state_folders
from model.errors import ExitCode
from model.ids import MailboxId
from repair.writing.load_journal import Folder
from repair.writing.loading import Loaded, Loader
from repair.writing.mail_files import Refused, kind_of
from repair.writing.mailboxes import Mailboxes

_EPILOG = """\b
Examples:
  mailmend load archive.mbox --user ann --mailbox INBOX
  mailmend load ~/Maildir --user ann --mailbox Archive
  mailmend load letters/ --user ann --mailbox Letters     a folder of .eml files

\b
Exit codes: 0 every message is stored, 2 wrong use (not mail; loaded already), 3 some messages were refused (each is
named; the rest is stored), or lag where nobody could take note of it; 3 or 4 when a disk is full or the cluster cannot
be reached: the same command goes on from there."""


@click.command(epilog=_EPILOG)
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--user", required=True, metavar="NAME", help="Whose mailbox.")
@click.option("--mailbox", required=True, metavar="NAME", help="Which mailbox; it is created if there is none.")
@click.option(
    "--again", is_flag=True, help="Load a folder once more that was loaded already: a second copy of all mail."
)
@click.option(
    "--blobs",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where contents are kept. [default: ~/.local/share/mailmend/blobs]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@connection_options
def load(
    connection: ConnectionSettings,
    path: Path,
    user: str,
    mailbox: str,
    *,
    again: bool,
    blobs: Path | None,
    as_json: bool,
) -> int:
    """Read mbox, Maildir or .eml files into a mailbox.

    A malformed message is stored as it is, byte for byte; what cannot be stored is named. A load that was interrupted
    goes on where it stopped; one that was finished is refused, unless --again asks for a second copy.
    """
    kind = kind_of(path)
    with ExitStack() as stack:
        place = stack.enter_context(open_place(connection))
        store = stack.enter_context(open_store(place, blobs))
        progress = stack.enter_context(progress_on(stderr_console(), place.clock))
        loader = Loader(store, place.clock, state_folders().loads, progress, _name)
        folder = Folder(path, kind, place.mail.name, user, mailbox)
        loaded = loader.load(folder, _mailbox(place, user, mailbox), again=again)
    _show(loaded, place.connection.keyspace, as_json=as_json)
    return int(ExitCode.PARTLY_FAILED if loaded.refused or loaded.unjournalled else ExitCode.FINE)


def _mailbox(place: Place, user: str, name: str) -> MailboxId:
    return Mailboxes(place.mail, place.clock).ensure(user, name)


def _name(refused: Refused) -> None:
    click.echo(f"refused: {refused.name}: {refused.why}", err=True)


def _show(loaded: Loaded, keyspace: str, *, as_json: bool) -> None:
    if as_json:
        names = ("stored", "already", "refused", "lagged", "unjournalled", "octets")
        write_json({"keyspace": keyspace, **{name: getattr(loaded, name) for name in names}})
        return
    console = stdout_console()
    console.print(f"Stored {loaded.stored:,} messages ({loaded.octets:,} bytes).")
    if loaded.already:
        console.print(f"{loaded.already:,} had been stored by an earlier load that was interrupted.")
    if loaded.refused:
        console.print(f"{loaded.refused:,} were refused; each was named.")
    if loaded.lagged:
        console.print(f"{loaded.lagged:,} lag. Next: mailmend repair lags --keyspace {keyspace}", soft_wrap=True)
    if loaded.unjournalled:
        console.print(
            f"{loaded.unjournalled:,} of them nobody could take note of. "
            f"Next: mailmend repair messages --keyspace {keyspace}",
            soft_wrap=True,
        )
