"""What delivery is connected to besides the queue: the servers that take mail. Its libraries are an extra."""

import socket
from pathlib import Path

from admin.extras import import_or_name_extra
from model.ports import MailRelay


def relay_of(host_name: str, authorities: Path | None) -> MailRelay:
    """What passes mails on, under this name; `authorities` are trusted besides nobody else, if they are named."""
    smtp = import_or_name_extra("delivery.smtp")
    relay: MailRelay = smtp.SmtpRelay(host_name, str(authorities.expanduser()) if authorities else None)
    return relay


def own_name() -> str:
    """The name of this host, as the system knows it."""
    return socket.getfqdn()
