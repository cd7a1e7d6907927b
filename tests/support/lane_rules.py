"""The rules that hold for every run of tests, as a plugin of pytest: it imports nothing of ours but the journal.

No test ends the session by an interrupt, a lane keeps its journal, and where every part must be there nothing is
skipped. `tests/conftest.py` loads it; a test that starts pytest loads it alone (`-p tests.support.lane_rules`).
"""

import os
from collections.abc import Generator
from typing import TypeVar

import pytest

from tests.support.lane_journal import heed_person, interrupts_fail_the_test, keep_journal

NO_SKIPS = "MAILMEND_TEST_NO_SKIPS"
"""A person may go on without a missing part; `.ci/run` sets this variable, and then a test that is skipped fails."""

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Hear Ctrl-C, and keep the journal of a lane."""
    heed_person(config)
    keep_journal(config)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """No test ends the session by an interrupt."""
    with interrupts_fail_the_test(item.config):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """No test ends the session by an interrupt."""
    with interrupts_fail_the_test(item.config):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """No test ends the session by an interrupt."""
    with interrupts_fail_the_test(item.config):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where every part must be there, a test that would be skipped for want of one fails."""
    return _demanded((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """So does a file."""
    return _demanded((yield))


def _demanded(report: Report) -> Report:
    if os.environ.get(NO_SKIPS) and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{NO_SKIPS} is set, and a part is missing. {report.longreprtext}"
    return report
