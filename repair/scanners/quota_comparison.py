"""Quotas of users against the messages in their mailboxes.

James adds and takes by events; a failed update is logged and never made up for. It counts anew by
the mailboxes of each user and messageIdTable (CurrentQuotaCalculator), and so does this rule. Team
mailboxes and uploads have quotas by other rules, and are left out.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final
from uuid import UUID

from mailmend.model.catalog.compared_tables import (
    CURRENT_QUOTA,
    MAILBOX_COMPONENT,
    QUOTA_TYPES,
    QUOTA_VALUE,
    quota_root,
)
from mailmend.model.catalog.left_tables import QUOTAS_ROUTE
from mailmend.model.catalog.mail import MAILBOX_PATH, MESSAGE_ID, PRIVATE
from mailmend.model.table import Table
from mailmend.repair.scanners.mismatches import Mismatch, RowReader

_OWNERS: Final = ("namespace", "user", "mailboxid")
_SIZES: Final = ("mailboxid", "fullcontentoctets")
READS: Final = ((MAILBOX_PATH, _OWNERS), (MESSAGE_ID, _SIZES))
"""What a comparison reads next to the table of quotas."""


class _Usage:
    """The messages of the mailboxes that share a quota.

    Attributes:
        unsized: messages of which messageIdTable has no size (from before James 3.7).
    """

    __slots__ = ("count", "size", "unsized")

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self.unsized = 0

    def add(self, size: int | None) -> None:
        self.count += 1
        if size is None:
            self.unsized += 1
        else:
            self.size += size

    def of(self, kind: str) -> int | None:
        """The sum of one type of quota; None where it is not known."""
        if kind == QUOTA_TYPES[0]:
            return self.count
        if self.unsized:
            return None
        return self.size


def quota_values(
    reader: RowReader,
    first: Collection[Mismatch] | None = None,
) -> Iterator[Mismatch]:
    """Quotas in quotaCurrentValue that are not the sums over the mailboxes of their users."""
    usages = _usages(reader, first)
    stored: Counter[tuple[str, str]] = Counter()
    for row in reader.rows(QUOTA_VALUE, *QUOTA_VALUE.names):
        if row["quotacomponent"] == MAILBOX_COMPONENT:
            stored[row["identifier"], row["quotatype"]] += row["currentvalue"] or 0
    yield from _differing(QUOTA_VALUE, usages, stored, first)


def current_quotas(
    reader: RowReader,
    first: Collection[Mismatch] | None = None,
) -> Iterator[Mismatch]:
    """The same of currentQuota, which James wrote before version 13 of its schema."""
    usages = _usages(reader, first)
    stored: Counter[tuple[str, str]] = Counter()
    for row in reader.rows(CURRENT_QUOTA, *CURRENT_QUOTA.names):
        for kind, column in zip(QUOTA_TYPES, ("messagecount", "storage"), strict=True):
            stored[row["quotaroot"], kind] += row[column] or 0
    yield from _differing(CURRENT_QUOTA, usages, stored, first)


def _usages(reader: RowReader, first: Collection[Mismatch] | None) -> dict[str, _Usage]:
    """What is used, by quota root; at a second look of the roots that differed.

    Memory: some 350 bytes for each mailbox of a user.
    """
    wanted = None
    if first is not None:
        wanted = {mismatch.key[0] for mismatch in first}
    roots: dict[UUID, str] = {}
    for row in reader.rows(MAILBOX_PATH, *_OWNERS):
        if row["namespace"] == PRIVATE and row["mailboxid"] is not None:
            root = quota_root(row["user"])
            if wanted is None or root in wanted:
                roots[row["mailboxid"]] = root
    usages = {root: _Usage() for root in roots.values()}
    if wanted is None:
        for row in reader.rows(MESSAGE_ID, *_SIZES):
            mailbox = row["mailboxid"]
            if mailbox in roots:
                usages[roots[mailbox]].add(row["fullcontentoctets"])
        return usages
    for mailbox, root in roots.items():
        for row in reader.rows(MESSAGE_ID, *_SIZES, under=(mailbox,)):
            usages[root].add(row["fullcontentoctets"])
    return usages


def _differing(
    table: Table,
    usages: Mapping[str, _Usage],
    stored: Mapping[tuple[str, str], int],
    first: Collection[Mismatch] | None,
) -> Iterator[Mismatch]:
    """The quotas of users that differ. A root without mailboxes uses nothing."""
    roots = set(usages)
    for root, _ in stored:
        if root.startswith(quota_root("")):
            roots.add(root)
    if first is not None:
        roots &= {mismatch.key[0] for mismatch in first}
    nothing = _Usage()
    for root in roots:
        for kind in QUOTA_TYPES:
            counted = usages.get(root, nothing).of(kind)
            known = stored.get((root, kind), 0)
            if counted is not None and counted != known:
                what = f"the {kind} of {root} is {known:,}, and its mailboxes have {counted:,}"
                key = (root, kind)
                by = known - counted
                yield Mismatch(table.spelling, key, by, what=what, mend=QUOTAS_ROUTE)
