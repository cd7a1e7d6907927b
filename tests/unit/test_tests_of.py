"""`make test-of FILE`: the tests that import a file are found through modules and through services named as text."""

from pathlib import Path

import pytest
from grimp import ImportGraph

from tests.tests_of import importing_tests, imports_of_the_repository, main, module_of


@pytest.fixture(scope="module")
def graph() -> ImportGraph:
    return imports_of_the_repository()


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("model/ids.py", "mailmend.model.ids"),
        ("mailmend/__init__.py", "mailmend"),
        ("cql/statements/__init__.py", "mailmend.cql.statements"),
        ("tests/support/tables.py", "tests.support.tables"),
    ],
)
def test_a_file_has_the_name_under_which_it_is_imported(file: str, module: str) -> None:
    assert module_of(Path(file)) == module


def test_the_nearest_tests_of_a_module_import_it_and_a_test_counts_its_shortest_way() -> None:
    graph = ImportGraph()
    graph.add_import(importer="tests.test_near", imported="house.rule")
    graph.add_import(importer="house.engine", imported="house.rule")
    graph.add_import(importer="tests.test_far", imported="house.engine")
    graph.add_import(importer="tests.test_near", imported="house.engine")
    graph.add_import(importer="tests.test_other", imported="house.other")

    assert importing_tests("house.rule", graph) == {"tests.test_near": 1, "tests.test_far": 2}


def test_modules_that_import_each_other_are_walked_once() -> None:
    graph = ImportGraph()
    graph.add_import(importer="house.rule", imported="house.engine")
    graph.add_import(importer="house.engine", imported="house.rule")
    graph.add_import(importer="tests.test_engine", imported="house.engine")

    assert importing_tests("house.rule", graph) == {"tests.test_engine": 2}


def test_the_fixers_own_test_is_one_import_away(graph: ImportGraph) -> None:
    found = importing_tests("mailmend.repair.mending.fixer", graph)

    assert found["tests.unit.repair.test_fixer"] == 1
    assert found["tests.unit.repair.test_runner"] > 1


def test_a_service_that_a_command_names_as_text_is_an_import_of_the_command(graph: ImportGraph) -> None:
    importers = graph.find_modules_that_directly_import("mailmend.admin.local.demo")

    assert [name for name in importers if name.startswith("mailmend.admin.local.")]


def test_a_file_that_is_no_module_is_refused_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pyproject.toml"]) == 2
    assert "Give a path such as model/ids.py." in capsys.readouterr().err


def test_within_keeps_the_near_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tests/tests_of.py", "--within", "1"]) == 0
    assert capsys.readouterr().out == "   1  tests/unit/test_tests_of.py\n"
