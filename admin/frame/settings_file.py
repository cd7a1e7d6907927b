"""Defaults of options, lowest precedence first: cqlshrc, settings file, its profile; environment and options override.

Click asks `default_map` for the default of each option; a command's own table is the map of its context.
"""

import functools
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as CqlshrcError
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from mailmend.admin.frame.settings import reason_of
from mailmend.admin.local.folders import home_of
from mailmend.model.errors import BadSettings, MailmendError
from mailmend.model.texts import similar_name

_FILE: Final = "mailmend.settings_file"
_NAMED: Final = "mailmend.settings_named"
PROFILE_NAME: Final = "mailmend.profile"
PROFILES: Final = "profiles"
_LEVELS_MAX: Final = 20
_TOML_LINE: Final = re.compile(r"at line (\d+)")

CONNECTION_NAMES: Final = (
    "host",
    "port",
    "local_dc",
    "keyspace",
    "ledger_keyspace",
    "username",
    "password_file",
    "password_command",
    "tls",
    "tls_ca",
    "tls_cert",
    "tls_key",
    "tls_hostnames",
)
"""The connection in the settings file: above every table, with the password and the log."""
LOG_NAMES: Final = ("log_level", "log_format", "quiet", "verbose", "no_progress", "no_pager")


def take_config(context: click.Context, _: click.Parameter, named: Path | None) -> None:
    if named is not None:
        context.find_root().meta[_NAMED] = named
    if named is not None or context is context.find_root():
        _load(context)


def take_profile(context: click.Context, _: click.Parameter, name: str | None) -> None:
    if name is not None:
        context.find_root().meta[PROFILE_NAME] = name
        _load(context)


@contextmanager
def read_again(context: click.Context) -> Iterator[None]:
    """Read the settings anew for what is within; where that fails, the earlier settings count again."""
    root = context.find_root()
    before = root.default_map, context.default_map, root.meta.pop(_FILE, None)
    try:
        _load(context)
        yield
    except MailmendError:
        root.default_map, context.default_map, root.meta[_FILE] = before
        raise


def _load(context: click.Context) -> None:
    root = context.find_root()
    root.default_map = {**_cqlshrc(os.environ, home_of(os.environ)), **_settings(root)}
    context.default_map = functools.reduce(_below, _names_to(context), root.default_map)


def _names_to(context: click.Context) -> Sequence[str]:
    if context.parent is None:
        return []
    return [*_names_to(context.parent), str(context.info_name)]


def _below(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = settings.get(name.replace("-", "_"))
    if not isinstance(found, dict):
        return {}
    return found


def _settings(root: click.Context) -> dict[str, Any]:
    named = root.meta.get(_NAMED)
    profile = root.meta.get(PROFILE_NAME)
    file = (named or settings_path(os.environ, home_of(os.environ))).expanduser()
    settings: dict[str, Any] = {}
    if named is not None or file.exists():
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadSettings(f"settings file {file} cannot be read: {reason_of(error)}") from error
        settings = parse_settings(text, file)
        root.meta[_FILE] = (file, text)
    profiles = settings.pop(PROFILES, {})
    if not isinstance(profiles, dict) or not all(isinstance(values, dict) for values in profiles.values()):
        raise BadSettings(f"{file}: {PROFILES} holds something that is not a table", mend="Write [profiles.NAME].")
    for values in (settings, *profiles.values()):
        _refuse_unknown(root, values)
    if profile is None:
        return settings
    if profile.replace("-", "_") not in profiles:
        known = ", ".join(profiles) or "none"
        raise BadSettings(f"{file} has no profile {profile!r} (it has: {known})", mend="Write it as [profiles.NAME].")
    return _over(settings, profiles[profile.replace("-", "_")])


def _over(settings: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    both = {**settings, **more}
    for name, value in more.items():
        if isinstance(value, dict):
            both[name] = _over(_below(settings, name), value)
    return both


def _refuse_unknown(root: click.Context, settings: Mapping[str, Any]) -> None:
    tables: set[str] = set()
    if isinstance(root.command, click.Group):
        tables = {name.replace("-", "_") for name in root.command.list_commands(root)}
    known = {*CONNECTION_NAMES, *LOG_NAMES, "password", *tables}
    for name, value in settings.items():
        if name not in known or (name in tables) != isinstance(value, dict):
            _refuse(root, name, "is not a setting", known)


def refuse_unknown_settings(context: click.Context, command: str, known: Collection[str]) -> None:
    """Refuse settings in the file's table of a command that the command does not have."""
    settings = _below(context.default_map or {}, command)
    for unknown in settings.keys() - known:
        _refuse(context, unknown, f"is not a setting of `{command}`", known)


def _refuse(context: click.Context, name: str, why: str, known: Collection[str]) -> None:
    place = place_of(context, name)
    if place is None:
        return
    mend = (
        "Top-level settings are the options of connection and log; each command has a table of its own, like [check]."
    )
    near = similar_name(name, sorted(known))
    if near and name not in known:
        mend = f"Did you mean {near!r}?"
    raise BadSettings(f"{place}: {name!r} {why}", mend=mend)


def place_of(context: click.Context, name: str) -> str | None:
    """File and line of a setting, or None when no settings file holds it."""
    file, text = settings_file_of(context)
    if file is None:
        return None
    return f"{file}, line {line_of(text, name)}"


def settings_file_of(context: click.Context) -> tuple[Path | None, str]:
    """The settings file that was read, and its text."""
    found: tuple[Path | None, str] = context.find_root().meta.get(_FILE, (None, ""))
    return found


def _cqlshrc(environment: Mapping[str, str], home: Path) -> dict[str, Any]:
    file = Path(environment.get("CQLSHRC") or home / ".cassandra" / "cqlshrc").expanduser()
    found = parse_cqlshrc(_text_of(file), file)
    credentials = Path(found.pop("credentials", file.with_name("credentials"))).expanduser()
    secrets = parse_credentials(_text_of(credentials), credentials)
    return {**secrets, **found}


def _text_of(file: Path) -> str:
    """The file's text; "" for a file that is missing or unreadable."""
    try:
        return file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"{file} cannot be read: {reason_of(error)}") from error


def parse_settings(text: str, file: Path) -> dict[str, Any]:
    """The settings file's contents, with keys as Python names."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = f"{file}, at its end"
        line = _TOML_LINE.search(str(error))
        if line:
            place = f"{file}, line {line[1]}"
        raise BadSettings(f"{place}: not TOML: {error}", mend="Write each setting as: name = value") from error
    except RecursionError as error:  # thousands of brackets
        what = "a value is nested too deeply"
        raise BadSettings(f"{file}: {what}", mend="Write each setting as: name = value") from error
    except ValueError as error:  # a number of thousands of digits
        what = "a number is too long"
        raise BadSettings(f"{file}: {what}", mend="Write each setting as: name = value") from error
    _refuse_deep(document, file)
    return _with_python_names(document)


def _refuse_deep(document: Mapping[str, Any], file: Path) -> None:
    """Tables within tables: no command has more levels than its words."""
    level: list[Any] = [document]
    for _ in range(_LEVELS_MAX):
        below: list[Any] = []
        for table in level:
            below += [value for value in table.values() if isinstance(value, dict)]
        level = below
    if level:
        raise BadSettings(f"{file}: tables are nested too deeply", mend="Each command has a table of its own: [check].")


def line_of(text: str, key: str) -> int:
    """The line number of a setting (its first mention), for messages."""
    wanted = re.compile(rf"\s*\[?[\w.\-]*\b{re.escape(key).replace('_', '[-_]')}\b")
    for number, line in enumerate(text.splitlines(), 1):
        if wanted.match(line):
            return number
    return 1


def line_in_table(text: str, table: str, key: str) -> int:
    """The line number of a setting in a table, for messages; of the table where it does not stand in it."""
    wanted = table.replace("_", "-")
    header = 0
    within = False
    for number, line in enumerate(text.splitlines(), 1):
        words = line.replace('"', "").replace("_", "-").split("#")[0].strip()
        if words.startswith("["):
            found = words.strip("[] ")
            within = found == wanted or found.endswith(f".{wanted}")
            if within and not header:
                header = number
        elif key and within and words.partition("=")[0].strip() == key.replace("_", "-"):
            return number
    return header or line_of(text, table.rpartition(".")[2])


def parse_cqlshrc(text: str, file: Path) -> dict[str, Any]:
    parser = ConfigParser(interpolation=None, inline_comment_prefixes=(";",), strict=False)
    try:
        parser.read_string(text, source=str(file))
        found = _cqlshrc_values(parser)
    except (CqlshrcError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise BadSettings(f"{file} cannot be read: {reason}", mend="cqlsh would stumble over it too.") from error
    return {name: value for name, value in found.items() if value is not None}


def _cqlshrc_values(parser: ConfigParser) -> dict[str, Any]:
    def text(section: str, option: str) -> str | None:
        return parser.get(section, option, fallback=None) or None

    tls = parser.getboolean("connection", "ssl", fallback=False)
    host = text("connection", "hostname")
    port = text("connection", "port")
    values: dict[str, Any] = {
        "keyspace": text("authentication", "keyspace"),
        "username": text("authentication", "username"),
        "password": text("authentication", "password"),
        "credentials": text("authentication", "credentials"),
    }
    if host:
        values["host"] = [host]
    if port:
        values["port"] = int(port)
    if tls:
        values["tls_ca"] = text("ssl", "certfile")
        values["tls_cert"] = text("ssl", "usercert")
        values["tls_key"] = text("ssl", "userkey")
        values["tls"] = True
    return values


def parse_credentials(text: str, file: Path) -> dict[str, Any]:
    parser = ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except CqlshrcError:
        raise BadSettings(f"{file} cannot be read as a credentials file of cqlsh") from None
    for section in ("plain_text_auth", "PlainTextAuthProvider"):
        if parser.has_section(section):
            names = [name for name in ("username", "password") if parser.has_option(section, name)]
            return {name: parser.get(section, name) for name in names}
    return {}


def settings_path(environment: Mapping[str, str], home: Path) -> Path:
    """The default path of the settings file (XDG base directories; a relative one is ignored)."""
    folder = Path(environment.get("XDG_CONFIG_HOME", ""))
    if not folder.is_absolute():
        folder = home / ".config"
    return folder / "mailmend" / "config.toml"


def _with_python_names(document: Mapping[str, Any]) -> dict[str, Any]:
    settings = {}
    for name, value in document.items():
        if isinstance(value, dict):
            settings[name.replace("-", "_")] = _with_python_names(value)
        else:
            settings[name.replace("-", "_")] = value
    return settings
