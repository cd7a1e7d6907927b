"""What nodetool says of the queue's tables, and what it wants to be told."""

import json
from datetime import UTC, datetime
from uuid import UUID

import pytest

from mailmend.mailqueue.rules.size import OnDisk, Rewritten, compactions, key_text, on_disk
from mailmend.model.errors import BadPayload

STATS = {
    "total_number_of_tables": 2,
    "ks": {
        "tables": {
            "enqueuedmailsv4": {"space_used_live": "1500", "sstable_count": 3},
            "deletedmailsv2": {"space_used_live": 500, "sstable_count": "1"},
        }
    },
}
PAST = {
    "CompactionHistory": [
        {"id": "a", "keyspace_name": "ks", "columnfamily_name": "deletedmailsv2", "bytes_in": 40},
        {"id": "b", "keyspace_name": "ks", "columnfamily_name": "enqueuedmailsv4", "bytes_in": 50},
        {"id": "c", "keyspace_name": "other", "columnfamily_name": "deletedmailsv2", "bytes_in": 60},
    ]
}


@pytest.mark.parametrize("before", ["", "Warning: Permanently added 'node' to the list of known hosts.\n"])
def test_tables_are_summed_whatever_a_shell_says_first(before: str) -> None:
    assert on_disk(before + json.dumps(STATS), "ks") == OnDisk(2000, 4)


@pytest.mark.parametrize("answer", ["", "{}", "nonsense", '{"ks": {"tables": {"a": {}}}}', '{"ks": 1}'])
def test_what_nodetool_does_not_answer_is_refused(answer: str) -> None:
    with pytest.raises(BadPayload, match="answered something else"):
        on_disk(answer, "ks")


def test_compactions_are_those_of_the_table() -> None:
    assert compactions(json.dumps(PAST), "ks", "deletedmailsv2") == {"a": 40}
    assert compactions("{ }", "ks", "deletedmailsv2") == {}


def test_seconds_follow_the_bytes() -> None:
    assert Rewritten(500, 0.25).seconds_for(OnDisk(2000, 4)) == 1.0


def test_a_key_is_spelled_as_nodetool_reads_it() -> None:
    """A colon stands between the parts, so one inside is escaped; an instant is its milliseconds."""
    assert key_text(("sp:ool", datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), 0)) == "sp\\:ool:1700000000000:0"
    assert key_text(("q", UUID(int=1))) == f"q:{UUID(int=1)}"
