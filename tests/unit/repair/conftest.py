"""What tests of repairing begin with: an empty mail keyspace with a run under way; a store that holds one message."""

import pytest

from mailmend.repair.store.message import Stored
from tests.support.repairing import World
from tests.support.writing import Desk, mail


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def stored(desk: Desk) -> Stored:
    return desk.store.add(desk.inbox, mail())
