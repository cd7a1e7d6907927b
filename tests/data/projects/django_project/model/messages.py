"""The mail of the project, opened once in the process."""

import atexit
from datetime import UTC, datetime

import mailmend

MAIL = mailmend.open()
atexit.register(MAIL.close)
_STORED: dict[str, list[mailmend.MessageId]] = {}


def archive(user: str, content: bytes) -> int:
    """Keep a mail in the user's archive; its uid there."""
    mailbox = MAIL.mailboxes.ensure(user, "Archive")
    header, body = mailmend.split_mail(content)
    stored = MAIL.messages.add(mailbox, mailmend.NewMail(header, body, datetime.now(UTC)))
    _STORED.setdefault(user, []).append(stored.message_id)
    return stored.uid


def contents(user: str) -> list[str]:
    """The mails that this process archived for a user."""
    return [MAIL.messages.content(message).decode() for message in _STORED.get(user, [])]
