"""move: a queue goes from RabbitMQ to Pulsar and back, each mail once, though the command be killed at any step."""

import asyncio
from asyncio import FIRST_COMPLETED
from datetime import timedelta
from pathlib import Path

import pytest

from mailmend.admin.queue import openers
from mailmend.mailqueue.pulsar.settings import out_subscription, out_topic
from mailmend.mailqueue.queue import MailQueue
from mailmend.mailqueue.rules.mails import Listed
from mailmend.model.ids import EnqueueId, moved_id
from mailmend.model.ports import Clock
from tests.support.commands import Ended
from tests.support.disk import full_after
from tests.support.queue_commands import SPOOL
from tests.support.queues import CONTENT, mail
from tests.support.two_queues import TwoQueues, two_queues

HOUR = timedelta(hours=1)
LATER = timedelta(hours=5)


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> TwoQueues:
    return two_queues(monkeypatch, tmp_path)


async def filled(queue: MailQueue) -> list[Listed]:
    """Two mails that wait, one to be tried again, one for later."""
    await queue.enqueue(mail("tried", {"note": '{"serializer":"StringSerializer","value":"kept"}'}), CONTENT)
    async with queue.dequeue() as mails:
        await (await anext(mails)).retry(HOUR, "451 try later")
    await queue.enqueue(mail("first"), CONTENT)
    await queue.enqueue(mail("second"), CONTENT, priority=9)
    await queue.enqueue(mail("later"), CONTENT, delay=LATER)
    return [one async for one in queue.browse()]


def story_of(one: Listed) -> tuple[object, ...]:
    """What a mail keeps; its blobs and its place are others."""
    return (one.queued.enqueue_id, one.queued.mail, one.enqueued_at, one.whereabouts, one.due_at, one.attempts)


@pytest.mark.parametrize("back", [False, True], ids=["to_pulsar", "to_rabbitmq"])
class TestMoving:
    """One way, either way."""

    def test_every_mail_keeps_its_story(self, both: TwoQueues, back: bool) -> None:
        """Id, envelope, attributes, errors, attempts, due time, time of enqueueing; and its bytes."""
        was = both.on(filled, pulsar=back)

        ended = both.move(back=back)

        assert ended is not None
        assert (ended.code, ended.json["moved"], ended.json["left"]) == (0, {"waiting": 2, "delayed": 2}, 0), ended
        assert not both.listed(pulsar=back)
        assert sorted(map(story_of, both.listed(pulsar=not back)), key=str) == sorted(map(story_of, was), key=str)

        async def content(queue: MailQueue) -> set[bytes]:
            return {await queue.content(one) async for one in queue.browse()}

        assert both.on(content, pulsar=not back) == {CONTENT}

    def test_a_dry_run_counts_and_writes_nothing(self, both: TwoQueues, back: bool) -> None:
        was = both.on(filled, pulsar=back)

        ended = both.move("--dry-run", back=back)

        assert ended is not None
        assert (ended.code, ended.json["before"]["mails"], ended.json["before"]["delayed"]) == (0, 2, 2)
        assert both.listed(pulsar=back) == was
        assert not both.listed(pulsar=not back)
        assert not list(both.rabbit.line.home.rglob("*-move-*"))


async def taken(queue: MailQueue) -> list[str]:
    """Ack all that comes until nothing did for a minute; their names."""
    found = list[str]()
    async with queue.dequeue() as mails:
        while True:
            coming = asyncio.ensure_future(anext(mails))
            await asyncio.wait([coming, asyncio.ensure_future(clock_of(queue).pause(60))], return_when=FIRST_COMPLETED)
            if not coming.done():
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
                return found
            await coming.result().ack()
            found.append(coming.result().mail.name)


def clock_of(queue: MailQueue) -> Clock:
    found: Clock = queue._parts.clock  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("consumed", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["waits", "consumed"])
@pytest.mark.parametrize(
    "back", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["to_pulsar", "to_rabbitmq"]
)
def test_killed_at_any_step_it_goes_on_and_moves_each_mail_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, back: bool, consumed: bool
) -> None:
    """Whether or not a consumer at the target has had by then what had come; and with mail that came meanwhile."""
    step, ended = 0, None
    while ended is None:
        both = two_queues(monkeypatch, tmp_path / str(step))
        both.on(filled, pulsar=back)
        ended = both.move(back=back, dies_before=step)
        had = both.on(taken, pulsar=not back) if consumed else []
        both.on(lambda queue: queue.enqueue(mail("new"), CONTENT), pulsar=back)
        again = both.move(back=back)
        assert again is not None, step
        assert (again.code, again.json["left"]) == (0, 0), (step, again)
        both.on(lambda queue: queue.flush(), pulsar=not back)
        had += both.on(taken, pulsar=not back)
        assert sorted(had) == ["first", "later", "new", "second", "tried"], step
        assert not both.on(taken, pulsar=back), step
        step += 1
    assert step > 20


def test_blobs_of_mails_on_their_way_are_not_collected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those of a mail that is in neither queue, only in the journal of a move that was killed, however old they are."""
    both, step = two_queues(monkeypatch, tmp_path), 6  # before that it is at the source
    while not both.rabbit.blobs.ids or both.listed(pulsar=False):
        both = two_queues(monkeypatch, tmp_path / str(step))
        both.on(lambda queue: queue.enqueue(mail("first"), CONTENT), pulsar=False)
        both.move(dies_before=step)
        step += 1
    assert not both.listed(pulsar=True)
    monkeypatch.setattr(openers, "topics_behind", lambda *_: both.topics)
    asyncio.run(both.topics.create(out_topic(SPOOL), out_subscription(SPOOL)))
    both.rabbit.pass_time(days=9)
    pulsar = ("--broker", "pulsar://pulsar:6650/public/default", "--only-broker")

    how = ("--engine", "local", "--delay", "0s", "--generation", "1h")
    ended = both.rabbit.line("repair", "blobs", *how, *pulsar, "--json")

    assert ended.json["references"]["unfinished moves on this machine"] == 2, ended.err
    assert both.move() is not None
    assert both.on(content_of_all, pulsar=True) == [CONTENT]


async def content_of_all(queue: MailQueue) -> list[bytes]:
    return [await queue.content(one) async for one in queue.browse()]


def test_consumers_at_the_source_are_refused(both: TwoQueues) -> None:
    """Nothing is written, unless somebody insists."""

    async def with_a_consumer(queue: MailQueue) -> tuple[Ended | None, Ended | None]:
        await queue.enqueue(mail("first"), CONTENT)
        async with queue.dequeue(prefetch=1) as mails:
            await (await anext(mails)).retry(HOUR)
            refused = await asyncio.to_thread(both.move)
            return refused, await asyncio.to_thread(both.move, "--force")

    refused, insisted = both.on(with_a_consumer, pulsar=False)

    assert refused is not None
    assert (refused.code, "1 consumers take mails" in refused.err, "--force" in refused.err) == (2, True, True)
    assert insisted is not None
    assert (insisted.code, insisted.json["moved"]["delayed"]) == (0, 1)


@pytest.mark.parametrize("back", [False, True], ids=["to_pulsar", "to_rabbitmq"])
def test_a_full_disk_leaves_every_mail_in_one_of_the_queues(both: TwoQueues, back: bool) -> None:
    """The line that did not fit is of a mail that never left; with room, the same command goes on."""
    was = both.on(filled, pulsar=back)

    with full_after(1_000):
        ended = both.move(back=back)

    assert ended is not None
    assert ended.code not in {0, 1}
    assert "Make room" in ended.err
    both_have = [*both.listed(pulsar=back), *both.listed(pulsar=not back)]
    assert {one.queued.enqueue_id for one in both_have} == {one.queued.enqueue_id for one in was}
    again = both.move(back=back)
    assert again is not None
    assert (again.code, again.json["left"]) == (0, 0)
    assert sorted(map(story_of, both.listed(pulsar=not back)), key=str) == sorted(map(story_of, was), key=str)


@pytest.mark.parametrize("back", [False, True], ids=["to_pulsar", "to_rabbitmq"])
def test_a_mail_without_its_bytes_stays_and_is_named(both: TwoQueues, back: bool) -> None:
    async def story(queue: MailQueue) -> EnqueueId:
        broken = await queue.enqueue(mail("broken"), CONTENT, delay=LATER)
        (listed,) = [one async for one in queue.browse()]
        await both.rabbit.blobs.delete(listed.queued.blobs.body)
        await queue.enqueue(mail("whole"), CONTENT, delay=LATER)
        return broken

    broken = both.on(story, pulsar=back)

    ended = both.move(back=back)

    assert ended is not None
    assert (ended.code, ended.json["left"], [one["id"] for one in ended.json["failed"]]) == (3, 1, [str(broken)])
    assert [one.queued.mail.name for one in both.listed(pulsar=not back)] == ["whole"]


def test_a_mail_that_comes_back_has_an_id_that_follows_from_its_old_one(both: TwoQueues) -> None:
    """RabbitMQ's tables know the old one as gone; it is told, and the next way needs no other."""
    was = {one.queued.enqueue_id for one in both.on(filled, pulsar=False)}
    both.move()

    back = both.move(back=True)
    now = {one.queued.enqueue_id for one in both.listed(pulsar=False)}
    to = both.move()

    assert back is not None
    assert now == {moved_id(one, SPOOL) for one in was}
    assert back.json["renamed"] == {str(one): str(moved_id(one, SPOOL)) for one in was}
    assert to is not None
    assert (to.code, to.json["renamed"]) == (0, {})
    assert {one.queued.enqueue_id for one in both.listed(pulsar=True)} == now
    assert sorted(both.on(taken_when_due, pulsar=True)) == ["first", "later", "second", "tried"]


async def taken_when_due(queue: MailQueue) -> list[str]:
    await queue.flush()
    return await taken(queue)
