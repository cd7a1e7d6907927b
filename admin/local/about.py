"""`mailmend version` and `mailmend runbook`: what is installed, and pages for operators."""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any, Final

import click
from packaging.requirements import Requirement

from mailmend.admin.frame.cluster import open_cluster
from mailmend.admin.frame.command import Command, CommandGroup, Shared
from mailmend.admin.frame.completion import completed_runbooks
from mailmend.admin.frame.document import Document, Grid, Markdown
from mailmend.admin.frame.extras import import_or_name_extra
from mailmend.admin.frame.options import CONNECTION, connection_of
from mailmend.admin.frame.runbooks import RunbookPage
from mailmend.admin.frame.settings import ConnectionSettings
from mailmend.admin.frame.values import fields_json
from mailmend.admin.local.jars import SPARK, find_java
from mailmend.model.errors import MailmendError


@dataclass(frozen=True, slots=True)
class Versions:
    """Installed versions, and the versions of servers that answer.

    Attributes:
        packages: by name, the packages of every extra; None where a package is not installed.
        connector: Maven coordinates of the Cassandra connector that fits PySpark; None without PySpark.
        java: which Spark would run on; None where none was found.
        server: release of the cluster; None where none was asked.
        unanswered: why a server did not answer.
    """

    packages: Mapping[str, str | None]
    python: str
    system: str
    connector: str | None
    java: str | None
    server: str | None
    unanswered: str | None = None


def versions(connection: ConnectionSettings | None = None) -> Versions:
    """The installed versions, and the version of a server where one is named."""
    server, unanswered = _server(connection)
    wanted = [Requirement(require).name for require in requires("mailmend") or ()]
    packages = {name: version_here(name) for name in ("mailmend", *wanted)}
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    connector = _connector(packages["pyspark"])
    return Versions(packages, platform.python_version(), system, connector, _java(), server, unanswered)


def version_here(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _connector(pyspark: str | None) -> str | None:
    if pyspark is None:
        return None
    try:
        return str(import_or_name_extra("mailmend.spark_repair.session").connector_coordinates(pyspark))
    except MailmendError as error:
        return str(error)


def _java() -> str | None:
    try:
        java = find_java(SPARK, os.environ)
    except MailmendError:
        return None
    return f"{java.major} ({java.executable})"


def _server(connection: ConnectionSettings | None) -> tuple[str | None, str | None]:
    if connection is None:
        return None, None
    try:
        with open_cluster(connection) as opened:
            return opened.cluster.release_version, None
    except MailmendError as error:
        return None, str(error)


def versions_document(found: Versions) -> Document:
    rows = [(name, version) for name, version in found.packages.items() if version]
    rows.append(("Python", found.python))
    rows.append(("system", found.system))
    rows.append(("Spark connector", found.connector or "PySpark is not installed"))
    rows.append(("Java", found.java or "none was found"))
    rows.append(("server", found.server or found.unanswered or "not asked: name one with --host"))
    json = {**found.packages, **fields_json(found, "python", "system", "connector", "java", "server", "unanswered")}
    return Document(json, (Grid("Versions", ("part", "version"), rows, frozenset({"version"})),))


def _named_connection(own: dict[str, Any], _: dict[str, Any], context: click.Context) -> ConnectionSettings | None:
    """The connection where a host is named; without a name no server is asked."""
    if not own["host"]:
        return None
    return connection_of(own, context)


VERSION: Final = Command(
    name="version",
    summary="The version of everything, and of a server that is named.",
    about="""mailmend, Python, the driver, every library, Spark and its connector, Java, and the server where --host
    (or a setting) names one.""",
    service="mailmend.admin.local.about:versions",
    present="mailmend.admin.local.about:versions_document",
    shared=(Shared("connection", CONNECTION.groups, _named_connection),),
    examples="""
        mailmend version
        mailmend version --host cassandra-1 --json""",
    exits="0 it was said, also where the server does not answer; 2 wrong use.",
)


def pages_document(found: Sequence[RunbookPage]) -> Document:
    rows = [(page.name, page.title) for page in found]
    json = {"runbooks": [fields_json(page, "name", "title") for page in found]}
    return Document(json, (Grid("Runbooks", ("name", "question"), rows), "Next: mailmend runbook show NAME"))


def page_document(page: RunbookPage) -> Document:
    return Document(fields_json(page, "name", "title", "text"), (Markdown(page.text),))


RUNBOOK: Final = CommandGroup(
    name="runbook",
    summary="Pages for the operator's questions.",
    about="Each says: when, check, do, verify, undo.",
    commands=(
        Command(
            name="list",
            summary="List the pages.",
            service="mailmend.admin.frame.runbooks:pages",
            present="mailmend.admin.local.about:pages_document",
            paged=True,
        ),
        Command(
            name="show",
            summary="Show a page; as Markdown where stdout is no terminal.",
            service="mailmend.admin.frame.runbooks:page_named",
            present="mailmend.admin.local.about:page_document",
            paged=True,
            options=(click.Argument(["name"], shell_complete=completed_runbooks),),
        ),
    ),
    examples="""
        mailmend runbook list
        mailmend runbook show flags-differ""",
)
