"""The fold against a real server: the same verdict on every statement, and the same schema after it."""

from collections.abc import Iterator, Mapping
from itertools import count
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mailmend.cql.driver.contact import Contact
from mailmend.cql.driver.session import CassandraCluster, connect
from mailmend.cql.export import SCHEMA_FILE
from mailmend.cql.introspect import live_schema
from mailmend.cql.language.parser import parse
from mailmend.cql.render import ddl_cql, in_every_data_centre, keyspace_cql, schema_cql
from mailmend.cql.schema.difference import differences
from mailmend.cql.statements import Statement, apply_all
from mailmend.model.catalog.mail import SCHEMA
from mailmend.model.errors import CannotReach, MailmendError, SchemaRefused
from mailmend.model.keyspace import EMPTY, Schema
from tests.support.ddl_stories import stories
from tests.support.james import james_schema
from tests.support.keyspaces import dropped
from tests.support.servers import CassandraServer

pytestmark = pytest.mark.cassandra

_RUN = uuid4().hex[:8]
_NUMBERS = count()
_NO_WORDS = "IllegalArgumentException"
"""What Cassandra says of two columns that get one new name, without a reason: it is a refusal too."""


@pytest.fixture(scope="module")
def cluster(cassandra: CassandraServer) -> Iterator[CassandraCluster]:
    with connect(Contact((cassandra.host,), cassandra.port)) as opened:
        yield opened


@pytest.fixture(scope="module")
def views(cluster: CassandraCluster) -> bool:
    rows = cluster.query("SELECT value FROM system_views.settings WHERE name = ?", ("materialized_views_enabled",))
    return any(row["value"] == "true" for row in rows)


@pytest.fixture
def keyspace(cluster: CassandraCluster) -> Iterator[str]:
    name = f"t_fold_{_RUN}_{next(_NUMBERS)}"
    yield name
    dropped(cluster, (name,))


def _created(cluster: CassandraCluster, name: str) -> None:
    cluster.execute_ddl(keyspace_cql(name, in_every_data_centre(1)))


def _server_refuses(cluster: CassandraCluster, text: str) -> MailmendError | None:
    try:
        cluster.execute_ddl(text)
    except CannotReach as failed:
        if _NO_WORDS not in failed.what:
            raise
        return failed
    except MailmendError as refused:
        return refused
    return None


def _folded(schema: Schema, statement: Statement) -> tuple[Schema, SchemaRefused | None]:
    try:
        return statement.apply(schema), None
    except SchemaRefused as refused:
        return schema, refused


def _remembered(schema: Schema) -> Mapping[str, object]:
    return {table.name: {(one.name, one.type, one.kind) for one in table.dropped} for table in schema.tables}


# Each example costs some forty changes of a schema: what fails is told as it is, not made smaller.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")  # the driver's own threads do
@settings(max_examples=4, suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate))
@given(st.data())
def test_server_and_fold_give_one_verdict_and_one_schema(
    cluster: CassandraCluster, views: bool, data: st.DataObject
) -> None:
    """Statement after statement, whether it fits or not: tables, types, columns, options, indexes, views."""
    story = data.draw(stories(views=views))
    keyspace = f"t_story_{_RUN}_{next(_NUMBERS)}"
    _created(cluster, keyspace)
    try:
        schema = EMPTY
        for statement in story:
            text = ddl_cql(statement, keyspace)
            by_server = _server_refuses(cluster, text)
            schema, by_fold = _folded(schema, statement)
            assert (by_server is None) == (by_fold is None), f"{text}\nserver: {by_server}\nfold: {by_fold}"
            if by_server is None:
                live = live_schema(cluster, keyspace)
                assert differences(schema, live) == (), text
                assert _remembered(schema) == _remembered(live), text
    finally:
        dropped(cluster, (keyspace,))


def _described(cluster: CassandraCluster, keyspace: str) -> str:
    rows = cluster.session.execute(f"DESCRIBE KEYSPACE {keyspace}")
    return "\n".join(row[3] for row in rows)


@pytest.mark.parametrize("schema", [SCHEMA, james_schema()], ids=["ours", "of James"])
def test_what_the_server_describes_folds_to_what_it_holds(
    cluster: CassandraCluster, keyspace: str, schema: Schema
) -> None:
    _created(cluster, keyspace)
    for text in schema_cql(keyspace, schema):
        cluster.execute_ddl(text)
    live = live_schema(cluster, keyspace)
    reported = apply_all(parse(_described(cluster, keyspace)))
    assert differences(reported, live) == ()
    assert differences(schema, reported) == ()


ODD = """
CREATE TYPE "Odd Type" ("Odd Field" int, select_ frozen<list<text>>);
CREATE TYPE outer_type (inner frozen<"Odd Type">);
CREATE TABLE "Odd" ("Key k" int, "select" timeuuid, "a""b" text, v "Odd Type", f frozen<map<text, frozen<outer_type>>>,
    s int STATIC, PRIMARY KEY ("Key k", "select")) WITH CLUSTERING ORDER BY ("select" DESC) AND comment = 'it''s {odd}';
ALTER TABLE "Odd" ADD gone int;
ALTER TABLE "Odd" DROP gone;
CREATE INDEX "Odd_by" ON "Odd" ("a""b");
CREATE TABLE vectors (id int PRIMARY KEY, v vector<float, 3>, t tuple<int, frozen<set<text>>>);
CREATE CUSTOM INDEX near ON vectors (v) USING 'StorageAttachedIndex' WITH OPTIONS = {'similarity_function': 'cosine'};
CREATE TABLE counts (id int PRIMARY KEY, n counter) WITH compaction = {'class': 'LeveledCompactionStrategy'};
"""


def test_odd_names_are_folded_described_and_rendered_alike(cluster: CassandraCluster, keyspace: str) -> None:
    """Names in quotes, types in types, vectors, indexes: from file to server, from its words, and rendered anew."""
    _created(cluster, keyspace)
    parsed = parse(ODD)
    for one in parsed:
        cluster.execute_ddl(ddl_cql(one.statement, keyspace))
    live, folded = live_schema(cluster, keyspace), apply_all(parsed)
    reported = apply_all(parse(_described(cluster, keyspace)))
    assert differences(folded, live) == differences(reported, live) == ()
    assert _remembered(folded) == _remembered(live)
    cluster.execute_ddl(f"DROP KEYSPACE {keyspace}")
    _created(cluster, keyspace)
    for text in schema_cql(keyspace, live):
        cluster.execute_ddl(text)
    again = live_schema(cluster, keyspace)
    assert differences(live, again) == ()


def test_the_schema_file_folds_to_the_catalog() -> None:
    folded = apply_all(parse(SCHEMA_FILE.read_text(encoding="utf-8")))
    assert differences(SCHEMA, folded) == differences(folded, SCHEMA) == ()


def test_where_the_server_describes_all_keyspaces_all_of_it_is_read(cluster: CassandraCluster) -> None:
    rows = cluster.session.execute("DESCRIBE FULL SCHEMA")
    text = "\n".join(row[3] for row in rows)
    assert len(parse(text)) >= len(SCHEMA.tables)
