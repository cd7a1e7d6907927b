"""Marks that a pass remembers: looked up once, bounded, forgotten with the pass, and never where there was none."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from cql.statements import Operation
from mailqueue import marks as module
from mailqueue.marks import RememberedMarks
from model.ids import QueueName
from model.operations import Read
from repair.retries import AwaitedRetries
from tests.support.queue_scene import SPOOL, Scene, queued

IDS = [queued(number).enqueue_id for number in range(30)]


def remembered(scene: Scene) -> tuple[RememberedMarks, list[Any]]:
    """Marks, and every id that was asked for."""
    asked = list[Any]()

    def watch(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        if isinstance(operation, Read):
            asked.extend(operation.among or operation.key[1:])
        return carry_out()

    scene.memory.surround = watch
    return RememberedMarks(scene.tables, AwaitedRetries(scene.clock)), asked


def test_what_was_found_is_not_asked_for_again() -> None:
    """What was not found is: it may be marked by now."""

    async def story(scene: Scene) -> None:
        marks, asked = remembered(scene)
        await marks.put_all(SPOOL, IDS[:10])
        assert await marks.among(SPOOL, IDS) == set(IDS[:10])
        await marks.put(SPOOL, IDS[20])
        asked.clear()
        assert await marks.among(SPOOL, IDS) == {*IDS[:10], IDS[20]}
        assert set(asked) == set(IDS[10:])
        assert await marks.among(SPOOL, IDS[5:15]) == set(IDS[5:10])

    asyncio.run(story(Scene()))


def test_a_pass_ends_and_all_is_forgotten() -> None:
    """Its queue's alone."""

    async def story(scene: Scene) -> None:
        marks, asked = remembered(scene)
        other = QueueName("outgoing")
        await marks.put(SPOOL, IDS[0])
        await marks.put(other, IDS[1])
        assert await marks.among(SPOOL, IDS[:2]) == {IDS[0]}
        assert await marks.among(other, IDS[:2]) == {IDS[1]}
        marks.forget(SPOOL)
        marks.forget(SPOOL)
        asked.clear()
        assert await marks.among(SPOOL, IDS[:1]) == {IDS[0]}
        assert await marks.among(other, IDS[1:2]) == {IDS[1]}
        assert asked == [IDS[0]]

    asyncio.run(story(Scene()))


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past it marks are looked up each time, and answered the same."""
    monkeypatch.setattr(module, "REMEMBERED_MAX", 10)

    async def story(scene: Scene) -> None:
        marks, asked = remembered(scene)
        await marks.put_all(SPOOL, IDS)
        for first in range(0, 30, 10):
            assert await marks.among(SPOOL, IDS[first : first + 10]) == set(IDS[first : first + 10])
        asked.clear()
        assert await marks.among(SPOOL, IDS) == set(IDS)
        assert set(asked) == set(IDS[10:])

    asyncio.run(story(Scene()))
