"""What nodes tell, put together: sums and worst nodes, and a note for whatever could not be read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from mailmend.cql.statistics import MIB, VIEWS, NodeAnswer, NodeFigure, TableFigures, read_statistics
from mailmend.model.errors import AccessDenied, CannotReach, MailmendError, SchemaMismatch
from mailmend.model.table import Row

MAIL = "mail"


@dataclass
class Nodes:
    """Nodes that answer by the table they are asked for; a table may be refused, on all or on one."""

    tables: Mapping[str, Sequence[Sequence[Row]]]
    refusals: Mapping[str, MailmendError] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()

    def __call__(self, text: str, _: Sequence[Any]) -> Sequence[NodeAnswer]:
        table = text.partition(" FROM ")[2].split(maxsplit=1)[0]
        answers = self.tables.get(table, ((), ()))
        return [self._answer(f"10.0.0.{number}", table, rows) for number, rows in enumerate(answers, start=1)]

    def _answer(self, node: str, table: str, rows: Sequence[Row]) -> NodeAnswer:
        error = self.refusals.get(table) or (CannotReach(f"{node} is away") if node in self.silent else None)
        return NodeAnswer(node, error=error) if error else NodeAnswer(node, rows)


def view(column: str, figure: float, table: str = "imapuidtable", keyspace: str = MAIL) -> Row:
    return {"keyspace_name": keyspace, "table_name": table, column: figure}


def test_sizes_are_added_up_and_latencies_are_those_of_the_worst_node() -> None:
    nodes = Nodes(
        {
            "system.size_estimates": (
                [
                    {"table_name": "imapuidtable", "mean_partition_size": 100, "partitions_count": 10},
                    {"table_name": "blobs", "mean_partition_size": 9_000, "partitions_count": 1},
                ],
                [{"table_name": "imapuidtable", "mean_partition_size": 400, "partitions_count": 20}],
            ),
            "system_views.disk_usage": ([view("mebibytes", 3), view("mebibytes", 99, keyspace="other")],) * 2,
            "system_views.local_read_latency": ([view("p99th_ms", 2.5)], [view("p99th_ms", 7.5)]),
            "system_views.settings": ([{"name": "max_hint_window_in_ms", "value": "10800000"}],) * 2,
        }
    )

    found = read_statistics(nodes, MAIL, ["imapuidtable", "messageidtable"])

    assert found.tables["imapuidtable"].partitions == 30
    assert found.tables["imapuidtable"].mean_partition_bytes == 300
    assert found.tables["imapuidtable"].disk_bytes == 6 * MIB
    assert found.tables["imapuidtable"].local_read_p99_ms == 7.5
    assert found.tables["messageidtable"].disk_bytes is None
    assert found.hint_window_seconds == 10_800
    assert (found.nodes_up, found.nodes_heard) == (2, 2)
    assert found.notes == ()


def test_figures_of_a_quoted_keyspace_are_found_by_its_own_name() -> None:
    disk = ([view("mebibytes", 3, keyspace="OddKs"), view("mebibytes", 99, keyspace="oddks")],)

    found = read_statistics(Nodes({"system_views.disk_usage": disk}), '"OddKs"', ["imapuidtable"])

    assert found.tables["imapuidtable"].disk_bytes == 3 * MIB


def test_a_refused_permission_is_a_note_that_says_what_to_grant() -> None:
    nodes = Nodes({}, {"system_views.disk_usage": AccessDenied("no"), "system.size_estimates": AccessDenied("no")})

    found = read_statistics(nodes, MAIL, ["imapuidtable"])

    assert found.tables["imapuidtable"] == TableFigures()
    assert (
        "system_views.disk_usage may not be read with these credentials "
        "(GRANT SELECT ON KEYSPACE system_views TO the role)." in found.notes
    )
    assert len(found.notes) == 2


def test_a_table_that_an_older_server_lacks_is_a_note() -> None:
    nodes = Nodes({}, {"system_views.rows_per_read": SchemaMismatch("system_views", ("table rows_per_read",))})

    found = read_statistics(nodes, MAIL, ["imapuidtable"])

    assert found.notes == ("system_views.rows_per_read is not there on this server, or has other columns.",)


def test_a_node_that_is_silent_is_named() -> None:
    usage = ([view("mebibytes", 3)], [view("mebibytes", 5)])
    nodes = Nodes({"system_views.disk_usage": usage}, silent=frozenset({"10.0.0.2"}))

    found = read_statistics(nodes, MAIL, ["imapuidtable"])

    assert found.tables["imapuidtable"].disk_bytes == 3 * MIB
    assert found.nodes_heard == 1
    assert "system_views.disk_usage: 10.0.0.2 did not answer: 10.0.0.2 is away" in found.notes


def test_a_setting_that_is_no_number_is_not_read() -> None:
    nodes = Nodes({"system_views.settings": ([{"name": "max_hint_window_in_ms", "value": "null"}], [])})

    assert read_statistics(nodes, MAIL, []).hint_window_seconds is None


@pytest.mark.parametrize("view_of", VIEWS, ids=lambda one: one.table)
def test_each_figure_comes_from_its_own_table(view_of: NodeFigure) -> None:
    place = f"system_views.{view_of.table}"
    rows = ([view(view_of.column, 3)], [view(view_of.column, 5), view(view_of.column, 9, table="other")])

    figures = read_statistics(Nodes({place: rows}), MAIL, ["imapuidtable"]).tables["imapuidtable"]

    reported = 8 * MIB if view_of.figure == "disk_bytes" else 5 * (MIB if "bytes" in view_of.figure else 1)
    assert getattr(figures, view_of.figure) == reported
    others = [one.figure for one in VIEWS if one is not view_of]
    assert [getattr(figures, name) for name in others] == [None] * len(others)


def test_a_figure_that_a_node_leaves_open_is_not_counted() -> None:
    rows = ([{**view("p99th_ms", 0), "p99th_ms": None}], [view("p99th_ms", 4)])

    found = read_statistics(Nodes({"system_views.local_read_latency": rows}), MAIL, ["imapuidtable"])

    assert found.tables["imapuidtable"].local_read_p99_ms == 4


def test_a_table_without_partitions_has_no_mean() -> None:
    nothing: Sequence[Sequence[Row]] = (
        [{"table_name": "imapuidtable", "mean_partition_size": 0, "partitions_count": 0}],
        [],
    )

    found = read_statistics(Nodes({"system.size_estimates": nothing}), MAIL, ["imapuidtable"]).tables["imapuidtable"]

    assert (found.partitions, found.mean_partition_bytes) == (0, None)


def test_the_longest_hint_window_of_any_node_counts() -> None:
    name = "max_hint_window_in_ms"
    rows = ([{"name": name, "value": "3600000"}], [{"name": name, "value": "10800000"}])

    assert read_statistics(Nodes({"system_views.settings": rows}), MAIL, []).hint_window_seconds == 10_800


def test_the_same_fault_on_every_node_is_one_note() -> None:
    denied = {"system_views.disk_usage": AccessDenied("no"), "system_views.settings": AccessDenied("no")}

    found = read_statistics(Nodes({}, denied), MAIL, ["imapuidtable"])

    assert [note.split()[0] for note in found.notes] == list(denied)
    assert (found.nodes_up, found.nodes_heard) == (2, 2)
