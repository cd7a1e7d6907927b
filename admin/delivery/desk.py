"""The desk of a server of deliveries: what may be asked of it, and ordered, while it delivers.

The commands' own functions do the work, over the connections that the server has open, in the
caller's name. The policies of a server hold until it reads their file again.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeVar

from mailmend.admin.delivery.connections import asks_of_server, reply_classes, served_policy_file
from mailmend.admin.delivery.policy_explain import reaching
from mailmend.admin.delivery.policy_texts import (
    policy_path,
    quota_path,
    suspension_path,
    transport_path,
)
from mailmend.admin.delivery.show import ShowEntryRequest, entry_shown
from mailmend.admin.frame.caller import Caller, Question
from mailmend.admin.frame.http.desk import HealthStatus, PartHealth, TooManyCalls, WatchedParts
from mailmend.admin.frame.settings import QueueSettings
from mailmend.admin.frame.values import plain
from mailmend.admin.queue.connections import QueueConnections
from mailmend.delivery.mail.entries import EntryChange, EntryState, QueuedEntry
from mailmend.delivery.mail.reactions import ReplyReactions
from mailmend.delivery.metrics import class_samples
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
from mailmend.delivery.policy.file.description import INCOMING, POLICY, QUOTA, SUSPENSION
from mailmend.delivery.policy.file.forms import BadPolicyFile
from mailmend.delivery.policy.file.reading import PolicyFile
from mailmend.delivery.policy.file.reply_description import AUTOMATIC_RULE, REPLY_RULE
from mailmend.delivery.policy.file.transport_forms import TRANSPORT
from mailmend.delivery.policy.orders import Order, OrderKind, PlacedCondition
from mailmend.delivery.policy.policies import DocumentPath, PickupPolicies
from mailmend.delivery.policy.policy import PickupField
from mailmend.delivery.policy.sub_queues import ActiveMail
from mailmend.delivery.server.explaining import EntryStanding
from mailmend.delivery.server.serving import DeliveryServer
from mailmend.mailqueue.prometheus import metrics_text
from mailmend.model.errors import NotThere, UnsafeRequest, WrongUse
from mailmend.model.ids import EnqueueId
from mailmend.model.instants import nanos_of
from mailmend.model.json_forms import JsonField, JsonForm
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


Limit = Callable[[PickupPolicies], PolicyChanges]
"""Has the server work by these from now on, in place of those before."""


@dataclass(slots=True, eq=False)
class PoliciesInForce:
    """What holds, since when.

    Attributes:
        file: None: no file says anything.
        read: None without a file.
        changes: what reading it again has done last; None: it was read once.
        domain_concurrency: attempts at once for one domain, where the file has no policies; 0: no
            limit.
    """

    file: Path | None
    read_at: datetime | None = None
    domain_concurrency: int = 0
    read: PolicyFile | None = field(init=False)
    changes: PolicyChanges | None = None

    def __post_init__(self) -> None:
        self.read = self._read_file()

    def _read_file(self) -> PolicyFile | None:
        if self.file is None:
            return None
        try:
            return served_policy_file(self.file)
        except BadPolicyFile as error:
            raise error.in_short from None

    @property
    def said(self) -> PickupPolicies:
        return self._said(self.read)

    def reload(self, limit: Limit, now: datetime) -> PolicyChanges:
        """Let what the file says now hold, all of it; where it cannot be used, all stays as it was.

        Raises:
            BadPolicyFile: the server cannot use it; the message says where.
            WrongUse: it cannot be read, or asks for what only a new server does.
        """
        read = self._read_file()
        found = self._said(read)
        if found.algorithm is not self.said.algorithm:
            raise WrongUse("the algorithm of rates has changed", mend="Start the server anew.")
        self.changes = limit(found)
        self.read = read
        self.read_at = now
        return self.changes

    def _said(self, read: PolicyFile | None) -> PickupPolicies:
        """What a file says, with the limit that holds where it has no policies."""
        said = PickupPolicies()
        if read is not None:
            said = read.said
        return said.with_domain_limit(self.domain_concurrency)


def _all_from_one(numbers: Iterable[int]) -> list[int]:
    return [number + 1 for number in numbers]


_KEPT_POLICY: Final = JsonForm(
    body="KeptPolicy",
    about="A policy whose counts go on; its numbers in the file before and now.",
    answers={"before": JsonField(int, attribute=None), "now": JsonField(int, attribute=None)},
)


def _kept_policies(kept: Iterable[tuple[int, int]]) -> list[dict[str, Any]]:
    return [_KEPT_POLICY.json(None, before=before + 1, now=now + 1) for before, now in kept]


_RELOAD: Final = JsonForm(
    body="ReloadBody",
    about="What reading the file again has done.",
    answers={
        "kept": JsonField(_KEPT_POLICY, to_json=_kept_policies, many=True),
        "new": JsonField(list[int], to_json=_all_from_one),
        "dropped": JsonField(list[int], "Numbers in the file before.", to_json=_all_from_one),
    },
)
POLICIES_IN_FORCE: Final = JsonForm(
    body="PoliciesAnswer",
    about="The policies that hold now.",
    answers={
        "file": JsonField(str | None, "null: no file; a domain has its --domain-concurrency."),
        "read_at": JsonField(datetime),
        "algorithm": JsonField(
            Literal["tokenbucket", "fixedwindow", "sliding"],
            "",
            "said.algorithm",
        ),
        "fields": JsonField(list[str], "Attributes of mails that are fields.", "said.custom", list),
        "policies": JsonField(POLICY, "", None, many=True),
        "suspends": JsonField(SUSPENSION, "", None, many=True),
        "incoming": JsonField(INCOMING, "", None, many=True),
        "quotas": JsonField(QUOTA, "", None, many=True),
        "classes": JsonField(REPLY_RULE, "They come before the shipped rules.", None, many=True),
        "automation": JsonField(AUTOMATIC_RULE, "", None, many=True),
        "transports": JsonField(TRANSPORT, "", None, many=True),
        "tenants": JsonField(
            dict[str, int],
            "What tenants weigh that weigh more than others.",
            "said.weights",
        ),
        "reload": JsonField(
            _RELOAD,
            "null: the file was read once, at the start.",
            "changes",
            optional=True,
        ),
    },
)


def policies_json(served: PoliciesInForce) -> Mapping[str, Any]:
    """The file, when it was read, and what it says, all of it in its order."""
    said = served.said
    policies = list[Mapping[str, Any]]()
    for number, policy in enumerate(said.policies):
        line = _line(served, policy_path(number))
        policies.append(POLICY.json(policy, policy=number + 1, line=line))
    suspensions = list[Mapping[str, Any]]()
    for number, suspension in enumerate(said.suspensions):
        line = _line(served, suspension_path(number))
        suspensions.append(SUSPENSION.json(suspension, suspension=number + 1, line=line))
    incoming = list[Mapping[str, Any]]()
    for number, rule in enumerate(said.incoming):
        line = _line(served, ("incoming", number))
        incoming.append(INCOMING.json(rule, rule=number + 1, line=line))
    quotas = list[Mapping[str, Any]]()
    for number, quota in enumerate(said.quotas):
        line = _line(served, quota_path(number))
        quotas.append(QUOTA.json(quota, line=line))
    classes = list[Mapping[str, Any]]()
    for number, reply_rule in enumerate(said.classes):
        line = _line(served, ("classes", number))
        classes.append(REPLY_RULE.json(reply_rule, rule=number + 1, line=line))
    automation = list[Mapping[str, Any]]()
    for number, automatic_rule in enumerate(said.automation):
        line = _line(served, ("automation", number))
        automation.append(AUTOMATIC_RULE.json(automatic_rule, line=line))
    transports = list[Mapping[str, Any]]()
    for name, transport in said.transports.items():
        line = _line(served, transport_path(name))
        transports.append(TRANSPORT.json(transport, transport=name, line=line))
    found: Mapping[str, Any] = plain(
        POLICIES_IN_FORCE.json(
            served,
            policies=policies,
            suspends=suspensions,
            incoming=incoming,
            quotas=quotas,
            classes=classes,
            automation=automation,
            transports=transports,
        )
    )
    return found


def _line(served: PoliciesInForce, path: DocumentPath) -> int | None:
    """The line of a place in the file; None for a limit that the file does not name."""
    read = served.read
    if read is None or (path[0] == "policies" and not read.said.policies):
        return None
    return read.place_of(path).line


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


@dataclass(slots=True, kw_only=True, eq=False)
class DeliveryDesk:
    """Answers for one server; one event loop uses both.

    Attributes:
        parts: what the server is connected to.
        know_sources: has DNS asked for the addresses of the transports.
    """

    server: DeliveryServer
    connections: QueueConnections
    policies: PoliciesInForce
    listener: "MailListener | None" = None
    know_sources: Callable[[PickupPolicies], None] = lambda _: None
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
        if self.listener:
            yield from self.listener.samples()

    async def explained(self, name: str) -> MailExplanation:
        """Why a mail's recipients wait, or one: as this server has them, else as the queue knows them.

        Raises:
            NotThere: neither has it.
            TooManyCalls: others read the queue through already.
        """
        moment = self._moment()
        here = self.server.standings(name)
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
        own = tuple(source.address for source in self.server.settings.sources)
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
