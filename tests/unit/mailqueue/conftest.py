"""What most tests of the queue's insides begin with."""

import pytest

from tests.support.queue_scene import Scene


@pytest.fixture
def scene() -> Scene:
    """A queue's tables in memory, empty, at noon."""
    return Scene()
