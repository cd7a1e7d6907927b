"""Rows, suspects and outcomes come back from text exactly as they went."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.errors import MailmendError
from mailmend.model.operations import Seen
from mailmend.model.projections.findings import Finding, Suspect
from mailmend.model.projections.verdicts import DETECTED, Verdict
from mailmend.model.values import CqlDuration, FarDate, FineTime, FrozenMap
from mailmend.repair.ledger.before_images import (
    image_digest,
    image_from,
    image_text,
    key_from,
    key_text,
    packed,
    suspect_from,
    suspect_text,
    unpacked,
)

plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(),
    st.binary(),
    st.uuids(),
    st.datetimes(timezones=st.just(UTC)),
    st.dates(),
    st.times(),
    st.decimals(allow_nan=False, allow_infinity=False),
)
values = st.one_of(
    plain,
    st.frozensets(st.text()),
    st.frozensets(st.integers()),
    st.lists(plain).map(tuple),
    st.dictionaries(st.text(), plain).map(FrozenMap),
)
rows = st.dictionaries(st.text(min_size=1), values, max_size=5)
seens = st.builds(Seen, rows, st.dictionaries(st.text(), st.integers(-(2**63), 2**63 - 1), max_size=3))
suspects = st.builds(
    Suspect,
    projection=st.text(),
    key=st.lists(plain, max_size=3).map(tuple),
    verdict=st.sampled_from(DETECTED),
    truth_keys=st.lists(st.lists(plain, min_size=1, max_size=3).map(tuple), max_size=2).map(tuple),
    wanted=st.dictionaries(st.text(), st.one_of(st.integers(), st.frozensets(st.text()))),
)


@given(values)
def test_every_value_comes_back_as_it_was(value: Any) -> None:
    back = unpacked(packed(value))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
        date(2026, 1, 2),
        time(3, 4),
        Decimal("1.50"),
        ({"a": (b"x",)},),
        FarDate(-800_000),
        FineTime(1),
        CqlDuration(1, -2, 3),
    ],
)
def test_rare_values_come_back_too(value: Any) -> None:
    assert unpacked(packed(value)) == value


def test_what_has_no_form_is_refused_rather_than_lost() -> None:
    with pytest.raises(MailmendError, match="complex"):
        packed(1j)


@given(st.lists(plain, max_size=3).map(tuple), st.lists(plain, max_size=3).map(tuple))
def test_key_lines_are_equal_exactly_for_equal_keys(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    assert key_from(key_text(one)) == one
    if key_text(one) == key_text(other):
        assert one == other


def test_sets_have_one_line_whatever_their_order() -> None:
    assert key_text((frozenset("abc"),)) == key_text((frozenset("cba"),))


@given(suspects)
def test_a_suspect_fits_on_one_line_and_comes_back(suspect: Suspect) -> None:
    line = suspect_text(suspect)
    assert "\n" not in line
    assert suspect_from(line) == suspect


@given(suspects, st.sampled_from(Verdict), st.lists(seens, max_size=2).map(tuple), st.none() | seens, st.booleans())
def test_an_image_keeps_what_was_seen_and_not_what_became_of_it(
    suspect: Suspect, verdict: Verdict, truths: tuple[Seen, ...], projected: Seen | None, last: bool
) -> None:
    outcome = Finding(suspect, verdict, Verdict.FIXED, truths, projected, last_trace=last, error="x")
    back = image_from(image_text(outcome))
    assert back == Finding(suspect, verdict, None, truths, projected, last_trace=last)
    assert image_from(image_text(outcome), result=Verdict.FIXED, error="x") == outcome
    assert image_digest(back) == image_digest(outcome)  # wherever an executor has seen it


def test_truths_of_one_uuid_are_kept_as_text_as_earlier_versions_wrote_them() -> None:
    """A ledger of before lists ids; a key of another shape is a list of its values."""
    one, other = UUID(int=1), ("t", 5)
    suspect = Suspect("byBox", (5,), Verdict.PROJECT, ((one,), other))
    kept = json.loads(suspect_text(suspect))

    assert kept["truth_ids"] == [str(one), ["t", 5]]
    assert suspect_from(json.dumps(kept | {"truth_ids": [str(one)]})).truth_keys == ((one,),)
