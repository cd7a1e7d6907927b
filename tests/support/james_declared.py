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
