"""Each script of docs/how-to/use-as-a-library.md runs as it stands, against a real Cassandra and RabbitMQ."""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.brokers import Broker
from tests.support.checkout import CHECKOUT
from tests.support.program_settings import settings_of_a_program
from tests.support.servers import CassandraServer

PAGE = (CHECKOUT / "docs" / "how-to" / "use-as-a-library.md").read_text()
SCRIPTS = dict(re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
PRINTED = {
    "Write mail": r"stored under the uid 1 lagged: False\n",
    "Check, repair, undo": r"imapUidTable has \d+ tables\n(.*\n)*drift: \{\}\nmended: \{\} left: \{\}\n(.*\n)?"
    r"mailboxes: 0 rows to mend, \(\) are no more\n",
    "Tables of your own": r"lagged: False\ndrift: \{\}\nmended: \{\}\n",
    "Send and receive through a queue": r"\('bob@example.org',\) 52 bytes\ndrift: \{\}\n",
    "In Django or Flask": r"1\n",
    "Decide deliveries": "",
    "Decide what comes in": "",
    "Errors": r"the ledger holds no run .* \| .*\n",
}
"""What each prints: the scripts run in this order, in one keyspace."""


@pytest.fixture(scope="module")
def settings(
    cassandra: CassandraServer, rabbitmq: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, str]]:
    with settings_of_a_program(cassandra, rabbitmq, tmp_path_factory.mktemp("home")) as environment:
        yield environment


def test_every_script_of_the_page_is_here() -> None:
    assert list(SCRIPTS) == list(PRINTED)
    assert PAGE.count("```python") == len(SCRIPTS)


@pytest.mark.parametrize("title", PRINTED)
def test_the_script_runs_as_it_stands(title: str, settings: Mapping[str, str], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPTS[title])

    ended = subprocess.run(
        [sys.executable, str(script)],
        env=settings,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    assert re.fullmatch(PRINTED[title], ended.stdout), ended.stdout
