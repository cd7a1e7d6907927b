"""The share of rows that differ, by table: what makes runs over growing tables comparable."""

from collections.abc import Collection, Mapping
from typing import Final

from mailmend.model.projections.verdicts import HARMLESS, Verdict

HARMLESS_NAMES: Final = frozenset(verdict.value for verdict in HARMLESS)
_NOT_READ: Final = (Verdict.PROJECT.value, "MISSING")
"""Verdicts, the last one of blobs, on rows that are not there."""


def shares_of_rows(
    scanned: Mapping[str, int],
    findings: Mapping[str, Mapping[str, int]],
    harmless: Collection[str] = HARMLESS_NAMES,
) -> dict[str, float]:
    """The share of rows that differ, from 0 to 1, by table that was read.

    Args:
        scanned: rows read, by table. Rows that are missing count as rows too.
        findings: rows by table and verdict.
        harmless: verdicts that are no drift.
    """
    shares = {}
    for table, read in scanned.items():
        counts = findings.get(table, {})
        rows = read + sum(counts.get(verdict, 0) for verdict in _NOT_READ)
        differing = sum(number for verdict, number in counts.items() if verdict not in harmless)
        if rows:
            shares[table] = min(1.0, differing / rows)
    return shares
