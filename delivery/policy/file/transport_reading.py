"""Reads `transports` of a policy file; another module reads the keys and passwords that it names."""

from collections.abc import Mapping
from functools import partial
from ipaddress import ip_address
from typing import Any, Final

from mailmend.delivery.policy.file.nodes import (
    PolicyNode,
    read_each,
    read_part,
    read_parts,
)
from mailmend.delivery.policy.file.transport_forms import (
    DKIM_KEY,
    NEXT_HOP,
    REUSE,
    SOURCE,
    TIMEOUTS,
    TRANSPORT,
    VARIABLE,
)
from mailmend.delivery.transports import (
    ConnectionReuse,
    SigningKey,
    SigningKeys,
    SmtpLogin,
    SourceAddress,
    StageTimeouts,
    TlsLevel,
    Transport,
    TransportHop,
    Transports,
    TransportSecrets,
    transport_with,
)
from mailmend.model.errors import WrongUse
from mailmend.model.file_forms import FileForm
from mailmend.model.grammar import read_address, read_domain, read_name, read_server, unmapped

SMTP_PORT: Final = 25
_IN_VARIABLE: Final = "passwordenv"
_PASSWORDS: Final = frozenset({"password", "passwd", "passphrase", "pass", "pwd", "secret"})
_ELSEWHERE: Final = "Name its file with passwordfile, or an environment variable with passwordenv."
_SECURED: Final = "Write tls: required-and-verified, or name this machine, like 127.0.0.1."


def transports_of(secrets: TransportSecrets | None, node: PolicyNode) -> Transports:
    """The transports, by name.

    Args:
        secrets: reads keys and passwords; None: no such file is read.
        node: all of them.

    Raises:
        BadPolicyFile: they are no mapping.
    """
    found = dict[str, Transport]()
    nodes = dict[str, PolicyNode]()
    for _, key, value in node.items("transports"):
        for name in read_each([key], lambda node: node.parsed(read_name, "a transport")):
            for transport in read_each([value], partial(_transport, secrets)):
                found[name] = transport
                nodes[name] = value
    for name, value in nodes.items():
        _refuse_open_login(name, found, value)
    return found


def _refuse_open_login(name: str, said: Transports, node: PolicyNode) -> None:
    """Refuse a password over a connection without TLS to another machine."""
    tls_of = transport_with("tls", name, said)
    hop_of = transport_with("next_hop", name, said)
    if tls_of is None or hop_of is None or name not in {tls_of, hop_of}:
        return
    hop = said[hop_of].next_hop
    if said[tls_of].tls is not TlsLevel.NONE or not hop or not hop.login or _is_here(hop.host):
        return
    part = "tls"
    if tls_of != name:
        part = "nexthop"
    problem = f"a login at {hop.host} needs TLS, and tls: none forbids it"
    node.parts(TRANSPORT)[part].note(problem, _SECURED)


def _is_here(host: str) -> bool:
    """Whether that is this machine for sure."""
    try:
        return unmapped(ip_address(host)).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _transport(secrets: TransportSecrets | None, node: PolicyNode) -> Transport:
    refused_before = node.refused.count
    said = read_parts(
        node.parts(TRANSPORT),
        TRANSPORT,
        sources=_sources,
        timeouts=_timeouts,
        reuse=_reuse,
        nexthop=partial(_next_hop, secrets),
        dkim=partial(_keys, secrets),
    )
    if secrets and "keys" in said and node.refused.count == refused_before:
        said["signer"] = secrets.signer(said["keys"])
    return Transport(**said)


def _sources(node: PolicyNode) -> tuple[SourceAddress, ...]:
    found = list[SourceAddress]()
    for entry in node.listed("sources"):
        for source in read_each([entry], _source):
            if any(source.address == other.address for other in found):
                entry.note(f"{source.address} is there twice")
            found.append(source)
    if not found and not node.node.value:
        node.fail("there are no sources", "Write at least one, like {address: 192.0.2.1}.")
    return tuple(found)


def _source(node: PolicyNode) -> SourceAddress:
    parts = _complete(node, SOURCE)
    address = read_part(parts, "address", lambda part: part.parsed(read_address, "an address"), "")
    helo = read_part(parts, "helo", lambda part: part.parsed(read_domain, "a name in EHLO"), "")
    return SourceAddress(address, helo)


def _timeouts(node: PolicyNode) -> StageTimeouts:
    return StageTimeouts(**read_parts(node.parts(TIMEOUTS), TIMEOUTS))


def _reuse(node: PolicyNode) -> ConnectionReuse:
    return ConnectionReuse(**read_parts(node.parts(REUSE), REUSE))


def _next_hop(secrets: TransportSecrets | None, node: PolicyNode) -> TransportHop:
    for name, key, _ in node.items("nexthop"):
        if name.lower() in _PASSWORDS:
            key.fail("a password is never in a policy file", _ELSEWHERE)
    parts = _complete(node, NEXT_HOP)
    named = _password_names(parts)
    others = {name: part for name, part in parts.items() if name != _IN_VARIABLE}
    said = read_parts(others, NEXT_HOP)
    host = read_part(parts, "host", lambda part: part.parsed(read_server, "a server"), "")
    user = read_part(parts, "user", lambda part: part.parsed(_some_name, "a user"), "")
    port = said.pop("port", SMTP_PORT)
    _refuse_half_a_login(node, parts)
    login = None
    if user:
        login = SmtpLogin(user, **named, password=_password(secrets, parts))
    return TransportHop(host, port, login)


def _password_names(parts: Mapping[str, PolicyNode]) -> Mapping[str, str]:
    """The file or the variable of a password, by its attribute of `SmtpLogin`."""
    found = dict[str, str]()
    for part, attribute, read in (
        ("passwordfile", "password_file", _some_name),
        (_IN_VARIABLE, "password_variable", _variable),
    ):
        name = read_part(parts, part, partial(PolicyNode.parsed, parse=read, what=part), "")
        if name:
            found[attribute] = name
    return found


def _variable(text: str) -> str:
    """As the form has it; what is refused may be the password itself, and is in no error."""
    if not VARIABLE.matches(text):
        raise WrongUse(f"this {VARIABLE.problem}", mend=VARIABLE.mend)
    return text


def _password(secrets: TransportSecrets | None, parts: Mapping[str, PolicyNode]) -> str:
    if secrets is None:
        return ""
    in_file = partial(PolicyNode.parsed, parse=secrets.password_in_file, what="a file")
    in_variable = partial(PolicyNode.parsed, parse=secrets.password_in_variable, what="a variable")
    password = read_part(parts, "passwordfile", in_file, "")
    return password or read_part(parts, _IN_VARIABLE, in_variable, "")


def _refuse_half_a_login(node: PolicyNode, parts: Mapping[str, PolicyNode]) -> None:
    passwords = [name for name in ("passwordfile", "passwordenv") if name in parts]
    if "user" in parts and not passwords and node.is_sure_of("passwordfile", NEXT_HOP):
        parts["user"].note("the password of the user is not named", _ELSEWHERE)
    if "user" not in parts and passwords and node.is_sure_of("user", NEXT_HOP):
        parts[passwords[0]].note("a password without its user", "Name the user with user.")
    if len(passwords) > 1:
        parts["passwordenv"].note("the password is named twice", "Leave one of the two out.")


def _keys(secrets: TransportSecrets | None, node: PolicyNode) -> SigningKeys:
    found = dict[str, tuple[SigningKey, ...]]()
    for _, key, value in node.items("dkim"):
        for domain in read_each([key], lambda node: node.parsed(read_domain, "a domain")):
            if domain in found:
                key.note(f"{domain} is there twice in dkim")
            found[domain] = tuple(read_each(value.one_or_more(), partial(_key, secrets, domain)))
    return found


def _key(secrets: TransportSecrets | None, domain: str, node: PolicyNode) -> SigningKey:
    parts = _complete(node, DKIM_KEY)
    said = read_parts(parts, DKIM_KEY, key=_file)
    key = SigningKey(domain, said.get("selector", ""), said.get("file", ""))
    if secrets and key.selector and key.file:
        parts["key"].parsed(partial(secrets.read_key, key.selector), "a file")
    return key


def _file(node: PolicyNode) -> str:
    return node.parsed(_some_name, "a file")


def _some_name(text: str) -> str:
    name = read_name(text)
    if not name:
        raise WrongUse("the name is empty")
    return name


def _complete(node: PolicyNode, form: FileForm) -> Mapping[str, PolicyNode]:
    """The parts of a form; a required one that is missing is noted."""
    parts: Mapping[str, Any] = node.parts(form)
    for name in form.required:
        if name not in parts and node.is_sure_of(name, form):
            node.note(f"{form.what} lacks its {name}", f"Write {name}: below it.")
    return parts
