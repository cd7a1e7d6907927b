"""What CONTRIBUTING.md and tests/README.md say of the lanes is what the tests, the metadata and the workflows have."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.unit.test_pages import wrong_links

CONTRIBUTING = Path("CONTRIBUTING.md").read_text()
LEFT_OUT = Path("tests/README.md").read_text().split("## What `make test` does not show")[1].split("\n## ")[0]
VERSION = re.compile(r"Programming Language :: Python :: (3\.\d+)")


def is_thorough(file: Path) -> bool:
    """Whether the module, or each of its tests, is marked."""
    text = file.read_text()
    if "thorough" not in text:
        return False
    marks = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value) if "mark.thorough" in ast.unparse(value):
                return True
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test_"):
                marks.append("mark.thorough" in " ".join(map(ast.unparse, node.decorator_list)))
    return bool(marks) and all(marks)


def thorough_files() -> Iterator[str]:
    for file in Path("tests").rglob("test_*.py"):
        if is_thorough(file):
            yield str(file.relative_to("tests").with_suffix(""))


def test_every_file_that_make_test_leaves_out_is_listed() -> None:
    named = re.findall(r"`(\w+/[\w/]+)`", LEFT_OUT)

    assert sorted(named) == sorted(thorough_files())


def test_every_version_of_python_in_the_metadata_is_one_that_every_lane_has_run_with() -> None:
    """CONTRIBUTING.md says which; and a job of the forge runs the lanes with each of them."""
    found = re.search(r"\n\| Python \| ([\d., ]+) \|", CONTRIBUTING)
    assert found
    classifiers = tomllib.loads(Path("pyproject.toml").read_text())["project"]["classifiers"]
    versions = set(VERSION.findall("\n".join(classifiers)))
    jobs = yaml.safe_load(Path(".github/workflows/ci.yml").read_text())["jobs"]
    rows = jobs["test"]["strategy"]["matrix"]["include"]

    assert versions == set(found[1].split(", "))
    assert versions <= {row["python"] for row in rows}


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md", "tests/README.md"])
def test_every_link_of_a_page_outside_docs_leads_to_a_file_and_a_heading(page: str) -> None:
    assert wrong_links(Path(page).resolve(), Path(page).read_text()) == []
