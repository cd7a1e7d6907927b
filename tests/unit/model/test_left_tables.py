"""The denormalised tables that a check leaves out: those that the keyspace has, and that no other check covers."""

import re
from pathlib import Path

import pytest

from mailmend.model.catalog.left_tables import (
    LEFT_TABLES,
    SEARCH_INDEX_ROUTE,
    LeftTable,
    left_tables,
    unfilled_tables,
    unwritten_tables,
)
from mailmend.model.catalog.mail import FAMILIES, MESSAGES
from mailmend.model.names import name_of
from mailmend.repair.store.message_store import MessageStore

PAGE = Path("docs/how-to/check-and-repair-a-cluster.md").read_text(encoding="utf-8")


def names_left(live: set[str], *looked_at: str) -> list[str]:
    return [left.table for left in left_tables(live, looked_at)]


def test_only_tables_of_the_keyspace_are_named() -> None:
    assert names_left({"usermailboxacl", "users_by_email"}, "messages") == ["UserMailboxACL"]
    assert names_left(set(), "messages") == []


@pytest.mark.parametrize(("table", "word"), [("mailbox", "all"), ("browsestart", "queues"), ("blobs", "blobs")])
def test_a_table_that_another_check_covers_is_named_until_that_check_was_made(table: str, word: str) -> None:
    (left,) = left_tables({table}, {"messages"})

    assert left.why == f"`mailmend check {word}` looks at it."
    assert names_left({table}, "messages", word) == []


def test_each_table_is_named_once_and_none_is_a_projection_of_messages() -> None:
    names = [name_of(left.table) for left in LEFT_TABLES]
    projected = {projection.table.name for projection in MESSAGES.projections}

    assert len(names) == len(set(names))
    assert projected.isdisjoint(names)


def test_a_projection_that_only_a_whole_check_compares_is_named_with_that_check() -> None:
    others = {family.mirror.table.name for family in FAMILIES if family is not MESSAGES}

    assert others == {name_of(left.table) for left in LEFT_TABLES if left.check == "all"}


@pytest.mark.parametrize(
    ("left", "why"),
    [
        (LeftTable("t", "u", check="all"), "`mailmend check all` looks at it."),
        (LeftTable("t", "u", "fix", "queues"), "`mailmend check queues` looks at it."),
        (LeftTable("t", "u", "fix"), "mailmend has no rule for it; James's task fix makes it true again."),
        (LeftTable("t", "u"), "mailmend has no rule for it, and James has no task for it."),
    ],
)
def test_a_table_is_left_for_one_of_three_reasons(left: LeftTable, why: str) -> None:
    assert left.why == why


LISTED = re.findall(
    r"^\| `(\w+)` \| (.+) \| (?:`mailmend check (.+?)`)?(?:; )?(?:James's task (\w+)|neither)? \|$", PAGE, re.MULTILINE
)


def test_the_page_of_checks_lists_each_of_them() -> None:
    assert [(left.table, left.truth, left.check, left.task) for left in LEFT_TABLES] == LISTED


def test_a_table_that_james_does_not_fill_is_named_with_the_request_that_does() -> None:
    (left,) = unfilled_tables({"email_query_view_received_at"})

    assert (left.table, left.check) == ("email_query_view_received_at", "")
    assert "It has no row" in left.why
    assert "`POST /mailboxes?task=populateEmailQueryView`" in left.why
    assert unfilled_tables(()) == ()


def test_tables_of_a_mail_are_named_where_the_keyspace_has_them() -> None:
    live = {"email_query_view_received_at", "thread_2", "usermailboxacl", "blobs"}

    assert [left.table for left in unwritten_tables(live)] == ["thread_2", "email_query_view_received_at"]


@pytest.mark.parametrize("left", [left for left in LEFT_TABLES if left.task], ids=lambda left: str(left.table))
def test_each_task_of_james_has_the_request_that_starts_it(left: LeftTable) -> None:
    assert left.task.split()[0] in left.route
    assert left.filled == f"James fills it by {left.route}."


def test_a_table_without_a_task_has_mails_of_james_only() -> None:
    (thread,) = unwritten_tables({"thread_2"})

    assert (thread.route, thread.filled) == ("", "James fills it only with mails that James stores.")


@pytest.mark.parametrize("text", [MessageStore.__doc__, PAGE], ids=["MessageStore", "page"])
def test_what_a_load_leaves_is_written_where_a_person_reads_of_it(text: str) -> None:
    for left in LEFT_TABLES:
        if left.of_mail:
            assert f"`{left.table}`" in text
            assert left.route in text
    assert SEARCH_INDEX_ROUTE in text
