"""Man pages: one for each command, with its examples and exit codes, and nothing that roff would take as its own."""

import re
from functools import cache

import pytest

from tests.man_pages import described, escaped, pages, section_of


@cache
def written() -> dict[str, str]:
    return dict(pages())


def test_every_command_has_a_page() -> None:
    assert {"mailmend.1", "mailmend-check.1", "mailmend-queue-list.1", "mailmend-completion.1"} <= set(written())


def test_a_page_has_the_sections_that_man_knows() -> None:
    page = written()["mailmend-queue-list.1"]

    found = re.findall(r"^\.SH (.*)$", page, re.MULTILINE)

    assert found[:4] == ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"]
    assert found[-1] == "SEE ALSO"
    assert "\\fBmailmend-queue\\fP(1)" in page


def test_a_group_names_the_pages_of_its_commands() -> None:
    assert "\\fBmailmend-runs(1)\\fP" in written()["mailmend.1"]
    assert ".SH EXIT STATUS\n.nf\n0    fine" in written()["mailmend.1"]


@pytest.mark.parametrize("name", ["mailmend.1", "mailmend-repair-messages.1", "mailmend-completion.1"])
def test_no_line_is_a_command_that_roff_does_not_know(name: str) -> None:
    known = {".TH", ".SH", ".PP", ".TP", ".B", ".nf", ".fi"}
    found = {line.split()[0] for line in written()[name].splitlines() if line.startswith((".", "'"))}

    assert found <= known
    assert "\b" not in written()[name]


def test_text_that_looks_like_roff_is_escaped() -> None:
    assert escaped(".B x\n'y\na\\b --c") == "\\&.B x\n\\&'y\na\\eb \\-\\-c"


def test_paragraphs_that_click_does_not_fill_are_not_filled_here() -> None:
    assert list(described("One.\n\n\b\nTwo\n  three")) == ["One.", ".PP", ".nf", "Two\n  three", ".fi"]


def test_examples_and_exit_codes_are_sections() -> None:
    assert list(section_of("\b\nExamples:\n  mailmend check\n  mailmend demo")) == [
        ".SH EXAMPLES",
        ".nf",
        "mailmend check\nmailmend demo",
        ".fi",
    ]
    assert list(section_of("\b\nExit codes: 0 fine,\n2 wrong use.")) == [".SH EXIT STATUS", "0 fine,\n2 wrong use."]
    assert list(section_of("More.")) == [".SH NOTES", "More."]
