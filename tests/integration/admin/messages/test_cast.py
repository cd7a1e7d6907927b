"""The terminal of README shows what a real Cassandra has the commands say, though it is drawn from tables in memory."""

from pathlib import Path

import pytest

from mailmend.admin.frame.settings import ConnectionSettings
from tests.pictures.cast import shown_of
from tests.pictures.story_run import KEYSPACE, SETTINGS, Story, story, story_in_memory
from tests.support.commands import command_line
from tests.support.mail_states import QUIET
from tests.support.servers import CassandraServer
from tests.support.tutorials import UUID

pytestmark = [pytest.mark.cassandra, pytest.mark.thorough]

OPTIONS = ("Next:", "To put it back:")
"""How lines begin that name options: this test has to give other ones."""


@pytest.fixture
def on_cassandra(cassandra: CassandraServer, tmp_path: Path) -> tuple[Story, str]:
    """The same story on a real Cassandra, and its keyspace. Nobody else writes there, so the margin is 0."""
    keyspace = cassandra.keyspace()
    ledger = f"{keyspace}_ledger"
    names = {"MAILMEND_KEYSPACE": keyspace, "MAILMEND_LEDGER_KEYSPACE": ledger, "MAILMEND_CHECK_DELAY": "1s"}
    mailmend = command_line(tmp_path, cassandra, **names, **SETTINGS, **QUIET)
    connection = ConnectionSettings(
        hosts=(cassandra.host,),
        port=cassandra.port,
        local_dc=cassandra.local_dc,
        keyspace=keyspace,
        ledger_keyspace=ledger,
    )
    return story(mailmend, connection, lambda: None), keyspace


def lines_of(shown: Story, keyspace: str) -> list[str]:
    """What the terminal shows; ids, the name of the keyspace and the width of columns may differ, counts may not."""
    lines: list[str] = []
    for typed in shown.typed:
        for kind, words in shown_of(typed):
            if kind == "output" and not words.startswith(OPTIONS):
                line = UUID.sub("ID", words.replace(keyspace, KEYSPACE))
                lines.append(" ".join(line.replace("─", "").split()))
    return lines


def test_a_real_cassandra_says_what_the_terminal_shows(on_cassandra: tuple[Story, str]) -> None:
    real, keyspace = on_cassandra

    shown = lines_of(story_in_memory(), KEYSPACE)

    assert len(shown) > 20
    assert lines_of(real, keyspace) == shown
