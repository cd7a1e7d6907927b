"""What a face lends a service while it works: where progress, findings, remarks and questions go."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from model.ports import Progress, Silent
from model.projections.findings import Finding
from repair.mending.limits import Excess

Question = str | Excess
"""What a person is asked: a sentence, or more fixes than `--max-fixes` allows."""


def ignore(_: object) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who called a service. The defaults are those of a job that nobody watches.

    Attributes:
        progress: is told how far long work is.
        finding: takes every finding as it comes; a result holds only a few examples.
        examples: whether anybody looks at these; where not, they need not be read.
        item: takes each item of a long listing as it comes.
        remark: takes a sentence about something that happened on the way.
        ask: whether to go on; None where nobody can answer.
        number: asks for a number from 1 to a maximum; None likewise.
    """

    progress: Progress = field(default_factory=Silent)
    finding: Callable[[Finding], None] = ignore
    examples: bool = True
    item: Callable[[Any], None] = ignore
    remark: Callable[[str], None] = ignore
    ask: Callable[[Question], bool] | None = None
    number: Callable[[str, int], int] | None = None
