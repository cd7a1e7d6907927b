"""A keyspace of declared tables on a real Cassandra, and a shell in front of it; both are gone after the test."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mailmend.cql.driver.session import CassandraCluster, Keyspace, connect
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Scan
from mailmend.model.table import Row, Table
from tests.support.commands import CommandLine, command_line, contact_of
from tests.support.keyspaces import created, dropped
from tests.support.servers import CassandraServer


@dataclass(frozen=True, slots=True)
class DeclaredShop:
    """The keyspace, a shell in front of it, and the file that declares its tables."""

    name: str
    cluster: CassandraCluster
    tables: Keyspace
    mailmend: CommandLine
    file: Path

    @property
    def ledger(self) -> str:
        return _ledger_of(self.name)

    def found(self, engine: str = "local") -> tuple[int, Mapping[str, Mapping[str, int]]]:
        """The exit code and the counts of a check of all tables of the file."""
        ended = self.mailmend("check", "--projections", str(self.file), "--engine", engine, "--json")
        assert ended.code in (0, 1), ended.err
        return ended.code, ended.json["findings"]

    def mend(self, engine: str = "local") -> Mapping[str, Any]:
        words = ("repair", "--projections", str(self.file), "--engine", engine)
        return self.mailmend(*words, "--json").json

    def rows(self, table: Table) -> list[Row]:
        """The rows of a table, in an order that their cells decide."""
        return sorted((dict(row) for row in self.tables.scan(Scan(table, table.names))), key=str)

    def rows_of(self, tables: Sequence[Table]) -> dict[str, list[Row]]:
        return {table.name: self.rows(table) for table in tables}


@contextmanager
def declared_shop(
    cassandra: CassandraServer,
    home: Path,
    schema: Schema,
    declared: str,
) -> Iterator[DeclaredShop]:
    """The keyspace with its empty tables. No program writes to it, so that commands need not wait."""
    name = cassandra.keyspace()
    file = home / "shop.toml"
    file.write_text(declared)
    where = {"MAILMEND_KEYSPACE": name, "MAILMEND_LEDGER_KEYSPACE": _ledger_of(name)}
    for command in ("CHECK", "REPAIR_TABLES"):
        where[f"MAILMEND_{command}_DELAY"] = "0"
        where[f"MAILMEND_{command}_NO_WRITERS"] = "1"
    with connect(contact_of(cassandra)) as cluster:
        tables = created(cluster, name, schema)
        yield DeclaredShop(name, cluster, tables, command_line(home, cassandra, **where), file)
        dropped(cluster, (name, _ledger_of(name)))


def _ledger_of(keyspace: str) -> str:
    return f"{keyspace}_ledger"
