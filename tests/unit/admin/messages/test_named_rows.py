"""Rows of declared tables as `--key` names them."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from mailmend.admin.messages.named_rows import named_rows
from mailmend.model.errors import WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.table import Table, columns
from mailmend.repair.declared import declared_families
from mailmend.repair.scanners.keyed import NamedRows

USERS = Table("users", columns("id uuid", regular="email text, at timestamp, open boolean, size int"))
BY_EMAIL = Table("by_email", columns("email text", "id uuid"))
BY_DAY = Table("by_day", columns("at timestamp, open boolean", "size int, id uuid"))
DECLARED = "[truth.users.mirror.by_email]\n[truth.users.mirror.by_day]\n"
FAMILIES = declared_families("shop", read_declaration(DECLARED), Schema((), (USERS, BY_EMAIL, BY_DAY)))
ANN = UUID(int=1)
NOON = datetime(2026, 5, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "table", "key"),
    [
        (f"users:id={ANN}", "users", (ANN,)),
        ("by_email:email=ann@x", "by_email", ("ann@x",)),
        (f"BY_EMAIL: email = ann@x , id={ANN}", "by_email", ("ann@x", ANN)),
        ('by_email:email="a, ""b"" = c"', "by_email", ('a, "b" = c',)),
        ("by_email:email=", "by_email", ("",)),
        ("by_day:open=true,at=2026-05-31T12:00:00Z", "by_day", (NOON, True)),
        ("by_day:at=2026-05-31T12:00:00Z,open=false,size=3", "by_day", (NOON, False, 3)),
    ],
)
def test_a_text_names_the_beginning_of_a_key(text: str, table: str, key: tuple[Any, ...]) -> None:
    assert named_rows(text, FAMILIES) == NamedRows(table, key)


@pytest.mark.parametrize(
    ("text", "what", "mend"),
    [
        ("user:id=1", "names no declared table", "Did you mean 'users'?"),
        ("users", "is not the beginning of a key", "--key needs id at least"),
        ("nothing", "names no declared table", "Write it like: --key users:id=VALUE"),
        ("by_email:id=1", "is not the beginning of a key", "The whole key of by_email is email, id."),
        (f"users:id={ANN},size=3", "is not the beginning of a key", "The whole key of users is id."),
        ("by_day:at=2026-05-31T12:00:00Z", "is not the beginning of a key", "--key needs at, open at least."),
        ("users:id", "cannot be read", "Write it like: --key users:id=VALUE"),
        ("users:id=1,id=2", "cannot be read", "--key users:id=VALUE"),
        ("users:id=1", "'1' is not a value of id", "Write a value of type uuid."),
        ("by_day:at=noon,open=true", "'noon' is not a value of at", "type timestamp"),
        ("by_day:at=2026-05-31T12:00:00Z,open=yes", "'yes' is not a value of open", "type boolean"),
    ],
)
def test_other_texts_are_refused_with_a_form(text: str, what: str, mend: str) -> None:
    with pytest.raises(WrongUse) as caught:
        named_rows(text, FAMILIES)

    assert what in caught.value.what
    assert mend in caught.value.mend
