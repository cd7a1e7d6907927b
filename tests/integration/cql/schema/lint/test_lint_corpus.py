"""Every statement of the lint's corpus is sent to real servers: they still answer as the corpus says.

What our lint says of the same statements is compared with the corpus in `tests/unit/cql/schema/lint/test_corpus.py`.
"""

from uuid import uuid4

import pytest

from mailmend.cql.driver.contact import Contact
from mailmend.cql.driver.session import CassandraCluster, connect
from mailmend.cql.schema.lint.servers import ServerRelease
from mailmend.model.errors import CannotReach, MailmendError
from tests.support.keyspaces import dropped
from tests.support.lint_corpus import Tried, stories
from tests.support.servers import CassandraServer

pytestmark = [pytest.mark.cassandra, pytest.mark.thorough]


def answers_that_differ(server: CassandraServer, release: ServerRelease) -> list[str]:
    with connect(Contact((server.host,), server.port)) as cluster:
        return [one for story in stories() for one in _differing(cluster, story, release)]


def _differing(cluster: CassandraCluster, story: tuple[Tried, ...], release: ServerRelease) -> list[str]:
    keyspace = f"t_corpus_{uuid4().hex[:12]}"
    replication = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
    cluster.execute_ddl(f"CREATE KEYSPACE {keyspace} WITH replication = {replication}")
    cluster.execute_ddl(f"USE {keyspace}")
    found = []
    try:
        for tried in story:
            refusal = _refusal(cluster, tried.text)
            if (release in tried.taken_by) == bool(refusal):
                found.append(f"{tried.text} -> {refusal or 'taken'}")
    finally:
        dropped(cluster, (keyspace,))
    return found


def _refusal(cluster: CassandraCluster, text: str) -> str:
    try:
        cluster.execute_ddl(text)
    except CannotReach as error:
        if "the cluster failed to" not in str(error):
            raise
        return str(error)  # a statement that the server fails over
    except MailmendError as refused:
        return str(refused)
    return ""


def test_cassandra_5_0_answers_as_the_corpus_says(cassandra: CassandraServer) -> None:
    assert answers_that_differ(cassandra, ServerRelease.CASSANDRA_5_0) == []


def test_cassandra_4_1_answers_as_the_corpus_says(cassandra41: CassandraServer) -> None:
    assert answers_that_differ(cassandra41, ServerRelease.CASSANDRA_4_1) == []
