"""Kinds of option values: what is taken, and how a wrong one is refused, whatever it came from."""

from datetime import timedelta

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.admin.frame.kinds import (
    DELAY,
    KEEP,
    KEYSPACE,
    MENDABLE_ON_REQUEST,
    PORT,
    VERDICTS,
    Duration,
    duration_text,
)
from mailmend.admin.frame.settings import KEEP_MAX
from mailmend.model.durations import DURATION_MAX
from mailmend.model.projections.verdicts import MENDABLE, Verdict


@pytest.mark.parametrize(
    ("typed", "seconds"), [("60s", 60), ("5m", 300), ("1h", 3600), ("250ms", 0.25), ("7", 7), (8, 8), (1.5, 1.5)]
)
def test_a_duration_is_taken_from_a_shell_and_from_a_settings_file(typed: object, seconds: float) -> None:
    assert DELAY.convert(typed, None, None) == timedelta(seconds=seconds)


@pytest.mark.parametrize("typed", ["", "soon", "-5s", "5 parsecs", "1e3", "nan", "inf", "2d", "99999999999999999999d"])
def test_an_absurd_duration_is_refused(typed: str) -> None:
    """A delay of more than a day is a slip of the finger; so is a negative one."""
    with pytest.raises(click.BadParameter):
        DELAY.convert(typed, None, None)


def test_no_time_at_all_is_a_delay_but_nothing_to_keep_for() -> None:
    """`--delay 0` looks again at once; `--keep 0` would lose every before-image."""
    assert DELAY.convert("0", None, None) == timedelta(0)
    with pytest.raises(click.BadParameter, match="no time at all"):
        KEEP.convert("0s", None, None)


@given(st.integers(1, round(DURATION_MAX.total_seconds())))
def test_a_duration_reads_back_as_it_is_written(seconds: int) -> None:
    duration = timedelta(seconds=seconds)

    assert DELAY.convert(duration_text(duration), None, None) == duration


def test_what_is_a_duration_already_stays_one() -> None:
    assert KEEP.convert(KEEP_MAX, None, None) == KEEP_MAX
    assert Duration().get_metavar(click.Option(["--x"]), click.Context(click.Command("x"))) == "DURATION"


@given(st.lists(st.sampled_from([one for one in Verdict if one in MENDABLE_ON_REQUEST]), min_size=1))
def test_verdicts_are_named_in_any_case_and_order(wanted: list[Verdict]) -> None:
    """With commas, in small letters, with a dash for the underscore."""
    typed = " , ".join(one.value.lower().replace("_", "-") for one in wanted)

    assert VERDICTS.convert(typed, None, None) == frozenset(wanted)
    assert VERDICTS.convert(frozenset(wanted), None, None) == frozenset(wanted)


@pytest.mark.parametrize("verdict", [one for one in Verdict if one not in MENDABLE_ON_REQUEST])
def test_what_a_repair_cannot_mend_cannot_be_asked_for(verdict: Verdict) -> None:
    with pytest.raises(click.BadParameter) as refused:
        VERDICTS.convert(f"PROJECT,{verdict.value}", None, None)

    assert all(one.value in refused.value.message for one in MENDABLE)


@pytest.mark.parametrize(
    ("kind", "wrong", "said"),
    [
        (PORT, "0", "0 is not a port. Ports lie"),
        (PORT, "-1", "'-1' is not a port"),
        (PORT, "70000", "70000 is not a port. Ports lie"),
        (PORT, "x", "'x' is not a port"),
        (KEYSPACE, "a-b", "'a-b' is not a valid keyspace name. A name of a keyspace holds"),
    ],
)
def test_ports_and_keyspaces_are_checked_before_anything_is_dialled(
    kind: click.ParamType[object], wrong: str, said: str
) -> None:
    """In one line: what is wrong, and as a sentence of its own what to write."""
    with pytest.raises(click.BadParameter) as refused:
        kind.convert(wrong, None, None)

    assert refused.value.message.startswith(said)
    assert "\n" not in refused.value.message
