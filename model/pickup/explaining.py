"""Why a mail may be picked or has to wait, asked of an engine that has nothing else to deliver."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from model.pickup.engine import PickupEngine
from model.pickup.policies import PickupPolicies
from model.pickup.policy import CounterKey, PickupField, Threshold
from model.pickup.quotas import QueueQuota, QuotaLimit
from model.pickup.sub_queues import ActiveMail, CounterEntry


@dataclass(frozen=True, slots=True)
class PolicyShare:
    """What one policy means for a mail.

    Attributes:
        policy: its number, from 0.
        key: the values and groups under which the mail is counted, in the order of the policy's fields.
        condition: the number of the one that sets the limits, from 0; None: the default does, where there is one.
        lets_none: no delivery of what is counted so may ever begin.
    """

    policy: int
    key: CounterKey
    condition: int | None
    threshold: Threshold
    lets_none: bool


@dataclass(frozen=True, slots=True)
class SourceExplanation:
    """What holds for a mail that is sent from one address.

    Attributes:
        source: "" is any.
        shares: of the policies that count the mail, in their order; later ones are not consulted.
        suspensions: the numbers of those that hold it, from 0.
        is_left: whether it may be sent from there, when nothing else is being delivered.
    """

    source: str
    shares: tuple[PolicyShare, ...]
    suspensions: tuple[int, ...]
    is_left: bool


def explain_mail(file: PickupPolicies, mail: ActiveMail) -> tuple[SourceExplanation, ...]:
    """What policies and suspensions of a file mean for a mail, for each address that it may be sent from."""
    engine, now = PickupEngine(file.policies, file.algorithm), 0
    numbers = {one.id: number for number, one in enumerate(file.suspensions)}
    for one in file.suspensions:
        engine.suspend(one, now)
    queue = engine.sub_queue(mail, now)
    refusing = queue.refusing(now)
    return tuple(
        SourceExplanation(
            source,
            tuple(_share(file, entry, now) for entry in counters if entry.place[0] >= 0),
            tuple(numbers[entry.place[1][0]] for entry in counters if entry.place[0] < 0),
            source not in refusing,
        )
        for source, counters in queue.counters.items()
    )


@dataclass(frozen=True, slots=True)
class QuotaShare:
    """A quota that counts a mail.

    Attributes:
        quota: its number, from 0.
        key: what the mail is counted under, in the order of the quota's fields.
        condition: the number of the one that sets the limit, from 0; None: the default does, where there is one.
        limit: None is none.
    """

    quota: int
    key: CounterKey
    condition: int | None
    limit: QuotaLimit | None


def explain_quotas(quotas: Sequence[QueueQuota], values: Mapping[PickupField, str]) -> tuple[QuotaShare, ...]:
    """What each quota makes of a mail with these values, in their normal form."""
    keys = [one.key(values) for one in quotas]
    return tuple(
        QuotaShare(number, key, one.condition(key), one.threshold(key))
        for number, (one, key) in enumerate(zip(quotas, keys, strict=True))
    )


def _share(file: PickupPolicies, entry: CounterEntry, now: int) -> PolicyShare:
    number, key = entry.place
    return PolicyShare(number, key, file.policies[number].condition(key), entry.threshold, entry.clear_at() > now)
