"""How the Spark connector reaches the cluster of a `Contact`: options of each read, so that secrets stay in-process.

PEM files become the key stores that Java wants, made by the JVM that will read them. The stores are files of this
user's alone, under a password made for them, in a folder that ends with the process. On a cluster the connector opens
them on each executor: that folder must then be reachable there under the same path, or the stores be one's own
(`spark.cassandra.connection.ssl.*`, by --spark-conf).
"""

import atexit
import base64
import binascii
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as sf

from cql.driver.contact import Contact
from model.errors import BadSettings
from model.operations import Level
from model.schema.table import Table
from repair.clock import SystemClock
from repair.retries import Retries, RetryPolicy
from spark_repair.failures import is_unknown

_FORMAT = "org.apache.spark.sql.cassandra"
_PAGE_ROWS_MAX = 1000
_PAUSE_MILLIS_MIN = 20
"""Shorter pauses are less exact."""

_ROW_BITS = (1 << 33) - 1
"""The part of `monotonically_increasing_id` that counts a task's rows."""

SHUFFLE_PARTS = "spark.sql.shuffle.partitions"
_SCHEMA_LOOKS = 6
_SCHEMA_PACE = RetryPolicy(wait_seconds_min=0.5, wait_seconds_max=2.0)
"""A running connector sees new tables a second or more after they were created."""


@dataclass(frozen=True, slots=True)
class Source:
    """The tables of one keyspace as DataFrames.

    Attributes:
        rows_per_second: over all cores together, or None for as fast as the cluster answers.
    """

    session: SparkSession
    contact: Contact
    keyspace: str
    level: Level = Level.LOCAL_QUORUM
    rows_per_second: int | None = None

    def scan(self, table: Table, columns: Iterable[str]) -> DataFrame:
        """All rows of the table with these columns only; a field of a user type is named `column.field`."""
        reader = self.session.read.format(_FORMAT).options(**read_options(self))
        rows = opened(reader.options(keyspace=self.keyspace, table=table.name))
        wanted = rows.select(*(sf.col(name).alias(name) for name in columns))
        return paced(wanted, self.rows_per_second, tasks_at_once(self.session))

    def size_shuffles(self, largest: Iterable[DataFrame]) -> None:
        """Shuffle in as many parts as the largest table's scan has: Spark's default is 200, for any size."""
        scanned = (rows.rdd.getNumPartitions() for rows in largest)
        parts = max(self.session.sparkContext.defaultParallelism, *scanned)
        self.session.conf.set(SHUFFLE_PARTS, str(parts))


def opened(reader: DataFrameReader, retries: Retries | None = None) -> DataFrame:
    """The table; asks again where the connector does not know it, since it may be new."""
    retries = retries or Retries(SystemClock(), _SCHEMA_PACE)
    found = retries.rounds(lambda: _known(reader), _SCHEMA_LOOKS)
    return reader.load() if found is None else found


def _known(reader: DataFrameReader) -> DataFrame | None:
    try:
        return reader.load()
    except (PySparkException, Py4JError) as error:
        if is_unknown(error):
            return None
        raise


def read_options(source: Source) -> dict[str, str]:
    """Address, credentials, consistency level and size of pages as the connector's options."""
    return {
        **contact_options(source.contact),
        **tls_options(source.session, source.contact),
        "spark.cassandra.input.consistency.level": source.level.value,
        **page_options(source.rows_per_second, tasks_at_once(source.session)),
    }


def contact_options(contact: Contact) -> dict[str, str]:
    options = {
        "spark.cassandra.connection.host": ",".join(contact.hosts),
        "spark.cassandra.connection.port": str(contact.port),
    }
    if contact.local_dc:
        options["spark.cassandra.connection.localDC"] = contact.local_dc
    if contact.username:
        options["spark.cassandra.auth.username"] = contact.username
        options["spark.cassandra.auth.password"] = contact.password or ""
    return options


def page_options(rows_per_second: int | None, tasks: int) -> dict[str, str]:
    """Pages of a task's rows of one second at most: the connector reads one ahead."""
    if rows_per_second is None:
        return {}
    return {"spark.cassandra.input.fetch.sizeInRows": str(max(1, min(_PAGE_ROWS_MAX, rows_per_second // tasks)))}


def pause_of(rows_per_second: int, tasks: int) -> tuple[int, int]:
    """After how many rows each of so many tasks pauses, and for how many milliseconds: together they keep the pace."""
    rows = max(1, rows_per_second * _PAUSE_MILLIS_MIN // (1000 * tasks))
    return rows, -(-rows * 1000 * tasks // rows_per_second)


def paced(rows: DataFrame, rows_per_second: int | None, tasks: int) -> DataFrame:
    """The same rows, passed on no faster than that by so many tasks at once.

    The connector's own limit (`readsPerSec`) holds for joins only, not for scans; so each task sleeps between its rows.
    """
    if rows_per_second is None:
        return rows
    between, millis = pause_of(rows_per_second, tasks)
    number = f"(monotonically_increasing_id() & {_ROW_BITS})"
    slept = f"CASE WHEN {number} % {between} = 0 THEN reflect('java.lang.Thread', 'sleep', {millis}L) END"
    return rows.where(f"NOT (({slept}) <=> 'awake')")  # always true, which Spark cannot know


def tasks_at_once(session: SparkSession) -> int:
    """How many tasks the session's executors run side by side."""
    context: Any = session.sparkContext._jsc.sc()  # noqa: SLF001 - no public name for the slots
    slots = int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))
    return max(1, slots, session.sparkContext.defaultParallelism)


_SSL: Final = "spark.cassandra.connection.ssl"
_TYPE: Final = "PKCS12"
_BEGIN, _END = "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"
_ALGORITHMS: Final = ("RSA", "EC")


@cache
def tls_options(session: SparkSession, contact: Contact) -> dict[str, str]:
    """The connector's TLS options; empty where the contact has no TLS.

    Raises:
        BadSettings: a file cannot be read, or is not what it should be.
    """
    if not (contact.tls_ca or contact.tls_cert):
        return {}
    stores = _stores(session)
    options = {f"{_SSL}.enabled": "true"}
    if contact.tls_ca:
        options |= stores.options("trustStore", stores.trusting(contact.tls_ca))
    if contact.tls_cert:
        own = stores.own(contact.tls_cert, contact.tls_key or contact.tls_cert)
        options |= {f"{_SSL}.clientAuth.enabled": "true", **stores.options("keyStore", own)}
    return options


@cache
def _stores(session: SparkSession) -> "_Stores":
    """The key stores of a session: one folder that only this user can read, and one password."""
    folder = Path(tempfile.mkdtemp(prefix="mailmend-tls-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return _Stores(session.sparkContext._gateway, folder, secrets.token_urlsafe(24))  # noqa: SLF001 - no public name


@dataclass(frozen=True, slots=True)
class _Stores:
    gateway: Any
    folder: Path
    password: str = field(repr=False)

    @property
    def jvm(self) -> Any:
        return self.gateway.jvm

    def options(self, name: str, path: Path) -> dict[str, str]:
        store = f"{_SSL}.{name}"
        return {f"{store}.path": str(path), f"{store}.password": self.password, f"{store}.type": _TYPE}

    def trusting(self, authority: str) -> Path:
        store = self._empty()
        for number, certificate in enumerate(self._certificates(authority)):
            store.setCertificateEntry(f"authority{number}", certificate)
        return self._kept(store, "trust")

    def own(self, certificate: str, key: str) -> Path:
        store, chain = self._empty(), self._certificates(certificate)
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


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path} cannot be read: {error}", mend="It must be a PEM file.") from None


def _der_key(path: str) -> bytes:
    """The private key's bytes from a PEM file in unencrypted PKCS#8, the one form that Java reads."""
    text = _text(path)
    begin, end = text.find(_BEGIN), text.find(_END)
    if begin < 0 or end < begin:
        raise BadSettings(
            f"{path} holds no private key that Java reads",
            mend=f"Convert it with: openssl pkcs8 -topk8 -nocrypt -in {path} -out key.pem",
        )
    try:
        return base64.b64decode(text[begin + len(_BEGIN) : end])
    except binascii.Error:
        raise BadSettings(f"the private key in {path} is damaged") from None
