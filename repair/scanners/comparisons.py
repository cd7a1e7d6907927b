"""The tables of James that have a rule of their own, and the rules of the small ones.

- `user`: `authorized_users` of an owner decides who may open the account, `delegated_users` of the
  other user lists the accounts that are shown. James writes both in one logged batch. It writes
  the second one only where the other user exists at that moment.
- `sieve_active` names the script that runs. `sieve.is_active` is only shown; James clears it
  whenever a script is uploaded, so a cleared flag is no evidence.
"""

from collections.abc import Collection, Iterator
from typing import Final
from urllib.parse import quote

from mailmend.model.catalog.compared_tables import (
    CURRENT_QUOTA,
    QUOTA_VALUE,
    SIEVE,
    SIEVE_ACTIVE,
    USER,
)
from mailmend.model.catalog.james_tables import ATTACHMENT
from mailmend.model.table import Table
from mailmend.repair.scanners.attachment_comparison import READS as OF_ATTACHMENTS
from mailmend.repair.scanners.attachment_comparison import attachments
from mailmend.repair.scanners.mismatches import ColumnsRead, Mismatch, RowReader, TableRule
from mailmend.repair.scanners.quota_comparison import READS as OF_QUOTAS
from mailmend.repair.scanners.quota_comparison import current_quotas, quota_values


def delegations(
    reader: RowReader,
    first: Collection[Mismatch] | None = None,
) -> Iterator[Mismatch]:
    """Accounts that are shown and not authorised, or authorised and not shown to a user.

    Memory: some 250 bytes for each user and for each delegation.
    """
    del first  # the table is small, and one side of a relation may be anywhere in it
    authorised: set[tuple[str, str]] = set()
    shown: set[tuple[str, str]] = set()
    users: set[str] = set()
    for row in reader.rows(USER, *USER.names):
        name = row["name"]
        if row["algorithm"] is not None:
            users.add(name)
        for other in row["authorized_users"] or ():
            authorised.add((name, other))
        for owner in row["delegated_users"] or ():
            shown.add((owner, name))
    for owner, other in shown - authorised:
        what = f"{other} is shown the account of {owner}, who does not authorise {other}"
        yield _of_delegation(owner, other, what, "DELETE")
    for owner, other in authorised - shown:
        if other in users:
            what = f"{owner} authorises {other}, who is not shown the account"
            yield _of_delegation(owner, other, what, "PUT")


def _of_delegation(owner: str, other: str, what: str, method: str) -> Mismatch:
    mend = f"{method} /users/{_in_path(owner)}/authorizedUsers/{_in_path(other)}"
    return Mismatch(USER.spelling, (other, owner), what=what, mend=mend)


def _in_path(text: str) -> str:
    return quote(text, safe="@")


def scripts(
    reader: RowReader,
    first: Collection[Mismatch] | None = None,
) -> Iterator[Mismatch]:
    """Active scripts that are not there, and scripts that are shown as active and do not run."""
    del first
    active: dict[str, str] = {}
    for row in reader.rows(SIEVE_ACTIVE, *SIEVE_ACTIVE.names):
        active[row["user_name"]] = row["script_name"] or ""
    there = set()
    for row in reader.rows(SIEVE, *SIEVE.names):
        user = row["user_name"]
        name = row["script_name"]
        runs = active.get(user)
        if name == runs:
            there.add(user)
        elif row["is_active"]:
            yield _shown_as_active(user, name, runs)
    for user in active.keys() - there:
        name = active[user]
        what = f"the active script of {user}, {name!r}, is not in {SIEVE.spelling}: no script runs"
        script = f"/sieve/{_in_path(user)}/scripts/{_in_path(name)}"
        mend = f"PUT {script}?activate=true, with the script"
        yield Mismatch(SIEVE_ACTIVE.spelling, (user,), what=what, mend=mend)


def _shown_as_active(user: str, name: str, runs: str | None) -> Mismatch:
    """A flag that does not agree with the script that runs; `runs` is None where none does."""
    which = "no script runs"
    if runs is not None:
        which = f"{runs!r} runs"
    what = f"{user} is shown {name!r} as the active script, and {which}"
    mend = f'ManageSieve of {user}: SETACTIVE "{name}", then SETACTIVE "{runs or ""}"'
    return Mismatch(SIEVE.spelling, (user, name), what=what, mend=mend)


def _whole(*tables: Table) -> tuple[tuple[Table, ColumnsRead], ...]:
    return tuple((table, table.names) for table in tables)


TABLE_RULES: Final = (
    TableRule(USER, _whole(USER), delegations),
    TableRule(SIEVE_ACTIVE, _whole(SIEVE_ACTIVE, SIEVE), scripts),
    TableRule(QUOTA_VALUE, (*_whole(QUOTA_VALUE), *OF_QUOTAS), quota_values, is_large=True),
    TableRule(CURRENT_QUOTA, (*_whole(CURRENT_QUOTA), *OF_QUOTAS), current_quotas, is_large=True),
    TableRule(ATTACHMENT, OF_ATTACHMENTS, attachments, is_large=True),
)
"""Every rule of its own. A large one is looked at only where its table is named."""
