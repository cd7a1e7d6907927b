"""Somebody types ALTER TABLE messageIdTable DROP flagSeen: both engines tell it as drift; no repair writes to it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.commands import CommandLine
from tests.support.mail_states import MailKeyspace, keyspace_of_its_own, shell_on
from tests.support.servers import CassandraServer

pytestmark = [pytest.mark.cassandra, pytest.mark.spark]


@pytest.fixture(scope="module")
def keyspace(cassandra: CassandraServer) -> Iterator[MailKeyspace]:
    with keyspace_of_its_own(cassandra, "dropped_column") as keyspace:
        yield keyspace


@pytest.fixture
def mailmend(cassandra: CassandraServer, keyspace: MailKeyspace, tmp_path: Path) -> CommandLine:
    return shell_on(cassandra, keyspace, tmp_path)


def test_it_is_drift_until_it_is_back_or_left_out(
    mailmend: CommandLine, keyspace: MailKeyspace, spark: SparkSession
) -> None:
    keyspace.refill()
    keyspace.tables.cluster.execute_ddl(f"ALTER TABLE {keyspace.name}.messageidtable DROP flagseen")

    for engine in ("local", "spark"):
        checked = mailmend("check", "messages", "--engine", engine, "--delay", "0", "--json")
        repaired = mailmend("repair", "messages", "--engine", engine, "--delay", "0")

        assert (checked.code, repaired.code) == (1, 2), checked.err
        assert checked.json["missing_columns"] == [{"table": "messageIdTable", "column": "flagSeen"}]
        assert f"mailmend schema verify --keyspace {keyspace.name}" in repaired.err
    quick = ("--engine", "local", "--delay", "0", "--json")
    assert mailmend("check", "messages", *quick, "--without", "flagSeen").code == 0

    statement = re.search(r"ALTER TABLE \S*messageIdTable ADD [^;\n]+", mailmend("schema", "verify").out, re.IGNORECASE)
    assert statement, mailmend("schema", "verify").out
    keyspace.tables.cluster.execute_ddl(statement[0])

    assert mailmend("repair", "messages", *quick).json["fixed"] == {"AMEND": 2}
    assert mailmend("check", "messages", *quick).code == 0
