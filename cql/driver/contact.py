"""A cluster's address and credentials as plain data, so that remote workers can receive it.

Separate from the session, so that settings can be checked without any driver.
"""

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from mailmend.cql.row_statements import Operation
from mailmend.model.errors import BadSettings
from mailmend.model.operations import Change, ChangeIf, Put, PutIfAbsent, Remove, RemoveIf

SOCKET_OPTIONS: Final = ((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),)
"""Options of each connection's socket: requests are sent at once (TCP_NODELAY).

With Nagle's algorithm, the driver's default, parallel requests would wait up to 50 ms for each other.
"""


@dataclass(frozen=True, slots=True)
class Contact:
    """A cluster's address and credentials.

    Attributes:
        local_dc: the data centre to talk to; None takes the data centre of the first host that
            answers.
        tls_ca, tls_cert, tls_key: paths of PEM files; any of them turns TLS on.
        tls_texts: the contents of these files, by path, for a process on a host that does not have the files.
        tls_hostnames: also demand that certificates name the address that was dialled.
        write_seconds: the longest wait for the answer to one write: several waits fit between a stamp and the moment
            after which nothing is sent under it any more (`repair.store.truth_writes.WriterSettings.send_micros`).
            Longer than the servers' own write_request_timeout (2 s unless cassandra.yaml says otherwise).
    """

    hosts: tuple[str, ...] = ("127.0.0.1",)
    port: int = 9042
    local_dc: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_texts: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    tls_hostnames: bool = False
    request_seconds: float = 10.0
    write_seconds: float = 4.0

    @property
    def tls_files(self) -> tuple[str, ...]:
        """The paths of the TLS files that are named."""
        paths = (self.tls_ca, self.tls_cert, self.tls_key)
        return tuple(path for path in paths if path)

    @property
    def address(self) -> str:
        return ", ".join(f"{host}:{self.port}" for host in self.hosts)

    def seconds_for(self, operation: Operation) -> float:
        """The longest wait for an answer; a count cannot be sent again, so it gets `request_seconds`."""
        if isinstance(operation, Put | Change | Remove | PutIfAbsent | ChangeIf | RemoveIf):
            return min(self.write_seconds, self.request_seconds)
        return self.request_seconds

    @property
    def tls(self) -> bool:
        return bool(self.tls_ca or self.tls_cert)


def with_tls_texts(contact: Contact) -> Contact:
    """The contact with the contents of its TLS files, for a process on another host."""
    texts = []
    with _our_errors(contact):
        for path in sorted(set(contact.tls_files)):
            texts.append((path, Path(path).read_text()))
    return replace(contact, tls_texts=tuple(texts))


def tls_context(contact: Contact) -> ssl.SSLContext | None:
    """The TLS context; None without TLS. Certificates are always checked, host names only with `tls_hostnames`."""
    if not contact.tls:
        return None
    with _our_errors(contact), ExitStack() as files:
        here: dict[str | None, str] = {}
        for path, text in contact.tls_texts:
            here[path] = files.enter_context(_off_disk(text))
        context = ssl.create_default_context(cafile=here.get(contact.tls_ca, contact.tls_ca))
        context.check_hostname = contact.tls_hostnames
        certificate = here.get(contact.tls_cert, contact.tls_cert)
        if certificate:
            context.load_cert_chain(certificate, here.get(contact.tls_key, contact.tls_key))
    return context


@contextmanager
def _off_disk(text: str) -> Iterator[str]:
    """The path of a file without a name, in memory where the system can (Linux): OpenSSL takes keys from files only."""
    with _nameless_file() as file:
        file.write(text.encode())
        file.flush()
        file.seek(0)
        yield f"/dev/fd/{file.fileno()}"


def _nameless_file() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("tls"), "wb")
    return TemporaryFile()


@contextmanager
def _our_errors(contact: Contact) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # ssl's errors are OSErrors too
        raise BadSettings(
            f"the TLS files cannot be used: {error} ({', '.join(contact.tls_files)})",
            mend="Check --tls-ca, --tls-cert and --tls-key.",
        ) from error
