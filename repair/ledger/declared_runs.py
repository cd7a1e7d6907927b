"""What a run of declared tables keeps in the ledger: the declaration, and the tables' columns.

An undo binds the copy of the run, whatever became of the file since. The columns tell what changed.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from mailmend.model.errors import WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.projections.declarations import Declaration
from mailmend.model.projections.family import Family
from mailmend.model.table import Kind, Table

DECLARATION: Final = "declaration"
"""The option of a run that holds its declaration."""

TABLES: Final = "tables"

MAILBOXES: Final = "mailboxes"
"""The option of a run that mended the rows of mailboxes."""

KEPT_CHARACTERS_MAX: Final = 2**16
"""Characters of a declaration that a run keeps."""


def kept_of(declaration: Declaration, families: Iterable[Family]) -> dict[str, Any]:
    """The options of a run that hold its declaration and the columns of its tables.

    Raises:
        WrongUse: the declaration is too large to be kept with a run.
    """
    text = declaration.text
    if len(text) > KEPT_CHARACTERS_MAX:
        kept = f"a run keeps at most {KEPT_CHARACTERS_MAX:,}"
        raise WrongUse(
            f"the declaration has {len(text):,} characters; {kept}",
            mend="Name one projection of it behind the options, or split the file.",
        )
    tables = {}
    for family in families:
        for table in family.tables:
            tables[table.spelling] = _form_of(table)
    return {DECLARATION: text, TABLES: tables}


def kept_declaration(options: Mapping[str, Any], run: object) -> Declaration | None:
    """The declaration of a run; None for a run of mail.

    Raises:
        BadDeclaration: the text is not one; another version may have kept it.
    """
    text = options.get(DECLARATION)
    if not text:
        return None
    return read_declaration(str(text), f"the declaration of run {run}")


def changes_since(options: Mapping[str, Any], live: Schema) -> list[str]:
    """What differs between the run's tables as they were and as they are, each in a few words."""
    changes: list[str] = []
    for name, form in options.get(TABLES, {}).items():
        view = live.view(name)
        table = live.table(name)
        if view is not None:
            table = view.table
        if table is None:
            changes.append(f"there is no table {name} any more")
        else:
            changes.extend(_differences(name, form, _form_of(table)))
    return changes


def _form_of(table: Table) -> dict[str, Any]:
    of_rows = [column for column in table.columns if column.kind is not Kind.STATIC]
    columns = {column.spelling: column.type for column in of_rows}
    return {"key": [column.spelling for column in table.key], "columns": columns}


def _differences(table: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    if was["key"] != now["key"]:
        yield f"the key of {table} was ({', '.join(was['key'])}), and is ({', '.join(now['key'])})"
    roots = {name.partition(".")[0] for name in was["columns"]}
    for name, type_ in was["columns"].items():
        root, _, field = name.partition(".")
        if root in now["columns"] and field:
            continue  # a field of a user type, which is not a column of its own
        if name not in now["columns"]:
            yield f"{table}.{name} was dropped"
        elif now["columns"][name] != type_:
            yield f"{table}.{name} was of type {type_}, and is of type {now['columns'][name]}"
    for name in now["columns"]:
        if name not in roots:
            yield f"{table}.{name} was added"
