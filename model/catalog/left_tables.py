"""Denormalised tables of James that a check of messages leaves out, with what they follow from.

Names are in James's spelling. Source: James's own definitions of tables and its tasks at 20bf8083
(August 2026), and the tables of 3.8 and 3.9 that a keyspace may still have.
"""

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from typing import Final

from mailmend.model.catalog.compared_tables import (
    CURRENT_QUOTA,
    QUOTA_VALUE,
    SIEVE_ACTIVE,
    USER,
)
from mailmend.model.catalog.james_projections import JAMES
from mailmend.model.catalog.james_tables import (
    ACL,
    ANNOTATION,
    ATTACHMENT,
    BLOB_PARTS,
    BLOBS,
    EMAIL_QUERY_VIEW,
    EVENT_STORE,
    FAST_VIEW,
    SUBSCRIPTION,
    THREAD,
    THREAD_LOOKUP,
    USER_MAILBOX_ACL,
)
from mailmend.model.catalog.mail import IMAP_UID, MAILBOX, MAILBOX_PATH, MESSAGE_V3
from mailmend.model.catalog.mail_queue import (
    BROWSE_START,
    CONTENT_START,
    DELETED_MAILS,
    ENQUEUED_MAILS,
)
from mailmend.model.names import name_of
from mailmend.model.table import Table


@dataclass(frozen=True, slots=True)
class LeftTable:
    """A table that follows from others, and that is not compared with them.

    Attributes:
        table: its name.
        truth: what it follows from: tables, or a few words.
        task: the task of James that makes it true again; "" where James has none.
        check: what follows `mailmend check` where that looks at it; "" where no check does.
        of_mail: whether James writes to it for each mail that it stores; `load` and
            `MessageStore` do not.
        reason: why it was left out, as a sentence; "" where task and check tell.
    """

    table: str
    truth: str
    task: str = ""
    check: str = ""
    of_mail: bool = False
    reason: str = ""

    @property
    def route(self) -> str:
        """The request to James's webadmin that starts the task; "" where there is no task."""
        return _ROUTES.get(self.task, "")

    @property
    def filled(self) -> str:
        """How a mail that James did not store gets into it, as a sentence."""
        if self.route:
            return f"James fills it by {self.route}."
        return "James fills it only with mails that James stores."

    @property
    def why(self) -> str:
        """The reason why it was left out, as a sentence."""
        if self.reason:
            return self.reason
        if self.check:
            return f"`mailmend check {self.check}` looks at it."
        if self.task:
            return f"mailmend has no rule for it; James's task {self.task} makes it true again."
        return "mailmend has no rule for it, and James has no task for it."


QUOTAS_ROUTE: Final = "POST /quota/users?task=RecomputeCurrentQuotas"
"""The request that counts the quotas of all users anew."""

_ROUTES: Final = {
    "populateEmailQueryView": "POST /mailboxes?task=populateEmailQueryView",
    "recomputeFastViewProjectionItems": "POST /mailboxes?task=recomputeFastViewProjectionItems",
    "RecomputeCurrentQuotas": QUOTAS_ROUTE,
    "fixPop3Inconsistencies": "POST /mailboxes?task=fixPop3Inconsistencies",
    "populateFilteringProjection": "POST /mailboxes?task=populateFilteringProjection",
}

SEARCH_INDEX_ROUTE: Final = "POST /mailboxes?task=reIndex"
"""The request that puts mails into James's search index, which is no table."""

_DECLARED: Final = f"--projections {JAMES}"
_PATHS: Final = MAILBOX_PATH.spelling
_TRUTH: Final = IMAP_UID.spelling
_MARKS: Final = f"{ENQUEUED_MAILS.spelling}, {DELETED_MAILS.spelling}"
_GONE: Final = "`mailmend repair mailboxes --dry-run` names its rows of mailboxes that are no more."
_SUBSCRIBED: Final = "A user may be subscribed to a mailbox that does not exist (RFC 3501)."
_HEADERS: Final = f"{_TRUTH}, headers of messages"
_SHARED_ROWS: Final = (
    "A missing row is no fault: James removes it with any message that names the same mail. "
    "No table has the headers that its hashes are of."
)
_NO_OLDER_ROWS: Final = (
    "A missing row is no fault: messages from before James 3.9 have none. "
    "No table has the headers that its hashes are of."
)
_SPACE_IS_KEPT: Final = "James never takes off the size of a deleted script: a sound James differs."
_FOR_DELETIONS: Final = "James reads it only where it removes rows of threadTable."


def _compared(table: Table) -> str:
    """What follows `mailmend check` for a table that is compared where it is named."""
    return f"{table.spelling} {_DECLARED}"


LEFT_TABLES: Final = (
    LeftTable(MAILBOX.spelling, _PATHS, check="all"),
    LeftTable(ACL.spelling, f"{_PATHS}: mailboxes that exist", reason=_GONE),
    LeftTable(USER_MAILBOX_ACL.spelling, ACL.spelling, check=_DECLARED),
    LeftTable(ANNOTATION.spelling, f"{_PATHS}: mailboxes that exist", reason=_GONE),
    LeftTable(SUBSCRIPTION.spelling, f"{_PATHS}: mailboxes that exist", reason=_SUBSCRIBED),
    LeftTable(THREAD.spelling, _HEADERS, of_mail=True, reason=_SHARED_ROWS),
    LeftTable(THREAD_LOOKUP.spelling, _HEADERS, of_mail=True, reason=_NO_OLDER_ROWS),
    LeftTable("threadTable", _HEADERS, of_mail=True, reason=_SHARED_ROWS),
    LeftTable("threadLookupTable", "threadTable", of_mail=True, reason=_FOR_DELETIONS),
    LeftTable(
        ATTACHMENT.spelling,
        f"{MESSAGE_V3.spelling}.attachments",
        check=_compared(ATTACHMENT),
        of_mail=True,
    ),
    LeftTable(
        EMAIL_QUERY_VIEW.spelling,
        _TRUTH,
        "populateEmailQueryView",
        _DECLARED,
        of_mail=True,
    ),
    LeftTable("email_query_view_sent_at", _TRUTH, "populateEmailQueryView", of_mail=True),
    LeftTable("email_query_view_date_lookup", _TRUTH, "populateEmailQueryView", of_mail=True),
    LeftTable(
        FAST_VIEW.spelling,
        "contents of messages",
        "recomputeFastViewProjectionItems",
        of_mail=True,
    ),
    LeftTable(
        QUOTA_VALUE.spelling,
        f"{_TRUTH}, uploadsV2, sieve",
        "RecomputeCurrentQuotas",
        check=_compared(QUOTA_VALUE),
        of_mail=True,
    ),
    LeftTable(
        CURRENT_QUOTA.spelling,
        _TRUTH,
        "RecomputeCurrentQuotas",
        check=_compared(CURRENT_QUOTA),
        of_mail=True,
    ),
    LeftTable("pop3metadata", _TRUTH, "fixPop3Inconsistencies", _DECLARED, of_mail=True),
    LeftTable("mappings_sources", "rrt", check=_DECLARED),
    LeftTable("filters_projection", EVENT_STORE.spelling, "populateFilteringProjection"),
    LeftTable("taskExecutionDetailsProjection", EVENT_STORE.spelling),
    LeftTable(SIEVE_ACTIVE.spelling, "names of scripts in sieve", check=_DECLARED),
    LeftTable("sieve_space", "sieve", reason=_SPACE_IS_KEPT),
    LeftTable(
        USER.spelling,
        "its own delegated_users and authorized_users, which are two sides of one",
        check=_DECLARED,
    ),
    LeftTable("group_table", "event_dead_letters"),
    LeftTable("mailRepositoryKeys", "mailRepositoryContentV2", check=_DECLARED),
    LeftTable("storageInformation", "the bucket of the deleted messages vault"),
    LeftTable("userPerBucket", "deletedMessageMetadata"),
    LeftTable("blobsInBucket", "blobPartsInBucket"),
    LeftTable(BLOBS.spelling, BLOB_PARTS.spelling, check="blobs"),
    LeftTable(BROWSE_START.spelling, _MARKS, check="queues"),
    LeftTable(CONTENT_START.spelling, _MARKS, check="queues"),
)
"""Every denormalised table that is no projection of the messages."""


def left_tables(live: Container[str], looked_at: Container[str]) -> Iterator[LeftTable]:
    """The tables that a keyspace has and a check leaves out.

    Args:
        live: the names of the keyspace's tables.
        looked_at: the words of `mailmend check` that the check covers.
    """
    for left in LEFT_TABLES:
        if name_of(left.table) in live and left.check not in looked_at:
            yield left


_UNFILLED: Final = "It has no row: James fills it only where its listener is turned on."


def unfilled_tables(empty: Container[str]) -> tuple[LeftTable, ...]:
    """The tables without rows that `--projections james` leaves, with what fills them.

    Args:
        empty: the names of tables without any row.
    """
    found = []
    for left in LEFT_TABLES:
        if name_of(left.table) in empty:
            reason = f"{_UNFILLED} `{left.route}` fills it for mails that are there."
            found.append(replace(left, check="", reason=reason))
    return tuple(found)


def unwritten_tables(live: Container[str]) -> Iterator[LeftTable]:
    """The tables of mails that a keyspace has, and that `load` and `MessageStore` do not write."""
    for left in LEFT_TABLES:
        if left.of_mail and name_of(left.table) in live:
            yield left
