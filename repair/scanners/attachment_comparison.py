"""Attachments that messages name, and that have no row in attachmentV2.

James writes the rows of attachments before the row of their message, and removes them before it. Of
an attachment without a whole row it shows nothing, and no task writes the row again: the attachment
is in the content of its message. Rows expire where James has `james.jmap.attachment.ttl`: where any
row that was read expires, a missing one is no mismatch. A row that no message names only takes
room, and is not looked for.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple
from uuid import UUID

from mailmend.model.catalog.james_tables import ATTACHMENT
from mailmend.model.catalog.mail import MESSAGE_V3
from mailmend.model.operations import Seen
from mailmend.repair.scanners.mismatches import Mismatch, RowReader

_NAMED: Final = ("messageid", "attachments")
_WHOLE: Final = ("id", "blobid")
"""What James's reads need of a row."""

READS: Final = ((MESSAGE_V3, _NAMED), (ATTACHMENT, ATTACHMENT.names))
"""What the comparison reads."""

_AT_ONCE: Final = 500
"""The number of rows of attachments that are asked for together."""


class NamedAttachment(NamedTuple):
    """An attachment that a message names."""

    message: UUID
    id: str

    @property
    def key(self) -> tuple[UUID]:
        return (uuid_of(self.id),)


def uuid_of(attachment: str) -> UUID:
    """The key of an attachment's row, as Java's `UUID.nameUUIDFromBytes` makes it of its id."""
    digest = hashlib.md5(attachment.encode(), usedforsecurity=False).digest()
    return UUID(bytes=digest, version=3)


def attachments(
    reader: RowReader,
    first: Collection[Mismatch] | None = None,
) -> Iterator[Mismatch]:
    """Attachments without a whole row; none where rows of attachments expire.

    Memory: some 500 bytes for each attachment without a row.
    """
    lacking = []
    waiting = _named(reader, first)
    while named := list(islice(waiting, _AT_ONCE)):
        keys = [attachment.key for attachment in named]
        rows = reader.under(ATTACHMENT, keys, *_WHOLE)
        for attachment, seen in zip(named, rows, strict=True):
            if seen is not None and seen.ttls:
                return
            if not _is_whole(seen):
                lacking.append(_lacking(attachment, seen))
    yield from lacking


def _named(reader: RowReader, first: Collection[Mismatch] | None) -> Iterator[NamedAttachment]:
    """What the messages name; at a second look, the messages of what was found."""
    if first is None:
        for row in reader.rows(MESSAGE_V3, *_NAMED):
            yield from _of_message(row["messageid"], row["attachments"])
        return
    waiting = iter(sorted({mismatch.key[0] for mismatch in first}))
    while texts := list(islice(waiting, _AT_ONCE)):
        messages = [UUID(text) for text in texts]
        rows = reader.under(MESSAGE_V3, [(message,) for message in messages], *_NAMED)
        for message, seen in zip(messages, rows, strict=True):
            if seen is not None:
                yield from _of_message(message, seen.row["attachments"])


def _of_message(
    message: UUID,
    cell: Iterable[Mapping[str, Any]] | None,
) -> Iterator[NamedAttachment]:
    """Each attachment once: a message that James stored again lists them twice."""
    ids = {attachment["id"] for attachment in cell or ()}
    for identity in sorted(filter(None, ids)):
        yield NamedAttachment(message, identity)


def _is_whole(seen: Seen | None) -> bool:
    return seen is not None and None not in map(seen.row.get, _WHOLE)


def _lacking(attachment: NamedAttachment, seen: Seen | None) -> Mismatch:
    which = "no row"
    if seen is not None:
        which = "half a row"
    named = f"message {attachment.message} names the attachment {attachment.id}"
    what = f"{named}, of which {ATTACHMENT.spelling} has {which}"
    key = (str(attachment.message), attachment.id)
    return Mismatch(ATTACHMENT.spelling, key, what=what, mend=_MEND)


_MEND: Final = "No task writes the row again. The attachment is in the content of the message."
