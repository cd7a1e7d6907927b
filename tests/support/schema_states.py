"""Keyspaces whose schema is in the states that runbooks describe: a migration pending or dead, James's own, drifted."""

from cql.driver.session import Keyspace
from cql.introspect import live_schema
from cql.migrate.files import shipped
from cql.migrate.history import History
from cql.migrate.rollout import lease_name
from model.catalog.ledger import SCHEMA_MIGRATION, SCHEMA_STATEMENT
from model.catalog.mail import FIRST_UNSEEN, IMAP_UID
from model.migrations.plan import declared_by
from model.operations import Remove
from model.ports import Tables
from repair.clock import SystemClock
from repair.ledger.leases import Leases
from tests.support.commands import CommandLine

_LAST = shipped()[-1]
_LAST_TABLE = declared_by([_LAST]).tables[-1].name


def migration_pending(mail: Keyspace, ledger: Tables, mailmend: CommandLine) -> None:
    """All is there but what the last statement of the last migration makes; the history begins anew."""
    _belongs_to(mail, IMAP_UID.comment)
    made = mailmend("schema", "apply", "--keyspace", mail.name)
    assert made.code == 0, made.err
    ledger.write(Remove(SCHEMA_MIGRATION, (mail.name,)))
    for migration in shipped():
        ledger.write(Remove(SCHEMA_STATEMENT, (mail.name, migration.number)))
    mail.cluster.execute_ddl(f"DROP TABLE {mail.name}.{_LAST_TABLE}")


def migration_interrupted(mail: Keyspace, ledger: Tables, mailmend: CommandLine) -> None:
    """The last migration's last statement was begun by an applier that is gone, and still holds its lease."""
    migration_pending(mail, ledger, mailmend)
    clock, owner = SystemClock(), "deploy@pod-7 pid 1"
    history = History(ledger, clock, mail.name, owner, "0.1.0")
    claim = clock.new_uuid()
    history.baseline(shipped()[:-1], claim, "there before the history began")
    history.begin(_LAST, claim, None)
    for position in range(len(_LAST.statements)):
        begun = history.begun(_LAST.number, position, _LAST.cql(position), _LAST.cql(position), clock.new_uuid())
        if position < len(_LAST.statements) - 1:
            history.done(begun)
    Leases(ledger, clock, owner).acquire(lease_name(mail.name), "schema apply")


def made_by_james(mail: Keyspace, ledger: Tables, mailmend: CommandLine) -> None:
    """The same tables, one of them with words of James; nobody has adopted it, and it has no history."""
    migration_pending(mail, ledger, mailmend)
    _belongs_to(mail, "the truth, in the words of James")


def table_dropped(mail: Keyspace, ledger: Tables, mailmend: CommandLine) -> None:
    """Every migration is applied, and then somebody drops a projection."""
    migration_pending(mail, ledger, mailmend)
    made = mailmend("schema", "apply", "--keyspace", mail.name)
    assert made.code == 0, made.err
    mail.cluster.execute_ddl(f"DROP TABLE {mail.name}.{FIRST_UNSEEN.name}")


def _belongs_to(mail: Keyspace, comment: str) -> None:
    """Whose words stand at the truth decides whose keyspace it is."""
    found = live_schema(mail.cluster, mail.name).table(IMAP_UID.name)
    assert found is not None
    if found.comment != comment:
        mail.cluster.execute_ddl(f"ALTER TABLE {mail.name}.{IMAP_UID.name} WITH comment = '{comment}'")
