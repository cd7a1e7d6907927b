"""Options: cqlshrc < settings file < environment < flags, secrets from files and the environment only."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner, Result

from mailmend.admin.frame import options
from mailmend.admin.frame.caller import Caller
from mailmend.admin.frame.command import Command, CommandGroup, made
from mailmend.admin.frame.document import Document
from mailmend.admin.frame.endings import ending_of
from mailmend.admin.frame.options import CONFIG, CONNECTION, PROFILE, option, typed
from mailmend.admin.frame.settings import ConnectionSettings, first_line
from mailmend.model.errors import WrongUse

Ask = Callable[..., Result]


@dataclass(frozen=True)
class LookRequest:
    """What was understood."""

    connection: ConnectionSettings
    depth: int


def look(request: LookRequest, _: Caller) -> LookRequest:
    return request


def said_document(found: LookRequest) -> Document:
    connection, tls = found.connection, found.connection.tls
    said = {
        "hosts": connection.hosts,
        "port": connection.port,
        "keyspace": connection.keyspace,
        "username": connection.username,
        "password": connection.password,
        "tls": [str(file) for file in (tls.authority, tls.certificate, tls.key)] if tls else None,
        "names": bool(tls and tls.hostnames),
        "depth": found.depth,
    }
    return Document(body=(json.dumps(said),))


LOOK = Command(
    name="look",
    summary="Look.",
    about="Look.",
    service="looking:look",
    present="looking:said_document",
    options=(option("--depth", "How far down.", type=int, default=1),),
    shared=(CONNECTION,),
)
_TABLE = CommandGroup(name="mailmend", summary="", about="A group as ours is.", commands=(LOOK,))
group = made(_TABLE, params=[CONFIG, PROFILE], context_settings={"auto_envvar_prefix": "MAILMEND"})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (
        "XDG_CONFIG_HOME",
        "CQLSHRC",
        "MAILMEND_CONFIG",
        "MAILMEND_HOST",
        "MAILMEND_PASSWORD",
        "MAILMEND_PROFILE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(options, "local_instance", lambda: None)
    monkeypatch.setitem(sys.modules, "looking", SimpleNamespace(look=look, said_document=said_document))
    return tmp_path


@pytest.fixture
def ask(home: Path) -> Ask:
    def call(*arguments: str, **environment: str) -> Result:
        @click.command(context_settings={"ignore_unknown_options": True})
        @click.argument("given", nargs=-1, type=click.UNPROCESSED)
        @click.pass_context
        def shell(context: click.Context, given: tuple[str, ...]) -> None:
            context.exit(ending_of(lambda: group.main(list(given), prog_name="mailmend", standalone_mode=False)))

        return CliRunner().invoke(shell, list(arguments), env=environment)

    return call


def _said(result: Result) -> dict[str, object]:
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


def _write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_nothing_said_means_this_machine(ask: Ask) -> None:
    said = _said(ask("look"))

    assert (said["hosts"], said["port"], said["keyspace"]) == (["127.0.0.1"], 9042, "apache_james")


def test_weight_grows_from_cqlshrc_to_flags(ask: Ask, home: Path) -> None:
    said = []
    _write(home / ".cassandra" / "cqlshrc", "[connection]\nhostname = from-cqlshrc\nport = 1111\n")
    said.append(_said(ask("look"))["hosts"])
    _write(home / ".config" / "mailmend" / "config.toml", 'host = ["from-file", "second"]\n')
    said.append(_said(ask("look"))["hosts"])
    said.append(_said(ask("look", MAILMEND_HOST="from-environment other"))["hosts"])
    said.append(_said(ask("look", "--host", "from-flag", MAILMEND_HOST="from-environment"))["hosts"])

    assert said == [["from-cqlshrc"], ["from-file", "second"], ["from-environment", "other"], ["from-flag"]]
    assert _said(ask("look"))["port"] == 1111


def test_a_commands_own_table_and_its_own_config_option(ask: Ask, home: Path) -> None:
    """`[look]` holds settings of `look`; `--config` may stand before or behind the command."""
    file = _write(home / "mine.toml", 'keyspace = "mine"\nhost = "one"\n[look]\ndepth = 7\nport = 1234\n')

    for arguments in (("--config", str(file), "look"), ("look", "--config", str(file))):
        said = _said(ask(*arguments))
        assert (said["keyspace"], said["hosts"], said["depth"], said["port"]) == ("mine", ["one"], 7, 1234)
    assert _said(ask("look", MAILMEND_CONFIG=str(file)))["depth"] == 7


def test_a_running_local_cluster_is_used_when_no_host_is_named(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "local_instance", lambda: (("127.0.0.1", "127.0.0.2"), 9999))

    assert _said(ask("look"))["hosts"] == ["127.0.0.1", "127.0.0.2"]
    assert _said(ask("look"))["port"] == 9999
    assert _said(ask("look", "--host", "far"))["port"] == 9042


def test_the_password_comes_from_the_environment_or_a_file(ask: Ask, home: Path) -> None:
    """A file named now outweighs the environment, which outweighs the files of before."""
    secret = _write(home / "secret", "from-file\nsecond line\n")
    _write(home / ".config" / "mailmend" / "config.toml", 'username = "u"\npassword = "from-settings"\n')

    assert _said(ask("look"))["password"] == "from-settings"
    assert _said(ask("look", MAILMEND_PASSWORD_FILE=str(secret)))["password"] == "from-file"
    assert _said(ask("look", MAILMEND_PASSWORD="from-environment"))["password"] == "from-environment"
    said = _said(ask("look", "--password-file", str(secret), MAILMEND_PASSWORD="from-environment"))
    assert said["password"] == "from-file"


def test_a_profile_outweighs_the_rest_of_the_file(ask: Ask, home: Path) -> None:
    """By option or by environment, before or behind the command; an option still outweighs it."""
    text = 'keyspace = "mine"\nport = 1234\n[look]\ndepth = 7\n'
    text += '[profiles.prod]\nkeyspace = "theirs"\n[profiles.prod.look]\ndepth = 8\n'
    _write(home / ".config" / "mailmend" / "config.toml", text)

    assert (_said(ask("look"))["keyspace"], _said(ask("look"))["depth"]) == ("mine", 7)
    for said in (
        _said(ask("--profile", "prod", "look")),
        _said(ask("look", "--profile", "prod")),
        _said(ask("look", MAILMEND_PROFILE="prod")),
    ):
        assert (said["keyspace"], said["port"], said["depth"]) == ("theirs", 1234, 8)
    assert _said(ask("look", "--profile", "prod", "--keyspace", "other"))["keyspace"] == "other"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[profiles.prod]\nkeyspace = "k"\n', "has no profile 'test' (it has: prod)"),
        ('[profiles.prod]\nhots = "k"\n', "line 2: 'hots' is not a setting"),
    ],
)
def test_a_wrong_profile_is_named(ask: Ask, home: Path, text: str, said: str) -> None:
    """One that is not there, and one that holds a misspelt setting."""
    _write(home / ".config" / "mailmend" / "config.toml", text)

    result = ask("look", "--profile", "test")

    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


def test_a_command_may_print_the_password(ask: Ask, home: Path) -> None:
    """Its first line; named now it outweighs the environment, which outweighs one that was named elsewhere."""
    program = _write(home / "the secret", "#!/bin/sh\necho from-command; echo second line\n")
    program.chmod(0o700)
    command = f"'{program}'"

    assert _said(ask("look", MAILMEND_PASSWORD_COMMAND=command))["password"] == "from-command"
    weighed = ask("look", MAILMEND_PASSWORD_COMMAND=command, MAILMEND_PASSWORD="from-environment")
    assert _said(weighed)["password"] == "from-environment"
    weighed = ask("look", "--password-command", command, MAILMEND_PASSWORD="from-environment")
    assert _said(weighed)["password"] == "from-command"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/nowhere/at/all", "cannot be run: No such file"),
        ("'unfinished", "cannot be run"),
        ("sh -c 'echo hunter2; exit 3'", "ended with 3"),
        ("true", "printed no password"),
        ("sleep 60", "took longer than"),
    ],
)
def test_a_password_command_that_fails_is_named_and_nothing_it_said(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, command: str, said: str
) -> None:
    monkeypatch.setattr(options, "PASSWORD_COMMAND_SECONDS", 0.2)

    result = ask("look", "--password-command", command)

    assert (result.exit_code, said in result.stderr, "hunter2" in result.output) == (2, True, False), result.stderr


def test_there_is_no_option_for_a_password(ask: Ask) -> None:
    assert ask("look", "--password", "hunter2").exit_code == 2


def test_cqlshs_credentials_are_used(ask: Ask, home: Path) -> None:
    _write(home / ".cassandra" / "credentials", "[plain_text_auth]\nusername = u\npassword = p\n")
    assert _said(ask("look"))["username"] == "u"

    other = _write(home / "other", "[plain_text_auth]\nusername = v\npassword = q\n")
    _write(home / ".cassandra" / "cqlshrc", f"[authentication]\ncredentials = {other}\n")
    assert _said(ask("look"))["password"] == "q"


def test_tls_files_are_looked_for_before_anything_is_dialled(ask: Ask, home: Path) -> None:
    """A file that is not there is a clear error; one that is turns TLS on, unless --no-tls."""
    authority = _write(home / "ca.pem", "x")

    assert _said(ask("look", "--tls-ca", str(authority)))["tls"] == [str(authority), "None", "None"]
    assert _said(ask("look", "--tls-ca", str(authority), "--no-tls"))["tls"] is None
    assert not _said(ask("look", "--tls-ca", str(authority)))["names"]
    assert _said(ask("look", "--tls-ca", str(authority), "--tls-hostnames"))["names"]
    assert _said(ask("look", "--tls"))["names"], "the system's authorities sign every name"
    assert _said(ask("look", "--tls-cert", str(authority)))["names"]
    any_name = ask("look", "--tls", "--no-tls-hostnames")
    assert (any_name.exit_code, "Name the authority of the nodes with --tls-ca" in any_name.stderr) == (2, True)
    missing = ask("look", "--tls-ca", str(home / "no.pem"))
    assert (missing.exit_code, "no.pem does not exist" in missing.stderr) == (2, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port = = 1\n", "line 1: not TOML"),
        ('host = "a"\nhots = "b"\n', "line 2: 'hots' is not a setting"),
        ("[look]\n\ndeepth = 1\n", "line 3: 'deepth' is not a setting of `look`"),
        ("look = 1\n", "line 1: 'look' is not a setting"),
        ("[host]\nx = 1\n", "line 1: 'host' is not a setting"),
        ('\nport = "many"\n', "line 2: 'many' is not a port"),
        ('[look]\ndepth = "deep"\n', "line 2: 'deep' is not a valid integer"),
        ('keyspace = "a-b"\n', "line 1: 'a-b' is not a valid keyspace name. A name of a keyspace"),
    ],
)
def test_a_wrong_settings_file_is_named_with_its_line(ask: Ask, home: Path, text: str, said: str) -> None:
    file = _write(home / "mine.toml", text)

    result = ask("--config", str(file), "look")

    assert result.exit_code == 2
    assert f"{file}, {said}" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--config", "/nowhere/x.toml", "look"), "/nowhere/x.toml cannot be read: No such file"),
        (("look", "--password-file", "/nowhere/secret"), "/nowhere/secret cannot be read"),
        (("look", "--keyspace", "a;b"), "not a valid keyspace"),
        (("look", "--port", "0"), "not a port"),
        (("look", "--host", "a b"), "not a host name"),
        (("lok",), "No such command"),
    ],
)
def test_a_wrong_option_is_named(ask: Ask, arguments: tuple[str, ...], said: str) -> None:
    result = ask(*arguments)

    assert (result.exit_code, said in result.stderr) == (2, True), result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--host", "a", "--host", "b", "--port", "1", "--keyspace", "k"],
        ["--tls", "--tls-ca", "a b.pem", "--tls-hostnames"],
        ["--no-tls", "--no-tls-hostnames"],
    ],
)
def test_what_was_typed_is_known_as_it_was_typed(home: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    """Flags without a value, each of several; of this command, not of others, nor what the environment says."""
    monkeypatch.setenv("MAILMEND_LOCAL_DC", "of the environment")
    command = click.Command("look", params=list(CONNECTION.groups["Connection"]))
    root = click.Context(group)

    context = command.make_context("look", list(words), parent=root)
    command.make_context("look", ["--username", "other"], parent=root)

    assert typed(context, CONNECTION.groups["Connection"]) == words


def test_a_settings_file_that_is_not_text_is_refused(ask: Ask, home: Path) -> None:
    (home / "mine.toml").write_bytes(b"\xff\xfe")

    result = ask("--config", str(home / "mine.toml"), "look")

    assert (result.exit_code, "not UTF-8" in result.stderr) == (2, True)


def test_an_empty_password_file_is_refused(home: Path) -> None:
    """An empty password is almost certainly a mistake of whoever mounted the secret."""
    with pytest.raises(WrongUse, match="is empty"):
        first_line(_write(home / "secret", "\n"))
