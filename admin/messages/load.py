"""`mailmend load`: mail from files into a mailbox, through the store that services write through.

Contents go into the store that is named, else where the contents of the keyspace's present messages are. A reader of
the mail, James or ours, has one store. The present messages show which one: a few are looked for. So no mail is
written where its reader would not find it, and none under an id that its reader deletes too early.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import click

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import OpenCluster, lag_journal, open_cluster, state_folder
from mailmend.admin.frame.command import Command
from mailmend.admin.frame.document import Document, Grid
from mailmend.admin.frame.event_loop import run_async
from mailmend.admin.frame.options import CONNECTION, flag, option
from mailmend.admin.frame.settings import BlobsAddress, BlobsSettings, ConnectionSettings, Store
from mailmend.admin.frame.values import fields_json
from mailmend.admin.queue import openers
from mailmend.admin.queue.options import MESSAGE_BLOBS
from mailmend.cql.introspect import live_schema, tables_of
from mailmend.mailqueue.rules.blob_ids import BlobNaming, BlobsMode, is_blob_id, naming_of
from mailmend.model.blobs import Blobs
from mailmend.model.catalog.james_tables import BLOB_PARTS, BLOBS
from mailmend.model.catalog.left_tables import SEARCH_INDEX_ROUTE, LeftTable, unwritten_tables
from mailmend.model.catalog.mail import MESSAGE_V3, MESSAGES
from mailmend.model.errors import (
    BlobEncrypted,
    BlobMissing,
    BlobsUnreachable,
    ExitCode,
    SchemaMismatch,
    UnsafeRequest,
)
from mailmend.model.ids import BlobId, micros_of
from mailmend.model.operations import Scan
from mailmend.model.ports import Tables
from mailmend.model.texts import keyspace_option
from mailmend.repair.scanners.lookup import similar_user
from mailmend.repair.store.loading import Folder, Loaded, Loader
from mailmend.repair.store.mail_files import FolderKind, Refused, kind_of
from mailmend.repair.store.mailboxes import Mailboxes, did_you_mean, mailbox_name, user_name
from mailmend.repair.store.mbox import Doubt
from mailmend.repair.store.message_store import MessageStore
from mailmend.repair.store.writes import WriterSettings

ROWS_READ: Final = 200
"""How many rows are read, in token order, so that old and new messages are among them."""

NEWEST: Final = 10
"""How many of the newest rows are looked for in the store: it may have been another store before."""


def message_blobs(opened: OpenCluster, named: BlobsSettings | None, remark: Callable[[str], None]) -> Blobs:
    """The store of the contents, which names new blobs as the blobs of the present messages are named.

    Without such messages ids are made of the bytes: copies of a message share one blob, and no delete removes it.

    Args:
        opened: the cluster, with the mail keyspace.
        named: the store that a person named; None: the tables of the mail keyspace.
        remark: receives a doubt about the store that was named.

    Raises:
        SchemaMismatch: the tables are to be used, and the keyspace has none.
        UnsafeRequest: none is named, and the contents of the keyspace's messages are not in its tables.
        UnsafeRequest: the contents are encrypted, and James could not read what is stored as it is.
    """
    settings = named or BlobsSettings(BlobsAddress(Store.CASSANDRA))
    keyspace = opened.mail.name
    if settings.address.store is Store.CASSANDRA:
        _refuse_without_tables(opened, keyspace)
    tables = openers.tables_of(opened.mail)
    newest = _newest(opened)

    async def kept() -> list[tuple[BlobId, int]]:
        looked_in = openers.blobs_behind(settings, tables, opened.clock)
        there = [(blob, at) for blob, at in newest if await looked_in.exists(blob)]
        await _refuse_encrypted(looked_in, (blob for blob, _ in there))
        return there

    found = []
    if newest:
        found = run_async(kept())
    if 2 * len(found) <= len(newest) and newest:
        gone = f"of the {len(newest)} messages of {keyspace} that were looked at, {len(found)} have their content in "
        if named is None:
            raise UnsafeRequest(
                f"{gone}its tables {_TABLES}: who reads them has another store",
                mend=f"{_NAME_STORE}. To use the tables all the same: --blobs cassandra:",
            )
        remark(f"{gone}{settings.address.place}: is it the store that is read for this keyspace?")
    naming = settings.address.naming
    if not naming and found:
        naming = naming_of(found)
    if not naming:
        naming = BlobNaming(BlobsMode.DEDUPLICATED)
    settings = settings._replace(address=replace(settings.address, naming=naming))
    return openers.blobs_behind(settings, tables, opened.clock)


def message_store(
    opened: OpenCluster,
    named: BlobsSettings | None,
    remark: Callable[[str], None],
    settings: WriterSettings | None = None,
) -> MessageStore:
    """The messages of the mail keyspace, to be written; the ledger is created if missing.

    Args:
        opened: the cluster, with the mail keyspace.
        named: as for `message_blobs`, which raises for it.
        remark: as for `message_blobs`.
        settings: as for `MessageStore`.

    Raises:
        SchemaMismatch: the keyspace lacks a table or column that mail is written to.
    """
    blobs = message_blobs(opened, named, remark)
    (family,) = opened.bound((MESSAGES,)).whole(opened.mail.name, may_leave_out=False)
    lags = lag_journal(opened, opened.ledger())
    return MessageStore(opened.mail, blobs, lags, opened.clock, family=family, settings=settings)


def _newest(opened: OpenCluster) -> list[tuple[BlobId, int]]:
    """Ids of header blobs and when their messages were made, the newest first."""
    columns = ("messageid", "headercontent", "bodycontent")
    rows = opened.mail.scan(Scan(MESSAGE_V3, columns, limit=ROWS_READ))
    found = []
    for row in rows:
        header: str = row.get("headercontent") or ""
        if all(map(row.get, columns)) and is_blob_id(header):
            found.append((micros_of(row["messageid"]), BlobId(header)))
    return [(blob, at) for at, blob in sorted(found, reverse=True)[:NEWEST]]


async def _refuse_encrypted(blobs: Blobs, there: Iterable[BlobId]) -> None:
    for blob_id in there:
        try:
            await blobs.get(blob_id)
        except BlobEncrypted as error:
            raise UnsafeRequest(
                f"{error.what}: James could not read a message that is stored here as it is",
                mend="Let James take the mail: IMAP APPEND, or its SMTP.",
            ) from None
        except (BlobMissing, BlobsUnreachable):
            continue  # it went since, or is compressed: James reads others as they are


def _refuse_without_tables(opened: OpenCluster, keyspace: str) -> None:
    live = live_schema(opened.cluster, keyspace)
    lacking = tuple(table.spelling for table in (BLOBS, BLOB_PARTS) if live.table(table.name) is None)
    if lacking:
        raise SchemaMismatch(
            keyspace,
            lacking,
            mend=f"{_NAME_STORE}. Where it should have them: mailmend schema verify {keyspace_option(keyspace)}",
        )


_TABLES: Final = f"{BLOBS.spelling} and {BLOB_PARTS.spelling}"
_NAME_STORE: Final = (
    "Name the store that James has for this keyspace (blob.properties): --blobs 's3://BUCKET?endpoint=URL', or "
    "MAILMEND_BLOBS"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """What is loaded, and into which mailbox."""

    connection: ConnectionSettings
    path: Path
    user: str
    mailbox: str
    blobs: BlobsSettings | None = None
    again: bool = False


SHOWN_MAX = 100
"""The largest number of doubts, and of items that were not stored, in a result; each is also a remark."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The totals of a load.

    Attributes:
        kind: what was read.
        not_stored: the first messages and files that were not stored.
        doubts: the first lines of an mbox that may be read either way.
        left_tables: the tables of the keyspace that James fills for a mail, and a load does not.
    """

    keyspace: str
    sums: Loaded
    kind: FolderKind = FolderKind.MBOX
    not_stored: Sequence[Refused] = ()
    doubts: Sequence[Doubt] = ()
    left_tables: Sequence[LeftTable] = ()


def load(request: LoadRequest, caller: Caller) -> LoadResult:
    """Read mbox, Maildir, .eml or .emlx files into a mailbox, which is created if missing.

    Raises:
        BadMail: the path is no mail.
        BadName: James cannot know such a user or mailbox.
        UnsafeRequest: all of it was loaded already.
        SchemaMismatch: the keyspace is not one that mail can be written to.
        UnsafeRequest: no store is named, and contents are not kept in the keyspace's tables.
        OctetsLost: bytes of the folder are in no message.
    """
    not_stored: list[Refused] = []
    doubts: list[Doubt] = []

    def name_refused(refused: Refused) -> None:
        caller.remark(f"{refused.reason.value}: {refused.name}: {refused.why}. {refused.mend}".rstrip(". "))
        if len(not_stored) < SHOWN_MAX:
            not_stored.append(refused)

    def name_doubt(doubt: Doubt) -> None:
        read = "is part of a message"
        if doubt.begins:
            read = "begins a message"
        caller.remark(f"doubtful: {request.path} at byte {doubt.offset}: {doubt.line!r} {read}, but {doubt.why}")
        if len(doubts) < SHOWN_MAX:
            doubts.append(doubt)

    user = user_name(request.user)
    name = mailbox_name(request.mailbox)
    kind = kind_of(request.path)
    with open_cluster(request.connection) as opened, message_store(opened, request.blobs, caller.remark) as store:
        state = state_folder("loads")
        loader = Loader(store, opened.clock, state, caller.progress, name_refused, doubt=name_doubt)
        folder = Folder(request.path, kind, opened.mail.name, user, name)
        mailboxes = Mailboxes(opened.mail, opened.clock)
        _remark_new(opened.mail, mailboxes, folder, caller)
        mailbox = mailboxes.ensure(user, name)
        sums = loader.load(folder, mailbox, again=request.again)
        left = tuple(unwritten_tables(tables_of(opened.cluster, opened.mail.name)))
        return LoadResult(opened.mail.name, sums, kind, not_stored, doubts, left)


def _remark_new(mail: Tables, mailboxes: Mailboxes, folder: Folder, caller: Caller) -> None:
    """Say that a user or mailbox is new where a similar one exists: a typing error makes one without a reader."""
    names = mailboxes.names(folder.user)
    if folder.mailbox in names:
        return
    if names:
        like = did_you_mean(folder.mailbox, names)
        what = f"mailbox {folder.mailbox!r} of {folder.user!r}"
    else:
        like = similar_user(mail, folder.user)
        what = f"user {folder.user!r}"
    if like:
        caller.remark(f"{what} is new. {like}")


def load_document(result: LoadResult) -> Document:
    sums = result.sums
    keyspace = result.keyspace
    unnoted = f"Next: mailmend repair messages {keyspace_option(keyspace)}"
    said = (
        (True, f"Stored {sums.stored:,} messages ({sums.octets:,} bytes)."),
        (sums.already, f"{sums.already:,} had been stored by an earlier load that was interrupted."),
        (sums.refused, f"{sums.refused:,} were refused; each was named."),
        (sums.skipped, f"{sums.skipped:,} sub-folders or files were skipped; each was named."),
        (sums.deleted, f"{sums.deleted:,} messages that the source marks as deleted stay away."),
        (sums.doubtful, f"{sums.doubtful:,} lines may be read in two ways; each was named with its offset."),
        (result.kind is FolderKind.MBOX, _octets_line(sums)),
        (sums.lagged, f"{sums.lagged:,} lag. Next: mailmend repair lags {keyspace_option(keyspace)}"),
        (sums.unjournalled, f"{sums.unjournalled:,} of them could not be journalled. {unnoted}"),
        (sums.stored, f"Not in James's search index: {SEARCH_INDEX_ROUTE}. No event was fired."),
    )
    lines = tuple(line for wanted, line in said if wanted)
    left = []
    for refused in result.not_stored:
        left.append({**fields_json(refused, "name", "reason", "why"), "next": refused.mend})
    doubts = [fields_json(doubt, "offset", "line", "begins", "why") for doubt in result.doubts]
    unwritten = []
    for table in result.left_tables:
        unwritten.append(fields_json(table, "table", "truth", "task", "route", "filled"))
    json = {
        "keyspace": keyspace,
        **asdict(sums),
        "not_stored": left,
        "doubts": doubts,
        "left_tables": unwritten,
        "search_index": {"route": SEARCH_INDEX_ROUTE},
    }
    exit_code = ExitCode.FINE
    if sums.refused or sums.skipped or sums.unjournalled:
        exit_code = ExitCode.PARTLY_FAILED
    return Document(json, (*lines, *_load_grids(result)), exit=exit_code)


def _octets_line(sums: Loaded) -> str:
    others = sums.octets_already + sums.octets_left
    return (
        f"{sums.octets_read:,} bytes were read: {sums.octets:,} stored now, "
        f"{sums.octets_envelopes:,} of envelope lines, {sums.octets_separators:,} of separators, "
        f"{others:,} of messages that were not stored now."
    )


def _load_grids(result: LoadResult) -> Iterator[Grid]:
    if result.not_stored:
        rows = [(refused.name, refused.reason.value, refused.why, refused.mend) for refused in result.not_stored]
        yield Grid("Not stored", ("what", "reason", "why", "next"), rows, frozenset({"what", "why", "next"}))
    if result.doubts:
        lines = []
        for doubt in result.doubts:
            begins = "no"
            if doubt.begins:
                begins = "yes"
            lines.append((str(doubt.offset), begins, doubt.line, doubt.why))
        yield Grid("Doubtful lines", ("byte", "begins a message", "line", "why"), lines, frozenset({"line", "why"}))
    if result.left_tables and result.sums.stored:
        tables = [(table.table, table.truth, table.filled) for table in result.left_tables]
        heads = ("table", "follows from", "how James fills it")
        yield Grid("Tables of James without these messages", heads, tables)


LOAD: Final = Command(
    name="load",
    summary="Read mbox, Maildir, .eml or .emlx files into a mailbox.",
    about="""Contents are stored with the contents of the keyspace's present messages, under ids of the same form: in
    its tables unless --blobs names another store. If the present contents are in neither place, James has another
    store, and the load is refused until --blobs names that store. A malformed message is stored unchanged, byte for
    byte; what cannot be stored is named. A load that was interrupted continues where it stopped; a load that was
    finished is refused, unless --again asks for a second copy.

    An mbox may have any line ends (LF, CRLF, CR, mixed) and no empty line between its messages. A line that begins with
    'From ' and may be read either way is named with its offset. A Content-Length that is right decides where a message
    ends (mboxcl2); one that is wrong is named. Every byte that was read is in a message, an envelope line or a
    separator; a load whose bytes do not add up fails. Flags, keywords and labels of Maildir, dovecot, Thunderbird,
    Apple Mail (.emlx) and Gmail (in the languages of its accounts) are kept; messages that Thunderbird or Apple Mail
    has deleted stay away.

    Empty files, packed files (gzip, zip and others), UTF-16 and files without any header field are no mail: a file that
    is named is refused before anything is stored; a file in a folder is named, and the others are stored. Sub-folders
    and other files are skipped by name, with the command that loads them. Arguments are UTF-8; others
    are refused.

    James keeps further tables of a mail: threads, attachments, JMAP's views, quotas. A load does
    not write these. It names at its end those that the keyspace has, each with the request to James
    that fills it (`left_tables` in the JSON).""",
    service="mailmend.admin.messages.load:load",
    present="mailmend.admin.messages.load:load_document",
    options=(
        click.Argument(["path"], type=click.Path(exists=True, path_type=Path)),
        option("--user", "Whose mailbox.", required=True, metavar="NAME"),
        option("--mailbox", "Which mailbox: by its name; created if it does not exist.", required=True, metavar="NAME"),
        flag("--again", "Repeat what was done already: a second copy of all mail."),
    ),
    shared=(MESSAGE_BLOBS, CONNECTION),
    examples="""
        mailmend load archive.mbox --user ann --mailbox INBOX
        mailmend load ~/Maildir --user ann --mailbox Archive
        mailmend load letters/ --user ann --mailbox Letters     a folder of .eml files
        mailmend load letters/ --user ann --mailbox Letters --blobs file:///srv/mail-contents""",
    exits="0 every message is stored, 2 wrong use (not mail; loaded already), 3 some messages were refused, or "
    "sub-folders or files skipped (each is named; the rest is stored), or bytes of an mbox are in no message, or "
    "a lag could not be journalled; 3 or 4 when a disk is full or the cluster cannot be reached: "
    "the same command goes on from there.",
)
