"""The identities of mail, each a type of its own so that a type checker tells them apart."""

from typing import NewType
from uuid import UUID, uuid5

MailboxId = NewType("MailboxId", UUID)
"""Where: a version-1 UUID, as James makes them."""

MessageId = NewType("MessageId", UUID)
"""What: a version-1 UUID; its time is the message's birth."""

Uid = NewType("Uid", int)
"""The message's number in one mailbox; the first is 1."""

ModSeq = NewType("ModSeq", int)
"""The version of a message's flags in one mailbox; the first is 1."""

RunId = NewType("RunId", UUID)
"""One run of a check or repair: a version-1 UUID, so that its day is known from its name."""

EnqueueId = NewType("EnqueueId", UUID)
"""One passage of one mail through one queue: a random UUID, as James draws them."""

QueueName = NewType("QueueName", str)
"""A mail queue's name, as `queue_name` lets it through."""

BlobId = NewType("BlobId", str)
"""What a blob store keeps bytes under."""

_UUID_EPOCH_100NS = 0x01B21DD213814000  # 1582-10-15 to 1970-01-01 in units of 100 ns (RFC 9562)


def micros_of(time_uuid: UUID) -> int:
    """The instant inside a version-1 UUID, in microseconds since 1970."""
    return (time_uuid.time - _UUID_EPOCH_100NS) // 10


def restored_id(was: EnqueueId, queue: QueueName) -> EnqueueId:
    """The id under which a mail comes back that was taken out of a queue: the same, however often that is begun.

    Nothing of the removal is in it: a removal that was killed and done again keeps the same mail twice, and it is to
    come back once.
    """
    return EnqueueId(uuid5(was, f"mailmend:restored:{queue}"))
