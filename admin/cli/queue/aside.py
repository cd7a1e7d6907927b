"""Where `queue reconcile` keeps what it takes out of a queue, before it does: mails, broken rows, orphan blobs."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from admin.cli.queue.browse import content_found
from admin.kept_mails import KeptMails, kept_file
from admin.wiring import state_folders
from admin.wiring_queue import Sides
from mailqueue.blobs.files import FileStore
from model.errors import BadPayload, BlobMissing
from model.ids import BlobId
from model.ports import StoredBlob
from model.queue.mails import Listed
from model.schema.table import Row

_BLOBS: Final = ("headerblobid", "bodyblobid")


@dataclass(slots=True)
class Aside:
    """Where what is taken out is kept first.

    Attributes:
        without_content: of so many mails only the envelope.
    """

    sides: Sides
    with_bytes: bool
    keeper: KeptMails
    folder: Path
    store: FileStore
    without_content: int = 0

    @classmethod
    def of(cls, sides: Sides, *, with_bytes: bool) -> Self:
        """Nothing is there yet."""
        name, folder = sides.settings.name, state_folders().kept_mails
        keeper = KeptMails(kept_file(folder, name, sides.now, "mark"), name)
        blobs = kept_file(folder, name, sides.now, "orphan-blobs").with_suffix("").with_suffix("")
        return cls(sides, with_bytes, keeper, blobs, FileStore(blobs, sides.clock))

    @property
    def files(self) -> tuple[Path, ...]:
        """Where something is kept."""
        kept = ((self.keeper.file, self.keeper.count), (self.folder, self.folder.exists()))
        return tuple(file for file, something in kept if something)

    async def keep_mail(self, listed: Listed) -> None:
        """A mail, with its bytes."""
        content = (await content_found(self.sides, listed)).content if self.with_bytes else None
        self.without_content += content is None
        await self.keeper.keep(listed, content)

    async def keep_row(self, row: Row) -> None:
        """A row that no mail can be read from, with those of its bytes that are there."""
        blobs = {}
        for column in _BLOBS if self.with_bytes else ():
            with suppress(BlobMissing, BadPayload):
                blobs[column] = await self.sides.blobs.get(BlobId(row[column] or ""))
        await self.keeper.keep_row(row, blobs)

    async def keep_blob(self, orphan: StoredBlob) -> None:
        """A blob."""
        self.store.create()
        await self.store.keep(orphan.blob_id, await self.sides.blobs.get(orphan.blob_id))
