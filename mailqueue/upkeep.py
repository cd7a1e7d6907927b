"""What the maintenance of a queue has done, or in a dry run would do: values."""

from dataclasses import dataclass, replace
from datetime import datetime

from mailmend.mailqueue.rules.mails import Mail, QueuedMail
from mailmend.model.ids import EnqueueId


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep has done, or would do.

    Attributes:
        slices: that were cleaned, whether or not they held anything.
        blobs: of mails that were done with, deleted once more in case they were left.
        rescued: mails without a mark that lay before the browse start, and were put back and published.
        renewed: mails that would have expired soon, put again.
        orphan_marks: marks that this process wrote since its last sweep for mails of slices that no listing reads.
        moved_back: whether another program moved the browse start back.
        browse_start, content_start: as they are now; None: nothing was ever enqueued.
        browse_start_before, content_start_before: as they were; None where they were not set.
    """

    slices: int = 0
    rows: int = 0
    blobs: int = 0
    rescued: int = 0
    renewed: int = 0
    orphan_marks: int = 0
    moved_back: bool = False
    browse_start: datetime | None = None
    content_start: datetime | None = None
    browse_start_before: datetime | None = None
    content_start_before: datetime | None = None
    rescued_ids: tuple[EnqueueId, ...] = ()


@dataclass(frozen=True, slots=True)
class TendedDeletions:
    """What was done about the deletions of a queue over topics.

    Attributes:
        left: how many deletions are still needed.
        expired: how many messages about deletions were no longer needed.
        again: how many deleted mails were there again.
    """

    left: int = 0
    expired: int = 0
    again: int = 0


Upkeep = Swept | TendedDeletions
"""One round of what keeps a queue small and safe, except moving due mails: the work depends on the broker."""


@dataclass(slots=True)
class Redriven:
    """What became of the dead letters; in a dry run, what would become of them.

    Attributes:
        dropped: those whose mails were deleted meanwhile.
        delivered: those that were dropped because every recipient has the mail.
        recipients_skipped: recipients that have their mail, of the dead letters that are back and of those dropped.
        unreadable: those that tell of no mail; they stay where they are.
    """

    redriven: int = 0
    dropped: int = 0
    unreadable: int = 0
    delivered: int = 0
    recipients_skipped: int = 0

    @property
    def seen(self) -> int:
        return self.redriven + self.dropped + self.delivered + self.unreadable

    def add(self, queued: QueuedMail, lacking: Mail | None) -> QueuedMail | None:
        """Count a dead letter; the mail as it goes back, None where every recipient has it.

        Args:
            queued: the mail of the dead letter.
            lacking: the mail for those recipients that lack it; None: none does.
        """
        skipped = len(queued.mail.recipients)
        if lacking:
            skipped -= len(lacking.recipients)
        self.recipients_skipped += skipped
        if lacking is None:
            self.delivered += 1
            return None
        self.redriven += 1
        return replace(queued, mail=lacking)
