"""A cluster's address and credentials as plain data, and our errors for failed requests.

No driver is imported here: remote workers receive the address as it is, and settings are checked
without any driver.

The session tells the kind of a failure. This module decides whether the request may have been carried out. The most
important rule: a conditional write or a count without an answer is in doubt, whatever the kind of failure.
"""

import os
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from mailmend.cql.row_statements import Operation
from mailmend.model.errors import (
    FOR_SOMEBODY_ELSE,
    NO_TLS,
    OUT_OF_TIME,
    UNKNOWN_AUTHORITY,
    AccessDenied,
    BadSettings,
    CannotReach,
    DoubtfulWrite,
    MailmendError,
    NotEnoughReplicas,
    SchemaMismatch,
    TableOpening,
    TimedOut,
    TlsReason,
    UnknownKeyspace,
    WrongUse,
    tls_failure_in,
)
from mailmend.model.operations import Change, ChangeIf, Count, Put, PutIfAbsent, Read, Remove, RemoveIf, Scan

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
            after which nothing is sent under it any more (`repair.store.writes.WriterSettings.send_micros`).
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


class Purpose(Enum):
    """The purpose of a request; the value is its wording in messages."""

    READ = "read"
    WRITE = "write"  # idempotent: sending it again is harmless
    ONCE = "change"  # conditional or counting: without an answer nobody knows what happened
    SCHEMA = "change the schema of"


def purpose_of(operation: Operation) -> Purpose:
    match operation:
        case Read() | Scan():
            return Purpose.READ
        case Count() | PutIfAbsent() | ChangeIf() | RemoveIf():
            return Purpose.ONCE
        case _:
            return Purpose.WRITE


class DriverFailure(Enum):
    """The kinds of failure, as far as they differ in whether the request may have been carried out."""

    DENIED = "denied"  # the credentials, or the permission
    NO_HOST = "no host"  # the request never left
    FEW_REPLICAS = "few replicas"  # the coordinator did not even begin
    REFUSED = "refused"  # the server never accepts this request
    SILENCE = "silence"  # no answer in time
    BROKEN = "broken"  # anything else: a lost connection, a failed replica, a server error


_MEND_ACCESS = "Check --username, --password-file and what the role was granted."
_MEND_NODES = "See which nodes are up with: nodetool status. Then run the same command again."
_MEND_LOAD = "The cluster may be overloaded, or nodes down: see nodetool status, then run the same command again."
_MEND_DOUBT = "It may have been applied, or be applied yet: read it at SERIAL before anything else."

_MEND_GRANTS = "See what it lacks, and the GRANT that mends it, with: mailmend schema grants --check"

_OPENING = "Unknown CF"
_NO_PERMISSION = re.compile(r"User (\S+) has no (\w+) permission on <([^>]*)> or any of its parents")
_NO_TABLE = re.compile(r"(?:unconfigured table|table) (\w+)(?: does not exist)?")
_NO_COLUMN = re.compile(r"(?:Undefined column name|Undefined name|Unknown identifier) \"?([\w.]+)\"?")
_NO_KEYSPACE = re.compile(r"[Kk]eyspace '?(\w+)'? does not exist")
_CODE = re.compile(r".*message=\"(.*)\"", re.DOTALL)


def failure_of(kind: DriverFailure, said: str, purpose: Purpose, keyspace: str, table: str) -> MailmendError:  # noqa: PLR0911 - one for each kind
    """Our error for a failed request: what was requested, whether it may have happened, how to mend it."""
    request = f"{purpose.value} {keyspace}.{table}".strip(".")
    said = _plain(said)
    if purpose is Purpose.READ and _OPENING in said:
        return TableOpening(f"a node could not {request}, as it is still making it: {said}", mend=_MEND_NODES)
    match kind:
        case DriverFailure.DENIED:
            return permission_lacking(said, request) or AccessDenied(
                f"the cluster does not let us {request}: {said}", mend=_MEND_ACCESS
            )
        case DriverFailure.NO_HOST:
            return CannotReach(f"no node could be asked to {request}: {said}", mend=_MEND_NODES)
        case DriverFailure.FEW_REPLICAS:
            return NotEnoughReplicas(f"too few replicas were alive to {request}: {said}", mend=_MEND_NODES)
        case DriverFailure.REFUSED:
            return _refusal(said, request, keyspace, table)
        case _ if purpose is Purpose.ONCE:
            return DoubtfulWrite(f"no sure answer came when asked to {request}: {said}", mend=_MEND_DOUBT)
        case DriverFailure.SILENCE:
            return TimedOut(f"no answer came in time when asked to {request}: {said}", mend=_MEND_LOAD)
        case DriverFailure.BROKEN:
            return CannotReach(f"the cluster failed to {request}: {said}", mend=_MEND_NODES)


def no_contact(
    kind: DriverFailure, said: str, address: str, local_dc: str | None, *, tls: bool = False
) -> MailmendError:
    if found := tls_failure(said, address, tls=tls):
        return found
    if kind is DriverFailure.DENIED:
        return AccessDenied(f"the cluster at {address} refused the credentials: {_plain(said)}", mend=_MEND_ACCESS)
    where = ""
    options = "--host, --port"
    if local_dc:
        where = f" in data centre {local_dc!r}"
        options = "--host, --port, --local-dc"
    return CannotReach(
        f"no node at {address}{where} could be connected to: {_plain(said)}",
        mend=f"Check {options} and that the nodes are up: nodetool status",
    )


def permission_lacking(said: str, request: str) -> AccessDenied | None:
    """AccessDenied where the server names role, permission and resource; else None."""
    found = _NO_PERMISSION.search(said)
    if found is None:
        return None
    role, permission, resource = found.groups()
    return AccessDenied(f"role {role!r} may not {request}: it has no {permission} on {resource}", mend=_MEND_GRANTS)


def _refusal(said: str, request: str, keyspace: str, table: str) -> MailmendError:
    if (found := _NO_KEYSPACE.search(said)) is not None:
        return UnknownKeyspace(found[1])
    if (found := _NO_COLUMN.search(said)) is not None:
        return SchemaMismatch(keyspace, (f"{table}.{found[1]}",))
    if (found := _NO_TABLE.fullmatch(said)) is not None:
        return SchemaMismatch(keyspace, (f"table {found[1]}",))
    return WrongUse(f"the server would not {request}: {said}")


def _plain(said: str) -> str:
    found = _CODE.fullmatch(said.strip("<>"))
    if not found:
        return said
    return found[1]


_HUNG_UP = re.compile(r"Connection reset by peer|Connection to \S+ was closed|Errno 104")

_REASONS = (
    TlsReason(
        OUT_OF_TIME,
        "the certificate of the node at {place} is out of its time: {words}",
        "Renew the node's certificate; or set this machine's clock, where that is wrong.",
    ),
    TlsReason(
        FOR_SOMEBODY_ELSE,
        "the certificate of the node at {place} is for another host: {words}",
        "It must name the node's IP address. --no-tls-hostnames with --tls-ca takes any certificate of that authority.",
    ),
    TlsReason(
        UNKNOWN_AUTHORITY,
        "the certificate of the node at {place} was not signed by an authority that we know: {words}",
        "Name the authority that signed it with --tls-ca.",
    ),
    TlsReason(
        re.compile(r"(?i)alert certificate required|alert bad certificate|alert unknown ca"),
        "the node at {place} does not take our certificate, or we showed none: {words}",
        "Show one that its authority signed with --tls-cert and --tls-key.",
    ),
    TlsReason(
        re.compile(r"EOF occurred in violation of protocol"),
        "the node at {place} hung up on TLS, as one does that wants to see our certificate: {words}",
        "Show one that its authority signed with --tls-cert and --tls-key.",
    ),
    # A node that refuses our certificate says so, but a reset may overtake its words (TLS 1.3).
    TlsReason(
        _HUNG_UP,
        "the node at {place} closed the connection, as if it wanted our certificate: {words}",
        "If it wants one, show one that its authority signed with --tls-cert and --tls-key; "
        "else check that the node is up: nodetool status",
    ),
    TlsReason(
        NO_TLS,
        "what answers at {place} does not speak TLS: {words}",
        "Check --port, or leave TLS out with --no-tls where the network in between is trusted.",
    ),
)


def tls_failure(said: str, address: str, *, tls: bool) -> CannotReach | None:
    """Our error where TLS failed between the two sides; None for any other failure."""
    if not tls:
        if not _HUNG_UP.search(said):
            return None
        return _without_tls(address)
    return tls_failure_in(said, address, _REASONS, CannotReach)


def _without_tls(address: str) -> CannotReach:
    return CannotReach(
        f"the node at {address} closed the connection: it may require TLS",
        mend="Name the authority that signed its certificate with --tls-ca.",
    )
