"""Our own expressions, applied to words of others, have no way to take for ever.

Python's engine goes back. It needs exponential time where one text has two ways through the same loop. For each
expression the test builds the automaton of its positions and looks for such a loop; nothing is timed.

A search begins anew at each character. It needs quadratic time where it can begin anew at each character of a run that
a loop of the expression reads to its end, to fail there.
"""

import importlib
import inspect
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import pytest

import mailmend

# Python's own parser of expressions: whether its private modules are known to mypy depends on what else it reads.
_constants: Any = import_module("re._constants")
_parser: Any = import_module("re._parser")

FEW = 3
"""A repetition of at most so many is unrolled; a longer one counts as a loop."""

Letters = frozenset[int]
ALPHABET = frozenset(range(128)) | {0xE9}
"""All of ASCII, and one letter that stands for all others."""


@dataclass
class Part:
    """A part of an expression: the positions where it may begin and end, and whether it may be empty."""

    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    empty: bool = True


@dataclass
class Automaton:
    """Positions of an expression, by number, with their letters, and how many ways lead from one to the next."""

    letters: list[Letters] = field(default_factory=list)
    ways: Counter[tuple[int, int]] = field(default_factory=Counter)

    def position(self, letters: Letters) -> Part:
        self.letters.append(letters)
        number = len(self.letters) - 1
        return Part([number], [number], empty=False)

    def then(self, one: Part, other: Part) -> Part:
        self.ways.update((last, first) for last in one.last for first in other.first)
        first = one.first + (other.first if one.empty else [])
        last = other.last + (one.last if other.empty else [])
        return Part(first, last, empty=one.empty and other.empty)

    def loop(self, body: Part) -> None:
        self.ways.update((last, first) for last in body.last for first in body.first)

    def part(self, items: Any) -> Part:
        whole = Part()
        for code, value in items:
            whole = self.then(whole, self.item(str(code), value))
        return whole

    def item(self, code: str, value: Any) -> Part:  # noqa: PLR0911 - one for each kind
        match code:
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                return self.position(letters_of(code, value))
            case "SUBPATTERN":
                return self.part(value[-1])
            case "ATOMIC_GROUP":
                return self.part(value)
            case "BRANCH":
                return self.branch([self.part(one) for one in value[1]])
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                return self.repeat(*value)
            case "GROUPREF":
                return self.position(ALPHABET)
            case "AT" | "ASSERT" | "ASSERT_NOT":
                return Part()
            case _:
                raise AssertionError(code)

    def branch(self, some: list[Part]) -> Part:
        first = [number for one in some for number in one.first]
        last = [number for one in some for number in one.last]
        return Part(first, last, empty=any(one.empty for one in some))

    def repeat(self, least: int, most: Any, body: Any) -> Part:
        if most is not _constants.MAXREPEAT and most <= FEW:
            whole = Part()
            for number in range(most):
                copy = self.part(body)
                whole = self.then(whole, Part(copy.first, copy.last, empty=copy.empty or number >= least))
            return whole
        one = self.part(body)
        self.loop(one)
        return Part(one.first, one.last, empty=one.empty or least == 0)

    def has_two_ways_through_a_loop(self) -> bool:
        """Whether two different runs lead from a position back to itself by the same text."""
        after = dict[int, list[int]]()
        for one, other in self.ways:
            after.setdefault(one, []).append(other)
        pairs = {}
        for loop in strongly_connected(after):
            inside = set(loop)
            if any(self.ways[one, other] > 1 for one in loop for other in after.get(one, ()) if other in inside):
                return True
            for one in loop:
                for other in loop:
                    pairs[one, other] = [
                        (a, b)
                        for a in after.get(one, ())
                        for b in after.get(other, ())
                        if a in inside and b in inside and self.letters[a] & self.letters[b]
                    ]
        return any(
            any(one == other for one, other in loop) and any(one != other for one, other in loop)
            for loop in strongly_connected(pairs)
        )


def letters_of(code: str, value: Any) -> Letters:
    match code:
        case "LITERAL":
            return frozenset({value if value < 128 else 0xE9})
        case "NOT_LITERAL":
            return ALPHABET - {value}
        case "ANY":
            return ALPHABET
        case _:
            pass
    found, negated = set[int](), False
    for kind, one in value:
        match str(kind):
            case "NEGATE":
                negated = True
            case "LITERAL":
                found.add(one if one < 128 else 0xE9)
            case "RANGE":
                found |= {letter for letter in ALPHABET if one[0] <= letter <= one[1]}
                if one[1] >= 128:
                    found.add(0xE9)
            case "CATEGORY":
                name = str(one).removeprefix("CATEGORY_")
                sample = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}[name.removeprefix("NOT_")]
                fits = {letter for letter in ALPHABET if re.match(sample, chr(letter))}
                found |= ALPHABET - fits if name.startswith("NOT_") else fits
            case _:
                raise AssertionError(kind)
    return ALPHABET - found if negated else frozenset(found)


def strongly_connected(after: dict[Any, list[Any]]) -> Iterator[list[Any]]:  # noqa: C901 - one algorithm, of Tarjan
    """The sets of nodes that lead to each other; a set of one node only where that leads to itself."""
    index, low, stack, on_stack = dict[Any, int](), dict[Any, int](), list[Any](), set[Any]()
    for root in list(after):
        if root in index:
            continue
        work = [(root, iter(after.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(after.get(other, ()))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    found = list[Any]()
                    while not found or found[-1] != node:
                        found.append(stack.pop())
                        on_stack.discard(found[-1])
                    if len(found) > 1 or node in after.get(node, ()):
                        yield found


def takes_for_ever(pattern: str | bytes, flags: int = 0) -> bool:
    parsed = _parser.parse(pattern, flags)
    found = Automaton()
    found.part(parsed)
    return found.has_two_ways_through_a_loop() or any(map(asserted_takes_for_ever, asserted_in(parsed)))


def begins_anew_in_a_loop(pattern: str | bytes, flags: int = 0) -> bool:
    """Whether a search may read a run of one letter again from each of its characters, and fail at its end."""
    lines = bool(re.compile(pattern, flags).flags & re.MULTILINE)
    return any(reads_a_run(way, letters) for way, letters in ways_to_begin(list(_parser.parse(pattern, flags)), lines))


def ways_to_begin(items: list[Any], lines: bool) -> Iterator[tuple[list[Any], Letters]]:
    """The expression, once for each branch that it may begin with, and the letters of runs in which it may begin anew.

    A condition guards a branch. The begin of a line does not guard it in a run of line breaks.
    """
    if not items:
        return
    code, value = items[0]
    match str(code):
        case "AT" if lines:
            yield items, frozenset({ord("\n")})
        case "AT" | "ASSERT" | "ASSERT_NOT":
            return
        case "BRANCH":
            for branch in value[1]:
                yield from ways_to_begin([*branch, *items[1:]], lines)
        case "SUBPATTERN":
            yield from ways_to_begin([*value[-1], *items[1:]], lines)
        case _:
            yield items, ALPHABET


def reads_a_run(items: list[Any], letters: Letters) -> bool:
    found = Automaton()
    whole = found.part(items)
    loops = {one for one, other in found.ways if one == other} - set(whole.last)
    return any(
        found.letters[first] & found.letters[loop] & letters
        for first in whole.first
        for loop in loops
        if first == loop or (first, loop) in found.ways
    )


def asserted_in(items: Any) -> Iterator[Any]:
    """What stands in look-ahead and look-behind, at any depth."""
    for code, value in items:
        match str(code):
            case "ASSERT" | "ASSERT_NOT":
                yield value[1]
                yield from asserted_in(value[1])
            case "SUBPATTERN":
                yield from asserted_in(value[-1])
            case "ATOMIC_GROUP":
                yield from asserted_in(value)
            case "BRANCH":
                for one in value[1]:
                    yield from asserted_in(one)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                yield from asserted_in(value[2])
            case _:
                pass


def asserted_takes_for_ever(items: Any) -> bool:
    found = Automaton()
    found.part(items)
    return found.has_two_ways_through_a_loop()


def patterns_in(value: Any, depth: int = 0) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict) and depth < 3:
        for one in value.values():
            yield from patterns_in(one, depth + 1)
    elif isinstance(value, (tuple, list)) and depth < 3 and len(value) < 100:
        for one in value:
            yield from patterns_in(one, depth + 1)


def own_expressions() -> dict[tuple[Any, int], str]:
    """Every compiled expression of a module, with a name of its place."""
    found = dict[tuple[Any, int], str]()
    for info in pkgutil.walk_packages(mailmend.__path__, "mailmend."):
        if not info.name.endswith("__main__"):
            for own, value in vars(importlib.import_module(info.name)).items():
                for pattern in patterns_in(value):
                    found.setdefault((pattern.pattern, pattern.flags), f"{info.name}.{own}")
    return found


def test_no_expression_of_ours_takes_for_ever() -> None:
    own = own_expressions()

    assert len(own) > 100
    assert [place for (pattern, flags), place in own.items() if takes_for_ever(pattern, flags & ~re.DEBUG)] == []


def test_no_search_of_ours_reads_a_run_again_from_each_of_its_characters() -> None:
    own = own_expressions()
    searched = {place: (pattern, flags & ~re.DEBUG) for (pattern, flags), place in own.items() if is_searched(place)}

    assert len(searched) > 40
    found = [place for place, (pattern, flags) in searched.items() if begins_anew_in_a_loop(pattern, flags)]
    assert found == []


def is_searched(place: str) -> bool:
    """Whether the module of an expression looks for it within texts."""
    module, _, name = place.rpartition(".")
    source = inspect.getsource(importlib.import_module(module))
    return re.search(rf"\b{name}\.(?:search|sub|subn|split|findall|finditer)\(", source) is not None


@pytest.mark.parametrize(
    "pattern", [r"\S+@\S+", r"\s*(a|b)", r"[a-z][a-z0-9]*\s*\(", "x|[^@]+@", "<[^>]*>", r"(?m)^\s*a"]
)
def test_a_search_that_begins_anew_is_found(pattern: str) -> None:
    assert begins_anew_in_a_loop(pattern)


@pytest.mark.parametrize("pattern", [r"(?<!\S)\S+@", r"\S+", r"^\s*a", "a{1,3}b", "<[^<>]*>", r"(?<!\w)[a-z]\w*\("])
def test_a_search_that_reads_each_run_once_is_let_be(pattern: str) -> None:
    assert not begins_anew_in_a_loop(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+b", "(a*)*b", "(a|aa)+b", "(ab|a|b)+c", "(([a-z0-9]+)[-_.]?)+$", r"(\w+\s?)*$", "(?=(a+)+b)", "(.*,)*x"],
)
def test_what_takes_for_ever_is_found(pattern: str) -> None:
    assert takes_for_ever(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["a+b", "(a+,)*b", "(ab|ac)*d", r"[a-z]+(?:\.[a-z]+)*", "(a?b)+", "a{1,63}(?:-a{1,63})*", '"(?:[^"]|"")*"'],
)
def test_what_does_not_take_for_ever_is_let_be(pattern: str) -> None:
    assert not takes_for_ever(pattern)
