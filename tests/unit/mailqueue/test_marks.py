"""Pages of marks that a pass remembers: looked up once, bounded, forgotten with the pass, none that is not whole."""

from collections.abc import Callable
from typing import Any

import pytest

from mailmend.cql.row_statements import Operation
from mailmend.mailqueue.rabbitmq.view import slices as module
from mailmend.mailqueue.rabbitmq.view.slices import RememberedMarks
from mailmend.model.ids import QueueName
from mailmend.model.operations import Read
from mailmend.repair.retries import AsyncRetries
from tests.support.queues import QUEUE, TwinQueue, queued

IDS = [queued(number).enqueue_id for number in range(30)]


def remembered(twin: TwinQueue) -> tuple[RememberedMarks, list[Any]]:
    asked = list[Any]()

    def watch(operation: Operation, carry_out: Callable[[], Any]) -> Any:
        if isinstance(operation, Read):
            asked.extend(operation.among or operation.key[1:])
        return carry_out()

    twin.memory.surround = watch
    return RememberedMarks(twin.tables, AsyncRetries(twin.clock)), asked


async def test_a_page_that_was_marked_is_not_asked_for_again(twin: TwinQueue) -> None:
    marks, asked = remembered(twin)
    await marks.put_all(QUEUE, IDS[:10])
    assert await marks.among(QUEUE, IDS[:10]) == set(IDS[:10])
    asked.clear()
    assert await marks.among(QUEUE, IDS[:10]) == set(IDS[:10])
    assert not asked
    assert await marks.among(QUEUE, IDS[:11]) == set(IDS[:10])
    assert asked == IDS[:11]
    asked.clear()
    assert await marks.among(QUEUE, IDS[1:10]) == set(IDS[1:10])
    assert asked == IDS[1:10]


async def test_a_page_with_a_mail_that_waits_is_asked_for_again(twin: TwinQueue) -> None:
    marks, asked = remembered(twin)
    await marks.put_all(QUEUE, IDS[1:10])
    assert await marks.among(QUEUE, IDS[:10]) == set(IDS[1:10])
    await marks.put(QUEUE, IDS[0])
    asked.clear()
    assert await marks.among(QUEUE, IDS[:10]) == set(IDS[:10])
    assert asked == IDS[:10]


async def test_a_pass_ends_and_all_is_forgotten(twin: TwinQueue) -> None:
    marks, asked = remembered(twin)
    other = QueueName("outgoing")
    await marks.put(QUEUE, IDS[0])
    await marks.put(other, IDS[1])
    assert await marks.among(QUEUE, IDS[:1]) == {IDS[0]}
    assert await marks.among(other, IDS[1:2]) == {IDS[1]}
    marks.forget(QUEUE)
    marks.forget(QUEUE)
    asked.clear()
    assert await marks.among(QUEUE, IDS[:1]) == {IDS[0]}
    assert await marks.among(other, IDS[1:2]) == {IDS[1]}
    assert asked == [IDS[0]]


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch, twin: TwinQueue) -> None:
    monkeypatch.setattr(module, "REMEMBERED_MAX", 1)
    marks, asked = remembered(twin)
    await marks.put_all(QUEUE, IDS)
    pages = [IDS[:10], IDS[10:20], IDS[20:]]
    for _ in range(2):
        asked.clear()
        for page in pages:
            assert await marks.among(QUEUE, page) == set(page)
    assert asked == IDS[10:]
