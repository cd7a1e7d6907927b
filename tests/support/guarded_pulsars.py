"""A Pulsar that lets nobody in who does not say who he is: by token, by password, or by certificate; TLS beside."""

import base64
import hashlib
import hmac
import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.request import Request, urlopen

from mailmend.admin.local.processes import http_answer
from mailmend.admin.local.pulsar import Pulsar
from mailmend.admin.local.server import HOST, Site
from tests.support.certificates import Authority, authority
from tests.support.commands import CommandLine
from tests.support.pulsars import OwnPulsar, SetPulsar
from tests.support.servers import throwaway_server

NAMESPACE = "mail/james"
BROKER, OURS, STRANGER = "broker", "james", "stranger"
"""Who may do everything, who may produce and consume in the namespace, and who may nothing."""

PASSWORD = "pass/of@the-test"
"""It would end an address, if it were not quoted."""

_KEY = b"of the test, and long enough for HS256, which wants 256 bits"
_BY = "org.apache.pulsar.broker.authentication.AuthenticationProvider"


def token_of(name: str, *, key: bytes = _KEY, expires: int | None = None) -> str:
    """A token as Pulsar's own tool signs it.

    Args:
        name: whose.
        key: with which it is signed; another than the server's makes it a forged one.
        expires: when, in seconds since 1970; None: never.
    """
    body = {"sub": name} if expires is None else {"sub": name, "exp": expires}
    signed = ".".join(_encoded(json.dumps(one).encode()) for one in ({"alg": "HS256"}, body))
    return f"{signed}.{_encoded(hmac.digest(key, signed.encode(), hashlib.sha256))}"


def _encoded(what: bytes) -> str:
    return base64.urlsafe_b64encode(what).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class GuardingPulsar(SetPulsar):
    """The server, which its own broker too has to show a token."""

    ports: ClassVar[Mapping[str, int]] = {**Pulsar.ports, "pulsar-tls": 6651, "admin-tls": 8443}

    def write_files(self, parts: Path, site: Site) -> None:
        super(GuardingPulsar, self).write_files(parts, site)
        ports = {"brokerServicePortTls": site.ports["pulsar-tls"], "webServicePortTls": site.ports["admin-tls"]}
        with (site.folder / "standalone.conf").open("a", encoding="utf-8") as file:
            file.writelines(f"{name}={port}\n" for name, port in ports.items())

    def asked(self, site: Site, path: str) -> tuple[int, bytes]:
        who = {"Authorization": f"Bearer {token_of(BROKER)}"}
        return http_answer(HOST, site.ports["admin"], f"/admin/v2/{path}", who, 5.0)


@dataclass(frozen=True, slots=True)
class GuardedPulsar:
    """The server, the authority that signed its certificate and its clients', and one that nobody knows.

    Attributes:
        folder: where certificates are: `james`, a client's, and `stranger`, of the other authority.
    """

    own: OwnPulsar
    folder: Path
    authority: Authority
    unknown: Authority

    def shell(
        self, home: Path, who: Mapping[str, str] | None = None, *, secure: bool = False, name: str = HOST
    ) -> CommandLine:
        """A shell whose variables name the server, and whoever types there."""
        ports = self.own.run.site.ports
        port, api = (ports["pulsar-tls"], ports["admin-tls"]) if secure else (ports["pulsar"], ports["admin"])
        trusted = {"MAILMEND_BROKER_TLS_CA": self.authority.file} if secure else {}
        where = {
            "MAILMEND_BROKER": f"pulsar{'+ssl' * secure}://{name}:{port}/{NAMESPACE}",
            "MAILMEND_BROKER_MANAGEMENT": f"http{'s' * secure}://{name}:{api}",
            "MAILMEND_BLOBS": f"file://{home}",
        }
        return CommandLine(home, {**where, **trusted, **(who or {})})

    def admin(self, method: str, path: str, body: object = None) -> None:
        """What who may do everything asks of the admin API."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token_of(BROKER)}", "Content-Type": "application/json"}
        with urlopen(Request(f"{self.own.settings.admin}/admin/v2/{path}", content, headers, method=method)) as answer:
            answer.read()


@contextmanager
def guarded_pulsar(folder: Path) -> Iterator[GuardedPulsar]:
    signer, unknown = authority(folder, "authority"), authority(folder, "unknown")
    node = signer.signed("node", "IP:127.0.0.1")
    signer.signed(OURS, "DNS:james.example.org")
    unknown.signed(STRANGER, "DNS:stranger.example.org")
    (folder / "key").write_bytes(_KEY)
    words = ("openssl", "passwd", "-apr1", PASSWORD)
    hashed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    (folder / "passwords").write_text(f"{OURS}:{hashed}")
    settings = {
        "authenticationEnabled": "true",
        "authenticationProviders": ",".join(f"{_BY}{kind}" for kind in ("Token", "Basic", "Tls")),
        "authorizationEnabled": "true",
        "superUserRoles": BROKER,
        "tokenSecretKey": f"file://{folder / 'key'}",
        "basicAuthConf": f"file://{folder / 'passwords'}",
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{token_of(BROKER)}",
        "tlsCertificateFilePath": node.certificate,
        "tlsKeyFilePath": node.key,
        "tlsTrustCertsFilePath": signer.file,
    }
    with throwaway_server(GuardingPulsar(settings)) as run:
        ports = run.site.ports
        found = GuardedPulsar(OwnPulsar(HOST, ports["pulsar"], ports["admin"], run), folder, signer, unknown)
        found.admin("PUT", "tenants/mail", {"allowedClusters": ["standalone"]})
        found.admin("PUT", f"namespaces/{NAMESPACE}", {})
        for role in (OURS, f"mailmend {OURS}"):
            found.admin(
                "POST", f"namespaces/{NAMESPACE}/permissions/{role.replace(' ', '%20')}", ["produce", "consume"]
            )
        yield found
