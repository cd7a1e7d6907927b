"""How a queue's view should be cut for its traffic, within what James's rules let it become from what it is now.

`mailqueue.rules.advice` computes the slice window and the number of buckets. This module computes the pace, and
says which of James's rules stand between the present configuration and the best one. Pure.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from mailmend.mailqueue.rules.advice import MAILS_PER_SLICE, Advice, QueueAdvice, Traffic, advise_queue
from mailmend.mailqueue.rules.configuration import QueueConfiguration, window_text
from mailmend.mailqueue.rules.slices import SECOND, Slicing

MOVES_PER_SLICE: Final = 10
"""How many times the browse start should move in a slice. James's default pace gives 10, with 10,000 mails a slice."""

PACE_MIN: Final = 10
"""The smallest pace, in dequeues: at 10, every tenth dequeue already waits for a conditional write."""

PACE_MAX: Final = 1_000_000
_STEPS: Final = (1, 2, 5)

SHAPES: Final = frozenset({"slice window", "bucket count"})
"""The advice of `mailqueue.rules.advice` that is about the configuration; all other advice is about tables."""


@dataclass(frozen=True, slots=True)
class ConfigurationAdvice:
    """The configuration that is advised for the view of the queues.

    Attributes:
        present: the stored configuration; None where none is stored, and the first process will store James's defaults.
        advised: the best configuration to which the present one may be changed.
        allowed: the changes that James's rules allow, one sentence each.
        hindered: why a better configuration is not reachable; empty where the advised one is the best.
    """

    present: QueueConfiguration | None
    advised: QueueConfiguration
    best: QueueConfiguration
    reasons: tuple[Advice, ...]
    allowed: tuple[str, ...]
    hindered: tuple[str, ...]

    @property
    def changes(self) -> bool:
        return self.advised != self.present


def advise_configuration(traffic: Traffic, present: QueueConfiguration | None) -> ConfigurationAdvice:
    bound = advise_queue(traffic, present)
    free = advise_queue(traffic)
    advised, best = (_configuration(advice, traffic) for advice in (bound, free))
    return ConfigurationAdvice(
        present,
        advised,
        best,
        (*(reason for reason in bound.reasons if reason.setting in SHAPES), _pace_reason(advised, traffic)),
        tuple(_allowed(present)),
        tuple(_hindered(present, advised, best)),
    )


def pace_for(mails_per_slice: float) -> int:
    """After how many dequeues the browse start moves: about ten times a slice, as a round number."""
    wanted = mails_per_slice / MOVES_PER_SLICE
    return min(_round_numbers(), key=lambda one: max(one, wanted) / max(min(one, wanted), 1e-9))


def _round_numbers() -> Iterable[int]:
    decades = (10**power for power in range(1, 7))
    return [step * decade for decade in decades for step in _STEPS if PACE_MIN <= step * decade <= PACE_MAX]


def _configuration(advice: QueueAdvice, traffic: Traffic) -> QueueConfiguration:
    mails = traffic.mails_per_second.value * advice.slice_seconds
    return QueueConfiguration(Slicing(timedelta(seconds=advice.slice_seconds), advice.buckets), pace_for(mails))


def _pace_reason(advised: QueueConfiguration, traffic: Traffic) -> Advice:
    mails = traffic.mails_per_second.value * (advised.slicing.window / SECOND)
    moves = mails / advised.pace
    return Advice(
        "pace",
        f"{advised.pace:,}",
        f"One of {advised.pace:,} dequeues and deletes moves the browse start: {moves:,.3g} times in a slice of "
        f"{mails:,.0f} mails, {MOVES_PER_SLICE} are aimed at. More often costs conditional writes and reads of what "
        f"waits (at least {PACE_MIN}); more seldom, every browse reads slices that are done with.",
    )


def _allowed(present: QueueConfiguration | None) -> Iterator[str]:
    if present is None:
        yield "Nothing is stored yet: any slice window, number of buckets and pace may be set."
        return
    window = window_text(present.slicing.window)
    buckets = present.slicing.buckets
    yield f"A slice window may become any that divides the present {window}, and no other."
    yield f"Buckets may stay {buckets}, or grow."
    yield "The pace is free."


def _hindered(
    present: QueueConfiguration | None, advised: QueueConfiguration, best: QueueConfiguration
) -> Iterator[str]:
    if present is None:
        return
    if advised.slicing.window != best.slicing.window:
        yield (
            f"About {MAILS_PER_SLICE:,} mails would take a slice of {window_text(best.slicing.window)}, which does not "
            f"divide the present {window_text(present.slicing.window)}: {window_text(advised.slicing.window)} is the "
            "nearest that may be."
        )
    if advised.slicing.buckets > best.slicing.buckets and advised.slicing.window == best.slicing.window:
        yield f"{best.slicing.buckets} would do, but the {present.slicing.buckets} buckets that there are never shrink."
