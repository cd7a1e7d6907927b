"""The tables of James that have rows of mailboxes, by the mailbox's id."""

from typing import Final

from mailmend.model.catalog.james_tables import ACL, ANNOTATION, USER_MAILBOX_ACL
from mailmend.model.catalog.mail import (
    APPLICABLE_FLAG,
    FIRST_UNSEEN,
    MAILBOX_COUNTERS,
    MAILBOX_RECENTS,
    MESSAGE_DELETED,
    MESSAGE_ID,
)

TABLES_OF_MAILBOXES: Final = (
    (MESSAGE_ID, "mailboxid"),
    (MAILBOX_COUNTERS, "mailboxid"),
    (FIRST_UNSEEN, "mailboxid"),
    (MAILBOX_RECENTS, "mailboxid"),
    (MESSAGE_DELETED, "mailboxid"),
    (APPLICABLE_FLAG, "mailboxid"),
    (ACL, "id"),
    (USER_MAILBOX_ACL, "mailboxid"),
    (ANNOTATION, "mailboxid"),
)
"""Each table with its column of mailbox ids.

The rows of imapUidTable are the rows of messageIdTable, which a check of messages compares.
"""
