"""Places in a text, as an editor counts them; foreign words as notes that every store can keep."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.texts import (
    Place,
    cut,
    escaped_json,
    names_instead,
    noted,
    place_of,
    printable,
    similar_name,
    surely_meant,
)

TEXT = "one\r\ntwo three\n\nfour"


@pytest.mark.parametrize(
    ("offset", "place"),
    [
        (0, Place(1, 1, "one")),
        (5, Place(2, 1, "two three")),
        (9, Place(2, 5, "two three")),
        (15, Place(3, 1, "")),
        (len(TEXT), Place(4, 5, "four")),
    ],
)
def test_a_place_is_reported_by_line_and_column(offset: int, place: Place) -> None:
    """Counted from 1, with the whole line; the end is a place too."""
    assert place_of(TEXT, offset) == place


def test_the_caret_stands_under_the_place() -> None:
    assert Place(1, 3, "a\tbc").pointed == "a bc\n  ^"


def test_of_a_very_long_line_only_what_is_near_is_shown() -> None:
    shown, caret = Place(1, 501, "a" * 500 + "b" + "c" * 500).pointed.split("\n")
    assert len(shown) == 100
    assert shown[caret.index("^")] == "b"


@given(st.text(alphabet="ab\n"), st.data())
def test_line_and_column_lead_back_to_the_offset(text: str, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, len(text)))
    place = place_of(text, offset)
    lines = text.split("\n")
    assert sum(len(line) + 1 for line in lines[: place.line - 1]) + place.column - 1 == offset
    assert lines[place.line - 1] == place.text


@pytest.mark.parametrize(
    ("said", "note"),
    [
        (b"Empf\xe4nger: bitte sp\xe4ter", "Empf\ufffdnger: bitte sp\ufffdter"),
        (b"\xd3\xc3\xbb\xa7", b"\xd3\xc3\xbb\xa7".decode("utf-8", "replace")),
        ("Empf\udce4nger", "Empf\ufffdnger"),
        ("a\x1b[31m\r\nb\x00", "a [31m  b "),
        ("\ud800 \U0001f600", "\ufffd \U0001f600"),
        ("x" * 3_000, "x" * 2_045 + "..."),
        ("\u20ac" * 1_000, "\u20ac" * 681 + "..."),
    ],
)
def test_foreign_words_become_a_note(said: str | bytes, note: str) -> None:
    assert noted(said) == note


@given(st.text() | st.binary() | st.text(st.characters(categories=["Cs", "Cc", "Lo"])), st.integers(0, 40))
def test_every_note_is_one_line_that_can_be_written_and_is_not_too_long(said: str | bytes, bytes_max: int) -> None:
    note = noted(said, bytes_max)
    assert len(note.encode()) <= bytes_max
    assert note.isprintable()
    assert noted(note, bytes_max) == note


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_text_that_fits_is_not_changed_by_a_cut(text: str) -> None:
    assert cut(text, 4 * len(text)) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", "a\ufffd[31mb"),
        ("a\x9b2Jb", "a\ufffd2Jb"),
        ("a\rb\x08c\x7f", "a\ufffdb\ufffdc\ufffd"),
        ("a\u202egnp.exe", "a\ufffdgnp.exe"),
        ("half \ud800", "half \ufffd"),
        ("two\n\tlines, \u00e9\U0001f600", "two\n\tlines, \u00e9\U0001f600"),
    ],
)
def test_no_character_steers_a_terminal(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text() | st.dictionaries(st.text(), st.text()))
def test_json_with_escaped_characters_means_the_same(document: object) -> None:
    line = escaped_json(json.dumps(document, ensure_ascii=False))

    assert json.loads(line) == document
    assert line == printable(line)


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("polices", ["policies", "quotas"], "policies"),
        ("RATE", ["rate", "stop"], "rate"),
        ("Vip", ["VIP"], "VIP"),
        ("colour", ["rate", "stop"], ""),
        ("rate", [], ""),
        ("rat" * 27, ["rat" * 27 + "e"], ""),
        ("rat", [f"rate{number}" for number in range(1_001)], ""),
    ],
)
def test_a_misspelt_name_means_the_most_similar_one(name: str, known: list[str], meant: str) -> None:
    assert similar_name(name, known) == meant


@pytest.mark.parametrize(
    ("name", "meant"),
    [("localpi", "localip"), ("remote", ""), ("RemoteMX", "remotemx"), ("rem", ""), ("than", "then")],
)
def test_a_name_is_surely_meant_where_it_alone_is_much_like_the_misspelt_one(name: str, meant: str) -> None:
    assert surely_meant(name, ["localip", "remoteip", "remotemx", "then", "if"]) == meant


def test_names_instead_of_a_misspelt_one_are_the_similar_one_and_then_all() -> None:
    assert names_instead("vpi", ["old", "vip"], mark="@") == "Did you mean '@vip'? There are: old, vip."
    assert names_instead("colour", ["rate"], "It has") == "It has: rate."
    assert names_instead("a", []) == "There are: none."


def test_of_many_names_fifty_are_listed() -> None:
    names = [f"n{number:04}" for number in range(1_234)]

    said = names_instead("x", names)

    assert said.startswith("There are: n0000, n0001, ")
    assert said.endswith(", n0049 and 1,184 more.")
