"""The roles and the least permissions that each needs, derived from the tables that its commands read and write.

The tables come from the catalog and the ledger, so that new projections are covered without a change here. `REMARKS`
says what grants cannot express: Cassandra counts TRUNCATE as MODIFY, and the creator of a table may do all with it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum

from mailmend.model.catalog.james_tables import BLOB_PARTS, BLOBS, EVENT_STORE, SCHEMA_VERSION, naming_blobs
from mailmend.model.catalog.ledger import (
    DELIVERY_TABLES,
    HISTORY_TABLES,
    LEDGER_TABLES,
    REPAIR_FINDING,
    REPAIR_LAG,
    REPAIR_LEASE,
    REPAIR_RUN,
    RUN_LIMIT,
)
from mailmend.model.catalog.mail import (
    FAMILIES,
    IMAP_UID,
    MAILBOX,
    MAILBOX_PATH,
    MESSAGE_COUNTER,
    MESSAGE_ID,
    MESSAGES,
    MODSEQ,
    SCHEMA,
)
from mailmend.model.catalog.mail_queue import BROWSE_START, DELETED_MAILS, ENQUEUED_MAILS, QUEUE_TABLES
from mailmend.model.catalog.of_mailboxes import TABLES_OF_MAILBOXES
from mailmend.model.keyspace import all_but
from mailmend.model.names import name_of, spelled
from mailmend.model.projections.family import Family
from mailmend.model.table import Table, names_of


class Permission(StrEnum):
    """The needed permissions; every server from Cassandra 4.0 on has them."""

    SELECT = "SELECT"
    MODIFY = "MODIFY"
    CREATE = "CREATE"
    ALTER = "ALTER"
    DROP = "DROP"


class GrantScope(Enum):
    """The keyspace that a grant is on: the mail keyspace, the ledger, or a keyspace of the server."""

    MAIL = "mail"
    LEDGER = "ledger"
    VIEWS = "system_views"  # the server's virtual tables: not everybody may read them


@dataclass(frozen=True, slots=True, order=True)
class Resource:
    """The resource of a permission: one table, a keyspace with all tables, or other text as GRANT names it.

    Without any name it is all keyspaces.
    """

    keyspace: str = ""
    table: str = ""
    other: str = ""

    def __str__(self) -> str:
        if self.other:
            return self.other
        if self.table:
            return f"TABLE {spelled(self.keyspace)}.{spelled(self.table)}"
        if self.keyspace:
            return f"KEYSPACE {spelled(self.keyspace)}"
        return "ALL KEYSPACES"

    @property
    def enclosing(self) -> tuple["Resource", ...]:
        """The resource and all that contain it: a permission on any of them holds for it."""
        if not self.table:
            return (self, Resource())
        tables = Resource(other=f"ALL TABLES IN KEYSPACE {spelled(self.keyspace)}")
        return (self, tables, Resource(self.keyspace), Resource())


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """One permission on one resource; permissions that are not known here keep the server's name."""

    on: Resource
    permission: str


@dataclass(frozen=True, slots=True)
class Need:
    """Permissions on some tables of one keyspace, or without tables on the keyspace itself.

    Attributes:
        referring: whether they are also needed on all other tables of the live keyspace that may refer to blobs.
    """

    where: GrantScope
    permissions: tuple[Permission, ...]
    tables: tuple[str, ...] = ()
    referring: bool = False


@dataclass(frozen=True, slots=True)
class Role:
    """A role: its short name, the commands that it is for, and what they need.

    Attributes:
        only_with: the mail table without which the role is not needed; "" where it is always needed.
    """

    name: str
    purpose: str
    needs: tuple[Need, ...]
    only_with: str = ""


_READS = (Permission.SELECT,)
_WRITES = (Permission.MODIFY,)
_BOTH = (Permission.SELECT, Permission.MODIFY)
_SHAPES = (Permission.CREATE, Permission.ALTER, Permission.DROP)


def _names(tables: Iterable[Table]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names_of(tables)))


def _looked_at(family: Family) -> Iterator[Table]:
    yield from family.tables
    for counts in family.counts:
        yield from counts.generators


def _mended(family: Family) -> Iterator[Table]:
    """Every table that a repair of the family writes: never content.

    A truth is written only where its content may be lost.
    """
    if family.content is not None:
        yield family.truth
    for projection in family.projections:
        if projection is not family.content:
            yield projection.table


def _filled(family: Family) -> Iterator[Table]:
    """Every table that a new message is written to; its content goes to James's tables of blobs by default."""
    yield from _looked_at(family)
    yield from (MAILBOX_PATH, MAILBOX, BLOBS, BLOB_PARTS)


def _of_families(tables_of: Callable[[Family], Iterable[Table]]) -> Iterator[Table]:
    for family in FAMILIES:
        yield from tables_of(family)


OF_MAILBOXES = _names(table for table, _ in TABLES_OF_MAILBOXES)
"""The tables with rows of mailboxes, where rows of mailboxes that are no more may be left."""

LOOKED_AT = _names(_of_families(_looked_at))
MENDED = _names(_of_families(_mended))
FILLED = _names(_filled(MESSAGES))
HISTORY = _names(HISTORY_TABLES)
LEDGER = _names(all_but(LEDGER_TABLES, HISTORY))
QUEUED = _names((*QUEUE_TABLES, EVENT_STORE))
"""The tables of the distributed mail queue, and the table of its configuration."""

REFERRING = _names((*filter(naming_blobs, SCHEMA.tables), DELETED_MAILS, BROWSE_START))
"""The tables that may refer to blobs."""

MEASURED = _names((IMAP_UID, MESSAGE_ID, MESSAGE_COUNTER, MODSEQ, EVENT_STORE, ENQUEUED_MAILS, BROWSE_START))
"""The tables from which traffic is measured."""

FIGURES = (
    "coordinator_read_latency",
    "disk_usage",
    "local_read_latency",
    "max_partition_size",
    "rows_per_read",
    "settings",
    "tombstones_per_read",
)
"""The virtual tables with figures of tables' use; the advice leaves out what may not be read."""

READER = Role(
    "reader",
    "check, repair messages --dry-run, schema verify, plan, history and lint",
    (
        Need(GrantScope.MAIL, _READS, LOOKED_AT),
        Need(GrantScope.MAIL, _READS, OF_MAILBOXES),
        Need(GrantScope.LEDGER, _READS, (REPAIR_LEASE.name, *HISTORY)),
    ),
)
REPAIRER = Role(
    "repairer",
    "repair messages, mailboxes and lags, apply, undo, runs, jobs, metrics; all that a reader does",
    (
        *READER.needs,
        Need(GrantScope.MAIL, _WRITES, MENDED),
        Need(GrantScope.LEDGER, _BOTH, LEDGER),
    ),
)
LOADER = Role(
    "loader",
    "load, and services that write through MessageStore",
    (Need(GrantScope.MAIL, _BOTH, FILLED), Need(GrantScope.LEDGER, _WRITES, (REPAIR_LAG.name,))),
)
MIGRATOR = Role(
    "migrator",
    "schema plan, apply, adopt, history",
    (
        Need(GrantScope.MAIL, _SHAPES),
        Need(GrantScope.LEDGER, _SHAPES),
        Need(GrantScope.LEDGER, _BOTH, (REPAIR_LEASE.name, *HISTORY)),
        Need(GrantScope.MAIL, _BOTH, (SCHEMA_VERSION.name,)),
        Need(GrantScope.VIEWS, _READS, ("disk_usage",)),
    ),
)
ADVISER = Role(
    "adviser",
    "schema advise, queue advise",
    (
        Need(GrantScope.MAIL, _READS, MEASURED),
        Need(GrantScope.VIEWS, _READS, FIGURES),
    ),
)
QUEUE_READER = Role(
    "queue_reader",
    "queue list, size, browse, check queues, most dry runs: who waits, from whom and to whom, no content",
    (Need(GrantScope.MAIL, _READS, QUEUED),),
    only_with=ENQUEUED_MAILS.name,
)
QUEUE = Role(
    "queue",
    "workers of the mail queue, every other command of it, delivery; with repairer: repair queues",
    (
        Need(GrantScope.MAIL, _BOTH, QUEUED),
        Need(GrantScope.LEDGER, _BOTH, _names(DELIVERY_TABLES)),
    ),
    only_with=ENQUEUED_MAILS.name,
)
COLLECTOR = Role(
    "collector",
    "check blobs, repair blobs; the broker, and a blob store outside Cassandra, have permissions of their own",
    (
        Need(GrantScope.MAIL, _READS, REFERRING, referring=True),
        Need(GrantScope.MAIL, _BOTH, _names((BLOBS, BLOB_PARTS))),
        Need(GrantScope.LEDGER, _READS, _names((REPAIR_FINDING, RUN_LIMIT))),
        Need(GrantScope.LEDGER, _BOTH, _names((REPAIR_RUN, REPAIR_LEASE))),
    ),
)

REMARKS = (
    "Cassandra counts TRUNCATE as MODIFY. Of 4.1 and later, drop_truncate_table_enabled: false in cassandra.yaml",
    "leaves TRUNCATE (and DROP TABLE) to superusers.",
    (
        "The role that creates a table is granted everything on it: check what the migrator holds "
        "after `mailmend schema apply`"
    ),
    "beyond its need with: mailmend schema grants --role migrator --check",
)
"""Remarks on what grants cannot express, one sentence or more each."""

ROLES: Mapping[str, Role] = {
    role.name: role for role in (READER, REPAIRER, LOADER, MIGRATOR, ADVISER, QUEUE_READER, QUEUE, COLLECTOR)
}


@dataclass(frozen=True, slots=True)
class Keyspaces:
    """The keyspaces as CQL spells them, and the tables that exist; None: all tables are assumed to exist.

    Attributes:
        referring: the tables of the live mail keyspace that may refer to blobs.
    """

    mail: str
    ledger: str
    mail_tables: frozenset[str] | None = None
    ledger_tables: frozenset[str] | None = None
    referring: frozenset[str] = frozenset()

    def name(self, where: GrantScope) -> str:
        """The keyspace's name as the server knows it."""
        return name_of({GrantScope.MAIL: self.mail, GrantScope.LEDGER: self.ledger}.get(where, where.value))

    def has(self, where: GrantScope, table: str) -> bool:
        found = {GrantScope.MAIL: self.mail_tables, GrantScope.LEDGER: self.ledger_tables}.get(where)
        return found is None or table in found


def has_work(role: Role, keyspaces: Keyspaces) -> bool:
    return not role.only_with or keyspaces.has(GrantScope.MAIL, role.only_with)


def grants_of(role: Role, keyspaces: Keyspaces) -> tuple[Grant, ...]:
    """All grants that the role needs, sorted, including those on tables that do not exist."""
    grants: set[Grant] = set()
    for need in role.needs:
        grants.update(_grants(need, keyspaces))
    return tuple(sorted(grants))


def absent(role: Role, keyspaces: Keyspaces) -> frozenset[Resource]:
    """Tables that the role needs and that do not exist, so that no server can grant anything on them."""
    missing = set()
    for need in role.needs:
        for table in need.tables:
            if not keyspaces.has(need.where, table):
                missing.add(Resource(keyspaces.name(need.where), table))
    return frozenset(missing)


def _grants(need: Need, keyspaces: Keyspaces) -> Iterator[Grant]:
    keyspace = keyspaces.name(need.where)
    tables = [*(need.tables or ("",))]
    if need.referring:
        tables.extend(keyspaces.referring)
    for table in tables:
        for permission in need.permissions:
            yield Grant(Resource(keyspace, table), permission.value)


@dataclass(frozen=True, slots=True)
class HeldGrant:
    """A permission that a role has, and the role that it comes from: the role itself or one granted to it."""

    grant: Grant
    through: str


@dataclass(frozen=True, slots=True)
class Holding:
    """A role's attributes and permissions on a live cluster."""

    name: str
    exists: bool = True
    superuser: bool = False
    held: tuple[HeldGrant, ...] = ()


@dataclass(frozen=True, slots=True)
class GrantComparison:
    """The comparison of a role's permissions with those that it needs.

    Attributes:
        missing: grants that are needed, and neither held nor covered by a wider one.
        superfluous: grants that are held, and not needed in exactly that form.
        to_grant: grants that must be given before the superfluous ones can be revoked.
    """

    holding: Holding
    missing: tuple[Grant, ...]
    superfluous: tuple[HeldGrant, ...]
    to_grant: tuple[Grant, ...]

    @property
    def agrees(self) -> bool:
        fits = self.holding.exists and not self.holding.superuser
        return fits and not (self.missing or self.superfluous or self.to_grant)


def compared(needed: Iterable[Grant], holding: Holding) -> GrantComparison:
    wanted = frozenset(needed)
    own = set()
    superfluous = []
    for held in holding.held:
        if held.through == holding.name:
            own.add(held.grant)
        if held.through != holding.name or held.grant not in wanted:
            superfluous.append(held)
    missing = []
    for grant in sorted(wanted):
        if not _covered(grant, holding):
            missing.append(grant)
    return GrantComparison(holding, tuple(missing), tuple(superfluous), to_grant=tuple(sorted(wanted - own)))


def _covered(wanted: Grant, holding: Holding) -> bool:
    """Whether the role may do it: a permission on an enclosing resource covers it too."""
    if holding.superuser:
        return True
    for held in holding.held:
        if held.grant.permission == wanted.permission and held.grant.on in wanted.on.enclosing:
            return True
    return False
