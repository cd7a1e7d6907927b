"""The counters of policies and suspensions: which of them count a mail, by the address that it is sent from.

Source: docs/design.md, "Pickup" (2, 8, 9, 10).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mailmend.delivery.policy.orders import Suspension
from mailmend.delivery.policy.policy import CounterKey, CounterPolicy, PickupField, Threshold
from mailmend.delivery.policy.rates import LONG_AGO, RateAlgorithm
from mailmend.delivery.policy.remembered import CounterMemory
from mailmend.delivery.policy.shares import LimitShare, ServerShare
from mailmend.delivery.policy.sub_queues import UNKNOWN, ActiveMail, CounterEntry

CounterPlace = tuple[int, CounterKey]
"""The number of a policy, and the key under which it counts."""


@dataclass(frozen=True, slots=True)
class PolicyChanges:
    """What a reload did: policies whose counts went on, and those that came or went; by their places in each list.

    Attributes:
        kept: places before, and now.
    """

    kept: tuple[tuple[int, int], ...] = ()
    new: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of these policies, for a log."""
        return {"kept": len(self.kept), "new": len(self.new), "dropped": len(self.dropped)}


class PickupCounters:
    """The counters of one server's policies and suspensions, each from its first use until it is as good as new."""

    def __init__(
        self, policies: Sequence[CounterPolicy], algorithm: RateAlgorithm, share: ServerShare | None = None
    ) -> None:
        self.policies = tuple(policies)
        self.algorithm = algorithm
        self.share = share
        if share:
            share.know(self.policies)
        self.entries: dict[CounterPlace, CounterEntry] = {}
        self._suspensions: dict[str, tuple[Suspension, CounterEntry]] = {}

    def place(self, mail: ActiveMail) -> tuple[object, ...]:
        """The same for mails that all counters count alike, and that share their source addresses."""
        place: list[object] = [mail.sources]
        for source in dict.fromkeys(mail.sources):
            place.append((self.keys(mail, source), *self._suspended_by(mail, source)))
        return tuple(place)

    def of(self, mail: ActiveMail) -> Mapping[str, tuple[CounterEntry, ...]]:
        """All that count a mail, or hold it back, by source address."""
        found = dict[str, tuple[CounterEntry, ...]]()
        for source in dict.fromkeys(mail.sources):
            counting = self._gated(self.keys(mail, source))
            found[source] = (*counting, *self._suspended_by(mail, source).values())
        return found

    def keys(self, mail: ActiveMail, source: str) -> tuple[CounterPlace, ...]:
        values = {**mail.values, PickupField.LOCAL_IP: source}
        return tuple((number, policy.key(values)) for number, policy in enumerate(self.policies))

    def entry(self, place: CounterPlace) -> CounterEntry:
        """A counter; one that is new is limited as if it had been there all the time."""
        entry = self.entries.get(place)
        if entry is None:
            entry = self.entries[place] = CounterEntry(place)
            if self.share:
                self.share.limit_new(entry, self.policies[place[0]], self.algorithm)
            else:
                entry.limit(self._threshold(place), self.algorithm, LONG_AGO)
        return entry

    def suspend(self, suspension: Suspension) -> None:
        ends_at = suspension.ends_at
        if ends_at is None:
            ends_at = UNKNOWN
        self._suspensions[suspension.id] = (suspension, CounterEntry((-1, (suspension.id,)), closed_until=ends_at))

    def lift(self, suspension_id: str) -> bool:
        """End a suspension; whether there was one."""
        return self._suspensions.pop(suspension_id, None) is not None

    def drop_ended(self, now: int) -> None:
        """Forget the suspensions that have ended."""
        for name, (_, entry) in list(self._suspensions.items()):
            if entry.closed_until <= now:
                del self._suspensions[name]

    def replace(self, policies: Sequence[CounterPolicy], now: int) -> PolicyChanges:
        """Count by these policies: the counters of policies that stay get their new places and limits, others go."""
        before = list(enumerate(self.policies))
        kept = dict[int, int]()
        for number, policy in enumerate(policies):
            for pair in before:
                if pair[1].counts_as(policy):
                    before.remove(pair)
                    kept[pair[0]] = number
                    break
        new = tuple(number for number in range(len(policies)) if number not in kept.values())
        self.policies = tuple(policies)
        if self.share:
            self.share.know(self.policies)
        entries = self.entries
        self.entries = {}
        for (number, key), entry in entries.items():
            if number in kept:
                entry.place = (kept[number], key)
                self.entries[entry.place] = entry
                self._limit(entry, now)
            elif entry.memory is not None:
                entry.memory.forget()
        return PolicyChanges(tuple(kept.items()), new, tuple(number for number, _ in before))

    def share_out(self, now: int, *, spent: bool) -> Iterable[CounterEntry]:
        """Limit all by the share of now, one after the other."""
        for entry in list(self.entries.values()):
            self._limit(entry, now, gain_spent=spent)
            yield entry

    def limit_anew(self) -> Iterable[CounterEntry]:
        """Limit all shared ones as if they were new, one after the other: nothing has begun under them yet."""
        if self.share is None:
            return
        shared = [entry for entry in self.entries.values() if entry.shared]
        for entry in shared:
            entry.rates = ()
            entry.threshold = Threshold()
            self.share.limit_new(entry, self.policies[entry.place[0]], self.algorithm)
            yield entry

    def written(self, memory: CounterMemory) -> CounterEntry | None:
        """The counter of which this is kept, if it is there yet."""
        entry = self.entries.get(memory.place)
        if entry is None or entry.memory is not memory:
            return None
        return entry

    def fit(self, counted: Iterable[CounterEntry], share: LimitShare) -> bool:
        """Whether what these count now is within this share."""
        if self.share is None:
            return True
        return all(self.share.fits(entry, self.policies[entry.place[0]], share) for entry in counted)

    def forget(self, entry: CounterEntry) -> None:
        if self.entries.get(entry.place) is entry:  # else it was forgotten before, and another has its place
            del self.entries[entry.place]
            if entry.memory is not None:
                entry.memory.forget()

    def _suspended_by(self, mail: ActiveMail, source: str) -> dict[str, CounterEntry]:
        if not self._suspensions:
            return {}
        values = {**mail.values, PickupField.LOCAL_IP: source}
        return {suspension.id: entry for suspension, entry in self._suspensions.values() if suspension.holds(values)}

    def _gated(self, keys: Iterable[CounterPlace]) -> tuple[CounterEntry, ...]:
        counted = tuple(self._counted(keys))
        if self.share and any(entry.shared for entry in counted):
            return (*counted, self.share.gate)
        return counted

    def _counted(self, keys: Iterable[CounterPlace]) -> Iterable[CounterEntry]:
        for place in keys:
            entry = self.entry(place)
            yield entry
            if entry.threshold.stop:
                return

    def _limit(self, entry: CounterEntry, now: int, *, gain_spent: bool = False) -> None:
        if self.share:
            self.share.limit(entry, self.policies[entry.place[0]], self.algorithm, now, gain_spent=gain_spent)
        else:
            entry.limit(self._threshold(entry.place), self.algorithm, now)

    def _threshold(self, place: CounterPlace) -> Threshold:
        number, key = place
        return self.policies[number].threshold(key) or Threshold()
