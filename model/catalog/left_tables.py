"""Denormalised tables of James that a check of messages leaves out, with what they follow from.

Names are in James's spelling. Source: James's own definitions of tables and its tasks at 20bf8083
(August 2026), and the tables of 3.8 and 3.9 that a keyspace may still have.
"""

from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Final

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


_ROUTES: Final = {
    "populateEmailQueryView": "POST /mailboxes?task=populateEmailQueryView",
    "recomputeFastViewProjectionItems": "POST /mailboxes?task=recomputeFastViewProjectionItems",
    "RecomputeCurrentQuotas": "POST /quota/users?task=RecomputeCurrentQuotas",
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

LEFT_TABLES: Final = (
    LeftTable(MAILBOX.spelling, _PATHS, check="all"),
    LeftTable(ACL.spelling, f"{_PATHS}: mailboxes that exist", reason=_GONE),
    LeftTable(USER_MAILBOX_ACL.spelling, ACL.spelling, check=_DECLARED),
    LeftTable(ANNOTATION.spelling, f"{_PATHS}: mailboxes that exist", reason=_GONE),
    LeftTable(SUBSCRIPTION.spelling, f"{_PATHS}: mailboxes that exist", reason=_SUBSCRIBED),
    LeftTable(THREAD.spelling, f"{_TRUTH}, headers of messages", of_mail=True),
    LeftTable(THREAD_LOOKUP.spelling, THREAD.spelling, of_mail=True),
    LeftTable("threadTable", f"{_TRUTH}, headers of messages", of_mail=True),
    LeftTable("threadLookupTable", "threadTable", of_mail=True),
    LeftTable(ATTACHMENT.spelling, f"{MESSAGE_V3.spelling}.attachments", of_mail=True),
    LeftTable(EMAIL_QUERY_VIEW.spelling, _TRUTH, "populateEmailQueryView", of_mail=True),
    LeftTable("email_query_view_sent_at", _TRUTH, "populateEmailQueryView", of_mail=True),
    LeftTable("email_query_view_date_lookup", _TRUTH, "populateEmailQueryView", of_mail=True),
    LeftTable(
        FAST_VIEW.spelling,
        "contents of messages",
        "recomputeFastViewProjectionItems",
        of_mail=True,
    ),
    LeftTable(
        "quotaCurrentValue",
        f"{_TRUTH}, uploadsV2, sieve",
        "RecomputeCurrentQuotas",
        of_mail=True,
    ),
    LeftTable("currentQuota", _TRUTH, "RecomputeCurrentQuotas", of_mail=True),
    LeftTable("pop3metadata", _TRUTH, "fixPop3Inconsistencies", of_mail=True),
    LeftTable("mappings_sources", "rrt", check=_DECLARED),
    LeftTable("filters_projection", EVENT_STORE.spelling, "populateFilteringProjection"),
    LeftTable("taskExecutionDetailsProjection", EVENT_STORE.spelling),
    LeftTable("sieve_active", "names of scripts in sieve"),
    LeftTable("sieve_space", "sieve"),
    LeftTable("user", "its own delegated_users and authorized_users, which are two sides of one"),
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


def unwritten_tables(live: Container[str]) -> Iterator[LeftTable]:
    """The tables of mails that a keyspace has, and that `load` and `MessageStore` do not write."""
    for left in LEFT_TABLES:
        if left.of_mail and name_of(left.table) in live:
            yield left
