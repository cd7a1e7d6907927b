"""The page on a person's own tables, typed as it stands: from two tables to an undo, on a real Cassandra."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailmend.cql.driver.session import CassandraCluster, connect
from tests.support.checkout import CHECKOUT
from tests.support.commands import CommandLine, command_line, contact_of
from tests.support.keyspaces import dropped
from tests.support.servers import CassandraServer

pytestmark = [pytest.mark.cassandra]

PAGE = (CHECKOUT / "docs" / "how-to" / "check-your-own-tables.md").read_text()
COMMANDS = re.findall(r"^\$ mailmend ([^#\n]+)", PAGE, re.MULTILINE)
CODES = (1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0)
"""What each command of the page ends with, in the page's order."""


def block(language: str) -> str:
    """The page's only block of a language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.fixture
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    """The keyspace of the page, as its statements make it."""
    with connect(contact_of(cassandra)) as opened:
        dropped(opened, ("shop", "shop_ledger"))
        for statement in block("sql").split(";"):
            if statement.strip():
                opened.execute_ddl(statement.strip())
        yield opened
        dropped(opened, ("shop", "shop_ledger"))


@pytest.fixture
def shell(cassandra: CassandraServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """Where the page waits a minute for programs that write meanwhile, there are none here."""
    monkeypatch.chdir(tmp_path)
    waits = {}
    for command in ("CHECK", "REPAIR_TABLES", "UNDO"):
        waits[f"MAILMEND_{command}_DELAY"] = "0"
        waits[f"MAILMEND_{command}_NO_WRITERS"] = "1"
    return command_line(tmp_path, cassandra, MAILMEND_LEDGER_KEYSPACE="shop_ledger", **waits)


def addresses(cluster: CassandraCluster) -> set[str]:
    return {row["email"] for row in cluster.query("SELECT email FROM shop.users_by_email")}


def test_the_page_goes_as_it_says(cluster: CassandraCluster, shell: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "shop.toml").write_text(block("toml"))
    after = []
    run = ""
    for command, code in zip(COMMANDS, CODES, strict=True):
        ended = shell(*shlex.split(command.replace("RUN", run)))
        assert ended.code == code, (command, ended.err, ended.out)
        after.append(addresses(cluster))
        if not run and command.startswith("repair") and "--dry-run" not in command:
            (listed,) = shell("runs", "list", "--keyspace", "shop", "--json").json["runs"]
            run = listed["run"]

    stale = {"old@example.org"}
    mended = {"ann@example.org"}
    contents = [mended, mended, mended]
    assert after == [stale, stale, stale, mended, mended, *contents, mended, mended, stale]
