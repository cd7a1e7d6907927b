"""The life of a mail: in by SMTP, through the queue, picked by policies, attempted, tried again or reported.

The words for stages, outcomes and ends are the members of the enums.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final

from mailmend.delivery.mail.attempts import AttemptOutcome, AttemptStage
from mailmend.delivery.mail.entries import EntryEnd, EntryState
from tests.pictures.drawing import Arrow, Box, Picture


def words_of(members: Iterable[Enum]) -> str:
    return ", ".join(str(member.value) for member in members)


_STAGES: Final = tuple(AttemptStage)
_OTHER_ENDS: Final = [end for end in EntryEnd if end.name not in AttemptOutcome.__members__]

MAIL_LIFE: Final = Picture(
    "The life of a mail: in by SMTP, queued, picked, attempted, tried again or reported",
    (225, 245, 250, 245),
    (
        Box(
            "in",
            0,
            0,
            "in by SMTP",
            ("rules set its attributes;", "quotas are asked;", "250 once it is kept"),
            ("delivery/smtp/incoming",),
            "ours",
        ),
        Box(
            "queue",
            1,
            0,
            "queue",
            ("blobs, then the row, then", "the message at the broker"),
            ("mailqueue",),
            "copy",
        ),
        Box(
            "entries",
            2,
            0,
            "one entry per recipient",
            (f"{words_of(EntryState)}:", "only active ones are picked"),
            ("delivery/server",),
            "ours",
        ),
        Box(
            "policy",
            3,
            0,
            "policy",
            ("all counters of the entry are", "asked; one that refuses holds", "it back until there is room"),
            ("delivery/policy",),
            "truth",
        ),
        Box(
            "attempt",
            3,
            1,
            "attempt",
            (
                "written to the journal first;",
                f"{words_of(_STAGES[:4])},",
                words_of(_STAGES[4:]),
            ),
            ("delivery/smtp/outgoing", "delivery/ledger"),
            "ours",
        ),
        Box(
            AttemptOutcome.REFUSED.name,
            2,
            1,
            AttemptOutcome.REFUSED.value,
            ("for now: the retry schedule says", "when it is tried again"),
            ("delivery/mail",),
        ),
        Box(
            AttemptOutcome.FAILED.name,
            2,
            2,
            AttemptOutcome.FAILED.value,
            (f"for good; also {words_of(_OTHER_ENDS)}",),
            ("delivery/mail",),
        ),
        Box(
            AttemptOutcome.RETURNED.name,
            2,
            3,
            AttemptOutcome.RETURNED.value,
            ("not to the end: another server,", "or again; no retry is counted"),
            ("delivery/server",),
        ),
        Box(
            AttemptOutcome.DELIVERED.name,
            2,
            4,
            AttemptOutcome.DELIVERED.value,
            ("the server has taken it",),
            ("delivery/server",),
            "copy",
        ),
        Box("again", 1, 1, "put off", ("a mail of its own with the", "recipients that are left"), ("mailqueue",)),
        Box("notice", 1, 2, "notice", ("a report to the sender,", "queued as a mail"), ("delivery/mail",)),
        Box(
            "gone",
            1,
            4,
            "out of the queue",
            ("once all recipients have ended:", "mark, ack, then the blobs"),
            ("mailqueue",),
            "copy",
        ),
    ),
    (
        Arrow("in", "queue"),
        Arrow("queue", "entries"),
        Arrow("entries", "policy"),
        Arrow("policy", "attempt", "picked"),
        Arrow("attempt", AttemptOutcome.REFUSED.name),
        Arrow(AttemptOutcome.REFUSED.name, "again"),
        Arrow("again", "queue", "when it is due"),
        Arrow("attempt", AttemptOutcome.FAILED.name, at=0.25),
        Arrow("attempt", AttemptOutcome.RETURNED.name, at=0.5),
        Arrow("attempt", AttemptOutcome.DELIVERED.name, at=0.75),
        Arrow(AttemptOutcome.FAILED.name, "notice"),
        Arrow(AttemptOutcome.DELIVERED.name, "gone"),
    ),
)
