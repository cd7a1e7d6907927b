"""Declarations of `mailmend local`: a real Cassandra on this machine, for a first try, development, a test."""

from pathlib import Path
from typing import Final

import click

from mailmend.admin.frame.command import Command, CommandGroup
from mailmend.admin.frame.kinds import PORT, ParsedValue
from mailmend.admin.frame.options import option
from mailmend.admin.local.cassandra_settings import HEAP_MIB_DEFAULT, NATIVE_PORT_DEFAULT, NODES_MAX, RELEASES, heap_mib
from mailmend.admin.local.servers import known_names, parse_names

_LINES: Final = tuple(RELEASES)
_FOLDER: Final = option(
    "--dir",
    "Folder for the files: data and logs of the servers. [default: the user's data folder]",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
)
_STATUS: Final = "mailmend.admin.local.tools_document:status_document"

LOCAL: Final = CommandGroup(
    name="local",
    summary="A real Cassandra on this machine.",
    about="""Beside it, where wanted, RabbitMQ, Pulsar and a store that speaks S3. 127.0.0.1 only, little memory; what
    they are made of is fetched once and then used offline.""",
    commands=(
        Command(
            name="up",
            summary="Start it and wait until it answers.",
            about="""What runs already is left running. Data and settings of an earlier start are found again. Exit
            code 4: it could not be started.""",
            service="mailmend.admin.local.servers_service:up",
            present=_STATUS,
            options=(
                option(
                    "--nodes",
                    "How many nodes of Cassandra, on 127.0.0.1 and the addresses after it. [default: 1]",
                    type=click.IntRange(1, NODES_MAX),
                ),
                option("--port", f"Port for CQL. [default: {NATIVE_PORT_DEFAULT}]", type=PORT, metavar="PORT"),
                option(
                    "--heap",
                    f"Java heap of each node. [default: {HEAP_MIB_DEFAULT}m]",
                    type=ParsedValue("size", heap_mib),
                    metavar="SIZE",
                ),
                option(
                    "--server-version",
                    f"Version of Cassandra. [default: {_LINES[0]}]",
                    "line",
                    before="--version",
                    type=click.Choice(_LINES),
                ),
                option(
                    "--with",
                    f"Servers to start beside it, with commas: {known_names()}. RabbitMQ's user is guest, its "
                    "password too.",
                    "names",
                    type=ParsedValue("names", parse_names),
                    metavar="NAMES",
                ),
                _FOLDER,
            ),
        ),
        Command(
            name="down",
            summary="Stop it and all beside it; the data stay.",
            about="Only processes that `local up` started are touched.",
            service="mailmend.admin.local.servers_service:down",
            present=_STATUS,
            options=(_FOLDER,),
        ),
        Command(
            name="status",
            summary="Say how it is.",
            about="Also how every server beside it is that was started.",
            service="mailmend.admin.local.servers_service:status",
            present=_STATUS,
            options=(_FOLDER,),
            exits="0 every node answers, 3 some do, 4 none does. A server beside them counts as a node until it is "
            "stopped.",
        ),
        Command(
            name="clean",
            summary="Remove the data of stopped servers.",
            about="Refused while any of them runs. What was fetched stays.",
            service="mailmend.admin.local.servers_service:clean",
            present="mailmend.admin.local.tools_document:clean_document",
            options=(_FOLDER,),
        ),
    ),
    examples="""
        mailmend local up                      one node of Cassandra
        mailmend local up --with rabbitmq,s3   and what a mail queue needs besides
        mailmend local status --json           how they are, for a script
        mailmend local down                    stop all of them; the data stay
        mailmend local clean                   and go with this""",
)
