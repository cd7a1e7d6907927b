"""The ledger of deliveries is opened beside a queue: it is read where it is there, and made where it is written."""

from collections.abc import Iterator
from typing import Any, cast

import pytest

from mailmend.admin.delivery.connections import (
    asks_of_server,
    existing_attempts,
    existing_orders,
    made_attempts,
    made_orders,
)
from mailmend.admin.frame.cluster import OpenCluster, open_cluster
from mailmend.admin.frame.settings import ConnectionSettings, QueueSettings
from mailmend.admin.queue.connections import PulsarConnections, QueueConnections
from mailmend.model.catalog.ledger import DELIVERY_SERVER, DELIVERY_VIEW
from mailmend.model.catalog.mail_queue import OwnTables
from mailmend.model.ids import QueueName
from tests.support.cluster_twin import ClusterTwin, cluster_in_memory
from tests.support.memory_blobs import MemoryBlobs
from tests.support.memory_topics import MemoryTopics
from tests.support.schemas import without_tables

SETTINGS = QueueSettings(ConnectionSettings(keyspace="mail"), QueueName("outgoing"))
NONE = cast("Any", None)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ClusterTwin:
    return cluster_in_memory(monkeypatch)


@pytest.fixture
def opened(cluster: ClusterTwin) -> Iterator[OpenCluster]:
    del cluster
    with open_cluster(SETTINGS.connection) as found:
        yield found


@pytest.fixture
def connections(opened: OpenCluster) -> QueueConnections:
    return QueueConnections(SETTINGS, opened, NONE, OwnTables(), NONE, NONE, NONE, opened.clock)


def test_a_ledger_that_is_missing_is_not_made_by_reading_it(
    connections: QueueConnections, cluster: ClusterTwin
) -> None:
    found = (existing_orders(connections, DELIVERY_VIEW), existing_attempts(connections))

    assert found == (None, None)
    assert cluster.carried_out == []


def test_a_ledger_is_made_once_by_writing_it(connections: QueueConnections, cluster: ClusterTwin) -> None:
    made_orders(connections)
    created = list(cluster.carried_out)
    made_attempts(connections)

    assert cluster.carried_out == created != []
    assert existing_orders(connections, DELIVERY_VIEW, DELIVERY_SERVER)
    assert existing_attempts(connections)


def test_orders_that_lack_one_of_two_tables_are_not_opened(connections: QueueConnections, cluster: ClusterTwin) -> None:
    made_orders(connections)
    cluster.keyspaces["mailmend"] = without_tables(cluster.keyspaces["mailmend"], DELIVERY_SERVER.name)

    assert existing_orders(connections, DELIVERY_VIEW)
    assert existing_orders(connections, DELIVERY_VIEW, DELIVERY_SERVER) is None


def test_a_server_over_pulsar_asks_cassandra_only_where_it_has_a_ledger(opened: OpenCluster) -> None:
    clock = cast("Any", opened.clock)
    topics = MemoryTopics(clock)
    blobs = MemoryBlobs(clock)
    without = PulsarConnections(
        SETTINGS, NONE, NONE, OwnTables(), NONE, NONE, blobs, clock, topics, connects=lambda: opened
    )

    assert list(asks_of_server(without)) == ["Pulsar"]
    assert list(asks_of_server(without.with_ledger())) == ["Cassandra", "Pulsar"]
