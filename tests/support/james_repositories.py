"""The two tables of James's mail repositories: the mails, and the keys that list them."""

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
