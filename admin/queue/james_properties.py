"""The broker of James's mail queue as its own `pulsar.properties` names it. Pure."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from mailmend.admin.frame.settings import parse_management, parse_pulsar, with_password
from mailmend.mailqueue.pulsar.broker.settings import PulsarAuth, PulsarSettings
from mailmend.model.errors import BadSettings, MailmendError

_ENTRY: Final = re.compile(r"((?:\\.|[^\\\s=:])+)(?:\s*[=:]\s*|\s+|$)(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_CONTINUED: Final = re.compile(r"(?<!\\)(?:\\\\)*\\\n\s*")
_CHARACTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LOGINS: Final = {
    PulsarAuth.NONE: (),
    PulsarAuth.TOKEN: ("authentication.token",),
    PulsarAuth.BASIC: ("authentication.basic.userId", "authentication.basic.password"),
}


def parse_pulsar_properties(text: str) -> PulsarSettings:
    """Where Pulsar is, which namespace, and who we are; other properties are not looked at.

    Raises:
        BadSettings: something is missing, or no such thing; no secret is in the message.
    """
    found = properties_in(text)

    def value_of(name: str) -> str:
        value = found.get(name, "")
        if not value or "${" in value:
            why = "is to be filled in by James" if value else "is missing"
            raise BadSettings(f"{name} {why} in pulsar.properties", mend="Write the value there, or use --broker.")
        return value

    kind = found.get("authentication.type", PulsarAuth.NONE.value)
    if kind not in {auth.value for auth in PulsarAuth}:
        raise BadSettings(
            "authentication.type in pulsar.properties is not one that James knows",
            mend="Write no-auth, token or basic.",
        )
    login = [value_of(name) for name in _LOGINS[PulsarAuth(kind)]]
    try:
        settings = replace(
            parse_pulsar(value_of("broker.uri")),
            admin=parse_management(value_of("admin.uri")),
            namespace=value_of("namespace"),
            username=login[0] if len(login) > 1 else "",
        )
    except MailmendError as error:
        raise BadSettings(f"pulsar.properties: {error.what}", mend=error.mend) from error
    return with_password(settings, login[-1] if login else "")


def properties_in(text: str) -> Mapping[str, str]:
    """A file of Java properties."""
    lines = _CONTINUED.sub(lambda found: found[0].partition("\\\n")[0], text.replace("\r\n", "\n")).split("\n")
    entries = (_ENTRY.fullmatch(line.strip()) for line in lines if line.strip()[:1] not in {"", "#", "!"})
    return {_unescaped(found[1]): _unescaped(found[2]) for found in entries if found}


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: _character(found[1]), text)


def _character(escape: str) -> str:
    return chr(int(escape[1:], 16)) if len(escape) > 1 else _CHARACTERS.get(escape, escape)
