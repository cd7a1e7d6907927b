"""Loads mail from files into a mailbox, through the store that services write through."""

from dataclasses import dataclass, replace
from pathlib import Path

from admin import wiring_queue
from admin.queue_settings import BlobsSettings, Store
from admin.services.caller import Caller
from admin.settings import ConnectionSettings
from admin.wiring import Place, lag_journal, open_place, state_folders
from cql.introspect import live_schema
from model.catalog.james_tables import BLOB_PARTS, BLOBS
from model.catalog.mail import MESSAGES
from model.errors import SchemaMismatch
from model.ports import Blobs
from model.queue.blob_ids import BlobsMode
from repair.writing.load_journal import Folder
from repair.writing.loading import Loaded, Loader
from repair.writing.mail_files import Refused, kind_of
from repair.writing.mailboxes import Mailboxes
from repair.writing.message_store import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """What is loaded, and into which mailbox.

    Attributes:
        path: an mbox, a Maildir, a folder of .eml files, or one of them.
        again: load a folder once more that was loaded already.
        blobs: where contents are kept.
    """

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
    with open_place(request.connection) as place:
        blobs, (family,) = _blobs_of(place, request.blobs), place.families((MESSAGES,))
        with MessageStore(place.mail, blobs, lag_journal(place), place.clock, family=family) as store:
            loader = Loader(store, place.clock, state_folders().loads, caller.progress, name_refused)
            folder = Folder(request.path, kind, place.mail.name, request.user, request.mailbox)
            mailbox = Mailboxes(place.mail, place.clock).ensure(request.user, request.mailbox)
            return LoadResult(place.mail.name, loader.load(folder, mailbox, again=request.again))


def _blobs_of(place: Place, settings: BlobsSettings) -> Blobs:
    """The store, with new ids made of the bytes: copies of a message share one blob, and no delete removes it.

    Raises:
        SchemaMismatch: the keyspace keeps no blobs.
    """
    if settings.address.store is Store.CASSANDRA:
        live = live_schema(place.cluster, place.mail.name)
        lacking = tuple(table.spelling for table in (BLOBS, BLOB_PARTS) if live.table(table.name) is None)
        if lacking:
            raise SchemaMismatch(place.mail.name, lacking)
    naming = replace(settings.address.naming, mode=BlobsMode.DEDUPLICATED)
    settings = settings._replace(address=replace(settings.address, naming=naming))
    return wiring_queue.blobs_behind(settings, wiring_queue.tables_of(place.mail), place.clock)
