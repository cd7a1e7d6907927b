"""Mails as James has them on the wire and on disk, under one name: messages, rows, the two blobs, attributes."""

from mailmend.mailqueue.codec.messages import (
    BrokenRow,
    attempts_of,
    attribute,
    attribute_value,
    due_listed_of,
    due_row_of,
    listed_of,
    message_of,
    payload_of,
    priority_of,
    publish_mail,
    queued_of,
    read_row,
    row_of,
    slice_of_message,
    with_priority,
)

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
