"""Migrations read from a folder: ours, which come with the package, or anybody's own.

Errors in a file are reported before anything runs: its name, its number, its head, its CQL with line, column and
caret, a statement that no migration may hold.
"""

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import pairwise
from pathlib import Path

from mailmend.cql.language.lexer import Token, TokenKind
from mailmend.cql.language.parser import parse
from mailmend.cql.migrate.spelling import tokens_between
from mailmend.cql.schema.migrations.migration import FileName, Migration, file_name, head_of, in_order, normalised
from mailmend.cql.statements import Parsed
from mailmend.model.errors import BadMigration
from mailmend.model.names import name_of

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
    pairs = list(pairwise(tokens_between(text, parsed)))
    if any(after.text == "?" or (after.text == ":" and not _ends_a_term(token)) for token, after in pairs):
        return _UNBOUND
    called = {_function(token) for token, after in pairs if after.text == "("}
    counts = any(after.text in ("+", "-") and _ends_a_term(token) for token, after in pairs)
    return _NOT_IDEMPOTENT if counts or called & _DIFFERENT_EACH_TIME else ""


def _function(token: Token) -> str:
    """The function's name without underscores: 5.0 knows `current_date` and `currentDate`."""
    named = token.kind in (TokenKind.WORD, TokenKind.QUOTED)
    return name_of(token.text).replace("_", "") if named else ""


def _ends_a_term(token: Token) -> bool:
    """Whether a sign after the token is binary: `count + 1`, not `= -1`."""
    return token.kind is not TokenKind.MARK or token.text in (")", "]", "}")
