"""Mutation testing of the pure core: does any test notice when a rule is changed?

`python -m tests.mutants [MODULE ...]` changes one place at a time in the modules of `[tool.mutants.tests]`, runs the
tests that are named there for the module, and shows the changes that no test noticed. Exits 1 where less than
`least_noticed_percent` were.

The changes are mutmut's. Its own runner is not used: it swaps functions of modules that were imported already, so that
tables made at import, default values and properties never change. Here each mutant is a forked process that imports
the changed text, and anew what imports that; nothing on disk is touched.
"""

import argparse
import ast
import gc
import io
import os
import random
import resource
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from difflib import unified_diff
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_loader
from itertools import islice
from pathlib import Path
from types import CodeType
from typing import Final

import grimp
import libcst as cst
import libcst.matchers as m
import pytest
from hypothesis import HealthCheck, Phase, settings
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

ROOT: Final = Path(__file__).resolve().parents[1]
CPU_SECONDS_MIN: Final = 10
CPU_SECONDS_UNCHANGED_MAX: Final = 300
CPU_TIMES_UNCHANGED: Final = 10
TEST_SECONDS_MAX: Final = 600
"""Only a test that waits for ever takes this long: one that computes for ever ends by the bound of its CPU seconds."""
MEMORY_BYTES_MAX: Final = 6 * 2**30
QUIET: Final = (
    "-qq",
    "-x",
    "--no-header",
    "--no-summary",
    "--noconftest",
    "--assert=plain",
    "--hypothesis-profile=mutants",
    *("-p", "no:cacheprovider", "-p", "no:unraisableexception", "-p", "no:threadexception"),
    "-o",
    f"timeout={TEST_SECONDS_MAX}",
)
TYPES_ONLY: Final = m.If(test=m.Name("TYPE_CHECKING")) | m.Assign(
    value=m.Call(func=m.Name("TypeVar") | m.Name("NewType"))
)
ZIP: Final = m.Call(func=m.Name("zip"))
ASSERTED: Final = m.Assert() | m.Arg(keyword=m.Name("strict"))
KIND: Final = m.ClassDef(bases=[m.ZeroOrMore(), m.Arg(m.Name("Enum")), m.ZeroOrMore()])

settings.register_profile(
    "mutants",
    deadline=None,
    derandomize=True,
    max_examples=25,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change to one module: its line, and the module's whole text after it."""

    module: str
    line: int
    source: str

    @property
    def change(self) -> str:
        """The lines that differ."""
        before = file_of(self.module).read_text(encoding="utf-8").splitlines()
        lines = unified_diff(before, self.source.splitlines(), lineterm="", n=0)
        return "\n".join(f"    {line}" for line in islice(lines, 3, None) if not line.startswith("@@"))


class _Changes(cst.CSTVisitor):
    """Collects every change that can be made to a module, with its line."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        self.found: list[tuple[int, cst.CSTNode, cst.CSTNode]] = []
        self.names: set[cst.CSTNode] = set()

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Change this node in every way, and go on below it."""
        if isinstance(node, cst.Annotation | cst.Decorator | cst.Raise) or m.matches(node, TYPES_ONLY):
            return False  # types are mypy's to check; what an error says is for people
        if isinstance(node, cst.Expr) and isinstance(node.value, cst.BaseString):
            return False  # a docstring
        if m.matches(node, ASSERTED):
            return False  # holds anyway
        if m.matches(node, KIND):
            self.names.update(m.findall(node, m.Assign(value=m.SimpleString())))
            for member in m.findall(node, m.Assign()):
                self.names.update(m.findall(member, m.SimpleString()))
        if node in self.names:
            return False  # what a kind is called, and says of itself, is for people
        changed = [
            other
            for kind, change in mutation_operators
            if isinstance(node, kind)
            and kind is not cst.AnnAssign  # to None: mypy would say so
            and not m.matches(node, ZIP)
            for other in change(node)
        ]
        if isinstance(node, cst.If | cst.CompIf):
            changed += [node.with_changes(test=forced) for forced in _forced(node.test)]
        if changed:
            line = self.get_metadata(PositionProvider, node).start.line
            self.found += [(line, node, other) for other in changed]
        return True


def _forced(test: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The condition never met, and always met; mutmut forces those of ternaries only."""
    inner = test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    yield cst.BooleanOperation(inner, cst.And(), cst.Name("False"))
    yield cst.BooleanOperation(inner, cst.Or(), cst.Name("True"))


def mutants_of(module: str) -> list[Mutant]:
    """Every mutant of the module; those whose text is the same count once.

    Of each only the statement that was changed is written anew: whole modules took minutes.
    """
    text = file_of(module).read_text(encoding="utf-8")
    tree = MetadataWrapper(cst.parse_module(text))
    changes = _Changes()
    tree.visit(changes)
    statements = tree.module.body
    texts = [tree.module.code_for_node(statement) for statement in statements]
    before, _, after = text.partition("".join(texts))
    homes: dict[cst.CSTNode, int] = {}
    for place, statement in enumerate(statements):
        homes |= dict.fromkeys(_within(statement), place)
    found: dict[str, Mutant] = {}
    for line, old, new in changes.found:
        place = homes[old]
        changed = statements[place].deep_replace(old, new)
        if isinstance(changed, cst.CSTNode):
            code = tree.module.code_for_node(changed)
            source = "".join((before, *texts[:place], code, *texts[place + 1 :], after))
            if source != text and source not in found and _is_python(source):
                found[source] = Mutant(module, line, source)
    return list(found.values())


def _within(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    yield node
    for child in node.children:
        yield from _within(child)


def _is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def file_of(module: str) -> Path:
    """Where a module lies."""
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


class _Changed(SourceFileLoader):
    """Finds and loads a mutant in place of its module."""

    def __init__(self, mutant: Mutant) -> None:
        super().__init__(mutant.module, str(file_of(mutant.module)))
        self.mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        """The mutant, compiled."""
        return compile(self.mutant.source, self.get_filename(fullname), "exec")

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        """Only the mutated module is found here."""
        return spec_from_loader(fullname, self) if fullname == self.mutant.module else None


class _TablesFirst:
    """Tests of fixed cases run before those that draw theirs: most changes are noticed soon."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sort what was collected."""
        items.sort(key=lambda item: hasattr(getattr(item, "obj", None), "hypothesis"))


class Trials:
    """Runs tests on mutants of one module, each in a process of its own."""

    def __init__(self, module: str, tests: Sequence[str], packages: Sequence[str]) -> None:
        self.module = module
        self.tests = tests
        self.cpu_seconds = CPU_SECONDS_UNCHANGED_MAX
        with redirect_stdout(io.StringIO()):  # imported once, by us, but for what the change could reach
            pytest.main([*QUIET, "--collect-only", *tests])
        graph = grimp.build_graph(*packages, exclude_type_checking_imports=True, cache_dir=None)
        reached = {module} | graph.find_downstream_modules(module)
        for name in [name for name in sys.modules if name in reached or name.partition(".")[0] == "tests"]:
            del sys.modules[name]
            package, _, child = name.rpartition(".")
            if package in sys.modules and hasattr(sys.modules[package], child):
                delattr(sys.modules[package], child)
        gc.freeze()
        gc.disable()
        self.start(None)
        _, status, used = os.wait4(-1, 0)
        if status:
            sys.exit(f"the tests of {module} fail without any change: pytest {' '.join(tests)}")
        self.cpu_seconds = max(CPU_SECONDS_MIN, round(CPU_TIMES_UNCHANGED * used.ru_utime))

    def start(self, mutant: Mutant | None) -> int:
        """Begin a process, and return its id."""
        if child := os.fork():
            return child
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silence, stream)
        limit = round(resource.getrusage(resource.RUSAGE_SELF).ru_utime) + self.cpu_seconds
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        if mutant:
            sys.meta_path.insert(0, _Changed(mutant))
        try:
            code = int(pytest.main([*QUIET, *self.tests], plugins=[_TablesFirst()]))
        except BaseException:  # noqa: BLE001 - whatever it is, the change was noticed
            code = 1
        os._exit(code)

    def outcomes(self, mutants: Sequence[Mutant], processes: int) -> Iterator[tuple[Mutant, str]]:
        """What came of each: killed, survived or timeout."""
        waiting, running = iter(mutants), dict[int, Mutant]()
        while True:
            for mutant in islice(waiting, processes - len(running)):
                running[self.start(mutant)] = mutant
            if not running:
                return
            child, status = os.wait()
            code = os.waitstatus_to_exitcode(status)
            yield running.pop(child), "survived" if code == 0 else "timeout" if code < 0 else "killed"


def examine(trials: Trials, options: argparse.Namespace) -> Counter[str]:
    """Try the mutants of a module, print those that survive, and count what came of all."""
    mutants = mutants_of(trials.module)
    if 0 < options.sample < len(mutants):
        mutants = random.Random(options.seed).sample(mutants, options.sample)
    figures = Counter[str]()
    for mutant, outcome in trials.outcomes(mutants, options.processes):
        figures[outcome] += 1
        if outcome == "survived":
            print(f"{mutant.module}:{mutant.line} survived\n{mutant.change}", flush=True)
    print(summary(trials.module, figures), flush=True)
    return figures


def noticed_percent(figures: Counter[str]) -> float:
    """How many mutants were killed or ran into their limit."""
    return 100 * (figures.total() - figures["survived"]) / max(1, figures.total())


def summary(name: str, figures: Counter[str]) -> str:
    """The figures of a module, or of all, in one line."""
    return (
        f"{name:32} {figures.total():5} mutants {figures['killed']:5} killed {figures['timeout']:3} timed out "
        f"{figures['survived']:4} survived {noticed_percent(figures):6.1f} %"
    )


def main(arguments: Sequence[str]) -> int:
    """0 where enough was noticed, else 1."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    tests: Mapping[str, Sequence[str]] = project["mutants"]["tests"]
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Mutation testing of the pure core.")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="one of [tool.mutants.tests]; default: all")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="mutants tried at once")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="at most N mutants of each module")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    options = parser.parse_args(arguments)
    os.chdir(ROOT)
    packages = [project["importlinter"]["root_package"]]
    figures = Counter[str]()
    for module in options.modules or tests:
        figures += examine(Trials(module, tests[module], packages), options)
    print(summary("all", figures))
    return int(noticed_percent(figures) < project["mutants"]["least_noticed_percent"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
