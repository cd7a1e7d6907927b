"""A session on a real Cassandra: what the ports' common suite does not say about it."""

import pickle
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from mailmend.cql.driver.session import IN_FLIGHT, CassandraCluster, Contact, Keyspace, connect
from mailmend.model.catalog.mail import MAIL_TYPES, MAILBOX, MESSAGE_V3, PATHS
from mailmend.model.errors import BadIdentifier, CannotReach, MailmendError, SchemaMismatch, UnknownKeyspace, WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Applied, Put, PutIfAbsent, Read, Scan, Seen
from mailmend.model.ports import NodeClocks
from mailmend.model.table import Column
from tests.support.clock import uuid_at
from tests.support.keyspaces import created, dropped
from tests.support.servers import CassandraServer
from tests.support.tables import ALL, CELLS, MARKS, micros

pytestmark = pytest.mark.cassandra

NAME = "d_session"
ID = uuid_at(1_000_000)
SCHEMA = Schema(MAIL_TYPES, (*ALL, MAILBOX, MESSAGE_V3))


@pytest.fixture(scope="module")
def contact(cassandra: CassandraServer) -> Contact:
    return Contact((cassandra.host,), cassandra.port, cassandra.local_dc)


@pytest.fixture(scope="module")
def cluster(contact: Contact) -> Iterator[CassandraCluster]:
    with connect(pickle.loads(pickle.dumps(contact))) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def keyspace(cluster: CassandraCluster) -> Iterator[Keyspace]:
    yield created(cluster, NAME, SCHEMA)
    dropped(cluster, (NAME,))


class TestCluster:
    """What a cluster tells about itself."""

    def test_the_nodes_clocks_are_near_ours(self, cluster: CassandraCluster) -> None:
        clocks: NodeClocks = cluster
        before = micros() - 1000  # the server's now() knows milliseconds
        reported = clocks.node_micros()
        assert reported
        assert all(before <= there <= micros() + 1000 for there in reported)

    def test_the_release_decides_about_the_times_of_collections(self, cluster: CassandraCluster) -> None:
        assert cluster.collection_times is (int(cluster.release_version.split(".")[0]) >= 5)

    @pytest.mark.usefixtures("keyspace")
    def test_replication_is_reported(self, cluster: CassandraCluster) -> None:
        assert cluster.replication_of(NAME)["class"].endswith("Strategy")

    @pytest.mark.parametrize("name", ["nowhere_at_all", "NOWHERE"])
    def test_an_unknown_keyspace_is_refused(self, cluster: CassandraCluster, name: str) -> None:
        for asked in (cluster.keyspace, cluster.replication_of):
            with pytest.raises(UnknownKeyspace, match=name.lower()):
                asked(name)

    def test_a_keyspace_that_is_no_name_is_refused(self, cluster: CassandraCluster) -> None:
        with pytest.raises(BadIdentifier):
            cluster.keyspace("ks; DROP KEYSPACE x")

    @pytest.mark.usefixtures("keyspace")
    def test_the_servers_own_tables_are_read_as_rows(self, cluster: CassandraCluster) -> None:
        text = "SELECT table_name, caching FROM system_schema.tables WHERE keyspace_name = ?"
        rows = cluster.query(text, (NAME,))
        assert {row["table_name"] for row in rows} == {table.name for table in SCHEMA.tables}
        assert rows[0]["caching"]["keys"] == "ALL"

    @pytest.mark.parametrize("text", ["CREATE TABEL x", "DROP KEYSPACE nowhere_at_all"])
    def test_a_schema_change_that_is_wrong_is_refused(self, cluster: CassandraCluster, text: str) -> None:
        with pytest.raises(WrongUse):
            cluster.execute_ddl(text)

    def test_a_data_centre_that_is_not_there_is_named(self, contact: Contact) -> None:
        with pytest.raises(CannotReach, match="'nowhere'") as caught:
            connect(replace(contact, local_dc="nowhere"))
        assert "--local-dc" in caught.value.mend

    def test_credentials_that_nobody_asks_for_do_no_harm(self, contact: Contact) -> None:
        with connect(replace(contact, username="me", password="secret")) as cluster:
            assert cluster.release_version


class TestKeyspace:
    """What reading and writing through the driver adds to the common suite."""

    def test_user_types_are_written_by_field_and_read_both_ways(self, keyspace: Keyspace) -> None:
        base = {"user": "me", "namespace": "#private"}
        keyspace.write(Put(MAILBOX, {"id": ID, "mailboxbase": base, "name": "INBOX", "uidvalidity": 1}, at=7))
        assert keyspace.read(Read(MAILBOX, (ID,)))[0].row["mailboxbase"] == base
        fields = {"mailboxbase.namespace": "#private", "mailboxbase.user": "me"}
        row = {"id": ID, "name": "INBOX", "uidvalidity": 1, **fields}
        times = dict.fromkeys((*fields, "name", "uidvalidity"), 7)
        assert keyspace.read(Read(PATHS.mirror.table, (ID,), times=True)) == [Seen(row, times)]
        assert list(keyspace.scan(Scan(PATHS.mirror.table, tuple(row)))) == [row]

    def test_lists_of_user_types_come_back(self, keyspace: Keyspace) -> None:
        attachments = ({"id": "a", "name": None, "cid": "c", "isinline": True},)
        keyspace.write(Put(MESSAGE_V3, {"messageid": ID, "attachments": attachments}))
        assert keyspace.read(Read(MESSAGE_V3, (ID,)))[0].row["attachments"] == attachments

    def test_a_user_type_in_the_way_is_shown_by_field(self, keyspace: Keyspace) -> None:
        other = uuid_at(2_000_000)
        row = {"id": other, "mailboxbase": {"namespace": "a", "user": "b"}}
        assert keyspace.attempt(PutIfAbsent(MAILBOX, row)) == Applied(True)
        refused = keyspace.attempt(PutIfAbsent(MAILBOX, row))
        assert refused.current is not None
        assert refused.current["mailboxbase"] == row["mailboxbase"]

    def test_a_missing_column_is_named(self, keyspace: Keyspace) -> None:
        wider = CELLS.with_columns((*CELLS.columns, Column("threadId", "timeuuid")))
        with pytest.raises(SchemaMismatch) as caught:
            keyspace.read(Read(wider, ("k",)))
        assert caught.value.missing == ("cells.threadid",)

    def test_of_many_only_the_failing_ones_fail(self, keyspace: Keyspace) -> None:
        nowhere = replace(MARKS, spelling="nowhere")
        tables = [nowhere if n % 3 == 0 else MARKS for n in range(3 * IN_FLIGHT)]
        errors = keyspace.write_all([Put(table, {"k": "some", "c": n}) for n, table in enumerate(tables)])
        answers = keyspace.read_all([Read(table, ("some",)) for table in tables])
        for error, answer, table in zip(errors, answers, tables, strict=True):
            assert isinstance(error, SchemaMismatch) is (table is nowhere)
            assert isinstance(answer, MailmendError) is (table is nowhere)

    def test_of_joined_writes_only_the_failing_ones_fail(self, keyspace: Keyspace) -> None:
        """A value that no request can carry, one that a batch of several may not, and many small ones."""
        rows = [{"k": "joined", "c": n, "d": ID, "v": "x", "n": n} for n in range(120)]
        rows[7]["n"], rows[60]["v"] = 2**70, "v" * 2**20
        errors = keyspace.write_all([Put(CELLS, row, joinable=True) for row in rows])
        assert [type(error) for error in errors] == [WrongUse if n == 7 else type(None) for n in range(120)]
        assert [seen.row["c"] for seen in keyspace.read(Read(CELLS, ("joined",)))] == [n for n in range(120) if n != 7]

    def test_joined_writes_share_requests(self, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch) -> None:
        sent: list[object] = []
        execute = keyspace.cluster.session.execute_async

        def counted(*request: Any, **options: Any) -> Any:
            sent.append(request)
            return execute(*request, **options)

        monkeypatch.setattr(keyspace.cluster.session, "execute_async", counted)
        writes = [Put(CELLS, {"k": f"{n % 2}", "c": n, "d": ID, "v": "x"}, joinable=True) for n in range(100)]
        assert keyspace.write_all(writes) == [None] * 100
        assert len(sent) == 2

    def test_a_table_that_gained_a_column_is_read_on(self, cluster: CassandraCluster, keyspace: Keyspace) -> None:
        cluster.execute_ddl(f"CREATE TABLE {NAME}.growing (k text PRIMARY KEY, v text)")
        table = replace(MARKS, spelling="growing", columns=(MARKS.columns[0], Column("v", "text")))
        keyspace.write(Put(table, {"k": "k", "v": "x"}, at=1))
        assert len(keyspace.read(Read(table, ("k",)))) == 1
        cluster.execute_ddl(f"ALTER TABLE {NAME}.growing ADD a text")
        assert keyspace.read(Read(table, ("k",), times=True)) == [Seen({"k": "k", "v": "x"}, {"v": 1})]
        assert keyspace.read(Read(table, ("k",)))[0].row == {"k": "k", "v": "x"}

    def test_threads_share_a_keyspace(self, keyspace: Keyspace) -> None:
        answers: list[Any] = []

        def work(number: int) -> None:
            k = uuid4().hex
            for c in range(50):
                keyspace.write(Put(CELLS, {"k": k, "c": c, "d": ID, "n": number}))
            answers.append(len(keyspace.read(Read(CELLS, (k,), times=True))))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == [50] * 4

    def test_shapes_are_remembered_and_not_hoarded(self, keyspace: Keyspace) -> None:
        """A statement is prepared once for each shape; tables that come again and again as copies are let go."""
        started = time.monotonic()
        for _ in range(1100):
            assert not keyspace.read(Read(replace(MARKS), ("nobody",)))
        assert len(keyspace._shapes) <= 1000
        assert time.monotonic() - started < 30
