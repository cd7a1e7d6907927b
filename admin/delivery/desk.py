"""The desk of a server of deliveries: what may be asked of it, and ordered, while it delivers.

The commands' own functions do the work, over the connections that the server has open, in the
caller's name. The policies of a server hold until it reads their file again.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from mailmend.admin.delivery.connections import asks_of_server, reply_classes
from mailmend.admin.delivery.policies_in_force import PoliciesInForce
from mailmend.admin.delivery.policy_explain import reaching
from mailmend.admin.delivery.show import ShowEntryRequest, entry_shown
from mailmend.admin.frame.caller import Caller, Question
from mailmend.admin.frame.http.desk import HealthStatus, PartHealth, TooManyCalls, WatchedParts
from mailmend.admin.frame.settings import QueueSettings
from mailmend.admin.queue.connections import QueueConnections
from mailmend.delivery.mail.entries import EntryChange, EntryState, QueuedEntry
from mailmend.delivery.mail.reactions import ReplyReactions
from mailmend.delivery.metrics import DOMAINS_MAX, class_samples, domain_samples
from mailmend.delivery.policy.counters import PolicyChanges
from mailmend.delivery.policy.explaining import (
    ExceededEntry,
    NextSource,
    SourceExplanation,
    as_in_file,
    exceeded_entries,
    explain_by,
    next_source,
)
from mailmend.delivery.policy.orders import Order, OrderKind, PlacedCondition
from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.policy.policy import PickupField
from mailmend.delivery.policy.sub_queues import ActiveMail
from mailmend.delivery.server.explaining import EntryStanding
from mailmend.delivery.server.in_hand import SubQueueState
from mailmend.delivery.server.serving import DeliveryServer
from mailmend.mailqueue.prometheus import metrics_text
from mailmend.model.errors import NotThere, UnsafeRequest
from mailmend.model.ids import EnqueueId
from mailmend.model.instants import nanos_of
from mailmend.model.metrics import MetricSample

if TYPE_CHECKING:
    from mailmend.delivery.smtp.incoming.listener import MailListener


def work_by(server: DeliveryServer, said: PickupPolicies) -> PolicyChanges:
    """Have a server work by what a policy file says from now on."""
    custom = said.custom.values()
    changes = server.limit(said.policies, said.suspensions, said.weights, custom)
    use_classes(server, said)
    server.send_by(said.transports)
    return changes


def use_classes(server: DeliveryServer, said: PickupPolicies) -> None:
    """Have a server work by a file's classes of replies and automatic rules from now on."""
    reactions_of(server).use(reply_classes(said.classes), said.automation)


def reactions_of(server: DeliveryServer) -> ReplyReactions:
    """The classes of replies by which a server works, and what it has counted."""
    assert server.hooks is not None  # a server has them from its beginning
    return server.hooks.reactions


Q = TypeVar("Q")
T = TypeVar("T")

_LOG: Final = logging.getLogger("mailmend.delivery")

READERS_MAX: Final = 2
"""How many calls read the queue through at once: each takes time from deliveries."""


@dataclass(frozen=True, slots=True)
class ServerMoment:
    """A server when it was asked.

    Attributes:
        at: the time.
        nanos: the same, by the clock that mails are picked by.
    """

    server: DeliveryServer
    policies: PoliciesInForce
    at: datetime
    nanos: int

    def in_file(self, sources: Sequence[SourceExplanation]) -> tuple[SourceExplanation, ...]:
        """As `as_in_file`, with the present run-time conditions."""
        placed: Sequence[PlacedCondition] = ()
        if self.server.orders:
            placed = self.server.orders.in_force.placed
        return as_in_file(sources, placed)

    @property
    def suspensions(self) -> Mapping[str, Order]:
        """Those by hand that the server heeds, by id."""
        if not self.server.orders:
            return {}
        holding = self.server.orders.in_force.holding[OrderKind.SUSPENSION]
        return {str(name): suspension for name, suspension in holding.items()}

    def at_nanos(self, nanos: int) -> datetime:
        """An instant of that clock."""
        return self.at + timedelta(microseconds=(nanos - self.nanos) // 1000)


@dataclass(frozen=True, slots=True)
class MailExplanation:
    """Why a mail's recipients wait.

    Attributes:
        here: those that the server has.
        queued: as the queue knows them, where the server has none.
    """

    moment: ServerMoment
    here: tuple[EntryStanding, ...]
    queued: tuple["QueuedStanding", ...]


@dataclass(frozen=True, slots=True)
class ValuesExplanation:
    """What holds for a mail with these values."""

    moment: ServerMoment
    mail: ActiveMail
    sources: tuple[SourceExplanation, ...]
    goes: NextSource | None


@dataclass(frozen=True, slots=True)
class QueuedStanding:
    """The state of an entry that this server does not have.

    Attributes:
        alike: what holds here for a mail with the values of its envelope; None where it is not
            active.
    """

    queued: QueuedEntry
    alike: ValuesExplanation | None


@dataclass(frozen=True, slots=True)
class ExceededAtServer:
    """What a server lets none begin of, as limits are used up.

    Attributes:
        entries: the ones for which most mails wait first; at most the number that was asked for.
        count: how many there are.
    """

    moment: ServerMoment
    entries: tuple[ExceededEntry, ...]
    count: int


@dataclass(frozen=True, slots=True)
class SubQueuesNow:
    """The sub-queues of a server, the ones with the most waiting mails first.

    Attributes:
        shown: at most the number that was asked for.
        left_out: how many more there are.
        waiting, going: of all of them.
    """

    moment: ServerMoment
    by: tuple[PickupField, ...]
    shown: tuple[SubQueueState, ...]
    left_out: int
    waiting: int
    going: int


@dataclass(slots=True, kw_only=True, eq=False)
class DeliveryDesk:
    """Answers for one server; one event loop uses both.

    Attributes:
        parts: what the server is connected to.
        know_sources: has DNS asked for the addresses of the transports.
        tell_others: has the other processes of this server read their policies again too.
    """

    server: DeliveryServer
    connections: QueueConnections
    policies: PoliciesInForce
    listener: "MailListener | None" = None
    know_sources: Callable[[PickupPolicies], None] = lambda _: None
    tell_others: Callable[[], None] = lambda: None
    parts: WatchedParts = field(init=False)
    _reading: int = 0

    def __post_init__(self) -> None:
        self.parts = WatchedParts(asks_of_server(self.connections), self.connections.clock)

    @property
    def settings(self) -> QueueSettings:
        return self.connections.settings

    async def done(self, work: Callable[[Q, Caller, QueueConnections], Awaitable[T]], request: Q, by: str = "") -> T:
        """The result of a command's work, in the name of who asks."""
        return await work(request, Caller(name=by, ask=_unconfirmed, remark=_log_remark), self.connections)

    async def read_through(
        self, work: Callable[[Q, Caller, QueueConnections], Awaitable[T]], request: Q, by: str = ""
    ) -> T:
        """As `done`, for work that reads the queue through.

        Raises:
            TooManyCalls: others do already.
        """
        if self._reading >= READERS_MAX:
            raise TooManyCalls(f"{READERS_MAX} calls read the queue through already", mend="Ask again in a moment.")
        self._reading += 1
        try:
            return await self.done(work, request, by)
        finally:
            self._reading -= 1

    def reload(self) -> PolicyChanges:
        """Have the server work by what its policy file says now; where that cannot be used, all stays as it was.

        Raises:
            BadPolicyFile, WrongUse: it cannot.
        """
        changes = self.policies.reload(self._limit, self.connections.now)
        said = self.policies.said
        others = {
            "suspensions": len(said.suspensions),
            "tenants": len(said.weights),
            "transports": len(said.transports),
        }
        _LOG.info("the policies were read again", extra={**changes.counts, **others})
        return changes

    def _limit(self, found: PickupPolicies) -> PolicyChanges:
        changes = work_by(self.server, found)
        self.know_sources(found)
        if self.listener:
            self.listener.intake.rules = found.incoming
            self.listener.intake.quotas.limit(found.quotas)
        return changes

    def samples(self) -> Iterable[MetricSample]:
        """What the server, and its listener, tell monitoring."""
        yield from self.server.samples()
        reactions = reactions_of(self.server)
        yield from class_samples(self.settings.name, reactions.seen, reactions.classes.names)
        yield from domain_samples(self.settings.name, self._refused_by_domain())
        if self.listener:
            yield from self.listener.samples()

    def _refused_by_domain(self) -> Iterator[tuple[str, int, str]]:
        """Each domain with most refusals of the last minute, and the class of its last reply."""
        reactions = reactions_of(self.server)
        recent = self.server.in_hand.work.recent
        for domain, count, last in recent.most_refused(self._moment().nanos, DOMAINS_MAX):
            named = ""
            if last is not None:
                reply = ""
                if last.text[:1].isdigit():  # else it is our own sentence
                    reply = last.text
                named = reactions.class_of(reply, last.status, last.text)
            yield domain, count, named

    async def explained(self, name: str) -> MailExplanation:
        """Why a mail's recipients wait, or one: as this server has them, else as the queue knows them.

        Raises:
            NotThere: neither has it.
            TooManyCalls: others read the queue through already.
        """
        moment = self._moment()
        here = self.server.in_hand.standings(name)
        queued: Sequence[QueuedEntry] = ()
        if not here:
            queued = (await self.read_through(entry_shown, ShowEntryRequest(settings=self.settings, id=name))).entries
            if not queued:
                mend = f"What was tried says: mailmend delivery show {self.settings.name} {name}"
                raise NotThere(f"{self.settings.name} has no {name} any more", mend=mend)
        standings = tuple(QueuedStanding(entry, self._alike(entry)) for entry in queued)
        return MailExplanation(moment, await self._with_intents(moment, here), standings)

    def _alike(self, queued: QueuedEntry) -> ValuesExplanation | None:
        """What holds here for a mail like it: it may be in the backlog of its sub-queue."""
        if queued.state is not EntryState.ACTIVE:
            return None
        said = {**queued.mail.fields, PickupField.RECIPIENT_DOMAIN: queued.entry.domain}
        values = {pickup_field: pickup_field.of(text) for pickup_field, text in said.items()}
        sending = self.server.transports.sending(values.get(PickupField.TRANSPORT_ID, ""))
        own = tuple(source.address for source in sending.sources)
        return self._explained(ActiveMail("", values, own, queued.mail.urgent))

    async def _with_intents(self, moment: ServerMoment, here: Sequence[EntryStanding]) -> tuple[EntryStanding, ...]:
        """Those that have not ended with what is ordered for after their attempts; all by the file's conditions."""
        orders = self.server.orders
        mails = {standing.entry.id.mail for standing in here if not standing.ended}
        known = dict[EnqueueId, Mapping[int, EntryChange]]()
        if orders:
            known = {mail: await orders.intents_of(mail) for mail in mails}
        standings = list[EntryStanding]()
        for standing in here:
            change = None
            if not standing.ended:
                change = known.get(standing.entry.id.mail, {}).get(standing.entry.id.number)
            if change and change.until is not None and change.until <= moment.at:
                change = None
            sources = moment.in_file(standing.sources)
            standings.append(replace(standing, sources=sources, after_attempt=change))
        return tuple(standings)

    def explained_by_values(self, values: Mapping[PickupField, str], local_ip: Sequence[str]) -> ValuesExplanation:
        """What would hold for a mail that is not there, among all that goes on; from this server's own addresses.

        Raises:
            WrongUse: something is no value of its field.
        """
        normal = {named: named.normal(text) for named, text in values.items()}
        given = [PickupField.LOCAL_IP.normal(address) for address in local_ip]
        sending = self.server.transports.sending(normal.get(PickupField.TRANSPORT_ID, ""))
        own = given or [source.address for source in sending.sources]
        left = reaching(own, normal.get(PickupField.REMOTE_IP, ""))
        return self._explained(ActiveMail("", normal, left))

    def _explained(self, mail: ActiveMail) -> ValuesExplanation:
        moment = self._moment()
        sources = explain_by(self.server.engine, mail, moment.nanos)
        return ValuesExplanation(moment, mail, moment.in_file(sources), next_source(self.server.engine, mail, sources))

    def exceeded(self, limit: int) -> ExceededAtServer:
        """The entries whose thresholds are exceeded now, at most `limit`."""
        moment = self._moment()
        found = exceeded_entries(self.server.engine, moment.nanos)
        shown = found[:limit]
        shares = SourceExplanation("", tuple(entry.share for entry in shown), ())
        (in_file,) = moment.in_file([shares])
        entries = list[ExceededEntry]()
        for entry, share in zip(shown, in_file.shares, strict=True):
            entries.append(replace(entry, share=share))
        return ExceededAtServer(moment, tuple(entries), len(found))

    def sub_queues(self, by: Sequence[PickupField], limit: int) -> SubQueuesNow:
        """The sub-queues by these fields: what this server has of them; neither tables nor the broker are asked."""
        states = self.server.in_hand.sub_queues(by)
        return SubQueuesNow(
            self._moment(),
            tuple(by),
            tuple(states[:limit]),
            max(0, len(states) - limit),
            sum(state.waiting for state in states),
            sum(state.going for state in states),
        )

    def _moment(self) -> ServerMoment:
        return ServerMoment(self.server, self.policies, self.connections.now, nanos_of(self.server.clock.monotonic()))

    async def metrics(self) -> bytes:
        """The same, in Prometheus's text format."""
        return metrics_text(self.samples()).encode()

    @property
    def is_ready(self) -> bool:
        """Whether the server takes mails, and what it is connected to has answered."""
        return self.server.is_ready and not self.parts.silent

    def health(self) -> Sequence[PartHealth]:
        """As far as the server knows without asking others now."""
        queue = ""
        if not self.server.is_ready:
            queue = "nothing is taken: the server starts, or ends"
        departures = ""
        if self.server.stuck:
            mails = f"{self.server.stuck:,} mails"
            departures = f"{mails} cannot leave the queue yet: the tables, the broker or the store do not answer"
        ledger = ""
        if self.server.orders and self.server.orders.is_failing:
            ledger = "what is ordered cannot be read, and stays as it was"
        parts = (_part("Queue", queue), _part("Departures", departures), _part("Ledger", ledger))
        return (*parts, *self.parts.health())


def _log_remark(text: str) -> None:
    _LOG.warning("a call over HTTP has a remark", extra={"remark": text})


def _unconfirmed(question: Question) -> NoReturn:
    raise UnsafeRequest(f"not confirmed: {question}", mend='Look first with "dry_run": true; then say "confirm": true.')


def _part(name: str, trouble: str) -> PartHealth:
    if trouble:
        return PartHealth(name, HealthStatus.DEGRADED, trouble)
    return PartHealth(name, HealthStatus.HEALTHY, "")
