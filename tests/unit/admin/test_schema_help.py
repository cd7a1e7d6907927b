"""What `mailmend schema` promises in its help: examples that can be typed, exit codes, every option explained.

And what holds for each of its commands alike: errors in words, one object for scripts, no password anywhere.
"""

import json
import re
from pathlib import Path
from typing import cast

import click
import pytest

from mailmend.admin.frame.command import made
from mailmend.admin.schema.schema import SCHEMA
from mailmend.model.errors import AccessDenied, CannotReach, MailmendError, NotEnoughReplicas, UnknownKeyspace
from tests.support.commands import CommandLine, command_line
from tests.support.migrating import written
from tests.support.migration_cluster import migration_cluster

COMMANDS = ("plan", "apply", "history", "force-unlock", "grants", "export", "verify", "adopt", "advise", "lint")
ASKING = {
    "plan": (),
    "plan --from-model": (),
    "apply": (),
    "apply --dry-run": (),
    "apply --optional save-date": (),
    "history": (),
    "force-unlock": ("--reason", "gone", "--yes"),
    "grants": (),
    "grants --check": (),
    "export --live": ("--dir", "out"),
    "verify": (),
    "adopt": (),
    "adopt --forget": (),
    "lint --live": (),
}
"""Every command that asks a cluster, with what it cannot be typed without."""

schema = cast("click.Group", made(SCHEMA))

SECRET = "c0rrect-h0rse"


def command_of(name: str) -> click.Command:
    found = schema.get_command(click.Context(schema), name)
    assert found is not None
    return found


@pytest.fixture
def mailmend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    where = {"MAILMEND_HOST": "10.0.0.1", "MAILMEND_KEYSPACE": "shop"}
    return command_line(tmp_path, None, **where, MAILMEND_USERNAME="ann", MAILMEND_PASSWORD=SECRET)


def test_every_command_is_there_and_nothing_else() -> None:
    assert tuple(schema.list_commands(click.Context(schema))) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_examples(mailmend: CommandLine, name: str) -> None:
    """At least two of them are of this very command; it says what it does, and needs no cluster for that."""
    ended = mailmend("schema", name, "--help")
    assert (ended.code, ended.err) == (0, "")
    assert "Examples:" in ended.out
    assert len(re.findall(rf"mailmend schema {name} ", ended.out)) >= 2
    assert command_of(name).help


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained_and_every_command_speaks_json(name: str) -> None:
    options = [one for one in command_of(name).params if isinstance(one, click.Option)]
    for option in options:
        assert option.help, option.name
        assert option.help.rstrip().endswith((".", "]")), option.help
    assert "--json" in {flag for option in options for flag in option.opts}


@pytest.mark.parametrize("name", ["plan", "apply", "history", "force-unlock", "grants", "export", "verify", "adopt"])
def test_exit_codes_are_reported(mailmend: CommandLine, name: str) -> None:
    out = " ".join(mailmend("schema", name, "--help").out.split())
    assert re.search(r"Exit codes: 0 ", out)
    assert "2 " in out.partition("Exit codes:")[2]
    assert "4 " in out.partition("Exit codes:")[2]


ERRORS = [
    CannotReach("10.0.0.1:9042 gives no answer", mend="Look at --host, --port."),
    AccessDenied("the role ann may not read system_schema.tables", mend="Grant it."),
    NotEnoughReplicas("two of three replicas are down"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("command", ASKING)
def test_a_cluster_that_cannot_be_asked_is_exit_4_in_words(
    mailmend: CommandLine, monkeypatch: pytest.MonkeyPatch, command: str, error: MailmendError
) -> None:
    """On stderr, in the error's own words, for scripts as for people."""
    cluster = migration_cluster(monkeypatch)
    cluster.fails = error
    for form in ((), ("--json",)):
        ended = mailmend("schema", *command.split(), *ASKING[command], *form)
        assert (ended.code, ended.out) == (4, "")
        assert ended.err == f"mailmend: {error.message}\n"


@pytest.mark.parametrize("command", ASKING)
def test_what_nobody_foresaw_shows_no_traceback_and_no_password(
    mailmend: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    """It goes to a file, which the message names; the password stands in neither."""
    cluster = migration_cluster(monkeypatch)
    cluster.fails = ZeroDivisionError("nobody thought of it")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ended = mailmend("schema", *command.split(), *ASKING[command])
    assert (ended.code, ended.out) == (3, "")
    assert "Traceback" not in ended.err
    (log,) = tmp_path.glob("mailmend-crash-*.log")
    assert str(log) in ended.err
    assert "Traceback" in log.read_text(encoding="utf-8")
    assert SECRET not in ended.err + log.read_text(encoding="utf-8")
    assert SECRET not in repr(cluster.contacts)


@pytest.mark.parametrize("command", ASKING)
def test_a_password_reaches_the_cluster_and_nothing_else(
    mailmend: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    cluster = migration_cluster(monkeypatch)
    folder = str(written(tmp_path / "db"))
    assert mailmend("schema", "apply", "--migrations", folder, "--replication-factor", "1").code == 0
    said = [mailmend("schema", *command.split(), *ASKING[command], *form) for form in ((), ("--json",))]
    assert {contact.password for contact in cluster.contacts} == {SECRET}
    kept = [repr(vars(tables)) for tables in cluster.tables.values()]
    files = [file.read_text(encoding="utf-8") for file in tmp_path.rglob("*") if file.is_file()]
    for text in (*(one.out + one.err for one in said), *cluster.carried_out, *kept, *files):
        assert SECRET not in text


@pytest.mark.parametrize("command", ["history", "verify", "plan", "apply --dry-run", "adopt --dry-run", "lint --live"])
def test_scripts_get_one_object_with_the_exit_code_in_it(
    mailmend: CommandLine, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """One line on stdout that says how the command ended; nothing was written for it."""
    cluster = migration_cluster(monkeypatch)
    assert mailmend("schema", "apply").code == 0
    cluster.forget()
    ended = mailmend("schema", *command.split(), "--json")
    assert ended.out.count("\n") == 1
    assert json.loads(ended.out)["exit"] == ended.code
    assert ended.err == ""
    assert cluster.untouched


@pytest.mark.parametrize("option", ["--password=secret", "--password"])
def test_no_password_is_ever_an_argument(mailmend: CommandLine, option: str) -> None:
    """Every user of the machine could read it in the list of processes."""
    for name in COMMANDS:
        flags = {flag for one in command_of(name).params for flag in one.opts}
        assert not {flag for flag in flags if "password" in flag} - {"--password-file", "--password-command"}
        assert mailmend("schema", name, option).code == 2


def test_an_unknown_command_is_refused(mailmend: CommandLine) -> None:
    ended = mailmend("schema", "migrate")
    assert (ended.code, "migrate" in ended.err) == (2, True)


def test_who_names_a_keyspace_that_is_not_there_gets_the_same_error(
    mailmend: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By every command that only looks: exit 2, the name, and what to do."""
    cluster = migration_cluster(monkeypatch)
    for command in (
        "verify",
        "plan --from-model",
        "adopt",
        "adopt --dry-run",
        "lint --live",
        "grants",
        "export --live",
    ):
        ended = mailmend("schema", *command.split())
        assert (ended.code, ended.out) == (2, ""), command
        assert ended.err == f"mailmend: {UnknownKeyspace('shop')}\n", command
    assert (cluster.untouched, cluster.keyspaces) == (True, {})


@pytest.mark.parametrize(
    "command",
    ["lint a.cql", "lint --rules", "export --dir out", "export --dir - --only cql", "grants --all"],
)
def test_what_asks_no_cluster_asks_for_no_password(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    """A role in the environment or in a cqlshrc is no reason to stop a pipeline that only reads files."""
    cluster = migration_cluster(monkeypatch)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.cql").write_text("CREATE TABLE a (k int PRIMARY KEY);", encoding="utf-8")
    nobody = command_line(tmp_path, None, MAILMEND_USERNAME="ann", MAILMEND_PASSWORD_FILE="/nowhere/at/all")
    ended = nobody("schema", *command.split())
    assert (ended.code, ended.err, cluster.contacts) == (0, "", [])


@pytest.mark.parametrize("command", ["lint --live", "export --live --dir out", "grants", "verify"])
def test_what_asks_a_cluster_needs_the_password_of_its_role(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    """Refused before it is connected to, where nobody sits who could type it."""
    cluster = migration_cluster(monkeypatch)
    ended = command_line(tmp_path, None, MAILMEND_USERNAME="ann")("schema", *command.split())
    assert (ended.code, cluster.contacts, "the password of 'ann' is not known" in ended.err) == (2, [], True)
