"""Mails as James has them on the wire and on disk, under one name: messages, rows, the two blobs, attributes."""

from mailqueue.codec.attributes import attribute, attribute_value, priority_of, with_priority
from mailqueue.codec.messages import attempts_of, message_of, slice_of_message
from mailqueue.codec.mime import split
from mailqueue.codec.payload import payload_of, queued_of
from mailqueue.codec.rows import due_listed_of, due_row_of, listed_of, row_of

__all__ = [
    "attempts_of",
    "attribute",
    "attribute_value",
    "due_listed_of",
    "due_row_of",
    "listed_of",
    "message_of",
    "payload_of",
    "priority_of",
    "queued_of",
    "row_of",
    "slice_of_message",
    "split",
    "with_priority",
]
