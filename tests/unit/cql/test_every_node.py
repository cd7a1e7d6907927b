"""Questions that each node answers for itself: schema versions, sizes, and what becomes of those that say nothing."""

from typing import Any, cast
from uuid import UUID

import pytest
from cassandra import OperationTimedOut, Unauthorized

from mailmend.cql.driver.nodes import CassandraNodes, ask_every_node, sizes_in, sstables_in
from mailmend.cql.driver.session import CassandraCluster
from mailmend.model.errors import AccessDenied, BadIdentifier, SchemaMismatch, TimedOut, WrongUse
from mailmend.model.keyspace import Schema
from mailmend.model.sizes import TableSize
from mailmend.model.table import Row
from tests.support.clock import VirtualClock
from tests.support.nodes_twin import Node, NodesTwin

ONE, OTHER = UUID(int=1), UUID(int=2)
MIB = 1024 * 1024
SILENT = OperationTimedOut()


def cluster_of(*nodes: Node, **twin: Any) -> NodesTwin:
    """A cluster of those nodes that has one empty keyspace."""
    return NodesTwin(*nodes, clock=VirtualClock(), mail=Schema((), ()), **twin)


def asked(twin: NodesTwin) -> CassandraCluster:
    return cast("CassandraCluster", twin)


class TestAsking:
    """One answer from every node that is up."""

    def test_each_tells_its_own_rows_in_our_own_values(self) -> None:
        first, second = {"name": "a", "tokens": {1, 2}}, {"name": "b", "tokens": set[int]()}
        twin = cluster_of(Node("10.0.0.1", {"system.t": [first]}), Node("10.0.0.2", {"system.t": [second, first]}))

        answers = ask_every_node(asked(twin), "SELECT name, tokens FROM system.t WHERE a = ?", ("x",))

        assert [(one.node, len(one.rows), one.error) for one in answers] == [
            ("10.0.0.1", 1, None),
            ("10.0.0.2", 2, None),
        ]
        assert answers[0].rows == [{"name": "a", "tokens": frozenset({1, 2})}]
        assert twin.bound == [("system.t", ("x",))] * 2

    def test_a_node_without_rows_has_answered_all_the_same(self) -> None:
        (answer,) = ask_every_node(asked(cluster_of(Node("10.0.0.1"))), "SELECT a FROM system.t")

        assert (answer.rows, answer.error) == ([], None)

    @pytest.mark.parametrize(
        ("fault", "kind"), [(SILENT, TimedOut), (Unauthorized("User bob has no SELECT permission"), AccessDenied)]
    )
    def test_who_is_silent_or_refuses_is_named_and_the_others_still_count(
        self, fault: Exception, kind: type[Exception]
    ) -> None:
        twin = cluster_of(Node("10.0.0.1", {"system.t": fault}), Node("10.0.0.2", {"system.t": [{"a": 1}]}))

        first, second = ask_every_node(asked(twin), "SELECT a FROM system.t")

        assert isinstance(first.error, kind)
        assert (first.node, first.rows) == ("10.0.0.1", ())
        assert second.rows == [{"a": 1}]

    def test_a_table_that_no_node_has_is_asked_of_none(self) -> None:
        lacks = SchemaMismatch("system_views", ("table disk_usage",))
        twin = cluster_of(Node("10.0.0.1"), Node("10.0.0.2"), lacks={"system_views.disk_usage": lacks})

        answers = ask_every_node(asked(twin), "SELECT a FROM system_views.disk_usage")

        assert [(one.node, one.error) for one in answers] == [("10.0.0.1", lacks), ("10.0.0.2", lacks)]
        assert twin.bound == []

    def test_a_node_that_is_down_is_not_asked(self) -> None:
        twin = cluster_of(Node("10.0.0.1", is_up=False), Node("10.0.0.2"))

        assert [one.node for one in ask_every_node(asked(twin), "SELECT a FROM system.t")] == ["10.0.0.2"]


class TestSchemaVersions:
    """Which schema each node has."""

    def test_each_node_speaks_for_itself(self) -> None:
        local = "system.local"
        twin = cluster_of(
            Node("10.0.0.1", {local: [{"schema_version": ONE}]}),
            Node("10.0.0.2", {local: [{"schema_version": OTHER}]}),
            Node("10.0.0.3", {local: SILENT}),
            Node("10.0.0.5", is_up=False),
            Node("10.0.0.4", is_up=False),
        )
        nodes = CassandraNodes(asked(twin))

        assert nodes.schema_versions() == {"10.0.0.1": ONE, "10.0.0.2": OTHER, "10.0.0.3": None}
        assert nodes.nodes_down() == ["10.0.0.4", "10.0.0.5"]


def recorded(table: str, partitions: int, mean: int = 100) -> Row:
    """One range of one node."""
    return {"table_name": table, "mean_partition_size": mean, "partitions_count": partitions}


class ThreeNodes(NodesTwin):
    """Two peers beside the one that answers."""

    def query(self, text: str, values: Any = ()) -> Any:
        return [{"peer": "10.0.0.2"}, {"peer": "10.0.0.3"}] if "system.peers" in text else super().query(text, values)


class TestEstimates:
    """Sizes for plans."""

    def test_what_the_nodes_record_is_summed_and_scaled_to_the_whole_cluster(self) -> None:
        sizes, usage = "system.size_estimates", "system_views.disk_usage"
        first = Node("10.0.0.1", {sizes: [recorded("t", 10), recorded("t", 20)], usage: [_disk("t", 4)]})
        second = Node("10.0.0.2", {sizes: [recorded("t", 30)], usage: [_disk("t", 2)]})
        silent = Node("10.0.0.3", {sizes: SILENT, usage: SILENT})
        twin = ThreeNodes(first, second, silent, clock=VirtualClock(), mail=Schema((), ()))

        found = sizes_in(asked(twin), "Mail")

        assert found == {"t": TableSize(90, 9_000, 9 * MIB, 2, 3)}
        assert {values for _, values in twin.bound} == {("mail",)}

    def test_who_may_not_read_them_gets_none(self) -> None:
        denied = Unauthorized(
            "User bob has no SELECT permission on <table system.size_estimates> or any of its parents"
        )
        refused = Node("10.0.0.1", {"system.size_estimates": denied})
        lacks = {"system_views.disk_usage": WrongUse("there is no such table")}

        twin = ThreeNodes(refused, lacks=lacks, clock=VirtualClock(), mail=Schema((), ()))

        assert sizes_in(asked(twin), "mail") == {}

    def test_a_keyspace_that_is_not_there_is_not_asked_about(self) -> None:
        twin = cluster_of(Node("10.0.0.1"))

        assert sizes_in(asked(twin), "elsewhere") == {}
        assert twin.bound == []
        with pytest.raises(BadIdentifier):
            sizes_in(asked(twin), "mail; DROP")


def _disk(table: str, mebibytes: int) -> Row:
    return {"table_name": table, "mebibytes": mebibytes}


END = "Read 20 live rows and 0 tombstone cells"


def test_each_sstable_is_counted_once() -> None:
    steps = [
        "Key cache hit for sstable 3gr0_1, size = 0",
        "Partition index found for sstable 4, size = 0",
        "Partition index with 12 entries found for sstable 5, size = 600",
        "Key cache hit for sstable 4, size = 0",
        END,
    ]

    assert sstables_in(steps) == 3


def test_what_a_bloom_filter_skipped_was_not_read() -> None:
    assert sstables_in(["Bloom filter allows skipping sstable 7", "Merging memtable contents", END]) == 0


def test_the_merge_says_how_many_there_were() -> None:
    assert sstables_in(["Merged data from memtables and 4 sstables", END]) == 4


def test_a_trace_that_is_not_written_whole_says_nothing_yet() -> None:
    assert sstables_in(["Key cache hit for sstable 3, size = 0"]) is None
    assert sstables_in([]) is None
