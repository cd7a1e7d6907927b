"""Tables that a person declares: checked, repaired and undone in a keyspace that has no mail."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from mailmend.model.keyspace import Schema
from mailmend.model.operations import Put, Remove, Scan
from mailmend.model.table import Column, Kind, Row, Table, columns
from tests.support.cluster_twin import ClusterTwin, NamedTables
from tests.support.commands import QUICK, CommandLine, Ended, command_line
from tests.support.schema_twin import ONE_COPY

USERS = Table("users", columns("user_id uuid", regular="email text, name text"))
BY_EMAIL = Table("users_by_email", columns("email text", regular="user_id uuid, name text"))
DECLARED = "[truth.users.mirror.users_by_email]\n"
OTHERS = "[truth.others.mirror.files]\n"
AT_ONCE = (*QUICK, "--no-writers")
ON = ("--keyspace", "shop")
PAIR = ("check", "users", "users_by_email", *ON, *AT_ONCE)
DAMAGE = {"PROJECT": 1, "AMEND": 1, "WITHDRAW": 1}


def user(number: int, **changed: Any) -> Row:
    row = {"user_id": UUID(int=number), "email": f"u{number}@shop", "name": f"name {number}"}
    return row | changed


@dataclass(frozen=True, slots=True)
class Shop:
    """The keyspace, a file that declares its tables, and a shell in front of it."""

    cluster: ClusterTwin
    tables: NamedTables
    shell: CommandLine
    file: Path

    def rows(self, table: Table = BY_EMAIL) -> list[Row]:
        rows = self.tables.scan(Scan(table, BY_EMAIL.names))
        return sorted(rows, key=lambda row: str(row["email"]))

    def check(self, *words: str) -> Ended:
        return self.shell("check", *words, "--projections", str(self.file), *ON, *AT_ONCE)

    def repair(self, *words: str) -> Ended:
        return self.shell("repair", "--projections", str(self.file), *ON, *AT_ONCE, *words)

    def look(self, *words: str) -> Ended:
        """A repair of single rows, which takes no engine."""
        return self.shell("repair", "--projections", str(self.file), *ON, "--no-writers", "--delay", "0s", *words)

    def undo(self, run: str) -> Ended:
        return self.shell("undo", run, *ON, "--json")

    def mended(self) -> str:
        """The run that mended the copy."""
        run: str = self.repair("--json").json["run"]
        return run

    def altered(self, *tables: Table) -> None:
        self.cluster.keyspaces["shop"] = Schema((), tables)


@pytest.fixture
def shop(cluster: ClusterTwin, tmp_path: Path) -> Shop:
    """Six users and their copies; one copy is missing, one differs, and one has no user."""
    cluster.keyspaces["shop"] = Schema((), (USERS, BY_EMAIL))
    cluster.replications["shop"] = ONE_COPY
    tables = cluster.keyspace("shop")
    for number in range(1, 7):
        tables.write(Put(USERS, user(number)))
        tables.write(Put(BY_EMAIL, user(number)))
    tables.write(Remove(BY_EMAIL, ("u1@shop",)))
    tables.write(Put(BY_EMAIL, user(2, name="another")))
    tables.write(Put(BY_EMAIL, user(9)))
    cluster.clock.advance(1)
    file = tmp_path / "shop.toml"
    file.write_text(DECLARED)
    return Shop(cluster, tables, command_line(tmp_path, None, MAILMEND_HOST="127.0.0.1"), file)


def test_two_names_are_enough_for_a_check(shop: Shop) -> None:
    ended = shop.shell(*PAIR, "--json")
    assert (ended.code, ended.json["findings"]) == (1, {"users_by_email": DAMAGE})


def test_a_file_says_what_is_checked(shop: Shop) -> None:
    ended = shop.check("--json")
    assert (ended.code, ended.json["findings"]) == (1, {"users_by_email": DAMAGE})


def test_only_the_named_projection_is_looked_at(shop: Shop) -> None:
    shop.file.write_text(f"{DECLARED}\n{OTHERS}")
    ended = shop.check("users_by_email", "--json")
    assert (ended.code, ended.json["findings"]) == (1, {"users_by_email": DAMAGE})


def test_a_repair_leaves_nothing_to_find(shop: Shop) -> None:
    ended = shop.repair("--json")
    assert (ended.code, ended.json["fixed"]) == (0, DAMAGE)
    assert shop.rows() == shop.rows(USERS)
    assert shop.check().code == 0


def test_a_dry_run_writes_nothing(shop: Shop) -> None:
    before = shop.rows()
    ended = shop.repair("--dry-run", "--json")
    assert (ended.code, ended.json["due"], shop.rows()) == (1, DAMAGE, before)


def test_a_repair_of_some_verdicts_leaves_the_others(shop: Shop) -> None:
    ended = shop.repair("--only", "PROJECT", "--json")
    assert (ended.code, ended.json["fixed"]) == (1, {"PROJECT": 1})


def test_more_fixes_than_are_allowed_stop_a_repair(shop: Shop) -> None:
    before = shop.rows()
    ended = shop.repair("--max-fixes", "2")
    assert (ended.code, shop.rows()) == (1, before)


NOBODY = f"users:user_id={UUID(int=99)}"


@pytest.mark.parametrize("key", ["users_by_email:email=u99@shop", NOBODY])
def test_a_key_of_no_row_is_refused_with_what_was_looked_up(shop: Shop, key: str) -> None:
    ended = shop.look("--key", key, "--dry-run")

    assert ended.code == 2
    assert f"neither a truth nor a projection has a row of --key {key}" in ended.err
    assert f"Looked up: {key}." in ended.err


def test_one_mistyped_key_of_several_stops_the_repair(shop: Shop) -> None:
    before = shop.rows()

    ended = shop.look("--key", "users_by_email:email=u9@shop", "--key", NOBODY)

    assert (ended.code, shop.rows()) == (2, before)
    assert "u9@shop" not in ended.err


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("users_by_email:email=u9@shop", {"WITHDRAW": 1}),
        (f"users:user_id={UUID(int=1)}", {"PROJECT": 1}),
        ("users_by_email:email=u6@shop", {}),
    ],
)
def test_a_key_of_a_row_on_one_side_is_looked_at(shop: Shop, key: str, found: Mapping[str, int]) -> None:
    ended = shop.look("--key", key, "--json")

    assert (ended.code, ended.json["fixed"]) == (0, found)


COUNTS = Table("users_by_name", columns("name text", regular="total counter"))
NAMED = Table("users_named", columns("name text", "user_id uuid", regular="email text"))
COUNTED = "[truth.users.mirror.users_named]\n\n[truth.users.count.users_by_name]\ncounters = { total = {} }\n"


def test_a_counter_that_waits_names_the_key_of_its_group(shop: Shop) -> None:
    shop.altered(USERS, NAMED, COUNTS)
    shop.file.write_text(COUNTED)

    ended = shop.repair("--dry-run")
    json = shop.repair("--dry-run", "--json").json

    assert "rows with the same name differ: counters are mended once they agree" in " ".join(ended.out.split())
    assert "mailbox" not in ended.out
    assert "rows of its group differ: counters are mended once they agree" in json["reasons"]["PROJECT"]


def test_an_undo_goes_by_the_declaration_of_the_run(shop: Shop) -> None:
    before = shop.rows()
    run = shop.mended()
    shop.file.write_text(OTHERS)

    undone = shop.undo(run)

    assert (undone.code, shop.rows()) == (0, before)


def test_an_undo_can_be_undone(shop: Shop) -> None:
    run = shop.mended()
    after = shop.rows()
    undo = shop.undo(run).json["run"]

    redone = shop.undo(undo)

    assert (redone.code, shop.rows()) == (0, after)


def test_an_undo_says_what_changed_in_the_tables(shop: Shop) -> None:
    run = shop.mended()
    phone = Column("phone", "text", Kind.REGULAR)
    shop.altered(USERS, BY_EMAIL.with_columns((*BY_EMAIL.columns, phone)))

    undone = shop.undo(run)

    assert "users_by_email.phone was added" in undone.json["unseen"]


def test_an_undo_is_refused_where_a_table_is_gone(shop: Shop) -> None:
    run = shop.mended()
    shop.altered(USERS)

    undone = shop.undo(run)

    assert undone.code == 2
    assert "there is no table users_by_email any more" in undone.err


def test_a_plan_is_applied_without_its_file(shop: Shop, tmp_path: Path) -> None:
    plan = str(tmp_path / "plan.jsonl")
    assert shop.repair("--plan", plan).code == 1
    shop.file.unlink()

    applied = shop.shell("apply", plan, *ON, "--no-writers", "--json")

    assert (applied.code, applied.json["fixed"]) == (0, DAMAGE)
    assert shop.undo(applied.json["run"]).code == 0


BROKEN: Sequence[Mapping[str, Any]] = (
    {},
    {"declaration": 7},
    {"declaration": DECLARED, "tables": {"users": {}}},
)


@pytest.mark.parametrize("declared", BROKEN)
def test_a_plan_needs_a_whole_declaration(
    shop: Shop,
    tmp_path: Path,
    declared: Mapping[str, Any],
) -> None:
    file = tmp_path / "plan.jsonl"
    shop.repair("--plan", str(file))
    head, *lines = file.read_text().splitlines()[:-1]
    changed = json.dumps({**json.loads(head), "declared": declared})
    text = "".join(f"{line}\n" for line in (changed, *lines))
    seal = sha256(text.encode()).hexdigest()
    file.write_text(text + json.dumps({"seal": seal}) + "\n")

    refused = shop.shell("apply", str(file), *ON)

    assert (refused.code, "is not of a plan" in refused.err) == (2, True)


def test_a_run_shows_its_declaration_and_both_rows(shop: Shop) -> None:
    shown = shop.shell("runs", "show", shop.mended(), *ON)

    assert shown.code == 0
    for part in (DECLARED.strip(), "Rows of users_by_email", "another"):
        assert part in shown.out
    assert "mailbox" not in shown.out


def test_a_run_is_shown_where_its_tables_are_gone(shop: Shop) -> None:
    run = shop.mended()
    shop.altered(USERS)

    shown = shop.shell("runs", "show", run, *ON)

    assert shown.code == 0
    assert "there is no table users_by_email any more" in shown.err


def test_the_next_command_names_the_file(shop: Shop) -> None:
    ended = shop.check()
    assert f"Next: mailmend repair --projections {shop.file} --keyspace shop" in ended.out


def test_a_check_of_a_pair_ends_with_the_file_that_mends_it(shop: Shop) -> None:
    ended = shop.shell(*PAIR)
    assert f"    {DECLARED}Next: mailmend repair --projections projections.toml" in ended.out


def test_keys_of_findings_have_the_names_of_their_columns(shop: Shop) -> None:
    ended = shop.check("--findings", "-")
    keys = [json.loads(line)["key"] for line in ended.out.splitlines()]
    assert {"email": "u1@shop"} in keys


def test_a_report_shows_both_rows(shop: Shop, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    shop.check("--report", str(report))
    text = report.read_text()
    assert "Rows of users_by_email" in text
    assert "another" in text


def test_two_users_with_one_address_are_reported(shop: Shop) -> None:
    shop.tables.write(Put(USERS, user(8, email="u6@shop")))
    shop.cluster.clock.advance(1)
    ended = shop.repair("--json")
    assert (ended.code, ended.json["left"]) == (1, {"CLASH": 1})


def test_a_row_that_lacks_a_required_column_is_left_until_it_is_accepted(
    shop: Shop,
    tmp_path: Path,
) -> None:
    shop.file.write_text(f'{DECLARED}required = ["name"]\n')
    shop.tables.write(Put(USERS, user(7, name=None)))
    shop.cluster.clock.advance(1)

    found = shop.check("--json")
    report = tmp_path / "report.html"
    shop.check("--report", str(report))
    left = shop.repair("--json")
    accepted = shop.check("--torn", "accept", "--json")
    mended = shop.repair("--torn", "accept", "--json")

    assert found.json["findings"] == {"users_by_email": {**DAMAGE, "TORN": 1}}
    assert "--torn accept --dry-run" in report.read_text()
    assert (left.code, left.json["left"]) == (1, {"TORN": 1})
    assert (accepted.code, accepted.json["findings"]) == (1, {"users_by_email": {"PROJECT": 1}})
    assert (mended.code, shop.rows()) == (0, shop.rows(USERS))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("messages", "users_by_email"), "mailmend check '\"messages\"' users_by_email"),
        (("user", "users_by_email"), "there is no table user"),
        (("users",), "mailmend check TRUTH PROJECTION"),
        (("messages", "--projections", "FILE"), "in double quotes"),
        (("nothing", "--projections", "FILE"), "declares no nothing"),
        (("users", "users_by_email", "--torn", "accept"), "--torn has no effect"),
    ],
)
def test_what_cannot_be_looked_at_is_named(shop: Shop, words: Sequence[str], why: str) -> None:
    typed = [word.replace("FILE", str(shop.file)) for word in words]
    ended = shop.shell("check", *typed, *ON)
    assert ended.code == 2
    assert why in ended.err


def test_a_table_that_has_the_name_of_a_word_is_quoted(shop: Shop) -> None:
    shop.altered(Table("messages", USERS.columns), BY_EMAIL)
    ended = shop.shell("check", '"messages"', "users_by_email", *ON, *AT_ONCE, "--json")
    assert ended.json["scanned"] == {"messages": 0, "users_by_email": 6}


def test_a_job_mends_declared_tables(shop: Shop, tmp_path: Path) -> None:
    repair = f"repair tables --projections {shop.file} {' '.join(AT_ONCE)}"
    config = tmp_path / "config.toml"
    config.write_text(f'[jobs.shop]\ncommand = "{repair}"\nschedule = "30 2 * * *"\n')

    ended = shop.shell("--config", str(config), "jobs", "run", "shop", *ON)

    assert ended.code == 0, ended.err
    assert shop.rows() == shop.rows(USERS)


def test_metrics_name_declared_tables(shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / "shop.prom"

    shop.check("--metrics-file", str(file))

    drift = [line for line in file.read_text().splitlines() if "users_by_email" in line]
    assert any('verdict="PROJECT"' in line for line in drift), drift
