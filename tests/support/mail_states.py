"""Mail keyspaces, real or in memory, in exactly the state that a test or a runbook page describes.

Creating a keyspace is slow and filling one is not: tests share one, and each begins with `refill`. Everything is
written as of now, so the commands of a test declare the keyspace quiet (`QUIET`) or wait.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID, uuid4

from mailmend.cql.driver.session import CassandraCluster, Keyspace, connect
from mailmend.cql.render import schema_cql
from mailmend.model.catalog import mail as catalog
from mailmend.model.catalog.james_tables import BLOB_PARTS, BLOBS
from mailmend.model.catalog.mail import APPLICABLE_FLAG, IMAP_UID, MAILBOX_COUNTERS, MESSAGE_ID, MESSAGE_V3, MESSAGES
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Change, Count, Put, Read, Remove, Scan, Write
from mailmend.model.table import Key, Row, Table
from mailmend.repair.clock import SystemClock
from mailmend.repair.retries import Retries
from tests.support.commands import CommandLine, command_line, contact_of
from tests.support.keyspaces import LEDGER, MAIL, created, dropped
from tests.support.repairing import MAILBOX, content_row, message, mirror_row, truth_row
from tests.support.servers import CassandraServer

QUIET: Mapping[str, str] = {
    "MAILMEND_CHECK_NO_WRITERS": "1",
    "MAILMEND_REPAIR_MESSAGES_NO_WRITERS": "1",
    "MAILMEND_REPAIR_LAGS_NO_WRITERS": "1",
    "MAILMEND_APPLY_NO_WRITERS": "1",
    "MAILMEND_UNDO_NO_WRITERS": "1",
}
"""Nobody else writes to a test's keyspace: no margin, and counters need not be looked at twice 21 seconds apart."""

_GENERATORS = tuple(table for counts in MESSAGES.counts for table in counts.generators)
_FILTERS = tuple(projection.table for projection in MESSAGES.filters)
_NAMES = (catalog.MAILBOX, catalog.MAILBOX_PATH)
"""Empty together with the generators: a mailbox that has a name and messages must have its generators too."""
_FILLED = (IMAP_UID, MESSAGE_ID, MESSAGE_V3, APPLICABLE_FLAG, *_FILTERS, *_GENERATORS, *_NAMES)


_MANY = 100
"""Of so many partitions it costs less to truncate their table."""
_MAIL_AND_BLOBS = replace(MAIL, tables=(*MAIL.tables, BLOBS, BLOB_PARTS))


@dataclass(slots=True)
class MailKeyspace:
    """A mail keyspace with a few messages in one mailbox."""

    name: str
    tables: Keyspace
    truths: Sequence[Row] = ()
    mailbox: UUID = field(default=MAILBOX)

    def refill(self, messages: int = 4) -> None:
        """Every projection agrees with its truth again, whatever a test did before."""
        self.truths = [truth_row(number, flagseen=number % 2 == 0) for number in range(1, messages + 1)]
        self._write(self._leftovers())
        self._write([write for truth in self.truths for write in _message(truth)])
        self._count(messages, sum(not truth["flagseen"] for truth in self.truths))

    def get(self, table: Table, key: Key) -> Row | None:
        found = self.tables.read(Read(table, key))
        return found[0].row if found else None

    def mirror(self, truth: Row) -> Row | None:
        return self.get(MESSAGE_ID, MESSAGES.mirror.key_of(truth))

    def mirrored(self) -> int:
        """How many rows messageIdTable has."""
        return sum(1 for _ in self.tables.scan(Scan(MESSAGE_ID, ("uid",))))

    def lose_projection(self, truth: Row) -> None:
        self.tables.write(Remove(MESSAGE_ID, MESSAGES.mirror.key_of(truth)))

    def lose_flag_update(self, truth: Row) -> None:
        change = {"flagflagged": not truth["flagflagged"], "modseq": truth["modseq"] + 1}
        self.tables.write(Change(IMAP_UID, IMAP_UID.key_of(truth), assign=change))

    def lose_content(self, truth: Row) -> None:
        """A delete was half carried out: the content went, the rows stayed."""
        self.tables.write(Remove(MESSAGE_V3, (truth["messageid"],)))

    def lose_truth(self, truth: Row) -> None:
        """A delete was half carried out: the truth went, its projections stayed."""
        self.tables.write(Remove(IMAP_UID, IMAP_UID.key_of(truth)))

    def _leftovers(self) -> list[Write]:
        """Removals of every row; of whole partitions, as fast as they come."""
        partitions: list[Write] = []
        for table in _FILLED:
            names = tuple(column.name for column in table.partition)
            keys = {tuple(row[name] for name in names) for row in self.tables.scan(Scan(table, names))}
            partitions += [Remove(table, key) for key in keys]
        return partitions

    def _count(self, count: int, unseen: int) -> None:
        now = self.get(MAILBOX_COUNTERS, (self.mailbox,)) or {}
        deltas = {"count": count - (now.get("count") or 0), "unseen": unseen - (now.get("unseen") or 0)}
        self.tables.write(Count(MAILBOX_COUNTERS, (self.mailbox,), deltas))

    def _write(self, writes: Sequence[Write]) -> None:
        for error in Retries(SystemClock()).write_all(self.tables, writes):
            if error:
                raise error


def mail_keyspace(cluster: CassandraCluster, name: str) -> MailKeyspace:
    """An empty one with James's tables of blobs, to be filled by `refill`."""
    return MailKeyspace(name, created(cluster, name, _MAIL_AND_BLOBS))


@contextmanager
def keyspace_of_its_own(server: CassandraServer, what: str) -> Iterator[MailKeyspace]:
    """An empty mail keyspace with a name of its own; it is dropped at the end, and so is its ledger's."""
    name = f"g_{what}_{uuid4().hex[:8]}"
    with connect(contact_of(server)) as cluster:
        yield mail_keyspace(cluster, name)
        dropped(cluster, (name, f"{name}_ledger"))


@contextmanager
def shared_mail_keyspace(server: CassandraServer) -> Iterator[MailKeyspace]:
    """A mail keyspace and its ledger's, with all tables; what is on a node of the tests' own ends with that node."""
    name = f"g_shared_{uuid4().hex[:8]}"
    with connect(contact_of(server)) as cluster:
        mail = mail_keyspace(cluster, name)
        created(cluster, f"{name}_ledger", LEDGER)
        yield mail
        if server.sstables is None:
            dropped(cluster, (name, f"{name}_ledger"))


def ledger_of(mail: MailKeyspace) -> Keyspace:
    return mail.tables.cluster.keyspace(f"{mail.name}_ledger")


def emptied(mail: MailKeyspace) -> MailKeyspace:
    """The same keyspace and ledger, as if their tables had just been created."""
    _remove_rows(mail.tables, _MAIL_AND_BLOBS.tables)
    _remove_rows(ledger_of(mail), LEDGER.tables)
    mail.truths = ()
    return mail


def _remove_rows(keyspace: Keyspace, tables: Iterable[Table]) -> None:
    """Remove what is there; where that is much the table is truncated, and a counter is never the same once removed."""
    for table in tables:
        names = tuple(column.name for column in table.partition)
        keys = {tuple(row[name] for name in names) for row in keyspace.scan(Scan(table, names))}
        if len(keys) > _MANY or (keys and any(column.is_counter for column in table.columns)):
            keyspace.cluster.execute_ddl(f"TRUNCATE {keyspace.name}.{table.name}")
            continue
        for error in keyspace.write_all([Remove(table, key) for key in keys]):
            if error:
                raise error


def make_anew(mail: MailKeyspace, table: Table) -> None:
    """Drop it, where it is there, and create it: it is empty, and it has another id."""
    mail.tables.cluster.execute_ddl(f"DROP TABLE IF EXISTS {mail.name}.{table.name}")
    for text in schema_cql(mail.name, Schema((), (table,))):
        mail.tables.cluster.execute_ddl(text)


def shell_on(server: CassandraServer, mail: MailKeyspace, home: Path) -> CommandLine:
    """A shell that knows the cluster and both keyspaces, with a home of its own."""
    names = {"MAILMEND_KEYSPACE": mail.name, "MAILMEND_LEDGER_KEYSPACE": f"{mail.name}_ledger"}
    return command_line(home, server, **names, **QUIET)


def register(mail: MailKeyspace, number: int, name: str, *, row_says: str | None, mailbox: UUID | None = None) -> None:
    """A mailbox path of bob's, and what the mailbox row says (None: there is none)."""
    at = mailbox or message(number)
    path = {"namespace": "#private", "user": "bob", "mailboxname": name, "mailboxid": at, "uidvalidity": 1}
    mail.tables.write(Put(catalog.MAILBOX_PATH, path))
    if row_says is not None:
        row = {
            "id": at,
            "mailboxbase": {"namespace": "#private", "user": "bob"},
            "name": row_says,
            "uidvalidity": 1,
        }
        mail.tables.write(Put(catalog.MAILBOX, row))


def _message(truth: Row) -> list[Write]:
    filters: list[Write] = [
        Put(one.table, one.table.key_row(one.key_of(truth))) for one in MESSAGES.filters if one.when.holds(truth)
    ]
    return [
        Put(IMAP_UID, truth),
        Put(MESSAGE_ID, mirror_row(truth)),
        Put(MESSAGE_V3, content_row(truth["messageid"])),
        *filters,
    ]
