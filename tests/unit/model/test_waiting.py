"""Waits that a person can follow."""

import asyncio

import pytest

from mailmend.model.waiting import pause_visibly, wait_visibly
from tests.support.clock import START, VirtualClock
from tests.support.progress import SilentProgress


@pytest.mark.parametrize(
    ("seconds", "stages", "steps"),
    [
        (2.5, {"waiting for rain, in seconds": 2}, 3),
        (3, {"waiting for rain, in seconds": 3}, 3),
        (0, {}, 0),
        (-1, {}, 0),
    ],
)
@pytest.mark.parametrize("form", ["blocking", "in an event loop"])
def test_a_wait_is_a_stage_with_a_step_after_each_second(
    form: str, seconds: float, stages: dict[str, int], steps: int
) -> None:
    clock = VirtualClock()
    progress = SilentProgress()

    if form == "blocking":
        wait_visibly(clock, progress, "waiting for rain", seconds)
    else:
        asyncio.run(pause_visibly(clock, progress, "waiting for rain", seconds))

    assert (progress.stages, progress.steps) == (stages, steps)
    assert clock.micros() == START + max(0, round(seconds * 1_000_000))
