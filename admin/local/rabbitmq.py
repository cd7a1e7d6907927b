"""RabbitMQ on this machine: one node, 127.0.0.1 only, little memory, with its management.

It has an epmd of its own, the program by which Erlang's nodes find each other, so that it meets no other Erlang here.
Both stay the processes that are started: the script ends in `exec`, which it does where it may read its input.
"""

import os
import secrets
import shutil
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import ClassVar, Final

from mailmend.admin.local.probes import http_answer, speaks_amqp, unverified
from mailmend.admin.local.rabbitmq_parts import HOME_VARIABLE, Installation, find_or_fetch, installation_in
from mailmend.admin.local.server_kind import HOST, Launch, Machine, Site
from mailmend.mailqueue.broker_http import basic
from mailmend.model.errors import LocalServerError

MEMORY_MIB: Final = 512
GUEST: Final = ("guest", "guest")
"""The user that RabbitMQ makes at its first start, and lets in from this machine only."""

NODE: Final = "rabbit@localhost"
_PLUGINS: Final = ("rabbitmq_management",)
_COOKIE_BYTES: Final = 24
_ERLANG: Final = "-kernel inet_dist_use_interface {127,0,0,1} +S 2:2 +sbwt none"


@dataclass(frozen=True, slots=True)
class BrokerCertificates:
    """The PEM files of a listener that speaks TLS; clients that show a certificate of the authority are let in.

    Attributes:
        asks_clients: whether those that show none are refused.
    """

    authority: Path
    certificate: Path
    key: Path
    asks_clients: bool = False


@dataclass(frozen=True, slots=True)
class RabbitMq:
    """One node of RabbitMQ."""

    name: ClassVar = "rabbitmq"
    title: ClassVar = "RabbitMQ"
    host: ClassVar = HOST
    tls: BrokerCertificates | None = None

    @property
    def ports(self) -> Mapping[str, int]:
        ports = {"amqp": 5672, "management": 15672, "erlang": 25672, "epmd": 4369}
        if self.tls:
            ports |= {"amqps": 5671, "management-tls": 15671}
        return ports

    def fetch(self, machine: Machine) -> Path:
        return find_or_fetch(machine)

    def write_files(self, parts: Path, site: Site) -> None:  # noqa: ARG002 (a service of another kind needs its parts)
        """Configuration and plugins; at the first start also the secret that Erlang's programs share."""
        _conf(site).write_text(conf_of(site.ports, self.tls), encoding="utf-8")
        _plugins(site).write_text(f"[{','.join(_PLUGINS)}].\n", encoding="ascii")
        cookie = site.folder / ".erlang.cookie"
        fresh = site.folder / "cookie.new"
        if not cookie.exists():
            fresh.write_text(secrets.token_hex(_COOKIE_BYTES), encoding="ascii")
            fresh.chmod(0o400)  # Erlang refuses one that others may read
            fresh.replace(cookie)

    def launches(self, parts: Path, site: Site, environment: Mapping[str, str]) -> tuple[Launch, ...]:
        """Erlang's port mapper (epmd), then the node."""
        installation = installation_in(parts)
        assert installation is not None
        settings = environment_of(installation, site, environment.get("PATH", os.defpath))
        epmd = _epmd(settings["PATH"])
        listens = ("-port", str(site.ports["epmd"]), "-address", HOST)
        conf = str(_conf(site))
        # Erlang keeps arguments that it does not know; this one identifies the process.
        server = (str(installation.server), "-noinput", "-mailmend", conf)
        return (
            Launch("epmd", (epmd, *listens, "-relaxed_command_check"), " ".join(listens), settings),
            Launch("server", server, conf, settings),
        )

    def is_ready(self, site: Site) -> bool:
        return self.answers(site)

    def answers(self, site: Site) -> bool:
        plain = speaks_amqp(HOST, site.ports["amqp"])
        secure = self.tls is None or speaks_amqp(HOST, site.ports["amqps"], context=_shown(self.tls))
        return plain and secure and api_answers(HOST, site.ports["management"])

    def contacts(self, site: Site) -> Mapping[str, str]:
        """The addresses of broker and management; user and password are both `guest`, on this machine only."""
        schemes = {"amqp": "amqp", "amqps": "amqps", "management": "http", "management-tls": "https"}
        contacts = {}
        for name, port in site.ports.items():
            if name in schemes:
                contacts[name] = f"{schemes[name]}://{HOST}:{port}"
        return contacts

    def log(self, site: Site) -> Path:
        return site.folder / "log" / f"{NODE}.log"


def conf_of(ports: Mapping[str, int], tls: BrokerCertificates | None) -> str:
    settings: dict[str, object] = {
        "listeners.tcp.1": f"{HOST}:{ports['amqp']}",
        "management.tcp.ip": HOST,
        "management.tcp.port": ports["management"],
        "vm_memory_high_watermark.absolute": f"{MEMORY_MIB}MB",
        "disk_free_limit.absolute": "200MB",
        "collect_statistics_interval": 1000,  # counts in the HTTP API are a second old, not five
        "log.file.rotation.size": 20 << 20,
        "log.file.rotation.count": 2,
    }
    if tls:
        settings |= _tls_settings(ports, tls)
    return "".join(f"{name} = {value}\n" for name, value in settings.items())


def environment_of(installation: Installation, site: Site, path: str) -> dict[str, str]:
    folder = site.folder
    if installation.programs:
        path = os.pathsep.join([str(installation.programs), path])
    return {
        "HOME": str(folder),
        "PATH": path,
        "LANG": "C.UTF-8",
        "ERL_EPMD_ADDRESS": HOST,
        "ERL_EPMD_PORT": str(site.ports["epmd"]),
        "ERL_MAX_PORTS": "4096",
        "RABBITMQ_ALLOW_INPUT": "true",
        "RABBITMQ_CONFIG_FILE": str(_conf(site)),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
        "RABBITMQ_DIST_PORT": str(site.ports["erlang"]),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(_plugins(site)),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "generated"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_NODENAME": NODE,
        "RABBITMQ_NODE_IP_ADDRESS": HOST,
        "RABBITMQ_NODE_PORT": str(site.ports["amqp"]),
        "RABBITMQ_PLUGINS_DIR": str(installation.plugins),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _ERLANG,
    }


def _tls_settings(ports: Mapping[str, int], tls: BrokerCertificates) -> dict[str, object]:
    options = {
        "cacertfile": tls.authority,
        "certfile": tls.certificate,
        "keyfile": tls.key,
        "verify": "verify_peer",
        "fail_if_no_peer_cert": str(tls.asks_clients).lower(),
    }
    settings: dict[str, object] = {
        "listeners.ssl.1": f"{HOST}:{ports['amqps']}",
        "management.ssl.ip": HOST,
        "management.ssl.port": ports["management-tls"],
    }
    for listener in ("ssl_options", "management.ssl"):
        for name, value in options.items():
            settings[f"{listener}.{name}"] = value
    return settings


def _shown(tls: BrokerCertificates) -> ssl.SSLContext:
    """A broker that asks for a certificate gets its own: it trusts the authority that signed that."""
    context = unverified()
    context.load_cert_chain(tls.certificate, tls.key)
    return context


def _epmd(path: str) -> str:
    found = shutil.which("epmd", path=path)
    if found is None:
        raise LocalServerError(
            "RabbitMQ needs Erlang, whose epmd is not on the PATH",
            mend=f"Put Erlang's programs on it; or do without {HOME_VARIABLE}, and both are fetched.",
        )
    return found


def _conf(site: Site) -> Path:
    return site.folder / "rabbitmq.conf"


def _plugins(site: Site) -> Path:
    return site.folder / "enabled_plugins"


def api_answers(host: str, port: int) -> bool:
    """Whether the management there lets the first user in: before that user exists it is not up."""
    status, _ = http_answer(host, port, "/api/whoami", {"Authorization": basic(*GUEST)})
    return status == HTTPStatus.OK
