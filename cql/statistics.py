"""Figures of a cluster's tables that CQL alone gives: virtual tables where they may be read, and size estimates.

Every figure is None where no node gave it. A table that this server does not have, or that these credentials may not
read, is a note, not a failure: the advice then rests on fewer figures, and says so.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mailmend.model.errors import AccessDenied, MailmendError, WrongUse
from mailmend.model.names import name_of
from mailmend.model.table import Row

MIB: Final = 1_048_576


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """The rows of one node, or the reason why it has no rows."""

    node: str
    rows: Sequence[Row] = ()
    error: MailmendError | None = None


Ask = Callable[[str, Sequence[Any]], Sequence[NodeAnswer]]
"""Asks every node that is up. Adapter: `cql.driver.nodes.ask_every_node`."""


@dataclass(frozen=True, slots=True)
class NodeFigure:
    """A per-table figure of each node; the cluster's figure is the sum or the worst node's."""

    figure: str
    table: str
    column: str
    together: Callable[[Iterable[float]], float]
    unit: float = 1


VIEWS: Final = (
    NodeFigure("disk_bytes", "disk_usage", "mebibytes", sum, MIB),
    NodeFigure("max_partition_bytes", "max_partition_size", "mebibytes", max, MIB),
    NodeFigure("local_read_p99_ms", "local_read_latency", "p99th_ms", max),
    NodeFigure("coordinator_read_p99_ms", "coordinator_read_latency", "p99th_ms", max),
    NodeFigure("rows_per_read_p99", "rows_per_read", "p99th", max),
    NodeFigure("tombstones_per_read_p99", "tombstones_per_read", "p99th", max),
)
"""The figures that are read from `system_views` (Cassandra 4.0 and later); sizes are in whole MiB there."""


SIZE_ESTIMATES: Final = (
    "SELECT table_name, mean_partition_size, partitions_count FROM system.size_estimates WHERE keyspace_name = ?"
)
"""The statement for a node's own size estimates of each table of a keyspace."""


@dataclass(frozen=True, slots=True)
class TableFigures:
    """The figures of one table.

    Attributes:
        partitions: an estimate, of one copy.
        mean_partition_bytes: an estimate, uncompressed.
        disk_bytes: the size on all nodes that answered, to whole MiB.
        max_partition_bytes, *_p99_*: the figure of the worst node.
    """

    partitions: int | None = None
    mean_partition_bytes: int | None = None
    disk_bytes: float | None = None
    max_partition_bytes: float | None = None
    local_read_p99_ms: float | None = None
    coordinator_read_p99_ms: float | None = None
    rows_per_read_p99: float | None = None
    tombstones_per_read_p99: float | None = None


@dataclass(frozen=True, slots=True)
class Statistics:
    """Figures of some tables, and how many nodes answered."""

    tables: Mapping[str, TableFigures]
    nodes_up: int = 1
    nodes_heard: int = 0
    hint_window_seconds: float | None = None
    notes: tuple[str, ...] = field(default=())


def read_statistics(ask: Ask, keyspace: str, tables: Sequence[str]) -> Statistics:
    """All figures that can be read of these tables (lower-case names)."""
    notes: Counter[str] = Counter()
    recorded = _rows_of(ask(SIZE_ESTIMATES, (name_of(keyspace),)), "system.size_estimates", notes)
    views: dict[str, Any] = {}
    for view in VIEWS:
        views[view.figure] = _view(ask, keyspace, view, notes)
    found = {}
    for name in tables:
        figures = {figure: by_table.get(name) for figure, by_table in views.items()}
        found[name] = replace(_estimate(recorded, name), **figures)
    answers = ask("SELECT release_version FROM system.local", ())
    heard = sum(answer.error is None for answer in answers)
    return Statistics(found, len(answers), heard, _hint_window(ask, notes), tuple(notes))


def _estimate(recorded: Sequence[Row] | None, table: str) -> TableFigures:
    if recorded is None:
        return TableFigures()
    partitions = 0
    content = 0
    for row in recorded:
        if row["table_name"] == table:
            partitions += row["partitions_count"]
            content += row["partitions_count"] * row["mean_partition_size"]
    if not partitions:
        return TableFigures(partitions, None)
    return TableFigures(partitions, round(content / partitions))


def _view(ask: Ask, keyspace: str, view: NodeFigure, notes: Counter[str]) -> dict[str, float]:
    place = f"system_views.{view.table}"
    text = f"SELECT keyspace_name, table_name, {view.column} FROM {place}"  # noqa: S608 - names of ours, declared above
    rows = _rows_of(ask(text, ()), place, notes) or ()
    figures: dict[str, list[float]] = {}
    for row in rows:
        if row["keyspace_name"] == name_of(keyspace) and row[view.column] is not None:
            figures.setdefault(row["table_name"], []).append(float(row[view.column]) * view.unit)
    return {name: view.together(found) for name, found in figures.items()}


def _hint_window(ask: Ask, notes: Counter[str]) -> float | None:
    """The longest hint window of any node; every version knows the name `max_hint_window_in_ms`."""
    text = "SELECT name, value FROM system_views.settings WHERE name = ?"
    rows = _rows_of(ask(text, ("max_hint_window_in_ms",)), "system_views.settings", notes) or ()
    windows = []
    for row in rows:
        if str(row["value"]).isdigit():
            windows.append(int(row["value"]) / 1000)
    return max(windows, default=None)


def _rows_of(answers: Sequence[NodeAnswer], place: str, notes: Counter[str]) -> list[Row] | None:
    """The rows of each node that answered; None when none did."""
    rows: list[Row] = []
    heard = False
    for answer in answers:
        if answer.error is None:
            heard = True
            rows.extend(answer.rows)
        else:
            notes[_note_of(answer, place)] += 1
    if not heard:
        return None
    return rows


def _note_of(answer: NodeAnswer, place: str) -> str:
    match answer.error:
        case AccessDenied():
            keyspace = place.partition(".")[0]
            return f"{place} may not be read with these credentials (GRANT SELECT ON KEYSPACE {keyspace} TO the role)."
        case WrongUse():
            return f"{place} is not there on this server, or has other columns."
        case error:
            reason = ""
            if error:
                reason = error.what
            return f"{place}: {answer.node} did not answer: {reason}"
