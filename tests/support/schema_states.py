"""Keyspaces whose schema is in the states that runbooks describe: a migration pending, one that died half way."""

from cql.history import History
from cql.migration_files import shipped
from cql.rollout import lease_name
from cql.session import Keyspace
from model.history_tables import SCHEMA_MIGRATION, SCHEMA_STATEMENT
from model.operations import Remove
from repair.clock import SystemClock
from repair.leases import Leases
from repair.ports import Tables
from tests.support.commands import CommandLine

_LAST = shipped()[-1]
_LAST_TABLE = "blobparts"


def migration_pending(mail: Keyspace, ledger: Tables, mailmend: CommandLine) -> None:
    """All is there but what the last statement of the last migration makes; the history begins anew."""
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
