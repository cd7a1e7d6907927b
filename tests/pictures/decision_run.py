"""Five mails at a pickup engine: when each is picked, refused by which counter, and woken."""

from dataclasses import dataclass
from typing import Final

from mailmend.delivery.policy.engine import Picked, PickupEngine
from mailmend.delivery.policy.explaining import explain_by
from mailmend.delivery.policy.policy import CounterPolicy, PickupField, Threshold
from mailmend.delivery.policy.rates import SECOND, DeliveryRate
from mailmend.delivery.policy.replaying import LimitKind
from mailmend.delivery.policy.sub_queues import ActiveMail

DOMAIN: Final = PickupField.RECIPIENT_DOMAIN
POLICIES: Final = (
    CounterPolicy((DOMAIN,), default=Threshold(concurrency=1)),
    CounterPolicy(default=Threshold(rate=DeliveryRate(1, 4 * SECOND))),
)
SOURCE: Final = "192.0.2.1"
DOMAINS: Final = ("a.example", "a.example", "a.example", "b.example", "b.example")
DURATIONS: Final = (10, 9, 8, 11, 8)
"""For how many seconds the attempts go on, in the order of the mails."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A mail that waits: since when, in seconds, and on which limit of which policy, from 0."""

    at: float
    policy: int
    limit: LimitKind


@dataclass(frozen=True, slots=True)
class Lane:
    """What became of one mail; times in seconds."""

    mail: str
    domain: str
    began: float
    ended: float
    refusals: tuple[Refusal, ...] = ()


def lanes() -> list[Lane]:
    """Pick until every mail was attempted; time goes from one end or clearing counter to the next."""
    engine = PickupEngine(POLICIES)
    mails: list[ActiveMail] = []
    for number, domain in enumerate(DOMAINS):
        mail = ActiveMail(f"mail {number + 1}", {DOMAIN: domain}, (SOURCE,))
        mails.append(mail)
        engine.add(mail)
    refusals: dict[str, list[Refusal]] = {mail.id: [] for mail in mails}
    begun: dict[str, float] = {}
    ended: dict[str, float] = {}
    ends: list[tuple[int, Picked]] = []
    now = 0
    while len(ended) < len(mails):
        while (picked := engine.pick(now)) is not None:
            begun[picked.mail.id] = now / SECOND
            ends.append((now + DURATIONS[mails.index(picked.mail)] * SECOND, picked))
        for mail in mails:
            if mail.id not in begun:
                _note(refusals[mail.id], refusal_of(engine, mail, now))
        times = [at for at, _ in ends]
        clears_at = engine.next_at()
        if clears_at is not None:
            times.append(clears_at)
        now = min(times)
        for end in [end for end in ends if end[0] <= now]:
            ends.remove(end)
            engine.end(end[1], now)
            ended[end[1].mail.id] = now / SECOND
    found: list[Lane] = []
    for mail in mails:
        lane = Lane(mail.id, mail.values[DOMAIN], begun[mail.id], ended[mail.id], tuple(refusals[mail.id]))
        found.append(lane)
    return found


def _note(before: list[Refusal], refusal: Refusal) -> None:
    """Keep a refusal by another limit than the one before."""
    if not before or (before[-1].policy, before[-1].limit) != (refusal.policy, refusal.limit):
        before.append(refusal)


def refusal_of(engine: PickupEngine, mail: ActiveMail, now: int) -> Refusal:
    """The first limit that refuses the mail, as `mailmend delivery explain` has it."""
    (source,) = explain_by(engine, mail, now)
    for share in source.shares:
        if share.refuses:
            limit = LimitKind.CONCURRENCY
            if share.rate_at is not None:
                limit = LimitKind.RATE
            return Refusal(now / SECOND, share.policy, limit)
    raise AssertionError(f"{mail.id} waits, and no counter refuses it")
