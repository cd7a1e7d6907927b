"""The queue's configuration where answers are lost, processes die, and others are faster every time."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from mailmend.cql.memory import MemoryTables
from mailmend.mailqueue.configuration import EVENTS, ROUNDS_MAX, Configurations
from mailmend.mailqueue.rules.configuration import (
    AGGREGATE,
    DEFAULT,
    ConfigurationEvent,
    QueueConfiguration,
    event_json,
)
from mailmend.mailqueue.rules.slices import Slicing
from mailmend.model.catalog.james_tables import EVENT_STORE
from mailmend.model.errors import ConfigurationRefused, Contended, NotEnoughReplicas, TimedOut
from mailmend.model.operations import Level, PutIfAbsent, Read
from mailmend.model.ports import Tables
from tests.support.clock import VirtualClock
from tests.support.in_turn import InTurn
from tests.support.mishaps import Actor, Killed, Kind, Mishap, Network, wire
from tests.support.striking import Strike, of

HALF = QueueConfiguration(Slicing(timedelta(minutes=30), 2), 500)


@dataclass
class Scene:
    """An event store, and a starter who reaches it over a network that fails."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    tables: MemoryTables = field(init=False)
    starter: Actor = field(init=False)

    def __post_init__(self) -> None:
        self.tables = MemoryTables(self.clock.micros)
        self.starter = Actor(Network(self.clock))

    @property
    def wire(self) -> Tables:
        """The event store as the starter reaches it."""
        return wire(self.tables, self.starter)

    def befallen(self, kind: Kind, times: int = 1) -> "Scene":
        """The same, with this to come."""
        self.starter.arm([Mishap(kind, 0, times)])
        return self

    def with_rival(self, wish: Callable[[int], QueueConfiguration]) -> "Scene":
        """The same, with somebody who stores an event before each write of the starter's."""
        stored: list[int] = []

        def store() -> None:
            self.store(len(stored), wish(len(stored)))
            stored.append(0)

        self.starter.before_write = store
        return self

    def store(self, event_id: int, configuration: QueueConfiguration) -> None:
        """An event by somebody else, who is not befallen by anything; there already is fine."""
        event = event_json(event_id, configuration)
        self.tables.attempt(PutIfAbsent(EVENTS, {"aggregateid": AGGREGATE, "eventid": event_id, "event": event}))

    def require(self, wanted: QueueConfiguration | None = None) -> QueueConfiguration:
        """What the starter gets."""
        return asyncio.run(Configurations(InTurn(self.wire)).require(wanted))

    def history(self) -> list[ConfigurationEvent]:
        """What is stored, once everything that was under way has arrived."""
        self.starter.network.calm_down()
        return asyncio.run(Configurations(InTurn(self.tables)).history())


@pytest.mark.parametrize("kind", [Kind.DONE, Kind.LOST, Kind.LATE])
@pytest.mark.parametrize("times", [1, 3])
def test_an_answer_that_was_lost_is_looked_up(kind: Kind, times: int) -> None:
    """Whether the event stood, or never will, or only once somebody looks: in the end it does, and once."""
    scene = Scene().befallen(kind, times)

    assert scene.require(HALF) == HALF
    assert scene.history() == [ConfigurationEvent(0, HALF)]


@pytest.mark.parametrize("kind", [Kind.KILLED_BEFORE, Kind.KILLED_AFTER])
def test_a_starter_that_was_killed_starts_again(kind: Kind) -> None:
    """Wherever it died, the next finds either nothing or all of it."""
    scene = Scene().befallen(kind)
    with pytest.raises(Killed):
        scene.require(HALF)

    scene.starter = Actor(scene.starter.network)
    assert scene.require(HALF) == HALF
    assert scene.history() == [ConfigurationEvent(0, HALF)]


@pytest.mark.parametrize(("kind", "error"), [(Kind.DEAF, TimedOut), (Kind.REFUSED, NotEnoughReplicas)])
def test_a_fault_on_the_way_comes_through(kind: Kind, error: type[Exception]) -> None:
    """A cluster that does not answer is not an empty one."""
    scene = Scene().befallen(kind)

    with pytest.raises(error):
        scene.require(HALF)
    assert scene.history() == []


def test_what_a_starter_relies_on_is_read_at_serial() -> None:
    """Or an event whose answer was lost could still be under way; showing it does not need that."""
    reads = Strike(of(Read))
    tables = MemoryTables(VirtualClock().micros, reads)
    asyncio.run(Configurations(InTurn(tables)).require())
    asyncio.run(Configurations(InTurn(tables)).history())

    assert [one.level for one in reads.struck] == [Level.SERIAL, Level.QUORUM]


def test_a_faster_rival_of_the_same_request_is_no_error() -> None:
    """Its event is ours too."""
    scene = Scene().with_rival(lambda _: HALF)

    assert scene.require(HALF) == HALF
    assert scene.history() == [ConfigurationEvent(0, HALF)]


def test_a_faster_rival_s_request_is_what_ours_is_held_against() -> None:
    """Refused where it was fine a moment ago."""
    scene = Scene().with_rival(lambda _: HALF)

    with pytest.raises(ConfigurationRefused, match="1h is longer than the last one, 30m"):
        scene.require(DEFAULT)
    assert scene.history() == [ConfigurationEvent(0, HALF)]


def test_rivals_who_are_always_faster_are_given_up_on() -> None:
    """After so many rounds, with nothing of ours stored and nothing of theirs changed."""
    scene = Scene().with_rival(lambda number: replace(HALF, pace=number + 1))

    with pytest.raises(Contended, match="others kept changing"):
        scene.require(replace(HALF, pace=9_999))
    assert [event.configuration.pace for event in scene.history()] == list(range(1, ROUNDS_MAX + 1))


def test_events_are_reported_by_their_order_not_by_their_number() -> None:
    """A gap, which nobody should leave, is kept: the next one comes after the last."""
    scene = Scene()
    scene.store(4, DEFAULT)

    assert scene.require(HALF) == HALF
    assert [event.event_id for event in scene.history()] == [4, 5]


def test_the_static_column_that_older_generations_lack_is_never_named() -> None:
    """Everything else of eventStore is."""
    assert set(EVENT_STORE.names) - set(EVENTS.names) == {"snapshot"}
