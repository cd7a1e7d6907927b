"""What each of the driver's errors is to us, and the words of the one that is raised instead."""

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
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionBusy, ConnectionException, ProtocolError
from cassandra.pool import NoConnectionsAvailable
from cassandra.protocol import ErrorMessage
from cassandra.protocol import RequestValidationException as RefusedMessage

from cql.driver.contact import Contact
from cql.driver.failures import Purpose, Trouble, failure_of, no_contact

_TROUBLES: tuple[tuple[type[Exception], Trouble], ...] = (
    (AuthenticationFailed, Trouble.DENIED),
    (Unauthorized, Trouble.DENIED),
    (NoHostAvailable, Trouble.NO_HOST),
    (NoConnectionsAvailable, Trouble.NO_HOST),
    (Unavailable, Trouble.FEW_REPLICAS),
    (RequestValidationException, Trouble.REFUSED),
    (RefusedMessage, Trouble.REFUSED),
    (Timeout, Trouble.SILENCE),
    (OperationTimedOut, Trouble.SILENCE),
    (DriverException, Trouble.BROKEN),
    (ErrorMessage, Trouble.BROKEN),
    (ConnectionException, Trouble.BROKEN),
    (ConnectionBusy, Trouble.BROKEN),
    (ProtocolError, Trouble.BROKEN),
    (OSError, Trouble.BROKEN),
)
"""The first that fits; an error of any other class is a bug, and shows."""

FAILURES = tuple(kind for kind, _ in _TROUBLES)


def trouble_of(error: Exception) -> Trouble:
    """Which trouble the driver met. It wraps refused credentials into an error that says: nobody answered."""
    tried = getattr(error, "errors", None)
    if isinstance(tried, Mapping) and any(isinstance(one, AuthenticationFailed) for one in tried.values()):
        return Trouble.DENIED
    return next(trouble for kind, trouble in _TROUBLES if isinstance(error, kind))


def said_by(error: Exception) -> str:
    """What the driver says; of several nodes' errors the nodes' own words."""
    tried = getattr(error, "errors", None)
    if isinstance(tried, Mapping):
        return "; ".join(f"{host}: {one}" for host, one in tried.items()) or str(error.args[0])
    return str(error.args[0] if isinstance(error, NoHostAvailable) else error)


@contextmanager
def told_at(contact: Contact) -> Iterator[None]:
    """Turn what the driver meets while it connects into our errors."""
    try:
        yield
    except FAILURES as error:
        trouble, said = trouble_of(error), said_by(error)
        raise no_contact(trouble, said, contact.address, contact.local_dc, tls=contact.tls) from error


@contextmanager
def told(purpose: Purpose, keyspace: str, table: str = "") -> Iterator[None]:
    """Turn the driver's errors into ours."""
    try:
        yield
    except FAILURES as error:
        raise failure_of(trouble_of(error), said_by(error), purpose, keyspace, table) from error
