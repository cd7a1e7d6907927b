"""The disk space of the queue's tables on a node, and the cost of removing garbage from them. Pure.

Sources: the output of `nodetool tablestats`, `getsstables` and `compactionhistory`, seen with Cassandra 4.1 and 5.0.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mailmend.mailqueue.rules.slices import millis_of
from mailmend.model.errors import BadPayload
from mailmend.model.table import Key


@dataclass(frozen=True, slots=True)
class OnDisk:
    """The disk space of tables on one node: live SSTables only."""

    bytes: int
    sstables: int

    def __add__(self, other: "OnDisk") -> "OnDisk":
        return OnDisk(self.bytes + other.bytes, self.sstables + other.sstables)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """How long rewriting SSTables took, and their size."""

    bytes: int
    seconds: float

    def seconds_for(self, some: OnDisk) -> float:
        return some.bytes * self.seconds / self.bytes


def on_disk(answer: str, keyspace: str) -> OnDisk:
    """Parse the output of `nodetool tablestats --format json`: the disk space of the keyspace's tables.

    Raises:
        BadPayload: it is not what nodetool answers.
    """
    try:
        tables = _object(answer)[keyspace]["tables"].values()
        return sum(
            (OnDisk(int(table["space_used_live"]), int(table["sstable_count"])) for table in tables), OnDisk(0, 0)
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadPayload(f"nodetool tablestats of {keyspace} answered something else: {answer[:80]!r}") from error


def compactions(answer: str, keyspace: str, table: str) -> Mapping[str, int]:
    """Parse the output of `nodetool compactionhistory --format json`: bytes read by each compaction, by its id.

    Raises:
        BadPayload: it is not what nodetool answers.
    """
    try:
        past: Iterable[Mapping[str, str]] = _object(answer).get("CompactionHistory", ())
        where = (keyspace, table)
        return {
            row["id"]: int(row["bytes_in"]) for row in past if (row["keyspace_name"], row["columnfamily_name"]) == where
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadPayload(f"nodetool compactionhistory answered something else: {answer[:80]!r}") from error


def key_text(partition: Key) -> str:
    """A partition's key as nodetool reads it."""
    return ":".join(_part(value).replace(":", "\\:") for value in partition)


def _part(value: object) -> str:
    return str(millis_of(value)) if isinstance(value, datetime) else str(value)


def _object(answer: str) -> Any:
    """The text before it is warnings of a shell or of Java."""
    return json.loads(answer[answer.index("{") :])
