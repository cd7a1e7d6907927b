"""The grammar of what a mail can have: a domain, a host, an address, a network, a mailbox, a name. Pure.

Policy files, commands, hooks and HTTP routes read such values here. Each reader gives the one normal form in which
values are compared, which it gives again for itself, or refuses what no mail can have, and says what may have been
meant. Domains are in ASCII as DNS and SMTP write them (IDNA 2008), or the literal of an address (RFC 5321 4.1.3).
"""

import re
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from mailmend.model.errors import WrongUse

NAME_LENGTH_MAX: Final = 1_000
"""Characters of a name, such as a job's; a longer one is refused."""

_DOMAIN_LENGTH_MAX: Final = 253
_MAILBOX_LENGTH_MAX: Final = 320
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_LITERAL: Final = re.compile(r"\[(IPv6:)?([0-9A-Fa-f.:]+)\]", re.IGNORECASE)
_ATOMS: Final = re.compile(r"[^\s()<>,;:\\\"@\[\]]+")
_MAPPED_BITS: Final = 96
_SHOWN: Final = 60
"""Characters of a refused value that are shown."""


def ascii_domain(domain: str) -> str | None:
    """The domain in small letters and ASCII, without a dot at its end; None where it is no domain."""
    if len(domain) > NAME_LENGTH_MAX:
        return None
    name = domain.removesuffix(".").lower()
    if not name.isascii():
        import idna  # noqa: PLC0415 - mailmend[delivery] brings it; domains in ASCII do without

        try:
            name = idna.encode(name, uts46=True).decode("ascii").lower()
        except idna.IDNAError:
            return None
    if len(name) > _DOMAIN_LENGTH_MAX or not all(map(_LABEL.fullmatch, name.split("."))):
        return None
    return name


def can_be_looked_up(host: str) -> bool:
    """Whether a resolver takes the host as a question: each of its labels has 1 to 63 characters.

    Python's sockets raise UnicodeError for any other text, which is no OSError.
    """
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def host_and_port(host: str, port: int | None) -> str:
    """A host and a port as an address has them: brackets stand around an IPv6 address."""
    if ":" in host:
        host = f"[{host}]"
    return f"{host}:{port}"


def is_here(host: str) -> bool:
    """Whether the host is this machine by its name or address alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address_of_literal(domain: str) -> str | None:
    """The address that a literal such as `[192.0.2.1]` or `[IPv6:2001:db8::1]` names; None for any other text."""
    found = _LITERAL.fullmatch(domain)
    if not found:
        return None
    try:
        address = ip_address(found[2])
    except ValueError:
        return None
    if (address.version == 6) != bool(found[1]):  # noqa: PLR2004 (the version of IP)
        return None
    return str(address)


def unmapped(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The address of IPv4 where it is written as one of IPv6 (`::ffff:192.0.2.1`); any other address as it is."""
    if isinstance(address, IPv6Address):
        return address.ipv4_mapped or address
    return address


def read_domain(text: str) -> str:
    """The domain of a mailbox in its normal form, or a literal of an address in small letters; no bare address.

    Raises:
        WrongUse: it is neither.
    """
    name = _domain(text)
    if name is None:
        raise _refused(text, "domain", read_domain, _bare_domain(text), "Write it like example.org.")
    return name


def read_server(text: str) -> str:
    """The name of a server, as of a domain, or its bare address where it has no name.

    Raises:
        WrongUse: it is neither.
    """
    name = _address(text) or _domain(text)
    if name is None:
        raise _refused(text, "name of a server", read_server, _bare_domain(text), "Write it like mx1.example.org.")
    return name


def read_address(text: str) -> str:
    """An IP address in its one spelling; an IPv4 address in IPv6 form becomes the IPv4 address.

    Raises:
        WrongUse: the text is not valid.
    """
    address = _address(text)
    if address is None:
        raise _refused(text, "address", read_address, _bare_address(text), "Write 192.0.2.1, or ::1.")
    return address


def read_network(text: str) -> IPv4Network | IPv6Network:
    """A network such as `192.0.2.0/24`; an IPv4 network in IPv6 form becomes the IPv4 network.

    Raises:
        WrongUse: the text is not a network, or it names an address within one.
    """
    try:
        network = ip_network(text)
    except ValueError:
        mend = "Write it like 192.0.2.0/24."
        meant = _network_around(text)
        if meant:
            mend = f"Did you mean {meant}?"
        raise WrongUse(f"{_shown(text)} is no network", mend=mend) from None
    first = unmapped(network.network_address)
    if isinstance(network, IPv6Network) and isinstance(first, IPv4Address) and network.prefixlen >= _MAPPED_BITS:
        return IPv4Network((first, network.prefixlen - _MAPPED_BITS))
    return network


def read_mailbox(text: str) -> str:
    """The address of a mailbox in small letters, its domain in the normal form of domains.

    Raises:
        WrongUse: the text is not valid.
    """
    if text == "<>":
        raise WrongUse("<> is no mailbox", mend="The null sender is the empty value: ''.")
    local, at, domain = text.rpartition("@")
    name = _domain(domain)
    if not at or name is None or len(text) > _MAILBOX_LENGTH_MAX or not _is_local(local):
        bare = text.strip().removeprefix("mailto:").strip("<>")
        raise _refused(text, "mailbox", read_mailbox, bare, "Write it like bob@example.org.")
    return f"{local.lower()}@{name}"


def read_name(text: str, what: str = "name") -> str:
    """A name that a mail's attribute may have, unchanged.

    Raises:
        WrongUse: it has a line break or another control character, blanks at an end, or too many characters.
    """
    if len(text) > NAME_LENGTH_MAX:
        raise WrongUse(f"a {what} of {len(text):,} characters is too long", mend=f"Write at most {NAME_LENGTH_MAX:,}.")
    if text != text.strip() or not text.isprintable():
        raise _refused(text, what, read_name, " ".join(text.split()), "Write it in one line, without blanks around it.")
    return text


def _refused(text: str, what: str, read: Callable[[str], str], bare: str, otherwise: str) -> WrongUse:
    """That a text is no such thing; and the bare part of it, where that is one."""
    mend = otherwise
    if bare and bare != text:
        with suppress(WrongUse):
            meant = read(bare)
            if meant:
                mend = f"Did you mean {meant!r}?"
    return WrongUse(f"{_shown(text)} is no {what}", mend=mend)


def _shown(text: str) -> str:
    if len(text) > _SHOWN:
        text = f"{text[:_SHOWN]}..."
    return repr(text)


def _bare_domain(text: str) -> str:
    """A text without what people put around a domain: a scheme, a mailbox, a port, dots, stars, quotes."""
    bare = text.strip()
    if "://" in bare:
        bare = re.split(r"[/?#]", bare.partition("://")[2], maxsplit=1)[0]
    return _without_port(bare.rpartition("@")[2].strip("<>'\"*.,; \t"))


def _bare_address(text: str) -> str:
    bare = text.strip()
    if "://" in bare:
        bare = re.split(r"[/?#]", bare.partition("://")[2], maxsplit=1)[0]
    literal = address_of_literal(bare)
    if literal:
        return literal
    bracketed = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](?::[0-9]+)?", bare)
    if bracketed:
        return bracketed[1]
    bare = _without_port(bare)
    parts = bare.split(".")
    if not all(map(str.isdigit, parts)):
        return bare
    return ".".join(part.lstrip("0") or "0" for part in parts)


def _without_port(text: str) -> str:
    """A host without the port behind its only colon; any other text as it is."""
    host, colon, port = text.rpartition(":")
    if colon and port.isdigit() and ":" not in host:
        return host
    return text


def _address(text: str) -> str | None:
    if " " in text or not text.isprintable():
        return None  # the name of an interface behind % could hold both
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return str(unmapped(address))


def _domain(text: str) -> str | None:
    domain = ascii_domain(text)
    if domain is None and address_of_literal(text):
        return text.lower()
    return domain


def _network_around(text: str) -> str:
    """The network that a text may mean: around an address within it, without blanks, with stars for its last parts."""
    bare = text.strip()
    starred = re.fullmatch(r"((?:[0-9]{1,3}\.){1,3})\*(?:\.\*)*", bare)
    if starred:
        parts = starred[1].rstrip(".").split(".")
        bare = ".".join([*parts, *["0"] * (4 - len(parts))]) + f"/{8 * len(parts)}"
    try:
        return str(ip_network(bare, strict=False))
    except ValueError:
        return ""


def _is_local(text: str) -> bool:
    """Whether a text may stand before the @ of an address, in quotes or without."""
    if len(text) > 1 and text.startswith('"') and text.endswith('"'):
        return text.isprintable()
    return _ATOMS.fullmatch(text) is not None and text.isprintable()


def wanted_domain(text: str, read: Callable[[str], str] = read_domain) -> str:
    """A domain to look for, in the form in which domains are compared; `*` stands for any text.

    Raises:
        WrongUse: no domain is like that.
    """
    below = text.removeprefix("*.")
    if not text or text == "*":
        return text
    if "*" not in below:
        if text.startswith("."):
            raise WrongUse(f"{_shown(text)} is no domain", mend=f"Did you mean {_shown('*' + text)}?")
        return text[: len(text) - len(below)] + read(below)
    if any(mark in text for mark in "@/,;<>()\"'") or not text.isprintable() or " " in text:
        raise WrongUse(f"{_shown(text)} is like no domain", mend="Write it like *.example.org; * stands for any text.")
    return text.lower()


def wanted_mailbox(text: str) -> str:
    """A mailbox to look for, in the form in which mailboxes are compared; `*` stands for any text.

    Raises:
        WrongUse: no mailbox is like that.
    """
    if text == "<>":
        return text
    if "*" not in text:
        domain = text.removeprefix("@")
        if "@" not in domain and ascii_domain(domain):
            raise WrongUse(f"{_shown(text)} is no mailbox", mend=f"Did you mean {_shown('*@' + domain)}?")
        return read_mailbox(text)
    if text != text.strip() or not text.isprintable():
        raise WrongUse(f"{_shown(text)} is like no mailbox", mend="Write it like *@example.org.")
    return comparable_mailbox(text)


def comparable_mailbox(text: str) -> str:
    """A mailbox with its domain in ASCII, where it has one; nothing is refused."""
    if text.isascii():
        return text
    local, at, domain = text.rpartition("@")
    return f"{local}{at}{ascii_domain(domain) or domain}"


def counted_address(client: str) -> str:
    """The address by which a client is counted: a host of IPv6 has the whole of its /64 network.

    Args:
        client: an address of IPv4 or IPv6, which may have a zone; any other text stands for itself.
    """
    try:
        address = unmapped(ip_address(client.partition("%")[0]))
    except ValueError:
        return client
    if not isinstance(address, IPv6Address) or address.is_loopback:
        return str(address)
    return str(ip_network(f"{address}/64", strict=False))
