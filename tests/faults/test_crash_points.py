"""A writer killed between any two of its writes: after one repair all agrees, and nothing acknowledged is lost."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from cql.driver.session import Contact, connect
from model.catalog.mail import IMAP_UID
from model.messages.flags import flags_of, parse_flags
from model.operations import Scan
from model.schema.table import Row
from repair.clock import SystemClock
from tests.support.crashing import OPERATIONS
from tests.support.keyspaces import LEDGER, MAIL, created, dropped
from tests.support.repairing import Workplace
from tests.support.servers import CassandraServer
from tests.support.thorough import first_of

WRITES_MAX = 40


@dataclass(slots=True)
class Story:
    """What one child told before its end."""

    operation: str
    writes: int
    source: UUID
    target: UUID
    acknowledged: list[dict[str, Any]] = field(default_factory=list)
    end: Any = None

    @property
    def first(self) -> UUID:
        return UUID(self.acknowledged[0]["message"])

    @property
    def second(self) -> UUID:
        return UUID(self.acknowledged[1]["message"])

    @property
    def done(self) -> bool:
        return len(self.acknowledged) > 2


@pytest.mark.parametrize("strength", first_of(["strong", "plain"]))
def test_a_writer_may_be_killed_anywhere(cassandra: CassandraServer, strength: str) -> None:
    """Every operation is killed before each of its writes; then one repair makes all agree, and no change is lost."""
    names = (cassandra.keyspace(), cassandra.keyspace())
    with connect(Contact(hosts=(cassandra.host,), port=cassandra.port)) as cluster:
        mail, ledger = created(cluster, names[0], MAIL), created(cluster, names[1], LEDGER)
        try:
            stories = list(_every_story(cassandra, names, strength))
            place = Workplace(mail, ledger, SystemClock(), cluster)
            broken = place.drift()
            place.repair()
            left = place.drift()
            rows = list(mail.scan(Scan(IMAP_UID, IMAP_UID.names)))
        finally:
            dropped(cluster, names)

    assert sum(story.end == "killed" for story in stories) >= 6 * len(OPERATIONS)
    assert broken, "crashes leave drift behind, or the kills came too early"
    assert left == []
    for story in stories:
        _check_nothing_is_lost(story, rows)


def _every_story(server: CassandraServer, names: tuple[str, str], strength: str) -> Iterator[Story]:
    """Each operation, killed before its first write, its second, and so on until it gets through."""
    command = [sys.executable, "-m", "tests.support.crashing", server.host, str(server.port), *names]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        for operation in OPERATIONS:
            for writes in range(WRITES_MAX):
                story = _story(program, operation, writes, strength)
                yield story
                if story.end != "killed":
                    assert story.end == 0
                    assert story.done
                    break
            else:
                pytest.fail(f"{operation} makes more than {WRITES_MAX} writes")
        assert program.stdin is not None
        program.stdin.close()


def _story(program: subprocess.Popen[str], operation: str, writes: int, strength: str) -> Story:
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write(f"{operation} {writes} {strength}\n")
    program.stdin.flush()
    scene = json.loads(program.stdout.readline())
    story = Story(operation, writes, UUID(scene["source"]), UUID(scene["target"]))
    for line in program.stdout:
        acknowledged = json.loads(line)
        if "end" in acknowledged:
            story.end = acknowledged["end"]
            return story
        story.acknowledged.append(acknowledged)
    pytest.fail("the writer's program ended")


def _check_nothing_is_lost(story: Story, rows: list[Row]) -> None:
    """The truth is as acknowledged; a change that was not may have happened or not, but not by half."""
    where = f"{story.operation} killed before write {story.writes}"
    mine = {
        (row["messageid"], row["mailboxid"]): row for row in rows if row["mailboxid"] in (story.source, story.target)
    }
    assert (story.second, story.source) in mine, where
    kept, arrived = mine.get((story.first, story.source)), mine.get((story.first, story.target))
    match story.operation:
        case "add" | "add_many":
            acknowledged = {(UUID(one["message"]), UUID(one["mailbox"])) for one in story.acknowledged}
            assert acknowledged <= set(mine), where
        case "copy":
            assert kept, where
            assert arrived or not story.done, where
        case "move":
            assert arrived or (kept and not story.done), where
            assert not (kept and story.done), where
        case "delete":
            assert not (kept and story.done), where
        case "see" | "replace_flags":
            assert kept, where
            _check_flags(story, kept, where)
        case _:
            pytest.fail(f"nobody says what {story.operation} must keep")


def _check_flags(story: Story, row: Row, where: str) -> None:
    flags = flags_of(row)
    before = parse_flags([r"\Recent", "work"])
    after = {
        "see": parse_flags([r"\Recent", r"\Seen", "work", "urgent"]),
        "replace_flags": parse_flags([r"\Recent", r"\Deleted", "later"]),
    }[story.operation]
    assert flags in ([after] if story.done else [before, after]), where
