"""A cluster of several nodes as the driver shows it: each answers for itself, keeps silent, or refuses.

Stands in for `cql.driver.session.CassandraCluster` where every node is asked one by one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from mailmend.cql.driver.session import EVERY_NODE
from mailmend.model.errors import MailmendError
from mailmend.model.table import Row
from tests.support.cluster_twin import ClusterTwin

_FROM = re.compile(r" FROM ([\w.]+)")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the driver gives for a statement: names, and tuples of values."""

    rows: Sequence[Row]

    @property
    def column_names(self) -> list[str] | None:
        return list(self.rows[0]) if self.rows else None

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return (tuple(row.values()) for row in self.rows)


@dataclass(frozen=True, slots=True)
class _Future:
    said: Sequence[Row] | Exception

    def result(self) -> Answer:
        """What the node says; what the driver raises where it says nothing."""
        if isinstance(self.said, Exception):
            raise self.said
        return Answer(self.said)


@dataclass(frozen=True, slots=True)
class Node:
    """One node, and what it tells by table; an exception is what the driver raises for it.

    Attributes:
        tells: by the table that is read; of any other it has no rows.
    """

    address: str
    tells: Mapping[str, Sequence[Row] | Exception] = field(default_factory=dict)
    is_up: bool = True


@dataclass(frozen=True, slots=True)
class _Bound:
    table: str
    values: Sequence[Any]

    def bind(self, values: Sequence[Any]) -> "_Bound":
        return _Bound(self.table, values)


class NodesTwin(ClusterTwin):
    """Nodes that answer for themselves, and the schemas that they share.

    Attributes:
        lacks: tables that no node has, with the error of whoever asks for them.
        bound: every table that was asked for, with the values.
    """

    def __init__(self, *nodes: Node, lacks: Mapping[str, MailmendError] | None = None, **twin: Any) -> None:
        super().__init__(**twin)
        self.nodes = nodes
        self.lacks = dict(lacks or {})
        self.bound: list[tuple[str, tuple[Any, ...]]] = []

    def nodes_up(self) -> list[Node]:
        return [node for node in self.nodes if node.is_up]

    def prepare(self, text: str) -> _Bound:
        """The statement, known by the table that it reads; refused where there is none."""
        found = _FROM.search(text)
        assert found, text
        if found[1] in self.lacks:
            raise self.lacks[found[1]]
        return _Bound(found[1], ())

    @property
    def session(self) -> Self:
        return self

    @property
    def cluster(self) -> Self:
        return self

    @property
    def metadata(self) -> Self:
        return self

    def all_hosts(self) -> Sequence[Node]:
        return self.nodes

    def execute_async(self, bound: _Bound, *, execution_profile: object, host: Node) -> _Future:
        assert execution_profile is EVERY_NODE
        assert host.is_up, "nobody who is down is asked"
        self.bound.append((bound.table, tuple(bound.values)))
        return _Future(host.tells.get(bound.table, ()))
