"""Pages of marks that a pass remembers: looked up once, bounded, forgotten with the pass, none that is not whole."""

from collections.abc import Callable
from typing import Any

import pytest

from cql.statements import Operation
from mailqueue.rabbitmq.view import marks as module
from mailqueue.rabbitmq.view.marks import RememberedMarks
from model.ids import QueueName
from model.operations import Read
from repair.retries import AsyncRetries
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
    return RememberedMarks(scene.tables, AsyncRetries(scene.clock)), asked


async def test_a_page_that_was_marked_is_not_asked_for_again(scene: Scene) -> None:
    """A part of it, or the same with one more, is."""
    marks, asked = remembered(scene)
    await marks.put_all(SPOOL, IDS[:10])
    assert await marks.among(SPOOL, IDS[:10]) == set(IDS[:10])
    asked.clear()
    assert await marks.among(SPOOL, IDS[:10]) == set(IDS[:10])
    assert not asked
    assert await marks.among(SPOOL, IDS[:11]) == set(IDS[:10])
    assert asked == IDS[:11]
    asked.clear()
    assert await marks.among(SPOOL, IDS[1:10]) == set(IDS[1:10])
    assert asked == IDS[1:10]


async def test_a_page_with_a_mail_that_waits_is_asked_for_again(scene: Scene) -> None:
    """It may be marked by now."""
    marks, asked = remembered(scene)
    await marks.put_all(SPOOL, IDS[1:10])
    assert await marks.among(SPOOL, IDS[:10]) == set(IDS[1:10])
    await marks.put(SPOOL, IDS[0])
    asked.clear()
    assert await marks.among(SPOOL, IDS[:10]) == set(IDS[:10])
    assert asked == IDS[:10]


async def test_a_pass_ends_and_all_is_forgotten(scene: Scene) -> None:
    """Its queue's alone."""
    marks, asked = remembered(scene)
    other = QueueName("outgoing")
    await marks.put(SPOOL, IDS[0])
    await marks.put(other, IDS[1])
    assert await marks.among(SPOOL, IDS[:1]) == {IDS[0]}
    assert await marks.among(other, IDS[1:2]) == {IDS[1]}
    marks.forget(SPOOL)
    marks.forget(SPOOL)
    asked.clear()
    assert await marks.among(SPOOL, IDS[:1]) == {IDS[0]}
    assert await marks.among(other, IDS[1:2]) == {IDS[1]}
    assert asked == [IDS[0]]


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch, scene: Scene) -> None:
    """Past it marks are looked up each time, and answered the same."""
    monkeypatch.setattr(module, "REMEMBERED_MAX", 1)

    marks, asked = remembered(scene)
    await marks.put_all(SPOOL, IDS)
    pages = [IDS[:10], IDS[10:20], IDS[20:]]
    for _ in range(2):
        asked.clear()
        for page in pages:
            assert await marks.among(SPOOL, page) == set(page)
    assert asked == IDS[10:]
