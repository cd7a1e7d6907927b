"""What all requests to the queue and their answers share, and how a person is asked before one is carried out."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Generic, TypeVar
from uuid import UUID

from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.settings import QueueSettings
from mailmend.mailqueue.rules.mails import MailFilter, Whereabouts
from mailmend.model.errors import ExitCode, UnsafeRequest
from mailmend.model.ids import EnqueueId, QueueName
from mailmend.model.instants import instant_before

Q_co = TypeVar("Q_co", bound="QueueRequest", covariant=True)
T_co = TypeVar("T_co", covariant=True)

PAGE_MAILS: Final = 100
PREFETCH_DEFAULT: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRequest:
    """A request about a queue; its result refers to it."""

    settings: QueueSettings

    @property
    def queue(self) -> QueueName:
        return self.settings.name

    @property
    def home(self) -> Mapping[str, str]:
        """The keyspace of its tables; of a queue over Pulsar, which has none, the namespace of its topics."""
        if self.settings.pulsar:
            return {"namespace": self.settings.pulsar.namespace}
        return {"keyspace": self.settings.connection.keyspace}

    @property
    def place(self) -> str:
        """The name of either."""
        return next(iter(self.home.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunRequest(QueueRequest):
    """A request that writes, or with `dry_run` only looks."""

    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class QueueAnswer(Generic[Q_co, T_co]):
    """A request and its result."""

    request: Q_co
    found: T_co
    exit: ExitCode = ExitCode.FINE


@dataclass(frozen=True, slots=True)
class MailSelection:
    """A selection of mails, relative to the time of the request; every field None: all of them."""

    sender: str | None = None
    recipient: str | None = None
    name: str | None = None
    state: str | None = None
    older_than: timedelta | None = None
    newer_than: timedelta | None = None
    ids: tuple[UUID, ...] = ()
    where: str | None = None

    def at(self, now: datetime) -> MailFilter:
        whereabouts = None
        if self.where:
            whereabouts = Whereabouts(self.where)
        return MailFilter(
            sender=self.sender,
            recipient=self.recipient,
            name=self.name,
            state=self.state,
            older_than_at=instant_before(now, self.older_than),
            newer_than_at=instant_before(now, self.newer_than),
            enqueue_ids=frozenset(map(EnqueueId, self.ids)) or None,
            whereabouts=whereabouts,
        )


def confirm(question: str, caller: Caller, *, yes: bool) -> None:
    """Ask a person to agree.

    Raises:
        UnsafeRequest: there is no terminal to ask on, or the answer was no.
    """
    if yes:
        return
    if caller.ask is None:
        raise UnsafeRequest(
            f"there is no terminal to ask on: {question}", mend="Look first with --dry-run; then say --yes."
        )
    if not caller.ask(question):
        raise UnsafeRequest("nothing was done", mend="Say --yes, or answer with y.")
