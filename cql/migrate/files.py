"""Migrations read from a folder, and their statements as spelled for a keyspace and a server.

A statement is its author's text with the keyspace before the name. Only in our own migrations is
one choice open, how the big message tables are compacted, and options that an older server lacks
are left out.

A statement may be sent twice (its applier was killed, the answer was lost, a paused coordinator
continues after an hour) but must take effect once. A table is created under an id that was drawn
and written down before the first sending: two coordinators that create it make the same table, not
two of one name that lose each other's rows (CASSANDRA-10699). Rows are written as of that moment,
so that a repetition overwrites nothing that is newer.

Errors in a file are reported before anything runs: its name, its number, its head, its CQL with
line, column and caret, a statement that no migration may hold.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import pairwise
from pathlib import Path
from uuid import UUID

from mailmend.cql.language.parser import parse
from mailmend.cql.language.stream import Token, TokenKind, tokens_of
from mailmend.cql.render import ServerVersion, ddl_cql, lacking_options
from mailmend.cql.schema.migrations import FileName, Migration, file_name, head_of, in_order, normalised
from mailmend.cql.statements import Parsed, WriteKind, WriteRows
from mailmend.model.catalog.mail import MESSAGE_COMPACTIONS, TWCS_MESSAGES, CompactionChoice
from mailmend.model.errors import BadMigration
from mailmend.model.ids import micros_of
from mailmend.model.names import keyspace_spelling, name_of

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
    options = _outside_brackets(tokens, "WITH")
    if options:
        return options.end, f" ID = {attempt} AND"
    return tokens[-1].end, f" WITH ID = {attempt}"


def _timestamp(text: str, parsed: Parsed, write: WriteRows, micros: int) -> Insertion:
    """In an existing USING, else in a new one: at the end of an INSERT, elsewhere after the table."""
    tokens = tokens_between(text, parsed)
    using = _outside_brackets(tokens, "USING")
    if using:
        return using.end, f" TIMESTAMP {micros} AND"
    if write.change is WriteKind.INSERT:
        return tokens[-1].end, f" USING TIMESTAMP {micros}"
    return _after_name(tokens, parsed), f" USING TIMESTAMP {micros}"


def _outside_brackets(tokens: Sequence[Token], word: str) -> Token | None:
    """The first token that is this keyword and is in no brackets."""
    for depth, token in _with_depth(tokens):
        if depth == 0 and token.word == word:
            return token
    return None


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


ENDING = ".cql"
_DIFFERENT_EACH_TIME = frozenset({"now", "uuid", "currenttimestamp", "currentdate", "currenttime", "currenttimeuuid"})
"""Functions that give another value each time they are called; 5.0 spells them with underscores as well."""

_NOT_IDEMPOTENT = "sent again after a crash, it would not leave the same rows: write plain values"
_UNBOUND = "a migration cannot bind values: write them out"


def shipped() -> tuple[Migration, ...]:
    """Mailmend's own migrations: together they make the schema of `model.catalog.mail`."""
    return _read(files("mailmend.cql") / "migrations")


def read_folder(folder: Path) -> tuple[Migration, ...]:
    """The migrations of a folder, in order.

    Raises:
        BadMigration: the folder or a file cannot be read or run; the message names the file.
        CqlSyntaxError: a file is not CQL.
    """
    if not folder.is_dir():
        raise BadMigration(f"{folder} is not a folder", mend="Name the folder of your migrations with --migrations.")
    return _read(folder)


def _read(folder: Traversable) -> tuple[Migration, ...]:
    found = in_order(_migration(name, file) for name, file in _named(folder))
    if not found:
        raise BadMigration(f"{folder} holds no migration", mend="The first is called 0001_pre_what_it_does.cql.")
    return found


def _named(folder: Traversable) -> Iterator[tuple[FileName, Traversable]]:
    """The files with a migration's name; a README or an editor's files are skipped."""
    for file in folder.iterdir():
        if file.name.lower().endswith(ENDING) and not file.name.startswith("."):
            yield file_name(file.name), file


def _migration(name: FileName, file: Traversable) -> Migration:
    text = _text(name, file)
    if not text.strip():
        raise BadMigration(f"{name} is empty", mend="Write it, or remove it where it was applied nowhere.")
    head = head_of(str(name), text)
    return Migration(name, text, head, _statements(name, text))


def _text(name: FileName, file: Traversable) -> str:
    try:
        return normalised(file.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadMigration(
            f"{name} is not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}",
            mend="Save it as UTF-8.",
        ) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise BadMigration(f"{name} cannot be read: {reason}", mend="See who may read it with: ls -l") from error


def _statements(name: FileName, text: str) -> tuple[Parsed, ...]:
    statements = parse(text, str(name))
    if not statements:
        raise BadMigration(f"{name} holds no statement", mend="Write one, or remove it where it was applied nowhere.")
    for statement in statements:
        why = statement.statement.refusal_in_migration() or _not_plain(text, statement)
        if why:
            raise refused(str(name), text, statement, why)
    return statements


def refused(name: str, text: str, parsed: Parsed, why: str) -> BadMigration:
    line = text.count("\n", 0, parsed.span.start) + 1
    first, *_ = text[parsed.span.start : parsed.span.end].splitlines()
    return BadMigration(f"{name}, line {line}: a migration may not hold `{first}`", mend=f"Reason: {why}.")


def _not_plain(text: str, parsed: Parsed) -> str:
    """Why a data statement cannot be sent as it is, or gives other rows when sent twice; else ""."""
    if not parsed.statement.row_writes:
        return ""
    idempotent = True
    for token, after in pairwise(tokens_between(text, parsed)):
        if after.text == "?" or (after.text == ":" and not _ends_a_term(token)):
            return _UNBOUND
        if after.text == "(" and _function(token) in _DIFFERENT_EACH_TIME:
            idempotent = False
        if after.text in ("+", "-") and _ends_a_term(token):
            idempotent = False
    if idempotent:
        return ""
    return _NOT_IDEMPOTENT


def _function(token: Token) -> str:
    """The function's name without underscores: 5.0 knows `current_date` and `currentDate`."""
    if token.kind not in (TokenKind.WORD, TokenKind.QUOTED):
        return ""
    return name_of(token.text).replace("_", "")


def _ends_a_term(token: Token) -> bool:
    """Whether a sign after the token is binary: `count + 1`, not `= -1`."""
    return token.kind is not TokenKind.MARK or token.text in (")", "]", "}")
