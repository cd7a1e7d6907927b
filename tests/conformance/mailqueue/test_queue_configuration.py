"""The queue's configuration in eventStore: set, changed, refused, and by several starters at once, on every adapter."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

import pytest

from mailmend.mailqueue.configuration import EVENTS, Configurations
from mailmend.mailqueue.rules.configuration import (
    AGGREGATE,
    DEFAULT,
    ConfigurationEvent,
    QueueConfiguration,
    event_json,
)
from mailmend.mailqueue.rules.slices import Slicing
from mailmend.model.catalog.james_tables import EVENT_STORE
from mailmend.model.errors import BadPayload, ConfigurationRefused
from mailmend.model.operations import Put, Read, Remove
from mailmend.model.ports import AsyncTables
from tests.support.james_queue import james_queue_rows

T = TypeVar("T")

HALF = QueueConfiguration(Slicing(timedelta(minutes=30), 2), 500)
QUARTER = QueueConfiguration(Slicing(timedelta(minutes=15), 2), 500)
THIRD = QueueConfiguration(Slicing(timedelta(minutes=20), 4), 500)


@pytest.fixture
async def configurations(queue_tables: AsyncTables) -> Configurations:
    """Of an empty event store; the aggregate has one name, so each test clears it before."""
    await queue_tables.write(Remove(EVENTS, (AGGREGATE,)))
    return Configurations(queue_tables)


async def test_nothing_was_ever_set(queue_tables: AsyncTables, configurations: Configurations) -> None:
    assert await configurations.current() is None
    assert await configurations.history() == []


async def test_the_first_starter_stores_james_s_defaults(
    queue_tables: AsyncTables, configurations: Configurations
) -> None:
    assert await configurations.require() == DEFAULT
    assert await configurations.require() == DEFAULT
    (seen,) = await queue_tables.read(Read(EVENT_STORE, (AGGREGATE,)))
    (james,) = james_queue_rows(EVENT_STORE)
    assert seen.row == james


async def test_james_s_own_event_is_what_counts(queue_tables: AsyncTables, configurations: Configurations) -> None:
    (james,) = james_queue_rows(EVENT_STORE)
    await queue_tables.write(Put(EVENTS, {column.name: james[column.name] for column in EVENTS.columns}))
    assert await configurations.current() == DEFAULT
    assert await configurations.require(HALF) == HALF
    assert await configurations.history() == [ConfigurationEvent(0, DEFAULT), ConfigurationEvent(1, HALF)]


async def test_each_change_is_an_event_and_the_last_counts(
    queue_tables: AsyncTables, configurations: Configurations
) -> None:
    assert await configurations.require(HALF) == HALF
    assert await configurations.require(HALF) == HALF
    assert await configurations.require(QUARTER) == QUARTER
    assert await configurations.require() == QUARTER
    assert await configurations.current() == QUARTER
    assert [event.event_id for event in await configurations.history()] == [0, 1]


async def test_the_last_one_counts_for_the_rules_too(queue_tables: AsyncTables, configurations: Configurations) -> None:
    """20 minutes divide the hour, but not the half hour that came after; nothing is written."""
    await configurations.require(DEFAULT)
    await configurations.require(HALF)
    with pytest.raises(ConfigurationRefused, match="20m does not divide the last one, 30m"):
        await configurations.require(THIRD)
    assert await configurations.current() == HALF


async def test_a_change_is_made_of_what_counts_at_that_moment(
    queue_tables: AsyncTables, configurations: Configurations
) -> None:
    assert (await configurations.alter(lambda current: replace(current, pace=7))).slicing == DEFAULT.slicing
    await configurations.require(HALF)
    assert await configurations.alter(lambda current: replace(current, pace=7)) == replace(HALF, pace=7)


async def test_starters_of_one_configuration_store_one_event(
    queue_tables: AsyncTables, configurations: Configurations
) -> None:
    starters = [Configurations(queue_tables) for _ in range(8)]
    assert set(await asyncio.gather(*(one.require(HALF) for one in starters))) == {HALF}
    assert await configurations.history() == [ConfigurationEvent(0, HALF)]


async def test_starters_of_two_configurations_are_judged_one_after_the_other(
    queue_tables: AsyncTables, configurations: Configurations
) -> None:
    """Whoever comes second is held against the winner: 20 and 15 minutes do not divide each other."""
    wishes = [replace(THIRD, slicing=replace(THIRD.slicing, buckets=2)), QUARTER] * 3
    answers = await asyncio.gather(
        *(Configurations(queue_tables).require(wish) for wish in wishes), return_exceptions=True
    )
    (event,) = await configurations.history()
    won = [answer for answer in answers if answer == event.configuration]
    lost = [answer for answer in answers if isinstance(answer, ConfigurationRefused)]
    assert (len(won), len(lost)) == (3, 3)


async def test_changes_at_once_all_take_place(queue_tables: AsyncTables, configurations: Configurations) -> None:
    """Each bucket that somebody adds is there in the end: no change is made of what does not count any more."""

    def one_more(current: QueueConfiguration) -> QueueConfiguration:
        return replace(current, slicing=replace(current.slicing, buckets=current.slicing.buckets + 1))

    await asyncio.gather(*(Configurations(queue_tables).alter(one_more) for _ in range(5)))
    events = await configurations.history()
    assert [(event.event_id, event.configuration.slicing.buckets) for event in events] == [
        (number, number + 2) for number in range(5)
    ]


async def test_an_event_that_cannot_be_read_stops_everybody(
    queue_tables: AsyncTables, configurations: Configurations
) -> None:
    """It is named, and nothing is appended behind it: what it means may be another cut."""
    await configurations.require(HALF)
    await queue_tables.write(Put(EVENTS, {"aggregateid": AGGREGATE, "eventid": 1, "event": '{"type":"new"}'}))
    for asked in (configurations.current(), configurations.history(), configurations.require(QUARTER)):
        with pytest.raises(BadPayload, match=r"^event 1 of CassandraMailQueueViewConfiguration"):
            await asked
    assert len(await queue_tables.read(Read(EVENTS, (AGGREGATE,)))) == 2


async def test_a_snapshot_of_james_s_is_left_as_it_is(
    queue_tables: AsyncTables, configurations: Configurations
) -> None:
    """James keeps one for other aggregates; here it would only say where to begin reading."""
    event = {"aggregateid": AGGREGATE, "eventid": 0, "event": event_json(0, DEFAULT), "snapshot": 0}
    await queue_tables.write(Put(EVENT_STORE, event))
    assert await configurations.require(HALF) == HALF
    seen = await queue_tables.read(Read(EVENT_STORE, (AGGREGATE,)))
    assert [one.row["eventid"] for one in seen] == [0, 1]
    assert seen[0].row["snapshot"] == 0
