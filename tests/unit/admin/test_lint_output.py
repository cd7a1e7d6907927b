"""What lint says to people: lines that point, reasons that fit, sums that add up."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailmend.admin.schema.lint import (
    LintSettings,
    lint_files,
    place_in,
    report_json,
    report_parts,
    rule_json,
    rule_parts,
    subject_of,
)
from mailmend.admin.schema.lint_page import LintReport
from mailmend.cql.schema.lint.rule import LintFinding, Severity
from mailmend.cql.schema.lint.rules import RULES, Ignore, rules_named
from mailmend.cql.statements import Span
from tests.support.documents import text_of
from tests.support.linting import table, windows

(T1,) = rules_named(["T1"])
FILE = "a.cql"


def finding(
    text: str = "something is so", span: Span | None = None, file: str | None = FILE, ignored: str | None = None
) -> LintFinding:
    return LintFinding(
        T1, "ks", "t", "c", Severity.WARNING, text, T1.fix, file=file, span=span, statement=0, ignored=ignored
    )


def lines_of(*findings: LintFinding, text: str = "", width: int = 120, ignored: bool = False) -> list[str]:
    report = LintReport(("ks",), findings, Severity.WARNING, texts={FILE: text})
    return text_of(tuple(report_parts(report, ignored=ignored)), width).splitlines()


def pointed(text: str, start: int, end: int) -> str:
    lines = lines_of(finding(span=Span(start, end)), text=text)
    place = next(number for number, line in enumerate(lines) if line.strip() and set(line.strip()) == {"^"})
    carets = lines[place]
    return lines[place - 1][carets.index("^") : carets.rindex("^") + 1]


@pytest.mark.parametrize(
    ("text", "start", "end", "shown"),
    [
        ("CREATE TABLE t", 13, 14, "t"),
        ("first\n  second line", 8, 14, "second"),
        ("\tafter a tab", 1, 6, "after"),
        ("two\nlines are meant", 0, 9, "two"),
        ("x" * 500 + "NAME" + "y" * 500, 500, 504, "NAME"),
        ("x" * 990 + "NAME", 990, 994, "NAME"),
        ("Gr\u00fc\u00dfe an alle", 6, 8, "an"),
        ("carriage\r\nreturn", 10, 16, "return"),
    ],
)
def test_carets_stand_under_the_piece_that_is_meant(text: str, start: int, end: int, shown: str) -> None:
    assert pointed(text, start, end) == shown


def test_a_file_cannot_steer_the_terminal() -> None:
    lines = lines_of(finding("name \x1b[2J", span=Span(0, 4)), text="\x1b[31mred")
    assert not any("\x1b" in line for line in lines)


def test_an_empty_piece_has_one_caret() -> None:
    lines = lines_of(finding(span=Span(3, 3)), text="abc")
    assert any(line.strip() == "^" for line in lines)


@given(st.text(max_size=300), st.data())
def test_any_piece_of_any_text_can_be_shown(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    lines = lines_of(finding(span=Span(start, end)), text=text)
    assert all("\n" not in line for line in lines)
    assert sum("^" in line and set(line.strip()) == {"^"} for line in lines) >= 1


def test_reasons_are_broken_to_the_width_and_reported_once() -> None:
    lines = lines_of(finding("one"), finding("two"), width=60)
    assert max(len(line) for line in lines if "https://" not in line) <= 60
    assert sum(line.lstrip().startswith("why ") for line in lines) == 1
    assert [line.strip() for line in lines if "as above" in line] == ["fix as above"]
    assert " ".join(" ".join(lines).split()).count(T1.reason) == 1


def test_a_narrow_terminal_is_no_reason_to_fail() -> None:
    assert lines_of(finding(), width=1)


def test_findings_come_under_their_file_or_keyspace() -> None:
    lines = lines_of(finding(), finding(file=None))
    assert lines[0] == FILE
    assert "keyspace ks" in lines
    assert subject_of(finding()) == "t.c"


def test_sums_name_each_level_and_what_is_ignored() -> None:
    found = (finding(), finding(), finding(ignored="it may"))
    assert lines_of(*found)[-2:] == ["ks: 2 warnings.", "1 ignored, each with a reason (--ignored shows them)."]
    shown = lines_of(*found, ignored=True)
    assert "    because it may" in shown
    assert shown[-1] == "1 ignored, each with a reason."
    assert lines_of() == ["ks: nothing found."]


def test_places_that_the_texts_do_not_have_are_left_out() -> None:
    assert place_in(finding(span=Span(0, 1), file="other.cql"), {FILE: "abc"}) is None
    assert place_in(finding(), {FILE: "abc"}) is None
    report = LintReport(("ks",), (finding(file=None),), Severity.WARNING)
    assert report_json(report)["findings"][0]["line"] is None


def test_json_says_the_same_as_the_lines(tmp_path: Path) -> None:
    file = tmp_path / "b.cql"
    file.write_text(table("a", compaction=windows()) + table("b", gc_grace_seconds=1), encoding="utf-8")
    order = LintSettings("ks", level=Severity.NOTE, ignores=(Ignore("T8", "b", "it may"),))
    report = lint_files([file], order)
    document = report_json(report)
    output = text_of(tuple(report_parts(report))).splitlines()
    assert len(document["findings"]) == len(report.open) > 2
    for one in document["findings"]:
        assert any(
            line.startswith(f"  {one['line']}:{one['column']} ") and f" {one['rule']} " in line for line in output
        )
        assert f"    {one['text']}" in output
    assert [(one["rule"], one["because"]) for one in document["ignored"]] == [("T8", "it may")]


def test_rules_are_reported_whole() -> None:
    output = " ".join(text_of(tuple(rule_parts(RULES))).split())
    for rule in RULES:
        assert rule.title in output
        assert rule.reason in output
        assert rule.fix in output
        assert rule_json(rule)["rule"] == rule.id
        assert rule_json(rule)["level"] in {"note", "warning", "error"}
