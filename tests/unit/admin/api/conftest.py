"""What tests of the HTTP side begin with."""

from pathlib import Path

import pytest

from tests.support.task_desk import TaskWorld


@pytest.fixture
def world(tmp_path: Path) -> TaskWorld:
    return TaskWorld(tmp_path)
