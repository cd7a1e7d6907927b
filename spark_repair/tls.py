"""Trust and key stores for Spark's connector, made of PEM files by the driver's JVM.

The stores are files of this user's alone, under a password made for them that is never on a disk.
Executors that are threads of the driver read them where they are. Others get them from Spark, as an
archive that keeps its modes: each executor unpacks it into its working folder before its first
task, whenever it comes, and opens them by a path relative to that. The driver's JVM works
elsewhere; a property of its own names its files instead. At the end of the session they are removed
on all hosts. After a kill -9 they stay where Spark leaves them, under a password that no process
has any more.
"""

import atexit
import base64
import binascii
import secrets
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkFiles
from pyspark.sql import SparkSession

from mailmend.cql.driver.contact import Contact, with_tls_texts
from mailmend.model.errors import BadSettings, WrongUse
from mailmend.spark_repair.executors import runs_here, tasks_at_once

_SSL: Final = "spark.cassandra.connection.ssl"
_TRUST: Final = "trustStore"
_KEY: Final = "keyStore"
_TYPE: Final = "PKCS12"
_BEGIN = "-----BEGIN PRIVATE KEY-----"
_END = "-----END PRIVATE KEY-----"
_ALGORITHMS: Final = ("RSA", "EC")
_SUITES: Final = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
)
"""The best first. The default of the connector is the last two only, which a careful node refuses."""

REMOVE_SECONDS_MAX: Final = 20.0
_OF_THIS_JVM: Final = "datastax-java-driver.advanced.ssl-engine-factory.{}-path"
"""A property with which the Java driver of one JVM overrides the path that the connector was given."""


def tls_options(session: SparkSession, contact: Contact) -> dict[str, str]:
    """The connector's TLS options; empty where the contact has no TLS.

    Raises:
        BadSettings: a file cannot be read, or is not what it should be.
        WrongUse: executors on other hosts have stores of other files already.
    """
    if not contact.tls:
        return {}
    return _options(session, contact.tls_ca, contact.tls_cert, contact.tls_key)


@cache
def _options(session: SparkSession, authority: str | None, certificate: str | None, key: str | None) -> dict[str, str]:
    stores = _stores(session)
    options = {f"{_SSL}.enabled": "true", f"{_SSL}.enabledAlgorithms": ",".join(_SUITES)}
    made = {}
    if authority:
        made[_TRUST] = stores.trusting(authority)
    if certificate:
        made[_KEY] = stores.own(certificate, key or certificate)
        options[f"{_SSL}.clientAuth.enabled"] = "true"
    if not runs_here(str(session.sparkContext.master)):
        made = stores.shipped(session, made)
    for name, path in made.items():
        store = f"{_SSL}.{name}"
        options |= {f"{store}.path": str(path), f"{store}.password": stores.password, f"{store}.type": _TYPE}
    return options


def contact_of_executors(session: SparkSession, contact: Contact) -> Contact:
    """The contact for the executors' Python; on other hosts, which do not have the files, with their contents."""
    if runs_here(str(session.sparkContext.master)):
        return contact
    return with_tls_texts(contact)


def remove_stores(session: SparkSession) -> None:
    """Remove the session's stores, here and where its executors are; nothing is read through it any more."""
    folder = _folders.pop(session, None)
    if folder is None:
        return
    if not runs_here(str(session.sparkContext.master)):
        thread = Thread(target=_remove_there, args=(session, folder.name), name="mailmend-tls", daemon=True)
        thread.start()
        thread.join(REMOVE_SECONDS_MAX)
    _remove(folder)


def _remove_there(session: SparkSession, name: str) -> None:
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - no public name
    slots = tasks_at_once(session)  # as many tasks: all start at once, and so on every executor
    with suppress(Exception):  # no executor may be left
        for store in (_TRUST, _KEY):
            jvm.java.lang.System.clearProperty(_OF_THIS_JVM.format(store.lower()))
        everywhere = session.sparkContext.parallelize(range(slots), slots)
        everywhere.foreach(lambda _: _remove(Path(SparkFiles.getRootDirectory(), name)))


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


_folders: dict[SparkSession, Path] = {}
"""The folder of each session's stores, that only this user can read."""


@cache
def _stores(session: SparkSession) -> "_Stores":
    folder = _folders[session] = Path(tempfile.mkdtemp(prefix="mailmend-tls-"))
    atexit.register(_remove, folder)
    return _Stores(session.sparkContext._gateway, folder, secrets.token_urlsafe(24))  # noqa: SLF001 - no public name


@dataclass(frozen=True, slots=True)
class _Stores:
    """Makes the stores of one session, all under one password."""

    gateway: Any
    folder: Path
    password: str = field(repr=False)

    @property
    def jvm(self) -> Any:
        return self.gateway.jvm

    def shipped(self, session: SparkSession, made: dict[str, Path]) -> dict[str, Path]:
        """Have executors get the stores; the paths under which they open them."""
        system = self.jvm.java.lang.System
        for name, path in made.items():
            own = _OF_THIS_JVM.format(name.lower())
            if (other := system.getProperty(own)) and Path(other).exists():
                raise WrongUse(
                    "on a cluster, one session of Spark has one set of TLS files", mend="Stop that one first."
                )
            system.setProperty(own, str(path))
        archive = self.folder / "stores.tgz"
        with tarfile.open(archive, "w:gz") as packed:
            for path in (self.folder, *made.values()):
                packed.add(path, path.relative_to(self.folder), recursive=False, filter=_of_whoever_unpacks)
        session.sparkContext.addArchive(f"{archive}#{self.folder.name}")
        return {name: path.relative_to(self.folder.parent) for name, path in made.items()}

    def trusting(self, authority: str) -> Path:
        store = self._empty()
        for number, certificate in enumerate(self._certificates(authority)):
            store.setCertificateEntry(f"authority{number}", certificate)
        return self._kept(store, "trust")

    def own(self, certificate: str, key: str) -> Path:
        store = self._empty()
        chain = self._certificates(certificate)
        links = self._array(self.jvm.java.security.cert.Certificate, chain)
        store.setKeyEntry("own", self._key(key), self._secret(), links)
        return self._kept(store, "own")

    def _empty(self) -> Any:
        store = self.jvm.java.security.KeyStore.getInstance(_TYPE)
        store.load(None, None)
        return store

    def _certificates(self, path: str) -> list[Any]:
        pem = _text(path).encode()
        factory = self.jvm.java.security.cert.CertificateFactory.getInstance("X.509")
        try:
            return list(factory.generateCertificates(self.jvm.java.io.ByteArrayInputStream(pem)))
        except Py4JError:
            raise BadSettings(f"{path} holds no certificates", mend="It must be a PEM file.") from None

    def _key(self, path: str) -> Any:
        spec = self.jvm.java.security.spec.PKCS8EncodedKeySpec(_der_key(path))
        for algorithm in _ALGORITHMS:
            try:
                return self.jvm.java.security.KeyFactory.getInstance(algorithm).generatePrivate(spec)
            except Py4JError:
                continue
        raise BadSettings(f"{path} holds a private key of a kind that is not known", mend="RSA and EC keys are.")

    def _kept(self, store: Any, name: str) -> Path:
        path = self.folder / f"{name}-{secrets.token_hex(8)}.p12"
        path.touch(mode=0o600)
        stream = self.jvm.java.io.FileOutputStream(str(path))
        try:
            store.store(stream, self._secret())
        finally:
            stream.close()
        return path

    def _secret(self) -> Any:
        return self._array(self.jvm.char, self.password)

    def _array(self, kind: Any, items: Sequence[Any]) -> Any:
        array = self.gateway.new_array(kind, len(items))
        for number, item in enumerate(items):
            array[number] = item
        return array


def _of_whoever_unpacks(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Root would hand it to the user of that number instead."""
    return entry.replace(uid=0, gid=0, uname="", gname="", deep=False)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path} cannot be read: {error}", mend="It must be a PEM file.") from None


def _der_key(path: str) -> bytes:
    """The private key's bytes from a PEM file in unencrypted PKCS#8, the one form that Java reads."""
    text = _text(path)
    begin = text.find(_BEGIN)
    end = text.find(_END)
    if begin < 0 or end < begin:
        raise BadSettings(
            f"{path} holds no private key that Java reads",
            mend=f"Convert it with: openssl pkcs8 -topk8 -nocrypt -in {path} -out key.pem",
        )
    try:
        return base64.b64decode(text[begin + len(_BEGIN) : end])
    except binascii.Error:
        raise BadSettings(f"the private key in {path} is damaged") from None
