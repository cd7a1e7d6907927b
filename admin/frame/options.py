"""Options of every command that talks to a cluster.

Precedence, lowest first: cqlshrc, settings file, its profile, environment, options. Where none of them names a host,
a running `mailmend local up` is used, so that a first try needs no option at all.
"""

import os
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from mailmend.admin.frame.command import Shared, names_of
from mailmend.admin.frame.environments import environment_of_others
from mailmend.admin.frame.extras import imported
from mailmend.admin.frame.kinds import KEYSPACE, PORT, Duration
from mailmend.admin.frame.logs import FORMATS, LEVELS
from mailmend.admin.frame.settings import (
    KEYSPACE_DEFAULT,
    LEDGER_KEYSPACE_DEFAULT,
    LOOPBACK,
    PORT_DEFAULT,
    ConnectionSettings,
    Tls,
    first_line,
    parse_hosts,
)
from mailmend.admin.frame.settings_file import take_config, take_profile
from mailmend.model.errors import BadSettings

PASSWORD_COMMAND_SECONDS: Final = 30
"""How long a password command may take."""


def flag(name: str, text: str, field: str | None = None) -> click.Option:
    return click.Option(names_of(name, field), is_flag=True, help=text)


def option(name: str, text: str, field: str | None = None, **settings: Any) -> click.Option:
    """An option with a value; its help shows the default, where it has one.

    The help begins with what the option means in every command; after the first point or colon comes
    its meaning in this command.

    Args:
        name: with the hyphens.
        text: of the help.
        field: of the request; the name's own field, where it is not said.
        settings: click's.
    """
    if "default" in settings:
        settings["show_default"] = True
    return click.Option(names_of(name, field), help=text, **settings)


_TYPED: Final = "mailmend.typed"
JOB: Final = "mailmend.job"
"""Where a context keeps the name of the job that runs in it."""

JOB_RUN: Final = "mailmend.job_run"
"""Where a context keeps the id of that job's run."""

GIVEN: Final = "mailmend.given"
"""Where a context keeps the secrets that a Python program gave, by name; a command has none."""


class SharedOption(click.Option):
    """An option that a table of the settings file may hold once for all commands below it; "" is the top level."""

    def __init__(self, *args: Any, table: str = "", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.table = table

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        value, source = super().consume_value(ctx, opts)
        if source is ParameterSource.COMMANDLINE:
            ctx.meta.setdefault(_TYPED, {})[ctx, self] = value  # `meta` is one for all commands below the root
        settings = settings_table(ctx, self.table)
        if source is ParameterSource.DEFAULT and self.name in settings:
            value = settings[self.name]
            source = ParameterSource.DEFAULT_MAP
        if source is ParameterSource.DEFAULT_MAP and self.multiple and isinstance(value, str):
            value = [value]
        return value, source


def typed(context: click.Context, options: Sequence[click.Option]) -> list[str]:
    """The words of those shared options that a person typed for this command."""
    given: Mapping[tuple[click.Context, click.Option], Any] = context.meta.get(_TYPED, {})
    words: list[str] = []
    for option in options:
        if (context, option) not in given:
            continue
        value = given[context, option]
        name = option.opts[0]
        if option.multiple:
            for text in value:
                words += (name, text)
        elif not option.is_flag:
            words += (name, value)
        elif value:
            words.append(name)
        else:
            words.append(option.secondary_opts[0])
    return words


def settings_table(context: click.Context, name: str) -> Mapping[str, Any]:
    """A table of the settings file; "" is its top level."""
    found: Any = context.find_root().default_map or {}
    if name:
        found = found.get(name)
    if not isinstance(found, dict):
        return {}
    return found


def shared_option(name: str, text: str, *, table: str = "", **settings: Any) -> SharedOption:
    """A `SharedOption` that an environment variable may hold too."""
    variable = name.split("/", maxsplit=1)[0].removeprefix("--").replace("-", "_").upper()
    shown = {"show_envvar": True, "show_default": settings.get("default") is not None}
    environment = f"MAILMEND_{variable}"
    names = names_of(name)
    return SharedOption(names, table=table, envvar=environment, help=text, **shown, **settings)


def shared_file(name: str, text: str, *, table: str = "") -> SharedOption:
    return shared_option(name, text, table=table, type=FILE, metavar="FILE")


def _eager(name: str, text: str, take: Callable[..., None], **settings: Any) -> click.Option:
    """An option of `mailmend` itself and of every command that asks a cluster: it says which settings count."""
    variable = f"MAILMEND_{name.removeprefix('--').upper()}"
    return click.Option(
        [name],
        help=text,
        envvar=variable,
        show_envvar=True,
        is_eager=True,
        expose_value=False,
        callback=take,
        **settings,
    )


FILE: Final = click.Path(path_type=Path)
CONFIG: Final = _eager(
    "--config", "Settings in TOML. [default: ~/.config/mailmend/config.toml]", take_config, type=FILE, metavar="FILE"
)
PROFILE: Final = _eager(
    "--profile", "Settings below [profiles.NAME] override the rest of the settings file.", take_profile, metavar="NAME"
)
LOG: Final = (
    shared_option(
        "--log-level",
        "Log events of this level and above on stderr, one line each.",
        type=click.Choice(LEVELS, case_sensitive=False),
        default="warning",
    ),
    shared_option(
        "--log-format",
        "Form of the log: text, or json with the same fields.",
        type=click.Choice(FORMATS, case_sensitive=False),
        default="text",
    ),
    shared_option(
        "--quiet",
        "Show results and errors only: no progress, no advice, and of the log its errors.",
        is_flag=True,
        default=False,
    ),
    shared_option(
        "--verbose",
        "Log each step on stderr: the same as --log-level debug.",
        is_flag=True,
        default=False,
    ),
    shared_option("--no-progress", "Show no progress on stderr.", is_flag=True, default=False),
    shared_option(
        "--no-pager",
        "Show a long list at once. Otherwise a terminal gets it through MAILMEND_PAGER, PAGER or "
        "less; cat means no pager.",
        is_flag=True,
        default=False,
    ),
)
"""How a command is logged, and what it shows; every command has them."""
_CONNECTION: Final = (
    shared_option(
        "--host", "A node of the cluster to connect to first; may be given again.", multiple=True, metavar="HOST"
    ),
    shared_option("--port", f"Port for CQL. [default: {PORT_DEFAULT}]", type=PORT, metavar="PORT"),
    shared_option("--local-dc", "Data centre whose nodes are asked. [default: the first node's]", metavar="NAME"),
    shared_option(
        "--keyspace",
        "Keyspace with the mail tables. CQL reads a name in lower case unless it has double quotes: '\"MailData\"'.",
        type=KEYSPACE,
        default=KEYSPACE_DEFAULT,
        metavar="NAME",
    ),
    shared_option(
        "--ledger-keyspace",
        "Keyspace of mailmend's own: runs, before-images, lags and leases.",
        type=KEYSPACE,
        default=LEDGER_KEYSPACE_DEFAULT,
        metavar="NAME",
    ),
    shared_option("--username", "Role to log in with. Password: MAILMEND_PASSWORD, or asked for.", metavar="NAME"),
    shared_file("--password-file", "A file whose first line is the password."),
    shared_option(
        "--password-command",
        "A command that prints the password, like 'pass show cassandra'; no shell runs it.",
        metavar="COMMAND",
    ),
    shared_option(
        "--tls/--no-tls", "Encrypt; the system's certificate authorities count unless --tls-ca is given.", default=None
    ),
    shared_file("--tls-ca", "Certificate of the authority that signed the nodes' certificates."),
    shared_file("--tls-cert", "Client certificate, where the nodes ask for one."),
    shared_file("--tls-key", "Private key of the client certificate."),
    shared_option(
        "--tls-hostnames/--no-tls-hostnames",
        "Refuse a node whose certificate does not name its IP address; Spark's own connections cannot. "
        "[default: only without --tls-ca, where any public authority counts]",
        default=None,
    ),
    CONFIG,
    PROFILE,
)


def connection_where(asks: Callable[[Mapping[str, Any]], bool]) -> Shared:
    """The connection of a command that asks a cluster only when `asks` says so; else without password."""

    def build(own: dict[str, Any], others: dict[str, Any], context: click.Context) -> ConnectionSettings:
        return connection_of(own, context, asks=asks(others))

    return Shared("connection", {"Connection": _CONNECTION}, build)


CONNECTION: Final = connection_where(lambda _: True)
"""The connection, as `connection: ConnectionSettings` of the request."""


def connection_of(options: Mapping[str, Any], context: click.Context, *, asks: bool = True) -> ConnectionSettings:
    """The connection from the options, the environment and the files together.

    Args:
        options: the options of the connection.
        context: of the command.
        asks: whether anything is connected to; where nothing is, no password is looked for.
    """
    hosts = parse_hosts(tuple(options["host"] or ()))
    port = options["port"]
    if not hosts:
        local = local_instance()
        if local:
            hosts, port = local
    password = None
    if asks:
        password = known_password(options, context) or _typed_password(options["username"], context)
    return ConnectionSettings(
        hosts=hosts or (LOOPBACK,),
        port=port or PORT_DEFAULT,
        local_dc=options["local_dc"],
        keyspace=options["keyspace"],
        ledger_keyspace=options["ledger_keyspace"],
        username=options["username"],
        password=password,
        tls=_tls(options),
        job=context.meta.get(JOB, ""),
        job_run=context.meta.get(JOB_RUN),
    )


def local_instance() -> tuple[tuple[str, ...], int] | None:
    from mailmend.admin.local.servers import running_contact  # noqa: PLC0415 - only where no host is named

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
    if authority is None and options["tls_hostnames"] is False:
        raise BadSettings(
            "--no-tls-hostnames without --tls-ca would take any certificate of any public authority for a node",
            mend="Name the authority of the nodes with --tls-ca, or leave out --no-tls-hostnames.",
        )
    hostnames = authority is None or bool(options["tls_hostnames"])
    return Tls(authority, certificate, key, hostnames)


def known_password(options: Mapping[str, Any], context: click.Context) -> str | None:
    """In this order: option on the command line, MAILMEND_PASSWORD, other option values, files."""
    sources: Mapping[str, Callable[[Any], str]] = {"password_file": first_line, "password_command": printed_password}
    named = [name for name in sources if options[name]]
    typed = [name for name in named if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    stated = stated_secret(context, "password")
    if stated and not typed:
        return stated
    for name in (*typed, *named):
        return sources[name](options[name])
    files: Mapping[str, Any] = context.find_root().default_map or {}
    return files.get("password")


def stated_secret(context: click.Context, name: str) -> str:
    """The secret that a Python program gave, else the one in the environment; "" without either.

    Args:
        context: of the command.
        name: like `broker_password`; the variable is MAILMEND_BROKER_PASSWORD.
    """
    given: Mapping[str, str] = context.meta.get(GIVEN, {})
    return given.get(name) or os.environ.get(f"MAILMEND_{name.upper()}") or ""


def printed_password(command: str) -> str:
    """The first line that a command prints; no message shows it or what the command writes to stderr."""
    refused = partial(BadSettings, mend="Run it by hand: its first line on stdout must be the password.")
    try:
        words = shlex.split(command)
        ended = subprocess.run(  # noqa: S603 - the person's own command
            words, stdout=subprocess.PIPE, timeout=PASSWORD_COMMAND_SECONDS, check=False,
            env=environment_of_others(os.environ),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise refused(f"the password command took longer than {PASSWORD_COMMAND_SECONDS} s") from None
    except (OSError, ValueError, IndexError) as error:
        reason = getattr(error, "strerror", None) or "it is not a command"
        raise refused(f"the password command cannot be run: {reason}") from None
    if ended.returncode:
        raise refused(f"the password command ended with {ended.returncode}")
    lines = ended.stdout.decode("utf-8", "replace").splitlines()
    if not lines or not lines[0]:
        raise refused("the password command printed no password")
    return lines[0]


def _typed_password(username: str | None, context: click.Context) -> str | None:
    """Ask for the password where only a role is named; None without a role. A program never asks."""
    if not username:
        return None
    from mailmend.admin.frame.terminal import hidden_password, somebody_types  # noqa: PLC0415 - only where somebody is asked

    if GIVEN in context.meta or not somebody_types():
        raise BadSettings(
            f"the password of {username!r} is not known", mend="Set MAILMEND_PASSWORD, or name a --password-file."
        )
    return hidden_password(username)


REPORT: Final = option(
    "--report",
    "Write a report as one HTML file, for you alone (mode 0600) unless it was there.",
    type=FILE,
    metavar="FILE.html",
)
METRICS_FILE: Final = option(
    "--metrics-file",
    "Write metrics for Prometheus's node_exporter: the metrics of this run, to a separate file that ends in .prom.",
    type=FILE,
    metavar="FILE",
)
ANONYMOUS: Final = flag("--anonymous", "Name no user and no path of a mailbox: ids only.")
FINDINGS: Final = option(
    "--findings",
    "Write every finding as a line of JSON: keys, rows, times; a new file is for you alone. - is "
    "stdout, and nothing else goes there.",
    type=FILE,
    metavar="FILE",
)


MAX_FIXES: Final = option(
    "--max-fixes",
    "Maximum number of fixes. If more are needed, ask (on a terminal) or stop before the first write.",
    type=click.IntRange(min=0),
    metavar="N",
)
ROWS_PER_SECOND: Final = option(
    "--rows-per-second",
    "Maximum number of rows to read and write per second, over all workers together.",
    type=click.IntRange(min=1),
    metavar="N",
)
PACE: Final = option(
    "--pace",
    "Whether the run makes way for others: auto pauses three times as long as each request took, and slows down while "
    "the cluster's answers are slow, time out, or compactions pile up; full never does. "
    "[default: auto in a job, else full]",
    type=click.Choice(["auto", "full"]),
)
WITHOUT: Final = option(
    "--without",
    "Leave out a column or a whole denormalised table that the keyspace lacks, or that is not to be touched: it is "
    "neither compared nor written; may be given again.",
    multiple=True,
    metavar="NAME",
)
STAGING: Final = option(
    "--staging",
    "Keep what was read of each token range in this folder or bucket (s3a://bucket/prefix) until the run is complete: "
    "after an interruption the same command goes on there.",
    metavar="DIR|URL",
)


def _traffic(own: dict[str, Any], _: dict[str, Any], __: click.Context) -> Any:
    stay_seconds = None
    if own["longest_stay"]:
        stay_seconds = own["longest_stay"].total_seconds()
    traffic = imported("mailmend.admin.schema.measuring:GivenTraffic")
    return traffic(own["mails_per_second"], own["peak_mails_per_second"], stay_seconds)


_RATE: Final = click.FloatRange(min=0, min_open=True, max=1_000_000)
TRAFFIC: Final = Shared(
    "given",
    {
        "": (
            option(
                "--mails-per-second",
                "Mails enqueued a second, on average. [default: measured]",
                type=_RATE,
                metavar="N",
            ),
            option(
                "--peak-mails-per-second",
                "Mails enqueued a second in the busiest hour. [default: measured]",
                type=_RATE,
                metavar="N",
            ),
            option(
                "--longest-stay",
                "Longest time from enqueueing to the last try. [default: 5d, or more where the queue shows it]",
                type=Duration(timedelta(days=365), zero=False),
            ),
        )
    },
    _traffic,
)
"""What a person knows of the traffic better than the tables tell, as `given: GivenTraffic`."""
