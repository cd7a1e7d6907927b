"""A store that speaks S3 on this machine: S3Proxy over a folder, 127.0.0.1 only, little memory, keys of its own.

The keys are random, made at the first start, and stay with the data in a file that only its owner
may read and that S3 tools understand. They are on no command line.
"""

import json
import os
import secrets
from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as BadFile
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import ClassVar, Final

from mailmend.admin.local.jars import JarProgram, JarStore, find_java
from mailmend.admin.local.processes import http_answer
from mailmend.admin.local.server import HOST, Launch, Machine, Site
from mailmend.model.errors import LocalServerError

S3PROXY: Final = JarProgram("S3Proxy", "4.1.0", (17, 21), "s3proxy")
HEAP_MIB: Final = 256
THREADS: Final = 32
_KEYS: Final = "credentials"
_SECTION: Final = "default"
_PROBE_SECONDS_MAX: Final = 5.0
_REFUSAL: Final = b"<Error>"


@dataclass(frozen=True, slots=True)
class Keys:
    """Access key and secret key of the store."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """One S3Proxy."""

    name: ClassVar = "s3"
    title: ClassVar = S3PROXY.name
    host: ClassVar = HOST
    ports: ClassVar[Mapping[str, int]] = {"s3": 9000}

    def fetch(self, machine: Machine) -> Path:
        store = JarStore(machine.cache / S3PROXY.module, machine.environment, machine.progress)
        find_java(S3PROXY, machine.environment)  # without a Java nothing is fetched
        jar, *_ = store.jars(S3PROXY)
        return jar

    def write_files(self, parts: Path, site: Site) -> None:  # noqa: ARG002 (a service of another kind needs its parts)
        _data(site).mkdir(exist_ok=True)
        if not keys_file(site).exists():
            _write_secret(keys_file(site), _new_keys_text())
        _write_secret(_conf(site), conf_of(site, keys_of(site)))

    def launches(self, parts: Path, site: Site, environment: Mapping[str, str]) -> tuple[Launch, ...]:
        java = find_java(S3PROXY, environment)
        conf = str(_conf(site))
        options = (f"-Xmx{HEAP_MIB}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        command = (str(java.executable), *options, "-jar", str(parts), "--properties", conf)
        return (Launch("server", command, conf, environment_of(site, environment.get("PATH", os.defpath))),)

    def is_ready(self, site: Site) -> bool:
        return self.answers(site)

    def answers(self, site: Site) -> bool:
        """Whether it refuses requests without keys, as S3 does."""
        status, body = http_answer(HOST, site.ports["s3"], "/", {}, _PROBE_SECONDS_MAX)
        return status == HTTPStatus.FORBIDDEN and _REFUSAL in body

    def contacts(self, site: Site) -> Mapping[str, str]:
        return {"s3": f"http://{HOST}:{site.ports['s3']}", "keys": str(keys_file(site))}

    def log(self, site: Site) -> Path:
        return site.console("server")


def keys_file(site: Site) -> Path:
    """The file with the store's keys; `AWS_SHARED_CREDENTIALS_FILE` may name it."""
    return site.folder / _KEYS


def keys_of(site: Site) -> Keys:
    """The keys of a store that was started before."""
    parser = ConfigParser(interpolation=None)
    try:
        parser.read_string(keys_file(site).read_text(encoding="ascii"))
        return Keys(parser[_SECTION]["aws_access_key_id"], parser[_SECTION]["aws_secret_access_key"])
    except (OSError, ValueError, KeyError, BadFile) as error:
        raise LocalServerError(
            f"the keys of {S3PROXY.name} cannot be read from {keys_file(site)} ({type(error).__name__})",
            mend="Give up the server's data, and have new keys drawn: mailmend local clean",
        ) from None


def conf_of(site: Site, keys: Keys) -> str:
    settings = {
        "s3proxy.endpoint": f"http://{HOST}:{site.ports['s3']}",
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": keys.access_key,
        "s3proxy.credential": keys.secret_key,
        "s3proxy.ignore-unknown-headers": "true",  # such as a session token's: it refuses the request else
        "s3proxy.jetty.max-threads": str(THREADS),
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": str(_data(site)),
    }
    return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())


def environment_of(site: Site, path: str) -> dict[str, str]:
    """The whole environment of its process; Java encodes file names by the language set there."""
    levels = {"LOG_LEVEL": "warn", "JETTY_LOG_LEVEL": "warn"}
    return {"HOME": str(site.folder), "PATH": path, "LANG": "C.UTF-8", **levels}


def _escaped(value: str) -> str:
    """A value of a Java properties file: ASCII, with backslash escapes; JSON escapes in the same way."""
    return json.dumps(value)[1:-1]


def _new_keys_text() -> str:
    keys = {"aws_access_key_id": secrets.token_hex(10), "aws_secret_access_key": secrets.token_hex(20)}
    return f"[{_SECTION}]\n" + "".join(f"{name} = {key}\n" for name, key in keys.items())


def _write_secret(path: Path, text: str) -> None:
    """Write whole; never readable by others, not even while it is written."""
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600)
    fresh.write_text(text, encoding="ascii")
    fresh.replace(path)


def _data(site: Site) -> Path:
    return site.folder / "data"


def _conf(site: Site) -> Path:
    return site.folder / "s3proxy.conf"
