"""Which mails of a queue over topics are deleted though their messages may come again, and for how long that is kept.

A deletion names its mails by their enqueue ids, which every copy of a mail keeps: so it holds for what was moved,
retried or changed meanwhile, and for no mail that comes later, for any publisher and any clock. A
deletion of James's names none: it is bounded by its time, and by the places that both topics had reached once all knew
of it.

A checkpoint says how far everything had come at one time. Two of them show that a deletion is no longer needed: all
that was there when the last copy could be made was acknowledged, long enough ago for the broker to have written that.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from itertools import chain
from typing import Final

from mailmend.mailqueue.rules.mails import Listed, Mail
from mailmend.mailqueue.rules.places import Backlog, EntryPosition, MessagePlace, TopicPlace
from mailmend.mailqueue.rules.slices import GRACE_MIN
from mailmend.model.ids import EnqueueId

SETTLED: Final = GRACE_MIN + timedelta(minutes=5)
"""How long after it no process can still make a copy of deleted mails, by clocks that differ by the allowed maximum.

Each process knows of it within a second, or hands out and moves nothing.
"""

WRITTEN: Final = GRACE_MIN + timedelta(minutes=5)
"""How long after an acknowledgement the broker has surely written it: by default it does so each minute."""

MERGED_MAX: Final = 5_000
"""The number of mails in one merged deletion."""

MERGED_FROM: Final = 20
"""The number of deletions that are not full from which they are merged."""


class FilterKind(Enum):
    """What a filter of James's compares, to the letter."""

    NAME = ("ByName", "name")
    SENDER = ("BySender", "sender")
    RECIPIENT = ("ByRecipient", "recipient")

    def __init__(self, word: str, field_name: str) -> None:
        self.word = word
        self.field = field_name


@dataclass(frozen=True, slots=True)
class DeletedMail:
    """A mail that was deleted, and where its message was."""

    enqueue_id: EnqueueId
    where: TopicPlace


@dataclass(frozen=True, slots=True)
class Deletion:
    """Mails that were deleted together.

    Attributes:
        where: its place in a topic of deletions.
        at: when it was published, by the clock of its publisher.
    """

    where: TopicPlace
    at: datetime
    mails: tuple[DeletedMail, ...] = ()


@dataclass(frozen=True, slots=True)
class JamesDeletion:
    """Every mail with that name, sender or recipient which was there when James said so."""

    where: TopicPlace
    at: datetime
    kind: FilterKind
    value: str


Reach = Mapping[str, Mapping[int, EntryPosition]]
"""For topics, by their names, and their partitions: up to which position."""


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """How far all was at one time.

    Attributes:
        heard: of the topics of deletions: what had been read before.
        last: of the topics of mails: the last message.
        acked: the same for acknowledgements: up to there all was acknowledged.
    """

    heard: Reach
    last: Reach
    acked: Reach


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The progress at the time at which it was published."""

    where: TopicPlace
    at: datetime
    progress: TopicProgress


Notice = Deletion | JamesDeletion | Checkpoint
"""What lies in a topic of deletions."""


def progress_of(notices: Iterable[Notice], backlogs: Mapping[str, Backlog]) -> TopicProgress:
    """The progress at a time at which these notices had been read, and then the backlogs of the topics of mails."""
    heard: dict[str, dict[int, EntryPosition]] = {}
    for notice in notices:
        place = notice.where.place
        partitions = heard.setdefault(notice.where.topic, {})
        partitions[place.partition] = max(place.position, partitions.get(place.partition, place.position))
    last: dict[str, dict[int, EntryPosition]] = {}
    acked: dict[str, dict[int, EntryPosition]] = {}
    for topic, found in backlogs.items():
        last[topic] = {number: partition.last for number, partition in found.partitions.items()}
        acked[topic] = {number: partition.done_to for number, partition in found.partitions.items()}
    return TopicProgress(heard, last, acked)


@dataclass(slots=True)
class KnownDeletions:
    """What one process knows, as it hears it; a lookup takes as long among few as among many."""

    mails: dict[EnqueueId, tuple[TopicPlace, ...]] = field(default_factory=dict)
    _james: dict[tuple[FilterKind, str], JamesDeletion] = field(default_factory=dict)
    _checkpoints: list[Checkpoint] = field(default_factory=list)

    def hear(self, notice: Notice) -> None:
        match notice:
            case Deletion():
                for mail in notice.mails:
                    known = self.mails.get(mail.enqueue_id, ())
                    if mail.where not in known:
                        self.mails[mail.enqueue_id] = (*known, mail.where)
            case JamesDeletion(kind=kind, value=value):
                before = self._james.get((kind, value))
                if before is None or before.at <= notice.at:
                    self._james[kind, value] = notice
            case Checkpoint():
                self._checkpoints.append(notice)

    @property
    def places(self) -> Iterator[TopicPlace]:
        """Where messages of deleted mails were."""
        return chain.from_iterable(self.mails.values())

    @property
    def has_james(self) -> bool:
        """Whether some are of James's, which do not say how many mails they are about."""
        return bool(self._james)

    def hold(self, listed: Listed, first: TopicPlace) -> bool:
        """Whether a mail is deleted.

        Args:
            listed: the mail, as its message has it.
            first: where it is; or, of a copy, where what it was copied from is.
        """
        if listed.queued.enqueue_id in self.mails:
            return True
        if not self._james:
            return False
        for key in _james_keys(listed.queued.mail):
            notice = self._james.get(key)
            if notice and listed.enqueued_at <= notice.at and self._reaches(notice, first):
                return True
        return False

    def _reaches(self, notice: JamesDeletion, first: TopicPlace) -> bool:
        bound = settled_by(notice, self._checkpoints)
        return bound is None or covers(bound.progress.last, first)


@dataclass(frozen=True, slots=True)
class Tending:
    """What is to be done about notices.

    Attributes:
        expired: those that are no longer needed.
        checkpoint: whether it is time for one.
        merged: mails of deletions that take the place of some of the expired; published before those go.
    """

    expired: tuple[TopicPlace, ...]
    checkpoint: bool
    merged: tuple[tuple[DeletedMail, ...], ...]


def tending(notices: Sequence[Notice], progress: TopicProgress, now: datetime) -> Tending:
    """What is to be done about the notices that lie there, where this is the progress now.

    A checkpoint that says more than that is void: the broker has forgotten acknowledgements since.
    """
    checkpoints: list[Checkpoint] = []
    deletions: list[Deletion | JamesDeletion] = []
    for notice in notices:
        if not isinstance(notice, Checkpoint):
            deletions.append(notice)
        elif _has_passed(progress.acked, notice.progress.acked):
            checkpoints.append(notice)
    checkpoints.sort(key=lambda checkpoint: checkpoint.at)
    written = [checkpoint for checkpoint in checkpoints if now - checkpoint.at >= WRITTEN]
    left = [deletion for deletion in deletions if not _is_over(deletion, checkpoints, written)]
    merged, replaced = _merged(left)
    outdone = _outdone(left)
    gone = replaced | outdone
    kept: set[TopicPlace] = set()
    if left:
        kept = {notice.where for notice in (*left, *written[-1:], *checkpoints[-1:])} - gone
    for deletion in left:
        bound = settled_by(deletion, checkpoints)
        if bound and deletion.where not in gone:
            kept.add(bound.where)
    expired = sorted({notice.where for notice in notices} - kept)
    return Tending(tuple(expired), _wants_checkpoint(left, checkpoints, now), merged)


def settled_by(notice: Deletion | JamesDeletion, checkpoints: Iterable[Checkpoint]) -> Checkpoint | None:
    """The first checkpoint by whose time every process knew of the notice, and no copy could be made any more."""
    found = (
        checkpoint
        for checkpoint in checkpoints
        if checkpoint.at - notice.at >= SETTLED and covers(checkpoint.progress.heard, notice.where)
    )
    return min(found, key=lambda one: (one.at, one.where), default=None)


def covers(reach: Reach, where: TopicPlace) -> bool:
    position = reach.get(where.topic, {}).get(where.place.partition)
    return position is not None and where.place.position <= position


def _is_over(
    notice: Deletion | JamesDeletion, checkpoints: Iterable[Checkpoint], written: Iterable[Checkpoint]
) -> bool:
    settled = settled_by(notice, checkpoints)
    if settled is None:
        return False
    later = [checkpoint for checkpoint in written if checkpoint.at >= settled.at]
    return any(_has_passed(checkpoint.progress.acked, settled.progress.last) for checkpoint in later)


def _has_passed(acked: Reach, last: Reach) -> bool:
    for topic, partitions in last.items():
        for partition, position in partitions.items():
            if not covers(acked, TopicPlace(topic, MessagePlace(partition, *position))):
                return False
    return True


def _wants_checkpoint(
    left: Sequence[Deletion | JamesDeletion], checkpoints: Sequence[Checkpoint], now: datetime
) -> bool:
    """When some deletion can be settled by one; else from time to time, to see what is acknowledged by then."""
    if any(now - deletion.at >= SETTLED and settled_by(deletion, checkpoints) is None for deletion in left):
        return True
    return bool(left and checkpoints) and now - checkpoints[-1].at >= WRITTEN


def _merged(
    left: Iterable[Deletion | JamesDeletion],
) -> tuple[tuple[tuple[DeletedMail, ...], ...], set[TopicPlace]]:
    small = [deletion for deletion in left if isinstance(deletion, Deletion) and len(deletion.mails) < MERGED_MAX]
    if len(small) < MERGED_FROM:
        return (), set()
    once: dict[DeletedMail, None] = {}
    for deletion in small:
        once.update(dict.fromkeys(deletion.mails))
    mails = tuple(once)
    together = tuple(mails[begin : begin + MERGED_MAX] for begin in range(0, len(mails), MERGED_MAX))
    return together, {deletion.where for deletion in small}


def _outdone(left: Iterable[Deletion | JamesDeletion]) -> set[TopicPlace]:
    """Deletions of James's that a later one of the same mails has outdone."""
    of_james = [deletion for deletion in left if isinstance(deletion, JamesDeletion)]
    in_order = sorted(of_james, key=lambda deletion: (deletion.at, deletion.where))
    latest = {(deletion.kind, deletion.value): deletion.where for deletion in in_order}
    return {deletion.where for deletion in in_order} - set(latest.values())


def _james_keys(mail: Mail) -> Iterator[tuple[FilterKind, str]]:
    yield FilterKind.NAME, mail.name
    if mail.sender is not None:
        yield FilterKind.SENDER, mail.sender
    for recipient in mail.recipients:
        yield FilterKind.RECIPIENT, recipient
