"""How the statements of migrations are spelled for one keyspace on one server.

As their authors wrote them, except in our own migrations for one choice, how the big message tables are compacted, and
for options that an older server lacks.
"""

from dataclasses import dataclass, replace
from uuid import UUID

from cql.language.parser import parse
from cql.language.text import ddl_cql
from cql.migrate.sending import qualified, sent
from cql.render import ServerVersion, lacking_options
from model.catalog.mail import MESSAGE_COMPACTIONS, TWCS_MESSAGES, CompactionChoice
from model.migrations.migration import Migration
from model.schema.statements import CreateTable, Parsed


@dataclass(frozen=True, slots=True)
class Script:
    """The spelling of statements.

    Args:
        choice: of the compaction, for migrations that leave it open; None for anybody else's migrations.
    """

    keyspace: str
    server: ServerVersion
    choice: CompactionChoice | None = None

    def shown(self, migration: Migration, position: int) -> str:
        """The statement as a plan shows it, to be read or piped into cqlsh."""
        text, parsed = self._chosen(migration, position)
        return f"{qualified(text, parsed, self.keyspace)};"

    def sent(self, migration: Migration, position: int, attempt: UUID) -> str:
        """The statement as the server gets it; the same for every repetition of the attempt."""
        text, parsed = self._chosen(migration, position)
        return sent(text, parsed, self.keyspace, attempt)

    def _chosen(self, migration: Migration, position: int) -> tuple[str, Parsed]:
        """The text that holds the statement, and the statement in it.

        Raises:
            WrongUse: the server is too old for the compaction.
        """
        parsed = migration.statements[position]
        statement = parsed.statement
        if self.choice is None or not isinstance(statement, CreateTable):
            return migration.text, parsed
        table = statement.table
        if table.compaction == TWCS_MESSAGES:
            table = replace(table, compaction=MESSAGE_COMPACTIONS[self.choice])
        if table == statement.table and not lacking_options(table, self.server):
            return migration.text, parsed
        text = ddl_cql(replace(statement, table=table), self.keyspace, self.server)
        return text, parse(text)[0]
