"""Settings as values, parsed from texts by pure functions: the cluster, the queue's broker, the blobs.

Secrets come from the environment or from files only, and never show in a repr. A URL on the command
line is in the process list for every user to read, so a password in it is refused there; one from
the environment or from the settings file may hold it, as RabbitMQ's own URIs do. Every `parse_`
raises WrongUse for a text that it cannot read, without showing a secret of it.
"""

import re
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit
from uuid import UUID

from mailmend.mailqueue.blobs.s3 import S3Settings
from mailmend.mailqueue.broker_tls import BrokerTls
from mailmend.mailqueue.pulsar.settings import PulsarAuth, PulsarForm, PulsarSettings
from mailmend.mailqueue.rabbitmq.broker.settings import AMQP_PORT, BrokerSettings, Host
from mailmend.mailqueue.rules.blob_ids import BlobNaming, BlobsMode
from mailmend.model.durations import format_duration
from mailmend.model.errors import BadSettings, WrongUse
from mailmend.model.grammar import can_be_looked_up, is_here
from mailmend.model.ids import QueueName
from mailmend.model.names import keyspace_spelling

PORT_DEFAULT: Final = 9042
KEYSPACE_DEFAULT: Final = "apache_james"
LEDGER_KEYSPACE_DEFAULT: Final = "mailmend"
LOOPBACK: Final = "127.0.0.1"
PORT_MAX: Final = 65535
KEEP_MAX: Final = timedelta(days=3650)

_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,253})|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.%a-z]*")
_SPARK_SETTING: Final = re.compile(r"(spark[.][\w.-]+)=(.*)", re.DOTALL)
_SECRET_NAME: Final = re.compile(r"(?i)secret|password|token|access[.]?key")


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of a TLS connection: the authority that signed the nodes' certificates, and our own for nodes that ask.

    Attributes:
        hostnames: also demand that a certificate names the address that was dialled; always where no authority is
            named, because the system's authorities sign any name.
    """

    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    hostnames: bool = False


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Which cluster, which role, which keyspaces; and the declared job on whose behalf ("" by hand), with its run."""

    hosts: tuple[str, ...] = (LOOPBACK,)
    port: int = PORT_DEFAULT
    local_dc: str | None = None
    keyspace: str = KEYSPACE_DEFAULT
    ledger_keyspace: str = LEDGER_KEYSPACE_DEFAULT
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    job: str = ""
    job_run: UUID | None = None

    def is_pressed(self, pace: str | None) -> bool:
        """Whether a run slows down while the cluster suffers: with `auto`, and in a job unless it says `full`."""
        return pace == "auto" or (pace is None and bool(self.job))

    def __post_init__(self) -> None:
        """Refuses one keyspace for both: mails and the ledger would mix their tables."""
        if self.keyspace == self.ledger_keyspace:
            raise BadSettings(
                f"{self.keyspace} is given as the mail keyspace and as the ledger keyspace",
                mend="Name the mail keyspace with --keyspace; the ledger is a keyspace of mailmend's own, "
                f"{LEDGER_KEYSPACE_DEFAULT} unless --ledger-keyspace names another.",
            )

    @property
    def place(self) -> str:
        return f"{', '.join(self.hosts)} port {self.port}"


def typed_as(value: Any) -> list[str]:
    """The words that are typed behind an option's name, one for each time it is given; "" for a flag."""
    match value:
        case True:
            return [""]
        case frozenset():
            return [",".join(sorted(plain(element) for element in value))]
        case tuple():
            words = []
            for element in value:
                if isinstance(element, tuple):
                    words.append("=".join(element))
                else:
                    words += typed_as(element)
            return words
        case _:
            return [str(plain(value))]


def plain(value: Any) -> Any:
    """The value of an option in JSON's types."""
    match value:
        case timedelta():
            return format_duration(value)
        case Enum():
            return value.value
        case tuple():
            return [str(element) for element in value]
        case _:
            return value


def parse_hosts(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Host names or addresses; each text may be a list with commas."""
    hosts: list[str] = []
    for text in texts:
        hosts += filter(None, map(str.strip, text.split(",")))
    for host in hosts:
        if not _is_host(host):
            raise WrongUse(f"{host!r} is not a host name or address", mend="Give the port apart, with --port.")
    return tuple(hosts)


def _is_host(text: str) -> bool:
    return _HOST.fullmatch(text) is not None and can_be_looked_up(text)


def parse_port(value: int) -> int:
    if not 0 < value <= PORT_MAX:
        raise WrongUse(f"{value} is not a port", mend=f"Ports lie between 1 and {PORT_MAX}; Cassandra's is 9042.")
    return value


def parse_spark_setting(text: str) -> tuple[str, str]:
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
    return keyspace_spelling(name)


def first_line(file: Path) -> str:
    """The password in a file; BadSettings where the file has none."""
    try:
        lines = file.expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"password file {file} cannot be read: {reason_of(error)}") from error
    if not lines or not lines[0]:
        raise BadSettings(f"password file {file} is empty", mend="Its first line must be the password.")
    return lines[0]


def reason_of(error: Exception) -> str:
    """Why a file could not be read or written, without its contents."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return "it is not UTF-8 text"


AMQPS_PORT: Final = 5671
GUEST: Final = "guest"
NAMESPACE_DEFAULT: Final = "public/default"
PULSAR_FILE: Final = "file"
"""Where the address of a broker has this scheme, it names a `pulsar.properties` of James's."""
QUEUE_DEFAULT: Final = "spool"
"""James's queue of mails that wait for its processors; mails on their way to other servers are in `outgoing`."""


class Store(Enum):
    """The kind of store that holds the blobs."""

    S3 = "s3"
    FILES = "file"
    CASSANDRA = "cassandra"


@dataclass(frozen=True, slots=True)
class BlobsAddress:
    """Where the bytes of mails are, without the keys to it.

    Attributes:
        bucket: of an S3 store; empty for files.
        endpoint: of an S3 store; Amazon's own in that region where none is named.
        allow_http: whether mails may travel in the clear; within this machine they may.
        folder: of files.
        naming: how new blobs are named; None: as the caller does it. Whatever is there is read as it is.
    """

    store: Store
    bucket: str = ""
    endpoint: str = ""
    region: str = "us-east-1"
    allow_http: bool = False
    folder: Path = Path()
    naming: BlobNaming | None = None

    @property
    def place(self) -> str:
        match self.store:
            case Store.FILES:
                return str(self.folder)
            case Store.CASSANDRA:
                return "the mail keyspace"
            case Store.S3:
                return f"the bucket {self.bucket} at {self.endpoint}"


class BlobsSettings(NamedTuple):
    """The address, with the keys where it is a bucket."""

    address: BlobsAddress
    bucket: S3Settings | None = None

    @property
    def place(self) -> str:
        return self.address.place


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Which queue, and where its parts are; None: the command does not need it.

    Attributes:
        pulsar: where the queue is one over Pulsar: then it has no tables, and no other broker.
        james: which James is to read what is put into a queue over Pulsar; None: that is told from what lies there.
    """

    connection: ConnectionSettings
    name: QueueName
    broker: BrokerSettings | None = None
    blobs: BlobsSettings | None = None
    pulsar: PulsarSettings | None = None
    james: PulsarForm | None = None


def parse_broker(text: str) -> BrokerSettings:
    """Parse `amqp://[user[:password]@]host[:port][,host...][/vhost]`, or `amqps://`."""
    parts = _split(text, _BROKER_FORM)
    user, _, hosts = parts.netloc.rpartition("@")
    if parts.scheme not in {"amqp", "amqps"} or not hosts or parts.query or parts.fragment:
        raise _not_a(text, "broker", _BROKER_FORM)
    port = AMQP_PORT
    tls = None
    if parts.scheme == "amqps":
        port = AMQPS_PORT
        tls = BrokerTls()
    name, _, password = user.partition(":")
    return BrokerSettings(
        hosts=tuple(_host(place, port) for place in hosts.split(",")),
        vhost=unquote(parts.path.removeprefix("/")) or "/",
        username=unquote(name) or GUEST,
        password=unquote(password),
        tls=tls,
    )


def is_pulsar(url: str) -> bool:
    """Whether it names Pulsar, itself or by James's file about it."""
    return url.partition("://")[0] in {*_PULSAR_PORTS, PULSAR_FILE}


def parse_pulsar(text: str) -> PulsarSettings:
    """Parse `pulsar://[user[:password]@]host[:port][,host...][/tenant/namespace]`, or `pulsar+ssl://`.

    A password without a user is a token. The admin API is taken to be at the first host, at its usual port.
    """
    parts = _split(text, _PULSAR_FORM)
    user, _, hosts = parts.netloc.rpartition("@")
    if parts.scheme not in _PULSAR_PORTS or not hosts or parts.query or parts.fragment:
        raise _not_a(text, "Pulsar", _PULSAR_FORM)
    name, _, password = map(unquote, user.partition(":"))
    found = [_host(place, _PULSAR_PORTS[parts.scheme]) for place in hosts.split(",")]
    admin = f"http://{found[0].name}:8080"
    tls = None
    if parts.scheme == "pulsar+ssl":
        admin = f"https://{found[0].name}:8443"
        tls = BrokerTls()
    settings = PulsarSettings(
        service=f"{parts.scheme}://{','.join(map(str, found))}",
        admin=admin,
        tls=tls,
        namespace=unquote(parts.path.strip("/")) or NAMESPACE_DEFAULT,
    )
    return with_password(replace(settings, username=name), password)


def with_password(settings: PulsarSettings, password: str) -> PulsarSettings:
    """With a user it is the user's password; without a user it is a token; without either there is no login."""
    if settings.username:
        auth = PulsarAuth.BASIC
    elif password:
        auth = PulsarAuth.TOKEN
    else:
        auth = PulsarAuth.NONE
    return replace(settings, password=password, auth=auth)


def parse_management(text: str) -> str:
    """Parse the address of the broker's HTTP API: `http://host:15672`, or `https://`."""
    parts = _split(text, _MANAGEMENT_FORM)
    if parts.scheme not in {"http", "https"} or not parts.netloc or "@" in parts.netloc:
        raise _not_a(text, "broker's HTTP API", _MANAGEMENT_FORM)
    _host(parts.netloc, AMQP_PORT)
    return text.strip().rstrip("/")


def parse_blobs(text: str) -> BlobsAddress:
    """Parse `s3://bucket[?endpoint=URL&region=NAME]`, `file:///folder` or `cassandra:`."""
    parts = _split(text, _BLOBS_FORM)
    match parts.scheme:
        case "s3":
            return _s3(text, parts)
        case "file" if parts.path.startswith("/") and not parts.netloc:
            settings = _settings_of(text, parts, _SETTINGS_OF_ALL)
            return BlobsAddress(Store.FILES, folder=Path(unquote(parts.path)), naming=_naming(text, settings))
        case "cassandra" if not parts.netloc and not parts.path:
            settings = _settings_of(text, parts, _SETTINGS_OF_ALL)
            return BlobsAddress(Store.CASSANDRA, naming=_naming(text, settings))
        case _:
            raise _not_a(text, "store of blobs", _BLOBS_FORM)


def has_password(url: str) -> bool:
    user = url.partition("://")[2].partition("/")[0].rpartition("@")[0]
    return ":" in user


def without_secrets(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    if not mark:
        return _without_user_and_query(url)
    return f"{scheme}://{_without_user_and_query(rest)}"


def _without_user_and_query(rest: str) -> str:
    return rest.rpartition("@")[2].partition("?")[0]


_BROKER_FORM: Final = "Write it like amqp://broker.example.org:5672/vhost, or amqps:// for an encrypted connection."
_PULSAR_FORM: Final = "Write it like pulsar://broker.example.org:6650/tenant/namespace, or pulsar+ssl:// with TLS."
_PULSAR_PORTS: Final = {"pulsar": 6650, "pulsar+ssl": 6651}
_MANAGEMENT_FORM: Final = "Write it like http://broker.example.org:15672."
_BLOBS_FORM: Final = (
    "Write it like s3://bucket?endpoint=https://s3.example.org&region=eu-1, file:///var/lib/mail/blobs, or "
    "cassandra: for the mail keyspace's own tables; with ?ids=deduplicated behind it where James has it so."
)
_SETTINGS_OF_ALL: Final = frozenset({"ids"})
_SETTINGS_OF_S3: Final = _SETTINGS_OF_ALL | {"endpoint", "region", "allow_http"}
_YES: Final = frozenset({"1", "true", "yes"})


def refuse_missing_folder(address: BlobsAddress) -> None:
    """Refuse a store that is a folder which is not there; who stores nothing makes none."""
    if address.store is Store.FILES and not address.folder.expanduser().is_dir():
        raise WrongUse(
            f"there is no folder {address.folder}, where blobs are to be read",
            mend="See --blobs, MAILMEND_BLOBS or the settings file: is it the right one, and its disk mounted?",
        )


def _s3(text: str, parts: SplitResult) -> BlobsAddress:
    if "@" in parts.netloc:
        raise WrongUse(
            "the address of the blobs holds keys, which do not belong there",
            mend="Set MAILMEND_S3_ACCESS_KEY and MAILMEND_S3_SECRET_KEY, or name --s3-keys-file.",
        )
    settings = _settings_of(text, parts, _SETTINGS_OF_S3)
    region = settings.get("region", "us-east-1")
    endpoint = settings.get("endpoint", f"https://s3.{region}.amazonaws.com").rstrip("/")
    found = _split(endpoint, _BLOBS_FORM)
    if found.scheme not in {"http", "https"} or not found.netloc or not parts.netloc or parts.path.strip("/"):
        raise _not_a(text, "store of blobs", _BLOBS_FORM)
    return BlobsAddress(
        Store.S3,
        bucket=parts.netloc,
        endpoint=endpoint,
        region=region,
        allow_http=settings.get("allow_http", "").lower() in _YES or is_here(found.hostname or ""),
        naming=_naming(text, settings),
    )


def _settings_of(text: str, parts: SplitResult, known: frozenset[str]) -> dict[str, str]:
    settings = dict(parse_qsl(parts.query, keep_blank_values=True))
    if set(settings) - known or parts.fragment:
        raise _not_a(text, "store of blobs", _BLOBS_FORM)
    return settings


def _naming(text: str, settings: dict[str, str]) -> BlobNaming | None:
    modes = {mode.value: mode for mode in BlobsMode}
    mode = settings.get("ids")
    if mode is None:
        return None
    if mode not in modes:
        raise _not_a(text, "store of blobs", _BLOBS_FORM)
    return BlobNaming(modes[mode])


def _split(text: str, form: str) -> SplitResult:
    try:
        return urlsplit(text.strip())
    except ValueError as error:
        raise WrongUse(f"{without_secrets(text)!r} is no URL", mend=form) from error


def _host(text: str, port: int) -> Host:
    """Parse a name or address with its port; an IPv6 address is written in brackets."""
    parts = _split(f"//{text}", _BROKER_FORM)
    try:
        stated = parts.port
    except ValueError as error:
        raise WrongUse(f"{text!r} has no valid port", mend="Ports lie between 1 and 65535.") from error
    if not parts.hostname or not _is_host(parts.hostname):
        raise WrongUse(f"{text!r} is not a host", mend=_BROKER_FORM)
    if stated is not None:
        port = parse_port(stated)
    return Host(parts.hostname, port)


def _not_a(text: str, what: str, form: str) -> WrongUse:
    return WrongUse(f"{without_secrets(text)!r} is not the address of a {what}", mend=form)
