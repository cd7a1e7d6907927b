"""Declarations of the smaller commands: the runbooks, the versions, the demo."""

from typing import Any, Final

import click

from admin.breaking import MESSAGES_MIN
from admin.cli.command import Command, CommandGroup, Shared
from admin.cli.completion import completed_runbooks
from admin.cli.options import CONNECTION, connection_of, flag, option
from admin.settings import ConnectionSettings

RUNBOOK: Final = CommandGroup(
    name="runbook",
    summary="Pages for the operator's questions.",
    about="Each says: when, check, do, verify, undo.",
    commands=(
        Command(
            name="list",
            summary="List the pages.",
            service="admin.services.runbooks:pages",
            present="admin.present.tools:pages_document",
        ),
        Command(
            name="show",
            summary="Show a page; as Markdown where stdout is no terminal.",
            service="admin.services.runbooks:page_named",
            present="admin.present.tools:page_document",
            options=(click.Argument(["name"], shell_complete=completed_runbooks),),
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
    about="""mailmend, Python, the driver, every library, Spark and its connector, Java, and the server where --host
    (or a setting) names one.""",
    service="admin.services.versions:versions",
    present="admin.present.tools:versions_document",
    shared=(Shared("connection", CONNECTION.groups, _named_connection),),
    examples="""
        mailmend version
        mailmend version --host cassandra-1 --json""",
    exits="0 it was said, also where the server does not answer; 2 wrong use.",
)
DEMO: Final = Command(
    name="demo",
    summary="Write mail, break it, find it, mend it, undo it.",
    about="Everything happens in a Cassandra of its own on this machine, which is removed at the end.",
    service="admin.services.demo:demo",
    present="admin.present.tools:demo_document",
    options=(
        option("--messages", "How many mails are written.", type=click.IntRange(MESSAGES_MIN), default=300),
        option(
            "--engine",
            "What scans: this process alone, where it is local.",
            type=click.Choice(["spark", "local"]),
            default="spark",
        ),
        option(
            "--blobs",
            "Blob store with the contents of mails: as with load. [default: the demo's Cassandra]",
            metavar="URL",
        ),
        flag("--leave-running", "Leave the demo's Cassandra running, to look around.", before="--keep"),
    ),
    output=(),
)
