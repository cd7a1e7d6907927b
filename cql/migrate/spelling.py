"""How statements of migrations are spelled for a keyspace and a server, so that they may be sent again.

A statement is its author's text with the keyspace before the name. Only in our own migrations is one choice open, how
the big message tables are compacted, and options that an older server lacks are left out.

A statement may be sent twice (its applier was killed, the answer was lost, a paused coordinator continues after an
hour) but must take effect once. A table is created under an id that was drawn and written down before the first
sending: two coordinators that create it make the same table, not two of one name that lose each other's rows
(CASSANDRA-10699). Rows are written as of that moment, so that a repetition overwrites nothing that is newer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from uuid import UUID

from mailmend.cql.language.lexer import Token, TokenKind, tokens_of
from mailmend.cql.language.parser import parse
from mailmend.cql.render import ServerVersion, ddl_cql, lacking_options
from mailmend.cql.schema.migrations.migration import Migration
from mailmend.cql.statements import Parsed, WriteKind, WriteRows
from mailmend.model.catalog.mail import MESSAGE_COMPACTIONS, TWCS_MESSAGES, CompactionChoice
from mailmend.model.ids import micros_of
from mailmend.model.names import keyspace_spelling

_OPEN = "([{"
_CLOSE = ")]}"


@dataclass(frozen=True, slots=True)
class Spelling:
    """The spelling of statements for one keyspace on one server.

    Args:
        choice: of the compaction, for migrations that leave it open; None for anybody else's migrations.
    """

    keyspace: str
    server: ServerVersion
    choice: CompactionChoice | None = None

    def shown(self, migration: Migration, position: int) -> str:
        """The statement as a plan shows it; can be piped into cqlsh."""
        text, parsed = self._chosen(migration, position)
        return f"{qualified(text, parsed, self.keyspace)};"

    def sent(self, migration: Migration, position: int, attempt: UUID) -> str:
        """The statement as the server gets it; the same for each repetition of the attempt."""
        text, parsed = self._chosen(migration, position)
        return sent(text, parsed, self.keyspace, attempt)

    def _chosen(self, migration: Migration, position: int) -> tuple[str, Parsed]:
        """The text that holds the statement, and the parsed statement."""
        parsed = migration.statements[position]
        statement = parsed.statement
        table = statement.table_created
        if self.choice is None or table is None:
            return migration.text, parsed
        if table.compaction == TWCS_MESSAGES:
            table = replace(table, compaction=MESSAGE_COMPACTIONS[self.choice])
        if table == statement.table_created and not lacking_options(table, self.server):
            return migration.text, parsed
        text = ddl_cql(statement.creating(table), self.keyspace, self.server)
        return text, parse(text)[0]


Insertion = tuple[int, str]
"""Offset, and the text to insert before it."""


def qualified(text: str, parsed: Parsed, keyspace: str) -> str:
    """The statement with the keyspace before its deciding name, otherwise as its author wrote it."""
    return _with(text, parsed, _keyspace(parsed, keyspace))


def sent(text: str, parsed: Parsed, keyspace: str, attempt: UUID) -> str:
    """The statement as the server gets it; `attempt` is drawn before the first sending, one for every repetition."""
    return _with(text, parsed, [*_keyspace(parsed, keyspace), *_once(text, parsed, attempt)])


def tokens_between(text: str, parsed: Parsed) -> list[Token]:
    """The statement's tokens without comments; offsets count from the statement's start."""
    own = text[parsed.span.start : parsed.span.end]
    return [token for token in tokens_of(own) if token.kind not in (TokenKind.COMMENT, TokenKind.END)]


def _with(text: str, parsed: Parsed, insertions: Sequence[Insertion]) -> str:
    """The statement's text with the insertions; offsets count from the statement's start."""
    own = text[parsed.span.start : parsed.span.end]
    for place, what in sorted(insertions, reverse=True):
        own = own[:place] + what + own[place:]
    return own


def _keyspace(parsed: Parsed, keyspace: str) -> list[Insertion]:
    named = getattr(parsed.statement, "name", None)
    if parsed.name_at is None or named is None or named.keyspace is not None:
        return []
    return [(parsed.name_at.start - parsed.span.start, f"{keyspace_spelling(keyspace)}.")]


def _once(text: str, parsed: Parsed, attempt: UUID) -> Iterator[Insertion]:
    table = parsed.statement.table_created
    if table is not None and "id" not in table.options:
        yield _table_id(tokens_between(text, parsed), attempt)
    for write in parsed.statement.row_writes:
        if not write.conditional and write.timestamp is None:
            yield _timestamp(text, parsed, write, micros_of(attempt))


def _table_id(tokens: Sequence[Token], attempt: UUID) -> Insertion:
    """After the columns: in an existing WITH, else in a new one."""
    end = tokens[-1].end
    options = next((token for depth, token in _with_depth(tokens) if depth == 0 and token.word == "WITH"), None)
    return (options.end, f" ID = {attempt} AND") if options else (end, f" WITH ID = {attempt}")


def _timestamp(text: str, parsed: Parsed, write: WriteRows, micros: int) -> Insertion:
    """In an existing USING, else in a new one: at the end of an INSERT, elsewhere after the table."""
    tokens = tokens_between(text, parsed)
    using = next((token for depth, token in _with_depth(tokens) if depth == 0 and token.word == "USING"), None)
    if using:
        return using.end, f" TIMESTAMP {micros} AND"
    if write.change is WriteKind.INSERT:
        return tokens[-1].end, f" USING TIMESTAMP {micros}"
    return _after_name(tokens, parsed), f" USING TIMESTAMP {micros}"


def _after_name(tokens: Sequence[Token], parsed: Parsed) -> int:
    """The end of the table's name (with its keyspace)."""
    assert parsed.name_at is not None
    at = parsed.name_at.start - parsed.span.start
    rest = [token for token in tokens if token.start >= at]
    for token, other in pairwise(rest):
        if "." not in (token.text, other.text):
            return token.end
    return rest[-1].end


def _with_depth(tokens: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    """Each token with its depth in brackets."""
    depth = 0
    for token in tokens:
        depth -= token.text in _CLOSE
        yield depth, token
        depth += token.text in _OPEN
