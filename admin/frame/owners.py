"""Whose mail it is: user and path of a mailbox, as `mailbox` tells them.

They are personal data: looked up for what a person asked to see, never kept in the ledger and never logged.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from mailmend.model.catalog.mail import PATHS, PRIVATE
from mailmend.model.errors import MailmendError
from mailmend.model.operations import Level, Read
from mailmend.model.ports import Tables
from mailmend.model.table import Row

MAILBOXES_AT_ONCE: Final = 100
"""Mailboxes that are looked up in one batch."""


class Owner(NamedTuple):
    """Whose a mailbox is, and its path below that user."""

    user: str
    path: str


def owners_of(
    mail: Callable[[], Tables], mailboxes: Iterable[UUID], remark: Callable[[str], None]
) -> dict[UUID, Owner]:
    """The owners that are known; where they cannot be asked for, that is remarked, and who is left stays an id."""
    found = dict[UUID, Owner]()
    waiting = iter(dict.fromkeys(mailboxes))
    try:
        while batch := tuple(islice(waiting, MAILBOXES_AT_ONCE)):
            reads = [Read(PATHS.mirror.table, (id_,), Level.LOCAL_QUORUM, joinable=True) for id_ in batch]
            for mailbox, answer in zip(batch, mail().read_all(reads), strict=True):
                if isinstance(answer, MailmendError):
                    raise answer
                if answer:
                    found[mailbox] = owner_in(PATHS.mirror.restored(answer[0].row))
    except MailmendError as error:
        remark(f"The owners of the mailboxes are not known: {error.what}.")
    return found


def owner_in(path: Row) -> Owner:
    """The owner that a row of mailboxPathV3 names."""
    names: Mapping[str, str] = {name: path.get(name) or "" for name in ("namespace", "user", "mailboxname")}
    mailbox = names["mailboxname"]
    if names["namespace"] != PRIVATE:
        mailbox = f"{names['namespace']}:{mailbox}"
    return Owner(names["user"], mailbox)
