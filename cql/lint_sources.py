"""The input of lint: CQL texts parsed into statements, or a live keyspace, which is only read."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from mailmend.cql.introspect import SchemaServer, live_schema
from mailmend.cql.language.parser import parse
from mailmend.cql.schema.lint.servers import ServerRelease, parse_release
from mailmend.cql.schema.lint.subject import HINT_WINDOW_DEFAULT, Knowledge, Subject, known_of
from mailmend.cql.statements import Parsed
from mailmend.model.errors import MailmendError
from mailmend.model.names import name_of

_SETTING = "SELECT value FROM system_views.settings WHERE name = ?"
_SCYLLA = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'system' AND table_name = 'scylla_local'"


def statements_of(texts: Mapping[str, str]) -> tuple[Parsed, ...]:
    """The files' statements in order.

    Raises:
        CqlSyntaxError: a text is not CQL; the message has file, line and column.
    """
    return tuple(parsed for file, text in texts.items() for parsed in parse(text, file))


def live_subject(
    server: SchemaServer,
    keyspace: str,
    settings: Knowledge,
    release: ServerRelease | None,
    hint_window: timedelta | None,
) -> Subject:
    """A live keyspace as input of lint; the server's own values are used for settings that are not given.

    Raises:
        UnknownKeyspace: no keyspace has that name.
        WrongUse: the server's version is unknown.
    """
    replication = server.replication_of(keyspace)
    schema = live_schema(server, keyspace)
    window = hint_window or _hint_window(server) or HINT_WINDOW_DEFAULT
    knowledge = replace(settings, hint_window=window, paxos_variant=_setting(server, "paxos_variant"))
    return Subject(
        schema,
        name_of(keyspace),
        replication=replication,
        release=release or release_of(server),
        knowledge=knowledge.with_facts_of(known_of(schema)),
    )


def release_of(server: SchemaServer) -> ServerRelease:
    if server.query(_SCYLLA):
        return ServerRelease.SCYLLA
    return parse_release(server.release_version)


def _hint_window(server: SchemaServer) -> timedelta | None:
    milliseconds = _setting(server, "max_hint_window_in_ms")
    if not milliseconds.isdigit():
        return None
    return timedelta(milliseconds=int(milliseconds))


def _setting(server: SchemaServer, name: str) -> str:
    """The setting of the node that answers; "" where it may not be read or the version has no such table."""
    try:
        rows = server.query(_SETTING, (name,))
    except MailmendError:
        return ""
    if not rows:
        return ""
    return str(rows[0]["value"] or "")
