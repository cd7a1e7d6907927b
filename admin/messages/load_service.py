"""Loads mail from files into a mailbox, through the store that services write through."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.cluster import lag_journal, open_cluster, state_folder
from mailmend.admin.frame.settings import BlobsSettings, ConnectionSettings
from mailmend.admin.messages.contents import message_blobs
from mailmend.model.catalog.mail import MESSAGES
from mailmend.model.ports import Tables
from mailmend.repair.scanners.lookup import similar_user
from mailmend.repair.store.loading import Folder, Loaded, Loader
from mailmend.repair.store.mail_files import FolderKind, Refused, kind_of
from mailmend.repair.store.mailbox_names import did_you_mean, mailbox_name, user_name
from mailmend.repair.store.mailboxes import Mailboxes
from mailmend.repair.store.mbox import Doubt
from mailmend.repair.store.message_store import MessageStore


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
    """

    keyspace: str
    sums: Loaded
    kind: FolderKind = FolderKind.MBOX
    not_stored: Sequence[Refused] = ()
    doubts: Sequence[Doubt] = ()


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
        read = "begins a message" if doubt.begins else "is part of a message"
        caller.remark(f"doubtful: {request.path} at byte {doubt.offset}: {doubt.line!r} {read}, but {doubt.why}")
        if len(doubts) < SHOWN_MAX:
            doubts.append(doubt)

    user = user_name(request.user)
    name = mailbox_name(request.mailbox)
    kind = kind_of(request.path)
    with open_cluster(request.connection) as opened:
        blobs, (family,) = (
            message_blobs(opened, request.blobs, caller.remark),
            opened.bound((MESSAGES,)).whole(opened.mail.name, may_leave_out=False),
        )
        with MessageStore(opened.mail, blobs, lag_journal(opened), opened.clock, family=family) as store:
            state = state_folder("loads")
            loader = Loader(store, opened.clock, state, caller.progress, name_refused, doubt=name_doubt)
            folder = Folder(request.path, kind, opened.mail.name, user, name)
            mailboxes = Mailboxes(opened.mail, opened.clock)
            _remark_new(opened.mail, mailboxes, folder, caller)
            mailbox = mailboxes.ensure(user, name)
            sums = loader.load(folder, mailbox, again=request.again)
            return LoadResult(opened.mail.name, sums, kind, not_stored, doubts)


def _remark_new(mail: Tables, mailboxes: Mailboxes, folder: Folder, caller: Caller) -> None:
    """Say that a user or mailbox is new where a similar one exists: a typing error makes one that nobody reads."""
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
