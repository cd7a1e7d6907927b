"""Loads mail from files into a mailbox, through the store that services write through."""

from dataclasses import dataclass, replace
from pathlib import Path

from admin.services.caller import Caller
from admin.settings import BlobsSettings, ConnectionSettings, Store
from admin.wiring import queues
from admin.wiring.cluster import OpenCluster, lag_journal, open_cluster, state_folder
from cql.introspect import live_schema
from model.catalog.james_tables import BLOB_PARTS, BLOBS
from model.catalog.mail import MESSAGES
from model.errors import SchemaMismatch
from model.ports import Blobs
from model.queue.blob_ids import BlobsMode
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
    blobs: BlobsSettings
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
    """

    def name_refused(refused: Refused) -> None:
        caller.remark(f"refused: {refused.name}: {refused.why}")

    kind = kind_of(request.path)
    with open_cluster(request.connection) as opened:
        blobs, (family,) = (
            _blobs_of(opened, request.blobs),
            opened.bound((MESSAGES,)).whole(opened.mail.name, may_leave_out=False),
        )
        with MessageStore(opened.mail, blobs, lag_journal(opened), opened.clock, family=family) as store:
            loader = Loader(store, opened.clock, state_folder("loads"), caller.progress, name_refused)
            folder = Folder(request.path, kind, opened.mail.name, request.user, request.mailbox)
            mailbox = Mailboxes(opened.mail, opened.clock).ensure(request.user, request.mailbox)
            return LoadResult(opened.mail.name, loader.load(folder, mailbox, again=request.again))


def _blobs_of(opened: OpenCluster, settings: BlobsSettings) -> Blobs:
    """The store, with new ids made of the bytes: copies of a message share one blob, and no delete removes it.

    Raises:
        SchemaMismatch: the keyspace keeps no blobs.
    """
    if settings.address.store is Store.CASSANDRA:
        live = live_schema(opened.cluster, opened.mail.name)
        lacking = tuple(table.spelling for table in (BLOBS, BLOB_PARTS) if live.table(table.name) is None)
        if lacking:
            raise SchemaMismatch(opened.mail.name, lacking)
    naming = replace(settings.address.naming, mode=BlobsMode.DEDUPLICATED)
    settings = settings._replace(address=replace(settings.address, naming=naming))
    return queues.blobs_behind(settings, queues.tables_of(opened.mail), opened.clock)
