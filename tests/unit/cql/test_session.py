"""Where a cluster is, and what a session does where no server answers."""

import pickle
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from cassandra import OperationTimedOut
from cassandra.connection import Connection

from mailmend.cql.driver.contact import tls_context, with_tls_texts
from mailmend.cql.driver.session import EVERY_NODE, CassandraCluster, Contact, Keyspace, connect
from mailmend.model.errors import BadSettings, CannotReach, SchemaDisagreement
from mailmend.model.operations import Read, Remove
from tests.support.certificates import authority
from tests.support.tables import CELLS

OLD, NEW = UUID(int=1), UUID(int=2)
CREATE = "CREATE KEYSPACE IF NOT EXISTS mail"


@dataclass(slots=True)
class _Answer:
    """The driver's answer to a statement that returns one row, or its future. No answer is the driver's own error."""

    value: object
    column_names: tuple[str, ...] = ("release_version",)

    def result(self) -> "_Answer":
        if self.value is None:
            raise OperationTimedOut
        return self

    def one(self) -> tuple[object]:
        return (self.value,)

    def __iter__(self) -> Iterator[tuple[object]]:
        return iter([(self.value,)])


@dataclass(slots=True)
class _Driver:
    """The driver's cluster and session of nodes that answer with one version of the schema after the other.

    Attributes:
        versions: what each node will answer, by address; the last answer is given from then on.
        changes: the statements that change the schema, as they were sent.
    """

    versions: dict[str, list[UUID | None]]
    changes: list[str] = field(default_factory=list)

    def connected(self) -> CassandraCluster:
        return CassandraCluster(Contact(), self, self)

    @property
    def metadata(self) -> "_Driver":
        return self

    @property
    def profile_manager(self) -> SimpleNamespace:
        return SimpleNamespace(profiles={EVERY_NODE})

    def all_hosts(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(address=address, is_up=True) for address in self.versions]

    def prepare(self, text: str) -> "_Driver":
        assert text.startswith("SELECT")
        return self

    def bind(self, _: object) -> "_Driver":
        return self

    def execute(self, _: object) -> _Answer:
        return _Answer("5.0.5")

    def execute_async(self, statement: Any, host: SimpleNamespace | None = None, **_: object) -> _Answer:
        if host is None:
            self.changes.append(statement.query_string)
            return _Answer("changed")
        answers = self.versions[host.address]
        if len(answers) == 1:
            return _Answer(answers[0])
        return _Answer(answers.pop(0))


def test_a_contact_without_hosts_is_refused() -> None:
    with pytest.raises(BadSettings, match="no host"):
        connect(Contact(()))


def test_a_port_where_nobody_listens_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(CannotReach, match=f"127.0.0.1:{port}") as caught:
            connect(Contact(port=port, request_seconds=2))
    assert "--port" in caught.value.mend


def test_a_name_that_leads_nowhere_is_named() -> None:
    with pytest.raises(CannotReach, match=r"nowhere\.invalid"):
        connect(Contact(("nowhere.invalid",)))


def test_a_server_that_speaks_something_else_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port: Any = stranger.getsockname()[1]
        with pytest.raises(CannotReach, match=f"127.0.0.1:{port}"):
            connect(Contact(port=port, request_seconds=1))


def test_requests_leave_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
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


class TestAgreement:
    """A change of the schema begins and ends with the same schema on every node that is up."""

    def test_a_statement_that_changes_nothing_waits_for_the_node_that_lacks_what_another_process_made(self) -> None:
        """The driver takes it for agreed, since it waits only after a change of its own."""
        driver = _Driver({"10.0.0.1": [OLD, NEW], "10.0.0.2": [OLD, OLD, None, NEW]})

        driver.connected().execute_ddl(CREATE)

        assert driver.changes == [CREATE]
        assert driver.versions == {"10.0.0.1": [NEW], "10.0.0.2": [NEW]}

    def test_nothing_is_sent_to_nodes_that_disagree(self) -> None:
        """The node that takes it may be the one that lacks the keyspace."""
        driver = _Driver({"10.0.0.1": [NEW], "10.0.0.2": [OLD]})

        with pytest.raises(SchemaDisagreement):
            driver.connected().execute_ddl(CREATE, agreed=0.01)

        assert driver.changes == []

    @pytest.mark.parametrize("behind", [OLD, None], ids=["an old version", "no answer"])
    def test_a_node_that_stays_behind_is_an_error_after_the_wait(self, behind: UUID | None) -> None:
        driver = _Driver({"10.0.0.1": [OLD, NEW], "10.0.0.2": [OLD, behind]})

        with pytest.raises(SchemaDisagreement, match=r"within 0\.01 s"):
            driver.connected().execute_ddl(CREATE, agreed=0.01)

        assert driver.changes == [CREATE]

    def test_a_caller_that_asks_for_no_agreement_does_not_wait(self) -> None:
        driver = _Driver({"10.0.0.1": [NEW], "10.0.0.2": [OLD]})

        driver.connected().execute_ddl(CREATE, agreed=0)

        assert driver.changes == [CREATE]


def test_a_contact_travels_whole() -> None:
    contact = Contact(("a", "b"), 9142, "dc1", "me", "secret", request_seconds=3)
    assert pickle.loads(pickle.dumps(contact)) == contact


def test_the_password_is_never_reported() -> None:
    assert "secret" not in repr(Contact(username="me", password="secret"))


def test_the_address_is_as_people_write_it() -> None:
    assert Contact(("a", "b"), 9142).address == "a:9142, b:9142"


def test_without_tls_files_there_is_no_tls() -> None:
    assert tls_context(Contact()) is None


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"nowhere\.pem") as caught:
        tls_context(Contact(tls_ca=str(tmp_path / "nowhere.pem")))
    assert "--tls-ca" in caught.value.mend


def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("no certificate")
    for contact in (Contact(tls_ca=str(nonsense)), Contact(tls_cert=str(nonsense))):
        with pytest.raises(BadSettings, match=r"nonsense\.pem"):
            tls_context(contact)


def test_a_contact_takes_its_tls_files_to_a_host_that_lacks_them(tmp_path: Path) -> None:
    own = authority(tmp_path, "authority").own
    key = own.key.read_text()
    contact = with_tls_texts(Contact(tls_ca=str(own.certificate), tls_cert=str(own.certificate), tls_key=str(own.key)))
    for file in tmp_path.iterdir():
        file.unlink()
    context = tls_context(pickle.loads(pickle.dumps(contact)))
    assert context is not None
    assert len(context.get_ca_certs()) == 1
    assert key.splitlines()[1] not in repr(contact)


@pytest.mark.parametrize("hostnames", [False, True])
def test_certificates_are_always_checked(hostnames: bool) -> None:
    authority = ssl.get_default_verify_paths().cafile
    if not (authority and Path(authority).exists()):
        pytest.skip("this machine has no certificates of authorities")
    context = tls_context(Contact(tls_ca=authority, tls_hostnames=hostnames))
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname is hostnames


def test_a_host_that_does_not_resolve_is_named() -> None:
    with pytest.raises(CannotReach, match=r"no-such-host.invalid does not resolve to an address"):
        connect(Contact(("no-such-host.invalid",)))
