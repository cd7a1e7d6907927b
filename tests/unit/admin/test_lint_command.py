"""`mailmend schema lint` as a person and a script type it: what it looks at, what it says, what it exits with."""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mailmend.admin.frame.cluster import OpenCluster
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.cql.schema.lint.rules import RULES
from mailmend.model.catalog.mail import SCHEMA
from mailmend.model.errors import AccessDenied
from mailmend.model.keyspace import Schema
from mailmend.model.table import Compaction, Row
from mailmend.repair.clock import SystemClock
from tests.support.commands import CommandLine, command_line
from tests.support.linting import DAY, table, windows
from tests.support.schema_twin import SchemaTwin
from tests.support.schemas import served

BAD = table("events", "sensor text, at timestamp, PRIMARY KEY (sensor, at)", compaction=windows(1, "HOURS"))
GOOD = table("events")
MADE = served(SCHEMA, made_here=True)
COLUMN = BAD.index("compaction") + 1
REASON = "nobody reads it"


@pytest.fixture
def mailmend(tmp_path: Path) -> CommandLine:
    return command_line(tmp_path, None, MAILMEND_HOST="127.0.0.1")


class ServerTwin(SchemaTwin):
    """A server of schemas that tells its settings, too, unless a role may not read them."""

    settings: Mapping[str, str] | None = None
    is_scylla = False

    def query(self, text: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        if "system_views.settings" in text:
            if self.settings is None:
                raise AccessDenied("the role may not read system_views.settings")
            return [{"value": self.settings[name]} for name in values if name in self.settings]
        if "scylla_local" in text:
            return [{"table_name": "scylla_local"}] if self.is_scylla else []
        return super().query(text, values)


@pytest.fixture
def twin(monkeypatch: pytest.MonkeyPatch) -> ServerTwin:
    tables = (
        replace(one, compaction=one.compaction or Compaction("SizeTieredCompactionStrategy")) for one in MADE.tables
    )
    held = ServerTwin(mail=Schema(MADE.types, tuple(tables)))
    held.replications["mail"] = {"class": "org.apache.cassandra.locator.NetworkTopologyStrategy", "dc1": "3"}

    @contextmanager
    def opened(connection: ConnectionSettings) -> Iterator[OpenCluster]:
        yield OpenCluster(connection, held, SystemClock())  # type: ignore[arg-type]

    monkeypatch.setattr("mailmend.admin.schema.lint.open_cluster", opened)
    return held


def written(tmp_path: Path, text: str, name: str = "a.cql") -> str:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return str(file)


def config(tmp_path: Path, text: str) -> str:
    return written(tmp_path, f"[schema.lint]\n{text}\n", "config.toml")


def test_a_finding_is_reported_with_place_reason_fix_and_reference(mailmend: CommandLine, tmp_path: Path) -> None:
    """The line of the file stands there with a caret under the piece that is meant; each reason is told once."""
    file = written(tmp_path, "-- events\n" + BAD + BAD.replace("events", "others"))
    ended = mailmend("schema", "lint", file, "--rule", "T1")
    assert ended.code == 1
    assert ended.err == ""
    lines = ended.out.splitlines()
    assert lines[0] == file
    assert lines[1].startswith(f"  2:{COLUMN}    warning T1  events.default_time_to_live")
    assert lines[2] == "    events has time windows, but its rows never expire"
    shown, caret = lines[3], lines[4]
    assert shown[caret.index("^") : caret.rindex("^") + 1] == "compaction"
    assert sum(line.startswith("    why ") for line in lines) == 1
    assert sum(line.startswith("    see https://") for line in lines) == 1
    assert "    fix as above" in lines
    assert lines[-1] == "apache_james: 2 warnings."


def test_nothing_found_is_reported_too(mailmend: CommandLine, tmp_path: Path) -> None:
    ended = mailmend("schema", "lint", written(tmp_path, GOOD), "--keyspace", "shop")
    assert (ended.code, ended.out) == (0, "shop: nothing found.\n")


@pytest.mark.parametrize("text", ["", "-- only a comment\n", "\ufeff"])
def test_an_empty_file_holds_nothing_to_find(mailmend: CommandLine, tmp_path: Path, text: str) -> None:
    ended = mailmend("schema", "lint", written(tmp_path, text))
    assert (ended.code, ended.out) == (0, "nothing: nothing found.\n")


def test_the_standard_input_is_a_file_too(mailmend: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a plan prints can be piped in; what is no text is refused."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(BAD.encode())))
    ended = mailmend("schema", "lint", "-", "--rule", "T1")
    assert (ended.code, ended.out.splitlines()[0]) == (1, "stdin")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    assert mailmend("schema", "lint", "-").code == 2


def test_json_is_one_object_with_every_finding(mailmend: CommandLine, tmp_path: Path) -> None:
    file = written(tmp_path, BAD)
    ended = mailmend("schema", "lint", file, "--json", "--rule", "T1", "--rule", "T3")
    found = ended.json
    assert ended.code == found["exit"] == 1
    assert set(found) == {"keyspaces", "level", "findings", "ignored", "unused_ignores", "exit"}
    assert [one["rule"] for one in found["findings"]] == ["T1", "T3"]
    assert {name: found["findings"][0][name] for name in ("file", "line", "column", "table", "subject", "level")} == {
        "file": file,
        "line": 1,
        "column": COLUMN,
        "table": "events",
        "subject": "default_time_to_live",
        "level": "warning",
    }
    assert all(found["findings"][0][name] for name in ("text", "reason", "fix", "reference", "keyspace"))
    assert mailmend("schema", "lint", file, "--format", "json", "--rule", "T1,T3").out == ended.out


def test_a_folder_is_one_history_in_the_order_of_its_names(mailmend: CommandLine, tmp_path: Path) -> None:
    written(tmp_path, f"ALTER TABLE events WITH default_time_to_live = {DAY};", "m/0002_post_b.cql")
    written(tmp_path, BAD, "m/0001_pre_a.cql")
    written(tmp_path, "not CQL", "m/README.md")
    folder = str(tmp_path / "m")
    assert mailmend("schema", "lint", folder, "--rule", "T1").code == 0
    ended = mailmend("schema", "lint", folder, "--rule", "T2", "--exclude", "T1", "--json")
    assert ended.code == 0
    assert (
        mailmend("schema", "lint", folder, "--rule", "T3", "--sstables-max", "200", "--json")
        .json["findings"][0]["file"]
        .endswith("0001_pre_a.cql")
    )


@pytest.mark.parametrize(("level", "code"), [("note", 1), ("warning", 1), ("error", 0)])
def test_the_level_decides_what_fails(mailmend: CommandLine, tmp_path: Path, level: str, code: int) -> None:
    ended = mailmend("schema", "lint", written(tmp_path, BAD), "--rule", "T1", "--fail-on", level)
    assert ended.code == code
    assert "T1" in ended.out


def test_a_note_alone_fails_nobody_unless_asked(mailmend: CommandLine, tmp_path: Path) -> None:
    text = table("t", "k int, seen boolean, PRIMARY KEY (k)", compaction=windows())
    assert mailmend("schema", "lint", written(tmp_path, text), "--rule", "T5").code == 0
    assert mailmend("schema", "lint", written(tmp_path, text), "--rule", "T5", "--fail-on", "note").code == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "nothing to look at"),
        (("--live", "a.cql"), "exclude each other"),
        (("nowhere.cql",), "nowhere.cql cannot be read: No such file"),
        (("a.cql", "--rule", "T99"), "there is no rule 'T99'"),
        (("a.cql", "--exclude", "Z"), "there is no rule 'Z'"),
        (("a.cql", "--ignore", "T5"), "gives no reason"),
        (("a.cql", "--ignore", "T99=because"), "there is no rule 'T99'"),
        (("a.cql", "--ignore", "five=because"), "as its rule"),
        (("a.cql", "--server-version", "2.2"), "is no server whose options are known"),
        (("a.cql", "--fail-on", "fatal"), "'fatal' is not one of"),
        (("a.cql", "--partition-rows", "t"), "is not TABLE=ROWS"),
        (("a.cql", "--partition-rows", "t=many"), "is not TABLE=ROWS"),
        (("a.cql", "--projection", "t"), "is not TABLE=TABLE"),
        (("a.cql", "--marks-table", "a=b;c"), "is not a valid table"),
        (("a.cql", "--sarif", "nowhere/a.sarif"), "cannot be written"),
        (("a.cql", "--repair-interval", "soon"), "is not a duration"),
    ],
)
def test_wrong_use_is_reported_in_words(
    mailmend: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], message: str
) -> None:
    written(tmp_path, GOOD)
    monkeypatch.chdir(tmp_path)
    ended = mailmend("schema", "lint", *options)
    assert (ended.code, ended.out) == (2, "")
    assert message in " ".join(ended.err.split())


def test_what_is_no_cql_is_reported_with_file_line_column_and_caret(mailmend: CommandLine, tmp_path: Path) -> None:
    file = written(tmp_path, "CREATE TABLE a (k int PRIMARY KEY);\nCREATE TABEL b (k int PRIMARY KEY);")
    ended = mailmend("schema", "lint", file)
    assert ended.code == 2
    assert f"{file}, line 2, column 8" in ended.err
    assert "\n       ^" in ended.err


def test_a_file_that_is_no_text_and_a_folder_without_cql_are_refused(mailmend: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "a.cql").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty").mkdir()
    binary, empty = (mailmend("schema", "lint", str(tmp_path / name)) for name in ("a.cql", "empty"))
    assert (binary.code, empty.code) == (2, 2)
    assert "it is not UTF-8 text" in binary.err
    assert "holds no .cql file" in empty.err


def test_ignores_of_the_settings_file_count_with_their_reason(mailmend: CommandLine, tmp_path: Path) -> None:
    """They are shown on request; one that matches nothing is told, so that it can go."""
    settings = config(
        tmp_path,
        f'ignore = [{{ rule = "T1", table = "Events", reason = "{REASON}" }},'
        ' { rule = "T3", table = "others", reason = "gone" }]\nrule = ["T1"]',
    )
    file = written(tmp_path, BAD)
    ended = mailmend("schema", "lint", file, "--config", settings)
    assert ended.code == 0
    assert "1 ignored, each with a reason (--ignored shows them)." in ended.out
    shown = mailmend("schema", "lint", file, "--config", settings, "--ignored")
    assert f"because {REASON}" in shown.out
    reported = mailmend("schema", "lint", file, "--config", settings, "--rule", "T1,T3", "--json")
    assert reported.json["ignored"][0]["because"] == REASON
    assert reported.json["unused_ignores"] == ["the settings: T3 at others"]
    assert "An ignore that matches nothing can go: the settings: T3 at others." in reported.err


@pytest.mark.parametrize(
    ("ignore", "message"),
    [
        ('{ rule = "T1", table = "t" }', "gives no reason"),
        ('{ table = "t", reason = "why" }', "as its rule"),
        ('{ rule = "T1", tabel = "t", reason = "why" }', "an ignore has no 'tabel'"),
        ('{ rule = "T77", reason = "why" }', "there is no rule 'T77'"),
        ("5", "as its rule"),
    ],
)
def test_bad_ignores_of_the_settings_file_are_refused(
    mailmend: CommandLine, tmp_path: Path, ignore: str, message: str
) -> None:
    settings = config(tmp_path, f"ignore = [{ignore}]")
    ended = mailmend("schema", "lint", written(tmp_path, GOOD), "--config", settings)
    assert ended.code == 2
    assert message in ended.err


def test_settings_that_are_none_are_refused_with_their_line(mailmend: CommandLine, tmp_path: Path) -> None:
    settings = config(tmp_path, "ignroe = []")
    ended = mailmend("--config", settings, "schema", "lint", written(tmp_path, GOOD))
    assert ended.code == 2
    assert "config.toml, line 2" in ended.err
    assert "'ignroe' is not a setting of `lint`\nDid you mean 'ignore'?" in ended.err


def test_a_note_in_the_file_covers_its_table(mailmend: CommandLine, tmp_path: Path) -> None:
    noted = written(tmp_path, f"-- lint: ignore T1: {REASON}\n{BAD}")
    assert mailmend("schema", "lint", noted, "--rule", "T1").code == 0
    unused = mailmend("schema", "lint", written(tmp_path, f"-- lint: ignore T1: {REASON}\n{GOOD}"))
    assert "An ignore that matches nothing can go: " in unused.err
    bare = mailmend("schema", "lint", written(tmp_path, f"-- lint: ignore T1\n{BAD}"))
    assert bare.code == 2
    assert "a.cql: the comment 'lint: ignore T1': the ignore of T1 gives no reason" in bare.err


def test_what_settings_tell_wakes_silent_rules(mailmend: CommandLine, tmp_path: Path) -> None:
    text = table("truth", default_time_to_live=DAY) + table("copy") + table("marks", default_time_to_live=DAY)
    file = written(tmp_path, text)
    assert mailmend("schema", "lint", file, "--exclude", "T1").code == 0
    settings = config(
        tmp_path,
        'projection = ["truth=copy"]\nmarks-table = ["marks=copy"]\npartition-rows = ["copy=1000000"]\n'
        'repair-interval = "30d"\nhint-window = "11d"',
    )
    ended = mailmend("schema", "lint", file, "--config", settings, "--json")
    assert {one["rule"] for one in ended.json["findings"]} == {"T8", "T12", "T15", "T18", "T19"}
    asked = mailmend("schema", "lint", file, "--projection", "Truth=copy", "--rule", "T19", "--json")
    assert [one["table"] for one in asked.json["findings"]] == ["copy"]


def test_the_server_version_decides_what_is_known(mailmend: CommandLine, tmp_path: Path) -> None:
    file = written(tmp_path, table(compaction="{'class': 'DateTieredCompactionStrategy'}"))
    assert mailmend("schema", "lint", file).code == 1
    assert mailmend("schema", "lint", file, "--server-version", "4.1.10").code == 0


def test_sarif_goes_to_stdout_or_a_file(mailmend: CommandLine, tmp_path: Path) -> None:
    """The same either way; the file comes beside whatever is printed."""
    file, log = written(tmp_path, BAD), tmp_path / "lint.sarif"
    printed = mailmend("schema", "lint", file, "--sarif", "-")
    both = mailmend("schema", "lint", file, "--sarif", str(log), "--json")
    assert (printed.code, both.code) == (1, 1)
    assert printed.out == log.read_text(encoding="utf-8") == mailmend("schema", "lint", file, "--format", "sarif").out
    assert len(json.loads(printed.out)["runs"][0]["results"]) == len(both.json["findings"])
    refused = mailmend("schema", "lint", file, "--sarif", "-", "--json")
    assert (refused.code, "--json has no effect with --sarif -" in refused.err) == (2, True)


def test_the_rules_are_listed_without_looking_at_anything(mailmend: CommandLine) -> None:
    listed = mailmend("schema", "lint", "--rules")
    assert listed.code == 0
    assert all(f"{rule.id} " in listed.out and rule.reference in listed.out for rule in RULES)
    chosen = mailmend("schema", "lint", "--rules", "--json", "--rule", "T5").json
    assert [one["rule"] for one in chosen["rules"]] == ["T5"]
    assert set(chosen["rules"][0]) == {"rule", "level", "title", "reason", "fix", "reference"}


def test_a_live_keyspace_is_looked_at_and_only_read(twin: ServerTwin, mailmend: CommandLine) -> None:
    """What mailmend made is clean but for what is given a reason; there are no places."""
    ended = mailmend("schema", "lint", "--live", "--keyspace", "mail", "--json", "--fail-on", "note")
    assert (ended.code, ended.json["keyspaces"], ended.json["findings"]) == (0, ["mail"], [])
    assert {one["rule"] for one in ended.json["ignored"]} >= {"T1", "T5", "T8", "T21"}
    assert all(one["file"] is None and one["line"] is None for one in ended.json["ignored"])
    assert twin.carried_out == []
    assert mailmend("schema", "lint", "--live", "--keyspace", "nowhere").code == 2


def test_a_live_server_tells_what_it_is_and_how_it_is_set(twin: ServerTwin, mailmend: CommandLine) -> None:
    """Its hint window and its variant of Paxos, where the role may read them; an option counts more."""
    twin.settings = {"max_hint_window_in_ms": str(11 * DAY * 1000), "paxos_variant": "v1"}
    document = mailmend("schema", "lint", "--live", "--keyspace", "mail", "--rule", "T8,T24", "--json").json
    assert {(one["rule"], one["level"]) for one in document["findings"]} == {("T8", "error"), ("T24", "note")}
    assert {one["text"].rpartition(" than ")[2] for one in document["findings"] if one["rule"] == "T8"} == {
        "the hint window of 11 days"
    }
    asked = mailmend("schema", "lint", "--live", "--keyspace", "mail", "--rule", "T8", "--hint-window", "1h", "--json")
    assert asked.json["findings"] == []


def test_an_upgrade_is_tried_on_the_live_schema(twin: ServerTwin, mailmend: CommandLine) -> None:
    """Names that a server itself tells are fine; a class that the next version has no more is found."""
    gone = replace(SCHEMA.tables[0], compaction=Compaction("DateTieredCompactionStrategy"), options={})
    twin.keyspaces["mail"] = Schema((), (gone,))
    twin.release_version = "4.1.10"
    live = ("schema", "lint", "--live", "--keyspace", "mail", "--rule", "T11")
    assert mailmend(*live).code == 0
    assert "Cassandra 5.0 has no compaction class" in mailmend(*live, "--server-version", "5.0").out


def test_scylla_is_known_for_what_it_is(twin: ServerTwin, mailmend: CommandLine) -> None:
    twin.release_version, twin.is_scylla = "3.0.8", True
    ended = mailmend("schema", "lint", "--live", "--keyspace", "mail", "--ignored", "--json")
    assert ended.code == 0
    assert "T7" not in {one["rule"] for one in ended.json["ignored"]}


def test_help_shows_examples(mailmend: CommandLine) -> None:
    ended = mailmend("schema", "lint", "--help")
    assert ended.code == 0
    assert "mailmend schema lint --live" in ended.out
    assert "-- lint: ignore T5: why it may stay" in ended.out
