"""Mails as James has them on the wire and on disk, under one name: messages, rows, the two blobs, attributes."""

from mailmend.mailqueue.codec.attributes import attribute, attribute_value, priority_of, with_priority
from mailmend.mailqueue.codec.messages import (
    attempts_of,
    message_of,
    payload_of,
    publish_mail,
    queued_of,
    slice_of_message,
)
from mailmend.mailqueue.codec.rows import BrokenRow, due_listed_of, due_row_of, listed_of, read_row, row_of

__all__ = [
    "BrokenRow",
    "attempts_of",
    "attribute",
    "attribute_value",
    "due_listed_of",
    "due_row_of",
    "listed_of",
    "message_of",
    "payload_of",
    "priority_of",
    "publish_mail",
    "queued_of",
    "read_row",
    "row_of",
    "slice_of_message",
    "with_priority",
]
