"""Contents of declared tables as a person types it: reported, planned, removed, put back."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mailmend.model.operations import Put, Scan
from mailmend.model.table import Row, Table
from tests.support.cluster_twin import ClusterTwin, NamedTables
from tests.support.commands import QUICK, CommandLine, Ended, command_line
from tests.support.declared_contents import (
    DECLARED,
    FOLLOWERS,
    LIVE,
    PROFILES,
    USERS,
    Age,
    Meanwhile,
    UserStory,
)
from tests.support.schema_twin import ONE_COPY

ON = ("--keyspace", "shop")
AT_ONCE = (*QUICK, "--no-writers")
ASKED = ("--orphans", "quarantine", "--leaks", "collect")
LOST = UserStory(1, Age.NONE, Age.OLD, Age.NONE, lead=True, meanwhile=Meanwhile.NOTHING)
LEAKED = UserStory(2, Age.NONE, Age.NONE, Age.OLD, lead=False, meanwhile=Meanwhile.NOTHING)
SOUND = UserStory(3, Age.NONE, Age.OLD, Age.OLD, lead=True, meanwhile=Meanwhile.NOTHING)
BOTH = {"LOST_CONTENT": 1, "LEAK": 1}


@dataclass(frozen=True, slots=True)
class ProfileShop:
    """The keyspace, a file that declares its tables, and a shell in front of it."""

    tables: NamedTables
    shell: CommandLine
    file: Path

    def mailmend(self, command: str, *words: str) -> Ended:
        return self.shell(command, "--projections", str(self.file), *ON, *AT_ONCE, *words)

    def rows(self) -> dict[str, list[Row]]:
        found = {}
        for table in (USERS, PROFILES, *FOLLOWERS):
            found[table.name] = sorted(self.tables.scan(Scan(table, table.names)), key=str)
        return found

    def users(self) -> list[Any]:
        return [row["email"] for row in self.rows()["users"]]

    def profiles(self) -> list[Any]:
        return [row["body"] for row in self.rows()["profiles"]]


@pytest.fixture
def shop(cluster: ClusterTwin, tmp_path: Path) -> ProfileShop:
    """A user without a profile, a profile without a user, and a user with one; all of two days ago."""
    cluster.keyspaces["shop"] = LIVE
    cluster.replications["shop"] = ONE_COPY
    tables = cluster.keyspace("shop")

    def put(table: Table, row: Row) -> None:
        tables.write(Put(table, row, at=Age.OLD.at))

    for story in (LOST, SOUND):
        put(USERS, story.row)
        for table, row in story.followers:
            put(table, row)
    for story in (LEAKED, SOUND):
        put(PROFILES, story.profile)
    cluster.clock.advance(1)
    file = tmp_path / "shop.toml"
    file.write_text(DECLARED)
    return ProfileShop(tables, command_line(tmp_path, None, MAILMEND_HOST="127.0.0.1"), file)


def test_a_repair_without_the_options_leaves_both_and_names_them(shop: ProfileShop) -> None:
    before = shop.rows()

    ended = shop.mailmend("repair", "--json")

    assert (ended.code, ended.json["fixed"], shop.rows()) == (1, {}, before)
    assert ended.json["reasons"] == {
        "LOST_CONTENT": {"needs --orphans quarantine, or its content back": 1},
        "LEAK": {"needs --leaks collect": 1},
    }


def test_a_dry_run_says_what_is_due_and_writes_nothing(shop: ProfileShop) -> None:
    before = shop.rows()

    ended = shop.mailmend("repair", *ASKED, "--dry-run", "--json")

    assert (ended.code, ended.json["due"], shop.rows()) == (1, BOTH, before)


def test_both_are_removed_and_an_undo_puts_them_back(shop: ProfileShop) -> None:
    before = shop.rows()

    ended = shop.mailmend("repair", *ASKED, "--json")

    assert (ended.code, ended.json["fixed"]) == (0, BOTH)
    assert (shop.users(), shop.profiles()) == (["lead3"], ["profile 3"])
    assert shop.mailmend("check", "--json").json["findings"] == {}

    undone = shop.shell("undo", ended.json["run"], *ON, "--no-writers", "--json")

    assert undone.code == 0, undone.err
    assert shop.rows() == before


def test_a_plan_is_applied_without_its_file(shop: ProfileShop, tmp_path: Path) -> None:
    plan = str(tmp_path / "plan.jsonl")
    before = shop.rows()
    planned = shop.mailmend("repair", *ASKED, "--plan", plan, "--json")
    assert (planned.json["due"], shop.rows()) == (BOTH, before)
    shop.file.unlink()

    applied = shop.shell("apply", plan, *ON, "--no-writers", "--json")

    assert (applied.code, applied.json["fixed"]) == (0, BOTH)


def test_a_plan_leaves_a_row_that_was_changed_since(shop: ProfileShop, tmp_path: Path) -> None:
    plan = str(tmp_path / "plan.jsonl")
    shop.mailmend("repair", *ASKED, "--plan", plan)
    shop.tables.write(Put(USERS, {**LOST.row, "team": "blue"}, at=Age.OLD.at + 1))

    applied = shop.shell("apply", plan, *ON, "--no-writers", "--json")

    assert applied.json["fixed"] == {"LEAK": 1}
    assert "lead1" in shop.users()


def test_one_table_of_contents_is_collected_by_its_name(shop: ProfileShop) -> None:
    ended = shop.mailmend("repair", "profiles", "--leaks", "collect", "--json")

    assert (ended.json["fixed"], shop.profiles()) == ({"LEAK": 1}, ["profile 3"])
    assert "lead1" in shop.users()


@pytest.mark.parametrize(
    ("place", "fixed"),
    [
        (f"profiles:user_id={LEAKED.id}", {"LEAK": 1}),
        (f"users:user_id={LOST.id}", {"LOST_CONTENT": 1}),
        (f"users_by_email:email=lead1,user_id={LOST.id}", {"LOST_CONTENT": 1}),
        (f"profiles:user_id={SOUND.id}", {}),
    ],
)
def test_a_single_row_is_mended_by_its_key(shop: ProfileShop, place: str, fixed: dict[str, int]) -> None:
    words = ("repair", "--projections", str(shop.file), *ON, "--no-writers", "--delay", "0", *ASKED)

    ended = shop.shell(*words, "--key", place, "--json")

    assert ended.json["fixed"] == fixed


def test_the_options_are_named_next_to_what_they_would_remove(shop: ProfileShop, tmp_path: Path) -> None:
    report = tmp_path / "report.html"

    shop.mailmend("repair", "--dry-run", "--report", str(report))

    text = report.read_text()
    assert "--only LOST_CONTENT --orphans quarantine --dry-run" in text
    assert "--only LEAK --leaks collect --dry-run" in text


def test_more_removals_than_are_allowed_stop_a_repair(shop: ProfileShop) -> None:
    """A random key tells no age before the second look, so all of them count."""
    before = shop.rows()

    ended = shop.mailmend("repair", *ASKED, "--max-fixes", "1")

    assert (ended.code, shop.rows()) == (1, before)


def test_collecting_is_refused_where_copies_without_truth_are_kept(shop: ProfileShop) -> None:
    ended = shop.mailmend("repair", "--leaks", "collect", "--dangling", "report")

    assert ended.code == 2
    assert "last trace" in " ".join(ended.err.split())
