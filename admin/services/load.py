"""Loads mail from files into a mailbox, through the store that services write through."""

from dataclasses import dataclass
from pathlib import Path

from admin.services.caller import Caller
from admin.settings import BlobsSettings, ConnectionSettings
from admin.wiring.cluster import lag_journal, open_cluster, state_folder
from admin.wiring.contents import message_blobs
from model.catalog.mail import MESSAGES
from repair.writing.loading import Folder, Loaded, Loader
from repair.writing.mail_files import Refused, kind_of
from repair.writing.mailboxes import Mailboxes
from repair.writing.message_store import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """What is loaded, and into which mailbox."""

    connection: ConnectionSettings
    path: Path
    user: str
    mailbox: str
    blobs: BlobsSettings | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The totals of a load."""

    keyspace: str
    sums: Loaded


def load(request: LoadRequest, caller: Caller) -> LoadResult:
    """Read mbox, Maildir or .eml files into a mailbox, which is created if missing.

    Raises:
        BadMail: the path is no mail.
        UnsafeRequest: all of it was loaded already.
        SchemaMismatch: the keyspace is not one that mail can be written to.
        UnsafeRequest: no store is named, and contents are not kept in the keyspace's tables.
    """

    def name_refused(refused: Refused) -> None:
        caller.remark(f"refused: {refused.name}: {refused.why}")

    kind = kind_of(request.path)
    with open_cluster(request.connection) as opened:
        blobs, (family,) = (
            message_blobs(opened, request.blobs, caller.remark),
            opened.bound((MESSAGES,)).whole(opened.mail.name, may_leave_out=False),
        )
        with MessageStore(opened.mail, blobs, lag_journal(opened), opened.clock, family=family) as store:
            loader = Loader(store, opened.clock, state_folder("loads"), caller.progress, name_refused)
            folder = Folder(request.path, kind, opened.mail.name, request.user, request.mailbox)
            mailbox = Mailboxes(opened.mail, opened.clock).ensure(request.user, request.mailbox)
            return LoadResult(opened.mail.name, loader.load(folder, mailbox, again=request.again))
