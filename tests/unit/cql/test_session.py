"""The driver's errors as ours, and what a session does where no server answers."""

import socket
from typing import Any

import pytest
from cassandra import (
    AlreadyExists,
    AuthenticationFailed,
    InvalidRequest,
    OperationTimedOut,
    ReadFailure,
    ReadTimeout,
    Unauthorized,
    Unavailable,
    WriteFailure,
    WriteTimeout,
    WriteType,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import Connection, ConnectionException, ConnectionShutdown
from cassandra.protocol import ConfigurationException, OverloadedErrorMessage, ServerError, SyntaxException

from cql.failures import Trouble
from cql.session import Contact, connect, trouble_of
from model.errors import BadSettings, CannotReach

REFUSED = AuthenticationFailed("bad credentials")


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (REFUSED, Trouble.DENIED),
        (Unauthorized("no SELECT permission"), Trouble.DENIED),
        (NoHostAvailable("none", {"10.0.0.1": REFUSED}), Trouble.DENIED),
        (NoHostAvailable("none", {"10.0.0.1": ConnectionException("refused")}), Trouble.NO_HOST),
        (NoHostAvailable("none", ["10.0.0.1"]), Trouble.NO_HOST),
        (Unavailable("few", consistency=4, required_replicas=2, alive_replicas=1), Trouble.FEW_REPLICAS),
        (InvalidRequest("no such column"), Trouble.REFUSED),
        (SyntaxException(0x2000, "no viable alternative", {}), Trouble.REFUSED),
        (ConfigurationException(0x2300, "unknown option", {}), Trouble.REFUSED),
        (AlreadyExists("ks", "t"), Trouble.REFUSED),
        (ReadTimeout("late"), Trouble.SILENCE),
        (WriteTimeout("late", write_type=WriteType.CAS), Trouble.SILENCE),
        (WriteTimeout("late", write_type=WriteType.COUNTER), Trouble.SILENCE),
        (OperationTimedOut(), Trouble.SILENCE),
        (ReadFailure("failed"), Trouble.BROKEN),
        (WriteFailure("failed"), Trouble.BROKEN),
        (OverloadedErrorMessage(0x1001, "overloaded", {}), Trouble.BROKEN),
        (ServerError(0x0000, "stumbled", {}), Trouble.BROKEN),
        (ConnectionShutdown("gone"), Trouble.BROKEN),
        (OSError("reset by peer"), Trouble.BROKEN),
    ],
)
def test_each_of_the_drivers_errors_is_a_trouble_of_ours(error: Exception, trouble: Trouble) -> None:
    """The credentials' refusal also where the driver says that nobody answered."""
    assert trouble_of(error) is trouble


def test_a_contact_without_hosts_is_refused() -> None:
    """Before anything is dialled."""
    with pytest.raises(BadSettings, match="no host"):
        connect(Contact(()))


def test_a_port_where_nobody_listens_is_named() -> None:
    """With what to check."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(CannotReach, match=f"127.0.0.1:{port}") as caught:
            connect(Contact(port=port, request_seconds=2))
    assert "--port" in caught.value.mend


def test_a_name_that_leads_nowhere_is_named() -> None:
    """Names are looked up first."""
    with pytest.raises(CannotReach, match=r"nowhere\.invalid"):
        connect(Contact(("nowhere.invalid",)))


def test_a_server_that_speaks_something_else_is_not_waited_for() -> None:
    """A mistaken port: it accepts, and says nothing that we understand."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port: Any = stranger.getsockname()[1]
        with pytest.raises(CannotReach, match=f"127.0.0.1:{port}"):
            connect(Contact(port=port, request_seconds=1))


def test_requests_leave_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection holds a request back until the one before it is acknowledged, not even the first."""
    options: list[Any] = []

    class Dialled(socket.socket):
        def setsockopt(self, *option: Any) -> None:
            options.append(option)
            super().setsockopt(*option)

    monkeypatch.setattr(Connection._socket_impl, "socket", Dialled)
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port: Any = stranger.getsockname()[1]
        with pytest.raises(CannotReach):
            connect(Contact(port=port, request_seconds=1))
    assert (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1) in options
