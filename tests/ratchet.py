"""The ratchet on folded code: each package may hold as much of it as the table says, and the table may only fall.

`python -m tests.ratchet` compares the packages with `[tool.ratchet]` in `pyproject.toml` and exits 1 where a package
holds more than its row allows. `--write` lowers the rows to what is there; it raises none. `--list KIND PACKAGE` shows
the places of one kind in one package.

Links are not followed: a package that another one reaches by a link is counted once, where it is.
"""

import argparse
import ast
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
LINE_CHARACTERS_MAX: Final = 100
KINDS: Final = {
    "conditionals": "conditional expressions",
    "packed": "packed assignments",
    "nested": "nested or double comprehensions",
    "one": "loops over `one`",
    "closures": "functions that return closures",
    "long": f"lines over {LINE_CHARACTERS_MAX} characters",
}
COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Place(NamedTuple):
    """Where a file holds folded code: a key of KINDS, and the line's number from 1."""

    kind: str
    line: int


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """What belongs to a function itself: nested functions are given, their insides are not."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, FUNCTIONS):
            yield from own_nodes(child)


def returned(value: ast.expr | None) -> list[ast.expr]:
    """The values among which a returned expression chooses."""
    if isinstance(value, ast.IfExp):
        return [*returned(value.body), *returned(value.orelse)]
    return [value] if value else []


def returns_closure(node: ast.AST) -> bool:
    """Does a function return a lambda, or a function that is defined inside it?"""
    if isinstance(node, ast.Lambda):
        return isinstance(node.body, ast.Lambda)
    if not isinstance(node, FUNCTIONS):
        return False
    own = list(own_nodes(node))
    inner = {child.name for child in own if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)}
    for child in own:
        if isinstance(child, ast.Return):
            for value in returned(child.value):
                if isinstance(value, ast.Lambda) or (isinstance(value, ast.Name) and value.id in inner):
                    return True
    return False


def binds_one(node: ast.AST) -> bool:
    if not isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        return False
    return any(isinstance(target, ast.Name) and target.id == "one" for target in ast.walk(node.target))


def is_packed(node: ast.AST) -> bool:
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return False
    return isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)


def nodes_with_lines(node: ast.AST, line: int = 1, *, inside: bool = False) -> Iterator[tuple[ast.AST, int, bool]]:
    """Each node, the line at which it begins, and whether it is inside a comprehension."""
    line = getattr(node, "lineno", line)
    yield node, line, inside
    inside = inside or isinstance(node, COMPREHENSIONS)
    for child in ast.iter_child_nodes(node):
        yield from nodes_with_lines(child, line, inside=inside)


def places_in(source: str) -> list[Place]:
    """Every place of folded code in the text of a module, by line."""
    places = []
    for node, line, inside in nodes_with_lines(ast.parse(source)):
        if isinstance(node, ast.IfExp):
            places.append(Place("conditionals", line))
        if is_packed(node):
            places.append(Place("packed", line))
        if isinstance(node, COMPREHENSIONS) and (inside or len(node.generators) > 1):
            places.append(Place("nested", line))
        if binds_one(node):
            places.append(Place("one", line))
        if returns_closure(node):
            places.append(Place("closures", line))
    for line, text in enumerate(source.splitlines(), 1):
        if len(text) > LINE_CHARACTERS_MAX:
            places.append(Place("long", line))
    return sorted(places, key=lambda place: place.line)


def modules(package: Path) -> Iterator[Path]:
    """The modules below a folder, in order, without those that only a link reaches."""
    for folder, folders, names in os.walk(package, followlinks=False):
        folders.sort()
        for name in sorted(names):
            module = Path(folder, name)
            if module.suffix == ".py" and not module.is_symlink():
                yield module


def counts_of(package: Path) -> dict[str, int]:
    """How many places of each kind a package holds."""
    counts = dict.fromkeys(KINDS, 0)
    for module in modules(package):
        for place in places_in(module.read_text()):
            counts[place.kind] += 1
    return counts


def above(allowed: Mapping[str, int], counts: Mapping[str, int]) -> list[str]:
    """The kinds of which there are more than a row of the table allows."""
    return [kind for kind in KINDS if counts[kind] > allowed[kind]]


def lowered(text: str, found: Mapping[str, Mapping[str, int]]) -> str:
    """The text of pyproject.toml with each row of the table lowered to what is there; no count rises."""
    table = tomllib.loads(text)["tool"]["ratchet"]
    head, mark, tail = text.partition("[tool.ratchet]\n")
    for package, counts in found.items():
        row = ", ".join(f"{kind} = {min(counts[kind], table[package][kind])}" for kind in KINDS)
        tail = re.sub(rf"^{package} = \{{.*\}}$", f"{package} = {{ {row} }}", tail, count=1, flags=re.MULTILINE)
    return head + mark + tail


def show(kind: str, package: str) -> None:
    for module in modules(ROOT / package):
        source = module.read_text()
        lines = source.splitlines()
        for place in places_in(source):
            if place.kind == kind:
                print(f"{module.relative_to(ROOT)}:{place.line}: {lines[place.line - 1].strip()}")


def compare(table: Mapping[str, Mapping[str, int]], found: Mapping[str, Mapping[str, int]]) -> bool:
    """Report each count that rose, hint where the table can fall, and say whether all counts are allowed."""
    fine = True
    can_fall = False
    for package, counts in found.items():
        for kind in above(table[package], counts):
            fine = False
            print(f"{package}: {KINDS[kind]}: {table[package][kind]} allowed, {counts[kind]} found")
            print(f"  the command that lists them: python -m tests.ratchet --list {kind} {package}")
        can_fall = can_fall or any(counts[kind] < table[package][kind] for kind in KINDS)
    if can_fall:
        print("Some counts fell. The command `python -m tests.ratchet --write` lowers the table.")
    return fine


def main() -> int:
    """Compare, lower or list, as the arguments say; 1 where a package holds more than the table allows."""
    project = ROOT / "pyproject.toml"
    table = tomllib.loads(project.read_text())["tool"]["ratchet"]
    parser = argparse.ArgumentParser(prog="python -m tests.ratchet", description="The ratchet on folded code.")
    parser.add_argument("--write", action="store_true", help="lower the table to what is there")
    parser.add_argument("--list", nargs=2, metavar=("KIND", "PACKAGE"), help="show the places of a kind")
    options = parser.parse_args()
    if options.list:
        kind, package = options.list
        if kind not in KINDS or package not in table:
            parser.error(f"KIND is one of {', '.join(KINDS)}; PACKAGE is one of {', '.join(table)}")
        show(kind, package)
        return 0
    found = {package: counts_of(ROOT / package) for package in table}
    if options.write:
        project.write_text(lowered(project.read_text(), found))
        table = tomllib.loads(project.read_text())["tool"]["ratchet"]
    return 0 if compare(table, found) else 1


if __name__ == "__main__":
    sys.exit(main())
