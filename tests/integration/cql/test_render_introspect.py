"""What was rendered reads back as the same value: random types, keys, orders and options on a real server."""

from collections.abc import Iterator
from itertools import count
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mailmend.cql.driver.contact import Contact
from mailmend.cql.driver.session import CassandraCluster, connect
from mailmend.cql.introspect import live_schema
from mailmend.cql.render import in_every_data_centre, keyspace_cql, parse_version, table_cql, type_cql
from mailmend.cql.schema.difference import table_differences
from mailmend.model.cql_types import normal_type
from mailmend.model.table import Column, Compaction, Kind, Table, UserType
from tests.support.servers import CassandraServer
from tests.support.thorough import share

pytestmark = pytest.mark.cassandra

KEYSPACE = f"t_round_trip_{uuid4().hex[:8]}"
PLACE = UserType("place", (("street", "text"), ("numbers", "frozen<list<int>>"), ("since", "timestamp")))

SCALARS = st.sampled_from(
    sorted(
        {"ascii", "bigint", "blob", "boolean", "date", "decimal", "double", "float", "inet", "int", "smallint", "text"}
        | {"time", "timestamp", "timeuuid", "tinyint", "uuid", "varint"}
    )
)
FROZEN = st.recursive(
    st.one_of(SCALARS, st.just("frozen<place>")),
    lambda inner: st.one_of(
        inner.map(lambda one: f"frozen<list<{one}>>"),
        inner.map(lambda one: f"frozen<set<{one}>>"),
        st.tuples(inner, inner).map(lambda two: f"frozen<map<{two[0]},{two[1]}>>"),
        st.lists(inner, min_size=1, max_size=3).map(lambda some: f"tuple<{','.join(some)}>"),
    ),
    max_leaves=3,
)
CELLS = st.one_of(
    FROZEN,
    FROZEN.map(lambda one: f"list<{one}>"),
    FROZEN.map(lambda one: f"set<{one}>"),
    st.tuples(FROZEN, FROZEN).map(lambda two: f"map<{two[0]},{two[1]}>"),
    st.just("place"),
)
COMPACTIONS = st.sampled_from(
    [
        None,
        Compaction("LeveledCompactionStrategy"),
        Compaction("SizeTieredCompactionStrategy", {"min_threshold": "6"}),
        Compaction("UnifiedCompactionStrategy", {"scaling_parameters": "L10"}),
        Compaction("TimeWindowCompactionStrategy", {"compaction_window_unit": "HOURS", "compaction_window_size": "6"}),
    ]
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "gc_grace_seconds": st.integers(0, 10**6).map(str),
        "bloom_filter_fp_chance": st.sampled_from(["0.01", "0.1", "0.001"]),
        "default_time_to_live": st.integers(0, 10**6).map(str),
        "caching": st.integers(1, 1000).map(lambda rows: f"{{'keys': 'ALL', 'rows_per_partition': '{rows}'}}"),
        "compression": st.just("{'chunk_length_in_kb': '8', 'class': 'LZ4Compressor'}"),
        "read_repair": st.sampled_from(["'NONE'", "'BLOCKING'"]),
    },
)
_NUMBERS = count()


@st.composite
def tables(draw: st.DrawFn) -> Table:
    partition = [Column(f"p{index}", draw(FROZEN), Kind.PARTITION) for index in range(draw(st.integers(1, 3)))]
    clustering = [
        Column(f"c{index}", draw(FROZEN), Kind.CLUSTERING, descending=draw(st.booleans()))
        for index in range(draw(st.integers(0, 3)))
    ]
    kinds = st.sampled_from([Kind.REGULAR, Kind.STATIC] if clustering else [Kind.REGULAR])
    others = [Column(f"Value_{index}", draw(CELLS), draw(kinds)) for index in range(draw(st.integers(0, 4)))]
    if draw(st.booleans()):
        others = [Column(f"count{index}", "counter") for index in range(max(1, len(others)))]
    options = draw(OPTIONS)
    if any(column.is_counter for column in others):
        options.pop("default_time_to_live", None)
    return Table(
        f"Table_{next(_NUMBERS)}",
        (*partition, *clustering, *others),
        comment=draw(st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=20)),
        compaction=draw(COMPACTIONS),
        options=options,
    )


@pytest.fixture(scope="module")
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    with connect(Contact((cassandra.host,), cassandra.port)) as opened:
        opened.execute_ddl(keyspace_cql(KEYSPACE, in_every_data_centre(1)))
        opened.execute_ddl(type_cql(KEYSPACE, PLACE))
        yield opened
        opened.execute_ddl(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")


def test_a_user_type_reads_back_as_it_was_declared(cluster: CassandraCluster) -> None:
    assert live_schema(cluster, KEYSPACE).types == (PLACE,)


@given(table=tables())
@settings(max_examples=share(40), suppress_health_check=[HealthCheck.too_slow])
def test_a_table_reads_back_as_it_was_declared(cluster: CassandraCluster, table: Table) -> None:
    cluster.execute_ddl(table_cql(KEYSPACE, table, parse_version(cluster.release_version)))
    found = live_schema(cluster, KEYSPACE).table(table.name)
    cluster.execute_ddl(f"DROP TABLE {KEYSPACE}.{table.spelling}")
    assert found is not None
    assert list(table_differences(table, found)) == []
    assert [_reported(column) for column in found.key] == [_reported(column) for column in table.key]
    assert {_reported(column) for column in found.regular} == {_reported(column) for column in table.regular}
    assert found.comment == table.comment


def _reported(column: Column) -> tuple[str, str, Kind, bool]:
    return column.name, normal_type(column.type), column.kind, column.descending
