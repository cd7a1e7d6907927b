"""Patterns of people and of the network are matched in linear time, or refused by name."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mailmend.mailqueue.rules.mails import EVERYTHING
from mailmend.model.errors import WrongUse
from mailmend.model.matching import (
    EXPRESSION_LENGTH_MAX,
    EXPRESSION_SEES_MAX,
    WILDCARD_LENGTH_MAX,
    check_expression,
    check_wildcard,
    group_names,
    groups_found,
    is_found,
    text_fits,
)


def fits_by_definition(wanted: str, found: str) -> bool:
    """A star is any beginning of what is left; every other character is itself."""
    rests = {found}
    for mark in wanted:
        if mark == "*":
            rests = {rest[at:] for rest in rests for at in range(len(rest) + 1)}
        else:
            rests = {rest[1:] for rest in rests if rest.startswith(mark)}
    return "" in rests


@given(st.text("ab*", max_size=8), st.text("ab*", max_size=10))
@example("a*a", "a")
@example("*a*b*", "ab")
@example("a**", "a")
def test_a_text_with_stars_fits_what_the_definition_says(wanted: str, found: str) -> None:
    assert text_fits(wanted, found) == fits_by_definition(wanted, found)


@given(st.text(max_size=6), st.text(max_size=6))
def test_without_a_star_a_text_fits_itself_alone(wanted: str, found: str) -> None:
    wanted = wanted.replace("*", "")

    assert text_fits(wanted, wanted)
    assert text_fits(wanted, found) == (wanted == found)


def test_case_counts_unless_any_is_meant() -> None:
    assert text_fits("ANN@*.Example.ORG", "ann@mx.example.org", any_case=True)
    assert not text_fits("ANN@*", "ann@example.org")
    assert text_fits(None, "anything")


def test_a_question_mark_is_itself() -> None:
    """It may be part of an address."""
    assert text_fits("what?@*", "what?@example.org")
    assert not text_fits("wha?@*", "what@example.org")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("*" * 100 + "b", "a" * 100_000),
        ("*a" * 100 + "*b", "a" * 100_000),
        ("a*" * 500, "a" * 499),
        ("*" * WILDCARD_LENGTH_MAX, ""),
    ],
)
def test_any_number_of_stars_has_an_answer(wanted: str, found: str) -> None:
    """A matcher that goes back would not end: there are more than 2**100 ways to share out these texts."""
    assert text_fits(wanted, found) == (wanted.strip("*") == "")


@pytest.mark.parametrize("field", ["sender", "recipient", "name", "state"])
def test_a_text_that_is_too_long_is_refused_before_any_mail_is_looked_at(field: str) -> None:
    too_long: dict[str, Any] = {field: "*" * (WILDCARD_LENGTH_MAX + 1)}

    with pytest.raises(WrongUse, match="1,001 characters is too long"):
        replace(EVERYTHING, **too_long)


@pytest.mark.parametrize(
    "expression",
    [
        "^(([a-z0-9]+)[-_.]?)+$",
        "^(a+)+$",
        "^(a|aa)+$",
        "^(a|b*){2,}$",
        "^(a*)*$",
        "^(?:.*a){20}$",
        "^" + "a?" * 26 + "a" * 26 + "$",
        r"^(\w+\s?)*$",
    ],
)
def test_an_expression_that_others_take_for_ever_with_has_an_answer(expression: str) -> None:
    """An engine that goes back doubles its time with every letter: no test would end."""
    assert not is_found(expression, "a" * 400 + "!")


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        (r"(a)\1", r"a back-reference, \\1"),
        (r"(?P<n>a)(?P=n)", "a back-reference"),
        ("a(?=b)", "a look-ahead"),
        ("a(?!b)", "a negative look-ahead"),
        ("(?<=a)b", "a look-behind"),
        ("(?<!a)b", "a negative look-behind"),
        ("(?>a+)b", "an atomic group"),
        ("a++b", r"a possessive repetition, \+\+"),
        ("(a)?(?(1)b|c)", "a conditional group"),
        ("a(?#word)", "a comment"),
        ("(?x) a", "a verbose expression"),
        (r"a\Z", r"the escape \\Z"),
    ],
)
def test_what_cannot_be_had_linearly_is_refused_by_name(expression: str, name: str) -> None:
    with pytest.raises(WrongUse, match=f"has {name}, which cannot be matched in linear time"):
        check_expression(expression)


@pytest.mark.parametrize("expression", ["(", "a)", "[a", "*", "a**", "\\", "a\0", "\ud800"])
def test_what_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(WrongUse):
        check_expression(expression)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("a" * (EXPRESSION_LENGTH_MAX + 1), "1,001 characters is too long"),
        ("a{1001}", "repeats more often than 1,000 times"),
        (r"(?:\pL\pN){900}", "is too large"),
        (r"(\w|.){0,1000}!$", "is too large"),
    ],
)
def test_the_size_of_an_expression_is_bounded(expression: str, why: str) -> None:
    with pytest.raises(WrongUse, match=why):
        check_expression(expression)


SYNTAX = "See docs/policy-file.md for the syntax that is taken."
NOT_LINEAR = "which cannot be matched in linear time"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (r"(a)\1", (rf"/(a)\1/ has a back-reference, \1, {NOT_LINEAR}" f"\nWrite the expression without it. {SYNTAX}")),
        ("a(?=b)", f"/a(?=b)/ has a look-ahead, {NOT_LINEAR}\nWrite the expression without it. {SYNTAX}"),
        ("a++b", f"/a++b/ has a possessive repetition, ++, {NOT_LINEAR}\nWrite +: no expression goes back here."),
        ("(?>a)b", f"/(?>a)b/ has an atomic group, {NOT_LINEAR}\nWrite (?:...): no expression goes back here."),
        (r"a\Z", (rf"/a\Z/ has the escape \Z, {NOT_LINEAR}" "\nWrite \\z, or $, for the end of the value.")),
        ("(?x)", f"/(?x)/ has a verbose expression, {NOT_LINEAR}\nWrite it without blanks and comments."),
        ("(", f"/(/ is no regular expression: missing ): (\n{SYNTAX}"),
        ("a{1001}", f"/a{{1001}}/ repeats more often than 1,000 times: {{1001}}\n{SYNTAX}"),
        (r"(?:\pL\pN){900}", "/(?:\\pL\\pN){900}/ is too large\nRepeat less, or write *.domain or a list of values."),
        (
            "a" * (EXPRESSION_LENGTH_MAX + 1),
            "an expression of 1,001 characters is too long\nWrite at most 1,000, *.domain, or a list of values.",
        ),
        ("a\0", "an expression has a character that no value has"),
    ],
)
def test_a_refusal_says_what_is_wrong_with_an_expression_and_what_to_write(expression: str, message: str) -> None:
    with pytest.raises(WrongUse) as refused:
        check_expression(expression)

    assert str(refused.value) == message


def test_what_is_just_short_enough_is_taken() -> None:
    wildcard, expression = "a" * WILDCARD_LENGTH_MAX, "a" * EXPRESSION_LENGTH_MAX

    assert check_wildcard(wildcard) == wildcard
    assert check_expression(expression) == expression
    with pytest.raises(WrongUse) as refused:
        check_wildcard(f"{wildcard}a")
    assert refused.value.mend == "Write at most 1,000; * stands for any text."


def test_groups_have_their_number_and_their_name() -> None:
    assert groups_found("^(?P<job>[a-z]+)-(x)?", "job-1") == {"1": "job", "2": "", "job": "job"}
    assert groups_found("^(a)", "b") is None


def test_a_name_of_digits_names_its_own_group_and_leaves_the_texts_of_the_other_names_alone() -> None:
    assert groups_found("^(?P<2>a)(?P<job>b)", "ab") == {"1": "a", "2": "a", "job": "b"}
    assert group_names("^(?P<job>[a-z]+)-(x)?") == (2, frozenset({"job"}))


def test_letters_beyond_ascii_are_letters_of_a_text() -> None:
    assert groups_found("^gr(.)n$", "grün") == {"1": "ü"}
    assert is_found(r"^\pL+$", "grün")


def test_a_value_that_is_no_text_is_matched_all_the_same() -> None:
    """Half a surrogate pair came from a client once, and ended the mail."""
    assert is_found("^a.b$", "a\ud800b")
    assert groups_found("(.)", "\udc80") == {"1": "?"}


def test_an_expression_sees_the_beginning_of_a_long_value() -> None:
    assert is_found("b$", "a" * (EXPRESSION_SEES_MAX - 1) + "bc")
    assert not is_found("c", "a" * EXPRESSION_SEES_MAX + "c")
