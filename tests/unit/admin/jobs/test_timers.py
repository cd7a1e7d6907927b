"""Timers of the server of jobs: those that a scheduler library keeps, and those that tests turn by hand."""

from datetime import timedelta

import pytest

from mailmend.admin.jobs.schedule import TimeAfter, Timers
from mailmend.admin.jobs.serve import ScheduledTimers
from mailmend.model.ports import Clock
from mailmend.repair.clock import SystemClock
from tests.support.clock import VirtualClock, VirtualTimers


@pytest.mark.parametrize("virtual", [True, False])
async def test_timers_wake_at_the_times_that_were_set_last_until_they_are_closed(*, virtual: bool) -> None:
    turned = VirtualClock()
    clock: Clock = turned if virtual else SystemClock()
    timers: Timers = VirtualTimers(turned) if virtual else ScheduledTimers()
    woken: list[str] = []

    def every(seconds: float) -> dict[str, TimeAfter]:
        return {f"every {seconds} s": lambda at: at + timedelta(seconds=seconds)}

    async def more_than(count: int) -> None:
        while len(woken) <= count:
            await clock.pause(0.01)

    with timers:
        timers.set(every(0.01), lambda: woken.append("first"))
        await more_than(1)
        timers.set(every(0.02) | every(3600), lambda: woken.append("second"))
        await clock.pause(0.01)  # one that was on its way may still come
        before = len(woken)
        await more_than(before + 1)
        after = woken[before:]
    await clock.pause(0.01)
    count = len(woken)
    await clock.pause(0.1)

    assert set(after) == {"second"}
    assert len(woken) == count
