"""The generic names of our packages are ours alone in this environment (the price that DESIGN section 3 names)."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

OURS = ["admin", "cql", "delivery", "mailmend", "mailqueue", "model", "repair", "spark_repair"]
NOT_OURS = (
    "errands?|journeys?|means|grounds?|aims?|sights?|trails?|aside|afterwards|rowless|foreseeing|distrusts?|troubles"
    "|awaited|told"
)


@cache
def _texts() -> dict[Path, str]:
    """Every module of ours and of the tests."""
    return {file: file.read_text() for package in (*OURS, "tests") for file in Path(package).rglob("*.py")}


def test_no_other_distribution_owns_a_package_of_ours() -> None:
    """Two owners of one import name would overwrite each other's files."""
    owners = packages_distributions()
    assert {name: set(owners.get(name, ["mailmend"])) for name in OURS} == {name: {"mailmend"} for name in OURS}


def test_the_wheel_carries_exactly_our_packages() -> None:
    """What the layout says is what is shipped."""
    settings = tomllib.loads(Path("pyproject.toml").read_text())
    assert settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == OURS


def test_every_package_is_typed_for_its_users() -> None:
    """py.typed stands in each."""
    assert all((Path(name) / "py.typed").is_file() for name in OURS)


def test_every_module_and_test_of_mutation_testing_is_there() -> None:
    """A module that moved would go unexamined."""
    named = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["mutants"]["tests"]
    assert [test for tests in named.values() for test in tests if not Path(test).is_file()] == []
    assert [module for module in named if not Path(*module.split(".")).with_suffix(".py").is_file()] == []


def test_the_name_of_a_public_class_or_type_stands_for_one_thing() -> None:
    """Whoever finds it in an error, or searches for it, need not ask which one is meant."""
    texts = [text for file, text in _texts().items() if file.parts[0] in OURS]
    classes = [name for text in texts for name in re.findall(r"^ *class (\w+)[(:\[]", text, re.MULTILINE)]
    types = [name for text in texts for name in re.findall(r"^([A-Z]\w*[a-z]\w*) = ", text, re.MULTILINE)]
    names = Counter(name for name in (*classes, *types) if not name.startswith("_"))
    assert [name for name, number in names.items() if number > 1] == []


def test_a_port_outside_the_models_stands_beside_a_value_of_its_own_package() -> None:
    """What needs the model's values alone stands in model/ports.py (docs/adr/0037)."""
    files = {file: text for file, text in _texts().items() if file.parts[0] in OURS and "(Protocol" in text}
    del files[Path("model/ports.py")]
    declaring = {str(file): ports for file, text in files.items() if (ports := _protocols(ast.parse(text)))}
    assert "mailqueue/queue.py" in declaring
    assert [name for name, ports in declaring.items() if not _names(ports) & _own_values(Path(name))] == []


def _protocols(tree: ast.Module) -> list[ast.ClassDef]:
    return [one for one in tree.body if isinstance(one, ast.ClassDef) and "Protocol" in map(ast.unparse, one.bases)]


def _names(ports: list[ast.ClassDef]) -> set[str]:
    return {one.id for port in ports for one in ast.walk(port) if isinstance(one, ast.Name)}


def _own_values(file: Path) -> set[str]:
    """What a module defines beside its ports, or takes from its own package."""
    tree = ast.parse(file.read_text())
    taken = [one for one in tree.body if isinstance(one, ast.ImportFrom) and one.module]
    own = {name.name for one in taken if str(one.module).split(".")[0] == file.parts[0] for name in one.names}
    kinds = {one.name for one in tree.body if isinstance(one, ast.ClassDef) and one not in _protocols(tree)}
    given = {ast.unparse(target) for one in tree.body if isinstance(one, ast.Assign) for target in one.targets}
    return own | kinds | given


def test_no_file_has_more_than_450_lines_that_are_not_blank() -> None:
    """Longer ones are split by subject."""
    counts = {str(file): sum(bool(line.strip()) for line in text.splitlines()) for file, text in _texts().items()}
    assert {name: count for name, count in counts.items() if count > 450} == {}


def test_names_are_words_of_the_field() -> None:
    """Run, plan, request, result, row: in tests too. A test's name is a sentence, in which `means` may be the verb."""
    perhaps = re.compile(rf"(?:\w_|\b)(?:{NOT_OURS})(?:_\w|\s*[=.:,()\[\]])", re.IGNORECASE)
    wrong = re.compile(rf"(?:^|_)(?:{NOT_OURS})(?:_|$)", re.IGNORECASE)
    texts = _texts()
    suspected = [file for file in texts if perhaps.search(texts[file])]
    names = {(str(file), name) for file in suspected for name in _identifiers(ast.parse(texts[file]))}
    names |= {(str(file), file.stem) for file in texts}
    snake = {name: re.sub("(?<=[a-z])(?=[A-Z])", "_", re.sub("^test_.*_means(?=_|$)", "", name)) for _, name in names}
    assert sorted(place for place in names if wrong.search(snake[place[1]])) == []


def _identifiers(tree: ast.AST) -> Iterator[str]:
    for one in ast.walk(tree):
        match one:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case _:
                pass
