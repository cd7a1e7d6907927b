"""A shell on a cluster in memory: what every test of a command begins with."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

import pytest

from mailmend.cql.driver.session import Keyspace
from tests.support.cluster_twin import ClusterTwin, cluster_in_memory
from tests.support.commands import CommandLine, command_line
from tests.support.mail_states import QUIET, MailKeyspace
from tests.support.narrow_terminal import problems_of, tables_kept
from tests.support.thorough import ALL

LOOKED_AT: Final = Counter[tuple[str, ...]]()
"""How many tables with these columns were looked at."""

ALIKE_MAX: Final = 3
"""So many tables with the same columns are enough for `make test`; `make test-all` looks at each."""


@pytest.fixture(autouse=True)
def _tables_fit_on_a_terminal(pytestconfig: pytest.Config) -> Iterator[None]:
    """Every table that a test makes fits into 80 columns of a terminal, and loses no word there."""
    with tables_kept() as tables:
        yield
    problems = []
    for table in tables:
        columns = tuple(table.columns)
        LOOKED_AT[columns] += 1
        if LOOKED_AT[columns] <= ALIKE_MAX or pytestconfig.getoption(ALL):
            problems += problems_of(table)
    assert problems == []


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ClusterTwin:
    return cluster_in_memory(monkeypatch)


@pytest.fixture
def mail(cluster: ClusterTwin) -> MailKeyspace:
    keyspace = MailKeyspace("mail", cast("Keyspace", cluster.keyspace("mail")))
    keyspace.refill()
    cluster.clock.advance(1)
    return keyspace


@pytest.fixture
def mailmend(mail: MailKeyspace, tmp_path: Path) -> CommandLine:
    return command_line(tmp_path, None, MAILMEND_HOST="127.0.0.1", MAILMEND_KEYSPACE=mail.name, **QUIET)
