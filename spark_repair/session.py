"""One Spark session, quiet and bounded, with the Cassandra connector that fits the installed PySpark.

The connector's jars are given as files, so that Spark resolves nothing. Secrets never reach a command line: what the
JVM is launched with is public, a cluster's password is given to each read.
"""

import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from mailmend.model.errors import JavaMissing, MailmendError, SparkUnreachable, WrongUse
from mailmend.repair.clock import SystemClock
from mailmend.spark_repair.executors import await_executors, runs_here, ship_packages
from mailmend.spark_repair.jvm import (
    came_of_lost_java,
    ended_when_interrupted,
    forget_ended_session,
    is_over,
    java_ended,
    note_log,
    own_interrupts,
    stop,
)
from mailmend.spark_repair.tls import remove_stores

CONNECTOR_CLASS: Final = "com.datastax.spark.connector.datasource.CassandraCatalog"
CONNECTORS: Final[Mapping[str, str]] = {
    "3": "com.datastax.spark:spark-cassandra-connector_2.12:3.5.1",
    "4": "com.datastax.spark:spark-cassandra-connector_2.13:3.5.1",
}
"""The connector by PySpark's major version. `spark.sql.extensions` must not be set: it breaks all plans on Spark 4."""

_LOG: Final = logging.getLogger("mailmend.spark")
_LOOPBACK: Final = "127.0.0.1"
_MASTER_ON_LOOPBACK: Final = re.compile(r"spark://(127[.]0[.]0[.]1|localhost)(:\d+)?")
_SECRETS: Final = "(?i)secret|password|token|access[.]?key|username"
_FIXED: Final[Mapping[str, str]] = {
    "spark.app.name": "mailmend",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.redaction.regex": _SECRETS,
    "spark.sql.redaction.options.regex": _SECRETS,
    "spark.executor.heartbeatInterval": "1s",  # brings how many rows were read, which paces and progress follow
    "spark.speculation": "false",  # two copies of a task would mend the same rows at once
    "spark.python.worker.reuse": "true",  # a worker keeps its driver session from task to task
}
_SQL: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    # Plans are few and sized by hand: replanning them on the way costs more than it brings, and would cut empty
    # results out of a plan, and with them its scans' row counts.
    "spark.sql.adaptive.enabled": "false",
    # Fingerprints and ids do not compress; trying costs as much as all other work on a row.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
}

_TEN_TIMES_AS_HOT: Final = {"Invocation": 5_000, "MinInvocation": 600, "Compile": 15_000, "BackEdge": 40_000}
_JAVA: Final = " ".join(
    ("-XX:+IgnoreUnrecognizedVMOptions", *(f"-XX:Tier4{name}Threshold={n}0" for name, n in _TEN_TIMES_AS_HOT.items()))
)
"""Java's second compiler waits ten times as long as its default, for what stays hot.

Else it takes much of a short check's processor time, for code that runs for seconds only (docs/adr/0024).
"""

_JAVA_BRIEF: Final = "-XX:TieredStopAtLevel=1"
"""Its first compiler alone."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The settings with which Spark is started.

    Attributes:
        master: Spark's master; ignored inside `spark-submit`, which has set it already.
        driver_memory: heap of the driver, which with a local master is everything.
        java_home: the Java to use; None takes JAVA_HOME or the one on the PATH.
        jars: the files of the Cassandra connector; none where the running session has it.
        cache: folder of Spark's log; None takes the user's own.
        options: further Spark settings, which win over ours; never secrets.
        brief: whether the scan is so short that Java's second compiler does not pay off.
    """

    master: str = "local[*]"
    driver_memory: str = "2g"
    java_home: str | None = None
    jars: Sequence[Path] = ()
    cache: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    brief: bool = False

    @property
    def folder(self) -> Path:
        return self.cache or Path(os.environ.get("XDG_CACHE_HOME") or _home() / ".cache") / "mailmend"

    @property
    def log(self) -> Path:
        """The file of the JVM's output other than errors."""
        return self.folder / "spark.log"


def _home() -> Path:
    """The user's home; where no user has one, as Debian writes it for users of services."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/nonexistent")


def log_place() -> str:
    """A text that says where Spark's own log is."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return "the output of spark-submit"
    return str(SparkSettings().log)


def connector_coordinates(pyspark_version: str) -> str:
    """The connector's Maven coordinates for a version of PySpark."""
    major = pyspark_version.partition(".")[0]
    if major not in CONNECTORS:
        raise WrongUse(
            f"PySpark {pyspark_version} is not one that the Cassandra connector serves",
            mend="Install mailmend[spark], which pins one that it does, or use --engine local.",
        )
    return CONNECTORS[major]


def coordinates_here() -> str:
    """The connector's Maven coordinates for the installed PySpark."""
    return connector_coordinates(version("pyspark"))


def launch_options(settings: SparkSettings) -> dict[str, str]:
    """All settings that the JVM is launched with. `ps` shows them: none is a secret."""
    java_options = _JAVA
    if settings.brief:
        java_options = _JAVA_BRIEF
    options = {
        **_FIXED,
        **_SQL,
        "spark.master": settings.master,
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": java_options,
    }
    if settings.jars:
        options["spark.jars"] = ",".join(map(str, settings.jars))
    if runs_here(settings.master):
        # A task that prefers another place is put back for 3 s, and a local master offers its cores again only when a
        # task ends: if the last one ends within the 3 s, the others wait for ever (SPARK-4939).
        options["spark.locality.wait"] = "0s"
    if _is_on_loopback(settings.master):
        options |= {"spark.driver.bindAddress": _LOOPBACK, "spark.driver.host": _LOOPBACK}
    return options | dict(settings.options)


def _is_on_loopback(master: str) -> bool:
    return runs_here(master) or bool(_MASTER_ON_LOOPBACK.fullmatch(master))


def open_session(settings: SparkSettings) -> SparkSession:
    """The running session (inside `spark-submit`, in tests), or a new one.

    Raises:
        JavaMissing: no Java was found.
        SparkUnreachable: Spark did not start, or has no executors; the message says where to look.
        WrongUse: the running session lacks the connector.
    """
    forget_ended_session()
    session = SparkSession.getActiveSession()
    with own_interrupts():
        if session is None and "PYSPARK_GATEWAY_PORT" in os.environ:
            session = _submitted(settings)
        elif session is None:
            session = _launched(settings)
    for name, value in _SQL.items():
        session.conf.set(name, value)
    _check_connector(session)
    await_executors(session.sparkContext, SystemClock())
    ship_packages(session.sparkContext)
    return session


@contextmanager
def session_for_a_command(settings: SparkSettings) -> Iterator[SparkSession]:
    """A session that is stopped at the end of the block, unless it was running before."""
    forget_ended_session()
    before = SparkSession.getActiveSession()
    session = open_session(settings)
    try:
        with ended_when_interrupted(session), _lost_java_raised():
            yield session
    finally:
        if before is None:
            if not is_over(session):
                remove_stores(session)
            stop(session)


@contextmanager
def _lost_java_raised() -> Iterator[None]:
    """Raise whatever came of a Java process that ended as the error that says so."""
    try:
        yield
    except MailmendError:
        raise
    except Exception as error:
        if not came_of_lost_java(error):
            raise
        raise java_ended() from None


def _submitted(settings: SparkSettings) -> SparkSession:
    """The session inside spark-submit, where the JVM runs and the master is decided."""
    names = ("spark.speculation", "spark.python.worker.reuse", "spark.redaction.regex")
    builder = SparkSession.builder
    options = {name: _FIXED[name] for name in names}
    options.update(settings.options)
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _launched(settings: SparkSettings) -> SparkSession:
    conf = SparkConf(loadDefaults=False).setAll(list(launch_options(settings).items()))
    with _environment(settings), _opened_log(settings) as log:
        try:
            gateway = _gateway(conf, log)
            session = SparkSession(SparkContext(conf=conf, gateway=gateway))
        except Exception as error:  # noqa: BLE001 - whatever kept Spark from starting, in Python or in Java
            raise _start_failure(settings, error) from None
    fields = {"master": settings.master, "application": session.sparkContext.applicationId, "log": str(settings.log)}
    _LOG.info("spark started", extra=fields)
    return session


def _opened_log(settings: SparkSettings) -> IO[bytes]:
    try:
        settings.folder.mkdir(parents=True, exist_ok=True)
        note_log(settings.log)
        return settings.log.open("ab")
    except OSError as error:
        raise WrongUse(
            f"Spark's log {settings.log} cannot be written: {error.strerror or error}",
            mend="Set XDG_CACHE_HOME to a folder that this user may write to; or use --engine local.",
        ) from error


def _gateway(conf: SparkConf, log: IO[bytes]) -> Any:
    """The JVM, one per process; it prints to the log, because stdout is for the report."""
    launch: Any = launch_gateway
    return SparkContext._gateway or launch(conf, {"stdout": log, "stderr": log})  # noqa: SLF001 - no public name


@contextmanager
def _environment(settings: SparkSettings) -> Iterator[None]:
    if not (settings.java_home or os.environ.get("JAVA_HOME") or shutil.which("java")):
        raise JavaMissing(
            "no Java was found, and Spark needs one",
            mend="Install Java 17 (Debian: openjdk-17-jre-headless) or set JAVA_HOME; or use --engine local.",
        )
    ours_first = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))
    wanted = {
        "JAVA_HOME": settings.java_home,
        "PYSPARK_PYTHON": executors_python(settings),
        "PYTHONPATH": ours_first,  # a foreign `model` or `repair` on the path would be imported by Python workers
        "SPARK_HOME": None,
    }
    if _is_on_loopback(settings.master) and "SPARK_LOCAL_IP" not in os.environ:
        wanted["SPARK_LOCAL_IP"] = _LOOPBACK  # else Spark looks up this host's name, which may have no address
    # Spark and its Python workers need AWS_* for a staging area in a bucket, and none of mailmend's own variables.
    hidden = dict.fromkeys(name for name in os.environ if name.startswith("MAILMEND_"))
    before = {name: os.environ.get(name) for name in (*wanted, *hidden)}
    changed: dict[str, str | None] = {**before, **hidden}
    for name, value in wanted.items():
        if value:
            changed[name] = value
    changed["SPARK_HOME"] = None  # the scripts of another Spark do not fit this PySpark
    _set_environment(changed)
    try:
        yield
    finally:
        _set_environment(before)


def executors_python(settings: SparkSettings) -> str:
    """The Python of the executors: on a cluster as set in one of Spark's two ways, else this one."""
    named = None
    if not runs_here(settings.master):
        named = os.environ.get("PYSPARK_PYTHON")
    return settings.options.get("spark.pyspark.python") or named or sys.executable


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _reason(error: Exception) -> str:
    """The line with the cause; the first line of a Java error only names the call."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    if any("stopped SparkContext" in line for line in lines):
        return "no master answers there, or it ended our application"
    for line in lines:
        if not line.startswith("An error occurred while"):
            return line
    return type(error).__name__


def _start_failure(settings: SparkSettings, error: Exception) -> SparkUnreachable:
    return SparkUnreachable(
        f"Spark did not start on {settings.master}: {_reason(error)}",
        mend=f"Its log says more: {settings.log}. Without Spark: --engine local.",
    )


def _check_connector(session: SparkSession) -> None:
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - no public name
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(CONNECTOR_CLASS)
    except Exception:  # noqa: BLE001 - py4j has one error for whatever Java throws
        raise WrongUse(
            "the running Spark session has no Cassandra connector",
            mend=f"Give it to spark-submit: --packages {coordinates_here()}",
        ) from None
