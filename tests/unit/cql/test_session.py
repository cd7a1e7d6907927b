"""What a session does where no server answers."""

import socket
from typing import Any

import pytest
from cassandra.connection import Connection

from cql.driver.session import Contact, connect
from model.errors import BadSettings, CannotReach


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
