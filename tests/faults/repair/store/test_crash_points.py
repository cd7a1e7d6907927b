"""A writer killed between any two of its writes: after one repair all agrees, and nothing acknowledged is lost."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from mailmend.model.catalog.mail import IMAP_UID
from mailmend.model.operations import Scan
from mailmend.model.table import Row
from mailmend.repair.clock import SystemClock
from mailmend.repair.store.message import flags_of, parse_flags
from tests.support.crashing import OPERATIONS
from tests.support.keyspaces import MailServer
from tests.support.repairing import Workplace
from tests.support.thorough import ALL, first_of

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
def test_a_writer_may_be_killed_anywhere(mail_server: MailServer, strength: str, pytestconfig: pytest.Config) -> None:
    """Every operation is killed before each of its writes; then one repair makes all agree, and no change is lost.

    `make test` kills before every second write, in one operation before the odd ones, in the next before the even ones.
    """
    step = 1 if pytestconfig.getoption(ALL) else 2
    stories = list(_every_story(mail_server, strength, step))
    place = Workplace(mail_server.mail, mail_server.ledger, SystemClock(), mail_server.cluster)
    broken = place.drift()
    place.repair()
    left = place.drift()
    rows = list(mail_server.mail.scan(Scan(IMAP_UID, IMAP_UID.names)))

    assert sum(story.end == "killed" for story in stories) >= 6 // step * len(OPERATIONS)
    assert broken, "crashes leave drift behind, or the kills came too early"
    assert left == []
    for story in stories:
        _check_nothing_is_lost(story, rows)


def _every_story(server: MailServer, strength: str, step: int) -> Iterator[Story]:
    """Each operation, killed before one write, then `step` writes later, and so on until it gets through."""
    contact = server.cluster.contact
    where = [contact.hosts[0], str(contact.port), server.mail.name, server.ledger.name]
    command = [sys.executable, "-m", "tests.support.crashing", *where]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        for number, operation in enumerate(OPERATIONS):
            for writes in range(number % step, WRITES_MAX, step):
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
