"""Check, repair and undo of a small keyspace that is broken in every way: what was typed, and what came of it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from mailmend.admin.frame.cluster import open_cluster
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.local.demo import ARCHIVED, MESSAGES_MIN, USER, damages_for, mbox_in
from tests.support.cluster_twin import cluster_in_memory
from tests.support.commands import CommandLine, Ended, command_line
from tests.support.repairing import DAY_SECONDS

KEYSPACE: Final = "apache_james"
SETTINGS: Final = {
    "MAILMEND_CHECK_ENGINE": "local",
    "MAILMEND_REPAIR_MESSAGES_ENGINE": "local",
    "MAILMEND_REPAIR_MESSAGES_DELAY": "1s",
}
"""No Spark, and a short delay. They are settings, so that the commands are as short as on a machine that has a file."""


@dataclass(frozen=True, slots=True)
class Typed:
    """A command, as it was typed, and what it said on stdout."""

    command: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Story:
    """What was typed, and the report of the check as HTML."""

    typed: tuple[Typed, ...]
    report: str


def story_in_memory() -> Story:
    """On tables in memory, with a clock that stands still: the same words in each run."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        cluster = cluster_in_memory(patch)
        cluster.keyspaces.clear()
        line = command_line(Path(folder), None, MAILMEND_HOST="127.0.0.1", **SETTINGS)
        return story(line, ConnectionSettings(keyspace=KEYSPACE), lambda: cluster.clock.advance(DAY_SECONDS))


def story(mailmend: CommandLine, connection: ConnectionSettings, later: Callable[[], object]) -> Story:
    """Load mail, break it, and type the three commands.

    Args:
        mailmend: a shell that knows the cluster and the keyspace.
        connection: the same for the program that breaks the mail.
        later: lets time pass: damage is later than the mail, and older than the margin of a repair.
    """
    said(mailmend("schema", "apply"), 0)
    for name, count in (("inbox", MESSAGES_MIN), ("archive", ARCHIVED)):
        mails = str(mbox_in(mailmend.home, count, name))
        said(mailmend("load", mails, "--user", USER, "--mailbox", name.upper()), 0)
    later()
    with open_cluster(connection) as opened:
        for damage in damages_for(opened):
            for write in damage.writes:
                opened.mail.write(write)
    later()
    report = mailmend.home / "report.html"
    check = said(mailmend("check", "messages", "--report", str(report)), 1)
    repair = said(mailmend("repair", "messages"), 1)
    run = mailmend("runs", "list", "--json").json["runs"][0]["run"]
    undo = said(mailmend("undo", run), 0)
    typed = (
        Typed("mailmend check messages --report drift.html", check),
        Typed("mailmend repair messages", repair),
        Typed(f"mailmend undo {run}", undo),
    )
    return Story(typed, report.read_text(encoding="utf-8"))


def said(ended: Ended, code: int) -> tuple[str, ...]:
    """The lines of stdout, without blanks at their ends."""
    assert ended.code == code, (ended.out, ended.err)
    lines = [line.rstrip() for line in ended.out.splitlines()]
    return tuple(lines)
