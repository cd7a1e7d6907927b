"""JSON as Jackson writes it: what Python's own reads back, in the form that James gives it."""

import json
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.mailqueue.rules.james_json import json_bytes, json_text, seconds_of

TEXTS = st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=20,
)


@given(VALUES)
def test_whatever_is_written_reads_back(value: Any) -> None:
    """Any JSON reader sees the value."""
    assert json.loads(json_text(value)) == value


@given(VALUES)
def test_there_are_no_spaces_and_no_control_characters_in_it(value: Any) -> None:
    """But for those inside texts it is as Python's own, most compact form has it."""
    python = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert json_text(value).lower() == python.lower()
    assert not any(ord(character) < 32 for character in json_text(value))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ('a"b\\c', r'"a\"b\\c"'),
        ("\b\t\n\f\r", r'"\b\t\n\f\r"'),
        ("\x00\x0b\x1f", r'"\u0000\u000B\u001F"'),
        ("/\x7f\u2028é😀", '"/\x7f\u2028é😀"'),
    ],
)
def test_texts_are_escaped_as_jackson_does(text: str, written: str) -> None:
    """Short forms where there are any, capital digits elsewhere; slashes and what is not ASCII stay."""
    assert json_text(text) == written


BYTES_OF_JACKSON = [
    ("😀", r'"\uD83D\uDE00"'),
    ("é\u2028\ufeff\uffff", '"é\u2028\ufeff\uffff"'),
    ("\U0010ffff\x1f\\", r'"\uDBFF\uDFFF\u001F\\"'),
    ({"𐀀": ["\\😀"]}, r'{"\uD800\uDC00":["\\\uD83D\uDE00"]}'),
]
"""As Jackson 2.15.2 writes them with writeValueAsBytes."""


@pytest.mark.parametrize(("value", "written"), BYTES_OF_JACKSON)
def test_bytes_hold_what_is_beyond_16_bits_in_halves(value: Any, written: str) -> None:
    """Jackson escapes both halves there, and nowhere else."""
    assert json_bytes(value) == written.encode()


@given(VALUES)
def test_bytes_and_text_say_the_same(value: Any) -> None:
    """To any reader."""
    assert json.loads(json_bytes(value)) == json.loads(json_text(value)) == value


def test_half_a_surrogate_pair_has_no_bytes() -> None:
    """Jackson would write it; no store could keep it."""
    with pytest.raises(UnicodeEncodeError):
        json_bytes("\ud800")


@pytest.mark.parametrize(
    ("length", "written"),
    [
        (timedelta(hours=1), "3600.000000000"),
        (timedelta(seconds=1_473_344_752), "1473344752.000000000"),
        (timedelta(seconds=1_790_000_002, milliseconds=978), "1790000002.978000000"),
        (timedelta(milliseconds=1), "0.001000000"),
        (timedelta(microseconds=1), "0.000001000"),
        (timedelta(milliseconds=-500), "-0.500000000"),
        (timedelta(0), "0.0"),
    ],
)
def test_seconds_have_nine_digits(length: timedelta, written: str) -> None:
    """All but 0, which Jackson writes with one."""
    assert json_text(seconds_of(length)) == written


@given(st.timedeltas())
def test_seconds_are_exact(length: timedelta) -> None:
    """No float comes near them."""
    assert seconds_of(length) * 1_000_000 == length // timedelta(microseconds=1)


def test_all_of_latin_1_is_as_jackson_writes_it() -> None:
    """What Jackson 2.15.2 makes of the first 256 characters."""
    controls = (
        r"\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\b\t\n\u000B\f\r\u000E\u000F"
        r"\u0010\u0011\u0012\u0013\u0014\u0015\u0016\u0017\u0018\u0019\u001A\u001B\u001C\u001D\u001E\u001F"
    )
    printable = "".join(map(chr, range(32, 256)))
    escaped = printable.replace("\\", "\\\\").replace('"', '\\"')

    assert json_bytes("".join(map(chr, range(256)))).decode() == f'"{controls}{escaped}"'


@pytest.mark.parametrize("value", [1.5, {1, 2}, b"bytes", object()])
def test_what_james_has_no_form_for_is_a_mistake_of_the_program(value: object) -> None:
    """Floats among it: exact numbers are Decimals."""
    with pytest.raises(TypeError, match="no JSON of James's"):
        json_text(value)


def test_decimals_are_written_as_they_are() -> None:
    """With their zeros."""
    assert json_text([Decimal("1.50"), 2]) == "[1.50,2]"
