"""The driver's errors, mapped to ours."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from cassandra import (
    AuthenticationFailed,
    DriverException,
    OperationTimedOut,
    RequestValidationException,
    Timeout,
    Unauthorized,
    Unavailable,
    UnresolvableContactPoints,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionBusy, ConnectionException, ProtocolError
from cassandra.pool import NoConnectionsAvailable
from cassandra.protocol import ErrorMessage
from cassandra.protocol import RequestValidationException as RefusedMessage

from mailmend.cql.driver.contact import Contact, DriverFailure, Purpose, failure_of, no_contact
from mailmend.model.errors import CannotReach, MailmendError

_KINDS: tuple[tuple[type[Exception], DriverFailure], ...] = (
    (AuthenticationFailed, DriverFailure.DENIED),
    (Unauthorized, DriverFailure.DENIED),
    (NoHostAvailable, DriverFailure.NO_HOST),
    (NoConnectionsAvailable, DriverFailure.NO_HOST),
    (Unavailable, DriverFailure.FEW_REPLICAS),
    (RequestValidationException, DriverFailure.REFUSED),
    (RefusedMessage, DriverFailure.REFUSED),
    (Timeout, DriverFailure.SILENCE),
    (OperationTimedOut, DriverFailure.SILENCE),
    (DriverException, DriverFailure.BROKEN),
    (ErrorMessage, DriverFailure.BROKEN),
    (ConnectionException, DriverFailure.BROKEN),
    (ConnectionBusy, DriverFailure.BROKEN),
    (ProtocolError, DriverFailure.BROKEN),
    (OSError, DriverFailure.BROKEN),
)
"""The first that fits; an error of any other class is a bug and is raised as it is."""

FAILURES = tuple(kind for kind, _ in _KINDS)


def failure_kind(error: Exception) -> DriverFailure:
    """The kind of failure of a driver's error; refused credentials are found inside "no host available"."""
    tried = getattr(error, "errors", None)
    if isinstance(tried, Mapping) and any(isinstance(failure, AuthenticationFailed) for failure in tried.values()):
        return DriverFailure.DENIED
    return next(failure for kind, failure in _KINDS if isinstance(error, kind))


def said_by(error: Exception) -> str:
    """The driver's message; where several nodes failed, the nodes' own messages."""
    tried = getattr(error, "errors", None)
    if isinstance(tried, Mapping):
        return "; ".join(f"{host}: {failure}" for host, failure in tried.items()) or str(error.args[0])
    if isinstance(error, NoHostAvailable):
        return str(error.args[0])
    return str(error)


def our_error(error: Exception, purpose: Purpose, keyspace: str, table: str = "") -> MailmendError:
    return failure_of(failure_kind(error), said_by(error), purpose, keyspace, table)


@contextmanager
def our_errors_at(contact: Contact) -> Iterator[None]:
    try:
        yield
    except UnresolvableContactPoints as error:  # of several, none
        said = f"{', '.join(contact.hosts)} does not resolve to an address"
        raise CannotReach(said, mend="Check --host and the name service.") from error
    except FAILURES as error:
        kind, said = failure_kind(error), said_by(error)
        raise no_contact(kind, said, contact.address, contact.local_dc, tls=contact.tls) from error


@contextmanager
def our_errors(purpose: Purpose, keyspace: str, table: str = "") -> Iterator[None]:
    try:
        yield
    except FAILURES as error:
        raise our_error(error, purpose, keyspace, table) from error
