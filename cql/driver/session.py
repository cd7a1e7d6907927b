"""Sessions of the driver: a cluster, its keyspaces as `model.ports.Tables`, and its failures as our own errors.

Each shape of an operation is prepared once. What is not idempotent is never repeated: conditional writes and counts are
sent once, and raise `DoubtfulWrite` when their answer is lost. Works with both drivers that have the import name
`cassandra`.
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
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType, SimpleStatement, tuple_factory
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed
from tenacity.nap import sleep

from mailmend.cql.driver.contact import SOCKET_OPTIONS, Contact, Purpose, purpose_of, tls_context
from mailmend.cql.driver.driver_errors import FAILURES, our_error, our_errors, our_errors_at
from mailmend.cql.driver.joined import JoinedWrite, read_joined, write_joined
from mailmend.cql.introspect import unknown_keyspace
from mailmend.cql.row_statements import Operation, render, shape_of, values_of
from mailmend.cql.rows import Conversion, adaptation_of, adapted_values, answer_of, normalised
from mailmend.model.errors import BadSettings, MailmendError, SchemaDisagreement, WrongUse
from mailmend.model.ids import micros_of
from mailmend.model.names import keyspace_spelling, name_of
from mailmend.model.operations import Applied, Change, Conditional, Level, PutIfAbsent, Read, Scan, Seen, Write
from mailmend.model.table import Row, Table

__all__ = ["CassandraCluster", "Contact", "Keyspace", "connect"]

IN_FLIGHT = 128
"""How many requests of one `read_all` or `write_all` are in flight at once."""

PAGE_ROWS = 2000
SCHEMA_SECONDS = 30.0
"""How long one node may take to change the schema, and how long the others may take to agree."""

_AGREEMENT_POLL_SECONDS = 0.1
_MEND_DISAGREEMENT = "See which node is behind with: nodetool describecluster. Then run the same command again."

_RECONNECT_SECONDS = (0.5, 15.0)
"""First and longest wait between two attempts to reach a node that is down; the driver's own grow to 10 minutes."""

EVERY_NODE = "every node"
_SHAPES_MAX = 1000
_COLLECTION_TIMES_SINCE = 5

_LOG = logging.getLogger("mailmend.cluster")
logging.getLogger("cassandra").addHandler(logging.NullHandler())  # what matters is raised


def connect(contact: Contact) -> "CassandraCluster":
    """Open connections to the cluster.

    Raises:
        BadSettings: the contact's values are invalid.
        CannotReach: no node answers there, or the nodes refuse these credentials (`AccessDenied`).
    """
    if not contact.hosts:
        raise BadSettings("no host is named", mend="Name one with --host, or MAILMEND_HOST.")
    tls = tls_context(contact)
    with our_errors_at(contact), ExitStack() as undo:
        cluster = _cluster(contact, tls)
        undo.callback(cluster.shutdown)
        connected = CassandraCluster(contact, cluster, cluster.connect())
        undo.pop_all()
        fields = {"hosts": contact.hosts, "port": contact.port, "tls": tls is not None}
        _LOG.info("connected to the cluster", extra={**fields, "release": connected.release_version})
        return connected


def _cluster(contact: Contact, tls: Any) -> Any:
    nearby = DCAwareRoundRobinPolicy(contact.local_dc or "")
    credentials = None
    if contact.username:
        credentials = PlainTextAuthProvider(contact.username, contact.password or "")
    return Cluster(
        list(contact.hosts),
        port=contact.port,
        auth_provider=credentials,
        ssl_context=tls,
        execution_profiles={EXEC_PROFILE_DEFAULT: _profile(contact, TokenAwarePolicy(nearby))},
        connect_timeout=contact.request_seconds,
        control_connection_timeout=contact.request_seconds,
        reconnection_policy=ExponentialReconnectionPolicy(*_RECONNECT_SECONDS, max_attempts=None),
        # `execute_ddl` waits itself. The driver asks one node for all, and waits only if a statement changes
        # the schema: IF NOT EXISTS changes nothing if another process has just created the same.
        max_schema_agreement_wait=0,
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
    """Sends idempotent requests to the next node when one fails; reports too few replicas at once."""

    def on_unavailable(self, *_: Any, **__: Any) -> tuple[Any, None]:
        """The driver would try further nodes and then report that no host answered."""
        return self.RETHROW, None


class CassandraCluster:
    """A connected cluster. Implements `model.ports.NodeClocks`."""

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
        """Whether WRITETIME works on collections (Cassandra 5.0 and later)."""
        return int(self.release_version.partition(".")[0]) >= _COLLECTION_TIMES_SINCE

    def keyspace(self, name: str) -> "Keyspace":
        """The tables of a keyspace.

        Raises:
            BadIdentifier: the text is no name of a keyspace.
            UnknownKeyspace: no keyspace has that name.
        """
        keyspace = Keyspace(self, keyspace_spelling(name))
        self.replication_of(keyspace.name)
        return keyspace

    def replication_of(self, keyspace: str) -> Mapping[str, str]:
        """The keyspace's replication options as the server has them."""
        name = keyspace_spelling(keyspace)
        rows = self.query("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?", (name_of(name),))
        if not rows:
            raise unknown_keyspace(self, name)
        return dict(rows[0]["replication"])

    def query(self, text: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """The rows of a statement by column name; for the server's tables (`system`, `system_schema`)."""
        statement = self.prepare(text)
        with our_errors(Purpose.READ, "system tables"):
            answer = self.session.execute(statement.bind(values))
            names = answer.column_names or ()
            return [dict(zip(names, map(normalised, row), strict=True)) for row in answer]

    def execute_ddl(self, text: str, seconds: float = SCHEMA_SECONDS, agreed: float = SCHEMA_SECONDS) -> None:
        """Change the schema (or, in a migration, rows) within `seconds`.

        All nodes that are up have the same schema before it, and all have the change at its end.

        Raises:
            SchemaDisagreement: not all have it after `agreed` seconds (0: no check).
                Make no further change until then.
        """
        self._wait_for_agreement(agreed)
        statement = SimpleStatement(text, FallthroughRetryPolicy(), ConsistencyLevel.QUORUM)
        with our_errors(Purpose.SCHEMA, "the cluster"):
            self.session.execute_async(statement, timeout=seconds).result()
        self._wait_for_agreement(agreed)

    def settle(self) -> None:
        sleep(_AGREEMENT_POLL_SECONDS)

    def _wait_for_agreement(self, seconds: float) -> None:
        """Wait until all nodes that are up answer with one version of the schema.

        Raises:
            SchemaDisagreement: they do not within `seconds`. At 0 seconds no node is asked.
        """
        if seconds:
            retrying = Retrying(
                retry=retry_if_exception_type(SchemaDisagreement),
                wait=wait_fixed(_AGREEMENT_POLL_SECONDS),
                stop=stop_after_delay(seconds),
                reraise=True,
            )
            retrying(self._require_agreement, seconds)

    def _require_agreement(self, seconds: float) -> None:
        versions = self._schema_versions(seconds)
        if len(versions) != 1 or None in versions:
            raise SchemaDisagreement(
                f"the nodes did not agree on the schema within {seconds:g} s",
                mend=_MEND_DISAGREEMENT,
            )

    def _schema_versions(self, seconds: float) -> set[Any]:
        """The versions of the schema on the nodes that are up; None for a node that does not answer."""
        version = self.prepare("SELECT schema_version FROM system.local").bind(())
        every_node = {"execution_profile": EVERY_NODE, "timeout": seconds}
        asked = []
        for host in self.nodes_up():
            asked.append(self.session.execute_async(version, host=host, **every_node))
        versions: set[Any] = set()
        for future in asked:
            try:
                with our_errors(Purpose.READ, "system tables"):
                    versions.add(future.result().one()[0])
            except MailmendError:
                versions.add(None)
        return versions

    def node_micros(self) -> list[int]:
        up = self.nodes_up()
        now = self.prepare("SELECT now() FROM system.local").bind(())
        with our_errors(Purpose.READ, "the nodes' clocks"):
            asked = [self.session.execute_async(now, execution_profile=EVERY_NODE, host=host) for host in up]
            return [micros_of(future.result().one()[0]) for future in asked]

    def close(self) -> None:
        self._cluster.shutdown()

    def prepare(self, text: str, keyspace: str = "system", table: str = "") -> Any:
        if text not in self._prepared:
            with our_errors(Purpose.READ, keyspace, table):
                self._prepared[text] = self.session.prepare(text)
        return self._prepared[text]

    @property
    def metadata(self) -> Any:
        """The driver's metadata of nodes and tokens."""
        return self._cluster.metadata

    def nodes_up(self) -> list[Any]:
        """The nodes that are up, in all data centres; no connection is opened to remote ones before this call."""
        if EVERY_NODE not in self._cluster.profile_manager.profiles:
            profile = _profile(self.contact, RoundRobinPolicy())
            with suppress(OperationTimedOut):  # a node that hangs is reported when it is asked
                self._cluster.add_execution_profile(EVERY_NODE, profile, pool_wait_timeout=self.contact.request_seconds)
        return [host for host in self._cluster.metadata.all_hosts() if host.is_up]


@dataclass(frozen=True, slots=True)
class PreparedShape:
    """A prepared statement for operations of one shape: binds values, sends, and reads the answer.

    Attributes:
        table: kept referenced, because shapes identify tables by object identity.
        adapted: the positions of markers whose values must be converted for the driver.
    """

    table: Table
    statement: Any
    purpose: Purpose
    answer: Callable[[Any], Any]
    adapted: tuple[tuple[int, Conversion], ...]
    seconds: float


class PendingRequest:
    """A request in flight; where it could not be sent, its result is the error. A scan arrives page by page."""

    __slots__ = ("_error", "_future", "_keyspace", "_shape")

    def __init__(self, keyspace: str, shape: PreparedShape | None, future: Any, error: MailmendError | None) -> None:
        self._keyspace = keyspace
        self._shape = shape
        self._future = future
        self._error = error

    def result(self) -> Any:
        """The answer; blocks until it is there, and raises the request's error."""
        if self._shape is None:
            return self._error
        try:
            return self._shape.answer(self._future.result())
        except FAILURES as error:
            failure = our_error(error, self._shape.purpose, self._keyspace, self._shape.table.spelling)
            failure.__cause__ = error
            return failure

    def page(self) -> list[Row]:
        """The rows of the current page; raises the request's error."""
        if self._shape is None:
            assert self._error is not None
            raise self._error
        with our_errors(self._shape.purpose, self._keyspace, self._shape.table.spelling):
            return list(map(self._shape.answer, self._future.result().current_rows))

    @property
    def in_pages(self) -> bool:
        """Whether further pages follow."""
        return self._shape is not None and bool(self._future.has_more_pages)

    def ask_next_page(self) -> None:
        """Request the next page; `call_back` must be called again."""
        self._future.clear_callbacks()
        self._future.start_fetching_next_page()

    def call_back(self, landed: Callable[[], None]) -> None:
        """Call `landed` in the driver's thread once there is an answer or an error."""
        if self._shape is None:
            landed()
            return
        self._future.clear_callbacks()
        self._future.add_callbacks(lambda *_: landed(), lambda *_: landed())


class Keyspace:
    """The tables of one keyspace on a cluster. Implements `model.ports.Tables`."""

    def __init__(self, cluster: CassandraCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self._session = cluster.session
        self._shapes: dict[Hashable, PreparedShape] = {}

    def read(self, read: Read) -> Sequence[Seen]:
        seen: Sequence[Seen] = self._one(read)
        return seen

    def read_all(self, reads: Sequence[Read]) -> list[Sequence[Seen] | MailmendError]:
        return read_joined(reads, self._each, self.replica_of)

    def scan(self, scan: Scan) -> Iterator[Row]:
        """Yield the rows; while one page is processed, the next one is already requested."""
        request = self.launch(scan)
        more = True
        while more:
            page = request.page()
            more = request.in_pages
            if more:
                request.ask_next_page()
            yield from page

    def write(self, write: Write) -> None:
        self._one(write)

    def write_all(self, writes: Sequence[Write]) -> list[MailmendError | None]:
        return write_joined(writes, self._each, self.replica_of)

    def attempt(self, write: Conditional) -> Applied:
        applied: Applied = self._one(write)
        return applied

    def knows(self, operation: Operation | JoinedWrite) -> bool:
        """Whether its shapes are prepared; else the first launch asks the server and blocks."""
        if isinstance(operation, JoinedWrite):
            return all(map(self.knows, operation.writes))
        return shape_of(operation) in self._shapes

    def launch(self, operation: Operation | JoinedWrite) -> PendingRequest:
        """Send the request without waiting for its answer."""
        try:
            if isinstance(operation, JoinedWrite):
                shape, bound = self._shape(operation.writes[0]), self._batch(operation)
            else:
                shape = self._shape(operation)
                bound = self._bound(shape, operation)
            if isinstance(operation, PutIfAbsent) and operation.beside:
                bound = self._conditional_batch(bound, operation.beside)
            if isinstance(operation, Scan) and operation.page_rows:
                bound.fetch_size = operation.page_rows
            future = self._session.execute_async(bound, timeout=shape.seconds)
        except MailmendError as error:
            return PendingRequest(self.name, None, None, error)
        return PendingRequest(self.name, shape, future, None)

    def _one(self, operation: Operation) -> Any:
        answer = self.launch(operation).result()
        if isinstance(answer, MailmendError):
            raise answer
        return answer

    def _each(self, operations: Iterable[Operation | JoinedWrite]) -> list[Any]:
        """Keep a window of requests in flight and refill it by halves: waking up for each answer costs more.

        The older half is read while the younger half is in flight.
        """
        answers: list[Any] = []
        pending: list[PendingRequest] = []
        for operation in operations:
            if len(pending) == IN_FLIGHT:
                answers.extend(request.result() for request in pending[: IN_FLIGHT // 2])
                del pending[: IN_FLIGHT // 2]
            pending.append(self.launch(operation))
        answers.extend(request.result() for request in pending)
        return answers

    def replica_of(self, operation: Read | Write) -> Hashable:
        """The node that is asked first for the partition; one name where there is only one node."""
        metadata = self.cluster.metadata
        if len(metadata.all_hosts()) < 2:  # noqa: PLR2004 - nothing to choose
            return True
        try:
            replicas = metadata.get_replicas(self.name, self._bound(self._shape(operation), operation).routing_key)
        except MailmendError:  # its request will say so
            return True
        if not replicas:
            return True
        first: Hashable = replicas[0].endpoint
        return first

    def _shape(self, operation: Operation) -> PreparedShape:
        key = shape_of(operation)
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= _SHAPES_MAX:  # tables that were unpickled many times
                self._shapes.clear()
            shape = self._shapes[key] = self._prepared(operation)
        return shape

    def _prepared(self, operation: Operation) -> PreparedShape:
        times = self.cluster.collection_times
        prepared = self.cluster.prepare(
            render(self.name, operation, collection_times=times), self.name, operation.table.spelling
        )
        purpose = purpose_of(operation)
        statement = copy.copy(prepared)
        statement.consistency_level = _level(operation)
        statement.serial_consistency_level = ConsistencyLevel.SERIAL
        statement.fetch_size = PAGE_ROWS
        if isinstance(operation, Read) and operation.among:
            # With pages, a node reads the partitions of an IN one after the other, each as a read of its own.
            statement.fetch_size = None
        statement.is_idempotent = purpose is not Purpose.ONCE
        statement.retry_policy = None
        if purpose is Purpose.ONCE:
            statement.retry_policy = FallthroughRetryPolicy()
        adapted = []
        for index, column in enumerate(statement.column_metadata):
            adapt = adaptation_of(column.type)
            if adapt:
                adapted.append((index, adapt))
        answer = answer_of(operation, collection_times=times)
        seconds = self.cluster.contact.seconds_for(operation)
        return PreparedShape(operation.table, statement, purpose, answer, tuple(adapted), seconds)

    def _batch(self, joined: JoinedWrite) -> Any:
        """The writes, each with its own stamp, without a batch log: a node applies one partition's writes as one."""
        batch = BatchStatement(BatchType.UNLOGGED, consistency_level=ConsistencyLevel.QUORUM)
        batch.is_idempotent = True
        for write in joined.writes:
            batch.add(self._bound(self._shape(write), write))
        return batch

    def _conditional_batch(self, insert: Any, beside: Iterable[Change]) -> Any:
        """A conditional insert and changes of its row, as one: the condition and its ballot hold for all of them."""
        batch = BatchStatement(
            BatchType.UNLOGGED,
            retry_policy=FallthroughRetryPolicy(),
            consistency_level=ConsistencyLevel.QUORUM,
            serial_consistency_level=ConsistencyLevel.SERIAL,
        )
        batch.is_idempotent = False
        batch.add(insert)
        for change in beside:
            batch.add(self._bound(self._shape(change), change))
        return batch

    def _bound(self, shape: PreparedShape, operation: Operation) -> Any:
        values = values_of(operation, UNSET_VALUE)
        if shape.adapted:
            values = adapted_values(values, shape.adapted, UNSET_VALUE)
        try:
            return shape.statement.bind(values)
        except (TypeError, ValueError, OverflowError, struct.error) as error:
            where = f"{self.name}.{shape.table.spelling}"
            raise WrongUse(f"a value does not fit its column in {where}: {error}") from error


def _level(operation: Operation) -> int:
    level = Level.QUORUM
    if isinstance(operation, Read | Scan):
        level = operation.level
    return int(getattr(ConsistencyLevel, level.name))
