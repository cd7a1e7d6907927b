"""Spark at a server that asks who one is and speaks TLS: it gets in as the driver does, or says why not."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from admin.local import Wishes
from cql.contact import Contact
from cql.session import connect
from model.errors import AccessDenied, BadSettings, CannotReach
from model.operations import Put
from model.schema import Schema
from spark_repair.connector import Source
from spark_repair.failures import translated
from spark_repair.tls import tls_options
from tests.support.keyspaces import created
from tests.support.servers import local_node
from tests.support.tables import MARKS

pytestmark = [pytest.mark.cassandra, pytest.mark.spark, pytest.mark.slow]

KEYSPACE = "d_access"
SUBJECT = ("-subj", "/CN=mailmend test", "-days", "2")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server's key and certificate, which is its own authority; and an authority of somebody else."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("server", "stranger"):
        made = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.pem",
        ]
        subprocess.run([*made, *SUBJECT], cwd=folder, check=True, capture_output=True)
    store = ["openssl", "pkcs12", "-export", "-inkey", "server.key", "-in", "server.pem", "-out", "server.p12"]
    subprocess.run([*store, "-passout", "pass:of-the-test"], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def contact(keys: Path) -> Iterator[Contact]:
    """A node that asks for a password, with TLS or without."""
    tls = {"enabled": True, "optional": True, "keystore": str(keys / "server.p12"), "keystore_password": "of-the-test"}
    yaml = {"client_encryption_options": {**tls, "store_type": "PKCS12"}}
    with local_node(Wishes(heap_mib=400, authenticator="PasswordAuthenticator", yaml=yaml)) as server:
        contact = Contact(
            (server.host,), server.port, server.local_dc, "cassandra", "cassandra", str(keys / "server.pem")
        )
        with connect(contact) as cluster:
            created(cluster, KEYSPACE, Schema((), (MARKS,))).write(Put(MARKS, {"k": "a", "c": 1}))
        yield contact


def rows(spark: SparkSession, contact: Contact) -> int:
    """How many rows Spark reads there."""
    with translated(contact, KEYSPACE):
        return Source(spark, contact, KEYSPACE).scan(MARKS, ("k", "c")).count()


def test_spark_gets_in_with_password_and_tls(spark: SparkSession, contact: Contact) -> None:
    """With the right password and authority; and without TLS too, where the server allows it."""
    assert rows(spark, contact) == 1
    assert rows(spark, replace(contact, tls_ca=None)) == 1


def test_a_client_certificate_is_shown(spark: SparkSession, contact: Contact, keys: Path) -> None:
    """Our own certificate and key go along; the server does not mind."""
    shown = replace(contact, tls_cert=str(keys / "stranger.pem"), tls_key=str(keys / "stranger.key"))
    assert rows(spark, shown) == 1


def test_spark_says_why_it_does_not_get_in(spark: SparkSession, contact: Contact, keys: Path) -> None:
    """A refused password is told apart from a server that one cannot trust; no secret is told."""
    with pytest.raises(AccessDenied) as denied:
        rows(spark, replace(contact, password="nonsense"))
    assert "nonsense" not in str(denied.value)
    with pytest.raises(CannotReach) as distrusted:
        rows(spark, replace(contact, tls_ca=str(keys / "stranger.pem")))
    assert not isinstance(distrusted.value, AccessDenied)


def test_files_that_are_no_pem_are_refused_by_name(spark: SparkSession, tmp_path: Path, keys: Path) -> None:
    """Missing, empty, of the wrong kind: said before anything is asked of a server."""
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for wrong in (
        Contact(tls_ca=str(tmp_path / "nowhere.pem")),
        Contact(tls_cert=str(keys / "server.pem"), tls_key=str(empty)),
        Contact(tls_ca=str(keys / "server.p12")),
    ):
        with pytest.raises(BadSettings):
            tls_options(spark, wrong)


def test_stores_are_this_users_alone(spark: SparkSession, keys: Path) -> None:
    """The folder is closed to others, and the password is nowhere but in the options."""
    options = tls_options(spark, Contact(tls_ca=str(keys / "server.pem")))
    store = Path(options["spark.cassandra.connection.ssl.trustStore.path"])
    assert store.parent.stat().st_mode & 0o077 == 0
    assert options["spark.cassandra.connection.ssl.trustStore.password"] not in str(store)
    assert tls_options(spark, Contact()) == {}
