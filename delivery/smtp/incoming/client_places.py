"""The connections of a listener, and who of them may stay: how many there are, in all and of each address."""

import logging
import ssl
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mailmend.delivery.mail.attempts import SmtpReply
from mailmend.delivery.settings import GIVES_WAY_AFTER, ListenerSettings
from mailmend.delivery.smtp.incoming import replies
from mailmend.delivery.smtp.incoming.intake import MailIntake
from mailmend.delivery.smtp.incoming.users import ListenerUsers
from mailmend.model.grammar import counted_address

if TYPE_CHECKING:
    from mailmend.delivery.smtp.incoming.client_connections import ClientConnection

_LOG: Final = logging.getLogger("mailmend.delivery")


@dataclass(slots=True, eq=False)
class ClientConnections:
    """The connections of a listener, and what they have in common.

    Attributes:
        tls: of clients that ask for it, or connect where all is secured; None: nothing is.
        users: who may log in; None: no client does.
        stopping: no more are taken, and no mail begins.
        bytes_held: of mails that are coming or are being put into the queue, over all of them.
        refused: how often, by the enhanced status code of the reply.
    """

    settings: ListenerSettings
    intake: MailIntake
    tls: ssl.SSLContext | None = None
    users: ListenerUsers | None = None
    stopping: bool = False
    bytes_held: int = 0
    open: "set[ClientConnection]" = field(default_factory=set)
    refused: Counter[str] = field(default_factory=Counter)
    _by_address: Counter[str] = field(default_factory=Counter)

    def now(self) -> float:
        return self.intake.clock.monotonic()

    @property
    def are_full(self) -> bool:
        return len(self.open) >= self.settings.connections_max

    def must_log_in(self, client: str) -> bool:
        """Whether a client of this address hands mails over only behind a login."""
        return self.settings.auth_required or not self.settings.may_relay(client)

    def join(self, connection: "ClientConnection") -> SmtpReply | None:
        """Count a connection, before anything is said or secured; a reply where it may not stay."""
        if self.stopping:
            return replies.STOPPING
        if self.users is None and not self.settings.may_relay(connection.client):
            _LOG.warning("a client may not hand over mails", extra={"client": connection.client})
            return replies.STRANGER
        address = counted_address(connection.client)
        if self._by_address[address] >= self.settings.connections_by_address_max:
            return replies.CROWDED_ADDRESS
        if self.are_full and not self._make_room(address):
            return replies.CROWDED
        self.open.add(connection)
        self._by_address[address] += 1
        return None

    def _make_room(self, address: str) -> bool:
        """Close one connection without a mail under way for a client of this address; False where none gives way.

        It is one of the address with the most connections: silent clients of few addresses keep no
        other address out, and no address takes the place of an address with fewer connections. Of
        them, one that named no sender comes first, then the one whose last mail, or whose begin, is
        the longest ago. Commands alone keep no place.
        """
        begun_by = self.now() - GIVES_WAY_AFTER.total_seconds()
        waiting: dict[str, list[ClientConnection]] = {}
        for connection in self.open:
            if not connection.has_mail and connection.waits_since <= begun_by:
                waiting.setdefault(counted_address(connection.client), []).append(connection)
        most = max((self._by_address[other] for other in waiting), default=0)
        chosen: list[ClientConnection] = []
        if most > self._by_address[address]:
            for other, connections in waiting.items():
                if self._by_address[other] == most:
                    chosen += connections
        elif most == self._by_address[address]:
            chosen = waiting.get(address, [])
        if not chosen:
            return False
        longest = min(chosen, key=lambda connection: (connection.has_sender, connection.waits_since))
        _LOG.info("a connection gives way", extra={"client": longest.client, "connections": most})
        longest.end(replies.GIVES_WAY)
        self.leave(longest)
        return True

    def leave(self, connection: "ClientConnection") -> None:
        if connection in self.open:
            self.open.remove(connection)
            address = counted_address(connection.client)
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]
        self.intake.changed.set()
