"""How the packages are laid out and shipped."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
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


def test_each_folder_is_a_package_of_mailmend() -> None:
    """A link in `mailmend/` for each: the wheel, the type checker and imports see one package."""
    links = {entry.name: entry.readlink() for entry in Path("mailmend").iterdir() if entry.is_symlink()}
    assert links == {name: Path("..", name) for name in OURS if name != "mailmend"}


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


def test_a_port_of_the_model_is_used_by_two_packages() -> None:
    """A port that one system alone uses stands in that system, beside its values (docs/adr/0056)."""
    ports = [node.name for node in ast.parse(Path("model/ports.py").read_text()).body if isinstance(node, ast.ClassDef)]
    texts = {file: text for file, text in _texts().items() if file.parts[0] in OURS and file.parts[0] != "model"}
    users = {port: {file.parts[0] for file, text in texts.items() if re.search(rf"\b{port}\b", text)} for port in ports}
    assert len(ports) > 5
    assert [port for port in ports if len(users[port]) < 2] == []


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
