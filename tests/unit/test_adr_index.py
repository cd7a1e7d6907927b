"""`docs/adr/README.md` lists each decision once, with a title that its page has and a status."""

import re
from pathlib import Path

FOLDER = Path("docs/adr")
ROW = re.compile(r"^\| \[(\d{4})\]\((\S+)\) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
STATUS = re.compile(r"in force|replaced by")
REPLACED = re.compile(r"replaced by \[\d{4}\]\((\S+)\)")


def rows() -> list[tuple[str, str, str, str, str]]:
    """Number, file, title, status and summary of each decision in the index."""
    return ROW.findall((FOLDER / "README.md").read_text())


def test_the_index_lists_every_decision_once_in_their_order() -> None:
    assert [file for _, file, *_ in rows()] == sorted(file.name for file in FOLDER.glob("[0-9]*.md"))


def test_each_row_has_the_number_of_its_file_and_the_beginning_of_its_title() -> None:
    for number, file, title, _, _ in rows():
        first = (FOLDER / file).read_text().partition("\n")[0]
        assert file.startswith(number)
        assert re.sub(r"^# 0*\d+[.:] ", "", first).startswith(title), f"{file}: the title is {first!r}"


def test_each_decision_is_in_force_or_says_what_replaces_it() -> None:
    assert [file for _, file, _, status, _ in rows() if not STATUS.match(status)] == []


def test_a_page_that_is_replaced_names_its_successor_at_its_top() -> None:
    for _, file, _, status, _ in rows():
        for successor in REPLACED.findall(status):
            head = (FOLDER / file).read_text().partition("## Context")[0]
            assert f"docs/adr/{successor[:4]}" in head, f"{file} does not name {successor} above its context"
