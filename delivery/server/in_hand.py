"""What a server has in hand at this moment, by entry and by sub-queue; nothing is changed here.

The cost is in proportion to the recipients in hand, and to the backlogs that the server owns. No
table and no broker is asked.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from mailmend.delivery.mail.entries import EntryStage
from mailmend.delivery.mail.envelopes import values_of
from mailmend.delivery.policy.policy import PickupField
from mailmend.delivery.policy.sub_queues import ActiveMail
from mailmend.delivery.server.attempting import EntryAttempts
from mailmend.delivery.server.explaining import EntryStanding, standings_of
from mailmend.delivery.server.held_mails import HeldMail
from mailmend.delivery.server.ready_entries import ReadyEntry
from mailmend.delivery.server.recent import COUNTED_BY, EndCounts, LastReply, SubQueueKey, key_of
from mailmend.mailqueue.rules.backlogs import SubQueueName


@dataclass(slots=True)
class SubQueueState:
    """The mails of a server that have some values in common.

    Attributes:
        values: by field.
        in_hand: recipients whose mail the server has, and that are not being delivered.
        backlog: mails in backlogs.
        going: attempts under way.
        ended: how the attempts of the last minute ended.
        sources: our addresses that attempts under way use.
        last: the last reply; None: there was no attempt.
        first: the mail that has waited longest of the ones in hand; None: none waits for its pick.
    """

    values: Mapping[PickupField, str]
    in_hand: int = 0
    backlog: int = 0
    going: int = 0
    ended: EndCounts = field(default_factory=EndCounts)
    sources: set[str] = field(default_factory=set)
    last: LastReply | None = None
    first: ActiveMail | None = None

    @property
    def waiting(self) -> int:
        """How many wait, in hand and in backlogs."""
        return self.in_hand + self.backlog

    def replied(self, last: LastReply) -> None:
        """Take a reply down where it is the last one."""
        if self.last is None or self.last.at <= last.at:
            self.last = last


class _ByFields:
    """States by the values of some fields."""

    def __init__(self, by: Sequence[PickupField]) -> None:
        self._by = by
        self._places = [COUNTED_BY.index(named) for named in by]
        self.states: dict[SubQueueKey, SubQueueState] = {}

    def of(self, key: SubQueueKey) -> SubQueueState:
        shown = tuple(key[place] for place in self._places)
        state = self.states.get(shown)
        if state is None:
            values = dict(zip(self._by, shown, strict=True))
            state = self.states[shown] = SubQueueState(values)
        return state


@dataclass(frozen=True, slots=True)
class EntriesInHand:
    """What a server has in hand at this moment.

    Attributes:
        ready: entries that wait for their pick, by their names.
        work: what takes them through their attempts.
        backlogs: how many mails wait in the backlogs that the server owns.
    """

    mails: Collection[HeldMail]
    ready: Mapping[str, ReadyEntry]
    work: EntryAttempts
    backlogs: Mapping[SubQueueName, int]

    @property
    def stages(self) -> Counter[EntryStage]:
        """How many recipients are at each stage."""
        stages = Counter[EntryStage]()
        for held in self.mails:
            stages.update(entry.stage for entry in held.active.values())
        return stages

    def standings(self, name: str) -> Sequence[EntryStanding]:
        """The state of entries: all of a mail by any of its ids, or one as `mail:number`."""
        return standings_of(name, self.mails, self.ready, self.work.engine, self.work.nanos())

    def sub_queues(self, by: Sequence[PickupField]) -> list[SubQueueState]:
        """The sub-queues by these fields of `COUNTED_BY`; the most waiting mails come first."""
        found = _ByFields(by)
        for held in self.mails:
            for entry in held.active.values():
                if not entry.stage.is_attempted:
                    self._count_waiting(found, held, entry.id.number, entry.recipient)
        for picked in self.work.engine.under_way:
            state = found.of(key_of(picked.mail.values, picked.source))
            state.going += 1
            if picked.source:
                state.sources.add(picked.source)
        for name, waiting in self.backlogs.items():
            found.of(key_of(values_of(name))).backlog += waiting
        for key, ended, last in self.work.recent.counted(self.work.nanos()):
            state = found.of(key)
            state.ended = state.ended.plus(ended)
            if last is not None:
                state.replied(last)
        return sorted(found.states.values(), key=_rank)

    def _count_waiting(self, found: _ByFields, held: HeldMail, number: int, recipient: str) -> None:
        ready = self.ready.get(held.name_of(number))
        if ready is not None and ready.counted is not None:
            counted = ready.counted
            addresses = set(counted.sources)
            source = ""
            if len(addresses) == 1:
                source = addresses.pop()
            state = found.of(key_of(counted.values, source))
            state.first = state.first or counted
        else:
            domain = PickupField.RECIPIENT_DOMAIN.of(recipient.rpartition("@")[2])
            state = found.of(key_of({**held.mail.fields, PickupField.RECIPIENT_DOMAIN: domain}))
        state.in_hand += 1


def _rank(state: SubQueueState) -> tuple[object, ...]:
    """The sub-queues of the most waiting mails come first, then the busiest ones."""
    values = tuple(state.values.values())
    return (-state.waiting, -state.going, -sum(state.ended), values)
