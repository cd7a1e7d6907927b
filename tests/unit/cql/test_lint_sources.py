"""What lint looks at, before any rule: texts into statements, a live keyspace with what its server tells."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from cql.lint_sources import live_subject, release_of, statements_of
from model.catalog.mail import SCHEMA
from model.errors import CqlSyntaxError, MailmendError, UnknownKeyspace, WrongUse
from model.schema.lint.knowledge import HINT_WINDOW_DEFAULT, Knowledge
from model.schema.lint.servers import ServerRelease
from model.schema.table import Row
from tests.support.schema_twin import SchemaTwin
from tests.support.schemas import served


class ServerTwin(SchemaTwin):
    """A server that tells some of its settings, or none at all."""

    def __init__(self, settings: Mapping[str, str | None] | None, release_version: str = "5.0.9") -> None:
        super().__init__(release_version, mail=served(SCHEMA))
        self.settings = settings
        self.scylla = False

    def query(self, text: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        if "scylla_local" in text:
            return [{"table_name": "scylla_local"}] if self.scylla else []
        if "system_views" not in text:
            return super().query(text, values)
        if self.settings is None:
            raise MailmendError("there is no such table here")
        return [{"value": self.settings[name]} for name in values if name in self.settings]


def test_statements_come_with_their_files_in_order() -> None:
    texts = {"b.cql": "CREATE TABLE b (k int PRIMARY KEY);", "empty.cql": " ", "a.cql": "DROP TABLE a; DROP TABLE b;"}
    assert [placed.file for placed in statements_of(texts)] == ["b.cql", "a.cql", "a.cql"]


def test_what_is_no_cql_is_told_with_its_file() -> None:
    with pytest.raises(CqlSyntaxError, match=r"b\.cql, line 2, column 1") as refused:
        statements_of({"a.cql": "DROP TABLE a;", "b.cql": "DROP TABLE a;\nCREAT TABLE b (k int PRIMARY KEY);"})
    assert "^" in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "window", "paxos"),
    [
        (None, HINT_WINDOW_DEFAULT, ""),
        ({}, HINT_WINDOW_DEFAULT, ""),
        ({"max_hint_window_in_ms": "3600000", "paxos_variant": "v2"}, timedelta(hours=1), "v2"),
        ({"max_hint_window_in_ms": "1h", "paxos_variant": None}, HINT_WINDOW_DEFAULT, ""),
    ],
)
def test_a_server_tells_what_it_can(settings: Mapping[str, str | None] | None, window: timedelta, paxos: str) -> None:
    subject = live_subject(ServerTwin(settings), "mail", Knowledge(), None, None)
    assert (subject.knowledge.hint_window, subject.knowledge.paxos_variant) == (window, paxos)
    assert subject.release is ServerRelease.CASSANDRA_5_0
    assert subject.statements == ()
    assert "imapuidtable" in subject.knowledge.updated


def test_what_somebody_says_counts_more_than_what_the_server_tells() -> None:
    server = ServerTwin({"max_hint_window_in_ms": "3600000"}, "4.0.1")
    assert release_of(server) is ServerRelease.CASSANDRA_4_0
    told = live_subject(server, "mail", Knowledge(rows_max=5), ServerRelease.CASSANDRA_5_0, timedelta(hours=9))
    assert (told.release, told.knowledge.hint_window, told.knowledge.rows_max) == (
        ServerRelease.CASSANDRA_5_0,
        timedelta(hours=9),
        5,
    )


def test_a_keyspace_or_a_server_that_is_not_known_is_refused() -> None:
    with pytest.raises(UnknownKeyspace):
        live_subject(ServerTwin(None), "nowhere", Knowledge(), None, None)
    with pytest.raises(WrongUse, match="is no server"):
        live_subject(ServerTwin(None, "2.1.22"), "mail", Knowledge(), None, None)


def test_scylla_is_known_by_a_table_of_its_own() -> None:
    server = ServerTwin(None, "3.0.8")
    server.scylla = True
    assert release_of(server) is ServerRelease.SCYLLA
    assert live_subject(server, "mail", Knowledge(), None, None).release is ServerRelease.SCYLLA
