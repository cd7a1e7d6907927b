"""Options that every command which talks to a cluster shares, and the files that stand behind them.

Weight grows: cqlshrc < settings file < environment < flags. Where none of them names a host, a running
`mailmend local up` is used, so that a first try needs no option at all.
"""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import click
from click.core import ParameterSource

from admin.cli.kinds import KEYSPACE, PORT
from admin.settings import (
    KEYSPACE_DEFAULT,
    LEDGER_KEYSPACE_DEFAULT,
    LOOPBACK,
    PORT_DEFAULT,
    ConnectionSettings,
    Tls,
    line_of,
    parse_cqlshrc,
    parse_credentials,
    parse_hosts,
    parse_settings,
    settings_path,
)
from model.errors import BadSettings

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=Callable[..., Any])

_SETTINGS_FILE: Final = "mailmend.settings_file"


class SharedOption(click.Option):
    """An option that the settings file may hold once, above every command."""

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        """The value and where it came from; the file's top level is asked last."""
        value, source = super().consume_value(ctx, opts)
        shared = ctx.find_root().default_map or {}
        if source is ParameterSource.DEFAULT and self.name in shared:
            value, source = shared[self.name], ParameterSource.DEFAULT_MAP
        if source is ParameterSource.DEFAULT_MAP and self.multiple and isinstance(value, str):
            value = [value]
        return value, source


def _shared(*names: str, **settings: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    long = names[0].split("/")[0].removeprefix("--").replace("-", "_").upper()
    return click.option(*names, cls=SharedOption, envvar=f"MAILMEND_{long}", show_envvar=True, **settings)


_FILE = click.Path(path_type=Path)
_CONNECTION: Final = (
    _shared("--host", multiple=True, metavar="HOST", help="A node to ask first; may be given again."),
    _shared("--port", type=PORT, metavar="PORT", help=f"The nodes' CQL port. [default: {PORT_DEFAULT}]"),
    _shared("--local-dc", metavar="NAME", help="The data centre to stay in. [default: that of the first node]"),
    _shared("--keyspace", type=KEYSPACE, default=KEYSPACE_DEFAULT, show_default=True, metavar="NAME", help="The mail."),
    _shared(
        "--ledger-keyspace",
        type=KEYSPACE,
        default=LEDGER_KEYSPACE_DEFAULT,
        show_default=True,
        metavar="NAME",
        help="Runs, before-images, lags and leases.",
    ),
    _shared("--username", metavar="NAME", help="Password: MAILMEND_PASSWORD, --password-file, or asked for."),
    _shared("--password-file", type=_FILE, metavar="FILE", help="A file whose first line is the password."),
    _shared("--tls/--no-tls", default=None, help="Encrypt; the system's authorities count unless --tls-ca is given."),
    _shared("--tls-ca", type=_FILE, metavar="FILE", help="Certificate of the authority that signed the nodes'."),
    _shared("--tls-cert", type=_FILE, metavar="FILE", help="Our own certificate, where nodes ask for one."),
    _shared("--tls-key", type=_FILE, metavar="FILE", help="The key of our own certificate."),
    _shared(
        "--tls-hostnames/--no-tls-hostnames",
        default=False,
        help="Demand that certificates name the nodes' IP addresses too; Spark's own connections cannot.",
    ),
)


def with_options(command: C, options: Sequence[Callable[[Any], Any]]) -> C:
    """Give a command these options; its help lists them in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def connection_options(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command the connection options; it receives them as one `connection: ConnectionSettings`."""
    return connection_options_where(lambda _: True)(command)


def connection_options_where(
    asks: Callable[[Mapping[str, Any]], bool],
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """The same for a command that asks a cluster only where its other options say so; else no password is needed."""

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @functools.wraps(command)
        def with_connection(*args: Any, **options: Any) -> R:
            own = {name: options.pop(name) for name in _NAMES}
            connection = connection_of(own, click.get_current_context(), asks=asks(options))
            return command(*args, connection=connection, **options)

        return with_options(with_connection, (*_CONNECTION, config_option))

    return decorate


_NAMES: Final = (
    "host",
    "port",
    "local_dc",
    "keyspace",
    "ledger_keyspace",
    "username",
    "password_file",
    "tls",
    "tls_ca",
    "tls_cert",
    "tls_key",
    "tls_hostnames",
)


def connection_of(options: Mapping[str, Any], context: click.Context, *, asks: bool = True) -> ConnectionSettings:
    """The connection that the options, the environment and the files name together.

    Args:
        options: those of `_NAMES`.
        context: of the command.
        asks: whether anything is connected to; where nothing is, no password is looked for.
    """
    hosts, port = parse_hosts(tuple(options["host"] or ())), options["port"]
    local = None if hosts else local_instance()
    if local:
        hosts, port = local
    return ConnectionSettings(
        hosts=hosts or (LOOPBACK,),
        port=port or PORT_DEFAULT,
        local_dc=options["local_dc"],
        keyspace=options["keyspace"],
        ledger_keyspace=options["ledger_keyspace"],
        username=options["username"],
        password=(_password(options, context) or _typed_password(options["username"])) if asks else None,
        tls=_tls(options),
    )


def local_instance() -> tuple[tuple[str, ...], int] | None:
    """Hosts and port of a `mailmend local up` that is running, or None."""
    from admin.local.cluster import running_contact  # noqa: PLC0415 - only where no host is named

    return running_contact()


def _tls(options: Mapping[str, Any]) -> Tls | None:
    files = (options["tls_ca"], options["tls_cert"], options["tls_key"])
    if options["tls"] is False or not (options["tls"] or any(files)):
        return None
    for file in files:
        if file and not file.expanduser().is_file():
            raise BadSettings(
                f"{file} does not exist", mend="It was named by a --tls option, a settings file or cqlshrc."
            )
    authority, certificate, key = (file and file.expanduser() for file in files)
    return Tls(authority, certificate, key, options["tls_hostnames"])


def _password(options: Mapping[str, Any], context: click.Context) -> str | None:
    """A file named on the command line, then MAILMEND_PASSWORD, then a file named elsewhere, then the files' own."""
    files = context.find_root().default_map or {}
    named_now = context.get_parameter_source("password_file") is ParameterSource.COMMANDLINE
    if named_now or not os.environ.get("MAILMEND_PASSWORD"):
        file = options["password_file"]
        return first_line(file) if file else files.get("password")
    return os.environ["MAILMEND_PASSWORD"]


def _typed_password(username: str | None) -> str | None:
    """What a person types, where a role is named and its password is not; nobody is asked where nobody sits.

    Raises:
        BadSettings: nobody can be asked, or the terminal would show it.
    """
    if not username:
        return None
    from admin.asking import hidden_password, somebody_types  # noqa: PLC0415 - only where somebody is asked

    if not somebody_types():
        raise BadSettings(
            f"the password of {username!r} is not known", mend="Set MAILMEND_PASSWORD, or name a --password-file."
        )
    return hidden_password(username)


def first_line(file: Path) -> str:
    """The password in a file.

    Raises:
        BadSettings: the file cannot be read, or is empty.
    """
    try:
        lines = file.expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"password file {file} cannot be read: {reason_of(error)}") from error
    if not lines or not lines[0]:
        raise BadSettings(f"password file {file} is empty", mend="Its first line must be the password.")
    return lines[0]


def reason_of(error: Exception) -> str:
    """Why a file could not be read or written, without its contents."""
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else "it is not UTF-8 text"


def _load_settings(context: click.Context, _: click.Parameter, named: Path | None) -> None:
    """Make the files' settings the defaults of the command and of those below it."""
    root = context.find_root()
    if named is None and context is not root:
        return
    root.default_map = {**_cqlshrc(os.environ, Path.home()), **_settings_file(root, named)}
    context.default_map = functools.reduce(_below, _names_to(context), root.default_map)


def _names_to(context: click.Context) -> Sequence[str]:
    return [] if context.parent is None else [*_names_to(context.parent), str(context.info_name)]


def _below(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = settings.get(name.replace("-", "_"), {})
    return found if isinstance(found, dict) else {}


def _settings_file(root: click.Context, named: Path | None) -> dict[str, Any]:
    file = (named or settings_path(os.environ, Path.home())).expanduser()
    if named is None and not file.exists():
        return {}
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"settings file {file} cannot be read: {reason_of(error)}") from error
    settings = parse_settings(text, file)
    root.meta[_SETTINGS_FILE] = (file, text)
    _refuse_unknown(root, settings)
    return settings


def _refuse_unknown(root: click.Context, settings: Mapping[str, Any]) -> None:
    """A misspelt setting must not be ignored in silence."""
    group = root.command
    commands = group.list_commands(root) if isinstance(group, click.Group) else []
    for name, value in settings.items():
        if name not in {*_NAMES, "password", *commands} or (name in commands) != isinstance(value, dict):
            refuse_setting(root, name, "is not a setting")


def refuse_setting(context: click.Context, name: str, why: str) -> None:
    """Refuse something that stands in the settings file, naming file and line.

    Raises:
        BadSettings: always, when a settings file was read.
    """
    file, text = context.find_root().meta.get(_SETTINGS_FILE, (None, ""))
    if file is not None:
        raise BadSettings(
            f"{file}, line {line_of(text, name)}: {name!r} {why}",
            mend="Top-level settings are the connection options; each command has a table of its own, like [check].",
        )


def place_of(context: click.Context, name: str) -> str | None:
    """File and line of a setting, or None when no settings file holds it."""
    file, text = context.find_root().meta.get(_SETTINGS_FILE, (None, ""))
    return f"{file}, line {line_of(text, name)}" if file is not None else None


def _cqlshrc(environment: Mapping[str, str], home: Path) -> dict[str, Any]:
    """What a DBA has already told cqlsh."""
    file = Path(environment.get("CQLSHRC") or home / ".cassandra" / "cqlshrc").expanduser()
    found = parse_cqlshrc(_text_of(file), file)
    credentials = Path(found.pop("credentials", file.with_name("credentials"))).expanduser()
    secrets = parse_credentials(_text_of(credentials), credentials)
    return {**secrets, **found}


def _text_of(file: Path) -> str:
    """The file's text; a file that is not there, or not ours to read, says nothing."""
    try:
        return file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"{file} cannot be read: {reason_of(error)}") from error


config_option: Final = click.option(
    "--config",
    type=_FILE,
    envvar="MAILMEND_CONFIG",
    show_envvar=True,
    is_eager=True,
    expose_value=False,
    callback=_load_settings,
    metavar="FILE",
    help="Settings in TOML. [default: ~/.config/mailmend/config.toml]",
)
"""The settings file; taken by `mailmend` itself and by every command."""
