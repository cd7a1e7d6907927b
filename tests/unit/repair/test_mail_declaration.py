"""The mail families in the form of a file: read and bound, they are the catalog's values."""

from dataclasses import fields, replace

import pytest

from mailmend.model.catalog.mail import FAMILIES, SCHEMA
from mailmend.model.catalog.mail_projections import MAIL, MAIL_TEXT
from mailmend.model.keyspace import Schema
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.projections.family import Family
from mailmend.repair.declared import declared_families
from mailmend.repair.ledger.declared_runs import changes_since, kept_declaration, kept_of
from tests.support.schemas import served


def without_readings() -> Schema:
    """The catalog's tables as a server tells them: no column has a reading of its null."""
    tables = []
    for table in SCHEMA.tables:
        columns = [replace(column, null_is=None) for column in table.columns]
        tables.append(table.with_columns(columns))
    return Schema(SCHEMA.types, tuple(tables))


def read() -> tuple[Family, ...]:
    return declared_families("mail", read_declaration(MAIL_TEXT, MAIL), without_readings())


@pytest.mark.parametrize("number", range(len(FAMILIES)), ids=["messages", "paths"])
def test_each_part_of_a_mail_family_is_what_the_file_says(number: int) -> None:
    found = read()[number]
    wanted = FAMILIES[number]
    parts = {part.name: (getattr(found, part.name), getattr(wanted, part.name)) for part in fields(Family)}
    columns = {}
    for part in fields(wanted.mirror):
        columns[part.name] = (getattr(found.mirror, part.name), getattr(wanted.mirror, part.name))

    assert type(found.mirror) is type(wanted.mirror)
    assert [name for name, (ours, theirs) in columns.items() if ours != theirs] == []
    assert [name for name, (ours, theirs) in parts.items() if ours != theirs] == []


def test_the_file_declares_the_mail_families_and_no_others() -> None:
    assert read() == FAMILIES


def test_a_run_of_the_file_keeps_what_it_declares() -> None:
    """A column of a user type is kept field by field, and is no change of its table."""
    declaration = read_declaration(MAIL_TEXT, MAIL)
    live = served(SCHEMA)
    kept = kept_of(declaration, declared_families("mail", declaration, live))

    assert kept_declaration(kept, "a run") == declaration
    assert changes_since(kept, live) == []
