"""YAML with places: what stands at which line and column, so that an error says where. The one door to PyYAML.

Nothing is made of a value beyond its text: `no` is a job's name, and `1.0` a rate, as they are written.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn, TypeVar

import yaml

from model.errors import WrongUse
from model.pickup.policies import DocumentPath
from model.pickup.policy import MatchedField, ValuePattern, pattern_of
from model.texts import Place

T = TypeVar("T")

_YES_NO: Final = {"true": True, "false": False}


class BadPolicyFile(WrongUse):
    """A policy file that cannot be used; the message says where, and what to write instead.

    Args:
        file: its name, as it was given.
        place: where.
        problem: what is wrong there.
    """

    def __init__(self, file: str, place: Place, problem: str, *, mend: str = "") -> None:
        super().__init__(f"{file}, line {place.line}, column {place.column}: {problem}\n{place.pointed}", mend=mend)
        self.file = file
        self.place = place
        self.problem = problem


@dataclass(frozen=True, slots=True)
class PolicyNode:
    """A value of a policy file, and where it stands."""

    file: str
    lines: Sequence[str]
    node: yaml.Node

    @classmethod
    def of_text(cls, file: str, text: str) -> "PolicyNode":
        """The whole of a file.

        Raises:
            BadPolicyFile: it is not YAML, or empty.
        """
        lines = text.splitlines() or [""]
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            place = _place(lines, mark.line, mark.column) if mark else _place(lines, 0, 0)
            raise BadPolicyFile(file, place, f"this is not YAML: {error.problem}") from error
        except yaml.YAMLError as error:
            raise BadPolicyFile(file, _place(lines, 0, 0), f"this is not YAML: {error}") from error
        if node is None:
            raise BadPolicyFile(file, _place(lines, 0, 0), "there are no policies in it", mend="Write at least [].")
        return cls(file, lines, node)

    def fail(self, problem: str, mend: str = "") -> NoReturn:
        mark = self.node.start_mark
        raise BadPolicyFile(self.file, _place(self.lines, mark.line, mark.column), problem, mend=mend)

    def place_of(self, path: DocumentPath) -> Place:
        """Where something below this stands: an entry of a mapping at its name, one of a list at its own beginning."""
        found, mark = self.node, self.node.start_mark
        for step in path:
            if isinstance(step, int):
                found = found.value[step]
                mark = found.start_mark
            else:
                name, found = next(pair for pair in found.value if pair[0].value == step)
                mark = name.start_mark
        return _place(self.lines, mark.line, mark.column)

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.node, yaml.MappingNode)

    @property
    def is_list(self) -> bool:
        return isinstance(self.node, yaml.SequenceNode)

    def text(self, what: str) -> str:
        if not isinstance(self.node, yaml.ScalarNode):
            self.fail(f"{what} is one value, and neither a list nor a mapping")
        value: str = self.node.value
        return value

    def listed(self, what: str) -> "Iterator[PolicyNode]":
        if not isinstance(self.node, yaml.SequenceNode):
            self.fail(f"{what} are a list", "Begin each of them with '- '.")
        for one in self.node.value:
            yield PolicyNode(self.file, self.lines, one)

    def one_or_more(self, what: str) -> "Iterator[PolicyNode]":
        """The values of a list, or the one that stands there."""
        if self.is_list:
            yield from self.listed(what)
        else:
            yield self

    def items(self, what: str) -> "Iterator[tuple[str, PolicyNode, PolicyNode]]":
        """The name, its place, and the value of each entry of a mapping."""
        if not isinstance(self.node, yaml.MappingNode):
            self.fail(f"{what} has entries like 'name: value'")
        names = set[str]()
        for name, value in self.node.value:
            key = PolicyNode(self.file, self.lines, name)
            text = key.text(f"a name in {what}")
            if text in names:
                key.fail(f"{text!r} is there twice in {what}")
            names.add(text)
            yield text, key, PolicyNode(self.file, self.lines, value)

    def known(self, what: str, *names: str) -> "Mapping[str, PolicyNode]":
        """The entries of a mapping that may have no others than these."""
        found = dict[str, PolicyNode]()
        for name, key, value in self.items(what):
            if name not in names:
                key.fail(f"{what} has no {name!r}", f"It may have: {', '.join(names)}.")
            found[name] = value
        return found

    def parsed(self, parse: Callable[[str], T], what: str) -> T:
        """What a parser makes of the text; what it refuses is said with its place."""
        text = self.text(what)
        try:
            return parse(text)
        except WrongUse as error:
            self.fail(error.what, error.mend)


@dataclass(frozen=True, slots=True)
class ValueLists:
    """The lists of a file, by name, and which of them are used."""

    values: Mapping[str, Sequence[PolicyNode]]
    used: set[str] = field(default_factory=set)

    def patterns(self, named: MatchedField, nodes: Iterable[PolicyNode]) -> Iterator[ValuePattern]:
        """What the values of a field mean; `@name` is each value of a list."""
        for node in nodes:
            text = node.text("a value")
            for one in self._refer(node, text[1:]) if text.startswith("@") else (node,):
                yield one.parsed(lambda value: pattern_of(named, value), "a value")

    def _refer(self, node: PolicyNode, name: str) -> Sequence[PolicyNode]:
        if name not in self.values:
            node.fail(f"there is no list '@{name}'", f"There are: {', '.join(self.values) or 'none'}.")
        self.used.add(name)
        return self.values[name]


def yes_or_no(text: str) -> bool:
    """What `true` and `false` say.

    Raises:
        WrongUse: it is neither.
    """
    if text.lower() not in _YES_NO:
        raise WrongUse(f"{text!r} is neither true nor false")
    return _YES_NO[text.lower()]


def _place(lines: Sequence[str], line: int, column: int) -> Place:
    line = min(line, len(lines) - 1)
    return Place(line + 1, column + 1, lines[line])
