"""Settings as values: parsed from texts, files and cqlshrc by pure functions; tests need no shell.

Precedence, lowest first: cqlshrc, settings file, environment, flags (DESIGN section 5). Secrets come from the
environment or from files only, and never show in a repr.
"""

import re
import tomllib
from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as CqlshrcError
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from model.errors import BadSettings, WrongUse
from model.schema.table import identifier

PORT_DEFAULT: Final = 9042
KEYSPACE_DEFAULT: Final = "apache_james"
LEDGER_KEYSPACE_DEFAULT: Final = "mailmend"
LOOPBACK: Final = "127.0.0.1"
PORT_MAX: Final = 65535
DELAY_MAX: Final = timedelta(days=1)
KEEP_MAX: Final = timedelta(days=3650)

_SECONDS_PER_UNIT: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,253})|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.%a-z]*")
_SPARK_SETTING: Final = re.compile(r"(spark[.][\w.-]+)=(.*)", re.DOTALL)
_SECRET_NAME: Final = re.compile(r"(?i)secret|password|token|access[.]?key")
_TOML_LINE: Final = re.compile(r"at line (\d+)")


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of a TLS connection: the authority that signed the nodes' certificates, and our own for nodes that ask.

    Attributes:
        hostnames: also demand that a certificate names the address that was dialled.
    """

    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    hostnames: bool = False


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Which cluster, which role, and which keyspaces."""

    hosts: tuple[str, ...] = (LOOPBACK,)
    port: int = PORT_DEFAULT
    local_dc: str | None = None
    keyspace: str = KEYSPACE_DEFAULT
    ledger_keyspace: str = LEDGER_KEYSPACE_DEFAULT
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Tls | None = None

    @property
    def place(self) -> str:
        """A short name of the cluster, for messages."""
        return f"{', '.join(self.hosts)} port {self.port}"


def parse_duration(text: str, *, maximum: timedelta = DELAY_MAX, zero: bool = True) -> timedelta:
    """Parse `60s`, `5m`, `1h`, `30d`, or a bare number of seconds.

    Raises:
        WrongUse: not a duration, or an absurd one: above the maximum, or zero where that has no meaning.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if not match:
        raise WrongUse(f"{text!r} is not a duration", mend="Write it like 60s, 5m or 1h.")
    seconds = float(match[1]) * _SECONDS_PER_UNIT[match[2] or "s"]
    if seconds > maximum.total_seconds():
        raise WrongUse(f"{text!r} is longer than {format_duration(maximum)}, the longest that makes sense here")
    if not seconds and not zero:
        raise WrongUse(f"{text!r} is no time at all", mend="Write it like 60s, 5m or 1h.")
    return timedelta(seconds=seconds)


def format_duration(duration: timedelta) -> str:
    """In its largest whole unit, as `parse_duration` reads it."""
    seconds = duration.total_seconds()
    for unit in ("d", "h", "m"):
        if seconds and seconds % _SECONDS_PER_UNIT[unit] == 0:
            return f"{seconds / _SECONDS_PER_UNIT[unit]:.0f}{unit}"
    return f"{seconds:g}s"


def parse_hosts(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Host names or addresses; each text may be a list with commas.

    Raises:
        WrongUse: something that is neither a name nor an address.
    """
    hosts = tuple(host.strip() for text in texts for host in text.split(",") if host.strip())
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise WrongUse(f"{host!r} is not a host name or address", mend="Give the port apart, with --port.")
    return hosts


def parse_port(value: int) -> int:
    """The port, if it is a valid number.

    Raises:
        WrongUse: not a port.
    """
    if not 0 < value <= PORT_MAX:
        raise WrongUse(f"{value} is not a port", mend=f"Ports lie between 1 and {PORT_MAX}; Cassandra's is 9042.")
    return value


def parse_spark_setting(text: str) -> tuple[str, str]:
    """A Spark setting, as spark-submit takes it: `spark.executor.memory=2g`.

    Raises:
        WrongUse: not a setting, or by its name a secret: command lines are public.
    """
    found = _SPARK_SETTING.fullmatch(text.strip())
    if not found:
        raise WrongUse(
            f"{text.partition('=')[0]!r} is not a setting of Spark", mend="Write it like spark.executor.memory=2g."
        )
    if _SECRET_NAME.search(found[1]):
        raise WrongUse(
            f"{found[1]} looks like a secret, and every user of this machine can read command lines",
            mend="Write it into spark-defaults.conf, in the folder that SPARK_CONF_DIR names.",
        )
    return found[1], found[2]


def parse_keyspace(name: str) -> str:
    """The keyspace's name as CQL reads it unquoted.

    Raises:
        BadIdentifier: not a name in CQL.
    """
    return identifier(name, "keyspace")


def parse_settings(text: str, file: Path) -> dict[str, Any]:
    """The settings file's contents, with keys as Python names.

    Raises:
        BadSettings: not TOML; the message names file and line.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = _TOML_LINE.search(str(error))
        place = f"{file}, line {line[1]}" if line else f"{file}, at its end"
        raise BadSettings(f"{place}: not TOML: {error}", mend="Write each setting as: name = value") from error
    return _with_python_names(document)


def line_of(text: str, key: str) -> int:
    """The line number of a setting (its first mention), for messages."""
    wanted = re.compile(rf"\s*\[?[\w.\-]*\b{re.escape(key).replace('_', '[-_]')}\b")
    return next((number for number, line in enumerate(text.splitlines(), 1) if wanted.match(line)), 1)


def parse_cqlshrc(text: str, file: Path) -> dict[str, Any]:
    """The settings of a cqlshrc, under the names of the settings file.

    Raises:
        BadSettings: not an ini file, or its port is no number.
    """
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
    host, port = text("connection", "hostname"), text("connection", "port")
    return {
        "host": [host] if host else None,
        "port": int(port) if port else None,
        "keyspace": text("authentication", "keyspace"),
        "username": text("authentication", "username"),
        "password": text("authentication", "password"),
        "credentials": text("authentication", "credentials"),
        "tls_ca": text("ssl", "certfile") if tls else None,
        "tls_cert": text("ssl", "usercert") if tls else None,
        "tls_key": text("ssl", "userkey") if tls else None,
        "tls": True if tls else None,
    }


def parse_credentials(text: str, file: Path) -> dict[str, Any]:
    """Username and password from cqlsh's credentials file.

    Raises:
        BadSettings: not an ini file; the message never shows a line of it.
    """
    parser = ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except CqlshrcError:
        raise BadSettings(f"{file} cannot be read as a credentials file of cqlsh") from None
    for section in ("plain_text_auth", "PlainTextAuthProvider"):
        if parser.has_section(section):
            return {
                name: parser.get(section, name) for name in ("username", "password") if parser.has_option(section, name)
            }
    return {}


def settings_path(environment: Mapping[str, str], home: Path) -> Path:
    """The default path of the settings file (XDG base directories; a relative one is ignored)."""
    stated = Path(environment.get("XDG_CONFIG_HOME", ""))
    return (stated if stated.is_absolute() else home / ".config") / "mailmend" / "config.toml"


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


def _with_python_names(document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name.replace("-", "_"): _with_python_names(value) if isinstance(value, dict) else value
        for name, value in document.items()
    }
