"""The ratchet on hard words sees each sentence that people read, refuses one more, and never raises its table."""

import pytest

from tests.plain_words import WORDS, Text, compare, lowered, places_in, texts_of_module, texts_of_page


def words_of_module(source: str, *exceptions: str) -> list[tuple[int, str]]:
    texts = texts_of_module(source)
    return [(place.line, place.word) for text in texts for place in places_in(text, exceptions)]


def words_of_page(page: str, text: str) -> list[tuple[int, str]]:
    return [(place.line, place.word) for found in texts_of_page(page, text) for place in places_in(found, ())]


@pytest.mark.parametrize("word", WORDS)
def test_each_word_is_found_in_any_case(word: str) -> None:
    text = Text(1, f"The server, {word.capitalize()}, waits.")

    assert any(place.word == word.capitalize() for place in places_in(text, ()))


@pytest.mark.parametrize(
    ("source", "line", "word"),
    [
        ('"""A table.\n\nNobody reads it.\n"""\n', 3, "Nobody"),
        ('message = "a rate of no deliveries is none"\n', 1, "is none"),
        ('message = (\n    "a row "\n    f"and {len(those)} of these"\n)\n', 2, "of these"),
        ('message = f"{sum(1 for row in rows)} rows, likewise"\n', 1, "likewise"),
        ('help = "the rows\\nstand by\\nthemselves"\n', 2, "by themselves"),
    ],
)
def test_a_planted_sentence_of_a_module_is_found(source: str, line: int, word: str) -> None:
    assert words_of_module(source) == [(line, word)]


def test_code_of_a_module_is_not_read() -> None:
    source = (
        'besides = nobody["somebody"]\nif besides is None:\n    """A value that is None."""\n# Nobody reads comments.\n'
    )

    assert words_of_module(source) == []


def test_a_page_is_read_without_its_code() -> None:
    page = "Text.\n\n```console\n$ nobody\nlikewise\n```\n\n`somebody` reads:\n- whoever comes\n"

    assert words_of_page("page.md", page) == [(9, "whoever")]


def test_only_the_unreleased_part_of_the_changelog_is_read() -> None:
    page = "# Changelog\n\n## Unreleased\n- likewise\n\n## 1.0.0\n- nobody\n"

    assert words_of_page("CHANGELOG.md", page) == [(4, "likewise")]


def test_an_exception_allows_its_words_and_no_others() -> None:
    source = 'message = "the server said: user nobody; nobody answers"\n'

    assert words_of_module(source, "user nobody") == [(1, "nobody")]


def test_one_more_is_refused_with_the_command_that_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert not compare({"docs": 2, "cql": 1}, {"docs": 3, "cql": 1})
    assert capsys.readouterr().out == (
        "docs: hard words: 2 allowed, 3 found\n  the command that lists them: python -m tests.plain_words --list docs\n"
    )


def test_fewer_than_allowed_pass_with_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare({"docs": 2}, {"docs": 1})
    assert "python -m tests.plain_words --write" in capsys.readouterr().out


def test_the_table_is_lowered_and_never_raised() -> None:
    def text(docs: int) -> str:
        table = f"[tool.plain-words]\ndocs = {docs}\ncql = 3\nexceptions = []\n"
        return f"[tool.other]\ndocs = 5\n\n{table}\n[tool.last]\ndocs = 7\n"

    assert lowered(text(9), {"docs": 4, "cql": 5}) == text(4)
