"""What may stand, with a reason: in settings and in comments; without a reason nothing may."""

from typing import Any

import pytest

from mailmend.cql.language.parser import parse
from mailmend.cql.lint_sources import statements_of
from mailmend.cql.schema.lint.rules import (
    Ignore,
    lint,
    notes_among,
    parse_ignore,
    rules_named,
    unused_among,
    with_reasons,
)
from mailmend.model.errors import WrongUse
from tests.support.linting import subject_of, table, windows

REASON = "it may"


def reasoned(text: str, *ignores: Ignore) -> list[tuple[str, str, str | None, bool]]:
    """(rule, table, reason, in the file) of what is found."""
    subject = subject_of(text)
    found = with_reasons(lint(subject), (*notes_among(subject.statements), *ignores))
    return [(one.rule.id, one.table, one.ignored, one.noted) for one in found]


def test_a_note_covers_its_statement_and_the_table_that_it_creates() -> None:
    text = (
        f"-- lint: ignore T1, T13: {REASON}\n"
        + table("a", gc_grace_seconds=1)
        + f"ALTER TABLE a WITH compaction = {windows(5)};"
        + table("b", compaction=windows(5))
    )
    found = [one for one in reasoned(text) if one[0] in {"T1", "T13", "T8"}]
    assert found == [
        ("T8", "a", None, False),
        ("T1", "a", REASON, True),
        ("T13", "a", REASON, True),
        ("T1", "b", None, False),
        ("T13", "b", None, False),
    ]


def test_a_note_before_a_data_statement_covers_just_that() -> None:
    columns = "k int, c int, PRIMARY KEY (k, c)"
    text = table("a", columns, compaction=windows()) + (
        f"-- lint: ignore T4: {REASON}\nDELETE FROM a WHERE k = 1;\n\nDELETE FROM a WHERE k = 2;"
    )
    assert [one[2] for one in reasoned(text) if one[0] == "T4"] == [REASON, None]


def test_ignores_cover_a_table_in_any_case_or_all_tables() -> None:
    text = table("a", gc_grace_seconds=1) + f"-- LINT: Ignore T8: near\n{table('b', gc_grace_seconds=1)}"
    assert reasoned(text, Ignore("T8", "A", "one")) == [("T8", "a", "one", False), ("T8", "b", "near", True)]
    assert reasoned(text, Ignore("T8", "", "all")) == [("T8", "a", "all", False), ("T8", "b", "near", True)]
    assert reasoned(text, Ignore("T1", "a", "other")) == [("T8", "a", None, False), ("T8", "b", "near", True)]


def test_what_covers_nothing_is_reported() -> None:
    text = f"-- lint: ignore T1: {REASON}\n{table('a', gc_grace_seconds=1)}"
    subject = subject_of(text)
    found, notes = lint(subject), notes_among(subject.statements)
    assert [str(note) for note in unused_among(notes, found)] == ["schema.cql: T1"]
    idle = (Ignore("T8", "b", REASON), Ignore("T1", "", REASON), Ignore("T8", "a", REASON))
    assert [str(one) for one in unused_among(idle, found)] == ["T8 at b", "T1"]


@pytest.mark.parametrize(
    "note",
    [
        "lint: ignore T5",
        "lint: ignore T5:",
        "lint: ignore T5:   ",
        "lint: ignore : why",
        "lint: ignore",
        "lint: ignore five: why",
    ],
)
def test_a_note_without_rule_or_reason_is_refused(note: str) -> None:
    (placed,) = statements_of({"a.cql": f"-- {note}\n{table()}"})
    with pytest.raises(WrongUse, match=r"a\.cql: the comment 'lint: ignore.*(no reason|as its rule)") as refused:
        notes_among([placed])
    assert "-- lint: ignore T5: rows" in refused.value.mend


@pytest.mark.parametrize("comment", ["ignore T5: why", "please lint: ignore T5: why", "lint", "about lint: T5"])
def test_other_comments_are_comments(comment: str) -> None:
    (placed,) = statements_of({"a.cql": f"-- {comment}\n{table()}"})
    assert notes_among([placed]) == ()


def test_a_comment_apart_from_the_statement_is_no_note() -> None:
    text = f"-- lint: ignore T8: {REASON}\n\n{table('a', gc_grace_seconds=1)}"
    assert reasoned(text) == [("T8", "a", None, False)]


@pytest.mark.parametrize(
    ("rule", "at", "reason", "why"),
    [
        (None, "t", REASON, "as its rule"),
        ("five", "t", REASON, "as its rule"),
        ("T5", 5, REASON, "as its table"),
        ("T5", "t", None, "gives no reason"),
        ("T5", "t", "  ", "gives no reason"),
        ("T5", "t", 5, "gives no reason"),
    ],
)
def test_an_ignore_of_settings_is_refused_in_words(rule: Any, at: Any, reason: Any, why: str) -> None:
    with pytest.raises(WrongUse, match=why):
        parse_ignore(rule, at, reason)


@pytest.mark.parametrize(
    ("ignore", "shown"),
    [
        (Ignore("T5", "", REASON), "T5"),
        (Ignore("T5", "t", REASON), "T5 at t"),
        (Ignore("T5", "t", REASON, statement=3), "T5"),
        (Ignore("T5", "t", REASON, statement=3, file="a.cql"), "a.cql: T5"),
    ],
)
def test_an_ignore_is_shown_with_the_place_that_it_covers(ignore: Ignore, shown: str) -> None:
    assert str(ignore) == shown


def test_a_note_in_a_text_without_a_name_is_refused_in_its_own_words() -> None:
    with pytest.raises(WrongUse, match=r"^the comment 'lint: ignore T5': the ignore of T5 gives no reason"):
        notes_among(parse(f"-- lint: ignore T5\n{table()}"))


def test_reasons_are_reported_on_one_line() -> None:
    assert parse_ignore(" T5 ", " t ", "first\n   second") == Ignore("T5", "t", "first second")


def test_an_unknown_rule_is_refused_wherever_rules_are_named() -> None:
    with pytest.raises(WrongUse, match="there is no rule 'T26'"):
        rules_named(["T1", "T26"])
    with pytest.raises(WrongUse, match="there is no rule 'X'"):
        rules_named([], ["x"])
    assert [rule.id for rule in rules_named(["t5", "T1"], ["T5"])] == ["T1"]


@pytest.mark.parametrize(
    ("note", "rules"),
    [
        ("lint: ignore T5: why", ["T5"]),
        ("lint: ignore T5, T6: why", ["T5", "T6"]),
        ("lint: ignore T5 T6,K1 : why", ["T5", "T6", "K1"]),
        ("lint:ignore   T24   :why", ["T24"]),
        ("  lint: ignore T5: why: because  ", ["T5"]),
    ],
)
def test_a_note_names_one_rule_or_several(note: str, rules: list[str]) -> None:
    (placed,) = statements_of({"a.cql": f"-- {note}\n{table()}"})
    assert [one.rule for one in notes_among([placed])] == rules
    assert {one.reason for one in notes_among([placed])} <= {"why", "why: because"}


@pytest.mark.parametrize("rule", ["T0", "T100", "X5", "t5", "T05", "5", ""])
def test_the_id_of_a_rule_has_one_form(rule: str) -> None:
    with pytest.raises(WrongUse) as refused:
        parse_ignore(rule, "t", REASON)
    assert str(refused.value) == (f"an ignore names {rule!r} as its rule\nList the rules: mailmend schema lint --rules")


def test_a_refused_ignore_says_how_to_write_it() -> None:
    with pytest.raises(WrongUse, match="the ignore of T5 names 5 as its table") as refused:
        parse_ignore("T5", 5, REASON)
    assert refused.value.mend == 'Write it like table = "mytable".'
    with pytest.raises(WrongUse, match="the ignore of T5 gives no reason") as refused:
        parse_ignore("T5", "t", "")
    assert refused.value.mend == "Give the reason why it may stay, for the next reader."


def test_names_in_quotes_are_covered_under_their_own_case() -> None:
    text = "-- lint: ignore T8: near\n" + table('"A"', gc_grace_seconds=1) + table("a", gc_grace_seconds=1)
    assert reasoned(text) == [("T8", '"A"', "near", True), ("T8", "a", None, False)]
    assert reasoned(text, Ignore("T8", '"A"', "far"), Ignore("T8", "A", "small")) == [
        ("T8", '"A"', "near", True),
        ("T8", "a", "small", False),
    ]


def test_a_note_covers_what_is_pointed_at_elsewhere_only_for_its_own_table() -> None:
    text = table("a") + f"-- lint: ignore T8: {REASON}\nALTER TABLE a WITH gc_grace_seconds = 1;"
    assert reasoned(text) == [("T8", "a", REASON, True)]
    later = text + "ALTER TABLE a WITH gc_grace_seconds = 2;"
    assert reasoned(later) == [("T8", "a", None, False)]


def test_what_covers_something_is_not_reported_as_idle() -> None:
    text = table("a", gc_grace_seconds=1) + table("b", gc_grace_seconds=1, compaction=windows())
    found = lint(subject_of(text))
    assert unused_among((Ignore("T8", "b", REASON), Ignore("T1", "b", REASON)), found) == ()
    assert unused_among((Ignore("T8", "c", REASON),), found) == (Ignore("T8", "c", REASON),)
    noted = subject_of(f"-- lint: ignore T8, T2: {REASON}\n{text}")
    assert [one.rule for one in unused_among(notes_among(noted.statements), lint(noted))] == ["T2"]
