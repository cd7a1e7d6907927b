"""Quotas: how much of what is counted together may be in a queue, in mails and bytes.

One process knows what its last count of the queue found, and what it has let in since that count
began. It subtracts nothing in between, so that it never lets in more than is left of a quota by
that count; what has left the queue, and what other processes put there, the next count tells.
Source: docs/adr/0041.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from mailmend.delivery.policy.policy import CountedTogether, CounterKey, PickupField

QUOTA_FIELDS: Final = (
    PickupField.TRANSPORT_ID,
    PickupField.JOB_ID,
    PickupField.TENANT_ID,
    PickupField.GROUPING,
    PickupField.RECIPIENT_DOMAIN,
)
"""What is known of a mail when it is put into a queue."""

REST_SECONDS_MIN: Final = 10.0
SOON_SECONDS_MIN: Final = 1.0
"""At least so long nothing is counted after a count; the second where the next one is wanted soon."""

_REST_TIMES: Final = 9


@dataclass(frozen=True, slots=True)
class QueuedAmount:
    """Mails and their bytes; a mail without a noted size has 0 bytes."""

    messages: int = 0
    bytes: int = 0

    def __add__(self, other: "QueuedAmount") -> "QueuedAmount":
        return QueuedAmount(self.messages + other.messages, self.bytes + other.bytes)


_NOTHING: Final = QueuedAmount()


@dataclass(frozen=True, slots=True)
class QuotaLimit:
    """How much there may be; None is no limit."""

    messages: int | None = None
    bytes: int | None = None

    def allows(self, amount: QueuedAmount) -> bool:
        return all(most is None or some <= most for some, most in self._sides(amount))

    def share(self, amount: QueuedAmount) -> float:
        """How much of it is used: 1.0 where it is full, more where it is exceeded."""
        share = 0.0
        for some, most in self._sides(amount):
            if most:
                share = max(share, some / most)
            elif most == 0:
                share = max(share, float(some > 0))
        return share

    def is_half_taken(self, counted: QueuedAmount, since: QueuedAmount) -> bool:
        """Whether what came since a count has taken half of what was left by it, or more."""
        left = zip(self._sides(counted), self._sides(since), strict=True)
        return any(most is not None and 2 * new >= most - some for (some, most), (new, _) in left)

    def _sides(self, amount: QueuedAmount) -> tuple[tuple[int, int | None], tuple[int, int | None]]:
        return (amount.messages, self.messages), (amount.bytes, self.bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueQuota(CountedTogether[QuotaLimit]):
    """How much of what is counted together may be in the queue: waiting, delayed, held or with a server.

    Attributes:
        name: for people; no other quota of its file has it.
    """

    name: str


@dataclass(frozen=True, slots=True)
class CountedMail:
    """A mail as quotas count it: once for each key that it has, whole, however many recipients give it that key.

    Attributes:
        values: in their normal form, once for each domain of its recipients.
    """

    values: tuple[Mapping[PickupField, str], ...]
    bytes: int = 0

    @property
    def amount(self) -> QueuedAmount:
        return QueuedAmount(1, self.bytes)


QuotaKey = tuple[str, CounterKey]
"""The name of a quota, and what is counted together by it."""

Amounts = dict[QuotaKey, QueuedAmount]


@dataclass(slots=True, eq=False)
class QuotaCount:
    """A count of a queue that is under way: what it has found so far."""

    quotas: tuple[QueueQuota, ...]
    found: Amounts = field(default_factory=dict)

    def add(self, mail: CountedMail) -> None:
        _add(self.found, self.quotas, mail)


@dataclass(slots=True, eq=False)
class QuotaUsage:
    """What one process knows of how much is in a queue.

    Attributes:
        is_counted: whether a count has ended since it began, or there was nothing to count; before,
            nothing is known.
        is_short: a count is wanted soon: a mail was refused, or half of what was left of a quota is
            taken.
        fullest: of each quota, how much of it is used by the key that has used most.
        refused: how often each has refused a mail.
    """

    quotas: tuple[QueueQuota, ...] = ()
    is_counted: bool = False
    is_short: bool = False
    fullest: dict[str, float] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    _known: frozenset[str] = frozenset()
    _counted: Amounts = field(default_factory=dict)
    _since: Amounts = field(default_factory=dict)
    _meanwhile: Amounts | None = None
    _being_put: dict[int, CountedMail] = field(default_factory=dict)

    @property
    def is_new(self) -> bool:
        """Whether a quota has not been counted yet."""
        return any(quota.name not in self._known for quota in self.quotas)

    def used(self, quota: QueueQuota, key: CounterKey) -> QueuedAmount:
        place = (quota.name, key)
        return self._counted.get(place, _NOTHING) + self._since.get(place, _NOTHING)

    def refusal(self, mails: Iterable[CountedMail], fields: Iterable[PickupField] = QUOTA_FIELDS) -> QueueQuota | None:
        """The first quota that these mails together would exceed.

        Args:
            mails: none of them is in the queue yet.
            fields: those whose values are known; quotas by others are not asked.
        """
        more = Amounts()
        known = frozenset(fields)
        asked = dict[str, QueueQuota]()
        for quota in self.quotas:
            if quota.name in self._known and known.issuperset(quota.fields):
                asked[quota.name] = quota
        for mail in mails:
            _add(more, asked.values(), mail)
        for (name, key), amount in more.items():
            limit = asked[name].threshold(key)
            if limit and not limit.allows(self.used(asked[name], key) + amount):
                self.refused[name] += 1
                self.is_short = True
                return asked[name]
        return None

    @contextmanager
    def putting(self, mails: Sequence[CountedMail]) -> Iterator[None]:
        """While these are put into the queue: they count from now on, until a count that began after this has ended."""
        for mail in mails:
            self._being_put[id(mail)] = mail
            for place in _add(self._since, self.quotas, mail):
                self._look_at(place)
            if self._meanwhile is not None:
                _add(self._meanwhile, self.quotas, mail)
        try:
            yield
        finally:
            for mail in mails:
                del self._being_put[id(mail)]

    def begin_count(self) -> QuotaCount:
        """Begin one: what is being put by now it may see or not, and so that counts on top of what it finds."""
        self._meanwhile = {}
        for mail in self._being_put.values():
            _add(self._meanwhile, self.quotas, mail)
        return QuotaCount(self.quotas)

    def end_count(self, count: QuotaCount | None) -> None:
        """Take what a count found for true; None, and one that began under other quotas, found nothing."""
        meanwhile = self._meanwhile
        self._meanwhile = None
        if count is None or count.quotas != self.quotas or meanwhile is None:
            return
        self.is_counted = True
        self.is_short = False
        self._known = frozenset(quota.name for quota in self.quotas)
        self._counted = count.found
        self._since = meanwhile
        self._look_at_all()

    def reload(self, quotas: tuple[QueueQuota, ...]) -> None:
        """Apply these quotas from now on; a quota that counts the same mails together as before keeps its counts.

        Another one refuses nothing until it is counted.
        """
        if quotas == self.quotas:
            return
        kept = dict[str, str]()
        for new in quotas:
            for old in self.quotas:
                if old.counts_as(new):
                    kept[new.name] = old.name
                    break
        self._counted = _renamed(self._counted, kept)
        self._since = _renamed(self._since, kept)
        self._known = frozenset(name for name, old in kept.items() if old in self._known)
        self.is_counted = self.is_counted or not self.quotas
        self.quotas = quotas
        self._meanwhile = None
        self._look_at_all()

    def _look_at_all(self) -> None:
        self.fullest = {quota.name: 0.0 for quota in self.quotas}
        for place in {*self._counted, *self._since}:
            self._look_at(place)

    def _look_at(self, place: QuotaKey) -> None:
        name, key = place
        quota = next(queue_quota for queue_quota in self.quotas if queue_quota.name == name)
        if limit := quota.threshold(key):
            since = self._since.get(place, _NOTHING)
            self.fullest[name] = max(self.fullest.get(name, 0.0), limit.share(self.used(quota, key)))
            if since.messages and limit.is_half_taken(self._counted.get(place, _NOTHING), since):
                self.is_short = True


def rest_seconds(took: float, *, soon: bool) -> float:
    """How long nothing is counted after a count that took so long: counting takes a tenth of the time at most."""
    least = REST_SECONDS_MIN
    if soon:
        least = SOON_SECONDS_MIN
    return max(least, _REST_TIMES * took)


def _add(amounts: Amounts, quotas: Iterable[QueueQuota], mail: CountedMail) -> set[QuotaKey]:
    """Count a mail; the keys that it has."""
    places = set[QuotaKey]()
    for quota in quotas:
        for values in mail.values:
            places.add((quota.name, quota.key(values)))
    for place in places:
        amounts[place] = amounts.get(place, _NOTHING) + mail.amount
    return places


def _renamed(amounts: Amounts, kept: Mapping[str, str]) -> Amounts:
    """The amounts of quotas under other names, of which `kept` has the earlier ones."""
    of_one = dict[str, list[tuple[CounterKey, QueuedAmount]]]()
    for (name, key), amount in amounts.items():
        of_one.setdefault(name, []).append((key, amount))
    renamed = Amounts()
    for new, old in kept.items():
        for key, amount in of_one.get(old, ()):
            renamed[new, key] = amount
    return renamed
