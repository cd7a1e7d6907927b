"""`mailmend doctor`: everything that mailmend needs, here and on the servers that are named, and what to change."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import metadata, requires
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import click
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from mailmend.admin.frame.cluster import OpenCluster, open_cluster
from mailmend.admin.frame.command import Command, Shared, Values
from mailmend.admin.frame.document import Document, Line, Styled
from mailmend.admin.frame.environments import environment_of_others
from mailmend.admin.frame.event_loop import run_async
from mailmend.admin.frame.extras import import_or_name_extra
from mailmend.admin.frame.options import connection_of, local_instance, option
from mailmend.admin.frame.settings import BlobsSettings, ConnectionSettings, Store, is_pulsar
from mailmend.admin.frame.settings_file import settings_file_of
from mailmend.admin.frame.values import fields_json
from mailmend.admin.local.about import Versions, version_here, versions
from mailmend.admin.local.doctor_judgement import (
    BrokerFound,
    ClusterFound,
    Installed,
    PartFound,
    PartState,
    ServersFound,
    SparkClusterFound,
    UnfitPackage,
    exit_of,
    judged,
)
from mailmend.admin.local.jars import SPARK, connector_is_here, find_java, wheel_home
from mailmend.admin.local.processes import http_answer
from mailmend.admin.queue import openers
from mailmend.admin.queue.broker_options import Local, broker_of, pulsar_of
from mailmend.admin.queue.options import blobs_of, local_for, queue_settings
from mailmend.cql.introspect import keyspace_exists, live_schema
from mailmend.cql.lint_sources import release_of
from mailmend.mailqueue.pulsar.settings import PulsarSettings, out_topic, scheduled_topic
from mailmend.mailqueue.rabbitmq.broker.settings import BrokerSettings
from mailmend.mailqueue.rules.health import TopicFigures, TopicPolicies, judged_topics
from mailmend.model.blobs import Blobs
from mailmend.model.catalog.james_tables import BLOB_PARTS, BLOBS
from mailmend.model.catalog.mail import FAMILIES
from mailmend.model.errors import (
    BrokerDenied,
    BucketMissing,
    MailmendError,
    SchemaMismatch,
)
from mailmend.model.ids import BlobId, QueueName
from mailmend.repair.binding import missing_columns, missing_tables
from mailmend.repair.clock import SystemClock, read_clocks

T = TypeVar("T")

EXTRAS: Final = (
    *("", "cassandra", "scylla", "spark", "staging", "queue", "pulsar", "delivery", "otel", "serve", "local", "java"),
)
ANSWER_SECONDS_MAX: Final = 20
_SCALA: Final = re.compile(r"scala-library-(\d+\.\d+\.\d+)\.jar")
_FOREIGN: Final = 0o007
MASTER_PAGE_PORT: Final = 8080
_VERSION_ON_PAGE: Final = re.compile(r'class="version[^>]*>\s*(\d[^<\s]*)')


@dataclass(frozen=True, slots=True)
class DoctorSettings:
    """The parts that are named, as far as their settings can be read; None: the part is not named.

    Attributes:
        refused: why the settings of a part (cluster, broker, blobs) cannot be used.
        settings: the settings file.
        secrets: files that hold passwords or keys.
        master: the address of a Spark cluster's master (spark://HOST:PORT), or of its page.
    """

    queue: QueueName
    connection: ConnectionSettings | None = None
    broker: BrokerSettings | PulsarSettings | None = None
    blobs: BlobsSettings | None = None
    refused: Mapping[str, MailmendError] = field(default_factory=dict)
    settings: Path | None = None
    secrets: Sequence[Path] = ()
    master: str | None = None


def doctor(settings: DoctorSettings) -> Sequence[PartFound]:
    """Ask everything once; nothing is written anywhere."""
    return judged(installed(), _servers(settings))


def installed() -> Installed:
    """What this machine has, whichever servers are named."""
    found = versions()
    java: str | MailmendError
    java_of_wheel = False
    found_java = _tried(lambda: find_java(SPARK, os.environ))
    if isinstance(found_java, MailmendError):
        java = found_java
    else:
        java = f"{found_java.major} ({found_java.executable})"
        java_of_wheel = found_java.home == wheel_home()
    wanted = metadata("mailmend")["Requires-Python"] or ""
    connector = _connector(found)
    return Installed(
        python=found.python,
        python_wanted=wanted,
        python_serves=found.python in SpecifierSet(wanted),
        packages=found.packages,
        unfit=unfit(version_here, requires("mailmend") or ()),
        java=java,
        java_of_wheel=java_of_wheel,
        scala=_scala(),
        connector=connector,
        connector_here=isinstance(connector, str) and connector_is_here(connector),
        executors_python=_version_of(os.environ.get("PYSPARK_PYTHON")),
    )


def unfit(version_here: Callable[[str], str | None], requirements: Sequence[str]) -> list[UnfitPackage]:
    """The packages that do not fit their requirements; one of an extra may be missing altogether."""
    found = list[UnfitPackage]()
    for requirement in map(Requirement, requirements):
        extra = _first_extra(requirement)
        here = version_here(requirement.name)
        if here:
            fits = requirement.specifier.contains(here, prereleases=True)
        else:
            fits = bool(extra)
        if extra is not None and not fits:
            found.append(UnfitPackage(requirement.name, here, str(requirement.specifier), extra))
    return found


def _first_extra(requirement: Requirement) -> str | None:
    """The first of EXTRAS with which a requirement counts; None where it counts with none of them."""
    for name in EXTRAS:
        if requirement.marker is None or requirement.marker.evaluate({"extra": name}):
            return name
    return None


def _connector(found: Versions) -> str | MailmendError | None:
    pyspark = found.packages["pyspark"]
    if pyspark is None:
        return None
    return _tried(lambda: str(_spark_session().connector_coordinates(pyspark)))


def _spark_session() -> Any:
    return import_or_name_extra("mailmend.spark_repair.session")


def _scala() -> str | None:
    """The version of the Scala library that PySpark brings."""
    jars = Path()
    spec = find_spec("pyspark")
    if spec and spec.origin:
        jars = Path(spec.origin).parent / "jars"
    for jar in jars.glob("scala-library-*.jar"):
        found = _SCALA.fullmatch(jar.name)
        if found:
            return found[1]
    return None


def _version_of(python: str | None) -> str | None:
    """None where none is named, or it is not on this machine: then it is one of the cluster's."""
    if not python:
        return None
    path = shutil.which(python)
    if path is None:
        return None
    asked = [path, "-c", "import platform; print(platform.python_version())"]
    try:
        answer = subprocess.run(  # noqa: S603 - the person's own Python
            asked, capture_output=True, text=True, timeout=ANSWER_SECONDS_MAX, check=True,
            env=environment_of_others(os.environ),
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None


def _servers(settings: DoctorSettings) -> ServersFound:
    refused = settings.refused
    clock = SystemClock()
    cluster: ClusterFound | MailmendError | None = refused.get("cluster")
    broker: BrokerFound | MailmendError | None = refused.get("broker")
    blobs: str | MailmendError | None = refused.get("blobs")
    if (connection := settings.connection) is not None:
        cluster = _tried(lambda: _cluster_at(connection))
    if isinstance(at := settings.broker, PulsarSettings):
        broker = _tried(lambda: pulsar_found(at, settings.queue, clock))
    elif at is not None:
        broker = _tried(lambda: broker_found(at, settings.queue, clock))
    if (store := settings.blobs) is not None:
        if store.address.store is not Store.CASSANDRA:
            blobs = _tried(lambda: blobs_found(store, clock))
        elif isinstance(at, PulsarSettings):
            blobs = openers.tables_lacking()
        else:
            blobs = _blobs_in_tables(cluster)
    spark = None
    if settings.master:
        spark = spark_cluster_found(settings.master)
    return ServersFound(
        cluster=cluster,
        broker=broker,
        blobs=blobs,
        spark=spark,
        settings=settings.settings,
        open_files=[file for file in settings.secrets if _is_open(file)],
    )


def _cluster_at(connection: ConnectionSettings) -> ClusterFound:
    with open_cluster(connection) as opened:
        return cluster_found(opened)


def _blobs_in_tables(cluster: ClusterFound | MailmendError | None) -> str | MailmendError | None:
    if not isinstance(cluster, ClusterFound):
        return cluster
    if not cluster.holds_blobs:
        return SchemaMismatch(cluster.keyspace, (BLOBS.spelling, BLOB_PARTS.spelling))
    return f"in {BLOBS.spelling} and {BLOB_PARTS.spelling} of {cluster.keyspace}"


def _tried(ask: Callable[[], T]) -> T | MailmendError:
    try:
        return ask()
    except MailmendError as error:
        return error


def _is_open(file: Path) -> bool:
    try:
        return bool(file.expanduser().stat().st_mode & _FOREIGN)
    except OSError:
        return False


def cluster_found(opened: OpenCluster) -> ClusterFound:
    cluster = opened.cluster
    connection = opened.connection
    nodes = import_or_name_extra("mailmend.cql.driver.nodes").CassandraNodes(cluster)
    schemas = nodes.schema_versions().values()
    lacking = None
    holds_blobs = False
    if keyspace_exists(cluster, connection.keyspace):
        live = live_schema(cluster, connection.keyspace)
        holds_blobs = all(live.table(table.name) is not None for table in (BLOBS, BLOB_PARTS))
        lacking = [*missing_tables(live, FAMILIES), *map(str, missing_columns(live, FAMILIES))]
    return ClusterFound(
        place=connection.place,
        title=release_of(cluster).title,
        releases=nodes.releases(),
        down=nodes.nodes_down(),
        schemas=len({schema for schema in schemas if schema}),
        clocks=read_clocks(opened.clock, cluster),
        keyspace=connection.keyspace,
        lacking=lacking,
        holds_blobs=holds_blobs,
        ledger=connection.ledger_keyspace,
        ledger_there=keyspace_exists(cluster, connection.ledger_keyspace),
    )


def spark_cluster_found(master: str) -> SparkClusterFound:
    """What the master's page tells.

    `master` is the address of the page, or spark://HOST:PORT; the page is then looked for at its usual port.
    """
    parts = urlsplit(master.partition(",")[0])
    host = parts.hostname or ""
    if parts.scheme == "spark":
        port = MASTER_PAGE_PORT
    else:
        port = parts.port or 80
    _, page = http_answer(host, port, parts.path or "/", {})
    version = _VERSION_ON_PAGE.search(page.decode(errors="replace"))
    return SparkClusterFound(f"http://{host}:{port}", version and version[1])


def broker_found(settings: BrokerSettings, queue: QueueName, clock: SystemClock) -> BrokerFound:
    broker = openers.broker_behind(settings, clock)

    async def asked() -> BrokerFound:
        try:
            alarms, has_api = (await broker.depth(queue)).alarms, settings.management is not None
            return BrokerFound(settings.place, await broker.product(), alarms, has_api=has_api)
        finally:
            await broker.close()

    return run_async(asked())


def pulsar_found(settings: PulsarSettings, queue: QueueName, clock: SystemClock) -> BrokerFound:
    """What Pulsar tells, and its policies where the queue has topics by now, and we may read them."""
    topics = openers.topics_behind(settings, clock)

    async def asked() -> BrokerFound:
        try:
            product, delayed, policies = await topics.product(), scheduled_topic(queue), dict[str, TopicPolicies]()
            with suppress(BrokerDenied):
                for topic in (out_topic(queue), delayed):
                    if found := await topics.policies(topic):
                        policies[topic] = found
            reasons = judged_topics(queue, TopicFigures(settings.namespace, policies, delayed_topic=delayed))
            return BrokerFound(settings.place, product, policies=tuple(reasons))
        finally:
            await topics.close()

    return run_async(asked())


def blobs_found(settings: BlobsSettings, clock: SystemClock) -> str:
    """Where the blobs are, in a sentence, once the store has answered; makes no folder and no bucket."""
    address, bucket = settings
    absent = f"{address.place} is not there yet: the first mail makes it"
    if address.store is Store.FILES and not address.folder.expanduser().is_dir():
        return absent
    blobs = openers.blobs_behind(settings, None, clock, makes=False)
    try:
        run_async(_asked_for(blobs, clock))
    except BucketMissing:
        if not (bucket and bucket.create_bucket):
            raise
        return absent
    return f"{address.place} answers"


async def _asked_for(blobs: Blobs, clock: SystemClock) -> bool:
    return await blobs.exists(BlobId(f"1_0_{clock.new_uuid()}"))


_STYLES = {
    PartState.OK: "green",
    PartState.TO_CHANGE: "bold yellow",
    PartState.NOT_CONFIGURED: "dim",
    PartState.CANNOT_REACH: "bold red",
}


_WORDS = {state: state.value.lower().replace("_", " ") for state in PartState} | {PartState.OK: "OK"}


def doctor_document(parts: Sequence[PartFound]) -> Document:
    """A line for each part."""
    rows = [fields_json(part, "part", "state", "seen", "next") for part in parts]
    code = exit_of(parts)
    return Document({"parts": rows, "exit": int(code)}, tuple(map(_part_line, parts)), code)


def _part_line(found: PartFound) -> Line:
    state = Styled(f"{_WORDS[found.state]:<15}", _STYLES[found.state])
    says = found.seen
    if found.next:
        says += f". Next: {found.next}"
    says = " ".join(says.split())
    return Line((state, f"{found.part:<11}{says}"))


_SECRET_FILES: Final = ("password_file", "broker_password_file", "s3_keys_file", "tls_key", "broker_tls_key")
_HOLDS_SECRETS: Final = re.compile(r"(?m)^[^\S\n]*[\w-]*(?:password|secret[-_]key|session[-_]token)\s*=")
_MASTER: Final = option(
    "--master",
    "Spark's master: spark://HOST:PORT, with its page at http://HOST:8080; or the URL of its page, where that differs.",
    metavar="URL",
)
EVERYTHING: Final = queue_settings(broker=lambda _: True, blobs=lambda _: True)


def _build(own: Values, others: Values, context: click.Context) -> DoctorSettings:  # noqa: ARG001 - a Shared's signature
    return doctor_settings(own, context, lambda: connection_of(own, context))


def doctor_settings(own: Values, context: click.Context, connect: Callable[[], ConnectionSettings]) -> DoctorSettings:
    """What is named, and for each part that is named badly the reason: the others are looked at all the same.

    Args:
        own: the values of the options.
        context: of the command.
        connect: builds the connection; called where a cluster is named.
    """
    refused = dict[str, MailmendError]()

    def tried(part: str, make: Callable[[], T]) -> T | None:
        try:
            return make()
        except MailmendError as error:
            refused[part] = error
            return None

    def broker_settings() -> BrokerSettings | PulsarSettings:
        if is_pulsar(own["broker"] or ""):
            return pulsar_of(own, context)
        return broker_of(own, context, local)

    connection = None
    if own["host"] or local_instance():
        connection = tried("cluster", connect)
    local: Local = _nothing_local
    if connection:
        local = local_for(connection)
    broker = None
    if own["broker"] or local("rabbitmq"):
        broker = tried("broker", broker_settings)
    blobs = None
    if own["blobs"] or local("s3"):
        blobs = tried("blobs", lambda: blobs_of(own, context, local))
    file, text = settings_file_of(context)
    secrets = [own[name] for name in _SECRET_FILES if own[name]]
    if file and _HOLDS_SECRETS.search(text):
        secrets.append(file)
    return DoctorSettings(own["queue"], connection, broker, blobs, refused, file, secrets, own.get("master"))


def _nothing_local(_: str) -> None:
    return None


DOCTOR: Final = Command(
    name="doctor",
    summary="What is well with this installation, and what to change.",
    about="""One line each for Python, driver, libraries, Java, Spark, Scala, connector, a Spark cluster that is
    named, settings, cluster, clocks, keyspace, ledger, broker and blobs: OK, to change, not configured, or cannot
    be reached; with the next command where there is one. Of a broker that is Pulsar: whether it and its admin API
    answer and let us in, its version, the namespace, and the policies of the queue's topics, delayed delivery among
    them. Nothing is written anywhere, and no Spark is started.""",
    service="mailmend.admin.local.doctor:doctor",
    present="mailmend.admin.local.doctor:doctor_document",
    paged=True,
    shared=(Shared("settings", {**EVERYTHING.groups, "Spark": [_MASTER]}, _build),),
    examples="""
        mailmend doctor
        mailmend doctor --host cassandra-1 --broker amqp://rabbit-1 --blobs cassandra: --json
        mailmend doctor --broker pulsar://pulsar-1/mail/queues --blobs s3://mails?endpoint=https://s3.example.org""",
    exits="0 all is well, 1 something is to be changed, 2 wrong use (a settings file that cannot be read), 4 something "
    "cannot be reached.",
)
