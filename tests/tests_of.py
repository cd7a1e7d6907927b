"""Which tests run a file: the test files that import it, directly or through other modules, nearest first.

`python -m tests.tests_of FILE` prints a line for each test file: the number of imports between the two, and the path.
`--within N` keeps those with at most N imports. `--run` runs the nearest ones, or those that `--within` keeps, in
pytest, with any further arguments.

Imports are read from the source and nothing is executed. A command names its service as text ("module:function"): that
counts as an import. Fixtures of a `conftest.py` do not count, because every test of its folder has them.
"""

import argparse
import re
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).resolve().parents[1]
SERVICE: Final = re.compile(r'"(mailmend(?:\.\w+)+):\w+"')


def module_of(file: Path) -> str:
    """The name under which a file of the repository is imported: "mailmend.model.ids" for `model/ids.py`."""
    parts = list(file.resolve().relative_to(ROOT).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    if parts[0] not in {"mailmend", "tests"}:
        parts.insert(0, "mailmend")
    return ".".join(parts)


def imports_of_the_repository() -> grimp.ImportGraph:
    """Every module and test with what it imports, services that are named as text included."""
    graph = grimp.build_graph("mailmend", "tests", cache_dir=None)
    for module in sorted(graph.modules):
        file = ROOT.joinpath(*module.split(".")).with_suffix(".py")
        if not file.is_file():
            continue
        for service in SERVICE.findall(file.read_text()):
            if service in graph.modules:
                graph.add_import(importer=module, imported=service)
    return graph


def importing_tests(module: str, graph: grimp.ImportGraph) -> dict[str, int]:
    """The test modules that import a module, each with the least number of imports between the two."""
    steps = {module: 0}
    waiting = deque([module])
    while waiting:
        imported = waiting.popleft()
        for importer in graph.find_modules_that_directly_import(imported):
            if importer not in steps:
                steps[importer] = steps[imported] + 1
                waiting.append(importer)
    return {name: count for name, count in steps.items() if name.rpartition(".")[2].startswith("test_")}


def main(arguments: list[str]) -> int:
    """Exit code: 0; 2 for a file that is no module of the repository; with `--run`, that of pytest."""
    parser = argparse.ArgumentParser(prog="python -m tests.tests_of", description=__doc__)
    parser.add_argument("file", type=Path, help="a module or a support file, such as repair/mending/fixer.py")
    parser.add_argument("--within", type=int, metavar="N", help="at most N imports away")
    parser.add_argument("--run", action="store_true", help="run the tests; further arguments are pytest's")
    asked, pytest_arguments = parser.parse_known_args(arguments)
    graph = imports_of_the_repository()
    try:
        module = module_of(asked.file)
        found = importing_tests(module, graph)
    except (ValueError, grimp.exceptions.GrimpException):
        sys.stderr.write(f"{asked.file} is not a Python module of this repository. Give a path such as model/ids.py.\n")
        return 2
    within = asked.within
    if within is None:
        within = min(found.values(), default=0) if asked.run else sys.maxsize
    kept = sorted((count, f"{name.replace('.', '/')}.py") for name, count in found.items() if count <= within)
    sys.stdout.write("".join(f"{count:4}  {test}\n" for count, test in kept))
    sys.stdout.flush()
    if asked.run and kept:
        command = [sys.executable, "-m", "pytest", *pytest_arguments, *(test for _, test in kept)]
        return subprocess.run(command, cwd=ROOT, check=False).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
