"""Where the tables and keys of a TOML text are."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.model.projections.toml_values import toml_key, toml_text
from mailmend.model.texts import place_of
from mailmend.model.toml_places import TomlPath, toml_offsets

TEXT = """\
# first
version = 1
[truth.'"Users"'.mirror.by_email] # behind
renamed = { owner = "user_id", "a.b" = 'c' } # { x = 1 }
left_out = [ # [
    "note", 'a#b',
    [1, {deep = 1979-05-27 07:32:00}],
]
a.b . "c" = \"\"\"x = 1
[no]\\\"\"\"\"\"\"

[[rows]]
one = 0x1f
[rows.sub]
two = '''[[no]]'''
[[rows]]
one = {}
"""


@pytest.mark.parametrize(
    ("path", "line", "column"),
    [
        (("version",), 2, 1),
        (("truth",), 3, 2),
        (("truth", '"Users"'), 3, 8),
        (("truth", '"Users"', "mirror", "by_email"), 3, 25),
        (("truth", '"Users"', "mirror", "by_email", "renamed", "a.b"), 4, 32),
        (("truth", '"Users"', "mirror", "by_email", "left_out", 1), 6, 13),
        (("truth", '"Users"', "mirror", "by_email", "left_out", 2, 1, "deep"), 7, 10),
        (("truth", '"Users"', "mirror", "by_email", "a", "b", "c"), 9, 7),
        (("rows", 0, "one"), 13, 1),
        (("rows", 0, "sub", "two"), 15, 1),
        (("rows", 1, "one"), 17, 1),
    ],
)
def test_the_place_of_a_path(path: TomlPath, line: int, column: int) -> None:
    place = place_of(TEXT, toml_offsets(TEXT)[path])
    assert (place.line, place.column) == (line, column)


def paths_of(value: Any, path: TomlPath = ()) -> list[TomlPath]:
    """Every path to a part of a document."""
    found = [path]
    if isinstance(value, dict):
        for name, part in value.items():
            found += paths_of(part, (*path, name))
    if isinstance(value, list):
        for number, part in enumerate(value):
            found += paths_of(part, (*path, number))
    return found


def test_every_part_of_a_document_has_a_place() -> None:
    assert set(toml_offsets(TEXT)) == set(paths_of(tomllib.loads(TEXT)))


NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=6)
SCALARS = st.one_of(st.integers(0, 99), st.booleans(), NAMES, st.dates(), st.floats(0, 9, allow_nan=False))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)


def written(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_key(name)} = {written(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    if isinstance(value, str):
        return toml_text(value)
    return str(value).lower()


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_a_key_is_at_its_place(document: dict[str, Any]) -> None:
    # Given
    text = "".join(f"{toml_key(name)} = {written(value)}\n" for name, value in document.items())
    assert tomllib.loads(text) == document

    # When
    offsets = toml_offsets(text)

    # Then
    assert set(offsets) == set(paths_of(document))
    for path, offset in offsets.items():
        if path and isinstance(path[-1], str):
            assert text.startswith(toml_key(path[-1]), offset)
