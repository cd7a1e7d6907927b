"""What follows from the replies of servers: their classes, and automatic limits."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mailmend.delivery.mail.attempts import SmtpReply
from mailmend.delivery.mail.hooks import HookOrder, LimitMails, SuspendMails
from mailmend.delivery.policy.automation import (
    AutomaticCounters,
    AutomaticRule,
    CountedPlaces,
    TriggeredRule,
)
from mailmend.delivery.policy.policy import ExactValue, PickupField, pattern_of
from mailmend.delivery.policy.rates import SECOND
from mailmend.delivery.policy.reply_classes import ClassifiedReply, ReplyClasses
from mailmend.model.errors import WrongUse
from mailmend.model.texts import without_addresses


@dataclass(slots=True, eq=False)
class ReplyReactions:
    """The classes of one server, and the counts of its automatic limits.

    Attributes:
        seen: how many attempts were refused, by the class of the reply.
    """

    classes: ReplyClasses = field(default_factory=ReplyClasses)
    seen: Counter[str] = field(default_factory=Counter)
    _counters: AutomaticCounters = field(default_factory=AutomaticCounters)

    def use(self, classes: ReplyClasses, rules: Sequence[AutomaticRule]) -> None:
        """Work by these from now on; a rule that is as it was counts on."""
        self.classes = classes
        known = classes.names
        self.seen = Counter({name: count for name, count in self.seen.items() if name in known})
        self._counters.use(rules)

    def class_of(self, reply: str, status: str = "", why: str = "") -> str:
        """The class of a reply as an entry keeps it; without one, of our status and sentence."""
        if reply:
            return self.classes.of(ClassifiedReply.parse(reply))
        return self.classes.of(ClassifiedReply("", status, why))

    def count(
        self,
        reply: SmtpReply,
        values: Mapping[PickupField, str],
        now: int,
        counted: CountedPlaces,
    ) -> Sequence[TriggeredRule]:
        """Count a refusal of an attempt with these values; each rule that it triggers.

        A place that is in `counted` does not count it again; the metric counts each refusal.
        """
        name = self.classes.of(_classified(reply))
        self.seen[name] += 1
        return list(self._counters.count(name, values, now, counted))


def automatic_order(triggered: TriggeredRule, reply: SmtpReply) -> HookOrder:
    """What a rule orders for its sub-queue; the reason names the rule's classes and the reply.

    Addresses in the reply are left out: the reason is in logs, lists and the history.

    Raises:
        WrongUse: a value of the sub-queue cannot be named in an order, as it would mean other
            values there.
    """
    rule = triggered.rule
    values = dict[PickupField, tuple[str]]()
    for named, text in zip(rule.fields, triggered.key, strict=True):
        if pattern_of(named, text) != ExactValue(text):
            what = f"{text!r} of {named.value} cannot be named alone"
            raise WrongUse(what, mend="Count by another field.")
        values[named] = (text,)
    reason = f"{trigger_text(rule)}; the last reply: {without_addresses(str(reply))}"
    if rule.threshold is None:
        return SuspendMails(values, rule.lasts, reason)
    return LimitMails(values, rule.threshold, rule.lasts, reason)


def trigger_text(rule: AutomaticRule) -> str:
    """What triggers a rule, in words."""
    classes = " or ".join(sorted(rule.classes))
    return f"{classes} {rule.trigger.count:,} times in {rule.trigger.interval / SECOND:g} s"


def _classified(reply: SmtpReply) -> ClassifiedReply:
    code = ""
    if not reply.ours:
        code = str(reply.code)
    return ClassifiedReply(code, reply.enhanced, reply.text)
