"""The identities of mail, each a type of its own so that a type checker tells them apart."""

from collections.abc import Iterable
from typing import NewType
from uuid import UUID, uuid5

MailboxId = NewType("MailboxId", UUID)
"""The id of a mailbox: a version-1 UUID, as James makes them."""

MessageId = NewType("MessageId", UUID)
"""The id of a message: a version-1 UUID, whose time is the creation time of the message."""

Uid = NewType("Uid", int)
"""The message's number in one mailbox; the first is 1."""

ModSeq = NewType("ModSeq", int)
"""The version of a message's flags in one mailbox; the first is 1."""

RunId = NewType("RunId", UUID)
"""One run of a check or repair: a version-1 UUID, so that its day is known from its name."""

EnqueueId = NewType("EnqueueId", UUID)
"""One passage of one mail through one queue: a random UUID, as James draws them."""

QueueName = NewType("QueueName", str)
"""The name of a mail queue, checked by `mailqueue.rules.mails.queue_name`."""

BlobId = NewType("BlobId", str)
"""The id under which a blob store keeps bytes."""

_KEYED = UUID("6f0c4f0e-2d43-5c7e-9a7b-35d6a3d1c9b2")
UUID_EPOCH_100NS = 0x01B21DD213814000  # 1582-10-15 to 1970-01-01 in units of 100 ns (RFC 9562)


def micros_of(time_uuid: UUID) -> int:
    """The time in a version-1 UUID, in microseconds since 1970."""
    return (time_uuid.time - UUID_EPOCH_100NS) // 10


def later_uuid(own: UUID, seen: UUID) -> UUID:
    """Return the version-1 UUID `own`; where its time is not after the time of `seen`, with 1 µs more than that."""
    if own.time > seen.time:
        return own
    time = seen.time + 10
    return UUID(
        fields=(
            time & 0xFFFFFFFF,
            time >> 32 & 0xFFFF,
            time >> 48 | 0x1000,  # the version
            own.clock_seq_hi_variant,
            own.clock_seq_low,
            own.node,
        )
    )


def restored_id(was: EnqueueId, queue: QueueName) -> EnqueueId:
    """The id of a mail that is put back after its removal from a queue: the same on every retry.

    It does not depend on the removal: a removal that was killed and repeated records the same mail twice, and the mail
    must be restored once only.
    """
    return EnqueueId(uuid5(was, f"mailmend:restored:{queue}"))


def put_off_id(was: EnqueueId, numbers: Iterable[int]) -> EnqueueId:
    """The id of the mail with which recipients of a passage through the queue come again: the same on every retry.

    It does not depend on when they come again: a server that is killed and goes on later puts off the same mail.
    """
    return EnqueueId(uuid5(was, f"mailmend:again:{','.join(map(str, sorted(numbers)))}"))


def report_id(was: EnqueueId) -> EnqueueId:
    """The id of the report about a passage through the queue: the same on every retry."""
    return EnqueueId(uuid5(was, "mailmend:report"))


def keyed_id(key: str, *texts: str) -> UUID:
    """The id of what a caller does under a key: the same for the same key and texts, on every retry."""
    length_and_text = (f"{len(text)}:{text}" for text in (key, *texts))
    return uuid5(_KEYED, "".join(length_and_text))


def part_id(whole: UUID, part: int) -> EnqueueId:
    """The id of one of the mails that a new mail becomes, by its place: the same on every retry."""
    return EnqueueId(uuid5(whole, f"mailmend:part:{part}"))


def moved_id(was: EnqueueId, queue: QueueName) -> EnqueueId:
    """The id of a mail that comes from another queue into one that had it before: the same on every retry."""
    return EnqueueId(uuid5(was, f"mailmend:moved:{queue}"))
