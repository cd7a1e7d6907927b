"""A writer that kills itself before its n-th write: run as a program, it forks one child for each crash point.

The program imports everything once and connects to nothing; each child connects, prepares its mailboxes, arms itself,
and goes on until SIGKILL or the end. What a child acknowledges it prints, a line of JSON for each change, before it
goes on; so what was printed must never be lost.

Usage: python -m tests.support.crashing HOST PORT KEYSPACE LEDGER, then one line `OPERATION N STRONG` per crash point.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mailmend.cql.driver.session import Contact, connect
from mailmend.cql.row_statements import Operation
from mailmend.model.ids import MailboxId
from mailmend.model.operations import Conditional, Write
from mailmend.repair.clock import SystemClock
from mailmend.repair.ledger.lags import LagJournal
from mailmend.repair.store.message import FlagsChange, FlagsMode, NewMail, Stored, parse_flags
from mailmend.repair.store.message_store import MessageStore
from mailmend.repair.store.writes import WriterSettings
from tests.support.memory_blobs import MemoryBlobs
from tests.support.surrounded import SurroundedTables

FAR = 10_000
"""More writes than any operation makes: a child that is given this one is never killed."""


@dataclass(slots=True)
class Killing:
    """Counts writes, once armed, and SIGKILLs the process before the one after so many."""

    left: int = FAR

    def __call__(self, operation: Operation, carry_out: Callable[[], Any]) -> Any:
        if isinstance(operation, Write | Conditional):
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self.left -= 1
        return carry_out()


@dataclass(frozen=True, slots=True)
class Scene:
    """Two mailboxes, two messages in the first; the store is not armed yet."""

    store: MessageStore
    source: MailboxId
    target: MailboxId
    first: Stored
    second: Stored


def add(scene: Scene) -> None:
    acknowledge("add", scene.store.add(scene.source, mail("added", r"\Recent", r"\Deleted", "work")))


def add_many(scene: Scene) -> None:
    for stored in scene.store.add_all(scene.source, [mail("one"), mail("two", r"\Seen")]):
        acknowledge("add", stored)


def copy(scene: Scene) -> None:
    acknowledge("copy", scene.store.copy(scene.first.place, scene.target))


def move(scene: Scene) -> None:
    acknowledge("move", scene.store.move(scene.first.place, scene.target))


def delete(scene: Scene) -> None:
    acknowledge("delete", scene.store.delete(scene.first.place))


def see(scene: Scene) -> None:
    change = FlagsChange(FlagsMode.ADD, parse_flags([r"\Seen", "urgent"]))
    acknowledge("see", scene.store.set_flags(scene.first.place, change))


def replace_flags(scene: Scene) -> None:
    change = FlagsChange(FlagsMode.REPLACE, parse_flags([r"\Deleted", "later"]))
    acknowledge("replace_flags", scene.store.set_flags(scene.first.place, change))


OPERATIONS: dict[str, Callable[[Scene], None]] = {
    one.__name__: one for one in (add, add_many, copy, move, delete, see, replace_flags)
}


def mail(subject: str, *flags: str) -> NewMail:
    header = f"Subject: {subject}\r\n\r\n".encode()
    return NewMail(header, b"body\r\n", datetime(2026, 3, 4, tzinfo=UTC), flags=parse_flags(flags))


def acknowledge(change: str, stored: Stored) -> None:
    acknowledged = {
        "change": change,
        "message": str(stored.message_id),
        "mailbox": str(stored.mailbox_id),
        "uid": stored.uid,
    }
    os.write(1, (json.dumps(acknowledged) + "\n").encode())


def act(arguments: Sequence[str], operation: str, writes: int, *, strong: bool) -> None:
    host, port, keyspace, ledger = arguments
    with connect(Contact(hosts=(host,), port=int(port))) as cluster:
        clock, killing = SystemClock(), Killing()
        tables = SurroundedTables(cluster.keyspace(keyspace), killing)
        journal = LagJournal(cluster.keyspace(ledger), keyspace, clock)
        settings = WriterSettings(strong=strong, threads=1)
        with MessageStore(tables, MemoryBlobs(clock), journal, clock, settings=settings) as store:
            scene = prepared(store, clock)
            killing.left = writes
            OPERATIONS[operation](scene)


def prepared(store: MessageStore, clock: SystemClock) -> Scene:
    source, target = MailboxId(clock.new_uuid()), MailboxId(clock.new_uuid())
    both = [store.add(source, mail("first", r"\Recent", "work")), store.add(source, mail("second", r"\Seen"))]
    os.write(1, (json.dumps({"source": str(source), "target": str(target)}) + "\n").encode())
    for stored in both:
        acknowledge("add", stored)
    return Scene(store, source, target, both[0], both[1])


def main(arguments: Sequence[str]) -> None:
    for line in sys.stdin:
        operation, writes, strong = line.split()
        child = os.fork()
        if child == 0:
            _child(arguments, operation, int(writes), strong=strong == "strong")
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        code: Any = "killed" if killed else os.waitstatus_to_exitcode(status)
        os.write(1, (json.dumps({"end": code}) + "\n").encode())


def _child(arguments: Sequence[str], operation: str, writes: int, *, strong: bool) -> None:
    code = 1
    try:
        act(arguments, operation, writes, strong=strong)
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
