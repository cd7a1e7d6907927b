"""Fields that others wrote: taken as what they are, or refused by name, whatever stands in them."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.rules.james_json import (
    filled_text_of,
    in_millis,
    instant_of,
    mapping_of,
    object_in,
    optional,
    text_of,
    texts_of,
    uuid_of,
    whole_number_of,
    whole_seconds_of,
)
from mailmend.mailqueue.rules.slices import EPOCH
from mailmend.model.errors import BadPayload

ID = "912bac27-58d8-4e7e-a603-760fc1ab303f"
TAKERS = (filled_text_of, instant_of, mapping_of, text_of, texts_of, uuid_of)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.decimals() | st.text() | st.uuids() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def said_of(take: Callable[[], Any], *, else_: str) -> str:
    """What a refusal says; anything but a refusal comes through."""
    try:
        take()
    except BadPayload as error:
        return error.what
    return else_


@given(ANYTHING, st.sampled_from(TAKERS))
def test_any_value_is_taken_or_refused_by_name(value: Any, take: Any) -> None:
    """There is no third ending."""
    assert "field" in said_of(lambda: take(value, "field"), else_="field")


@given(st.binary(max_size=200) | st.text().map(str.encode))
def test_any_bytes_are_an_object_or_refused(text: bytes) -> None:
    """Bytes that are no text at all among them."""
    assert "the event" in said_of(lambda: object_in(text, "the event"), else_="the event")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        '"text"',
        "{",
        "{}{}",
        "[" * 200_000,
        '{"a":' * 200_000,
        '{"a": NaN}',
        '{"a": -Infinity}',
        f'{{"a": {"9" * 10_000}}}',
        '{"a": 1e99999999999999999999}',
        b"\xff\xfe\xfd",
        b"\x80",
    ],
    ids=lambda text: str(text[:12]),
)
def test_what_is_no_json_object_is_refused_however_absurd(text: str | bytes) -> None:
    """Depth, digits and exponents that would take a reader down are refused like any other nonsense."""
    with pytest.raises(BadPayload, match="the body is not"):
        object_in(text, "the body")


def test_fractions_stay_exact() -> None:
    """A float would lose the last digits of an instant."""
    assert object_in('{"at":1790000002.978000001}', "it")["at"] == Decimal("1790000002.978000001")


def test_the_contents_of_a_field_are_never_reported() -> None:
    """They may be somebody's address."""
    with pytest.raises(BadPayload) as refused:
        text_of(["secret@one.test"], "sender")

    assert "sender" in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("take", "value", "why"),
    [
        (text_of, None, "x is missing"),
        (text_of, 5, "x is not a text"),
        (text_of, "\ud800", "x holds half a surrogate pair"),
        (filled_text_of, "", "x is empty"),
        (texts_of, None, "x is missing"),
        (texts_of, "ab", "x is not a list"),
        (texts_of, ["a", None], r"x\[1\] is missing"),
        (mapping_of, [], "x is not an object"),
        (mapping_of, {"\ud800": 1}, "a name in x holds half"),
        (uuid_of, None, "x is missing"),
        (uuid_of, f"{{{ID}}}", "x is not a UUID"),
        (uuid_of, ID.replace("-", ""), "x is not a UUID"),
        (instant_of, True, "x is not an instant"),
        (instant_of, "soon", "x is not an instant"),
        (instant_of, "9" * 20, "x is out of the years"),
        (instant_of, "9" * 21, "x is not an instant"),
        (instant_of, "2026-09-21T14:13:20", "x is an instant without its offset"),
        (instant_of, "0001-01-01T00:00:00+23:59", "x is not an instant"),
        (instant_of, 253_402_300_800, "x is out of the years"),
        (instant_of, Decimal("1e999999"), "x is out of the years"),
        (instant_of, Decimal("nan"), "x is not an instant"),
        (instant_of, 10**400, "x is out of the years"),
        (instant_of, -62_135_596_801, "x is out of the years"),
    ],
)
def test_a_refusal_says_what_is_wrong(take: Any, value: Any, why: str) -> None:
    """Missing, of another kind, or not to be kept."""
    with pytest.raises(BadPayload, match=f"^{why}"):
        take(value, "x")


@pytest.mark.parametrize(
    ("value", "at"),
    [
        (0, EPOCH),
        (1_473_344_752, datetime(2016, 9, 8, 14, 25, 52, tzinfo=UTC)),
        (Decimal("1790000002.978000000"), datetime(2026, 9, 21, 14, 13, 22, 978_000, tzinfo=UTC)),
        (Decimal("1790000002.978999999"), datetime(2026, 9, 21, 14, 13, 22, 978_000, tzinfo=UTC)),
        (Decimal("-0.5005"), EPOCH - timedelta(milliseconds=501)),
        ("1790000002.978999", datetime(2026, 9, 21, 14, 13, 22, 978_000, tzinfo=UTC)),
        ("-1", EPOCH - timedelta(seconds=1)),
        ("2026-09-21T14:13:22.978123Z", datetime(2026, 9, 21, 14, 13, 22, 978_000, tzinfo=UTC)),
        ("2026-09-21T16:13:22+02:00", datetime(2026, 9, 21, 14, 13, 22, tzinfo=UTC)),
        (
            datetime(2026, 9, 21, 14, 13, 22, 978_999, tzinfo=UTC),
            datetime(2026, 9, 21, 14, 13, 22, 978_000, tzinfo=UTC),
        ),
        (Decimal("253402300798." + "9" * 60), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ],
)
def test_instants_are_cut_to_milliseconds(value: Any, at: datetime) -> None:
    """As James's dates are: downwards, before 1970 too."""
    assert instant_of(value, "x") == at


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5))])))
def test_cutting_twice_cuts_once(at: datetime) -> None:
    """Nothing is left to cut, and less than a millisecond was lost."""
    cut = in_millis(at)

    assert in_millis(cut) == cut
    assert timedelta(0) <= at - cut < timedelta(milliseconds=1)


def test_uuids_are_taken_as_text_and_as_what_they_are() -> None:
    """In messages they are texts, in rows they are not; capitals are fine."""
    assert uuid_of(ID, "x") == uuid_of(UUID(ID), "x") == uuid_of(ID.upper(), "x") == UUID(ID)


@given(st.integers(), st.integers(0, 50), st.integers(1, 50))
def test_whole_numbers_are_held_to_their_range(value: int, start: int, width: int) -> None:
    """The ends included, as the message says."""
    allowed = range(start, start + width)
    if value in allowed:
        assert whole_number_of(value, "x", allowed) == value
    else:
        with pytest.raises(BadPayload, match=rf"x is not between {start} and {start + width - 1}"):
            whole_number_of(value, "x", allowed)


@pytest.mark.parametrize("value", [True, "5", Decimal(5), None, 5.0])
def test_what_is_no_whole_number_is_refused(value: Any) -> None:
    """A flag is none, although Python counts with it."""
    with pytest.raises(BadPayload, match=r"x is (not a whole number|missing)"):
        whole_number_of(value, "x", range(10))


@pytest.mark.parametrize("value", [60, Decimal("60.000000000"), Decimal(60)])
def test_lengths_of_time_are_whole_seconds(value: Any) -> None:
    """However they are written."""
    assert whole_seconds_of(value, "x", range(1, 100)) == timedelta(minutes=1)


@pytest.mark.parametrize("value", [Decimal("60.5"), Decimal("1e999999"), 0, 100, "PT1H", None])
def test_other_lengths_of_time_are_refused(value: Any) -> None:
    """Fractions, and what is out of the range."""
    with pytest.raises(BadPayload, match=r"^x is"):
        whole_seconds_of(value, "x", range(1, 100))


def test_a_fraction_is_not_looked_for_in_the_whole_range() -> None:
    """A range holds whole numbers only: asked for another, Python would compare one after the other."""
    with pytest.raises(BadPayload, match="x is not a whole number"):
        whole_seconds_of(Decimal("60.5"), "x", range(1, 2**60))


def test_nothing_there_is_the_default_and_is_not_looked_at() -> None:
    """But what is there is held to its kind."""
    assert optional(text_of, None, "x", "root") == "root"
    assert optional(text_of, "", "x", "root") == ""
    with pytest.raises(BadPayload, match="x is not a text"):
        optional(text_of, json.loads("1"), "x", "root")
