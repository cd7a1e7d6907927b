"""Mailboxes that are no more, of which rows are left, in a result."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from mailmend.admin.frame.values import first_ids
from mailmend.repair.scanners.gone_mailboxes import GoneMailbox

NAMED_MAX: Final = 1_000
"""The largest number of mailboxes that the JSON names."""


def gone_mailboxes_json(gone: Sequence[GoneMailbox] | None) -> dict[str, Any]:
    """Their number, by table too, and the first of them; null where none was looked for."""
    if gone is None:
        return {"gone_mailboxes": None}
    first = []
    for mailbox in gone[:NAMED_MAX]:
        first.append({"mailbox": str(mailbox.mailbox), "tables": list(mailbox.tables)})
    return {"gone_mailboxes": {"number": len(gone), "in": dict(_by_table(gone)), "first": first}}


def gone_mailboxes_lines(gone: Sequence[GoneMailbox] | None) -> Iterator[str]:
    if not gone:
        return
    tables = ", ".join(f"{name} {number:,}" for name, number in _by_table(gone).items())
    title = f"Mailboxes that are no more, with rows that are left: {len(gone):,} ({tables})"
    ids = [mailbox.mailbox for mailbox in gone]
    yield from first_ids(title, ids, len(gone), f": --json names the first {NAMED_MAX:,}")


def _by_table(gone: Sequence[GoneMailbox]) -> Counter[str]:
    numbers = Counter[str]()
    for mailbox in gone:
        numbers.update(mailbox.tables)
    return numbers
