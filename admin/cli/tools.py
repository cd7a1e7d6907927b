"""Declarations of the smaller commands: the runbooks, the versions."""

from typing import Any, Final

import click

from admin.cli.command import Command, Group, Shared
from admin.cli.completion import completed_runbooks
from admin.cli.options import CONNECTION, JSON, connection_of
from admin.settings import ConnectionSettings

RUNBOOK: Final = Group(
    name="runbook",
    summary="Pages for the operator's questions.",
    about="Pages for the operator's questions: when, check, do, verify, undo.",
    commands=(
        Command(
            name="list",
            summary="List the pages.",
            about="List the pages.",
            service="admin.services.runbooks:list_pages",
            present="admin.present.tools:pages_document",
            output=(JSON,),
        ),
        Command(
            name="show",
            summary="Show a page; as Markdown where stdout is no terminal.",
            about="Show a page; as Markdown where stdout is no terminal.",
            service="admin.services.runbooks:show_page",
            present="admin.present.tools:page_document",
            options=(click.Argument(["name"], shell_complete=completed_runbooks),),
            output=(JSON,),
        ),
    ),
    examples="""
        mailmend runbook list
        mailmend runbook show flags-differ""",
)


def _named_connection(own: dict[str, Any], _: dict[str, Any], context: click.Context) -> ConnectionSettings | None:
    """The connection where a host is named; a server that nobody named is not asked."""
    return connection_of(own, context) if own["host"] else None


VERSION: Final = Command(
    name="version",
    summary="The version of everything, and of a server that is named.",
    about="""Say the versions of everything that takes part: mailmend, Python, the driver, every library, Spark and its
    connector, Java, and the server where --host (or a setting) names one.""",
    service="admin.services.versions:versions",
    present="admin.present.tools:versions_document",
    shared=(Shared("connection", CONNECTION.groups, _named_connection),),
    output=(JSON,),
    examples="""
        mailmend version
        mailmend version --host cassandra-1 --json""",
    exits="0 it was said, also where the server does not answer; 2 wrong use.",
)
