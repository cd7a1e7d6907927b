"""Rows of mailboxes that are no more: under an id that neither `mailbox` nor a registered path has.

James removes them in the background after a mailbox is deleted, apart from annotations. What a lost
event leaves stays for ever. The rows are reported and never removed: they may be all that is left
of a mailbox. Not looked at: generators of uids and modseqs, which James keeps, and subscriptions,
which are by name and may outlive a mailbox (RFC 3501).
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from mailmend.model.catalog.mail import MAILBOX, MAILBOX_PATH
from mailmend.model.catalog.of_mailboxes import TABLES_OF_MAILBOXES
from mailmend.model.operations import Level, Scan
from mailmend.model.ports import Tables
from mailmend.model.table import Table

MailboxRows = Mapping[UUID, Sequence[str]]
"""Ids of mailboxes, with the tables that have rows of each."""


@dataclass(frozen=True, slots=True)
class GoneMailbox:
    """A mailbox that is no more, and the tables that still have rows of it, in James's spelling."""

    mailbox: UUID
    tables: Sequence[str]


def suspect_mailboxes(mail: Tables, live: Container[str], level: Level) -> MailboxRows:
    """The ids that no mailbox has now.

    A mailbox is written before its rows, so it is read after them. Memory: some 250 bytes for each
    mailbox of the keyspace that has rows.

    Args:
        mail: the mail keyspace; every partition of these tables is read once.
        live: the names of the tables that the keyspace has.
        level: of the reads.
    """
    if MAILBOX.name not in live or MAILBOX_PATH.name not in live:
        return {}
    found: dict[UUID, list[str]] = {}
    for table, column in TABLES_OF_MAILBOXES:
        if table.name in live:
            for mailbox in _mailboxes_in(mail, table, column, level):
                found.setdefault(mailbox, []).append(table.spelling)
    for table, column in ((MAILBOX, "id"), (MAILBOX_PATH, "mailboxid")):
        for row in mail.scan(Scan(table, (column,), level)):
            found.pop(row[column], None)
    return found


def _mailboxes_in(mail: Tables, table: Table, column: str, level: Level) -> set[UUID]:
    distinct = table.partition_names == (column,)
    rows = mail.scan(Scan(table, (column,), level, distinct=distinct))
    return {row[column] for row in rows}


def gone_mailboxes(before: MailboxRows, after: MailboxRows) -> tuple[GoneMailbox, ...]:
    """The suspects of two looks, with the rows that the second one saw."""
    gone = sorted(before.keys() & after.keys())
    return tuple(GoneMailbox(mailbox, after[mailbox]) for mailbox in gone)
