"""Estimates of the sizes of tables, made from what the nodes that answered report."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from mailmend.model.table import Row

_MIB = 1024 * 1024
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP = 1024


@dataclass(frozen=True, slots=True)
class TableSize:
    """An estimate of one table's size; a figure is None where no node reports it.

    Attributes:
        partitions, bytes: of one copy, uncompressed; each node records them for its own ranges every five minutes.
        disk_bytes: the size of all copies on disk, in whole MiB.
        nodes_asked, nodes: the number of nodes that answered, and of all nodes; figures are scaled up to all.
    """

    partitions: int | None
    bytes: int | None
    disk_bytes: int | None
    nodes_asked: int
    nodes: int

    def __str__(self) -> str:
        parts = []
        if self.partitions is not None:
            parts.append(f"{self.partitions:,} partitions")
        if self.bytes is not None:
            parts.append(f"{bytes_text(self.bytes)} a copy")
        if self.disk_bytes is not None:
            parts.append(f"{bytes_text(self.disk_bytes)} on disk")
        if not parts:
            return "unknown"
        return f"about {', '.join(parts)} (estimate from {self.nodes_asked} of {self.nodes} nodes)"


def table_sizes(
    recorded: Sequence[Iterable[Row]], on_disk: Sequence[Iterable[Row]], nodes: int
) -> Mapping[str, TableSize]:
    """The sizes of one keyspace's tables, by name; tables that no node reports are left out.

    Args:
        recorded: for each node that answered, its rows of `system.size_estimates`.
        on_disk: for each node that answered, its rows of `system_views.disk_usage` (Cassandra 4.0 and later).
        nodes: how many nodes the cluster has.
    """
    partitions: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    disks: Counter[str] = Counter()
    for row in chain.from_iterable(recorded):
        partitions[row["table_name"]] += row["partitions_count"]
        sizes[row["table_name"]] += row["partitions_count"] * row["mean_partition_size"]
    for row in chain.from_iterable(on_disk):
        disks[row["table_name"]] += row["mebibytes"] * _MIB
    asked = max(len(recorded), len(on_disk))
    tables = {}
    for name in sorted({*partitions, *disks}):
        tables[name] = TableSize(
            _scaled(partitions.get(name), len(recorded), nodes),
            _scaled(sizes.get(name), len(recorded), nodes),
            _scaled(disks.get(name), len(on_disk), nodes),
            asked,
            nodes,
        )
    return tables


def _scaled(figure: int | None, asked: int, nodes: int) -> int | None:
    """Scaled up to all nodes: the nodes that were not asked are assumed to hold the same amount each."""
    if figure is None or not asked:
        return None
    return round(figure * max(nodes, asked) / asked)


def bytes_text(count: int) -> str:
    """A number of bytes for people, to three digits."""
    value = float(count)
    unit = 0
    while value >= _STEP and unit < len(_UNITS) - 1:
        value = value / _STEP
        unit = unit + 1
    if value < 1000:  # noqa: PLR2004 - three digits, which the last unit may exceed
        return f"{value:.3g} {_UNITS[unit]}"
    return f"{value:.0f} {_UNITS[unit]}"


MIB: Final = 1_048_576
