"""One server for all mail, whatever its domain: a smart host, or a mail server that routes the mail."""

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from mailmend.delivery.mail.attempts import SMTP_PORT, NextHop, NoNextHop, SmtpReply


@dataclass(frozen=True, slots=True)
class SmartHost:
    """Implements `delivery.mail.attempts.NextHops`.

    Attributes:
        host: a name, which is looked up for each mail, or an address.
    """

    host: str
    port: int = SMTP_PORT

    def __str__(self) -> str:
        if ":" in self.host:
            return f"[{self.host}]:{self.port}"
        return f"{self.host}:{self.port}"

    async def of(self, domain: str) -> Sequence[NextHop]:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        except OSError as error:
            why = f"the address of {self.host} is not known: {error.strerror or error}"
            raise NoNextHop(domain, SmtpReply(451, "4.4.3", why, ours=True)) from error
        addresses = dict.fromkeys(str(address[0]) for *_, address in found)
        return [NextHop(self.host, address, self.port) for address in addresses]
