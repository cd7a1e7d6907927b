"""What a session does where no server answers."""

import socket
from typing import Any

import pytest
from cassandra.connection import Connection

from cql.driver.session import Contact, Keyspace, connect
from model.errors import BadSettings, CannotReach
from model.operations import Read, Remove
from tests.support.tables import CELLS


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


def test_each_request_is_waited_for_as_long_as_its_kind_allows() -> None:
    """A write more briefly than a read, so that it can be sent again before its stamp is too old."""
    waits: list[float] = []

    class Statement:
        column_metadata = ()

        def bind(self, _: object) -> str:
            return "bound"

    class Cluster:
        contact, collection_times = Contact(), True

        @property
        def session(self) -> "Cluster":
            return self

        def prepare(self, *_: str) -> Statement:
            return Statement()

        def execute_async(self, bound: str, timeout: float) -> None:
            assert bound == "bound"
            waits.append(timeout)

    keyspace = Keyspace(Cluster(), "mail")  # type: ignore[arg-type] # all that launching needs
    keyspace.launch(Remove(CELLS, ("a", 1), 1))
    keyspace.launch(Read(CELLS, ("a",)))
    assert waits == [Contact().write_seconds, Contact().request_seconds]
