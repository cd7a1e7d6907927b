"""Tables of James whose rows are compared by rules of their own, and never written.

No declaration says what follows there: two sets of one table are sides of one relation, a flag is
shown while another table decides, a sum goes over all mailboxes of a user. Only the columns that
are read are here: `user` has hashes of passwords too. Source: CassandraUsersDAO,
CassandraSieveRepository, CassandraCurrentQuotaManagerV1 and V2, DefaultUserQuotaRootResolver and
CurrentQuotaCalculator, in James 3.8.1, 3.9.0 and 20bf8083 (August 2026).
"""

from typing import Final

from mailmend.model.catalog.mail import PRIVATE
from mailmend.model.table import Table, columns

USER: Final = Table(
    "user",
    columns(
        "name text",
        regular="algorithm text, authorized_users set<text>, delegated_users set<text>",
    ),
)
"""Users. A row without an algorithm is of no user: James writes such rows for delegations."""

SIEVE: Final = Table("sieve", columns("user_name text", "script_name text", "is_active boolean"))
"""Scripts. The flag is shown to the user; James writes false whenever a script is uploaded."""

SIEVE_ACTIVE: Final = Table("sieve_active", columns("user_name text", regular="script_name text"))
"""The script that runs for each user."""

QUOTA_VALUE: Final = Table(
    "quotaCurrentValue",
    columns("identifier text", "quotaComponent text, quotaType text", "currentValue counter"),
)
"""Current quotas since version 13 of James's schema (3.9)."""

CURRENT_QUOTA: Final = Table(
    "currentQuota",
    columns("quotaRoot text", regular="messageCount counter, storage counter"),
)
"""Current quotas of mailboxes before that version."""

MAILBOX_COMPONENT: Final = "MAILBOX"
"""The component of quotaCurrentValue that counts messages."""

QUOTA_TYPES: Final = ("count", "size")
"""Types of quotas: messages, and their bytes."""


def quota_root(user: str) -> str:
    """What James calls the mailboxes of a user that share a quota."""
    return f"{PRIVATE}&{user}"
