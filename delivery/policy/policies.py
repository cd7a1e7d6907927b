"""All that one policy file says, and the way from its top to a place in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mailmend.delivery.policy.automation import AutomaticRule
from mailmend.delivery.policy.incoming import IncomingRule
from mailmend.delivery.policy.orders import Suspension
from mailmend.delivery.policy.policy import CounterPolicy, PickupField, Threshold
from mailmend.delivery.policy.quotas import QueueQuota
from mailmend.delivery.policy.rates import RateAlgorithm
from mailmend.delivery.policy.reply_classes import ReplyRule
from mailmend.delivery.policy.turns import NO_WEIGHTS
from mailmend.delivery.transports import NO_TRANSPORTS, Transports

DocumentPath = tuple[str | int, ...]
"""The names, and the numbers from 0, that lead from the top of a policy file to a place in it."""


@dataclass(frozen=True, slots=True)
class PickupPolicies:
    """What a policy file says; without one, nothing is limited.

    Attributes:
        unused_lists: the names of lists that nothing in the file refers to.
        incoming: what becomes of mails that clients hand over.
        weights: of tenants, 1 to 100; of others 1.
        quotas: how much may be in the queue before no more is taken.
        classes: rules of the file's own that come before the shipped ones.
        automation: limits that follow from the classes of replies.
        transports: how mails are sent.
        custom: the attributes of mails that are fields, by their names.
    """

    policies: tuple[CounterPolicy, ...] = ()
    algorithm: RateAlgorithm = RateAlgorithm.TOKEN_BUCKET
    suspensions: tuple[Suspension, ...] = ()
    unused_lists: tuple[str, ...] = ()
    incoming: tuple[IncomingRule, ...] = ()
    weights: Mapping[str, int] = field(default_factory=lambda: NO_WEIGHTS)
    quotas: tuple[QueueQuota, ...] = ()
    classes: tuple[ReplyRule, ...] = ()
    automation: tuple[AutomaticRule, ...] = ()
    transports: Transports = field(default_factory=lambda: NO_TRANSPORTS)
    custom: Mapping[str, PickupField] = field(default_factory=dict)

    def with_domain_limit(self, most: int) -> "PickupPolicies":
        """The same, with a limit for each domain where no policy limits anything.

        Each server has it for itself. 0 is no limit.
        """
        if self.policies or not most:
            return self
        threshold = Threshold(most, cluster=False)
        limit = CounterPolicy((PickupField.RECIPIENT_DOMAIN,), default=threshold)
        return replace(self, policies=(limit,))
