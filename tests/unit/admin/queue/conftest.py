"""A shell on a queue in memory: what every test of `mailmend queue` begins with."""

from pathlib import Path

import pytest

from tests.support.queue_commands import JAMES, QueueShell, queue_shell


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> QueueShell:
    return queue_shell(monkeypatch, tmp_path)


@pytest.fixture
def james(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> QueueShell:
    """A keyspace that James made: without delays, tallies and memory of sweeps."""
    return queue_shell(monkeypatch, tmp_path, JAMES)
