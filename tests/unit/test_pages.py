"""README and the pages of docs/: links lead somewhere, the index has each page, lists are complete."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

import mailmend
from tests.support.checkout import CHECKOUT

README = CHECKOUT / "README.md"
DOCS = CHECKOUT / "docs"
FOLDERS = ("tutorials", "how-to", "concepts", "api")
PAGES = [
    README,
    *sorted(DOCS.glob("*.md")),
    *(page for folder in FOLDERS for page in sorted(DOCS.glob(f"{folder}/*.md"))),
]
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINES_MAX = 200


def names_of(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(CHECKOUT)) for page in pages]


def anchor_of(heading: str) -> str:
    """The anchor that a forge and a site generator give a heading."""
    words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


@cache
def anchors_in(page: Path) -> frozenset[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return frozenset(anchor_of(heading) for heading in headings)


def wrong_links(page: Path, text: str) -> list[str]:
    """The relative links that lead to no file, or to no heading of it."""
    wrong = []
    for link in LINK.findall(FENCE.sub("", text)):
        if "://" in link or link.startswith("mailto:"):
            continue
        place, _, anchor = link.partition("#")
        target = page
        if place:
            target = (page.parent / place).resolve()
        is_there = target.exists() and (not anchor or anchor in anchors_in(target))
        if not is_there:
            wrong.append(link)
    return wrong


def examples_in(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= LINES_MAX


@pytest.mark.parametrize("page", PAGES, ids=names_of(PAGES))
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert wrong_links(page, page.read_text()) == []


def test_a_link_that_leads_nowhere_is_found() -> None:
    text = "[a](docs/design.md#queue) [b](docs/design.md#cake) ![c](none.svg) [d](#four-doors) [e](https://x.org/y)"

    assert wrong_links(README, text) == ["docs/design.md#cake", "none.svg"]


def test_the_index_has_every_page() -> None:
    index = DOCS / "README.md"
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in LINK.findall(index.read_text())}

    assert set(PAGES) - {README, index} - linked == set()


def test_the_site_lists_every_page_of_the_index() -> None:
    """`make docs` builds every page; this is the list at the side."""
    nav = tomllib.loads((CHECKOUT / "zensical.toml").read_text())["project"]["nav"]

    assert [name for name in names_of(PAGES) if f"'{name}'" not in str(nav)] == []


def test_the_four_doors_of_readme_and_index_lead_to_the_same_pages() -> None:
    """A door is the first link of a row of the table below `you are`."""
    doors = []
    for page in (README, DOCS / "README.md"):
        table = page.read_text().partition("| you are |")[2].partition("\n\n")[0]
        rows = table.splitlines()[2:]
        doors.append([(page.parent / LINK.findall(row)[0]).resolve() for row in rows])

    assert doors[0] == doors[1]
    assert len(doors[0]) == 4


@pytest.mark.parametrize("page", [README, DOCS / "how-to" / "install.md"], ids=["README", "install"])
def test_every_extra_is_named_where_a_person_installs(page: Path) -> None:
    extras = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    assert [extra for extra in extras if f"`{extra}`" not in page.read_text()] == []


def foreign_names(example: str) -> set[str]:
    """Names that an example takes from mailmend and that are not public."""
    names = set()
    for node in ast.walk(ast.parse(example)):
        match node:
            case ast.ImportFrom(module="mailmend", names=imported):
                names |= {name.name for name in imported}
            case ast.ImportFrom(module=str(module)) if module.startswith("mailmend."):
                names.add(module)
            case ast.Import(names=imported):
                names |= {name.name for name in imported if name.name.startswith("mailmend.")}
            case ast.Attribute(value=ast.Name(id="mailmend"), attr=name):
                names.add(name)
            case _:
                pass
    return names - set(mailmend.__all__)


def test_python_examples_are_valid_and_use_public_names_only() -> None:
    examples = [(page, example) for page in PAGES for example in examples_in(page)]

    assert len(examples) > 5
    assert [(page.name, names) for page, example in examples if (names := foreign_names(example))] == []


def test_a_name_that_is_not_public_is_found() -> None:
    example = "import mailmend\nfrom mailmend.repair import clock\nmailmend.open()\nmailmend.nothing()\n"

    assert foreign_names(example) == {"mailmend.repair", "nothing"}
