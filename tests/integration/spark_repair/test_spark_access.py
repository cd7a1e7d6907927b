"""Spark at a server that asks who one is and speaks TLS: it gets in as the driver does, or says why not."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mailmend.cql.driver.contact import Contact
from mailmend.cql.driver.session import connect
from mailmend.model.errors import AccessDenied, BadSettings, CannotReach
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Put
from mailmend.spark_repair.failures import translated
from mailmend.spark_repair.source import Source
from mailmend.spark_repair.tls import tls_options
from tests.support.guarded import GuardedNode
from tests.support.keyspaces import created, dropped
from tests.support.tables import MARKS

pytestmark = [pytest.mark.cassandra, pytest.mark.spark]

KEYSPACE = "d_access"


@pytest.fixture(scope="module")
def contact(guarded: GuardedNode) -> Iterator[Contact]:
    with connect(guarded.contact()) as cluster:
        created(cluster, KEYSPACE, Schema((), (MARKS,))).write(Put(MARKS, {"k": "a", "c": 1}))
        yield guarded.contact()
        dropped(cluster, (KEYSPACE,))


def rows(spark: SparkSession, contact: Contact) -> int:
    with translated(contact, KEYSPACE):
        return Source(spark, contact, KEYSPACE).scan(MARKS, ("k", "c")).count()


def test_spark_gets_in_with_password_and_tls(spark: SparkSession, contact: Contact) -> None:
    assert rows(spark, contact) == 1


def test_a_client_certificate_is_shown(spark: SparkSession, contact: Contact, guarded: GuardedNode) -> None:
    own = guarded.stranger.own
    assert rows(spark, replace(contact, tls_cert=str(own.certificate), tls_key=str(own.key))) == 1


def test_spark_says_why_it_does_not_get_in(spark: SparkSession, contact: Contact, guarded: GuardedNode) -> None:
    """A refused password is told apart from a server that one cannot trust; no secret is told."""
    with pytest.raises(AccessDenied) as denied:
        rows(spark, replace(contact, password="nonsense"))
    assert "nonsense" not in str(denied.value)
    with pytest.raises(CannotReach) as distrusted:
        rows(spark, replace(contact, tls_ca=guarded.stranger.file))
    assert not isinstance(distrusted.value, AccessDenied)


def test_files_that_are_no_pem_are_refused_by_name(spark: SparkSession, tmp_path: Path, guarded: GuardedNode) -> None:
    empty, signed = tmp_path / "empty.pem", guarded.stranger.own
    empty.write_text("")
    for wrong in (
        Contact(tls_ca=str(tmp_path / "nowhere.pem")),
        Contact(tls_cert=str(signed.certificate), tls_key=str(empty)),
        Contact(tls_ca=str(signed.store())),
    ):
        with pytest.raises(BadSettings):
            tls_options(spark, wrong)


def test_stores_are_this_users_alone(spark: SparkSession, guarded: GuardedNode) -> None:
    options = tls_options(spark, guarded.contact())
    store = Path(options["spark.cassandra.connection.ssl.trustStore.path"])
    assert (store.stat().st_mode | store.parent.stat().st_mode) & 0o077 == 0
    assert options["spark.cassandra.connection.ssl.trustStore.password"] not in str(store)
    assert tls_options(spark, Contact()) == {}
