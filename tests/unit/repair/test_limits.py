"""--max-fixes: what is due is what would be written, nobody is asked below it; batches that are under way together."""

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from mailmend.model.catalog.mail import FAMILIES, MESSAGES, PATHS
from mailmend.model.errors import ExitCode, FixLimit
from mailmend.model.ids import RunId
from mailmend.model.instants import MICROS
from mailmend.model.ports import Progress
from mailmend.model.projections.findings import Excess, Finding, RepairPolicy, Suspect, counts_of
from mailmend.model.projections.verdicts import Verdict
from mailmend.repair.mending.engine import Detection, RepairSettings
from mailmend.repair.mending.limits import Pace, batches_at_once, side_by_side
from mailmend.repair.mending.runner import excess_over, stop_at_limit
from mailmend.repair.mending.throttle import Throttle
from tests.support.clock import START, VirtualClock
from tests.support.repairing import DAY_SECONDS, MAILBOX, message

MIRROR, UNSEEN, CONTENT = MESSAGES.mirror.name, MESSAGES.filters[0].name, MESSAGES.content.name  # type: ignore[union-attr]
RUN = RunId(message(1, START))


class Scanned(Detection):
    """A scan's suspects, which counts how often they are streamed."""

    def __init__(self, found: tuple[Suspect, ...]) -> None:
        super().__init__()
        self.found, self.counts, self.streamed = found, counts_of(found), 0

    def suspects(self) -> Iterator[Suspect]:
        self.streamed += 1
        return iter(self.found)

    def revisit(self, policy: RepairPolicy, progress: Progress) -> Iterator[Finding]:  # noqa: ARG002 - the port's
        raise AssertionError


def suspect(projection: str, verdict: Verdict, number: int = 1, *, age_seconds: int = 10 * DAY_SECONDS) -> Suspect:
    """A suspect whose message was born so long ago."""
    born = message(number, START - age_seconds * MICROS)
    key = (born,) if projection == CONTENT else (MAILBOX, number)
    return Suspect(projection, key, verdict, () if projection == CONTENT else ((born,),))


def due(detection: Scanned, allowed: int, **changes: Any) -> Excess | None:
    """What a repair asked for like this would mend beyond the limit."""
    order = RepairSettings("mail", FAMILIES, max_fixes=allowed, policy=RepairPolicy(**changes))
    return excess_over(allowed, detection, order, order.policy_of(START, None), START)


@pytest.mark.parametrize(
    ("found", "changes", "written"),
    [
        (suspect(MIRROR, Verdict.PROJECT), {}, True),
        (suspect(MIRROR, Verdict.PROJECT), {"only": frozenset({Verdict.AMEND})}, False),
        (suspect(MIRROR, Verdict.WITHDRAW), {}, True),
        (suspect(MIRROR, Verdict.WITHDRAW), {"dangling": "report"}, False),
        (suspect(MIRROR, Verdict.WITHDRAW), {"dangling": "restore"}, True),
        (suspect(UNSEEN, Verdict.WITHDRAW), {"dangling": "report"}, True),
        (suspect(MIRROR, Verdict.CLASH), {}, False),
        (suspect(MIRROR, Verdict.TORN), {}, False),
        (suspect(MIRROR, Verdict.LOST_CONTENT), {}, False),
        (suspect(MIRROR, Verdict.LOST_CONTENT), {"orphans": "quarantine"}, True),
        (suspect(MIRROR, Verdict.LOST_CONTENT, age_seconds=60), {"orphans": "quarantine"}, False),
        (suspect(CONTENT, Verdict.LEAK), {}, False),
        (suspect(CONTENT, Verdict.LEAK), {"leaks": "collect"}, True),
        (suspect(CONTENT, Verdict.LEAK, age_seconds=60), {"leaks": "collect"}, False),
        (Suspect(PATHS.mirror.name, (MAILBOX,), Verdict.AMEND), {}, True),
        (Suspect(PATHS.mirror.name, (MAILBOX,), Verdict.WITHDRAW), {}, False),
    ],
)
def test_only_what_would_be_written_counts(found: Suspect, changes: dict[str, Any], written: bool) -> None:
    excess = due(Scanned((found,)), 0, **changes)

    assert (excess is not None) == written
    if excess is not None:
        assert (excess.total, excess.counts) == (1, {found.projection: {found.verdict: 1}})


def test_the_limit_itself_is_allowed() -> None:
    detection = Scanned((suspect(MIRROR, Verdict.PROJECT, 1), suspect(MIRROR, Verdict.AMEND, 2)))

    assert due(detection, 2) is None
    assert due(detection, 1) is not None


def test_below_the_limit_nothing_is_streamed() -> None:
    detection = Scanned((suspect(MIRROR, Verdict.PROJECT), suspect(CONTENT, Verdict.LEAK, 2)))

    due(detection, 2, leaks="collect")

    assert detection.streamed == 0


def test_young_content_does_not_stop_what_is_within_the_limit() -> None:
    detection = Scanned((suspect(CONTENT, Verdict.LEAK, 1), suspect(CONTENT, Verdict.LEAK, 2, age_seconds=60)))

    assert due(detection, 1, leaks="collect") is None


def test_samples_are_few_and_of_what_is_due() -> None:
    lost = suspect(MIRROR, Verdict.LOST_CONTENT, 1)
    missing = [suspect(MIRROR, Verdict.PROJECT, number) for number in range(2, 20)]

    excess = due(Scanned((lost, *missing)), 3)

    assert excess is not None
    assert excess.samples == tuple(missing[:5])
    assert excess.total == 18


def test_nobody_to_ask_means_stop_with_what_to_type() -> None:
    detection = Scanned((suspect(MIRROR, Verdict.PROJECT, 1), suspect(MIRROR, Verdict.PROJECT, 2)))
    order = RepairSettings("mail", (MESSAGES,), max_fixes=1)

    stop_at_limit(detection, order, order.policy_of(START, None), START, None)  # a dry run is not stopped
    with pytest.raises(FixLimit, match="--max-fixes 2") as refused:
        stop_at_limit(detection, order, replace(order.policy_of(START, None), run=RUN), START, None)

    assert refused.value.exit_code is ExitCode.DRIFT


@pytest.mark.parametrize("answer", [True, False])
def test_whoever_is_asked_decides(answer: bool) -> None:
    detection = Scanned((suspect(MIRROR, Verdict.PROJECT),))
    asked: list[Excess] = []

    def go_on(excess: Excess) -> bool:
        asked.append(excess)
        return answer

    def ask(allowed: int) -> bool:
        order = RepairSettings("mail", (MESSAGES,), max_fixes=allowed)
        try:
            stop_at_limit(detection, order, replace(order.policy_of(START, None), run=RUN), START, go_on)
        except FixLimit:
            return False
        return True

    assert (ask(1), asked) == (True, [])
    assert ask(0) is answer
    assert [one.total for one in asked] == [1]


class TestBatchesSideBySide:
    """Rounds of as many batches as are under way at once."""

    def test_two_are_under_way_together_and_none_while_the_caller_has_a_result(self) -> None:
        together, under_way = threading.Barrier(2, timeout=10), set[int]()

        def work(number: int) -> int:
            under_way.add(number)
            together.wait()  # breaks where it stands alone
            under_way.remove(number)
            return number * 10

        taken = [(result, len(under_way)) for result in side_by_side(work, iter(range(4)), batches_at_once(None))]

        assert taken == [(0, 0), (10, 0), (20, 0), (30, 0)]

    def test_an_error_comes_when_the_others_are_done_and_ends_the_work(self) -> None:
        begun, failed, done = threading.Event(), threading.Event(), list[int]()

        def work(number: int) -> None:
            if number == 0:
                begun.wait(10)
                failed.set()
                raise ZeroDivisionError
            begun.set()
            failed.wait(10)
            done.append(number)

        with pytest.raises(ZeroDivisionError):
            list(side_by_side(work, iter(range(4)), 2))
        assert done == [1]

    def test_a_pace_is_kept_by_one(self) -> None:
        assert batches_at_once(1000) == 1


@pytest.mark.parametrize("throttled", [False, True])
def test_a_batch_that_waits_for_its_pace_ends_when_the_run_is_interrupted(*, throttled: bool) -> None:
    """At the pace of this one it would take eleven days."""
    clock = VirtualClock()
    pace, took = Pace(1, clock, Throttle(clock, 1) if throttled else None), list[int]()

    def work(_: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        for number in range(1_000_000):
            pace.take(1)
            took.append(number)

    with pytest.raises(KeyboardInterrupt):
        list(side_by_side(work, iter(range(4)), 1))

    assert len(took) < 1_000_000
    pace.take(1)  # of somebody else
