"""Worker processes of one command: forked, watched, begun again after a crash, and ended with it.

The parent has no event loop, no thread and no connection, so that a fork of it is a clean
beginning. A worker has in its memory what the parent was given, passwords too: no argument and no
environment names it. A pipe connects the parent with each worker. The worker reads there how far it
is to stop, and the end of the pipe tells it that the parent is no more, whatever killed the parent.

A signal at a worker asks it to stop, once: a service manager may signal the worker and the parent,
and a terminal does.
"""

import logging
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from mailmend.admin.frame.endings import ending_of, heed_termination
from mailmend.admin.frame.event_loop import ordered_by
from mailmend.admin.frame.supervision import WorkerFate, WorkerRecord, exit_code_of, worst_code
from mailmend.model.errors import ExitCode, WrongUse
from mailmend.model.ports import Clock
from mailmend.repair.log_fields import put_log_field

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess

_STOPS: Final = (signal.SIGINT, signal.SIGTERM)
_HEARD: Final = (*_STOPS, signal.SIGHUP)
_LOG: Final = logging.getLogger("mailmend.processes")


class StopOrder(IntEnum):
    """How far workers are to stop, by the number of signals at the parent.

    FINISH: what is under way may end. BREAK_OFF: it is cancelled. KILL: the processes are killed.
    """

    NOT = 0
    FINISH = 1
    BREAK_OFF = 2
    KILL = 3


class _Word(IntEnum):
    """What a worker tells the parent."""

    READY = 1
    RELOADED = 2
    RESULT = 3


@dataclass(frozen=True, slots=True)
class WorkerLink:
    """A worker's end of the pipe.

    Attributes:
        number: of the worker, from 1.
    """

    number: int
    connection: Connection

    def ready(self) -> None:
        """Tell the parent that the worker serves: another process follows where this one ends."""
        self._say(_Word.READY)

    def reloaded(self) -> None:
        """Have the parent and the other workers read their settings again, as this worker has."""
        self._say(_Word.RELOADED)

    def _say(self, word: _Word, result: object = None) -> None:
        with suppress(OSError):  # the parent is no more
            self.connection.send((word, result))


@dataclass(slots=True, eq=False)
class _Worker:
    record: WorkerRecord
    process: "ForkProcess | None" = None
    link: Connection | None = None
    is_ready: bool = False
    reload_due: bool = False


@dataclass(slots=True, kw_only=True)
class Workers:
    """Runs the workers of one command.

    Attributes:
        count: how many processes there are.
        work: is what a worker does; its result comes back by a pipe, so it must be picklable.
        reload: called in the parent at SIGHUP: a worker that begins later inherits what it read.
        stopped: called in the parent once it was asked to stop.
        results: of the workers that ended in good order.
    """

    count: int
    work: Callable[[WorkerLink], object]
    clock: Clock
    reload: Callable[[], None]
    stopped: Callable[[], None]
    results: list[Any] = field(default_factory=list)
    _order: StopOrder = StopOrder.NOT
    _workers: list[_Worker] = field(default_factory=list)

    def run(self) -> int:
        """Run the workers until all have ended; the worst of their exit codes.

        Raises:
            WrongUse: this system cannot fork.
        """
        if "fork" not in multiprocessing.get_all_start_methods():
            what = "this system has no processes that share a socket"
            raise WrongUse(what, mend="Leave --processes out.")
        self._workers = [_Worker(WorkerRecord(number)) for number in range(1, self.count + 1)]
        with _heard() as (heard, woken):
            try:
                self._begin_due()
                while self._are_left:
                    self._wait(woken)
                    for which in _taken(heard):
                        self._obey(which)
                    for worker in self._workers:
                        self._look(worker)
                    self._begin_due()
            finally:
                for worker in self._workers:
                    self._kill(worker)
        codes = [worker.record.exit_code for worker in self._workers]
        return worst_code(code for code in codes if code is not None)

    @property
    def _are_left(self) -> bool:
        return any(worker.process or worker.record.due_at is not None for worker in self._workers)

    def _wait(self, woken: socket.socket) -> None:
        """Until a signal, a word or the end of a worker, or until one is due to begin."""
        sources: list[Any] = [woken]
        dues = list[float]()
        for worker in self._workers:
            if worker.process:
                sources.append(worker.process.sentinel)
            if worker.link:
                sources.append(worker.link)
            if worker.record.due_at is not None:
                dues.append(worker.record.due_at)
        timeout = None
        if dues:
            timeout = max(0.0, min(dues) - self.clock.monotonic())
        if woken in wait(sources, timeout):
            woken.recv(4096)

    # Signals

    def _obey(self, which: int) -> None:
        if which == signal.SIGHUP:
            self._reload()
        else:
            self._stop(StopOrder(min(self._order + 1, StopOrder.KILL)))

    def _reload(self, but_for: _Worker | None = None) -> None:
        try:
            self.reload()
        except Exception:  # noqa: BLE001 - the workers would be killed with the parent
            _LOG.exception("settings cannot be read again for workers that begin later")
        for worker in self._workers:
            if worker is not but_for:
                worker.reload_due = True
                self._tell_of_reload(worker)

    def _tell_of_reload(self, worker: _Worker) -> None:
        """A worker that is not ready yet is told once it is."""
        process = worker.process
        if not (worker.is_ready and worker.reload_due and process and process.pid):
            return
        worker.reload_due = False
        if process.exitcode is None:  # else its number may be another process's
            os.kill(process.pid, signal.SIGHUP)

    def _stop(self, order: StopOrder) -> None:
        if self._order is StopOrder.NOT:
            self.stopped()
        self._order = order
        for worker in self._workers:
            worker.record.stop()
            if order is StopOrder.KILL:
                self._kill(worker, forget=False)
            elif worker.link:
                with suppress(OSError):  # the worker is no more
                    worker.link.send(int(order))

    # Workers

    def _begin_due(self) -> None:
        now = self.clock.monotonic()
        for worker in self._workers:
            if worker.record.due_at is not None and worker.record.due_at <= now:
                worker.record.began(now)
                try:
                    self._begin(worker)
                except OSError as error:  # no memory, no process or no file is left
                    _LOG.error("no process can be begun", extra={"error": str(error)})
                    _close(worker)
                    self._note_end(worker, None, int(ExitCode.PARTLY_FAILED))

    def _begin(self, worker: _Worker) -> None:
        """Fork.

        Raises:
            OSError: the system has no process, file or memory left.
        """
        worker.link, theirs = multiprocessing.Pipe()
        worker.is_ready = worker.reload_due = False
        process = multiprocessing.get_context("fork").Process(
            target=self._in_worker, args=(WorkerLink(worker.record.number, theirs),), daemon=True
        )
        # A signal before the worker has its own reactions would be lost, or be the parent's.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        worker.process = process

    def _in_worker(self, link: WorkerLink) -> None:
        """The life of a worker, from the fork to its exit code."""
        signal.set_wakeup_fd(-1)
        for worker in self._workers:
            if worker.link:  # the end of a pipe is seen only where no other process has it open
                worker.link.close()
        heed_termination()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

        def work() -> None:
            put_log_field("worker", str(link.number))
            try:
                # A signal that waits is heard here, as an interruption of the command.
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
                with ordered_by(link.connection):
                    link._say(_Word.RESULT, self.work(link))  # noqa: SLF001 - its own module
            finally:
                for which in _STOPS:  # it ends already
                    signal.signal(which, signal.SIG_IGN)

        sys.exit(ending_of(work))

    def _look(self, worker: _Worker) -> None:
        """Hear what a worker says, and note its end."""
        self._hear(worker)
        if worker.process is None or worker.process.exitcode is None:
            return
        self._hear(worker)  # what it said last
        pid = worker.process.pid
        code = exit_code_of(worker.process.exitcode)
        self._forget(worker)
        self._note_end(worker, pid, code)

    def _note_end(self, worker: _Worker, pid: int | None, code: int) -> None:
        now = self.clock.monotonic()
        stopping = self._order is not StopOrder.NOT
        fate = worker.record.ended(code, now, stopping=stopping)
        fields: dict[str, object] = {"worker": worker.record.number, "pid": pid, "exit": code}
        if fate is WorkerFate.AGAIN and worker.record.due_at is not None:
            fields["seconds"] = round(worker.record.due_at - now, 1)
            _LOG.error("a worker ended unasked and begins again", extra=fields)
        elif fate is WorkerFate.GIVEN_UP:
            _LOG.error("a worker cannot begin, so all end", extra=fields)
            self._stop(StopOrder.FINISH)

    def _hear(self, worker: _Worker) -> None:
        try:
            while worker.link and worker.link.poll():
                word, result = worker.link.recv()
                self._heed(worker, word, result)
        except (EOFError, OSError):
            _close(worker)

    def _heed(self, worker: _Worker, word: _Word, result: object) -> None:
        match word:
            case _Word.READY:
                worker.is_ready = worker.record.has_served = True
                self._tell_of_reload(worker)
            case _Word.RELOADED:
                self._reload(but_for=worker)
            case _Word.RESULT:
                self.results.append(result)

    def _forget(self, worker: _Worker) -> None:
        if worker.process:
            worker.process.join()
            worker.process.close()
        worker.process = None
        worker.is_ready = False
        _close(worker)

    def _kill(self, worker: _Worker, *, forget: bool = True) -> None:
        if worker.process:
            worker.process.kill()
            if forget:
                self._forget(worker)


def _close(worker: _Worker) -> None:
    if worker.link:
        worker.link.close()
    worker.link = None


def _taken(heard: list[int]) -> Iterator[int]:
    while heard:
        yield heard.pop(0)


@contextmanager
def _heard() -> Iterator[tuple[list[int], socket.socket]]:
    """The signals that came, and a socket that is readable when one came."""
    heard = list[int]()

    def hear(which: int, _: FrameType | None) -> None:
        heard.append(which)

    woken, wakes = socket.socketpair()
    with woken, wakes:
        woken.setblocking(False)  # noqa: FBT003 - the library's own
        wakes.setblocking(False)  # noqa: FBT003
        waked = signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        before = {which: signal.signal(which, hear) for which in _HEARD}
        try:
            yield heard, woken
        finally:
            for which, reaction in before.items():
                signal.signal(which, reaction)
            signal.set_wakeup_fd(waked)
