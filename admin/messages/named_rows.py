"""Rows of declared tables as `--key` names them: `users_by_email:email=ann@example.org`."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mailmend.cql.rows import decode
from mailmend.model.cql_types import normal_type
from mailmend.model.errors import WrongUse
from mailmend.model.names import name_of
from mailmend.model.projections.family import Family
from mailmend.model.table import Column, Key, Table, spellings
from mailmend.model.texts import names_instead
from mailmend.repair.comparable import TEXTS
from mailmend.repair.scanners.keyed import NamedRows

_CELL: Final = re.compile(r'\s*(\w+)\s*=\s*(?:"((?:[^"]|"")*)"|([^,]*?))\s*(?:,|$)')
_TRUE_AND_FALSE: Final = {"true": True, "false": False}


def named_rows(text: str, families: Iterable[Family]) -> NamedRows:
    """The rows that a text names by a key: of a truth, or of a table that follows from it.

    Raises:
        WrongUse: no declared table has the name, or it is not the beginning of a key.
    """
    tables: dict[str, Table] = {}
    for family in families:
        for table in family.tables:
            tables.setdefault(table.name, table)
    spelling, colon, rest = text.partition(":")
    table_found = tables.get(name_of(spelling.strip()))
    if table_found is None:
        mend = _form_of(tables.values())
        if colon:
            mend = names_instead(spelling.strip(), [table.spelling for table in tables.values()])
        raise WrongUse(f"--key names no declared table: {text!r}", mend=mend)
    return NamedRows(table_found.name, _key_of(table_found, rest, text))


def _form_of(tables: Iterable[Table]) -> str:
    table = next(iter(tables))
    cells = ",".join(f"{column.spelling}=VALUE" for column in table.partition)
    return f"Write it like: --key {table.spelling}:{cells}"


def _key_of(table: Table, cells: str, text: str) -> Key:
    given = _cells_of(table, cells, text)
    key: list[Any] = []
    for column in table.key:
        if column.name not in given:
            break
        key.append(_value_of(column, given.pop(column.name), text))
    if given or len(key) < len(table.partition):
        needed = spellings(table.partition)
        whole = spellings(table.key)
        mend = f"--key needs {needed} at least. The whole key of {table.spelling} is {whole}."
        raise WrongUse(f"--key {text!r} is not the beginning of a key", mend=mend)
    return tuple(key)


def _cells_of(table: Table, cells: str, text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while at < len(cells):
        cell = _CELL.match(cells, at)
        if cell is None or name_of(cell[1]) in found:
            raise WrongUse(f"--key {text!r} cannot be read", mend=_form_of([table]))
        quoted = cell[2]
        if quoted is None:
            found[name_of(cell[1])] = cell[3]
        else:
            found[name_of(cell[1])] = quoted.replace('""', '"')
        at = cell.end()
    return found


def _value_of(column: Column, value: str, text: str) -> Any:
    kind = normal_type(column.type)
    if kind in TEXTS:
        return value
    plain: Mapping[str, Any] = {}
    if kind == "boolean":
        plain = _TRUE_AND_FALSE
    try:
        return decode(kind, plain.get(value, value))
    except ValueError as error:
        problem = f"--key {text!r}: {value!r} is not a value of {column.spelling}"
        raise WrongUse(problem, mend=f"Write a value of type {kind}.") from error
