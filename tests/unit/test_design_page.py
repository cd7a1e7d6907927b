"""What docstrings and decisions cite is in the repository: sections of `docs/design.md`, decisions, pages."""

import re
from functools import cache
from pathlib import Path

PACKAGES = ("admin", "cql", "delivery", "mailmend", "mailqueue", "model", "repair", "spark_repair", "tests")
SECTION = re.compile(r'docs/design\.md,\s+((?:(?:and )?"[^"]+"(?: \([\d, to]+\))?(?:,? ?)?)+)')
DECISION = re.compile(r"\bdocs/adr/(\d{4})\b")
PAGE = re.compile(r"\b(?:docs|runbooks)/[\w./-]+\.(?:md|json|svg|yml)\b")
ELSEWHERE = re.compile(r"\bDESIGN\b|\bfacts (?:on|in)\b|\bfacts/|\basof-model\b|\bseed (?:ADR|mta)")


@cache
def texts() -> tuple[tuple[Path, str], ...]:
    """Every module of ours, every test but this one, and every decision."""
    modules = [file for package in PACKAGES for file in Path(package).rglob("*.py")]
    files = [*modules, *Path("docs/adr").glob("*.md")]
    return tuple((file, file.read_text()) for file in files if file.name != "test_design_page.py")


def headings() -> set[str]:
    return set(re.findall(r"^#+ (.+)$", Path("docs/design.md").read_text(), re.MULTILINE))


def test_every_section_of_the_design_that_is_cited_is_there() -> None:
    cited = {
        (section, str(file))
        for file, text in texts()
        for sections in SECTION.findall(text)
        for section in re.findall(r'"([^"]+)"', sections.replace("\n", " "))
    }

    assert len(cited) > 20
    assert [(section, file) for section, file in sorted(cited) if section not in headings()] == []


def test_every_decision_that_is_cited_is_there() -> None:
    known = {file.name[:4] for file in Path("docs/adr").glob("[0-9]*.md")}
    cited = {(number, str(file)) for file, text in texts() for number in DECISION.findall(text)}

    assert len(cited) > 20
    assert [(number, file) for number, file in sorted(cited) if number not in known] == []


def test_every_page_that_is_cited_is_there() -> None:
    cited = {(page, str(file)) for file, text in texts() for page in PAGE.findall(text) if file.suffix == ".py"}

    assert len(cited) > 10
    assert [(page, file) for page, file in sorted(cited) if not Path(page).exists()] == []


def test_no_text_cites_a_document_that_is_elsewhere() -> None:
    assert [(str(file), found.group()) for file, text in texts() for found in ELSEWHERE.finditer(text)] == []
