"""The uids and modseqs that a mailbox's messages have, read from the mirror, which is keyed by mailbox and uid.

Asked where a generator of numbers may be behind them: its table was restored from a backup. A message in the truth that
the mirror does not show is not seen here; a check finds it, and then the generator.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mailmend.model.ids import MailboxId, MessageId
from mailmend.model.operations import Level, Read, Scan
from mailmend.model.ports import Tables
from mailmend.model.projections.mirror import Mirror
from mailmend.model.table import Row
from mailmend.repair.retries import Retries

LATEST_UIDS = 100
"""The number of latest uids whose modseqs are compared with the generator's."""


@dataclass(frozen=True, slots=True)
class NumbersInUse:
    """Looks at the rows of one mailbox of the mirror."""

    tables: Tables
    mirror: Mirror
    retries: Retries

    def highest_uid(self, mailbox: MailboxId, last: int) -> int:
        """The highest uid in the mailbox, where it is above `last`; else `last`."""
        return self.retries.call(lambda: max((row["uid"] for row in self._rows(mailbox, last)), default=last))

    def highest_modseq(self, mailbox: MailboxId, last: int, last_uid: int | None) -> int:
        """The highest modseq in the mailbox, where the latest messages have one above `last`; else `last`.

        Args:
            mailbox: whose rows are read: all of them only where a modseq above `last` was seen.
            last: the last modseq that the generator gave.
            last_uid: the last uid of the mailbox; None where it is not known, and no row is read.
        """
        if last_uid is None:
            return last
        latest = self._highest_modseq(mailbox, max(0, last_uid - LATEST_UIDS))
        return self._highest_modseq(mailbox, 0) if latest > last else last

    def messages_at(self, mailbox: MailboxId, uids: Sequence[int]) -> Mapping[int, MessageId | None]:
        """The messages at these places, by uid; None at a place whose row names no message."""
        lead = self._lead
        read = Read(self.mirror.table, (mailbox,), among=tuple(uids), columns=(lead,))
        rows = self.retries.call(lambda: self.tables.read(read))
        return {seen.row["uid"]: seen.row.get(lead) for seen in rows}

    def _highest_modseq(self, mailbox: MailboxId, after: int) -> int:
        return self.retries.call(lambda: max((row["modseq"] or 0 for row in self._rows(mailbox, after)), default=0))

    def _rows(self, mailbox: MailboxId, after: int) -> Iterator[Row]:
        return self.tables.scan(
            Scan(self.mirror.table, ("uid", "modseq"), Level.QUORUM, under=(mailbox,), after=(after,))
        )

    @property
    def _lead(self) -> str:
        (lead,) = (column.name for column in self.mirror.truth.partition)
        return self.mirror.own_names.get(lead, lead)
