"""Which lines of a policy file may have a password, by mistake: no error shows them.

These are the lines of a `nexthop`, and of what is called password in whatever spelling.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from mailmend.delivery.policy.file.nodes import PolicyNode
from mailmend.delivery.policy.file.transport_forms import TRANSPORT
from mailmend.model.texts import surely_meant

_SECRET: Final = re.compile(r"next[-_ ]?hop|pass|pwd|secret", re.IGNORECASE)


def secret_lines(lines: Sequence[str], top: PolicyNode | None) -> Collection[int]:
    """The numbers of these lines, from 1.

    Args:
        lines: of the file.
        top: its content; None: it is no YAML, so each line from the first such name on is one.
    """
    if top is not None:
        found = set[int]()
        for begin, end in _spans(top.node):
            found.update(range(begin, end + 1))
        return found
    for number, text in enumerate(lines, 1):
        if _SECRET.search(text):
            return range(number, len(lines) + 2)
    return ()


def _spans(top: Any) -> Iterator[tuple[int, int]]:
    """The first and the last line of each entry with such a name. Any: nodes of PyYAML."""
    waiting = [top]
    seen = set[int]()  # what an alias repeats is one node
    while waiting:
        node = waiting.pop()
        if isinstance(node.value, str) or id(node) in seen:
            continue
        seen.add(id(node))
        for child in node.value:
            if not isinstance(child, tuple):
                waiting.append(child)
                continue
            name, value = child
            if _is_secret(name):
                yield _first_line(name), _last_line(name)
                yield from _all_lines(value)
            waiting += [name, value]


def _is_secret(name: Any) -> bool:
    if not isinstance(name.value, str):
        return False
    if _SECRET.search(name.value):
        return True
    return surely_meant(name.value, TRANSPORT.names) == "nexthop"


def _all_lines(top: Any) -> Iterator[tuple[int, int]]:
    """The lines of a value; what an alias repeats has its own place."""
    waiting = [top]
    seen = set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield _first_line(node), _last_line(node)
        if isinstance(node.value, str):
            continue
        for child in node.value:
            if isinstance(child, tuple):
                waiting += child
            else:
                waiting.append(child)


def _first_line(node: Any) -> int:
    line: int = node.start_mark.line + 1
    return line


def _last_line(node: Any) -> int:
    """What ends in column 0 ends with the line before: a block of text."""
    mark = node.end_mark
    if mark is None:
        return _first_line(node)
    last: int = mark.line + 1
    if not mark.column and last > _first_line(node):
        last -= 1
    return last
