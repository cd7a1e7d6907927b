"""What a lane has done, test by test, in a file that outlives its process.

A process that died begins again where it ended (`tests/lanes.py`), and the end of all lanes tells which tests failed
and which files did not run. One event a line: its name, a tab, the id of a test or the path of a file.
"""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pytest

VARIABLE = "MAILMEND_TEST_LANE_JOURNAL"
"""Names the journal; set by `tests/lanes.py` only."""

_ENDED_FROM_OUTSIDE = "the lane was ended from outside"
_COLLECTED, _BEGAN, _ENDED, _FAILED, _SESSION_ENDED = "collected", "began", "ended", "failed", "session ended"


@dataclass(slots=True)
class LaneJournal:
    """The journal of one lane.

    Attributes:
        collected: how many tests each file has.
        began, ended, failed: ids of tests, in their order.
        is_complete: whether a session came to its end.
    """

    collected: Counter[str] = field(default_factory=Counter)
    began: dict[str, None] = field(default_factory=dict)
    ended: dict[str, None] = field(default_factory=dict)
    failed: dict[str, None] = field(default_factory=dict)
    is_complete: bool = False

    @property
    def lost(self) -> list[str]:
        """The tests in which a process died."""
        return [test for test in self.began if test not in self.ended]

    @property
    def unrun(self) -> dict[str, int]:
        """How many tests of each file did not run."""
        run = Counter(test.partition("::")[0] for test in self.began)
        return {file: tests - run[file] for file, tests in self.collected.items() if tests > run[file]}


def read_journal(file: Path) -> LaneJournal:
    """What was written until now; an empty journal where the file is missing."""
    journal = LaneJournal()
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    for line in lines:
        event, _, what = line.partition("\t")
        if event == _COLLECTED:
            journal.collected[what] += 1
        elif event == _SESSION_ENDED:
            journal.is_complete = True
        else:
            tests = {_BEGAN: journal.began, _ENDED: journal.ended, _FAILED: journal.failed}.get(event)
            if tests is not None:
                tests[what] = None
    return journal


class JournalPlugin:
    """Writes the journal of the lane that this process is, and leaves out what an earlier process of it began."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._before = read_journal(file)
        self._session: pytest.Session | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    def end_session(self, *_: object) -> NoReturn:
        """End the session here, or behind this test where the code that it tests catches the exception."""
        if self._session is not None:
            self._session.shouldstop = _ENDED_FROM_OUTSIDE
        pytest.exit(_ENDED_FROM_OUTSIDE, returncode=2)

    def _write(self, event: str, *subjects: str) -> None:
        with self._file.open("a", encoding="utf-8") as stream:
            stream.writelines(f"{event}\t{subject}\n" for subject in subjects)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if not self._before.collected:
            self._write(_COLLECTED, *(item.nodeid.partition("::")[0] for item in items))
        begun = [item for item in items if item.nodeid in self._before.began]
        if begun:
            config.hook.pytest_deselected(items=begun)
            items[:] = [item for item in items if item.nodeid not in self._before.began]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(_BEGAN, nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._write(_FAILED, report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._write(_ENDED, nodeid)

    def pytest_sessionfinish(self) -> None:
        self._write(_SESSION_ENDED, "")


def keep_journal(config: pytest.Config) -> None:
    """Write a journal where this process is a lane; then SIGTERM ends it in good order."""
    # Taken out of the environment: the pytest that a test starts is no lane.
    file = os.environ.pop(VARIABLE, None)
    if file:
        config.stash[IS_LANE] = True
        journal = JournalPlugin(Path(file))
        config.pluginmanager.register(journal)
        signal.signal(signal.SIGTERM, journal.end_session)


@contextmanager
def interrupts_fail_the_test(config: pytest.Config) -> Iterator[None]:
    """Let a KeyboardInterrupt of the block fail its test; a person's Ctrl-C ends the session, as pytest has it.

    Within a lane a person's Ctrl-C is heard by `tests/lanes.py`, which ends the lanes.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if config.stash.get(PERSON, False) and not config.stash.get(IS_LANE, False):
            raise
        raise InterruptedTestError("a KeyboardInterrupt came out of this test") from interrupt


class InterruptedTestError(Exception):
    """A signal of the test's own, or of the code that it tests, was not caught."""


IS_LANE = pytest.StashKey[bool]()
"""Whether this process is a lane of `tests/lanes.py`."""

PERSON = pytest.StashKey[bool]()
"""Whether somebody has pressed Ctrl-C."""


def heed_person(config: pytest.Config) -> None:
    """Note Ctrl-C; it is heard in the background too, where shells have it ignored."""

    def interrupt(*_: object) -> NoReturn:
        config.stash[PERSON] = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
