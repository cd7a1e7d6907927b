"""How the columns of a mirror and of its truth correspond, in both directions. Pure."""

from collections.abc import Container, Iterable, Iterator, Mapping

from mailmend.model.operations import Seen
from mailmend.model.table import Table
from mailmend.model.transforms import JoinedColumns

ColumnPairs = Iterable[tuple[str, str]]
"""Columns of a mirror that are written, each with the truth column behind it."""


def written(
    truth: Table,
    table: Table,
    sources: Mapping[str, str],
    left_out: Container[str],
) -> Iterator[tuple[str, str]]:
    """The columns of a mirror that are written.

    Args:
        truth: with its computed columns.
        table: the mirror's.
        sources: names of the truth's columns by names of the mirror's, where these may differ.
        left_out: the names of columns that are not written.
    """
    for name in table.names:
        source = sources.get(name, name)
        if name not in left_out and source in truth.names:
            yield name, source


def back(
    truth: Table,
    sources: Mapping[str, str],
    own: Mapping[str, str],
) -> Iterator[tuple[str, str | None]]:
    """Each column of the truth that a server has, with the mirror's column that holds it.

    Args:
        truth: with its computed columns.
        sources: names of the truth's columns by names of the mirror's, where these may differ.
        own: names of the mirror's columns by names of the truth's, where these may differ.
    """
    for name in truth.stored(truth.names):
        mine = own.get(name, name)
        if sources.get(mine, mine) == name:
            yield name, mine
        else:
            yield name, None


def joined(truth: Table, sources: ColumnPairs) -> Iterator[tuple[str, JoinedColumns]]:
    """Each mirror column whose text leads back to several columns of the truth."""
    rules = dict(truth.computed)
    for name, source in sources:
        rule = rules.get(source)
        if isinstance(rule, JoinedColumns):
            yield name, rule


def ends(truth: Table, sources: ColumnPairs, seen: Seen) -> dict[str, int]:
    """When the cells of a truth row expire, by the mirror's columns; its key with its row.

    Returns:
        Seconds since 1970; nothing for a cell that stays.
    """
    known = dict(seen.expires_at)
    if seen.ends_at is not None:
        known.update(dict.fromkeys(truth.key_names, seen.ends_at))
        for name, _ in truth.computed:
            known.setdefault(name, seen.ends_at)
    return {name: known[source] for name, source in sources if source in known}
