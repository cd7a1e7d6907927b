"""Declarations of the smaller commands: the runbooks, the versions, the demo."""

from typing import Any, Final

import click

from mailmend.admin.frame.command import Command, CommandGroup, Shared
from mailmend.admin.frame.completion import completed_runbooks
from mailmend.admin.frame.options import CONNECTION, connection_of, flag, option
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.local.breaking import MESSAGES_MIN

RUNBOOK: Final = CommandGroup(
    name="runbook",
    summary="Pages for the operator's questions.",
    about="Each says: when, check, do, verify, undo.",
    commands=(
        Command(
            name="list",
            summary="List the pages.",
            service="mailmend.admin.frame.runbooks:pages",
            present="mailmend.admin.local.tools_document:pages_document",
        ),
        Command(
            name="show",
            summary="Show a page; as Markdown where stdout is no terminal.",
            service="mailmend.admin.frame.runbooks:page_named",
            present="mailmend.admin.local.tools_document:page_document",
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
    service="mailmend.admin.local.versions:versions",
    present="mailmend.admin.local.tools_document:versions_document",
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
    service="mailmend.admin.local.demo:demo",
    present="mailmend.admin.local.tools_document:demo_document",
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
