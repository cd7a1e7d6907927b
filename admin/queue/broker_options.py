"""Options that name the broker of a queue: RabbitMQ, or Pulsar, by the address.

They are read from the settings file's table [queue] too.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import click
from click.core import ParameterSource

from mailmend.admin.frame.kinds import ParsedValue
from mailmend.admin.frame.options import GIVEN, settings_table, shared_file, shared_option, stated_secret
from mailmend.admin.frame.settings import (
    GUEST,
    PULSAR_FILE,
    first_line,
    has_password,
    is_pulsar,
    parse_broker,
    parse_management,
    parse_pulsar,
    reason_of,
    with_password,
)
from mailmend.mailqueue.broker_tls import BrokerTls
from mailmend.mailqueue.pulsar.settings import PulsarAuth, PulsarForm, PulsarSettings
from mailmend.mailqueue.rabbitmq.broker.settings import BrokerSettings, Form, ManagementSettings, QueueForm
from mailmend.model.errors import BadSettings, MailmendError, WrongUse

_ENTRY: Final = re.compile(r"((?:\\.|[^\\\s=:])+)(?:\s*[=:]\s*|\s+|$)(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_CONTINUED: Final = re.compile(r"(?<!\\)(?:\\\\)*\\\n\s*")
_CHARACTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_pulsar_properties(text: str) -> PulsarSettings:
    """Where Pulsar is, which namespace, and who we are; other properties are not looked at.

    Raises:
        BadSettings: something is missing, or no such thing; no secret is in the message.
    """
    found = properties_in(text)

    def value_of(name: str) -> str:
        value = found.get(name, "")
        why = ""
        if not value:
            why = "is missing"
        elif "${" in value:
            why = "is to be filled in by James"
        if why:
            raise BadSettings(f"{name} {why} in pulsar.properties", mend="Write the value there, or use --broker.")
        return value

    kind = found.get("authentication.type", PulsarAuth.NONE.value)
    if kind not in {auth.value for auth in PulsarAuth}:
        raise BadSettings(
            "authentication.type in pulsar.properties is not one that James knows",
            mend="Write no-auth, token or basic.",
        )
    username = ""
    password = ""
    match PulsarAuth(kind):
        case PulsarAuth.NONE:
            pass
        case PulsarAuth.TOKEN:
            password = value_of("authentication.token")
        case PulsarAuth.BASIC:
            username = value_of("authentication.basic.userId")
            password = value_of("authentication.basic.password")
    try:
        settings = replace(
            parse_pulsar(value_of("broker.uri")),
            admin=parse_management(value_of("admin.uri")),
            namespace=value_of("namespace"),
            username=username,
        )
    except MailmendError as error:
        raise BadSettings(f"pulsar.properties: {error.what}", mend=error.mend) from error
    return with_password(settings, password)


def properties_in(text: str) -> Mapping[str, str]:
    """A file of Java properties."""
    lines = _CONTINUED.sub(lambda found: found[0].partition("\\\n")[0], text.replace("\r\n", "\n")).split("\n")
    properties = dict[str, str]()
    for line in lines:
        stripped = line.strip()
        if stripped.startswith(("#", "!")):
            continue
        if found := _ENTRY.fullmatch(stripped):
            properties[_unescaped(found[1])] = _unescaped(found[2])
    return properties


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: _character(found[1]), text)


def _character(escape: str) -> str:
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _CHARACTERS.get(escape, escape)


TABLE: Final = "queue"
"""The table of the settings file."""

START_HERE: Final = "or start one here: mailmend local up --with rabbitmq,s3"
_NAME_BROKER: Final = f"Name one with --broker amqp://host:5672 or MAILMEND_BROKER; {START_HERE}"

_option = partial(shared_option, table=TABLE)
_file = partial(shared_file, table=TABLE)
BROKER_OPTIONS: Final = (
    _option(
        "--broker",
        "Message broker: amqp://user@host:5672/vhost, or amqps://. Password: MAILMEND_BROKER_PASSWORD. Of a queue over "
        "Pulsar, which has no tables: pulsar://[user@]host:6650/tenant/namespace, or pulsar+ssl://; without a user the "
        "password is a token. Or James's own file about Pulsar: file:///etc/james/conf/pulsar.properties.",
        type=ParsedValue("broker", str),
        metavar="URL",
    ),
    _file("--broker-password-file", "A file whose first line is the broker's password."),
    _option(
        "--broker-management",
        "The broker's HTTP API, http://host:15672; only it says how many messages are unacked. Of Pulsar: its admin "
        "API. [default: of Pulsar, port 8080 of its first host]",
        type=ParsedValue("management", lambda value: parse_management(str(value))),
        metavar="URL",
    ),
    _file("--broker-tls-ca", "Certificate of the authority that signed the broker's certificate."),
    _file("--broker-tls-cert", "Client certificate for the broker."),
    _file("--broker-tls-key", "Private key of that certificate."),
    _option(
        "--broker-form",
        "Type of queue that is declared where the queue does not exist yet; an existing queue is used as it is.",
        type=click.Choice([form.value for form in Form]),
        default=Form.CLASSIC.value,
    ),
    _option(
        "--broker-replicas",
        "Number of the broker's nodes that hold a new quorum queue.",
        type=click.IntRange(1, 9),
        default=1,
        metavar="N",
    ),
    _option(
        "--broker-james",
        "Which James is to read what is put into a queue over Pulsar. [default: told from what lies there, else 3.9]",
        type=click.Choice([form.value for form in PulsarForm]),
    ),
)

Local = Callable[[str], Mapping[str, str] | None]
"""How a local server of some kind is reached, where one runs that may be used."""


def broker_of(options: Mapping[str, Any], context: click.Context, local: Local) -> BrokerSettings:
    """The broker from options, environment and files together."""
    url = options["broker"]
    local_api = None
    if not url:
        contacts = contacts_of(local, "rabbitmq", "no message broker is named", _NAME_BROKER)
        url = contacts["amqp"]
        local_api = contacts.get("management")
    _refuse_typed_password(url, context)
    found = parse_broker(url)
    password = _broker_password(options, context, found.password)
    if not password and found.username != GUEST:
        raise BadSettings(
            f"the password of {found.username!r} at the broker is not known",
            mend="Set MAILMEND_BROKER_PASSWORD, or name a --broker-password-file.",
        )
    password = password or GUEST
    management = None
    if api := options["broker_management"] or local_api:
        management = ManagementSettings(api, found.username, password)
    return replace(
        found,
        password=password,
        tls=_broker_tls(options, secure=found.tls is not None),
        management=management,
        form=QueueForm(Form(options["broker_form"]), options["broker_replicas"]),
    )


def pulsar_of(options: Mapping[str, Any], context: click.Context) -> PulsarSettings:
    """Pulsar from options, environment and files together."""
    _refuse_typed_password(options["broker"], context)
    found = _pulsar_named(options["broker"])
    found = with_password(found, _broker_password(options, context, found.password))
    admin = options["broker_management"] or found.admin
    return replace(
        found,
        admin=admin,
        tls=_broker_tls(options, secure=found.tls is not None or admin.startswith("https:")),
    )


def _pulsar_named(url: str) -> PulsarSettings:
    """Pulsar by its address, or as a file of James's names it."""
    scheme, _, rest = url.partition("://")
    if scheme != PULSAR_FILE:
        return parse_pulsar(url)
    file = Path(unquote(rest))
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(
            f"{file} cannot be read: {reason_of(error)}", mend="Name James's pulsar.properties, readable by this user."
        ) from error
    return parse_pulsar_properties(text)


def target_of(options: Mapping[str, Any], context: click.Context) -> BrokerSettings | PulsarSettings:
    """The broker of a second queue: by `--to-broker` and its companions, and MAILMEND_TO_PASSWORD."""
    url = options["to_broker"]
    authority = existing(options["to_tls_ca"])
    _refuse_typed_password(url, context, "to_broker")
    found = _pulsar_named(url) if is_pulsar(url) else parse_broker(url)
    password = ""
    if options["to_password_file"]:
        password = first_line(options["to_password_file"])
    password = password or os.environ.get("MAILMEND_TO_PASSWORD") or found.password
    tls = found.tls
    if tls and authority:
        tls = replace(tls, ca=authority)
    management = options["to_management"]
    if isinstance(found, PulsarSettings):
        return replace(with_password(found, password), admin=management or found.admin, tls=tls)
    if not password and found.username != GUEST:
        raise BadSettings(
            f"the password of {found.username!r} at the broker is not known",
            mend="Set MAILMEND_TO_PASSWORD, or name a --to-password-file.",
        )
    password = password or GUEST
    api = None
    if management:
        api = ManagementSettings(management, found.username, password)
    form = QueueForm(Form(options["broker_form"]), options["broker_replicas"])
    return replace(found, password=password, tls=tls, management=api, form=form)


def _refuse_typed_password(url: str, context: click.Context, option: str = "broker") -> None:
    typed = context.get_parameter_source(option) is ParameterSource.COMMANDLINE
    if has_password(url) and typed and GIVEN not in context.meta:
        its = option.removesuffix("_broker")
        raise WrongUse(
            f"--{option.replace('_', '-')} holds a password, and every user of this machine can read command lines",
            mend=f"Leave it out there, and set MAILMEND_{its.upper()}_PASSWORD or name a --{its}-password-file.",
        )


def contacts_of(local: Local, kind: str, lacking: str, mend: str) -> Mapping[str, str]:
    contacts = local(kind)
    if contacts is None:
        raise WrongUse(lacking, mend=mend)
    return contacts


def _broker_password(options: Mapping[str, Any], context: click.Context, in_url: str) -> str:
    """In this order: file named on the command line, environment, other file, settings table, URL; "" where in none."""
    file = options["broker_password_file"]
    stated = stated_secret(context, "broker_password")
    if file and (context.get_parameter_source("broker_password_file") is ParameterSource.COMMANDLINE or not stated):
        return first_line(file)
    return stated or settings_table(context, TABLE).get("broker_password") or in_url


def _broker_tls(options: Mapping[str, Any], *, secure: bool) -> BrokerTls | None:
    authority = existing(options["broker_tls_ca"])
    certificate = existing(options["broker_tls_cert"])
    key = existing(options["broker_tls_key"])
    if secure:
        return BrokerTls(authority, certificate, key)
    if authority or certificate or key:
        raise WrongUse(
            "files for TLS are named, but the broker's address begins with amqp: or pulsar:",
            mend="Write amqps:// or pulsar+ssl:// .",
        )
    return None


def existing(file: Path | None) -> Path | None:
    if file and not file.expanduser().is_file():
        raise BadSettings(f"{file} does not exist", mend="It was named by an option, a settings file or a variable.")
    return file and file.expanduser()
