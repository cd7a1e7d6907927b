"""A declaration, bound to a live schema."""

from dataclasses import replace
from uuid import uuid1

import pytest

from mailmend.model.keyspace import Schema, View
from mailmend.model.projections.declaration_file import read_declaration
from mailmend.model.projections.projection import Mirror
from mailmend.model.table import Column, Table, cells_agree, columns
from mailmend.repair.declared import DoesNotFit, declared_families, proposed_pair

USERS = Table("users", columns("user_id uuid", regular="email text, name text, tags set<text>"))
BY_EMAIL = Table("users_by_email", columns("email text", regular="user_id uuid, name text"))
BY_NAME = Table("users_by_name", columns("full_name text", "owner uuid", "email text, tags set<text>, note text"))
SHOP = Schema((), (USERS, BY_EMAIL, BY_NAME))


def mirror_of(text: str, live: Schema = SHOP) -> Mirror:
    (family,) = declared_families("shop", read_declaration(text, "shop.toml"), live)
    return family.mirror


def refused(text: str, live: Schema = SHOP) -> str:
    with pytest.raises(DoesNotFit) as caught:
        mirror_of(text, live)
    return str(caught.value)


def with_table(table: Table) -> Schema:
    others = tuple(other for other in SHOP.tables if other.name != table.name)
    return replace(SHOP, tables=(*others, table))


BY_EMAIL_TEXT = "[truth.users.mirror.users_by_email]\n"
BY_NAME_TEXT = '[truth.users.mirror.users_by_name]\nrenamed = { full_name = "name", owner = "user_id" }\n'


def test_a_mirror_has_the_key_of_its_table() -> None:
    assert mirror_of(BY_EMAIL_TEXT).key == (("email", "email"),)


def test_every_column_that_both_tables_have_is_compared() -> None:
    assert [column.name for column in mirror_of(BY_EMAIL_TEXT).compared] == ["user_id", "name"]


def test_a_column_of_another_name_is_compared_under_its_own() -> None:
    mirror = mirror_of(BY_NAME_TEXT)
    assert mirror.key == (("full_name", "name"), ("owner", "user_id"))
    assert [column.name for column in mirror.compared] == ["email", "tags"]


def test_null_and_the_empty_set_are_one() -> None:
    compared = {column.name: column for column in mirror_of(BY_NAME_TEXT).compared}
    assert cells_agree(compared["tags"], {"tags": None}, {"tags": frozenset()})


def test_what_is_left_out_is_neither_compared_nor_written_but_read() -> None:
    mirror = mirror_of(BY_EMAIL_TEXT + 'left_out = ["name"]')
    assert [column.name for column in mirror.compared] == ["user_id"]
    assert "name" not in dict(mirror.sources)
    assert "name" in mirror.table


def test_a_mirror_needs_columns_of_the_truth() -> None:
    mirror = mirror_of(BY_EMAIL_TEXT + 'needs = ["Name"]')

    assert mirror.needs == ("name",)
    assert not mirror.claims.says({"name": None})
    assert mirror_of(BY_EMAIL_TEXT + 'needs = ["name"]\nwhen = { name = "x" }').needs == ("name",)


def test_the_null_of_a_time_based_uuid_is_read_in_a_copy_of_uuids() -> None:
    """What is read is another column of the same row, under the copy's own name; the truth's cell is written."""
    null_is = '[truth.users]\nnull_is = { thread = { column = "message" } }\n'
    users = Table("users", columns("message timeuuid", regular="box text, thread timeuuid"))
    copy = Table("by_box", columns("box text", "id uuid", "thread_id uuid"))
    text = null_is + '[truth.users.mirror.by_box]\nrenamed = { id = "message", thread_id = "thread" }\n'
    mirror = mirror_of(text, Schema((), (users, copy)))
    message, thread = uuid1(), uuid1()
    shown = {"box": "a", "id": message}

    assert mirror.row_of({"box": "a", "message": message, "thread": None}) == {**shown, "thread_id": None}
    assert mirror.agree({"box": "a", "message": message, "thread": None}, {**shown, "thread_id": message})
    assert mirror.agree({"box": "a", "message": message, "thread": message}, {**shown, "thread_id": None})
    assert not mirror.agree({"box": "a", "message": message, "thread": thread}, {**shown, "thread_id": None})


@pytest.mark.parametrize(("own", "theirs", "fits"), [("uuid", "timeuuid", True), ("timeuuid", "uuid", False)])
def test_a_time_based_uuid_is_a_uuid(own: str, theirs: str, fits: bool) -> None:
    truth = Table("users", columns("user_id uuid", regular=f"email text, name text, tags set<text>, device {theirs}"))
    copy = Table("users_by_email", columns("email text", regular=f"user_id uuid, device {own}"))
    live = with_table(copy)
    live = replace(live, tables=(*[table for table in live.tables if table.name != "users"], truth))

    if fits:
        assert [column.name for column in mirror_of(BY_EMAIL_TEXT, live).compared] == ["user_id", "device"]
    else:
        assert "users_by_email.device is of type timeuuid, and users.device of type uuid" in refused(
            BY_EMAIL_TEXT, live
        )


def test_each_mirror_has_a_family() -> None:
    families = declared_families("shop", read_declaration(BY_EMAIL_TEXT + BY_NAME_TEXT, "shop.toml"), SHOP)
    assert [family.mirror.name for family in families] == ["users_by_email", "users_by_name"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[truth.user.mirror.users_by_email]", "there is no table user\n  Did you mean 'users'?"),
        ("[truth.users.mirror.users_by_mail]", "there is no table users_by_mail\n  Did you mean 'users_by_email'?"),
        (BY_EMAIL_TEXT + 'renamed = { nmae = "name" }', "users_by_email has no column nmae\n  Did you mean 'name'?"),
        (BY_EMAIL_TEXT + 'left_out = ["nmae"]', "users_by_email has no column nmae\n  Did you mean 'name'?"),
        (BY_EMAIL_TEXT + 'needs = ["nmae"]', "users has no column nmae\n  Did you mean 'name'?"),
        (BY_EMAIL_TEXT + 'needs = ["tags"]', "users.tags is static, or a collection of several cells"),
        (BY_EMAIL_TEXT + 'left_out = ["email"]', "email is in the key of users_by_email and cannot be left out"),
        ("[truth.users.mirror.users_by_name]", "no column of users gives the key column users_by_name.full_name"),
        ("[truth.users.mirror.users_by_name]", "Columns of users with the type text: email, name."),
        (BY_EMAIL_TEXT + 'renamed = { name = "user_id" }', "users_by_email.name is of type text, and users.user_id of"),
        (BY_EMAIL_TEXT + 'left_out = ["user_id"]', "no column of users_by_email holds users.user_id"),
    ],
)
def test_what_does_not_fit_is_named_with_what_to_write(text: str, said: str) -> None:
    assert said in refused(text)


def test_all_that_does_not_fit_is_named_at_once() -> None:
    said = refused('[truth.users.mirror.users_by_email]\nleft_out = ["a", "b"]\n[truth.x.mirror.y]')
    assert said.count("has no column") == 2
    assert said.count("there is no table") == 2


def test_a_table_of_counters_is_refused() -> None:
    counts = Table("users_by_email", columns("email text", regular="seen counter"))
    assert "the mirror users_by_email has counters" in refused(BY_EMAIL_TEXT, with_table(counts))


def test_a_static_column_is_refused() -> None:
    static = Table("users_by_email", columns("email text", "user_id uuid", static="name text"))
    said = refused(BY_EMAIL_TEXT, with_table(static))
    assert "users_by_email.name is static" in said
    assert 'left_out = ["name"]' in said


@pytest.mark.parametrize("static_column", ["name text", "name set<text>"])
def test_a_static_column_that_is_left_out_does_no_harm(static_column: str) -> None:
    static = Table("users_by_email", columns("email text", "user_id uuid", static=static_column))
    assert mirror_of(BY_EMAIL_TEXT + 'left_out = ["name"]', with_table(static)).compared == ()


def test_a_masked_column_is_refused() -> None:
    masked = BY_EMAIL.with_columns((*BY_EMAIL.key, Column("user_id", "uuid"), Column("name", "text", mask="null()")))
    assert "users_by_email.name is masked" in refused(BY_EMAIL_TEXT, with_table(masked))


def test_a_column_that_needs_quotes_is_refused() -> None:
    quoted = BY_EMAIL.with_columns((*BY_EMAIL.columns, Column('"Note"', "text")))
    assert 'the name of the column users_by_email."Note" needs double quotes' in refused(
        BY_EMAIL_TEXT, with_table(quoted)
    )


@pytest.mark.parametrize("name", ["users", "users_by_email"])
def test_a_materialised_view_is_refused(name: str) -> None:
    tables = tuple(table for table in SHOP.tables if table.name != name)
    view = View(Table(name, BY_EMAIL.columns), "other", "email IS NOT NULL")
    assert f"{name} is a materialised view" in refused(BY_EMAIL_TEXT, Schema((), tables, views=(view,)))


def test_a_proposed_pair_binds() -> None:
    (family,) = declared_families("shop", proposed_pair(SHOP, "users", "users_by_email"), SHOP)
    assert family.mirror == mirror_of(BY_EMAIL_TEXT)


def test_a_proposed_pair_leaves_out_what_only_the_projection_has() -> None:
    wider = BY_EMAIL.with_columns((*BY_EMAIL.columns, Column("note", "text")))
    declared = proposed_pair(with_table(wider), "users", "users_by_email")
    assert declared.text == '[truth.users.mirror.users_by_email]\nleft_out = ["note"]\n'


def test_a_proposed_pair_has_a_row_for_each_element_where_a_key_column_is_named_like_a_collection() -> None:
    by_tag = Table("users_by_tag", columns("tag text", "user_id uuid", "name text, since date"))
    live = with_table(by_tag)

    declared = proposed_pair(live, "users", "users_by_tag")

    lines = ['column = "tags"', 'element = "tag"', 'left_out = ["since"]']
    assert declared.text.splitlines() == ["[truth.users.explode.users_by_tag]", *lines]
    assert declared_families("shop", declared, live)[0].mirror.name == "users_by_tag"


def test_a_key_whose_equal_values_are_not_one_key_is_refused() -> None:
    """Cassandra tells 1.0 from 1.00 in a partition key, and Python does not."""
    truth = Table("users", columns("user_id uuid", regular="email decimal, name text"))
    priced = Table("users_by_email", columns("email decimal", regular="user_id uuid, name text"))
    live = with_table(priced)
    live = replace(live, tables=tuple(truth if table.name == "users" else table for table in live.tables))

    assert "users_by_email.email has the type decimal, and is part of a key" in refused(BY_EMAIL_TEXT, live)
