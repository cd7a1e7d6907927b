"""How lanes end: no test ends one or stalls one, and the last lines say what failed and what did not run."""

from pathlib import Path

import pytest

from tests.lanes import Lane, LaneRun, command_of, summary
from tests.support.thorough import ALL, LEFT_TO_ALL

INTERRUPTING = """
import os, signal
import pytest

def test_before(): ...

def test_interrupt(): raise KeyboardInterrupt

def test_ctrl_c(): os.kill(os.getpid(), signal.SIGINT)

@pytest.fixture
def interrupted(): raise KeyboardInterrupt

def test_in_a_fixture(interrupted): ...

async def test_in_a_loop(): raise KeyboardInterrupt

def test_after(): ...
"""
DYING = """
import os

def test_before(): ...

def test_dies(): os._exit(9)

def test_after(): assert False

def test_last(): ...
"""
ENDED = """
import pytest

def test_ends(): pytest.exit("enough")

def test_last(): ...
"""

SWALLOWING = """
import os, signal

def test_swallows():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    except Exception:
        pass

def test_last(): ...
"""


@pytest.fixture
def lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LaneRun:
    folder = tmp_path / "tests"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the import of what is not used takes longer than all
    plugins = ("-p", "pytest_asyncio.plugin", "-p", "pytest_timeout", "-p", "tests.support.lane_rules")
    words = (*plugins, "-c", "pyproject.toml", "--rootdir", str(folder), str(folder))
    return LaneRun(Lane("one", words), tmp_path / "journal")


def _ids(tests: list[str]) -> list[str]:
    return [test.partition("::")[2] for test in tests]


def test_an_interrupt_fails_its_test_and_not_the_lane(lane: LaneRun, tmp_path: Path) -> None:
    (tmp_path / "tests" / "test_interrupting.py").write_text(INTERRUPTING)

    lane.run((), shown=False)

    assert _ids(lane.failed) == ["test_interrupt", "test_ctrl_c", "test_in_a_fixture", "test_in_a_loop"], lane.lines
    assert lane.journal.unrun == {}
    assert "1 error" in lane.lines[-1]
    assert "3 failed, 2 passed" in lane.lines[-1]


def test_a_process_that_dies_fails_its_test_and_the_lane_goes_on(lane: LaneRun, tmp_path: Path) -> None:
    (tmp_path / "tests" / "test_dying.py").write_text(DYING)

    lane.run((), shown=False)

    assert _ids(lane.failed) == ["test_after", "test_dies"]
    assert lane.journal.unrun == {}
    last = summary([lane]).splitlines()
    assert last[-3:-1] == [
        "Failed, one: test_dying.py::test_after",
        "Failed, one: test_dying.py::test_dies (its process died)",
    ]
    assert last[-1].startswith("To run them again: ")
    assert last[-1].endswith("-m pytest test_dying.py::test_after test_dying.py::test_dies")


def test_a_lane_that_ends_early_says_which_files_did_not_run(lane: LaneRun, tmp_path: Path) -> None:
    (tmp_path / "tests" / "test_ended.py").write_text(ENDED)
    (tmp_path / "tests" / "test_later.py").write_text("def test_it(): ...")

    lane.run((), shown=False)

    assert "Did not run, one: test_ended.py (1 tests)" in summary([lane])
    assert "Did not run, one: test_later.py (1 tests)" in summary([lane])


def test_a_lane_that_is_ended_from_outside_ends_behind_a_test_that_swallows_the_signal(
    lane: LaneRun, tmp_path: Path
) -> None:
    (tmp_path / "tests" / "test_swallowing.py").write_text(SWALLOWING)

    lane.run((), shown=False)

    assert _ids([*lane.journal.ended]) == ["test_swallows"], lane.lines
    assert "Did not run, one: test_swallowing.py (1 tests)" in summary([lane])


def test_a_lane_without_long_runs_takes_what_make_test_takes(tmp_path: Path) -> None:
    short = Lane("short", ("tests/unit",), long_runs=False)
    assert command_of(short, (ALL, "-x")) == command_of(short, ("-x",))

    left = LaneRun(short, tmp_path / "journal", lines=[f"3 {LEFT_TO_ALL}\n"])
    assert f"In all lanes: 0 {LEFT_TO_ALL}" in summary([left])
