"""Rows of James that contradict each other, in a result."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from mailmend.admin.frame.values import IDS_SHOWN, fields_json
from mailmend.model.texts import printable
from mailmend.repair.scanners.mismatches import Mismatch

NAMED_MAX: Final = 1_000
"""The largest number of mismatches that the JSON names."""


def mismatches_json(mismatches: Sequence[Mismatch] | None) -> dict[str, Any]:
    """Their number, by table too, and the first of them; null where none was looked for."""
    if mismatches is None:
        return {"mismatches": None}
    first = []
    for mismatch in mismatches[:NAMED_MAX]:
        first.append(fields_json(mismatch, "table", "key", "by", "what", "mend"))
    by_table = Counter(mismatch.table for mismatch in mismatches)
    return {"mismatches": {"number": len(mismatches), "in": dict(by_table), "first": first}}


def mismatches_lines(mismatches: Sequence[Mismatch] | None) -> Iterator[str]:
    """A title, and two lines for each of the first: what was seen, and what mends it."""
    if not mismatches:
        return
    by_table = Counter(mismatch.table for mismatch in mismatches)
    tables = ", ".join(f"{name} {number:,}" for name, number in by_table.items())
    yield f"Rows that contradict each other, and that no repair mends: {tables}"
    for mismatch in mismatches[:IDS_SHOWN]:
        yield f"    {printable(mismatch.what)}"
        yield f"        {printable(mismatch.mend)}"
    if len(mismatches) > IDS_SHOWN:
        more = len(mismatches) - IDS_SHOWN
        yield f"    and {more:,} more: --json names the first {NAMED_MAX:,}"
