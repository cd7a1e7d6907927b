"""The description of `transports`: its parts, how values are written, how answers show them."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from mailmend.delivery.transports import (
    ConnectionReuse,
    DeliveryProtocol,
    SigningKey,
    SigningKeys,
    SourceAddress,
    StageTimeouts,
    TlsLevel,
    TransportHop,
)
from mailmend.model.file_forms import (
    ANY_VALUE,
    FileForm,
    FilePart,
    Scalar,
    by_name,
    list_schema,
    one_or_more,
    whole,
)
from mailmend.model.json_forms import JsonField

CONNECTION_MAILS_MAX: Final = 10_000
_LEVELS: Final = [level.value for level in TlsLevel]
_PROTOCOLS: Final = [protocol.value for protocol in DeliveryProtocol]
_LABEL: Final = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_BELOW_60000: Final = "[1-9][0-9]{0,3}|[1-5][0-9]{4}"
_PORT: Final = rf"0*(?:{_BELOW_60000}|6[0-4][0-9]{{3}}|65[0-4][0-9]{{2}}|655[0-2][0-9]|6553[0-5])"
_SECONDS: Final = r"(?=[0-9.]*[1-9])(?:[0-9]{1,4}(?:\.[0-9]{1,6})?|\.[0-9]{1,6})"

TLS: Final = Scalar(
    "|".join(_LEVELS),
    lambda found: TlsLevel(found[0]),
    "is no level of TLS",
    f"There are: {', '.join(_LEVELS)}.",
    form={"enum": _LEVELS},
)
PROTOCOL: Final = Scalar(
    "|".join(_PROTOCOLS),
    lambda found: DeliveryProtocol(found[0]),
    "is no protocol here",
    f"There are: {', '.join(_PROTOCOLS)}.",
    form={"enum": _PROTOCOLS},
)
TIMEOUT: Final = Scalar(
    _SECONDS,
    lambda found: timedelta(seconds=float(found[0])),
    "is no time limit",
    "Write seconds, more than 0 and less than 10000, like 30 or 0.5.",
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 10_000},
)
CONNECTION_MAILS: Final = Scalar(
    "0*(?:[1-9][0-9]{0,3}|10000)",
    lambda found: int(found[0]),
    "is no number of mails of a connection",
    f"Write 1, which keeps no connection open, to {CONNECTION_MAILS_MAX}.",
    {"type": "integer", "minimum": 1, "maximum": CONNECTION_MAILS_MAX},
)
PORT: Final = Scalar(
    _PORT,
    lambda found: int(found[0]),
    "is no port",
    "Write 1 to 65535.",
    {"type": "integer", "minimum": 1, "maximum": 65_535},
)
SELECTOR: Final = Scalar(
    rf"{_LABEL}(?:\.{_LABEL})*",
    lambda found: found[0].lower(),
    "is no selector of DKIM",
    "Write it like s2026: the name before ._domainkey in DNS.",
    form={**ANY_VALUE, **whole(rf"{_LABEL}(?:\.{_LABEL})*")},
)
VARIABLE: Final = Scalar(
    "[A-Za-z_][A-Za-z0-9_]*",
    lambda found: found[0],
    "is no name of an environment variable",
    "Write it like RELAY_PASSWORD.",
    form={**ANY_VALUE, **whole("[A-Za-z_][A-Za-z0-9_]*")},
)

SOURCE: Final = FileForm(
    what="a source",
    parts=(
        FilePart("address", ANY_VALUE, "An address of this machine."),
        FilePart(
            "helo",
            ANY_VALUE,
            "What the server calls itself there, in EHLO; else the name of this host.",
        ),
    ),
    required=("address",),
)
TIMEOUTS: Final = FileForm(
    what="timeouts",
    parts=(
        FilePart("connect", TIMEOUT, "Seconds until the connection is there."),
        FilePart("tls", TIMEOUT, "From STARTTLS until it is secured."),
        FilePart("greeting", TIMEOUT, "For the first line, for EHLO, and for each step of AUTH."),
        FilePart("command", TIMEOUT, "For MAIL, RCPT and RSET."),
        FilePart("data", TIMEOUT, "For DATA, and for each piece of the mail."),
        FilePart("end", TIMEOUT, "For the reply to the end of the mail."),
    ),
    meaning="Seconds that a server may take; what is not named is as RFC 5321 says.",
)
REUSE: Final = FileForm(
    what="reuse",
    parts=(
        FilePart("mails", CONNECTION_MAILS, "Of one connection; 1 keeps none open.", "mails_max"),
        FilePart("idle", TIMEOUT, "Seconds for which an unused connection is kept."),
    ),
)
NEXT_HOP: Final = FileForm(
    what="nexthop",
    parts=(
        FilePart("host", ANY_VALUE, "A name, or an address."),
        FilePart("port", PORT, "Of that server; else 25."),
        FilePart("user", ANY_VALUE, "Whom the server logs in as (AUTH)."),
        FilePart("passwordfile", ANY_VALUE, "Its first line is the password.", "password_file"),
        FilePart("passwordenv", VARIABLE, "A variable that has it.", "password_variable"),
    ),
    required=("host",),
)
DKIM_KEY: Final = FileForm(
    what="a key of DKIM",
    parts=(
        FilePart("selector", SELECTOR, "The name of the public key in DNS, before ._domainkey."),
        FilePart("key", ANY_VALUE, "The file of the private key, in PEM.", "file"),
    ),
    required=("selector", "key"),
)


def _sources_json(sources: Iterable[SourceAddress] | None) -> list[dict[str, Any]] | None:
    if sources is None:
        return None
    return [{"address": source.address, "helo": source.helo or None} for source in sources]


def _value_json(value: TlsLevel | DeliveryProtocol | None) -> str | None:
    if value is None:
        return None
    return str(value.value)


def _timeouts_json(timeouts: StageTimeouts | None) -> dict[str, float] | None:
    if timeouts is None:
        return None
    return {name: getattr(timeouts, name).total_seconds() for name in TIMEOUTS.names}


def _reuse_json(reuse: ConnectionReuse | None) -> dict[str, float] | None:
    if reuse is None:
        return None
    return {"mails": reuse.mails_max, "idle": reuse.idle.total_seconds()}


def _hop_json(hop: TransportHop | None) -> dict[str, Any] | None:
    """Without the login, but for whether there is one."""
    if hop is None:
        return None
    return {"host": hop.host, "port": hop.port, "auth": hop.login is not None}


def _keys_json(keys: SigningKeys | None) -> dict[str, list[str]] | None:
    if keys is None:
        return None
    return {domain: _selectors(found) for domain, found in keys.items()}


def _selectors(keys: Iterable[SigningKey]) -> list[str]:
    return [key.selector for key in keys]


TRANSPORT: Final = FileForm(
    what="a transport",
    parts=(
        FilePart(
            "sources",
            list_schema(SOURCE.schema),
            "Addresses that its mails are sent from, in turn.",
        ),
        FilePart("tls", TLS, "How connections are secured."),
        FilePart("protocol", PROTOCOL, "How the next server is spoken to."),
        FilePart("timeouts", TIMEOUTS.schema),
        FilePart("reuse", REUSE.schema, "Which connections are kept for the next mail."),
        FilePart("nexthop", NEXT_HOP.schema, "The server that takes all of its mails.", "next_hop"),
        FilePart(
            "dkim",
            by_name(one_or_more(DKIM_KEY.schema)),
            "Keys by the domain of the From field, or by a domain above it.",
            "keys",
        ),
    ),
    meaning="How mails are sent. What it does not say, the transport '*' says, else the server.",
    body="TransportBody",
    about="How mails of a transport are sent; null is what it does not say.",
    answers={
        "transport": JsonField(str, "`*`: what the others do not say.", None),
        "line": JsonField(int | None, "", None),
        "sources": JsonField(list[dict[str, str | None]] | None, "", to_json=_sources_json),
        "tls": JsonField(str | None, "", to_json=_value_json),
        "protocol": JsonField(str | None, "", to_json=_value_json),
        "timeouts": JsonField(dict[str, float] | None, "In seconds.", to_json=_timeouts_json),
        "reuse": JsonField(dict[str, float] | None, "Idle in seconds.", to_json=_reuse_json),
        "nexthop": JsonField(
            dict[str, str | int | bool] | None,
            "Its host and port, and whether the server logs in there.",
            "next_hop",
            _hop_json,
        ),
        "dkim": JsonField(dict[str, list[str]] | None, "Selectors by domain.", "keys", _keys_json),
    },
)
