"""What a check of declared tables cannot see."""

import pytest

from mailmend.model.keyspace import Schema, View
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.table import Table, columns
from mailmend.repair.declared import declared_families
from mailmend.repair.unseen import unseen_by

USERS = Table("users", columns("user_id uuid", "at int", "email text, roles set<text>", static="plan text"))
BY_EMAIL = Table("by_email", columns("email text", regular="user_id uuid, note text, size int"))
VIEW = View(Table("a_view", columns("email text")), "users", "")
BY_ROLE = Table("by_role", columns("role text", "user_id uuid, at int"))
LIVE = Schema((), (USERS, BY_EMAIL, BY_ROLE, Table("logins", columns("day date"))), views=(VIEW,))
TEXT = '[truth.users.mirror.by_email]\nleft_out = ["note"]'


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("by_email", "note is not compared: the file leaves it out"),
        ("by_email", "size is not compared: no column of users gives it"),
        ("by_email", "a row of users without email has no row there"),
        ("users", "plan is a static column"),
        ("logins", "the file does not declare it"),
        ("a_view", "the file does not declare it"),
    ],
)
def test_what_is_not_looked_at_is_named(table: str, why: str) -> None:
    families = declared_families("shop", read_declaration(TEXT, "shop.toml"), LIVE)
    assert (table, why) in unseen_by(families, LIVE)


def test_rows_that_claim_one_place_are_named() -> None:
    families = declared_families("shop", read_declaration(TEXT, "shop.toml"), LIVE)
    whys = [why for _, why in unseen_by(families, LIVE)]
    assert any("which is right (CLASH)" in why for why in whys)


@pytest.mark.parametrize(
    "why",
    [
        "of two rows of users with the same email that differ in other cells, which is right (CLASH)",
        "what its row is where the row of users has no email",
    ],
)
def test_what_claims_of_one_row_leave_open_is_named(why: str) -> None:
    text = f'{TEXT}\nneeds = ["email"]'
    families = declared_families("shop", read_declaration(text, "shop.toml"), LIVE)

    whys = [why for table, why in unseen_by(families, LIVE) if table == "by_email"]

    assert why in whys
    assert "a row of users without email has no row there" not in whys


def test_what_expires_before_its_row_is_named() -> None:
    text = '[truth.users.explode.by_role]\ncolumn = "roles"\nelement = "role"\nwhen = { email = "a" }'
    families = declared_families("shop", read_declaration(text, "shop.toml"), LIVE)

    whys = [why for table, why in unseen_by(families, LIVE) if table == "by_role"]

    assert whys[-3:] == [
        "a value of email that expires before its row: a later check finds what is left",
        "an element of roles that expires before its row: a later check finds what is left",
        "a row of users without roles has no row there",
    ]
