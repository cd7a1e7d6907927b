"""Processes of a queue on real servers that tell what they do, and kill themselves at a step: run as a program.

The program imports everything once and connects to nothing; each child is forked from it, connects, and goes on until
SIGKILL or its end. What a child tells it appends to its ledger before it goes on, so what was told stays told.

Usage: python -m tests.support.queue_faults, then lines of JSON: {"order": …} begins a child and is answered with its
pid, {"wait": PID} is answered with how it ended. Where the servers are stands in the orders, keys too: not in argv.
"""

import asyncio
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from mailmend.admin.frame import cluster as wiring_cluster
from mailmend.admin.main import run
from mailmend.admin.queue import openers
from mailmend.admin.queue.kept_mails import MoveJournalFile
from mailmend.cql.driver.asynchronous import AsyncKeyspace
from mailmend.cql.driver.session import Keyspace, connect
from mailmend.mailqueue.blobs.object_storage import open_s3
from mailmend.mailqueue.cleanup.scan import LocalQueueScanner
from mailmend.mailqueue.collection.collecting import RemovedList
from mailmend.mailqueue.collection.scan import LocalBlobScanner
from mailmend.mailqueue.queue import Dequeued
from mailmend.mailqueue.queue_move import QueueMove
from mailmend.mailqueue.rabbitmq.broker.adapter import RabbitBroker
from mailmend.mailqueue.rabbitmq.mail_queue import RabbitMailQueue, open_queue
from mailmend.mailqueue.rabbitmq.move_due import MoverTurns
from mailmend.mailqueue.rules.configuration import QueueConfiguration
from mailmend.mailqueue.rules.mails import Listed, MailFilter, Whereabouts
from mailmend.mailqueue.rules.slices import Slicing
from mailmend.model.errors import MailmendError
from mailmend.model.ids import QueueName
from mailmend.repair.clock import SystemClock
from mailmend.repair.ledger.runs import Ledger
from tests.support.queue_servers import Servers
from tests.support.queue_wires import Errors, Side, WiredBlobs, WiredBroker, WiredTables, name_of
from tests.support.queues import CONTENT, listed, mail, parts_of
from tests.support.surrounded import SurroundedTables

T = TypeVar("T")

CONFIGURATION = QueueConfiguration(Slicing(timedelta(hours=1), 2), pace=1_000_000)
"""The smallest window that hides nothing for less than an hour, more than one bucket, and no sweep but on request."""

TURN_SECONDS = 2
"""How long the partition of a killed mover waits for the next one."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a process is to do.

    Attributes:
        story: one of `STORIES`; `COMMAND` for what a person types.
        ledger: the file that it tells.
        at: the step at which it kills itself, `done …` for right after it; "": none.
        nth: at which time of that step, counted from when the story arms it.
        ahead_seconds: what its clock is ahead.
        stop: the file whose being there ends it, where nothing else does.
        name: by which its mails are known.
        arguments: of a command, with the variables of its environment.
    """

    story: str
    queue: str
    ledger: str
    at: str = ""
    nth: int = 1
    ahead_seconds: float = 0
    stop: str = ""
    name: str = ""
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(slots=True)
class Doomed:
    """The wire of a process that kills itself at a step, and not before it is armed."""

    at: str = ""
    nth: int = 1
    armed: bool = False

    def comes_to(self, what: str) -> None:
        if self.armed and what == self.at:
            self.nth -= 1
            if self.nth == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    async def step(self, _: Side, what: str, carry_out: Callable[[], Awaitable[T]], _errors: Errors) -> T:
        self.comes_to(what)
        answer = await carry_out()
        self.comes_to(f"done {what}")
        return answer

    def surround(self, operation: Any, carry_out: Callable[[], T]) -> T:
        """The same for tables that block."""
        return self.mortal(name_of(operation), carry_out)()

    def mortal(self, what: str, carry_out: Callable[..., T]) -> Callable[..., T]:
        """A method that blocks, as a step."""

        def step(*given: Any, **named: Any) -> T:
            self.comes_to(what)
            answer = carry_out(*given, **named)
            self.comes_to(f"done {what}")
            return answer

        return step

    def mortal_later(self, what: str, carry_out: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        """A coroutine function, as a step."""

        async def step(*given: Any, **named: Any) -> T:
            self.comes_to(what)
            answer = await carry_out(*given, **named)
            self.comes_to(f"done {what}")
            return answer

        return step

    def came(self, what: str) -> None:
        self.comes_to(f"done {what}")


class Ahead(SystemClock):
    """This machine's clock, put forward; a clock behind is put forward by less than nothing."""

    def __init__(self, seconds: float) -> None:
        self._micros = round(seconds * 1_000_000)

    def micros(self) -> int:
        """Microseconds since 1970, as this process believes."""
        return super().micros() + self._micros

    async def pause(self, seconds: float) -> None:
        """Let some of the time pass: what is waited for here comes at once or never."""
        await super().pause(min(seconds, 1.0))


@asynccontextmanager
async def opened(
    servers: Servers, keyspace: Keyspace, queue: str, *, ahead_seconds: float = 0, life: Doomed | None = None
) -> AsyncIterator[RabbitMailQueue]:
    clock, life = Ahead(ahead_seconds), life or Doomed()
    broker = RabbitBroker(servers.broker, clock)
    tables = WiredTables(AsyncKeyspace(keyspace), life)
    blobs = WiredBlobs(open_s3(servers.blobs, clock), life)
    try:
        name = QueueName(queue)
        async with await open_queue(name, tables, WiredBroker(broker, life), blobs, clock, CONFIGURATION) as process:
            assert process._mover is not None
            process._mover = replace(process._mover, turns=MoverTurns(tables, clock, name, TURN_SECONDS))
            yield process
    finally:
        await broker.close()


@dataclass(frozen=True, slots=True)
class Acting:
    """A process at its story."""

    order: Order
    queue: RabbitMailQueue
    life: Doomed
    ledger: int

    def arm(self) -> None:
        self.life.armed = True

    def tell(self, what: str, one: object) -> None:
        line = json.dumps({"what": what, "of": str(one), "at": time.time_ns()})
        os.write(self.ledger, f"{line}\n".encode())

    @property
    def lasts(self) -> bool:
        return not Path(self.order.stop).exists()


async def enqueue(acting: Acting, **when: Any) -> None:
    acting.tell("enqueued", await acting.queue.enqueue(mail("first"), CONTENT, **when))
    acting.arm()
    second = await acting.queue.enqueue(mail("second"), CONTENT, **when)
    acting.life.comes_to("tell")
    acting.tell("enqueued", second)


async def delay(acting: Acting) -> None:
    await enqueue(acting, delay=timedelta(hours=1))


async def _settle(acting: Acting, settle: Callable[[Dequeued], Awaitable[None]], word: str) -> None:
    async with acting.queue.dequeue(prefetch=4, priorities=[5]) as mails:
        taken = [await anext(mails) for _ in range(4)]
        for one in taken:
            acting.tell("handed", one.enqueue_id)
        await settle(taken[0])
        acting.tell(word, taken[0].enqueue_id)
        acting.arm()
        acting.life.comes_to("in hand")
        await settle(taken[1])
        acting.tell(word, taken[1].enqueue_id)
        await parts_of(acting.queue).background.close()


async def ack(acting: Acting) -> None:
    """Four mails in hand; the first is acked, armed for the second."""
    await _settle(acting, lambda one: one.ack(), "acked")


async def retry(acting: Acting) -> None:
    await _settle(acting, lambda one: one.retry(timedelta(hours=1)), "retried")


async def reject(acting: Acting) -> None:
    await _settle(acting, lambda one: one.reject(), "rejected")


async def move(acting: Acting) -> None:
    """Move what is due, until nothing is delayed; by the rows, for who is killed may not have counted what it moved."""
    acting.arm()
    while await listed(acting.queue, MailFilter(whereabouts=Whereabouts.DELAYED)):
        await acting.queue.move_due()
        await asyncio.sleep(0.1)


async def sweep(acting: Acting) -> None:
    acting.arm()
    await acting.queue.sweep()


async def purge(acting: Acting) -> None:
    acting.arm()

    async def removing(listed: Listed) -> None:
        acting.tell("removing", listed.queued.enqueue_id)

    removed = await acting.queue.purge(on_removed=removing)
    acting.tell("purged", removed.count)


async def keep_enqueuing(acting: Acting) -> None:
    """Mails from two senders, some of them delayed, until told to stop."""
    number = 0
    while acting.lasts:
        number += 1
        sender = f"{'spam' if number % 4 == 0 else 'ada'}@example.org"
        wait = timedelta(seconds=1) if number % 7 == 0 else None
        sent = mail(f"{acting.order.name}-{number}", sender=sender)
        try:
            acting.tell("enqueued", await acting.queue.enqueue(sent, CONTENT, delay=wait))
        except MailmendError as error:
            acting.tell("failed", error)
        await asyncio.sleep(0.01)


async def keep_dequeuing(acting: Acting) -> None:
    async with acting.queue.dequeue(prefetch=8, priorities=[5]) as mails:
        number = 0
        while acting.lasts:
            try:
                async with asyncio.timeout(0.3):
                    one = await anext(mails)
            except TimeoutError:
                continue
            number += 1
            acting.tell("handed", one.enqueue_id)
            if number % 9 == 0 and not one.attempts:
                await one.retry(timedelta(milliseconds=500))
                acting.tell("retried", one.enqueue_id)
            else:
                await one.ack()
                acting.tell("acked", one.enqueue_id)


async def keep_sweeping(acting: Acting) -> None:
    """Move delayed mails and sweep, again and again."""
    queue = acting.queue
    while acting.lasts:
        await queue.move_due()
        await queue.sweep()
        acting.tell("swept", queue.name)
        await asyncio.sleep(0.2)


async def keep_purging(acting: Acting) -> None:
    while acting.lasts:
        meant: list[object] = []

        async def removing(listed: Listed, meant: list[object] = meant) -> None:
            meant.append(listed.queued.enqueue_id)
            acting.tell("removing", listed.queued.enqueue_id)

        removed = await acting.queue.delete(MailFilter(sender="spam@example.org"), on_removed=removing)
        if not removed.failed:
            for one in meant:
                acting.tell("purged", one)
        await asyncio.sleep(0.3)


STORIES: Mapping[str, Callable[[Acting], Awaitable[None]]] = {
    one.__name__: one
    for one in (
        enqueue, delay, ack, retry, reject, move, sweep, purge,
        keep_enqueuing, keep_dequeuing, keep_sweeping, keep_purging,
    )
}  # fmt: skip


COMMAND = "command"


def typed(order: Order) -> None:
    """A whole command, whose every step may be its last."""
    life = Doomed(at=order.at, nth=order.nth, armed=True)
    broker_behind, blobs_behind = openers.broker_behind, openers.blobs_behind
    patched: list[tuple[ModuleType | type, str, Callable[..., object]]] = [
        (wiring_cluster, "SystemClock", lambda: Ahead(order.ahead_seconds)),
        (openers, "tables_of", lambda keyspace: WiredTables(AsyncKeyspace(keyspace), life)),
        (
            wiring_cluster,
            "LocalQueueScanner",
            lambda tables, *given: LocalQueueScanner(SurroundedTables(tables, life.surround), *given),
        ),
        (openers, "broker_behind", lambda *given: WiredBroker(broker_behind(*given), life)),
        (openers, "blobs_behind", lambda *given, **how: WiredBlobs(blobs_behind(*given, **how), life)),
        (LocalBlobScanner, "first", life.mortal("first look", LocalBlobScanner.first)),
        (LocalBlobScanner, "second", life.mortal("second look", LocalBlobScanner.second)),
        (RemovedList, "add", life.mortal("list", RemovedList.add)),
        (Ledger, "finish", life.mortal("close", Ledger.finish)),
        (MoveJournalFile, "_write", life.mortal("journal", MoveJournalFile._write)),
        (QueueMove, "_put", life.mortal_later("put", QueueMove._put)),
    ]
    if "spark" in order.arguments:
        from mailmend.spark_repair.queue_cleanup import SparkQueueScan  # noqa: PLC0415 - slow to import, and seldom needed

        patched.append((SparkQueueScan, "remove_marks", life.mortal("marks by Spark", SparkQueueScan.remove_marks)))
    for module, name, mortal in patched:
        setattr(module, name, mortal)
    os.environ.update(order.environment)
    assert run(list(order.arguments)) == 0


def act(servers: Servers, order: Order) -> None:
    if order.story == COMMAND:
        typed(order)
        return
    ledger, life = os.open(order.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT), Doomed(at=order.at, nth=order.nth)

    async def story(keyspace: Keyspace) -> None:
        async with opened(servers, keyspace, order.queue, ahead_seconds=order.ahead_seconds, life=life) as queue:
            await STORIES[order.story](Acting(order, queue, life, ledger))

    with connect(servers.contact) as cluster:
        asyncio.run(story(cluster.keyspace(servers.keyspace)))


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        _answer(_waited(asked["wait"]) if "wait" in asked else _begun(asked))


def _answer(answer: object) -> None:
    os.write(1, f"{json.dumps(answer)}\n".encode())


def _begun(asked: Mapping[str, Any]) -> int:
    child = os.fork()
    if child == 0:
        servers = {**asked["servers"], "hosts": tuple(asked["servers"]["hosts"])}
        _child(Servers(**servers), Order(**asked["order"]))
    return child


def _waited(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _child(servers: Servers, order: Order) -> None:
    code = 1
    try:
        act(servers, order)
        code = 0
    except BaseException:  # noqa: BLE001 - this is a process's end
        traceback.print_exc()
    finally:
        os._exit(code)


def asked(servers: Servers, order: Order) -> str:
    return json.dumps({"servers": asdict(servers), "order": asdict(order)})


def ledger_of(file: Path) -> list[dict[str, Any]]:
    """What was told, in order; a torn last line was not."""
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


if __name__ == "__main__":
    main()
