"""The one door to the driver: a cluster, its keyspaces as `model.ports.Tables`, and its failures as our own errors.

Fast by preparing each shape of an operation once; safe by never repeating what is not idempotent: conditional writes
and counts are sent once, and when their answer is lost they raise `DoubtfulWrite`. Works with either driver that owns
the import name `cassandra`.
"""

import copy
import logging
import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Self

from cassandra import ConsistencyLevel, OperationTimedOut
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import (
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    FallthroughRetryPolicy,
    RetryPolicy,
    RoundRobinPolicy,
    TokenAwarePolicy,
)
from cassandra.query import UNSET_VALUE, SimpleStatement, tuple_factory

from cql.driver.answers import answer_of
from cql.driver.contact import SOCKET_OPTIONS, Contact, tls_context
from cql.driver.driver_errors import FAILURES, said_by, told, told_at, trouble_of
from cql.driver.failures import Purpose, failure_of, purpose_of
from cql.driver.in_flight import Flight
from cql.rows import Conversion, adaptation_of, adapted_values, normalised
from cql.statements import Operation, render, shape_of, values_of
from model.errors import BadSettings, MailmendError, SchemaDisagreement, UnknownKeyspace, WrongUse
from model.ids import micros_of
from model.operations import Applied, Conditional, Level, Read, Scan, Seen, Write
from model.schema.table import Row, Table, identifier

__all__ = ["CassandraCluster", "Contact", "Keyspace", "connect"]

IN_FLIGHT = 128
"""How many requests of one `read_all` or `write_all` are under way at once."""

PAGE_ROWS = 2000
SCHEMA_SECONDS = 30.0
"""How long the node that is asked may take to change the schema; and the others, until they have heard of it."""

_RECONNECT_SECONDS = (0.5, 15.0)
"""First and longest wait between two attempts to reach a node that is down; the driver's own grow to 10 minutes."""

EVERY_NODE = "every node"
_SHAPES_MAX = 1000
_COLLECTION_TIMES_SINCE = 5

logging.getLogger("cassandra").addHandler(logging.NullHandler())  # what matters is raised; the rest is for who asks


def connect(contact: Contact) -> "CassandraCluster":
    """Open connections to the cluster.

    Raises:
        BadSettings: the contact itself cannot be right.
        CannotReach: nobody answers there, or not to these credentials (`AccessDenied`).
    """
    if not contact.hosts:
        raise BadSettings("no host is named", mend="Name one with --host, or MAILMEND_HOST.")
    tls = tls_context(contact)
    with told_at(contact), ExitStack() as undo:
        cluster = _cluster(contact, tls)
        undo.callback(cluster.shutdown)
        connected = CassandraCluster(contact, cluster, cluster.connect())
        undo.pop_all()
        return connected


def _cluster(contact: Contact, tls: Any) -> Any:
    nearby = DCAwareRoundRobinPolicy(contact.local_dc or "")
    return Cluster(
        list(contact.hosts),
        port=contact.port,
        auth_provider=PlainTextAuthProvider(contact.username, contact.password or "") if contact.username else None,
        ssl_context=tls,
        execution_profiles={EXEC_PROFILE_DEFAULT: _profile(contact, TokenAwarePolicy(nearby))},
        connect_timeout=contact.request_seconds,
        control_connection_timeout=contact.request_seconds,
        reconnection_policy=ExponentialReconnectionPolicy(*_RECONNECT_SECONDS, max_attempts=None),
        sockopts=SOCKET_OPTIONS,
    )


def _profile(contact: Contact, balancing: Any) -> Any:
    return ExecutionProfile(
        load_balancing_policy=balancing,
        retry_policy=_AskAgain(),
        row_factory=tuple_factory,
        request_timeout=contact.request_seconds,
    )


class _AskAgain(RetryPolicy):  # type: ignore[misc] # the driver has no types
    """What is idempotent is sent to the next node when one fails; too few replicas are told at once, as they are."""

    def on_unavailable(self, *_: Any, **__: Any) -> tuple[Any, None]:
        """The driver would ask the nodes that are down, and tell that nobody answered."""
        return self.RETHROW, None


class CassandraCluster:
    """A cluster that answers. Implements `model.ports.NodeClocks`."""

    def __init__(self, contact: Contact, cluster: Any, session: Any) -> None:
        self.contact = contact
        self._cluster = cluster
        self.session = session
        self._prepared: dict[str, Any] = {}
        self.release_version = str(self.query("SELECT release_version FROM system.local")[0]["release_version"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def collection_times(self) -> bool:
        """Whether the server tells when the elements of a collection were written (Cassandra 5.0 and later)."""
        return int(self.release_version.partition(".")[0]) >= _COLLECTION_TIMES_SINCE

    def keyspace(self, name: str) -> "Keyspace":
        """The tables of a keyspace.

        Raises:
            BadIdentifier: the name is not one.
            UnknownKeyspace: there is none of that name.
        """
        keyspace = Keyspace(self, identifier(name, "keyspace name"))
        self.replication_of(keyspace.name)
        return keyspace

    def replication_of(self, keyspace: str) -> Mapping[str, str]:
        """The keyspace's replication options, as the server has them.

        Raises:
            UnknownKeyspace: there is none of that name.
        """
        name = identifier(keyspace, "keyspace name")
        rows = self.query("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?", (name,))
        if not rows:
            raise UnknownKeyspace(name)
        return dict(rows[0]["replication"])

    def query(self, text: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """The rows that a statement of our own answers; for the server's own tables (`system`, `system_schema`)."""
        statement = self.prepare(text)
        with told(Purpose.READ, "system tables"):
            answer = self.session.execute(statement.bind(values))
            names = answer.column_names or ()
            return [dict(zip(names, map(normalised, row), strict=True)) for row in answer]

    def execute_ddl(self, text: str, seconds: float = SCHEMA_SECONDS, agreed: float = SCHEMA_SECONDS) -> None:
        """Change the schema (or, in a migration, rows) within `seconds`; then wait until every node that is up has it.

        Raises:
            SchemaDisagreement: not all had it in `agreed` seconds (0: nobody looks); change nothing further before.
        """
        self._cluster.max_schema_agreement_wait = agreed
        statement = SimpleStatement(text, FallthroughRetryPolicy(), ConsistencyLevel.QUORUM)
        with told(Purpose.SCHEMA, "the cluster"):
            # The timer runs on while the driver waits for the others; it may wait for an earlier change first.
            future = self.session.execute_async(statement, timeout=seconds + 2 * agreed)
            future.result()
        if agreed and not future.is_schema_agreed:
            raise SchemaDisagreement(
                f"the nodes did not agree on the schema within {agreed:g} s",
                mend="See which node is behind with: nodetool describecluster. Then run the same command again.",
            )

    def node_micros(self) -> list[int]:
        """now() of every node that is up, in microseconds since 1970, in every data centre."""
        up = self.nodes_up()
        now = self.prepare("SELECT now() FROM system.local").bind(())
        with told(Purpose.READ, "the nodes' clocks"):
            asked = [self.session.execute_async(now, execution_profile=EVERY_NODE, host=host) for host in up]
            return [micros_of(future.result().one()[0]) for future in asked]

    def close(self) -> None:
        """Close every connection."""
        self._cluster.shutdown()

    def prepare(self, text: str, keyspace: str = "system", table: str = "") -> Any:
        """The driver's prepared statement for the text, prepared once."""
        if text not in self._prepared:
            with told(Purpose.READ, keyspace, table):
                self._prepared[text] = self.session.prepare(text)
        return self._prepared[text]

    def nodes_up(self) -> list[Any]:
        """Every node that is up, in every data centre; those of others are left alone until they are asked for."""
        if EVERY_NODE not in self._cluster.profile_manager.profiles:
            profile = _profile(self.contact, RoundRobinPolicy())
            with suppress(OperationTimedOut):  # a node that hangs is told of when it is asked
                self._cluster.add_execution_profile(EVERY_NODE, profile, pool_wait_timeout=self.contact.request_seconds)
        return [host for host in self._cluster.metadata.all_hosts() if host.is_up]


@dataclass(frozen=True, slots=True)
class _Ready:
    """A shape that was prepared: what is left is to bind values, send, and read the answer."""

    table: Table  # kept, because shapes tell tables apart by identity
    statement: Any
    purpose: Purpose
    answer: Callable[[Any], Any]
    adapted: tuple[tuple[int, Conversion], ...]  # markers whose values the driver takes in another form


class Keyspace:
    """The tables of one keyspace on a cluster. Implements `model.ports.Tables`."""

    def __init__(self, cluster: CassandraCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self._session = cluster.session
        self._shapes: dict[Hashable, _Ready] = {}

    def read(self, read: Read) -> Sequence[Seen]:
        """The rows under the key, in clustering order."""
        seen: Sequence[Seen] = self._one(read)
        return seen

    def read_all(self, reads: Sequence[Read]) -> list[Sequence[Seen] | MailmendError]:
        """Many reads at once; one answer or one error for each, in order."""
        return self._each(reads)

    def scan(self, scan: Scan) -> Iterator[Row]:
        """Every row in token order; while one page is looked at, the next is under way."""
        ready, future = self._launch(scan)
        more = True
        while more:
            page = self._page(ready, future)
            more = future.has_more_pages
            if more:
                future.start_fetching_next_page()
            yield from page

    def write(self, write: Write) -> None:
        """Carry out one write at QUORUM."""
        self._one(write)

    def write_all(self, writes: Sequence[Write]) -> list[MailmendError | None]:
        """Many independent writes at once; for each its error, or None, in order."""
        return self._each(writes)

    def attempt(self, write: Conditional) -> Applied:
        """Carry out one conditional write at SERIAL and QUORUM."""
        applied: Applied = self._one(write)
        return applied

    def knows(self, operation: Operation) -> bool:
        """Whether an operation of that shape was prepared: else its first launch asks the server, and waits."""
        return shape_of(operation) in self._shapes

    def launch(self, operation: Operation) -> Flight:
        """Send the request and return at once."""
        ready, future = self._launch(operation)
        return Flight(future if ready else None, lambda: self._land(ready, future), lambda: self._page(ready, future))

    def _one(self, operation: Operation) -> Any:
        answer = self._land(*self._launch(operation))
        if isinstance(answer, MailmendError):
            raise answer
        return answer

    def _each(self, operations: Iterable[Operation]) -> list[Any]:
        """A window of requests slides over the operations, half of it at a time: waking up for each answer costs more.

        The oldest are awaited first, while the younger half is under way.
        """
        answers: list[Any] = []
        flying: list[tuple[_Ready | None, Any]] = []
        for operation in operations:
            if len(flying) == IN_FLIGHT:
                answers.extend(self._land(*launched) for launched in flying[: IN_FLIGHT // 2])
                del flying[: IN_FLIGHT // 2]
            flying.append(self._launch(operation))
        answers.extend(self._land(*launched) for launched in flying)
        return answers

    def _launch(self, operation: Operation) -> tuple[_Ready | None, Any]:
        """The request under way, or the error that kept it from starting."""
        try:
            ready = self._shape(operation)
            return ready, self._session.execute_async(self._bound(ready, operation))
        except MailmendError as error:
            return None, error

    def _land(self, ready: _Ready | None, future: Any) -> Any:
        """What the request answered, or the error that it met."""
        if ready is None:
            return future
        try:
            return ready.answer(future.result())
        except FAILURES as error:
            return self._failure(ready, error)

    def _page(self, ready: _Ready | None, future: Any) -> list[Row]:
        if ready is None:
            raise future
        with told(ready.purpose, self.name, ready.table.spelling):
            return list(map(ready.answer, future.result().current_rows))

    def _shape(self, operation: Operation) -> _Ready:
        shape = shape_of(operation)
        ready = self._shapes.get(shape)
        if ready is None:
            if len(self._shapes) >= _SHAPES_MAX:  # tables that were unpickled again and again
                self._shapes.clear()
            ready = self._shapes[shape] = self._prepared(operation)
        return ready

    def _prepared(self, operation: Operation) -> _Ready:
        times = self.cluster.collection_times
        prepared = self.cluster.prepare(
            render(self.name, operation, collection_times=times), self.name, operation.table.spelling
        )
        purpose, statement = purpose_of(operation), copy.copy(prepared)
        statement.consistency_level = _level(operation)
        statement.serial_consistency_level = ConsistencyLevel.SERIAL
        statement.fetch_size = PAGE_ROWS
        statement.is_idempotent = purpose is not Purpose.ONCE
        statement.retry_policy = FallthroughRetryPolicy() if purpose is Purpose.ONCE else None
        adaptations = [adaptation_of(column.type) for column in statement.column_metadata]
        adapted = tuple((index, adapt) for index, adapt in enumerate(adaptations) if adapt)
        return _Ready(operation.table, statement, purpose, answer_of(operation, collection_times=times), adapted)

    def _bound(self, ready: _Ready, operation: Operation) -> Any:
        values = values_of(operation, UNSET_VALUE)
        if ready.adapted:
            values = adapted_values(values, ready.adapted, UNSET_VALUE)
        try:
            return ready.statement.bind(values)
        except (TypeError, ValueError, OverflowError, struct.error) as error:
            where = f"{self.name}.{ready.table.spelling}"
            raise WrongUse(f"a value does not fit its column in {where}: {error}") from error

    def _failure(self, ready: _Ready, error: Exception) -> MailmendError:
        failure = failure_of(trouble_of(error), said_by(error), ready.purpose, self.name, ready.table.spelling)
        failure.__cause__ = error
        return failure


def _level(operation: Operation) -> int:
    level = operation.level if isinstance(operation, Read | Scan) else Level.QUORUM
    return int(getattr(ConsistencyLevel, level.name))
