"""A job of the night, and what tests of `mailmend jobs` ask of it."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from mailmend.model.errors import CannotReach
from tests.support.cluster_twin import ClusterTwin
from tests.support.commands import CommandLine, Ended

NIGHTLY = """
[jobs.nightly-repair]
command = "repair messages --engine local --delay 0"
schedule = "30 1 * * *"
time_zone = "Europe/Berlin"
window = "01:00-05:30"
longest = "4h"
max_fixes = 100000
rows_per_second = 50000
"""
NIGHT = datetime(2026, 9, 1, 23, 30, tzinfo=UTC)  # 01:30 in Berlin
NOON = datetime(2026, 9, 2, 12, tzinfo=UTC)

Declare = Callable[[str], None]
"""The text of the settings file, from now on."""

Shell = tuple[CommandLine, Declare, ClusterTwin]


def unreachable(*_: object) -> None:
    raise CannotReach("no node answered")


def only(ended: Ended) -> dict[str, Any]:
    (job,) = ended.json["jobs"]
    assert isinstance(job, dict)
    return job
