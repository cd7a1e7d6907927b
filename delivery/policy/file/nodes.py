"""YAML with places: the line and column of each value, so that an error can name them. The one door to PyYAML.

Nothing is made of a value beyond its text: `no` is a job's name, and `1.0` a rate, as they are written. Whatever a file
holds, it is read in bounded time and memory: its size, its depth and its nodes are limited, and a node counts each time
that an alias repeats it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, Final, NoReturn, TypeVar

import yaml

from mailmend.delivery.policy.file.forms import REFUSED_MAX, BadPolicyFile
from mailmend.delivery.policy.policies import DocumentPath
from mailmend.delivery.policy.policy import GroupName, MatchedField, PickupField, ValuePattern, pattern_of
from mailmend.model.errors import WrongUse
from mailmend.model.file_forms import FileForm, Scalar
from mailmend.model.grammar import ascii_domain
from mailmend.model.texts import Place, names_instead, surely_meant

T = TypeVar("T")
D = TypeVar("D")

FILE_BYTES_MAX: Final = 4 * 2**20
"""Bytes of a policy file; a larger one is refused."""

_TOO_LARGE: Final = f"A policy file has at most {FILE_BYTES_MAX:,} bytes."

DEPTH_MAX: Final = 50
"""Lists and mappings that may be within each other; a policy file has fewer than ten."""

NODES_MAX: Final = 1_000_000
"""Values, lists and mappings of a file, counted again wherever an alias repeats them."""

PATTERNS_MAX: Final = 1_000_000
"""Values of lists, counted wherever a list is named."""

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader of libyaml is ten times faster; it is missing where PyYAML was built without libyaml."""


@dataclass(slots=True)
class Refusals:
    """What is refused in a file so far.

    Attributes:
        by_place: the first error of each place. Later errors of the same place mostly follow from it.
        count: how often reading failed; a value that is read twice counts twice.
    """

    by_place: dict[Place, BadPolicyFile] = field(default_factory=dict)
    count: int = 0

    def add(self, error: BadPolicyFile) -> None:
        self.count += 1
        self.by_place.setdefault(error.place, error)

    def hide(self, lines: Collection[int]) -> None:
        """Have no error show these lines, whose numbers are from 1."""
        for error in list(self.by_place.values()):
            if error.place.line in lines:
                del self.by_place[error.place]
                hidden = replace(error.place, text="")
                problem = error.problem
                self.by_place[hidden] = BadPolicyFile(error.file, hidden, problem, mend=error.mend)

    @property
    def is_full(self) -> bool:
        return len(self.by_place) >= REFUSED_MAX

    @property
    def error(self) -> BadPolicyFile:
        """The one error for the whole file, of which something is refused."""
        by_line = sorted(self.by_place, key=lambda place: (place.line, place.column))
        errors = [self.by_place[place] for place in by_line]
        first = errors[0]
        if len(errors) == 1:
            return first
        return BadPolicyFile(first.file, first.place, first.problem, refused=errors)


@dataclass(slots=True)
class ValueLists:
    """The lists of a file, by name.

    Attributes:
        are_known: False where the file may name other lists, in a part that is refused.
        used: the names of the lists that something refers to.
        count: to how many values that comes.
        custom: the fields that the file declares, by name.
    """

    values: Mapping[str, Sequence["PolicyNode"]] = field(default_factory=dict)
    are_known: bool = True
    used: set[str] = field(default_factory=set)
    count: int = 0
    custom: Mapping[str, PickupField] = field(default_factory=dict)
    _parsed: dict[tuple[str, MatchedField], tuple[ValuePattern, ...]] = field(default_factory=dict)

    def named(self, name: str, field: MatchedField, node: "PolicyNode") -> tuple[ValuePattern, ...]:
        """The values of a list, which are read once for each field; `node` names the list."""
        if name not in self.values:
            if not self.are_known:
                node.refused.count += 1
                return ()
            mend = names_instead(name, self.values, mark="@")
            if ascii_domain(name) and "." in name:
                mend = f"Did you mean {name!r}? {mend}"
            node.note(f"there is no list '@{name}'", mend)
            name = surely_meant(name, self.values)
            if not name:
                return ()
        self.used.add(name)
        self.count += len(self.values[name])
        if self.count > PATTERNS_MAX:
            node.fail(f"lists are named too often: they come to more than {PATTERNS_MAX:,} values in this file")
        if (name, field) in self._parsed:
            return self._parsed[name, field]
        read = tuple(read_each(self.values[name], partial(_pattern, field)))
        if len(read) == len(self.values[name]):
            self._parsed[name, field] = read
        return read


@dataclass(frozen=True, slots=True)
class PolicyNode:
    """A value of a policy file, and its place.

    Attributes:
        refused: what is refused in the file so far. All nodes of a file share it.
        lists: the lists of the file, which all its nodes share too.
    """

    file: str
    lines: Sequence[str]
    node: yaml.Node
    refused: Refusals = field(default_factory=Refusals, compare=False, repr=False)
    lists: ValueLists = field(default_factory=ValueLists, compare=False, repr=False)

    @classmethod
    def of_text(cls, file: str, text: str, refused: Refusals) -> "PolicyNode":
        """The whole of a file; what is refused, and can be read over, is added to `refused`.

        Raises:
            BadPolicyFile: it is not YAML, or empty.
        """
        lines = text.splitlines() or [""]
        if len(text) > FILE_BYTES_MAX:
            raise BadPolicyFile(file, _place(lines, 0, 0), "the file is too large", mend=_TOO_LARGE)
        try:
            node = _Composer(file, lines, refused).composed(yaml.parse(text, Loader=_LOADER))
        except UnicodeEncodeError as error:
            raise BadPolicyFile(file, _place(lines, 0, 0), "half a character is in it") from error
        except yaml.MarkedYAMLError as error:
            place = _place(lines, 0, 0)
            mark = error.problem_mark
            if mark:
                place = _place(lines, mark.line, mark.column)
            raise BadPolicyFile(file, place, f"this is not YAML: {error.problem}") from error
        except yaml.YAMLError as error:
            raise BadPolicyFile(file, _place(lines, 0, 0), f"this is not YAML: {error}") from error
        if node is None:
            raise BadPolicyFile(file, _place(lines, 0, 0), "there are no policies in it", mend="Write at least [].")
        return cls(file, lines, node, refused)

    def fail(self, problem: str, mend: str = "") -> NoReturn:
        raise self._error(problem, mend)

    def note(self, problem: str, mend: str = "") -> None:
        """Refuse the file for this, and read on."""
        self.note_error(self._error(problem, mend))

    def note_error(self, error: BadPolicyFile) -> None:
        """Refuse the file for this, and read on.

        Raises:
            BadPolicyFile: reading stopped after the maximum number of refusals.
        """
        self.refused.add(error)
        if self.refused.is_full:
            raise error

    def _error(self, problem: str, mend: str) -> BadPolicyFile:
        mark = self.node.start_mark
        return BadPolicyFile(self.file, _place(self.lines, mark.line, mark.column), problem, mend=mend)

    def _child(self, node: yaml.Node) -> "PolicyNode":
        return PolicyNode(self.file, self.lines, node, self.refused, self.lists)

    def place_of(self, path: DocumentPath) -> Place:
        """The place of something below this: an entry of a mapping at its name, one of a list at its own beginning."""
        found = self.node
        mark = self.node.start_mark
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
    def is_merge(self) -> bool:
        return isinstance(self.node, yaml.ScalarNode) and self.node.value == "<<" and not self.node.style

    @property
    def is_value(self) -> bool:
        return isinstance(self.node, yaml.ScalarNode)

    @property
    def has_all_names(self) -> bool:
        """Whether this is a mapping, and each of its names can be read."""
        if not self.is_mapping:
            return False
        names = (self._child(name) for name, _ in self.node.value)
        return all(name.is_value and not name.is_merge for name in names)

    @property
    def names(self) -> Sequence[str]:
        """The names of a mapping as they are written; none where this is something else."""
        if not self.is_mapping:
            return ()
        return [name.value for name, _ in self.node.value if isinstance(name, yaml.ScalarNode)]

    def is_sure_of(self, part: str, form: FileForm) -> bool:
        """Whether a part is there once, or surely is not there: no other name may stand for it."""
        names = [name.value for name, _ in self.node.value]
        if part in names:
            return names.count(part) == 1
        return all(name in form.names for name in names)

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
        for pair in self.node.value:
            yield self._child(pair)

    def one_or_more(self) -> "Iterator[PolicyNode]":
        """The values of a list, or the single value."""
        values = [self.node]
        if self.is_list:
            values = self.node.value
        for value in values:
            yield self._child(value)

    def items(self, what: str) -> "Iterator[tuple[str, PolicyNode, PolicyNode]]":
        """The name, its place, and the value of each entry of a mapping."""
        if not isinstance(self.node, yaml.MappingNode):
            self.fail(f"{what} has entries like 'name: value'")
        names = set[str]()
        for name, value in self.node.value:
            key = self._child(name)
            if key.is_merge:
                key.note("merge keys (<<) are not read", "Write the entries out: YAML 1.2 has no merge keys.")
                continue
            for text in read_each([key], partial(PolicyNode.text, what=f"a name in {what}")):
                if text in names:
                    key.note(f"{text!r} is there twice in {what}")
                    continue
                names.add(text)
                yield text, key, self._child(value)

    def parts(self, form: FileForm) -> "Mapping[str, PolicyNode]":
        """The entries of a mapping that may have no others than the parts of a form.

        Another name is refused. Where it is surely a misspelt part, its value is read as that part: the
        errors within it are found too, and the part is not missed.
        """
        names = form.names
        found = dict[str, PolicyNode]()
        misspelt = dict[str, PolicyNode]()
        for name, key, value in self.items(form.what):
            if name in names:
                found[name] = value
            else:
                key.note(f"{form.what} has no {name!r}", names_instead(name, names, "It may have"))
                misspelt.setdefault(surely_meant(name, names), value)
        for name in names:
            if name in misspelt:
                found.setdefault(name, misspelt[name])
        return found

    def parsed(self, parse: Callable[[str], T], what: str) -> T:
        """What a parser makes of the text; what it refuses is said with its place."""
        text = self.text(what)
        try:
            return parse(text)
        except WrongUse as error:
            self.fail(error.what, error.mend)

    def parsed_name(self, parse: Callable[[str], T], known: Collection[str], what: str) -> T:
        """As `parsed`; a misspelt name is noted, and read as the one that is surely meant."""
        text = self.text(what)
        try:
            return parse(text)
        except WrongUse as error:
            self.note(error.what, error.mend)
            meant = surely_meant(text, known)
            if not meant:
                self.fail(error.what, error.mend)
            return parse(meant)


def read_each(nodes: Iterable[PolicyNode], read: Callable[[PolicyNode], T]) -> Iterator[T]:
    """What each node means; what is refused is noted, and the next one is read."""
    for node in nodes:
        try:
            meant = read(node)
        except BadPolicyFile as error:
            node.note_error(error)
        else:
            yield meant


def read_patterns(named: MatchedField, nodes: Iterable[PolicyNode]) -> tuple[ValuePattern, ...]:
    """What values of a field mean; `@name` is each value of a list."""
    return tuple(chain.from_iterable(read_each(nodes, partial(_meant, named))))


def read_ungrouped(named: MatchedField, node: PolicyNode, problem: str) -> tuple[ValuePattern, ...]:
    """What a value or several mean, where a group is a problem."""
    found = read_patterns(named, node.one_or_more())
    if any(isinstance(value, GroupName) for value in found):
        node.note(problem, "Write the values, or '@name' of a list.")
    return found


def _meant(named: MatchedField, node: PolicyNode) -> tuple[ValuePattern, ...]:
    text = node.text("a value")
    if text.startswith("@"):
        return node.lists.named(text[1:], named, node)
    return (_pattern(named, node),)


def _pattern(named: MatchedField, node: PolicyNode) -> ValuePattern:
    return node.parsed(partial(pattern_of, named), "a value")


def read_part(parts: Mapping[str, PolicyNode], name: str, read: Callable[[PolicyNode], T], otherwise: D) -> T | D:
    """What a part means; `otherwise` where it is missing, or is refused, which is noted."""
    if name not in parts:
        return otherwise
    return next(read_each([parts[name]], read), otherwise)


def read_parts(parts: Mapping[str, PolicyNode], form: FileForm, **reads: Callable[[PolicyNode], Any]) -> dict[str, Any]:
    """What the parts of a form mean, by their attributes; `reads` is for what is no single value.

    A part that is missing, that is refused, which is noted, or that has no reader is left out.
    """
    found = dict[str, Any]()
    for part in form.parts:
        read = reads.get(part.name)
        if isinstance(part.value, Scalar):
            read = partial(PolicyNode.parsed, parse=part.value.parse, what=part.name)
        if read and part.name in parts:
            for meant in read_each([parts[part.name]], read):
                found[part.attribute or part.name] = meant
    return found


@dataclass(slots=True)
class _OpenNode:
    """A list or mapping whose end has not come yet; the children of a mapping are its names and values in turn."""

    node: yaml.Node
    anchor: str | None
    count_before: int
    children: list[yaml.Node] = field(default_factory=list)


@dataclass(slots=True)
class _Composer:
    """Makes nodes of the events of a file, as far as the limits let it.

    Attributes:
        anchors: the nodes that aliases may repeat.
        sizes: the nodes within each of them and itself; it has none before its end.
        count: the nodes so far.
    """

    file: str
    lines: Sequence[str]
    refused: Refusals
    anchors: dict[str, yaml.Node] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    count: int = 0

    def composed(self, events: Iterable[yaml.Event]) -> yaml.Node | None:
        """The one document; None in an empty file."""
        top: yaml.Node | None = None
        unfinished = list[_OpenNode]()
        for event in events:
            if isinstance(event, yaml.CollectionEndEvent):
                self._finish(unfinished.pop(), event)
            elif isinstance(event, yaml.NodeEvent):
                node = self._node(event)
                if unfinished:
                    unfinished[-1].children.append(node)
                elif top is None:
                    top = node
                else:
                    self._fail(event, "this is a second document, and a policy file is one")
                if isinstance(event, yaml.CollectionStartEvent):
                    unfinished.append(_OpenNode(node, event.anchor, self.count - 1))
                    if len(unfinished) > DEPTH_MAX:
                        self._fail(event, f"lists and mappings are within each other more than {DEPTH_MAX} deep")
        return top

    def _node(self, event: yaml.NodeEvent) -> yaml.Node:
        if isinstance(event, yaml.AliasEvent):
            return self._repeated(event)
        if event.anchor in self.anchors:
            self._note(event, f"the anchor &{event.anchor} is there twice")
            self.sizes.pop(event.anchor, None)
        node: yaml.Node
        if isinstance(event, yaml.ScalarEvent):
            begin = event.start_mark
            node = yaml.ScalarNode(event.tag, event.value, begin, event.end_mark, event.style)
        elif isinstance(event, yaml.MappingStartEvent):
            node = yaml.MappingNode(event.tag, [], event.start_mark, flow_style=event.flow_style)
        else:
            node = yaml.SequenceNode(event.tag, [], event.start_mark, flow_style=event.flow_style)
        if event.anchor:
            self.anchors[event.anchor] = node
            if isinstance(event, yaml.ScalarEvent):
                self.sizes[event.anchor] = 1
        self._count(event, 1)
        return node

    def _repeated(self, event: yaml.AliasEvent) -> yaml.Node:
        if event.anchor not in self.anchors:
            problem = f"there is no anchor &{event.anchor} above this alias"
            return self._refused(event, problem, names_instead(event.anchor, self.anchors, mark="&"))
        if event.anchor not in self.sizes:
            return self._refused(event, f"the anchor &{event.anchor} repeats itself")
        self._count(event, self.sizes[event.anchor])
        return self.anchors[event.anchor]

    def _count(self, event: yaml.NodeEvent, more: int) -> None:
        self.count += more
        if self.count > NODES_MAX:
            self._fail(
                event, f"the file comes to more than {NODES_MAX:,} values, with the values of aliases counted again"
            )

    def _finish(self, finished: _OpenNode, end: yaml.CollectionEndEvent) -> None:
        children = finished.children
        if finished.node.flow_style:  # others end where the next thing begins
            finished.node.end_mark = end.start_mark
        if isinstance(finished.node, yaml.MappingNode):
            finished.node.value = list(zip(children[::2], children[1::2], strict=True))
        else:
            finished.node.value = children
        if finished.anchor:
            self.sizes[finished.anchor] = self.count - finished.count_before

    def _fail(self, event: yaml.NodeEvent, problem: str) -> NoReturn:
        raise self._error(event, problem)

    def _note(self, event: yaml.NodeEvent, problem: str, mend: str = "") -> None:
        self.refused.add(self._error(event, problem, mend))
        if self.refused.is_full:
            self._fail(event, problem)

    def _refused(self, event: yaml.NodeEvent, problem: str, mend: str = "") -> yaml.Node:
        """A value without text, which holds the place of an alias that means nothing."""
        self._note(event, problem, mend)
        self._count(event, 1)
        return yaml.ScalarNode("", "", event.start_mark, style="'")

    def _error(self, event: yaml.NodeEvent, problem: str, mend: str = "") -> BadPolicyFile:
        place = _place(self.lines, event.start_mark.line, event.start_mark.column)
        return BadPolicyFile(self.file, place, problem, mend=mend)


def _place(lines: Sequence[str], line: int, column: int) -> Place:
    """What is behind the last line is at its end."""
    if line >= len(lines):
        return Place(len(lines), len(lines[-1]) + 1, lines[-1])
    return Place(line + 1, column + 1, lines[line])
