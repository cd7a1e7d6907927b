"""How much is tried: `make test-all` (`--all`) has whole matrices, long runs and more examples, `make test` the rest.

What `make test` leaves out is marked `thorough`, and it says how many tests that are. Chance begins at seeds that are
kept, and in CI at one more that is drawn for the run.
"""

import os
import secrets
from collections.abc import Iterable
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

ALL: Final = "--all"
SEED: Final = "--hypothesis-seed"
KEPT: Final = (1, 2)
"""Stories are told from these in every run of `make test-all`; the first one does in `make test`."""

LEFT_TO_ALL: Final = "left to `make test-all`: whole matrices and long runs"

_WHOLE: Final = 100
"""Of so many examples that the profile has, `share` gives all."""


def configure(config: pytest.Config) -> None:
    """Choose how many examples are drawn; in CI, where nobody asked for a seed, take a new one.

    Before Hypothesis reads its options. A busy machine is no finding: no example fails for being slow.
    """
    chosen, examples = ("all", _WHOLE) if config.getoption(ALL) else ("quick", _WHOLE // 4)
    settings.register_profile(
        chosen, max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
    )
    settings.load_profile(chosen)
    if (os.environ.get("CI") or config.getoption(ALL)) and config.getoption(SEED) is None:
        config.option.hypothesis_seed = str(secrets.randbelow(10**9))


def left_out(config: pytest.Config, items: list[pytest.Item]) -> int:
    """Take what is thorough from what is to be run, unless all is wanted or a test was named; how many."""
    if config.getoption(ALL) or any("::" in argument for argument in config.args):
        return 0
    left = [item for item in items if item.get_closest_marker("thorough")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in set(left)]
    return len(left)


def first_of(values: Iterable[Any], quick: int = 1) -> list[Any]:
    """Parameters of which `make test` takes the first ones; a tuple is a row of several."""
    rows = (one if isinstance(one, tuple) else (one,) for one in values)
    return [pytest.param(*row, marks=[pytest.mark.thorough] * (at >= quick)) for at, row in enumerate(rows)]


def share(count: int) -> int:
    """That many, or as much less as the profile of Hypothesis has fewer examples."""
    return max(1, count * settings.default.max_examples // _WHOLE)  # type: ignore[union-attr]


def few_or(count: int, few: int = _WHOLE // 4) -> int:
    """That many in `make test-all`, and a few in `make test`."""
    if share(_WHOLE) < _WHOLE:
        return min(count, few)
    return count


def seeds_of(config: pytest.Config) -> tuple[int, ...]:
    """Those that are kept, then the one that was drawn or asked for."""
    kept = KEPT if config.getoption(ALL) else KEPT[:1]
    new = config.getoption(SEED)
    return kept if new is None else tuple(dict.fromkeys((*kept, int(new))))


def run_stories(
    machine: type[RuleBasedStateMachine], story_seed: int, *, stories: int, steps: int, few: int = _WHOLE
) -> None:
    """Tell stories from a seed: `few` of them at most in `make test`."""
    chosen = settings(
        max_examples=min(share(stories), few_or(stories, few)),
        stateful_step_count=steps,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(story_seed)(machine), settings=chosen)
