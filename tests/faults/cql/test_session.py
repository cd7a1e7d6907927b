"""A session while nodes go away and come back: what can still be done is done, what cannot is told apart."""

from collections.abc import Iterator

import pytest

from mailmend.cql.driver.session import CassandraCluster, Contact, Keyspace, connect
from mailmend.cql.render import in_every_data_centre, keyspace_cql, schema_cql
from mailmend.model.errors import CannotReach, DoubtfulWrite, NotEnoughReplicas, SchemaDisagreement, TimedOut
from mailmend.model.keyspace import Schema
from mailmend.model.operations import Applied, Change, ChangeIf, Count, Level, Put, PutIfAbsent, Read, Remove
from tests.support.clock import uuid_at
from tests.support.servers import ThreeNodes
from tests.support.tables import ALL, CELLS, COUNTERS, micros

pytestmark = [pytest.mark.cassandra]

D = uuid_at(1_000_000)
KEY = ("k", 1, D)
ROW = {"k": "k", "c": 1, "d": D, "v": "x", "n": 1}


@pytest.fixture
def cluster(three_nodes: ThreeNodes) -> Iterator[CassandraCluster]:
    with connect(Contact(three_nodes.hosts, three_nodes.port, three_nodes.local_dc)) as cluster:
        yield cluster


@pytest.fixture
def keyspace(cluster: CassandraCluster, three_nodes: ThreeNodes) -> Keyspace:
    name = three_nodes.keyspace()
    cluster.execute_ddl(keyspace_cql(name, in_every_data_centre(3)))
    for text in schema_cql(name, Schema((), ALL)):
        cluster.execute_ddl(text)
    keyspace = cluster.keyspace(name)
    keyspace.write(Put(CELLS, ROW))
    return keyspace


@pytest.mark.thorough
def test_nodes_go_away_one_after_the_other(
    three_nodes: ThreeNodes, keyspace: Keyspace, cluster: CassandraCluster
) -> None:
    """With one less everything goes on; with two less what needs a quorum is refused; then nobody can be asked."""
    assert len(cluster.node_micros()) == 3
    with three_nodes.paused(3):
        a_table_that_a_node_does_not_take_is_reported_as_such(cluster, keyspace)
    cluster.execute_ddl(table(keyspace, 4))  # back, it takes what it missed
    partitions_of_several_replicas_go_together(keyspace, "while all nodes are up")
    a_node_dies_under_conditional_writes(three_nodes, keyspace)
    one_node_less_changes_nothing(keyspace)
    partitions_of_several_replicas_go_together(keyspace, "with one node less")
    three_nodes.stop(2)
    too_few_replicas_are_reported_as_such(keyspace)
    assert [abs(reported - micros()) < 5_000_000 for reported in cluster.node_micros()] == [True]
    three_nodes.kill(1)
    nobody_is_reported_as_nobody(keyspace)


def a_table_that_a_node_does_not_take_is_reported_as_such(cluster: CassandraCluster, keyspace: Keyspace) -> None:
    """It is there, though not everywhere; only who asks the very node that hangs gets no answer."""
    for number in range(4):
        with pytest.raises((SchemaDisagreement, TimedOut)) as refused:
            cluster.execute_ddl(table(keyspace, number), seconds=5, agreed=2)
        if isinstance(refused.value, SchemaDisagreement):
            return
    pytest.fail("of four that were asked none told that they do not agree")


def table(keyspace: Keyspace, number: int) -> str:
    return f"CREATE TABLE IF NOT EXISTS {keyspace.name}.more{number} (k int PRIMARY KEY)"


def a_node_dies_under_conditional_writes(three_nodes: ThreeNodes, keyspace: Keyspace) -> None:
    """Each write is applied, or its error says that it may have been: no answer is made up."""
    applied, doubts = 0, 0
    for number in range(1, 100):
        if number == 50:
            three_nodes.kill(3)
        try:
            assert keyspace.attempt(ChangeIf(CELLS, KEY, {"v": "x"}, {"n": number})).applied
            applied = number
        except DoubtfulWrite:
            doubts += 1
        except CannotReach:
            continue
    assert applied > 50
    assert doubts < 50
    assert keyspace.read(Read(CELLS, KEY, Level.SERIAL))[0].row["n"] >= applied


def partitions_of_several_replicas_go_together(keyspace: Keyspace, when: str) -> None:
    """Removals are joined by replica: each partition goes, but for what was written later than they say."""
    partitions = [(f"{when} {number}",) for number in range(300)]
    rows = [{**ROW, "k": name} for (name,) in partitions]
    as_of = micros()
    assert keyspace.write_all([Put(CELLS, row, at=as_of - 1) for row in rows]) == [None] * 300
    assert keyspace.write_all([Put(CELLS, row, at=as_of + 1) for row in rows[:50]]) == [None] * 50

    removals = [Remove(CELLS, partition, as_of, joinable=True) for partition in partitions]
    assert keyspace.write_all(removals) == [None] * 300

    left = keyspace.read_all([Read(CELLS, partition, joinable=True) for partition in partitions])
    assert [bool(found) for found in left] == [True] * 50 + [False] * 250


def one_node_less_changes_nothing(keyspace: Keyspace) -> None:
    assert keyspace.write_all([Put(CELLS, {**ROW, "c": c}) for c in range(200)]) == [None] * 200
    assert len(keyspace.read(Read(CELLS, ("k",), times=True))) == 200
    assert keyspace.attempt(ChangeIf(CELLS, KEY, {"v": "x"}, {"n": 0})) == Applied(True)


def too_few_replicas_are_reported_as_such(keyspace: Keyspace) -> None:
    """Nothing is in doubt, for nothing was begun; what one node can answer is answered."""
    until_the_failure_is_known(keyspace)
    refused = [
        *keyspace.write_all([Put(CELLS, ROW), Change(CELLS, KEY, {"v": "y"}), Count(COUNTERS, ("k",), {"count": 1})]),
        *keyspace.read_all([Read(CELLS, ("k",)), Read(CELLS, ("k",), Level.SERIAL)]),
    ]
    assert [type(error) for error in refused] == [NotEnoughReplicas] * 5
    with pytest.raises(NotEnoughReplicas):
        keyspace.attempt(PutIfAbsent(CELLS, ROW))
    assert len(keyspace.read(Read(CELLS, ("k",), Level.ONE))) == 200


def until_the_failure_is_known(keyspace: Keyspace) -> None:
    """A node that was killed is asked, in vain, until the others have given it up; that too has its kind."""
    for _ in range(60):
        try:
            keyspace.read(Read(CELLS, ("k",)))
        except TimedOut:
            continue
        except NotEnoughReplicas:
            return
    pytest.fail("the node that is left does not know that it is alone")


def nobody_is_reported_as_nobody(keyspace: Keyspace) -> None:
    with pytest.raises(CannotReach):
        keyspace.read(Read(CELLS, ("k",), Level.ONE))
    assert all(isinstance(error, CannotReach) for error in keyspace.write_all([Put(CELLS, ROW)] * 5))
