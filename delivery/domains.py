"""Domains as DNS and SMTP write them: in ASCII (IDNA 2008), or as the literal of an address (RFC 5321 4.1.3)."""

import re
from ipaddress import ip_address
from typing import Final

import idna

_NAME_MAX: Final = 253
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_LITERAL: Final = re.compile(r"\[(IPv6:)?([0-9A-Fa-f.:]+)\]", re.IGNORECASE)


def ascii_domain(domain: str) -> str | None:
    """The domain in small letters and ASCII, without a dot at its end; None where it is no domain."""
    name = domain.removesuffix(".").lower()
    if not name.isascii():
        try:
            name = idna.encode(name, uts46=True).decode("ascii").lower()
        except idna.IDNAError:
            return None
    return name if len(name) <= _NAME_MAX and all(map(_LABEL.fullmatch, name.split("."))) else None


def address_of_literal(domain: str) -> str | None:
    """The address that a literal such as `[192.0.2.1]` or `[IPv6:2001:db8::1]` names; None where it is none."""
    found = _LITERAL.fullmatch(domain)
    if not found:
        return None
    try:
        address = ip_address(found[2])
    except ValueError:
        return None
    return str(address) if (address.version == 6) == bool(found[1]) else None  # noqa: PLR2004 (the version of IP)
