"""What a server of deliveries tells monitoring.

No label names a mail or an address. One metric names domains, at most `DOMAINS_MAX` at once.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from mailmend.delivery.mail.attempts import UncertainPolicy
from mailmend.delivery.mail.entries import EntryEnd, EntryStage, EntryState
from mailmend.delivery.mail.notices import ReportReader
from mailmend.delivery.policy.orders import Order, PlacedCondition
from mailmend.delivery.policy.quotas import QuotaUsage
from mailmend.delivery.policy.shares import ShareState
from mailmend.delivery.policy.sub_queues import PickupFigures
from mailmend.delivery.smtp.incoming.replies import REFUSALS
from mailmend.model.ids import QueueName
from mailmend.model.metrics import Metric, MetricSample

_LOAD: Final = "Informational: the load of the server. A queue that makes no progress has a trouble with its own alert"
_IN_LEDGER: Final = "The journal is in the ledger, with suspensions: MailmendSuspensionsUnread covers it"

ENDED: Final = Metric(
    "mailmend_delivery_recipients_total",
    "Recipients whose turn ended, by result: delivered, refused for now, failed, expired, "
    "returned to the queue (for want of room or at the end of the server), deleted by a hook or a "
    "command",
    ("queue", "end"),
)
STAGES: Final = Metric(
    "mailmend_delivery_active_recipients",
    "Recipients that this server delivers now, by stage",
    ("queue", "stage"),
    no_alert=_LOAD,
)
HELD: Final = Metric(
    "mailmend_delivery_mails", "Mails that this server has taken from the queue", ("queue",), no_alert=_LOAD
)
LOOKED_AT: Final = Metric(
    "mailmend_delivery_looked_at_timestamp_seconds",
    "When this was written",
    ("queue",),
)
SUSPENSIONS: Final = Metric(
    "mailmend_delivery_suspensions",
    "Suspensions by hand that this server obeys (`mailmend suspend list QUEUE` names them)",
    ("queue",),
    no_alert="An operator made each suspension and gave its reason; the queue has an alert on mails that wait for long",
)
SUSPENSIONS_UNREAD: Final = Metric(
    "mailmend_delivery_suspensions_unread",
    "Suspensions with a field that this version cannot read: each holds more mails than it names "
    "(`mailmend suspend list QUEUE` names them)",
    ("queue",),
    no_alert="The queue has an alert on mails that wait for long; the log names the suspension",
)
CONDITIONS_UNREAD: Final = Metric(
    "mailmend_delivery_conditions_unread",
    "Run-time conditions that this version cannot read: each blocks the mails that it names, or "
    "is parked (`mailmend policy list QUEUE` names them)",
    ("queue",),
    no_alert="The queue has an alert on mails that wait for long; the log names the condition",
)
CONDITIONS: Final = Metric(
    "mailmend_delivery_conditions",
    "Run-time conditions of this server. They set limits before the policy file's conditions, or "
    "are parked because no policy counts by their fields (`mailmend policy list QUEUE` names "
    "them)",
    ("queue", "state"),
    no_alert="An operator made each condition and gave its reason; the log has the reason why one is parked",
)
SUSPENSIONS_READ: Final = Metric(
    "mailmend_delivery_suspensions_read_timestamp_seconds",
    "When this server last read suspensions and conditions; where the ledger cannot be read, the "
    "last ones remain in force",
    ("queue",),
)
TURNS: Final = Metric(
    "mailmend_delivery_pickup_turns_total",
    "Turns of mails that policies count together: one was picked, or limits refused all source addresses",
    ("queue", "end"),
    no_alert="Refusals are the purpose of limits. A server that sends nothing raises MailmendDeliveryOnlyRefused",
)
WAKES: Final = Metric(
    "mailmend_delivery_pickup_wakes_total",
    "Number of retries by mails that waited for a limit which has room again",
    ("queue",),
    no_alert=_LOAD,
)
SUB_QUEUES: Final = Metric(
    "mailmend_delivery_pickup_sub_queues",
    "Groups of waiting mails, each of one tenant and counted together by policies: ready for a "
    "turn, or blocked by limits",
    ("queue", "state"),
    no_alert=_LOAD,
)
COUNTERS: Final = Metric(
    "mailmend_delivery_pickup_counters",
    "Counters of policies that are in use: clear, or refusing one more delivery now",
    ("queue", "state"),
    no_alert=_LOAD,
)
_PICKUP: Final = (TURNS, WAKES, SUB_QUEUES, COUNTERS)
UNCERTAIN: Final = Metric(
    "mailmend_delivery_uncertain_recipients_total",
    "Recipients whose server may have the mail because its answer was lost, by what was done: `--uncertain`",
    ("queue", "policy"),
    no_alert="Each one has a line in the log; a held mail waits for a person: `mailmend delivery list --in-state hold`",
)
REFUSED_ATTEMPTS: Final = Metric(
    "mailmend_delivery_refused_attempts_total",
    "Attempts at one server that did not deliver, by the class of the reply, of the shipped table "
    "or of `classes` of the policy file (`mailmend policy classify`)",
    ("queue", "class"),
    no_alert="Informational: recipients that fail have an alert, and `automation` acts on classes",
)
DOMAINS_MAX: Final = 10
"""The largest number of domains that a server names at once."""

REFUSED_BY_DOMAIN: Final = Metric(
    "mailmend_delivery_domain_refused_recipients",
    "Recipients that were refused for now within the last minute, of the 10 domains with most; "
    "the class is of the domain's last such reply",
    ("queue", "domain", "class"),
    no_alert="Informational: MailmendDeliveryOnlyRefused covers a queue that delivers nothing",
)
JOURNAL_UP: Final = Metric(
    "mailmend_delivery_journal_up",
    "Whether the journal of attempts took what this server wrote last",
    ("queue",),
    no_alert=_IN_LEDGER,
)
JOURNAL_UNWRITTEN: Final = Metric(
    "mailmend_delivery_journal_unwritten_attempts",
    "Attempts under way whose beginning is not in the journal: after a kill they are made again",
    ("queue",),
    no_alert=_IN_LEDGER,
)
LOST_REPORTS: Final = Metric(
    "mailmend_delivery_lost_reports_total",
    "Reports, and other mails without a sender, that could not be delivered, by recipient of the "
    "notice: postmaster or nobody",
    ("queue", "told"),
)
SERVERS: Final = Metric(
    "mailmend_delivery_servers",
    "Servers that share the limits of the queue, as this one knows (`mailmend delivery servers QUEUE` names them)",
    ("queue",),
    no_alert="Only the operators know how many servers there should be",
)
SHARE: Final = Metric(
    "mailmend_delivery_share",
    "1 for the state of this server's share of shared limits: has it, waits for it, or is cut off "
    "and starts no delivery",
    ("queue", "state"),
    no_alert="A server that loses its membership cannot read orders either; MailmendSuspensionsUnread covers it",
)
_ORDERS: Final = (SUSPENSIONS, SUSPENSIONS_UNREAD, CONDITIONS, CONDITIONS_UNREAD, SUSPENSIONS_READ)
DELIVERY_METRICS: Final = (
    *(ENDED, STAGES, HELD, LOOKED_AT, UNCERTAIN, REFUSED_ATTEMPTS, REFUSED_BY_DOMAIN),
    *(JOURNAL_UP, JOURNAL_UNWRITTEN, LOST_REPORTS),
    *_PICKUP,
    *_ORDERS,
    *(SERVERS, SHARE),
)

_THEIRS: Final = "The clients decide how much they send"
TAKEN: Final = {
    "mails": Metric(
        "mailmend_listener_mails_total",
        "Mails of clients that were put into the queue; a mail that rules split counts once for each part",
        ("queue",),
    ),
    "recipients": Metric(
        "mailmend_listener_recipients_total",
        "Recipients of the mails that clients handed over",
        ("queue",),
        _THEIRS,
    ),
    "bytes": Metric(
        "mailmend_listener_bytes_total",
        "Bytes of the mails that clients handed over",
        ("queue",),
        _THEIRS,
    ),
}
REFUSED: Final = Metric(
    "mailmend_listener_refused_total",
    "Refusals to clients, by the enhanced status code of the reply: 4.3.0 the queue does not take the mail, 4.3.1"
    " there is no room for it, 4.3.2 no more connections or the server ends, 4.4.2 it took too long, 4.5.3 too many"
    " recipients, 4.7.0 too many commands, errors or wrong passwords, 5.1.x and 5.6.7 an address, 5.3.4 too large,"
    " 5.4.6 a circle, 5.6.0 a NUL byte, 5.5.x a command, 5.7.0 without TLS or login, 5.7.1 a client that may not hand"
    " over mails, 5.7.8 a wrong password; rules and hooks refuse with codes of their own",
    ("queue", "status"),
)
CONNECTIONS: Final = Metric(
    "mailmend_listener_connections",
    "Connections of clients that are open",
    ("queue",),
    no_alert="A client without room is asked to come again later, and counted as refused with 4.3.2",
)
QUOTA_REFUSED: Final = Metric(
    "mailmend_listener_quota_refused_total",
    "Mails, or recipients of them, that clients were refused because a quota is full; they come again",
    ("queue", "quota"),
)
QUOTA_USED: Final = Metric(
    "mailmend_listener_quota_used_ratio",
    "Used part of a quota, for the key that has used most of it: 1 is full",
    ("queue", "quota"),
    no_alert="A full quota is reported by its refusals",
)
QUOTA_COUNTED: Final = Metric(
    "mailmend_listener_quota_counted_timestamp_seconds",
    "When the present count for quotas began; no mail is taken before the first count has ended",
    ("queue",),
)
LISTENER_METRICS: Final = (*TAKEN.values(), REFUSED, CONNECTIONS, QUOTA_REFUSED, QUOTA_USED, QUOTA_COUNTED)

_ACTIVE: Final = tuple(stage for stage in EntryStage if stage.state is EntryState.ACTIVE)


def delivery_samples(
    queue: QueueName, ended: Mapping[EntryEnd, int], stages: Counter[EntryStage], mails: int, micros: int
) -> Iterator[MetricSample]:
    """Every end and stage, also the ones with a count of 0; `micros` is the time."""
    for end in EntryEnd:
        yield MetricSample(ENDED, (queue, end.name.lower()), ended.get(end, 0))
    for stage in _ACTIVE:
        yield MetricSample(STAGES, (queue, stage.value), stages[stage])
    yield MetricSample(HELD, (queue,), mails)
    yield MetricSample(LOOKED_AT, (queue,), micros / 1_000_000)


def pickup_samples(queue: QueueName, figures: PickupFigures) -> Iterator[MetricSample]:
    """What has been picked up, and what waits for which reason."""
    yield MetricSample(TURNS, (queue, "picked"), figures.picks)
    yield MetricSample(TURNS, (queue, "refused"), figures.refusals)
    yield MetricSample(WAKES, (queue,), figures.wakes)
    yield MetricSample(SUB_QUEUES, (queue, "ready"), figures.ready)
    yield MetricSample(SUB_QUEUES, (queue, "blocked"), figures.blocked)
    yield MetricSample(COUNTERS, (queue, "clear"), figures.clear)
    yield MetricSample(COUNTERS, (queue, "refusing"), figures.refusing)


def journal_samples(
    queue: QueueName, done: Mapping[UncertainPolicy, int], unwritten: int, *, answers: bool
) -> Iterator[MetricSample]:
    """Every policy, also one that decided nothing; `unwritten` attempts are under way."""
    for policy in UncertainPolicy:
        yield MetricSample(UNCERTAIN, (queue, policy.value), done.get(policy, 0))
    yield MetricSample(JOURNAL_UP, (queue,), int(answers))
    yield MetricSample(JOURNAL_UNWRITTEN, (queue,), unwritten)


def class_samples(
    queue: QueueName,
    seen: Mapping[str, int],
    names: Iterable[str],
) -> Iterator[MetricSample]:
    """Every class that there is, also with a count of 0."""
    for name in names:
        yield MetricSample(REFUSED_ATTEMPTS, (queue, name), seen.get(name, 0))


def domain_samples(
    queue: QueueName,
    refused: Iterable[tuple[str, int, str]],
) -> Iterator[MetricSample]:
    """Of each domain: how many recipients were refused, and the class of the last reply."""
    for domain, count, named in refused:
        yield MetricSample(REFUSED_BY_DOMAIN, (queue, domain, named), count)


def report_samples(queue: QueueName, lost: Mapping[ReportReader, int]) -> Iterator[MetricSample]:
    for reader in ReportReader:
        yield MetricSample(LOST_REPORTS, (queue, reader.value), lost.get(reader, 0))


def share_samples(queue: QueueName, servers: int, state: ShareState) -> Iterator[MetricSample]:
    """How many servers share, and the state of this server's share."""
    yield MetricSample(SERVERS, (queue,), servers)
    for share_state in ShareState:
        yield MetricSample(SHARE, (queue, share_state.value), int(share_state is state))


def order_samples(
    queue: QueueName, suspensions: Collection[Order], conditions: Collection[PlacedCondition], read_micros: int
) -> Iterator[MetricSample]:
    """How many hold, and when they were read, in microseconds since 1970."""
    parked = sum(bool(condition.parked) for condition in conditions)
    yield MetricSample(SUSPENSIONS, (queue,), len(suspensions))
    yield MetricSample(SUSPENSIONS_UNREAD, (queue,), sum(bool(suspension.unread) for suspension in suspensions))
    yield MetricSample(CONDITIONS, (queue, "set"), len(conditions) - parked)
    yield MetricSample(CONDITIONS, (queue, "parked"), parked)
    yield MetricSample(CONDITIONS_UNREAD, (queue,), sum(bool(condition.order.damage) for condition in conditions))
    yield MetricSample(SUSPENSIONS_READ, (queue,), read_micros / 1_000_000)


def listener_samples(
    queue: QueueName, taken: Mapping[str, int], refused: Mapping[str, int], connections: int
) -> Iterator[MetricSample]:
    """What was taken and refused since the listener began; refusals that have not been there too."""
    for name, metric in TAKEN.items():
        yield MetricSample(metric, (queue,), taken.get(name, 0))
    for status in {**dict.fromkeys(REFUSALS, 0), **refused}:
        yield MetricSample(REFUSED, (queue, status), refused.get(status, 0))
    yield MetricSample(CONNECTIONS, (queue,), connections)


def quota_samples(queue: QueueName, usage: QuotaUsage, counted_micros: int | None) -> Iterator[MetricSample]:
    """Of every quota; the time, in microseconds since 1970, is not there before the first count has ended."""
    for quota in usage.quotas:
        yield MetricSample(QUOTA_REFUSED, (queue, quota.name), usage.refused[quota.name])
        yield MetricSample(QUOTA_USED, (queue, quota.name), usage.fullest.get(quota.name, 0.0))
    if counted_micros is not None:
        yield MetricSample(QUOTA_COUNTED, (queue,), counted_micros / 1_000_000)
