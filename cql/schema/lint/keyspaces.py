"""Rules about a keyspace: its replication, its views and its indexes."""

from collections.abc import Iterator
from typing import Final

from mailmend.cql.schema.lint.rule import Hit, Severity, rule
from mailmend.cql.schema.lint.subject import Subject
from mailmend.cql.statements import CreateIndex, CreateView
from mailmend.model.keyspace import Index
from mailmend.model.names import name_of, short_class, text_of

_OF_MANY_VALUES: Final = "uuid timeuuid timestamp date time inet blob decimal double float duration bigint varint"
_MANY_VALUES: Final = frozenset(_OF_MANY_VALUES.split())
_PERHAPS_MANY: Final = frozenset({"text", "ascii", "varchar", "int"})
_INNER: Final = frozenset({"values", "keys", "entries", "full"})


@rule(
    "T16",
    "SimpleStrategy",
    Severity.WARNING,
    "SimpleStrategy places copies without regard to data centres and racks: losing one rack may lose all copies of "
    "a row, and a second data centre cannot be added without a rebuild.",
    "Use NetworkTopologyStrategy with the copies of each data centre, even where there is only one.",
    docs="developing/cql/ddl.html",
)
def _simple_strategy(subject: Subject) -> Iterator[Hit]:
    strategy = short_class((subject.replication or {}).get("class", ""))
    if strategy == "SimpleStrategy":
        text = f"{subject.keyspace} is replicated by SimpleStrategy"
        yield Hit(text, "replication", statement=subject.replication_at)


@rule(
    "T22",
    "A materialised view",
    Severity.WARNING,
    "Views are experimental and off by default. Nothing finds out when a view and its table have gone apart, and "
    "the only repair is to drop the view and build it again.",
    "Write a table of your own next to the truth, declared as its projection, so that it can be checked and mended.",
    docs="developing/cql/mvs.html",
)
def _views(subject: Subject) -> Iterator[Hit]:
    created = {}
    for number, parsed in enumerate(subject.statements):
        if isinstance(parsed.statement, CreateView):
            created[name_of(parsed.statement.name.spelling)] = number
    for view in subject.schema.views:
        name = view.table.spelling
        text = f"{name} is a materialised view of {view.base}"
        yield Hit(text, statement=created.get(view.table.name), table=name)


@rule(
    "T23",
    "A secondary index on many values",
    Severity.WARNING,
    "Each node indexes only its own rows. A lookup of a value that few rows have asks node after node, most of "
    "them in vain.",
    "Keep a table keyed by that column; or use a storage-attached index (5.0) together with the partition key.",
    docs="developing/cql/indexing/2i/2i-when-to-use.html",
)
def _many_values(subject: Subject) -> Iterator[Hit]:
    """Cassandra's own index is local to each node; ScyllaDB's is global."""
    if not subject.release.is_cassandra:
        return
    created = {}
    for number, parsed in enumerate(subject.statements):
        if isinstance(parsed.statement, CreateIndex):
            created[_of(parsed.statement.index)] = number
    for index in subject.schema.indexes:
        kind = _type_of(subject, index)
        if text_of(index.using) or kind not in _MANY_VALUES | _PERHAPS_MANY:
            continue
        severity: Severity | None = Severity.NOTE
        judged = "good only where many rows share few values"
        if kind in _MANY_VALUES:
            severity = None
            judged = "nearly every row has its own value"
        text = f"{index.spelling or 'an index'} is on {index.target} of {index.table}, {kind}: {judged}"
        statement = created.get(_of(index))
        yield Hit(text, index.spelling or index.target, severity, statement=statement, table=index.table)


def _of(index: Index) -> tuple[str, str]:
    """What it is on, without its name: CREATE INDEX may leave the name to the server."""
    return name_of(index.table), name_of(index.target.strip())


def _type_of(subject: Subject, index: Index) -> str:
    """Type of the indexed column; "" inside a collection, or where it is not known."""
    target = index.target.strip()
    if target.partition("(")[0].lower() in _INNER and target.endswith(")"):
        return ""
    table = subject.table(name_of(index.table))
    name = name_of(target)
    if table is None or name not in table:
        return ""
    return table.column(name).type.lower()
