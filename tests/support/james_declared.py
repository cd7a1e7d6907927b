"""Tables of James that the shipped declaration names, and that a keyspace made here does not have."""

from typing import Final

from mailmend.model.table import Table, columns

CONTENTS: Final = Table(
    "mailRepositoryContentV2",
    columns(
        "name text, mailKey text",
        regular="messageSize bigint, state text, headerBlobId text, bodyBlobId text, errorMessage text",
    ),
)
KEYS: Final = Table("mailRepositoryKeys", columns("name text", "mailKey text"))
MAPPINGS: Final = Table("rrt", columns("user text", "domain text, mapping text"))
SOURCES: Final = Table("mappings_sources", columns("mapping_type text, mapping_value text", "source text"))
OLDER_VIEW: Final = Table(
    "email_query_view_received_at",
    columns("mailboxId uuid", "receivedAt timestamp DESC, messageId uuid", "sentAt timestamp"),
)
"""The query view as James 3.8 and 3.9 have it."""

POP3: Final = Table("pop3metadata", columns("mailboxId timeuuid", "messageId timeuuid", "size bigint"))
