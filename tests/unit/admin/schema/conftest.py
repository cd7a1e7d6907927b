"""A shop whose schema is migrated on a cluster in memory: what the tests of those commands begin with."""

from pathlib import Path

import pytest

from tests.support.commands import CommandLine, command_line
from tests.support.migrating import EVERYTHING_ALLOWED, written
from tests.support.migration_cluster import MigrationCluster, migration_cluster


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MigrationCluster:
    """An empty cluster, in place of any that a command would connect to."""
    return migration_cluster(monkeypatch)


@pytest.fixture
def mailmend(tmp_path: Path) -> CommandLine:
    return command_line(tmp_path, None, MAILMEND_HOST="10.0.0.1", MAILMEND_KEYSPACE="shop", **EVERYTHING_ALLOWED)


@pytest.fixture
def shop(tmp_path: Path) -> tuple[str, ...]:
    return "--migrations", str(written(tmp_path / "shop"))
