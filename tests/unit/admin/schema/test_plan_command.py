"""`mailmend schema plan`: what is shown of what would run, to people and scripts; what it costs to ask; exit codes."""

from pathlib import Path

import pytest

from mailmend.cql.schema.generations import AUGUST_2026
from mailmend.model.catalog.mail import SCHEMA
from tests.support.commands import CommandLine
from tests.support.migrating import SHOP
from tests.support.migration_cluster import MigrationCluster
from tests.support.schema_twin import ONE_COPY
from tests.support.schemas import served, without_tables

ORDERS, LABELS, TOTALS, PLACES = SHOP
NEW = ("--replication-factor", "1")


def code_of(out: str) -> str:
    return "\n".join(line for line in out.splitlines() if line and not line.startswith("--"))


def test_a_plan_is_one_object_for_scripts(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    """Every field, of a keyspace that is not there yet; the statements stand in the order of their sending."""
    planned = mailmend("schema", "plan", *shop, *NEW, "--to", "1", "--json")
    document = planned.json
    assert list(document) == [
        "keyspace",
        "create_keyspace",
        "baseline",
        "plan",
        "left",
        "stopped",
        "besides",
        "withheld",
        "foreign",
        "statements",
        "exit",
    ]
    assert (planned.code, document["exit"], document["keyspace"], document["foreign"]) == (1, 1, "shop", False)
    assert document["create_keyspace"].startswith("CREATE KEYSPACE IF NOT EXISTS shop WITH replication = ")
    assert (document["baseline"], document["besides"], document["withheld"]) == ([], [], [])
    assert document["left"] == [LABELS, TOTALS, PLACES]
    assert document["stopped"] == f"{LABELS} and what follows come after --to 0001"
    assert [(one["number"], one["position"], one["line"]) for one in document["plan"]] == [
        (1, 0, 5),
        (1, 1, 6),
        (1, 2, 7),
    ]
    assert {(one["way"], one["phase"], one["migration"]) for one in document["plan"]} == {("run", "pre", ORDERS)}
    assert document["statements"] == [document["create_keyspace"], *(one["cql"] for one in document["plan"])]
    assert all(one["risk"] in one["risks"] and one["why"] for one in document["plan"])


def test_exit_1_means_that_there_is_something_to_do(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    """And 0 that there is not: for scripts as for people, before, half way and after."""
    codes = []
    for number in ("1", "3", "4"):
        codes.append(
            (mailmend("schema", "plan", *shop, *NEW).code, mailmend("schema", "plan", *shop, *NEW, "--json").code)
        )
        mailmend("schema", "apply", *shop, *NEW, "--to", number)
    done = mailmend("schema", "plan", *shop)
    assert codes == [(1, 1)] * 3
    assert (done.code, done.out) == (0, "-- shop: every migration is applied, nothing is missing\n")
    assert mailmend("schema", "plan", *shop, "--json").json["exit"] == 0


def test_what_stops_at_the_other_phase_has_nothing_to_do_and_says_what_is_left(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    """Exit 0 of a gate in a pipeline: nothing of this phase is due."""
    mailmend("schema", "apply", *shop, *NEW, "--to", "2")
    planned = mailmend("schema", "plan", *shop, "--phase", "pre")
    assert planned.code == 0
    (line,) = planned.out.splitlines()
    assert line.startswith(f"-- left: {TOTALS}, {PLACES} ({TOTALS} comes first: it is of the phase 'post'")


def test_a_plan_writes_nothing_whatever_it_shows(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    for options in (("--replication-factor", "3"), ("--phase", "post"), ("--to", "2", "--json"), ()):
        mailmend("schema", "plan", *shop, *options)
    assert (cluster.untouched, cluster.keyspaces) == (True, {})


def test_sizes_are_asked_for_only_where_a_risk_depends_on_them(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    planned = mailmend("schema", "plan", *shop, *NEW, "--to", "1", "--json")
    assert {one["risk"] for one in planned.json["plan"]} == {"none"}
    assert cluster.sized == []
    mailmend("schema", "apply", *shop, *NEW, "--to", "2")
    risky = mailmend("schema", "plan", *shop, "--json")
    assert cluster.sized == ["shop"]
    estimates = {one["cql"].split()[2]: one["estimate"] for one in risky.json["plan"] if one["risk"] != "none"}
    assert estimates["shop.orders"].startswith("about 1,000 partitions")
    assert estimates["shop.by_customer"] is None, "nobody told its size"


def test_each_risk_is_reported_with_why(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    mailmend("schema", "apply", *shop, *NEW, "--to", "2")
    out = mailmend("schema", "plan", *shop).out.splitlines()
    for statement in ("ALTER TABLE shop.orders DROP total;", "DROP TABLE shop.by_customer;"):
        assert out[out.index(statement) - 1].startswith("-- risk: data loss")
    added = next(place for place, line in enumerate(out) if line.startswith("CREATE TABLE shop.places"))
    assert out[added - 1].startswith("-- risk: none. ")
    assert f"-- {TOTALS} (post): what the statements say." in out


def test_our_own_tables_need_no_option(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    """One copy, for a first try; what creates the keyspace comes first."""
    code = code_of(mailmend("schema", "plan", "--keyspace", "mail").out)
    assert code.startswith("CREATE KEYSPACE IF NOT EXISTS mail WITH replication = {")
    assert "'replication_factor': '1'" in code.splitlines()[0] + code.splitlines()[1]
    assert all(f"mail.{table.spelling}" in code for table in SCHEMA.tables)


@pytest.mark.parametrize(
    ("choice", "strategy"), [("leveled", "Leveled"), ("unified", "Unified"), ("twcs", "TimeWindow")]
)
def test_the_compaction_of_the_big_tables_is_ones_choice(
    cluster: MigrationCluster, mailmend: CommandLine, choice: str, strategy: str
) -> None:
    plan = mailmend("schema", "plan", "--keyspace", "mail", "--compaction", choice, "--json").json["plan"]
    big = [one["cql"] for one in plan if any(f"mail.{name} (" in one["cql"] for name in ("imapUidTable", "messageV3"))]
    assert len(big) == 2
    assert all(f"{strategy}CompactionStrategy" in one for one in big)


def test_what_was_made_before_there_was_a_history_is_written_down_and_not_run(
    cluster: MigrationCluster, mailmend: CommandLine
) -> None:
    """The plan names it: exit 1, for the history is still to be written."""
    cluster.keyspaces["mail"], cluster.replications["mail"] = served(SCHEMA, made_here=True), ONE_COPY
    planned = mailmend("schema", "plan", "--keyspace", "mail")
    document = mailmend("schema", "plan", "--keyspace", "mail", "--json").json
    assert (planned.code, code_of(planned.out), document["statements"], document["plan"]) == (1, "", [], [])
    assert document["baseline"]
    assert planned.out.splitlines() == [
        f"-- {file}: what it makes is there; it is written into the history, and not run"
        for file in document["baseline"]
    ]


def test_what_somebody_dropped_of_our_tables_is_made_again(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    mailmend("schema", "apply", "--keyspace", "mail")
    cluster.keyspaces["mail"] = without_tables(cluster.keyspaces["mail"], "firstunseen")
    planned = mailmend("schema", "plan", "--keyspace", "mail")
    assert planned.code == 1
    assert "-- table firstUnseen is missing" in planned.out.splitlines()
    assert code_of(planned.out).startswith("CREATE TABLE IF NOT EXISTS mail.firstUnseen (")
    document = mailmend("schema", "plan", "--keyspace", "mail", "--json").json
    assert (document["plan"], document["besides"]) == ([], document["statements"])


def test_a_keyspace_of_james_is_to_be_adopted_first(cluster: MigrationCluster, mailmend: CommandLine) -> None:
    """Exit 1: what it lacks is withheld, as comments; piped into cqlsh, the plan does nothing."""
    james = without_tables(served(AUGUST_2026.schema), "firstunseen")
    cluster.keyspaces["mail"], cluster.replications["mail"] = james, ONE_COPY
    planned = mailmend("schema", "plan", "--keyspace", "mail")
    lines = planned.out.splitlines()
    assert (planned.code, code_of(planned.out)) == (1, "")
    assert lines[0] == "-- not made by mailmend: only --complete would run these here"
    assert lines[1].startswith("-- CREATE TABLE IF NOT EXISTS mail.firstUnseen")
    assert lines[-1] == ("-- mail was not made by mailmend. Take it over with: mailmend schema adopt --keyspace mail")
    document = mailmend("schema", "plan", "--keyspace", "mail", "--json").json
    assert (document["foreign"], len(document["withheld"]), document["statements"], document["exit"]) == (
        True,
        1,
        [],
        1,
    )
    completed = mailmend("schema", "plan", "--keyspace", "mail", "--complete", "--json").json
    assert (completed["withheld"], len(completed["statements"])) == ([], 1)
    whole = served(AUGUST_2026.schema)
    cluster.keyspaces["mail"] = whole
    assert mailmend("schema", "plan", "--keyspace", "mail").code == 1, "also where nothing is missing"


def test_a_plan_from_the_migrations_mends_what_somebody_changed(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    """Piped into the server, verify is content again; what is not in the migrations goes only on request."""
    mailmend("schema", "apply", *shop, *NEW)
    for changed in (
        "ALTER TABLE shop.orders DROP label",
        "DROP TABLE shop.places",
        "ALTER TABLE shop.orders ADD hint text",
        "CREATE TABLE shop.theirs (k int PRIMARY KEY)",
    ):
        if "label" in changed:
            cluster.execute_ddl("DROP INDEX shop.by_label")
        cluster.execute_ddl(changed)
    model = ("schema", "plan", "--from-model", *shop)
    document = mailmend(*model, "--json").json
    assert list(document) == ["keyspace", "from_model", "plan", "statements", "in_flight", "exit"]
    assert set(document["plan"][0]) == {"owner", "cql", "risk", "risks", "why", "manual", "estimate"}
    assert (document["from_model"], document["exit"]) == (True, 1)
    assert not any(" DROP " in one or one.startswith("DROP") for one in document["statements"])

    with_drops = mailmend(*model, "--include-drops", "--json").json
    losing = {one["owner"] for one in with_drops["plan"] if one["risk"] == "data loss"}
    assert losing == {"orders", "theirs"}
    assert all(one["estimate"] for one in with_drops["plan"] if one["owner"] == "orders" and one["risk"] != "none")
    assert {one["estimate"] for one in with_drops["plan"] if one["owner"] == "theirs"} == {None}, "nobody told its size"
    shown = mailmend(*model, "--include-drops").out
    assert code_of(shown) == "\n".join(with_drops["statements"])
    lines = shown.splitlines()
    dropped = next(one for one in with_drops["plan"] if one["cql"] == "ALTER TABLE shop.orders DROP hint;")
    assert lines[lines.index(dropped["cql"]) - 1] == (
        f"-- risk: {', '.join(dropped['risks'])}. {dropped['why']} The table: {dropped['estimate']}."
    )

    for statement in with_drops["statements"]:
        cluster.execute_ddl(statement.rstrip(";"))
    assert mailmend("schema", "verify", *shop).code == 0
    settled = mailmend(*model, "--include-drops", "--include-options")
    assert (settled.code, settled.out.startswith("-- shop is as the model says;")) == (0, True)


@pytest.mark.parametrize("ours", [False, True])
def test_while_a_migration_is_in_flight_no_drop_is_planned_and_why_is_said(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...], ours: bool
) -> None:
    """What it has half made is not expected yet; nor may anybody tell what else it is about to make."""
    cluster.refuses = "messageIdTable" if ours else "by_label"
    command = ("--keyspace", "mail") if ours else shop
    assert mailmend("schema", "apply", *command, *NEW).code == 3
    cluster.execute_ddl(f"CREATE TABLE {'mail' if ours else 'shop'}.half_made (k int PRIMARY KEY)")
    model = ("schema", "plan", "--from-model", "--include-drops", *command)

    ended, shown = mailmend(*model, "--json"), mailmend(*model)

    (name,) = ended.json["in_flight"]
    assert (ended.code, shown.code) == (1, 1)
    assert "DROP" not in "".join(ended.json["statements"]) + code_of(shown.out)
    assert f"-- no drop is planned: {name} has not ended" in shown.out
    assert "runbook show migration-died-half-way" in shown.out
    assert mailmend(*model[:3], *command, "--json").json["in_flight"] == []


def test_a_compaction_that_was_chosen_once_is_not_planned_away(
    cluster: MigrationCluster, mailmend: CommandLine
) -> None:
    """The option's default says nothing about tables that are there; a choice that is typed does."""
    assert mailmend("schema", "apply", "--keyspace", "mail", "--compaction", "leveled").code == 0
    model = ("schema", "plan", "--from-model", "--include-options", "--keyspace", "mail")
    assert not any("compaction" in one for one in mailmend(*model, "--json").json["statements"])
    chosen = mailmend(*model, "--compaction", "twcs", "--json").json["statements"]
    assert [one.split()[2] for one in chosen if "TimeWindowCompactionStrategy" in one] == [
        "mail.imapUidTable",
        "mail.messageIdTable",
        "mail.messageV3",
    ]


def test_what_no_alter_can_do_is_for_a_person(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...]
) -> None:
    """A key of another type: a comment for people; for scripts no CQL, and how to go about it."""
    mailmend("schema", "apply", *shop, *NEW)
    cluster.execute_ddl("DROP TABLE shop.places")
    cluster.execute_ddl("CREATE TABLE shop.places (id int PRIMARY KEY, at frozen<place>)")
    model = ("schema", "plan", "--from-model", *shop)
    planned = mailmend(*model)
    assert (planned.code, code_of(planned.out)) == (1, "")
    assert planned.out.startswith("-- by hand, places: ")
    document = mailmend(*model, "--json").json
    (manual,) = document["plan"]
    assert (manual["cql"], document["statements"]) == (None, [])
    assert manual["manual"] in planned.out


@pytest.mark.parametrize("option", ["--include-options", "--include-drops", "--newest"])
def test_options_of_the_model_go_with_it(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...], option: str
) -> None:
    """Alone they would be passed over in silence; refused before any cluster is asked."""
    refused = mailmend("schema", "plan", *shop, option)
    assert (refused.code, refused.out, cluster.contacts) == (2, "", [])
    assert f"{option} goes with --from-model" in refused.err


@pytest.mark.parametrize("beside", [("--to", "2"), ("--phase", "pre"), ("--complete",)], ids=" ".join)
@pytest.mark.parametrize("command", [("plan", "--from-model"), ("apply", "--optional", "save-date")], ids=" ".join)
def test_how_far_says_nothing_where_no_migrations_are_gone_through(
    cluster: MigrationCluster, mailmend: CommandLine, command: tuple[str, ...], beside: tuple[str, ...]
) -> None:
    """It is refused rather than passed over: whoever typed it expects that it counts."""
    refused = mailmend("schema", *command, *beside)
    assert (refused.code, refused.out, cluster.contacts) == (2, "", [])
    assert f"{beside[0]} has no effect with {command[1]}" in refused.err


def test_a_note_of_james_belongs_to_nobodys_folder(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...], tmp_path: Path
) -> None:
    """Typed it is refused; in the settings file it stands for the migrations, and is no hindrance."""
    note = ("schema", "apply", "--optional", "save-date", "--keyspace", "mail", "--dry-run")
    assert "--migrations has no effect with --optional" in mailmend(*note, *shop).err
    cluster.keyspaces["mail"], cluster.replications["mail"] = served(AUGUST_2026.schema), ONE_COPY
    file = tmp_path / "config.toml"
    file.write_text(f'[schema.apply]\nmigrations = "{shop[1]}"\n', encoding="utf-8")
    assert mailmend("--config", str(file), *note).code == 0


def test_settings_of_a_command_stand_in_the_file(
    cluster: MigrationCluster, mailmend: CommandLine, shop: tuple[str, ...], tmp_path: Path
) -> None:
    """Under its name; what is typed weighs more, and a misspelt one is named with its line."""
    file = tmp_path / "config.toml"
    file.write_text(f'[schema.plan]\nmigrations = "{shop[1]}"\nreplication-factor = 3\nto = 2\n', encoding="utf-8")
    config = ("--config", str(file))
    document = mailmend(*config, "schema", "plan", "--json").json
    assert document["left"] == [TOTALS, PLACES]
    assert "'replication_factor': '3'" in document["create_keyspace"]
    assert mailmend(*config, "schema", "plan", "--to", "4", "--json").json["left"] == []
    file.write_text("[schema.plan]\nto = 2\nphases = 'pre'\n", encoding="utf-8")
    refused = mailmend(*config, "schema", "plan")
    assert (refused.code, "line 3: 'phases' is not a setting of `plan`" in refused.err) == (2, True)
