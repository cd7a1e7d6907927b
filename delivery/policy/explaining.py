"""Why a mail may be picked or has to wait, asked of the engine that picks it, or of one that has nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, overload

from mailmend.delivery.policy.engine import PickupEngine
from mailmend.delivery.policy.orders import Order, PlacedCondition
from mailmend.delivery.policy.policies import PickupPolicies
from mailmend.delivery.policy.policy import CounterKey, PickupField, Threshold
from mailmend.delivery.policy.quotas import QueuedAmount, QueueQuota, QuotaCount, QuotaLimit
from mailmend.delivery.policy.rates import LONG_AGO
from mailmend.delivery.policy.sub_queues import UNKNOWN, ActiveMail, CounterEntry

SUSPENDED: Final = -1
"""In place of a policy's number: a suspension."""

GATE: Final = -2
"""The gate of all that counts against a shared limit, in the same form."""


@dataclass(frozen=True, slots=True)
class PolicyShare:
    """What one policy means for a mail.

    Attributes:
        policy: its number, from 0.
        key: the values and groups under which the mail is counted, in the order of the policy's fields.
        condition: the number of the one that sets the limits, from 0; None: the default does, where there is one.
        delivering: how many deliveries of what is counted so go on, here.
        clear_at: from when one more may begin, in nanoseconds; UNKNOWN where one must end first; None: now.
        rate_at: the same, by the rate alone.
        connect_at: the same, by the interval between connections.
        shared: whether the servers of the queue share the limits: these are this server's part.
        elsewhere: it has none of them, others have.
        set_by: the run-time condition that sets the limits; None: the file does.
    """

    policy: int
    key: CounterKey
    condition: int | None
    threshold: Threshold
    delivering: int = 0
    clear_at: int | None = None
    rate_at: int | None = None
    connect_at: int | None = None
    shared: bool = False
    elsewhere: bool = False
    set_by: Order | None = None

    @property
    def refuses(self) -> bool:
        """Whether none may begin now."""
        return self.clear_at is not None


@dataclass(frozen=True, slots=True)
class ExceededEntry:
    """What is counted together under one key, and lets no delivery begin now.

    Attributes:
        since: since when, in nanoseconds; None: it is not known.
        waiting: how many mails it counts wait here.
    """

    share: PolicyShare
    since: int | None
    waiting: int


@dataclass(frozen=True, slots=True)
class SourceExplanation:
    """What holds for a mail that is sent from one address.

    Attributes:
        source: "" is any.
        shares: of the policies that count the mail, in their order; later ones are not consulted.
        suspensions: the ids of the suspensions that hold it.
        clear_at: from when it may be sent from there, as far as is known; else as of a share.
        has_share: whether the server knows its part of shared limits now; without, none of what these count may begin.
    """

    source: str
    shares: tuple[PolicyShare, ...]
    suspensions: tuple[str, ...]
    clear_at: int | None = None
    has_share: bool = True

    @property
    def is_left(self) -> bool:
        """Whether it may be sent from there now."""
        return self.clear_at is None


@dataclass(frozen=True, slots=True)
class NextSource:
    """From where a mail would go, as far as is known; `clear_at` is as of a share."""

    source: str
    clear_at: int | None = None


@dataclass(frozen=True, slots=True)
class QuotaShare:
    """A quota that counts a mail.

    Attributes:
        quota: its number, from 0.
        key: what the mail is counted under, in the order of the quota's fields.
        condition: the number of the one that sets the limit, from 0; None: the default does, where there is one.
        limit: None: no limit.
        used: how much of what is counted so is in the queue; None: it was not counted.
    """

    quota: int
    key: CounterKey
    condition: int | None
    limit: QuotaLimit | None
    used: QueuedAmount | None = None

    @property
    def refuses(self) -> bool:
        """Whether there is no room for one more mail, however small."""
        if self.limit is None or self.used is None:
            return False
        return not self.limit.allows(self.used + QueuedAmount(1, 1))


def explain_mail(file: PickupPolicies, mail: ActiveMail) -> tuple[SourceExplanation, ...]:
    """What policies and suspensions of a file mean for a mail, for each address that it may be sent from."""
    engine = PickupEngine(file.policies, file.algorithm)
    now = 0
    for suspension in file.suspensions:
        engine.suspend(suspension, now)
    return explain_by(engine, mail, now)


def as_in_file(
    sources: Sequence[SourceExplanation], placed: Sequence[PlacedCondition]
) -> tuple[SourceExplanation, ...]:
    """What holds in addition to run-time conditions, with the numbers that the file's own conditions have there."""
    numbered = list[SourceExplanation]()
    for source in sources:
        shares = tuple(_in_file(share, placed) for share in source.shares)
        numbered.append(replace(source, shares=shares))
    return tuple(numbered)


def _in_file(share: PolicyShare, placed: Sequence[PlacedCondition]) -> PolicyShare:
    before = [condition.order for condition in placed if share.policy in condition.policies]
    if share.condition is None:
        return share
    if share.condition < len(before):
        return replace(share, condition=None, set_by=before[share.condition])
    return replace(share, condition=share.condition - len(before))


def explain_by(engine: PickupEngine, mail: ActiveMail, now: int) -> tuple[SourceExplanation, ...]:
    """What all that an engine counts and holds back now means for a mail, whether it waits there or not."""
    queue = engine.sub_queue(mail, now)
    refusing = queue.refusing(now)
    explanations = list[SourceExplanation]()
    for source, counters in queue.counters.items():
        shares = list[PolicyShare]()
        suspensions = list[str]()
        has_share = True
        for entry in counters:
            number, key = entry.place
            if number >= 0:
                shares.append(_share(engine, entry, now))
            elif number == SUSPENDED:
                suspensions.append(key[0])
            elif number == GATE and entry.clear_at() > now:
                has_share = False
        clear_at = None
        if source in refusing:
            clear_at = refusing[source].clear_at()
        explanations.append(SourceExplanation(source, tuple(shares), tuple(suspensions), clear_at, has_share))
    return tuple(explanations)


class ExceededEntries(Sequence[ExceededEntry]):
    """The counters that refuse now: the ones for which most mails wait first.

    Each is explained when it is asked for: a busy server has many more than an answer has.
    """

    def __init__(self, engine: PickupEngine, now: int) -> None:
        refusing = [entry for entry in engine.counters if entry.clear_at() > now]
        waiting = engine.waiting_on(refusing)
        refusing.sort(key=lambda entry: (-waiting.get(entry, 0), entry.place))
        self._engine = engine
        self._now = now
        self._refusing = refusing
        self._waiting = waiting

    def __len__(self) -> int:
        return len(self._refusing)

    @overload
    def __getitem__(self, index: int) -> ExceededEntry: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[ExceededEntry]: ...

    def __getitem__(self, index: int | slice) -> ExceededEntry | Sequence[ExceededEntry]:
        if isinstance(index, slice):
            return tuple(self._explained(entry) for entry in self._refusing[index])
        return self._explained(self._refusing[index])

    def _explained(self, entry: CounterEntry) -> ExceededEntry:
        since = None
        if entry.changed_at > LONG_AGO:
            since = entry.changed_at
        share = _share(self._engine, entry, self._now)
        return ExceededEntry(share, since, self._waiting.get(entry, 0))


def exceeded_entries(engine: PickupEngine, now: int) -> ExceededEntries:
    """The counters that refuse now; entries are to be taken before the engine goes on."""
    return ExceededEntries(engine, now)


def next_source(engine: PickupEngine, mail: ActiveMail, sources: Sequence[SourceExplanation]) -> NextSource | None:
    """The address whose turn it is among the remaining ones, else among the first clear ones; None: unknown."""
    known = [explanation for explanation in sources if explanation.clear_at != UNKNOWN]
    first = min(((explanation.clear_at or LONG_AGO) for explanation in known), default=UNKNOWN)
    usable = dict[str, int | None]()
    for explanation in known:
        if (explanation.clear_at or LONG_AGO) == first:
            usable[explanation.source] = explanation.clear_at
    source = engine.next_source(mail, tuple(usable))
    if source is None:
        return None
    return NextSource(source, usable[source])


def explain_quotas(
    quotas: Sequence[QueueQuota], values: Mapping[PickupField, str], count: QuotaCount | None = None
) -> tuple[QuotaShare, ...]:
    """What each quota makes of a mail with these values, in their normal form, and of what was counted of its queue."""
    shares = list[QuotaShare]()
    for number, quota in enumerate(quotas):
        key = quota.key(values)
        used = None
        if count:
            used = count.found.get((quota.name, key), QueuedAmount())
        shares.append(QuotaShare(number, key, quota.condition(key), quota.threshold(key), used))
    return tuple(shares)


def _share(engine: PickupEngine, entry: CounterEntry, now: int) -> PolicyShare:
    number, key = entry.place
    rates = iter(entry.rates)  # the limit's own, then the one of connections, where it has them
    rate_at = None
    if entry.threshold.rate:
        rate_at = _later(next(rates).next_at(), now)
    connect_at = None
    if entry.threshold.connects:
        connect_at = _later(next(rates).next_at(), now)
    return PolicyShare(
        number,
        key,
        engine.policies[number].condition(key),
        entry.threshold,
        entry.delivering,
        _later(entry.clear_at(), now),
        rate_at,
        connect_at,
        entry.shared,
        entry.elsewhere,
    )


def _later(at: int, now: int) -> int | None:
    if at > now:
        return at
    return None
