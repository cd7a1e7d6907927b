"""What stood where a run wrote: the before-images that make a repair something one can take back (DESIGN idea 6).

A before-image is recorded before its write, once per run and row: the first one wins, because a task that is retried
would otherwise record its own fix as what stood there. `repair.runs.Ledger` keeps them; `MemoryJournal` is its twin.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from model.ids import RunId
from model.operations import Seen
from model.table import Key, Row
from repair.decide import Verdict


@dataclass(frozen=True, slots=True)
class BeforeImage:
    """One row that a fix is about to change, and all that taking it back depends on.

    Attributes:
        run: the run that writes.
        table: the changed table, in James's spelling: a projection's, or the truth's.
        key: the row's primary key.
        verdict: what the fix was decided for.
        at: the stamp of the fix, in microseconds; 0 for a conditional write, whose stamp the server takes.
        before: the row with every live column and their times, or None: there was none.
        after: the columns that the fix writes (for a union: the elements that it adds), or None: it removes the row.
        truths: the truth rows that the fix was decided upon.
    """

    run: RunId
    table: str
    key: Key
    verdict: Verdict
    at: int
    before: Seen | None
    after: Row | None
    truths: tuple[Row, ...] = ()


class Journal(Protocol):
    """Where before-images are kept. Adapters: `repair.runs.Ledger` and `MemoryJournal`."""

    def record(self, images: Sequence[BeforeImage]) -> None:
        """Keep the images durably; of two for one (run, table, key) the first stays.

        Raises:
            MailmendError: not every image is certainly kept; nothing may be written then.
        """
        ...

    def images(self, run: RunId) -> Iterator[BeforeImage]:
        """Every image of a run, in no particular order."""
        ...


class MemoryJournal:
    """Before-images in memory: for tests, and for a repair that is tried out."""

    def __init__(self) -> None:
        self._images: dict[tuple[RunId, str, Key], BeforeImage] = {}

    def record(self, images: Sequence[BeforeImage]) -> None:
        """Keep the images; of two for one (run, table, key) the first stays."""
        for image in images:
            self._images.setdefault((image.run, image.table, image.key), image)

    def images(self, run: RunId) -> Iterator[BeforeImage]:
        """Every image of a run, in the order in which they were recorded."""
        return (image for image in list(self._images.values()) if image.run == run)
