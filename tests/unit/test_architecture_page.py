"""`docs/architecture.md` and the guides of contributors name files, folders and definitions that are there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

PAGES = [Path("docs/architecture.md"), *sorted(Path("docs/contributing").glob("*.md"))]
TOPS = "admin|cql|delivery|docs|mailmend|mailqueue|model|repair|runbooks|spark_repair|tests"
NAMED = re.compile(rf"`((?:{TOPS})/[\w./*-]*)(?:: (\w+(?:\.\w+)*))?`")
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def names_in(file: Path) -> frozenset[str]:
    """The functions, classes, constants and, with their class, methods of a module."""
    found = set()
    for node in ast.parse(file.read_text()).body:
        match node:
            case ast.ClassDef(name=owner, body=body):
                found.add(owner)
                found |= {f"{owner}.{method.name}" for method in body if isinstance(method, DEFINITIONS)}
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case _:
                pass
    return frozenset(found)


def wrong_in(text: str) -> list[str]:
    """What a page names and the repository does not have; `admin/messages/*.py: repair` is in one of these files."""
    wrong = []
    for place, name in NAMED.findall(text):
        files = list(Path().glob(place)) if "*" in place else [Path(place)]
        is_there = any(file.exists() and (not name or name in names_in(file)) for file in files)
        if not is_there:
            wrong.append(f"{place}: {name}")
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_file_and_definition_that_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()

    assert NAMED.search(text)
    assert wrong_in(text) == []


def test_a_name_that_has_gone_is_found() -> None:
    there = "`model/catalog/`, `repair/clock.py: SystemClock.micros`, `model/*.py: MessageId`"
    gone = (
        "`model/nowhere.py`, `model/ids.py: NoSuchId`, `repair/clock.py: SystemClock.nothing`, `model/*.py: NoSuchId`"
    )

    assert wrong_in(there) == []
    assert [f"`{wrong}`" for wrong in wrong_in(gone)] == gone.replace("nowhere.py`", "nowhere.py: `").split(", ")


def test_a_link_of_a_page_leads_to_a_file() -> None:
    for page in [*PAGES, Path("docs/design.md"), Path("docs/adr/README.md"), Path("CONTRIBUTING.md")]:
        links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        assert [link for link in links if not (page.parent / link).exists()] == []
