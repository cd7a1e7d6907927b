"""What fixing needs of the ledger: the port through which before-images and results are kept (DESIGN idea 6).

A before-image is the outcome as it stood before its write: both sides with their times. It is recorded once per run and
row, the first one wins: a task that is retried would otherwise record its own fix as what stood there.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from model.errors import MailmendError
from model.ids import RunId
from repair.decisions.findings import Outcome, Suspect


class Journal(Protocol):
    """Where before-images are kept. Adapter: `repair.ledger.runs.Ledger`, over a cluster or over memory."""

    def record(self, run: RunId, as_of: int, outcomes: Sequence[Outcome]) -> list[MailmendError | None]:
        """Keep what is about to be overwritten; for each its error, or None once it is safe to write over it."""
        ...

    def settle(self, run: RunId, outcomes: Sequence[Outcome]) -> list[MailmendError | None]:
        """Keep what became of each; for each its error, or None."""
        ...

    def finding(self, run: RunId, suspect: Suspect) -> Outcome | None:
        """What a run recorded of one suspect, or None."""
        ...

    def findings(self, run: RunId) -> Iterator[Outcome]:
        """Everything that a run recorded, in no particular order."""
        ...
