"""Where chance begins: the seeds that are kept, and one that CI draws in each run (see `tests/README.md`)."""

import os
import secrets
from typing import Final

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

OPTION: Final = "--hypothesis-seed"
KEPT: Final = (1, 2)
"""Stories are told from these in every run."""


def draw_in_ci(config: pytest.Config) -> None:
    """Where nobody asked for a seed and nobody repeats a run by hand, take a new one."""
    if os.environ.get("CI") and config.getoption(OPTION) is None:
        config.option.hypothesis_seed = str(secrets.randbelow(10**9))


def seeds_of(config: pytest.Config) -> tuple[int, ...]:
    """Those that are kept, then the one that was drawn or asked for."""
    new = config.getoption(OPTION)
    return KEPT if new is None else tuple(dict.fromkeys((*KEPT, int(new))))


def run_stories(machine: type[RuleBasedStateMachine], story_seed: int, *, stories: int, steps: int) -> None:
    """So many stories, the same each time for a seed."""
    chosen = settings(
        max_examples=stories, stateful_step_count=steps, database=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(seed(story_seed)(machine), settings=chosen)
