"""A published table that no declaration can say: the views of tags of akka-persistence-cassandra."""

import pytest

from mailmend.model.keyspace import Schema
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.table import Table, columns
from mailmend.repair.declared import DoesNotFit, declared_families

MESSAGES = Table(
    "messages",
    columns(
        "persistence_id text, partition_nr bigint",
        "sequence_nr bigint, timestamp timeuuid",
        "timebucket text, writer_uuid text, event blob, tags set<text>",
    ),
)
TAG_VIEWS = Table(
    "tag_views",
    columns(
        "tag_name text, timebucket bigint",
        "timestamp timeuuid, persistence_id text, tag_pid_sequence_nr bigint",
        "sequence_nr bigint, writer_uuid text, event blob",
    ),
)
DECLARED = """
[truth.messages.explode.tag_views]
column = "tags"
element = "tag_name"
"""


@pytest.mark.parametrize(
    "why",
    [
        "no column of messages gives the key column tag_views.tag_pid_sequence_nr",
        "no column of tag_views holds messages.partition_nr, so no row of it leads back to its truth",
    ],
)
def test_a_row_that_is_numbered_among_others_is_refused_with_what_it_lacks(why: str) -> None:
    with pytest.raises(DoesNotFit, match=why):
        declared_families(
            "akka",
            read_declaration(DECLARED, "akka.toml"),
            Schema((), (MESSAGES, TAG_VIEWS)),
        )
