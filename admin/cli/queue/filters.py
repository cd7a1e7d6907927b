"""The options that say which mails of a queue are meant."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

import click

from admin.cli.kinds import Duration
from admin.cli.options import with_options
from model.errors import WrongUse
from model.ids import EnqueueId
from model.queue.filters import MailFilter
from model.queue.mails import Whereabouts

C = TypeVar("C", bound=Callable[..., Any])

AGE_MAX: Final = timedelta(days=3650)
AGE: Final = Duration(AGE_MAX, zero=False)

_NAMES: Final = ("sender", "recipient", "name", "state", "older_than", "newer_than", "ids", "where")
_OPTIONS: Final = (
    click.option("--sender", metavar="ADDRESS", help="In any case; * stands for anything, <> is the null sender."),
    click.option("--recipient", metavar="ADDRESS", help="One of the recipients, likewise."),
    click.option("--name", metavar="NAME", help="The mail's name; * stands for anything."),
    click.option("--state", metavar="STATE", help="The processor that it waits for, like root; likewise."),
    click.option("--older-than", type=AGE, help="Enqueued longer ago than this."),
    click.option("--newer-than", type=AGE, help="Enqueued no longer ago than this."),
    click.option("--id", "ids", type=click.UUID, multiple=True, metavar="ID", help="Exactly this; may be repeated."),
    click.option(
        "--where", type=click.Choice([one.value for one in Whereabouts]), help="Only what waits, or is delayed."
    ),
)


@dataclass(frozen=True, slots=True)
class Filters:
    """What was asked for, before anybody has looked at a clock."""

    sender: str | None = None
    recipient: str | None = None
    name: str | None = None
    state: str | None = None
    older_than: timedelta | None = None
    newer_than: timedelta | None = None
    ids: tuple[UUID, ...] = ()
    where: str | None = None

    def meant(self, now: datetime) -> MailFilter:
        """The conditions, as of now."""
        return MailFilter(
            sender=self.sender,
            recipient=self.recipient,
            name=self.name,
            state=self.state,
            older_than_at=now - self.older_than if self.older_than else None,
            newer_than_at=now - self.newer_than if self.newer_than else None,
            enqueue_ids=frozenset(map(EnqueueId, self.ids)) or None,
            whereabouts=Whereabouts(self.where) if self.where else None,
        )

    @property
    def nothing(self) -> bool:
        """Whether nothing was asked for: every mail is meant."""
        return self == Filters()


def filter_options(command: C) -> C:
    """Give a command the filters; it receives them as one `filters: Filters`."""

    @functools.wraps(command)
    def with_filters(*args: Any, **given: Any) -> Any:
        filters = Filters(**{name: given.pop(name) for name in _NAMES})
        return command(*args, filters=filters, **given)

    return with_options(with_filters, _OPTIONS)  # type: ignore[return-value]


def refuse_everything(filters: Filters) -> None:
    """A guard before what removes: no condition at all is almost certainly a slip.

    Raises:
        WrongUse: nothing was asked for.
    """
    if filters.nothing:
        raise WrongUse(
            "no filter is given, so every mail would be removed",
            mend="Say which: --sender, --recipient, --name, --state, --older-than, --newer-than or --id; "
            "or remove them all: mailmend queue purge",
        )
